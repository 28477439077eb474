"""Facts found in messages by rules: requests, demands, decisions, changed files, commands with their results, tasks.

The rules use only roles, tool calls with their results, and a few words that mark a demand or a decision in several
languages. The same messages always give the same facts.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeAlias

from msgspec import Struct, field

from sessiontree.compaction.touched_files import file_of
from sessiontree.conversion.tool_mapping import tool_tables
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
from sessiontree.dialects.tool_intents import STATUSES, Intent, Todo
from sessiontree.dialects.tool_table import FileUse

_INJECTED = re.compile(r"<(system-reminder|local-command-stdout|command-[a-z]+)>.*?</\1>", re.DOTALL)
_SENTENCE_END = re.compile(r"(?<=[。！？!?])\s*|(?<=[.;])\s+|\n+")
_CHECKBOX_STATUS = {" ": "pending", "x": "completed", "X": "completed"}
_CHECKBOX_LENGTH = len("- [ ] ")
_CHECKBOXES = {f"{bullet} [{mark}] ": status for bullet in "-*" for mark, status in _CHECKBOX_STATUS.items()}
_NEXT_HEADING = re.compile(
    r"^#*\s*\**(next steps?|to-?do|remaining|下一步|待办|次のステップ|残り|다음 단계)\W*$", re.IGNORECASE
)
_LIST_ITEM = re.compile(r"^\s*(?:[-*]|\d+[.)])\s+(.+)$")
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


def _ascii_words(raw: bytes) -> list[bytes]:
    """The ASCII words of a text in lower case."""
    return raw.translate(_LOWERCASE_WORDS).split()


_ASCII = bytes(range(128))
_LOWERCASE_WORDS = bytes(ord(chr(at).lower()) if at < 128 and chr(at).isalnum() else ord(" ") for at in range(256))


class _WordFilter:
    """Words, one of which every match of a pattern contains. Searching for these first is many times faster."""

    def __init__(self, plain: str, foreign: str) -> None:
        self.plain = tuple(word.replace("_", " ") for word in plain.split())
        self._first = frozenset(_ascii_words(word.encode())[0] for word in self.plain)
        self._foreign = tuple(foreign.split())

    def may_match(self, text: str) -> bool:
        """Whether the pattern may match a text."""
        raw = text.encode("utf-8", "surrogatepass")
        if not self._first.isdisjoint(_ascii_words(raw)):
            return True
        foreign = b"" if text.isascii() else raw.translate(None, _ASCII)
        return bool(foreign) and _has_any(foreign.decode("utf-8", "surrogatepass"), self._foreign)

    def found_in(self, text: str) -> list[str]:
        """The words that a text contains, in lower case."""
        lowered = text.lower()
        found = [word for word in self.plain if word in lowered]
        return found if text.isascii() else [*found, *(word for word in self._foreign if word in text)]


_DEMAND_WORDS = _WordFilter(
    "must never always only don't do_not doesn't_need shall should prefer avoid make_sure ensure without keep",
    "必 不要 不能 不得 禁止 只 优先 请用 希望 别 して しないで なければ いけ 優先 だけ ください "
    "반드시 마 말고 주세요 금지 우선 만",
)
_DECISION_WORDS = _WordFilter(
    "decision decide decided we'll_ we_will_ go_with going_with chose chosen choose opt_for opted_for settled_on "
    "agreed instead_of rather_than tradeoff trade-off stick_with sticking_with conclude conclusion",
    "决定 采用 选择 选用 改用 结论 定为 決 採用 選 ことに にします 結論 결정 채택 선택 하기로 결론",
)
_NEXT_WORDS = _WordFilter("next_step todo to-do remaining", "下一步 待办 次の 残り 다음")

_ERROR_LINE = re.compile(
    r"error|exception|fail|fatal|panic|traceback|denied|not found|no such|refused|timed? ?out"
    r"|错误|失败|异常|找不到|エラー|失敗|例外|오류|실패|예외",
    re.IGNORECASE,
)


class Run(Struct):
    """A command, or another call that can fail, with its last result."""

    name: str
    is_command: bool
    messages: Sequence[Message]
    ok: bool = True
    ended_at: int = 0
    """Index of the message with the result. It is read on demand, because few outputs are needed."""
    failure: Content = ""
    """Output of the last failure."""

    @property
    def last_line(self) -> str:
        return text_of(_output(self.messages[self.ended_at])).rstrip().rpartition("\n")[2].strip()

    @property
    def has_failed(self) -> bool:
        return bool(text_of(self.failure).strip())

    @property
    def error(self) -> str:
        """Error lines of the last failure."""
        return error_words(text_of(self.failure))


class Sentences(Struct, frozen=True):
    """Sentences of one kind, ordered by their last occurrence."""

    sentences: tuple[str, ...] = ()
    is_all: bool = True
    """Whether these are all: if there are very many, only the first two and the newest are listed."""


class MessageFacts(Struct):
    """Facts found in messages, each kind ordered by last occurrence."""

    requests: list[str] = field(default_factory=list)
    demands: Sentences = Sentences()
    decisions: Sentences = Sentences()
    runs: dict[str, Run] = field(default_factory=dict)
    changes: dict[str, int] = field(default_factory=dict)
    tasks: dict[str, str] = field(default_factory=dict)
    """Tasks with their status."""
    plan: list[str] = field(default_factory=list)
    """Items of the last list under a heading like "next steps"."""
    notes: list[str] = field(default_factory=list)
    """Summaries of other branches."""
    last_answer: str = ""
    is_answered: bool = True
    """Whether the last request has a final answer."""
    answers_earlier: bool = False
    """Whether a final answer comes before the first request, so that it answers a request before these messages."""
    lists_tasks: bool = False
    """Whether a tool call set the complete list of tasks, which replaces earlier ones."""


_PLAN_ANSWERS = 1_000
"""Only the last this many answers are searched for a plan."""

_SEARCH_BATCH = 32
"""Texts that are searched together for words that most of them do not contain."""

_PendingCall: TypeAlias = tuple[ToolCall, tuple[FileUse, str] | None]
"""A call without a result yet, and its file."""


class _Statement(Struct, frozen=True, gc=False):
    """A text of the user or the assistant."""

    text: str
    is_user: bool


def find_facts(messages: Sequence[Message], agent: str, enough: int) -> MessageFacts:
    """Find the facts in messages. Of more than `enough` demands or decisions, the first two and the newest."""
    facts, runs = MessageFacts(), _Runs(messages)
    statements: list[_Statement] = []
    pending: dict[str, _PendingCall] = {}
    for at, message in enumerate(messages):
        match message:
            case ToolResult():
                runs.add_result(at, pending.pop(message.tool_call_id, None), message)
            case Assistant():
                calls = tool_calls(message)
                text = text_of(message.content).strip() if len(calls) < len(message.content) else ""
                if text:
                    _add_answer(facts, text, is_last=not calls)
                    statements.append(_Statement(text, is_user=False))
                for call in calls:
                    file = file_of(call, agent)
                    pending[call.id] = (call, file)
                    _add_call(facts, call, file, agent)
            case User() | CustomText():
                text = _without_injected(text_of(message.content)).strip()
                if text:
                    _add_user_text(facts, text)
                    statements.append(_Statement(text, is_user=True))
            case BashExecution():
                runs.record(message.command, True, not message.exit_code, at, message)
            case BranchSummaryText():
                facts.notes.append(message.summary)
            case _:
                pass
    facts.runs = runs.found
    facts.demands = _matching_sentences(
        [each for each in statements if each.is_user], _DEMAND_WORDS, _demands_in, enough
    )
    facts.decisions = _matching_sentences(statements, _DECISION_WORDS, _decisions_in, enough)
    answers = (each.text for each in reversed(statements) if not each.is_user)
    facts.plan = _last_plan(islice(answers, _PLAN_ANSWERS))
    return facts


def _matching_sentences(
    statements: Sequence[_Statement], words: _WordFilter, found_in: Callable[[_Statement], Iterable[str]], enough: int
) -> Sentences:
    newest: dict[str, None] = {}
    for statement in _candidates(words, statements[::-1]):
        for sentence in reversed(list(found_in(statement))):
            newest.setdefault(sentence)
        if len(newest) >= enough:
            break
    else:
        return Sentences(tuple(reversed(newest)))
    older = (
        sentence
        for statement in _candidates(words, statements)
        for sentence in found_in(statement)
        if sentence not in newest
    )
    return Sentences((*dict.fromkeys(islice(older, 2)), *reversed(newest)), is_all=False)


def _candidates(words: _WordFilter, statements: Sequence[_Statement]) -> Iterator[_Statement]:
    """The texts that may contain any of the words, batch by batch."""
    for start in range(0, len(statements), _SEARCH_BATCH):
        batch = statements[start : start + _SEARCH_BATCH]
        if words.may_match("\n".join([statement.text for statement in batch])):
            yield from batch


def _decisions_in(statement: _Statement) -> Iterator[str]:
    words = _DECISION_WORDS.found_in(statement.text)
    for sentence in sentences(statement.text, words) if words else ():
        if _has_any(sentence.lower(), words) and _DECISION.search(sentence):
            yield f"the user: {sentence}" if statement.is_user else sentence


def _demands_in(statement: _Statement) -> Iterator[str]:
    words = _DEMAND_WORDS.found_in(statement.text)
    for sentence in sentences(statement.text, words) if words else ():
        if _has_any(sentence.lower(), words) and _DEMAND.search(sentence) and not _is_decision(sentence):
            yield sentence


def _is_decision(sentence: str) -> bool:
    may_be = not sentence.isascii() or _has_any(sentence.lower(), _DECISION_WORDS.plain)
    return may_be and _DECISION.search(sentence) is not None


def _without_injected(text: str) -> str:
    return _INJECTED.sub("", text) if "</" in text else text


def _add_user_text(facts: MessageFacts, text: str) -> None:
    facts.requests.append(text)
    facts.is_answered = False
    _add_checkboxes(facts, text)


def _add_answer(facts: MessageFacts, text: str, *, is_last: bool) -> None:
    if is_last:
        facts.is_answered = True
        facts.answers_earlier = facts.answers_earlier or not facts.requests
    facts.last_answer = text
    _add_checkboxes(facts, text)


def _has_any(text: str, words: Iterable[str]) -> bool:
    return any(word in text for word in words)


def _add_checkboxes(facts: MessageFacts, text: str) -> None:
    if "] " not in text:
        return
    for line in text.split("\n"):
        if "] " in line:
            bare = line.lstrip()
            status, task = _CHECKBOXES.get(bare[:_CHECKBOX_LENGTH]), bare[_CHECKBOX_LENGTH:]
            if status is not None and task:
                facts.tasks[task.strip()] = status


def _last_plan(answers: Iterable[str]) -> list[str]:
    """The plan of the first answer that has one."""
    for text in answers:
        plan = list(_planned_steps(text)) if _NEXT_WORDS.found_in(text) else []
        if plan:
            return plan
    return []


def _planned_steps(text: str) -> Iterator[str]:
    """Items of a list under a heading for next steps."""
    is_inside = False
    for line in text.splitlines():
        if _NEXT_HEADING.match(line.strip()):
            is_inside = True
        elif is_inside and (point := _LIST_ITEM.match(line)):
            yield point.group(1).strip()
        elif is_inside and line.strip():
            is_inside = False


def _add_call(facts: MessageFacts, call: ToolCall, file: tuple[FileUse, str] | None, agent: str) -> None:
    if file is not None and file[0] != "read":
        facts.changes[file[1]] = facts.changes.pop(file[1], 0) + 1
    todo = _todo(call, agent)
    if todo is not None:
        for task in [task for task, status in facts.tasks.items() if status != "completed"]:
            del facts.tasks[task]  # the new list replaces the open tasks of the one before
        facts.lists_tasks = True
        facts.tasks.update(todo)


def _todo(call: ToolCall, agent: str) -> dict[str, str] | None:
    if _may_list_tasks(call.name, agent):
        meaning = _call_intent(call, agent)
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
    found = (tools.find_by_name(name) for tools in tool_tables(agent))
    return any(tool is not None and tool.intent is Todo for tool in found)


def _call_intent(call: ToolCall, agent: str) -> Intent | None:
    found = (tools.find_intent(call.name, call.arguments) for tools in tool_tables(agent))
    return next((intent for intent in found if intent is not None), None)


class _Runs:
    """Results of commands and other calls in some messages."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = messages
        self.found: dict[str, Run] = {}

    def add_result(self, at: int, pending: _PendingCall | None, result: ToolResult) -> None:
        call, file = pending or (None, None)
        command = call.arguments.get("command") if call is not None else None
        if isinstance(command, str) and command:
            self.record(command, True, not result.is_error, at, result)
            return
        name = result.tool_name or (call.name if call else "a tool")
        name = f"{name} {file[1]}".strip() if file else name.strip()
        if result.is_error or name in self.found:
            self.record(name, False, not result.is_error, at, result)

    def record(self, name: str, is_command: bool, ok: bool, at: int, end: Message) -> None:
        run = self.found.pop(name, None) or Run(name, is_command, self._messages)
        run.ok, run.ended_at = ok, at
        if not ok:
            run.failure = _output(end)
        self.found[name] = run


def _output(message: Message) -> Content:
    """Output of a call or a command."""
    return (
        message.output
        if isinstance(message, BashExecution)
        else message.content
        if isinstance(message, ToolResult)
        else ""
    )


def error_words(text: str) -> str:
    """The last lines of an output that look like errors, else its last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    error_lines = list(islice(filter(_ERROR_LINE.search, reversed(lines)), 2))
    return "\n".join(dict.fromkeys(error_lines[::-1] or lines[-1:]))


def sentences(text: str, words: Sequence[str] = ("",)) -> Iterator[str]:
    """Split a text into sentences, without code blocks and lines that contain none of the words."""
    is_code = False
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            is_code = not is_code
        elif not is_code and _has_any(line.lower(), words):
            for part in _SENTENCE_END.split(line):
                sentence = part.strip(" \t-*#>") if part else ""
                if sentence:
                    yield sentence


def focus_words(instructions: str) -> Sequence[str]:
    """Words of the instructions to search for; for languages without spaces, every pair of characters."""
    words = [word.lower() for word in re.findall(r"[A-Za-z0-9_./-]{3,}", instructions)]
    for run in re.findall("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7ff]{2,}", instructions):
        words += [run[at : at + 2] for at in range(len(run) - 1)]
    return tuple(word for word in dict.fromkeys(words) if word not in _STOP_WORDS)


_STOP_WORDS = frozenset(
    {"the", "and", "for", "that", "this", "with", "from", "focus", "about", "keep", "what", "which"}
)
