"""What a conversation shows by its structure: requests, demands, decisions, changes, commands and their ends, tasks.

Nothing here understands language. Who said something, which tool was called and how it ended, and a few words that
mark a demand or a decision in several languages, are all that is looked at. The rules are plain, so that two runs over
the same messages notice the same.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct, field

from sessiontree.compacting.files import file_of
from sessiontree.converting.tools import Meaning, find_meaning
from sessiontree.converting.tools.meanings import STATUSES, Todo
from sessiontree.messages import (
    Assistant,
    BashExecution,
    BranchSummaryText,
    CustomText,
    Message,
    ToolCall,
    ToolResult,
    User,
    message_text,
    tool_calls,
)

_AGENTS = ("pi", "claude", "omp", "neovate")
_INJECTED = re.compile(r"<(system-reminder|local-command-stdout|command-[a-z]+)>.*?</\1>", re.DOTALL)
_ENDS = re.compile(r"(?<=[。！？!?])\s*|(?<=[.;])\s+|\n+")
_BOX = re.compile(r"^\s*[-*] \[( |x|X)\] (.+)$", re.MULTILINE)
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
_DEMAND_WORDS = (
    "must never always only don't do_not doesn't shall should prefer avoid make_sure ensure without keep "
    "必 不要 不能 不得 禁止 只 优先 请用 希望 别 "
    "して しないで なければ いけ 優先 だけ ください 반드시 마 말고 주세요 금지 우선 만"
)
_DECISION_WORDS = (
    "decision decide we'll we_will go_with going_with chose choose opt settled agreed instead rather trade stick "
    "conclu "
    "决定 采用 选择 选用 改用 结论 定为 決 採用 選 ことに にします 結論 결정 채택 선택 하기로 결론"
)
_NEXT_WORDS = "next todo to-do remaining 下一步 待办 次の 残り 다음"
"""Of each pattern, words without which it cannot match: looking for those first is many times faster."""

_ERROR_LINE = re.compile(
    r"error|exception|fail|fatal|panic|traceback|denied|not found|no such|refused|timed? ?out"
    r"|错误|失败|异常|找不到|エラー|失敗|例外|오류|실패|예외",
    re.IGNORECASE,
)


class Run(Struct):
    """A command, or another call that can fail, as it ended last."""

    what: str
    is_command: bool
    ok: bool = True
    last_line: str = ""
    error: str = ""
    """The error's own words, from the last time that it failed."""


class Noticed(Struct):
    """What was noticed, each in the order it was said last."""

    requests: list[str] = field(default_factory=list)
    demands: list[str] = field(default_factory=list)
    decisions: list[str] = field(default_factory=list)
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


def notice(messages: Iterable[Message], agent: str) -> Noticed:
    """Everything that some messages show."""
    noticed = Noticed()
    waiting: dict[str, ToolCall] = {}
    for message in messages:
        match message:
            case User() | CustomText():
                _hear_user(noticed, _INJECTED.sub("", message_text(message)).strip())
            case Assistant():
                calls = tool_calls(message)
                waiting.update((call.id, call) for call in calls)
                _hear_answer(noticed, message_text(message).strip(), is_last=not calls)
                for call in calls:
                    _see_call(noticed, call, agent)
            case ToolResult():
                _see_result(noticed, waiting.pop(message.tool_call_id, None), message, agent)
            case BashExecution():
                _record(noticed, message.command, True, not message.exit_code, message.output)
            case BranchSummaryText():
                noticed.notes.append(message.summary)
            case _:
                pass
    return noticed


def _hear_user(noticed: Noticed, text: str) -> None:
    if not text:
        return
    noticed.requests.append(text)
    noticed.is_answered = False
    if _has_any(text, _DEMAND_WORDS) or _has_any(text, _DECISION_WORDS):
        for sentence in sentences(text):
            if _DECISION.search(sentence):
                _newest(noticed.decisions, f"the user: {sentence}")
            elif _DEMAND.search(sentence):
                _newest(noticed.demands, sentence)
    _see_boxes(noticed, text)


def _hear_answer(noticed: Noticed, text: str, *, is_last: bool) -> None:
    if is_last and text:
        noticed.is_answered = True
        noticed.answers_earlier = noticed.answers_earlier or not noticed.requests
    if not text:
        return
    noticed.last_answer = text
    if _has_any(text, _DECISION_WORDS):
        for sentence in sentences(text):
            if _DECISION.search(sentence):
                _newest(noticed.decisions, sentence)
    _see_boxes(noticed, text)
    plan = list(_planned(text)) if _has_any(text, _NEXT_WORDS) else []
    if plan:
        noticed.plan = plan


def _has_any(text: str, words: str) -> bool:
    text = text.lower()
    return any(word in text for word in _split(words))


@functools.cache
def _split(words: str) -> tuple[str, ...]:
    return tuple(word.replace("_", " ") for word in words.split())


def _see_boxes(noticed: Noticed, text: str) -> None:
    for mark, task in _BOX.findall(text) if "] " in text else ():
        noticed.tasks[task.strip()] = "pending" if mark == " " else "completed"


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


def _see_call(noticed: Noticed, call: ToolCall, agent: str) -> None:
    file = file_of(call, agent)
    if file is not None and file[0] != "read":
        noticed.changes[file[1]] = noticed.changes.pop(file[1], 0) + 1
    todo = _todo(call, agent)
    if todo is not None:
        for task in [task for task, status in noticed.tasks.items() if status != "completed"]:
            del noticed.tasks[task]  # a list of tasks replaces the one before
        noticed.lists_tasks = True
        noticed.tasks.update(todo)


def _todo(call: ToolCall, agent: str) -> dict[str, str] | None:
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


def _meaning(call: ToolCall, agent: str) -> Meaning | None:
    for words in (agent, *(other for other in _AGENTS if other != agent)):
        found = find_meaning(call.name, call.arguments, words)
        if found is not None:
            return found
    return None


def _see_result(noticed: Noticed, call: ToolCall | None, result: ToolResult, agent: str) -> None:
    text = message_text(result)
    command = call.arguments.get("command") if call is not None else None
    if isinstance(command, str) and command:
        _record(noticed, command, True, not result.is_error, text)
        return
    file = file_of(call, agent) if call is not None else None
    what = f"{result.tool_name or (call.name if call else 'a tool')} {file[1] if file else ''}".strip()
    if result.is_error or what in noticed.runs:
        _record(noticed, what, False, not result.is_error, text)


def _record(noticed: Noticed, what: str, is_command: bool, ok: bool, text: str) -> None:
    run = noticed.runs.pop(what, None) or Run(what, is_command)
    run.ok = ok
    run.last_line = text.rstrip().rpartition("\n")[2].strip()
    if not ok:
        run.error = error_words(text)
    noticed.runs[what] = run


def error_words(text: str) -> str:
    """The lines of an output that name what went wrong: the last ones that sound like it, else the last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if _ERROR_LINE.search(line)]
    return "\n".join(dict.fromkeys(telling[-2:] or lines[-1:]))


def sentences(text: str) -> Iterator[str]:
    """A text in sentences, code blocks left out."""
    is_code = False
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            is_code = not is_code
        elif not is_code:
            yield from (part.strip(" \t-*#>") for part in _ENDS.split(line) if part and part.strip(" \t-*#>"))


def _newest(found: list[str], sentence: str) -> None:
    if sentence in found:
        found.remove(sentence)
    found.append(sentence)


def focus_words(instructions: str) -> Sequence[str]:
    """The words that instructions ask for: of languages without spaces, every pair of characters."""
    words = [word.lower() for word in re.findall(r"[A-Za-z0-9_./-]{3,}", instructions)]
    for run in re.findall("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7ff]{2,}", instructions):
        words += [run[at : at + 2] for at in range(len(run) - 1)]
    return tuple(word for word in dict.fromkeys(words) if word not in _COMMON)


_COMMON = frozenset({"the", "and", "for", "that", "this", "with", "from", "focus", "about", "keep", "what", "which"})
