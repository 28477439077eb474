"""What a conversation shows by its structure: requests, demands, decisions, changes, commands and their ends, tasks.

Nothing here understands language. Who said something, which tool was called and how it ended, and a few words that
mark a demand or a decision in several languages, are all that is looked at. The rules are plain, so that two runs over
the same messages notice the same.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeAlias

from msgspec import Struct, field

from sessiontree.compaction.touched_files import file_of, speakers
from sessiontree.conversion.tools import FileUse, Intent, find_intent, find_intent_type
from sessiontree.conversion.tools.intents import STATUSES, Todo
from sessiontree.core.messages import (
    Assistant,
    BashExecution,
    BranchSummaryText,
    Content,
    CustomText,
    Message,
    ToolCall,
    ToolResult,
    User,
    text_of,
    tool_calls,
)

_INJECTED = re.compile(r"<(system-reminder|local-command-stdout|command-[a-z]+)>.*?</\1>", re.DOTALL)
_ENDS = re.compile(r"(?<=[。！？!?])\s*|(?<=[.;])\s+|\n+")
_MARKED = {" ": "pending", "x": "completed", "X": "completed"}
_BOX = len("- [ ] ")
_BOXES = {f"{bullet} [{mark}] ": status for bullet in "-*" for mark, status in _MARKED.items()}
_NEXT = re.compile(
    r"^#*\s*\**(next steps?|to-?do|remaining|下一步|待办|次のステップ|残り|다음 단계)\W*$", re.IGNORECASE
)
_LISTED = re.compile(r"^\s*(?:[-*]|\d+[.)])\s+(.+)$")
_DEMAND = re.compile(
    r"\b(must|never|always|only|don't|do not|doesn't need|shall|should|prefer|avoid|make sure|ensure|without|keep)\b"
    r"|必须|不要|不能|不得|务必|禁止|只能|只用|优先|请用|希望|别"
    r"|してください|しないで|必ず|禁止|なければ|てはいけ|優先|だけ|ください"
    r"|반드시|하지 마|마세요|말고|해 ?주세요|금지|우선|만 사용",
    re.IGNORECASE,
)
_DECISION = re.compile(
    r"\b(decision|decided?|we(?:'ll| will) (?:use|keep|go)|go(?:ing)? with|chose|choose|chosen|opt(?:ed)? for|"
    r"settled on|agreed|instead of|rather than|trade-?off|stick(?:ing)? with|conclu(?:de|sion))\b"
    r"|决定|采用|选择|选用|改用|结论|定为"
    r"|決め|決定|採用|選ぶ|選び|ことにし|にします|結論"
    r"|결정|채택|선택|하기로|결론",
    re.IGNORECASE,
)


def _folded(raw: bytes) -> list[bytes]:
    """The words of a text in small letters, as far as they are of ASCII."""
    return raw.translate(_FOLDING).split()


_ASCII = bytes(range(128))
_FOLDING = bytes(ord(chr(at).lower()) if at < 128 and chr(at).isalnum() else ord(" ") for at in range(256))


class _Words:
    """What a text has some of wherever a pattern matches. Looking for that first is many times faster."""

    def __init__(self, plain: str, foreign: str) -> None:
        self.plain = tuple(word.replace("_", " ") for word in plain.split())
        self._first = frozenset(_folded(word.encode())[0] for word in self.plain)
        self._foreign = tuple(foreign.split())

    def may_be_in(self, text: str) -> bool:
        """Whether a text is worth reading."""
        raw = text.encode("utf-8", "surrogatepass")
        if not self._first.isdisjoint(_folded(raw)):
            return True
        foreign = b"" if text.isascii() else raw.translate(None, _ASCII)
        return bool(foreign) and _has_any(foreign.decode("utf-8", "surrogatepass"), self._foreign)

    def found_in(self, text: str) -> list[str]:
        """Those that a text has, in small letters."""
        lowered = text.lower()
        found = [word for word in self.plain if word in lowered]
        return found if text.isascii() else [*found, *(word for word in self._foreign if word in text)]


_DEMAND_WORDS = _Words(
    "must never always only don't do_not doesn't_need shall should prefer avoid make_sure ensure without keep",
    "必 不要 不能 不得 禁止 只 优先 请用 希望 别 して しないで なければ いけ 優先 だけ ください "
    "반드시 마 말고 주세요 금지 우선 만",
)
_DECISION_WORDS = _Words(
    "decision decide decided we'll_ we_will_ go_with going_with chose chosen choose opt_for opted_for settled_on "
    "agreed instead_of rather_than tradeoff trade-off stick_with sticking_with conclude conclusion",
    "决定 采用 选择 选用 改用 结论 定为 決 採用 選 ことに にします 結論 결정 채택 선택 하기로 결론",
)
_NEXT_WORDS = _Words("next_step todo to-do remaining", "下一步 待办 次の 残り 다음")

_ERROR_LINE = re.compile(
    r"error|exception|fail|fatal|panic|traceback|denied|not found|no such|refused|timed? ?out"
    r"|错误|失败|异常|找不到|エラー|失敗|例外|오류|실패|예외",
    re.IGNORECASE,
)


class Run(Struct):
    """A command, or another call that can fail, as it ended last."""

    what: str
    is_command: bool
    messages: Sequence[Message]
    ok: bool = True
    ended_at: int = 0
    """Which of the messages says how it ended. Few outputs are ever looked at, so they are not read before."""
    failure: Content = ""
    """What it gave the last time that it failed."""

    @property
    def last_line(self) -> str:
        return text_of(_output(self.messages[self.ended_at])).rstrip().rpartition("\n")[2].strip()

    @property
    def has_failed(self) -> bool:
        return bool(text_of(self.failure).strip())

    @property
    def error(self) -> str:
        """The error's own words, from the last time that it failed."""
        return error_words(text_of(self.failure))


class Heard(Struct, frozen=True):
    """Sentences of a kind, in the order they were said last."""

    sentences: tuple[str, ...] = ()
    is_all: bool = True
    """Whether there are no others: where there are very many, only the first two and the newest are looked for."""


class Noticed(Struct):
    """What was noticed, each in the order it was said last."""

    requests: list[str] = field(default_factory=list)
    demands: Heard = Heard()
    decisions: Heard = Heard()
    runs: dict[str, Run] = field(default_factory=dict)
    changes: dict[str, int] = field(default_factory=dict)
    tasks: dict[str, str] = field(default_factory=dict)
    """Open and closed tasks with their status."""
    plan: list[str] = field(default_factory=list)
    """What the last list under a heading like "next steps" says."""
    notes: list[str] = field(default_factory=list)
    """Summaries of branches that were left."""
    last_answer: str = ""
    is_answered: bool = True
    """Whether the last request got an answer that ends its turn."""
    answers_earlier: bool = False
    """Whether such an answer came before the first request, so that it belongs to one before these messages."""
    lists_tasks: bool = False
    """Whether a whole list of tasks was given, which replaces any before it."""


_PLAN_WITHIN = 1_000
"""A plan that so many answers did not come back to is no plan any more."""

_SOUGHT_TOGETHER = 32
"""Texts that are searched in one go for words that most of them do not have."""

_Waiting: TypeAlias = tuple[ToolCall, tuple[FileUse, str] | None]
"""A call that has no result yet, and the file it is about."""


class _Said(Struct, frozen=True, gc=False):
    """A text that may tell something, and who said it."""

    text: str
    is_user: bool


def notice(messages: Sequence[Message], agent: str, enough: int) -> Noticed:
    """Everything that some messages show. Of more demands or decisions than `enough`, the first two and the newest."""
    noticed, runs = Noticed(), _Runs(messages)
    said: list[_Said] = []
    waiting: dict[str, _Waiting] = {}
    for at, message in enumerate(messages):
        match message:
            case ToolResult():
                runs.see_result(at, waiting.pop(message.tool_call_id, None), message)
            case Assistant():
                calls = tool_calls(message)
                text = text_of(message.content).strip() if len(calls) < len(message.content) else ""
                if text:
                    _hear_answer(noticed, text, is_last=not calls)
                    said.append(_Said(text, is_user=False))
                for call in calls:
                    file = file_of(call, agent)
                    waiting[call.id] = (call, file)
                    _see_call(noticed, call, file, agent)
            case User() | CustomText():
                text = _without_injected(text_of(message.content)).strip()
                if text:
                    _hear_user(noticed, text)
                    said.append(_Said(text, is_user=True))
            case BashExecution():
                runs.record(message.command, True, not message.exit_code, at, message)
            case BranchSummaryText():
                noticed.notes.append(message.summary)
            case _:
                pass
    noticed.runs = runs.found
    noticed.demands = _heard([each for each in said if each.is_user], _DEMAND_WORDS, _demands_in, enough)
    noticed.decisions = _heard(said, _DECISION_WORDS, _decisions_in, enough)
    answers = (each.text for each in reversed(said) if not each.is_user)
    noticed.plan = _last_plan(islice(answers, _PLAN_WITHIN))
    return noticed


def _heard(told: Sequence[_Said], words: _Words, found_in: Callable[[_Said], Iterable[str]], enough: int) -> Heard:
    newest: dict[str, None] = {}
    for said in _with(words, told[::-1]):
        for sentence in reversed(list(found_in(said))):
            newest.setdefault(sentence)
        if len(newest) >= enough:
            break
    else:
        return Heard(tuple(reversed(newest)))
    older = (sentence for said in _with(words, told) for sentence in found_in(said) if sentence not in newest)
    return Heard((*dict.fromkeys(islice(older, 2)), *reversed(newest)), is_all=False)


def _with(words: _Words, told: Sequence[_Said]) -> Iterator[_Said]:
    """At least those of some texts that have any of the words."""
    for start in range(0, len(told), _SOUGHT_TOGETHER):
        together = told[start : start + _SOUGHT_TOGETHER]
        if words.may_be_in("\n".join([said.text for said in together])):
            yield from together


def _decisions_in(said: _Said) -> Iterator[str]:
    words = _DECISION_WORDS.found_in(said.text)
    for sentence in sentences(said.text, words) if words else ():
        if _has_any(sentence.lower(), words) and _DECISION.search(sentence):
            yield f"the user: {sentence}" if said.is_user else sentence


def _demands_in(said: _Said) -> Iterator[str]:
    words = _DEMAND_WORDS.found_in(said.text)
    for sentence in sentences(said.text, words) if words else ():
        if _has_any(sentence.lower(), words) and _DEMAND.search(sentence) and not _is_decision(sentence):
            yield sentence


def _is_decision(sentence: str) -> bool:
    may_be = not sentence.isascii() or _has_any(sentence.lower(), _DECISION_WORDS.plain)
    return may_be and _DECISION.search(sentence) is not None


def _without_injected(text: str) -> str:
    return _INJECTED.sub("", text) if "</" in text else text


def _hear_user(noticed: Noticed, text: str) -> None:
    noticed.requests.append(text)
    noticed.is_answered = False
    _see_boxes(noticed, text)


def _hear_answer(noticed: Noticed, text: str, *, is_last: bool) -> None:
    if is_last:
        noticed.is_answered = True
        noticed.answers_earlier = noticed.answers_earlier or not noticed.requests
    noticed.last_answer = text
    _see_boxes(noticed, text)


def _has_any(text: str, words: Iterable[str]) -> bool:
    return any(word in text for word in words)


def _see_boxes(noticed: Noticed, text: str) -> None:
    if "] " not in text:
        return
    for line in text.split("\n"):
        if "] " in line:
            bare = line.lstrip()
            status, task = _BOXES.get(bare[:_BOX]), bare[_BOX:]
            if status is not None and task:
                noticed.tasks[task.strip()] = status


def _last_plan(answers: Iterable[str]) -> list[str]:
    """The plan in the first of some answers that has one."""
    for text in answers:
        plan = list(_planned(text)) if _NEXT_WORDS.found_in(text) else []
        if plan:
            return plan
    return []


def _planned(text: str) -> Iterator[str]:
    """The points of a list under a heading that says what comes next."""
    is_inside = False
    for line in text.splitlines():
        if _NEXT.match(line.strip()):
            is_inside = True
        elif is_inside and (point := _LISTED.match(line)):
            yield point.group(1).strip()
        elif is_inside and line.strip():
            is_inside = False


def _see_call(noticed: Noticed, call: ToolCall, file: tuple[FileUse, str] | None, agent: str) -> None:
    if file is not None and file[0] != "read":
        noticed.changes[file[1]] = noticed.changes.pop(file[1], 0) + 1
    todo = _todo(call, agent)
    if todo is not None:
        for task in [task for task, status in noticed.tasks.items() if status != "completed"]:
            del noticed.tasks[task]  # a list of tasks replaces the one before
        noticed.lists_tasks = True
        noticed.tasks.update(todo)


def _todo(call: ToolCall, agent: str) -> dict[str, str] | None:
    if _may_list_tasks(call.name, agent):
        meaning = _meaning(call, agent)
        if isinstance(meaning, Todo):
            return {item.text: item.status for item in meaning.items}
    items = call.arguments.get("todos")
    if not isinstance(items, list):
        return None
    return dict(filter(None, map(_task, items)))


def _task(item: Any) -> tuple[str, str] | None:
    if not isinstance(item, dict):
        return None
    text, status = item.get("content") or item.get("text"), item.get("status")
    return (text, status) if isinstance(text, str) and text and status in STATUSES else None


@functools.lru_cache(maxsize=256)
def _may_list_tasks(name: str, agent: str) -> bool:
    return any(find_intent_type(name, words) is Todo for words in speakers(agent))


def _meaning(call: ToolCall, agent: str) -> Intent | None:
    for words in speakers(agent):
        found = find_intent(call.name, call.arguments, words)
        if found is not None:
            return found
    return None


class _Runs:
    """How commands and other calls ended, among some messages."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = messages
        self.found: dict[str, Run] = {}

    def see_result(self, at: int, asked: _Waiting | None, result: ToolResult) -> None:
        call, file = asked or (None, None)
        command = call.arguments.get("command") if call is not None else None
        if isinstance(command, str) and command:
            self.record(command, True, not result.is_error, at, result)
            return
        name = result.tool_name or (call.name if call else "a tool")
        what = f"{name} {file[1]}".strip() if file else name.strip()
        if result.is_error or what in self.found:
            self.record(what, False, not result.is_error, at, result)

    def record(self, what: str, is_command: bool, ok: bool, at: int, end: Message) -> None:
        run = self.found.pop(what, None) or Run(what, is_command, self._messages)
        run.ok, run.ended_at = ok, at
        if not ok:
            run.failure = _output(end)
        self.found[what] = run


def _output(message: Message) -> Content:
    """What a call or a command gave."""
    return (
        message.output
        if isinstance(message, BashExecution)
        else message.content
        if isinstance(message, ToolResult)
        else ""
    )


def error_words(text: str) -> str:
    """The lines of an output that name what went wrong: the last ones that sound like it, else the last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = list(islice(filter(_ERROR_LINE.search, reversed(lines)), 2))
    return "\n".join(dict.fromkeys(telling[::-1] or lines[-1:]))


def sentences(text: str, words: Sequence[str] = ("",)) -> Iterator[str]:
    """A text in sentences, code blocks and lines without any of the words left out."""
    is_code = False
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            is_code = not is_code
        elif not is_code and _has_any(line.lower(), words):
            for part in _ENDS.split(line):
                sentence = part.strip(" \t-*#>") if part else ""
                if sentence:
                    yield sentence


def focus_words(instructions: str) -> Sequence[str]:
    """The words that instructions ask for: of languages without spaces, every pair of characters."""
    words = [word.lower() for word in re.findall(r"[A-Za-z0-9_./-]{3,}", instructions)]
    for run in re.findall("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7ff]{2,}", instructions):
        words += [run[at : at + 2] for at in range(len(run) - 1)]
    return tuple(word for word in dict.fromkeys(words) if word not in _COMMON)


_COMMON = frozenset({"the", "and", "for", "that", "this", "with", "from", "focus", "about", "keep", "what", "which"})
