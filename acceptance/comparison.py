"""Compare two histories of one conversation.

A history becomes lines, one per text, image, tool call or result. Messages are rendered for the Anthropic API first,
because Claude Code sends that, and every message can be rendered so. Whitespace is collapsed, and results are in the
order of their calls.

Each program has its own wording for summaries, commands and files ("paraphrased" here). Of those, only the recorded
parts are compared: they must occur at the same position. A text that both sides have literally is never paraphrased.
"""

from __future__ import annotations

import base64
import difflib
import functools
import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import filterfalse, groupby, takewhile
from typing import Any, TypeAlias

from msgspec.structs import replace

from sessiontree.core.messages import (
    Assistant,
    BashExecution,
    BranchSummaryText,
    CompactionSummary,
    Image,
    Message,
    OtherMessage,
    Thinking,
    ToolResult,
    blocks_of,
    message_blocks,
    message_text,
    tool_calls,
)
from sessiontree.dialects.codex.items import ABORTED
from sessiontree.providers import render
from sessiontree.providers.templates import NO_OUTPUT, NO_RESULT, NO_USER_BEFORE, NO_USER_BETWEEN
from sessiontree.tui.image_size import image_size

JsonObject: TypeAlias = dict[str, Any]
Parts: TypeAlias = tuple[str, ...]

NOTHING_RECORDED = "(nothing was recorded)"
# The placeholders for a missing tool result: ours, the two of Claude Code, Neovate's, Codex's, Qwen Code's, OpenCode's,
# and the one that we write for Gemini CLI.
MISSING_RESULT_TEXTS = (
    *(NO_RESULT, "[Tool call interrupted:", "[Tool result missing", "[Request interrupted by user]"),
    *("aborted", "Tool execution result was not recorded", "[Tool execution was interrupted]"),
    "[No result was recorded for this call.]",
)
# Ours, Claude Code's for a message without content, and for a command without text or output, and Gemini CLI's for an
# answer that is missing at the end.
FILLER_TEXTS = (
    NO_USER_BEFORE,
    NO_USER_BETWEEN,
    "(no content)",
    "<bash-input></bash-input>",
    "<bash-stdout></bash-stdout>",
    "<bash-stdout></bash-stdout><bash-stderr></bash-stderr>",
    "[The previous response was interrupted before it completed.]",
)
ANSWER_TO_SUMMARY = "Got it. Thanks for the additional context!"
"""The answer that Gemini CLI and Qwen Code have directly after a summary. There, it is left out."""
QUESTION_BEFORE_SUMMARY = "What did we do so far?"
"""The prompt that OpenCode has directly before a summary, which is the answer. There, it is left out."""
# What Claude Code sends where nothing is left of the first message, and before a prompt without an answer before it.
ORPHANED = "user: [Orphaned tool result removed due to conversation resume]"
NO_RESPONSE = "assistant: No response requested."

SUMMARY = "summary: "
"""The start of a line with a summary. Its role is not compared: it is the user's, in OpenCode the assistant's."""

FAILED = ("aborted", "error")
"""Reasons of a stop after which Pi and oh-my-pi do not send an answer."""

# The lines of a call and of a result, with its id. Ids have no white space.
_CALL = re.compile(r"assistant calls .*? (\S*): ", re.DOTALL)
_RESULT = re.compile(r"(?:error|result) of (\S*): (.*)", re.DOTALL)

_IMAGE = re.compile(r" ?\[image/[\w.+-]+ [0-9a-f]{12}\]")
_NUMBERED_ID = re.compile(r"(.+)_\d+\Z")

_ANSWER = "assistant: "
_THOUGHTS = ("thinking", "redacted_thinking")

MAX_LINE = 160
MAX_DIFFERENCE = 24


def differences(ours: Sequence[str], theirs: Sequence[str]) -> list[str]:
    """A short diff of two histories; empty if they are equal."""
    if list(ours) == list(theirs):
        return []
    diff = [_cut(line) for line in difflib.unified_diff(ours, theirs, lineterm="", n=1)][2:]
    shown = ["- ours", "+ rebuilt by the program", *diff]
    left_out = len(shown) - MAX_DIFFERENCE
    return [*shown[:MAX_DIFFERENCE], f"... {left_out} more lines"] if left_out > 0 else shown


def both_lines(
    ours: Sequence[JsonObject], theirs: Sequence[JsonObject], recorded: Sequence[Message], *, thinking: bool = False
) -> tuple[list[str], list[str]]:
    """Two conversations in a provider's form, as lines. `recorded` are the messages they were rendered from."""
    literal = set(_texts(ours)) & set(_texts(theirs))
    return (
        _provider_lines(ours, _TextMatcher(literal, recorded), thinking=thinking),
        _provider_lines(theirs, _TextMatcher(literal, recorded), thinking=thinking),
    )


def without_open_calls(lines: Sequence[str]) -> list[str]:
    """Lines without the calls that have no recorded result."""
    return _without_calls(lines, _open_calls(lines))


def with_repeated_ids(lines: Sequence[str], others: Sequence[str]) -> list[str]:
    """Lines with the ids of calls as others have them, where a conversion numbered those that a session repeats."""
    ids = {found[1] for line in others if (found := _CALL.match(line))}
    renamed = {
        id: origin[1]
        for line in lines
        if (found := _CALL.match(line)) and (id := found[1]) not in ids and (origin := _NUMBERED_ID.match(id))
        if origin[1] in ids
    }
    if not renamed:
        return list(lines)
    numbered = re.compile("|".join(rf"\b{re.escape(id)}(?=: )" for id in renamed))
    return [numbered.sub(lambda found: renamed[found[0]], line) for line in lines]


def joined_texts(lines: Sequence[str]) -> list[str]:
    """Lines in which texts of the assistant that follow each other are one, without any white space.

    For programs that join them: nothing shows where one ended, and a message that is not sent separates none.
    """
    found: list[str] = []
    for is_text, group in groupby(lines, lambda line: line.startswith(_ANSWER)):
        texts = list(group)
        found += (
            [_ANSWER + "".join("".join(line.removeprefix(_ANSWER).split()) for line in texts)] if is_text else texts
        )
    return found


def without_failed_turns(messages: Sequence[Message], *, sends_aborted: bool = False) -> list[Message]:
    """Messages without answers that failed or were aborted, and without the results of their calls.

    With `sends_aborted`, answers that were aborted after more than thinking stay.
    """
    failed = [
        message
        for message in messages
        if isinstance(message, Assistant)
        and message.stop_reason in FAILED
        and not (sends_aborted and message.stop_reason == "aborted" and _has_more_than_thinking(message))
    ]
    calls = {call.id for message in failed for call in tool_calls(message)}
    kept = (message for message in messages if message not in failed)
    return [message for message in kept if not (isinstance(message, ToolResult) and message.tool_call_id in calls)]


def _has_more_than_thinking(message: Assistant) -> bool:
    return any(not isinstance(block, Thinking) for block in blocks_of(message.content))


def joined_answers(messages: Sequence[Message]) -> list[Message]:
    """Messages with answers that follow each other as one: Codex records each part of a response by itself.

    Otherwise a rendered history would have the result of each call directly after it, and not after all calls.
    Results that our reader inserts for calls without one are left out: those of Codex are directly after their calls.
    """
    joined: list[Message] = []
    for message in messages:
        if isinstance(message, ToolResult) and message.timestamp is None and message_text(message) == ABORTED:
            continue
        last = joined[-1] if joined else None
        if isinstance(message, Assistant) and isinstance(last, Assistant):
            joined[-1] = replace(message, content=(*blocks_of(last.content), *blocks_of(message.content)))
        else:
            joined.append(message)
    return joined


def with_placeholders(lines: Sequence[str], messages: Sequence[Message], placeholder: str) -> list[str]:
    """Lines with a text in the place of each image that cannot be decoded."""
    images = [block for message in messages for block in message_blocks(message) if isinstance(block, Image)]
    labels = [_image_label(image.mime_type, image.data) for image in images if not _is_readable(image)]
    return [functools.reduce(lambda text, label: text.replace(label, placeholder), labels, line) for line in lines]


def with_images_after_results(lines: Sequence[str]) -> list[str]:
    """Lines in which the images of a result are prompts after it, because an API does not separate the two."""
    found: list[str] = []
    for line in lines:
        text, images = _split_images(line)
        found += [text, *(f"user: {image}" for image in images)]
    return found


def with_images_after_last_result(lines: Sequence[str]) -> list[str]:
    """Lines in which the images of results that follow each other are prompts after the last of them."""
    found: list[str] = []
    for _, group in groupby(lines, key=lambda line: _RESULT.match(line) is not None):
        split = list(map(_split_images, group))
        found += [text for text, _ in split]
        found += [f"user: {image}" for _, images in split for image in images]
    return found


def with_texts_before_calls(lines: Sequence[str]) -> list[str]:
    """Lines in which the texts of the assistant that follow each other, or calls, are before those calls."""
    found: list[str] = []
    for is_answer, group in groupby(lines, key=lambda line: line.startswith(_ANSWER) or _CALL.match(line) is not None):
        kept = list(group)
        found += sorted(kept, key=lambda line: not line.startswith(_ANSWER)) if is_answer else kept
    return found


def _split_images(line: str) -> tuple[str, list[str]]:
    """The line of a result without its images, and the images; any other line has none."""
    images = _IMAGE.findall(line) if _RESULT.match(line) else []
    text = _IMAGE.sub("", line).rstrip() if images else line
    text = f"{text} {NO_OUTPUT}" if images and text.endswith(":") else text
    return text, [image.strip() for image in images]


def _is_readable(image: Image) -> bool:
    try:
        return image_size(base64.b64decode(image.data, validate=True)) is not None
    except ValueError:
        return False


def purposes(
    ours: Sequence[str], theirs: Sequence[str], sent_messages: Sequence[JsonObject] = (), typed: Collection[str] = ()
) -> list[str]:
    """The intended differences from what Claude Code sends for its own transcript, if the histories differ in nothing
    else; otherwise none.

    `sent_messages` are the messages of which the client's lines were made. `typed` are prompts that were typed while
    the client worked.
    """
    found: list[str] = []
    count = len(ours)
    # One that an earlier run recorded is part of the transcript, and in both.
    ours, sent = (
        [line for at, line in enumerate(lines) if not _is_filled_in(lines, at)] for lines in (ours, list(theirs))
    )
    if len(theirs) - len(sent) > count - len(ours):
        found.append("Claude Code fills in messages where nothing is left")
    stopped = 0  # one line for each agent, and one for all commands
    while len(sent) - stopped > len(ours) and _is_stopped_task(sent[-1 - stopped]):
        stopped += 1
    if stopped:
        found.append("Claude Code adds that a background task did not end")
        sent = sent[:-stopped]
    last_thoughts = set(_last_thoughts(sent_messages)).difference(ours)
    changes: list[tuple[str, Callable[[Sequence[str]], list[str]]]] = [
        (
            "Claude Code sends thinking at the end of an answer",
            lambda lines: [*filterfalse(last_thoughts.__contains__, lines)],
        ),
        ("Claude Code puts the texts of a response before its calls", _with_texts_first),
        (
            "Claude Code sends a prompt typed in between before the others",
            lambda lines: _with_typed_first(lines, typed),
        ),
    ]
    for name, change in changes:
        if sent == ours:
            break
        changed = change(ours), change(sent)
        if changed != (ours, sent):
            found.append(name)
            ours, sent = changed
    return found if sent == ours else []


def loses_history(ours: Sequence[str], theirs: Sequence[str]) -> bool:
    """Whether a program sends fewer lines than we do, or no result for a call that has one."""
    return len(theirs) < len(ours) or not _open_calls(theirs) <= _open_calls(ours)


def drops_open_calls(before: Sequence[str], after: Sequence[str]) -> bool:
    """Whether a history is an earlier one without some of its calls that have no result, and nothing else changed.

    A dropped call may have separated other calls from their results. Those are sent again, in the place where nothing
    was recorded.
    """
    closed = _open_calls(before) - _open_calls(after)
    results = {found[1]: line for line in after if (found := _RESULT.match(line)) and found[1] in closed}
    dropped = closed - results.keys()
    rest = _without_calls(before, dropped)
    return bool(dropped) and list(after) == [
        results.get(found[1], line) if (found := _RESULT.match(line)) else line for line in rest
    ]


def _is_filled_in(lines: Sequence[str], at: int) -> bool:
    if lines[at] == ORPHANED:
        return at == 0
    return lines[at] == NO_RESPONSE and at > 0 and not _is_answer(lines[at - 1])


def _is_stopped_task(line: str) -> bool:
    return line.startswith("user: <task-notification>") and "finish before the previous session ended" in line


def _open_calls(lines: Sequence[str]) -> set[str]:
    """The ids of calls that have no result, or one in which nothing was recorded."""
    calls = {found[1] for line in lines if (found := _CALL.match(line))}
    results = {found[1]: found[2] for line in lines if (found := _RESULT.match(line))}
    unrecorded = {call for call, text in results.items() if text == NOTHING_RECORDED}
    return unrecorded | (calls - results.keys())


def _without_calls(lines: Sequence[str], calls: set[str]) -> list[str]:
    return [line for line in lines if not ((found := _CALL.match(line) or _RESULT.match(line)) and found[1] in calls)]


def _with_texts_first(lines: Sequence[str]) -> list[str]:
    """Lines with the texts of each answer before its calls."""
    found: list[str] = []
    for is_answer, group in groupby(lines, _is_answer):
        found += sorted(group, key=lambda line: is_answer and line.startswith("assistant calls "))
    return found


def _last_thoughts(messages: Sequence[JsonObject]) -> Iterator[str]:
    """The lines of thinking with nothing after it in its message: the API refuses such a message."""
    for message in messages:
        blocks = _blocks(message["content"]) if message["role"] == "assistant" else ()
        thoughts = takewhile(lambda block: block["type"] in _THOUGHTS, reversed(list(blocks)))
        yield from (_thinking_line(message["role"], block) for block in thoughts)


def _with_typed_first(lines: Sequence[str], typed: Collection[str]) -> list[str]:
    """Lines with the prompts that were typed in between before the others of their turn."""
    wanted = {f"user: {fold(text)}" for text in typed}
    found: list[str] = []
    for is_prompt, group in groupby(lines, lambda line: line.startswith("user: ")):
        found += sorted(group, key=lambda line: is_prompt and line not in wanted)
    return found


def _is_answer(line: str) -> bool:
    return line.startswith("assistant")


def _provider_lines(sent: Sequence[JsonObject], matcher: _TextMatcher, *, thinking: bool) -> list[str]:
    lines: list[str] = []
    calls: list[str] = []
    for message in sent:
        blocks = list(_blocks(message["content"]))
        calls += [block["id"] for block in blocks if block["type"] == "tool_use"]
        place = {call: at for at, call in enumerate(calls)}
        blocks.sort(key=lambda block: place.get(block.get("tool_use_id", ""), len(place)))
        for block in blocks:
            found = list(_lines_of_block(message["role"], block, matcher, thinking=thinking))
            if found and found[0].startswith(SUMMARY) and lines[-1:] == [f"user: {QUESTION_BEFORE_SUMMARY}"]:
                lines.pop()
            lines += found
    return lines + matcher.missing()


class _TextMatcher:
    """Maps paraphrased texts to their recorded parts, and leaves literal texts unchanged."""

    def __init__(self, literal: set[str], recorded: Sequence[Message]) -> None:
        self._literal = literal
        self._paraphrased = {
            text: tuple(part for part in parts if part in text)
            for message in recorded
            if (parts := _recorded_parts(message))
            for text in _texts(render([message], "anthropic").messages)
        }
        self._pending = list(self._paraphrased.values())
        summaries = (_recorded_parts(message) for message in recorded if isinstance(message, CompactionSummary))
        self._summaries = {parts for parts in summaries if parts}
        self.is_after_summary = False
        self._rest: list[str] = []

    def as_recorded(self, text: str) -> str | None:
        """A literal text itself; for a paraphrased one, its recorded parts.

        Some programs split one message into several texts. Then the first counts, and the others give None, as does the
        answer to a summary.
        """
        if self.is_after_summary and text == ANSWER_TO_SUMMARY:
            return None
        shown = self._find_recorded(text)
        # Another text may contain that of the summary.
        is_possible = shown in (None, text) or shown in map(_shown, self._summaries)
        self.is_after_summary = is_possible and any(not _found_in(text, parts)[1] for parts in self._summaries)
        return shown

    def _find_recorded(self, text: str) -> str | None:
        parts = self._paraphrased.get(text)
        if parts in self._pending:
            self._pending.remove(parts)
        if text in self._literal:
            return text
        if parts:
            return _shown(parts)
        found, self._rest = _found_in(text, self._rest)
        if found:
            return None
        # Several files of the same name have the same first part, and words of a program can contain those of a short
        # command: the match with most characters is the best.
        for pending in sorted(self._pending, key=lambda parts: -_found_length(text, parts)):
            found, rest = _found_in(text, pending)
            if found:
                self._pending.remove(pending)
                self._rest += rest
                return _shown(pending)
        # The same command may have run several times.
        again = (parts for parts in self._paraphrased.values() if parts and not _found_in(text, parts)[1])
        found_again = next(again, None)
        return text if found_again is None else _shown(found_again)

    def missing(self) -> list[str]:
        """Recorded parts that are missing from a paraphrased message."""
        return [f"(paraphrased) without {part}" for part in self._rest]


def _found_in(text: str, parts: Sequence[str]) -> tuple[bool, list[str]]:
    """Whether a text contains the first of some parts, and the parts that do not follow in order."""
    at, rest = 0, list(parts)
    while rest and (place := text.find(rest[0], at)) >= 0:
        at = place + len(rest.pop(0))
    return len(rest) < len(parts), rest


def _found_length(text: str, parts: Sequence[str]) -> int:
    """The number of characters of the parts that a text contains in order."""
    return sum(map(len, parts)) - sum(map(len, _found_in(text, parts)[1]))


def _shown(parts: Parts) -> str:
    # Without a mark: a program may send a recorded text without any words of its own.
    return " | ".join(parts)


def _texts(sent: Sequence[JsonObject]) -> Iterator[str]:
    for message in sent:
        yield from (fold(block["text"]) for block in _blocks(message["content"]) if block["type"] == "text")


def _recorded_parts(message: Message) -> Parts:
    """The recorded parts of a message that each program paraphrases."""
    match message:
        case CompactionSummary() | BranchSummaryText():
            return _folded_parts(message.summary)
        case BashExecution(exclude_from_context=None | False):
            return _folded_parts(message.command, message.output)
        case OtherMessage(kind="pythonExecution", fields=fields) if not fields.get("excludeFromContext"):
            return _folded_parts(fields.get("code"), fields.get("output"))
        case OtherMessage(kind="fileMention", fields=fields):
            files = [file for file in fields.get("files") or () if isinstance(file, dict)]
            return _folded_parts(*(file.get(key) for file in files for key in ("path", "content")))
        case _:
            return ()


def _folded_parts(*parts: object) -> Parts:
    return tuple(folded for part in parts if isinstance(part, str) and (folded := fold(part)))


def _blocks(content: Any) -> Iterator[JsonObject]:
    yield from [{"type": "text", "text": content}] if isinstance(content, str) else content


def _lines_of_block(role: str, block: JsonObject, matcher: _TextMatcher, *, thinking: bool) -> Iterator[str]:
    match block["type"]:
        case "text":
            text = fold(block["text"])
            shown = matcher.as_recorded(text) if text and text not in FILLER_TEXTS else None
            if shown is not None:
                yield f"{SUMMARY}{shown}" if matcher.is_after_summary else f"{role}: {shown}"
        case "tool_use":
            arguments = json.dumps(block["input"], ensure_ascii=False, sort_keys=True)
            yield f"{role} calls {block['name']} {block['id']}: {arguments}"
        case "tool_result":
            kind = "error" if block.get("is_error") else "result"
            inner = [_inside(part) for part in _blocks(block.get("content") or [])]
            text = " ".join(part for part in inner if part) or NO_OUTPUT
            if text.startswith(MISSING_RESULT_TEXTS):
                text = NOTHING_RECORDED + "".join(_IMAGE.findall(text))
            yield f"{kind} of {block['tool_use_id']}: {text}"
        case "thinking" | "redacted_thinking":
            if thinking:
                yield _thinking_line(role, block)
        case _:
            yield f"{role}: {_inside(block)}"


def _thinking_line(role: str, block: JsonObject) -> str:
    return f"{role} thinks: {block.get('data') or fold(block.get('thinking', ''))} {block.get('signature', '')}"


def _inside(block: JsonObject) -> str:
    match block["type"]:
        case "text":
            return fold(block["text"])
        case "image":
            return _image_label(str(block["source"].get("media_type")), str(block["source"].get("data")))
        case kind:
            return f"[{kind}]"


def _image_label(kind: str, data: str) -> str:
    return f"[{kind} {hashlib.sha256(data.encode()).hexdigest()[:12]}]"


def fold(text: str) -> str:
    return " ".join(text.split())


def _cut(line: str) -> str:
    return line if len(line) <= MAX_LINE else f"{line[:MAX_LINE]}..."
