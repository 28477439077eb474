"""The messages that a program should send for a session of another agent.

They are those of our context, with the tools that the program has. Where an agent has its own words for a summary or a
command, the recorded text is expected in their place (`_recorded`), because the program has other words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from msgspec.structs import replace

from acceptance.comparison import (
    ANSWER_TO_SUMMARY,
    QUESTION_BEFORE_SUMMARY,
    fold,
    joined_answers,
    without_failed_turns,
)
from acceptance.programs import Name
from acceptance.sources import Dialect
from sessiontree import Session
from sessiontree.conversion.tool_mapping import map_call, with_original_tools
from sessiontree.conversion.walk import iter_entries
from sessiontree.core.messages import (
    Assistant,
    BashExecution,
    Block,
    BranchSummaryText,
    CompactionSummary,
    Content,
    Message,
    Text,
    Thinking,
    ToolCall,
    User,
    blocks_of,
    message_blocks,
    message_text,
    parse_message,
)
from sessiontree.dialects.canonical import CanonicalEntry
from sessiontree.dialects.passthrough import carried_data

THINKING_AS_TEXT: tuple[Name, ...] = ("opencode",)
"""Programs that send the thinking of another model as text."""

SENDS_ABORTED: tuple[Name, ...] = ("opencode",)
"""Programs that send no failed answers, except for those that the user aborted after they had some content."""

JOINED_TEXTS: tuple[Name, ...] = ("opencode", "qwen")
"""Programs that send the texts of an answer that follow each other as one; Qwen Code also those of several answers."""

_KEPT_PROMPTS = "<earlier_user_messages>"
"""Before the prompts that a compaction of Codex keeps, in its summary as other agents get it."""


@dataclass(frozen=True, slots=True)
class _Call:
    """A call as its agent made it, before any conversion."""

    agent: str
    name: str
    arguments: dict[str, Any]


def expected_messages(
    session: Session,
    program: Dialect,
    leaf: str | None = None,
    in_recorded_words: bool = True,
    *,
    joined: bool = True,
    failed_turns: bool = True,
) -> list[Message]:
    """The messages of a branch of a session, as a program should send them after a conversion.

    With `joined`, answers that follow each other are one. Without `in_recorded_words`, summaries and commands are in
    the words of the agent; without `failed_turns`, answers that failed are left out.
    """
    context = session.context(leaf)
    entries = [entry for entry, _ in iter_entries(session, leaf or session.leaf, all_branches=False)]
    messages = list(context.messages)
    if in_recorded_words:
        messages = _in_recorded_words(list(zip(context.sources, messages, strict=True)), entries)
    if not failed_turns:
        messages = without_failed_turns(messages, sends_aborted=program in SENDS_ABORTED)
    # First of all one message for each response: Codex has thinking and text in answers of their own.
    messages = joined_answers(messages) if joined else messages
    return _with_tools_of(program, messages, session.dialect.name, _original_calls(entries))


def _with_tools_of(
    program: Dialect, messages: Sequence[Message], agent: str, originals: Mapping[str, _Call]
) -> list[Message]:
    """Messages with calls of the program's tools, where it has an equivalent; thinking as text, where it sends it so.

    `originals` are calls that were converted before: they are mapped as their agent made them.
    """

    def map_block(block: Block) -> Block:
        if isinstance(block, Thinking) and program in THINKING_AS_TEXT:
            return Text(block.thinking)
        if not isinstance(block, ToolCall):
            return block
        call = originals.get(block.id) or _Call(agent, block.name, block.arguments)
        mapped = map_call(call.name, call.arguments, call.agent, program) or call
        return ToolCall(block.id, mapped.name, mapped.arguments)

    def map_blocks(content: Content) -> tuple[Block, ...]:
        blocks = list(map(map_block, blocks_of(content)))
        return tuple(_with_joined_texts(blocks) if program in JOINED_TEXTS else blocks)

    return [
        replace(message, content=map_blocks(message.content)) if isinstance(message, Assistant) else message
        for message in messages
    ]


def _with_joined_texts(blocks: Sequence[Block]) -> Iterator[Block]:
    for is_text, group in groupby(blocks, key=lambda block: isinstance(block, Text)):
        if is_text:
            yield Text("".join(block.text for block in group if isinstance(block, Text)))
        else:
            yield from group


def _original_calls(entries: Sequence[CanonicalEntry]) -> dict[str, _Call]:
    found: dict[str, _Call] = {}
    for entry in entries:
        tools = carried_data(entry, "tools")
        if not isinstance(tools, dict) or not isinstance(tools.get("agent"), str):
            continue
        message = parse_message(with_original_tools(entry).fields.get("message") or {})
        if isinstance(message, Assistant):
            calls = (block for block in blocks_of(message.content) if isinstance(block, ToolCall))
            found |= {call.id: _Call(tools["agent"], call.name, call.arguments) for call in calls}
    return found


def _in_recorded_words(messages: Sequence[tuple[str, Message]], entries: Sequence[CanonicalEntry]) -> list[Message]:
    """Messages with source, with the recorded message for those in which an agent has words of its own."""
    recorded: dict[str, tuple[str, Message]] = {}
    for entry in entries:
        message = _recorded(entry)
        if message is not None:
            recorded |= dict.fromkeys((entry.id, *entry.aliases), (entry.id, message))
    found: list[Message] = []
    for id, group in groupby(messages, key=lambda pair: recorded.get(pair[0], ("", None))[0]):
        given = [message for _, message in group]
        found += _with_recorded(given, recorded[id][1]) if id else given
    return found


def _with_recorded(given: Sequence[Message], recorded: Message) -> list[Message]:
    """The messages of an entry, with the recorded one in the place of those that paraphrase it.

    A compaction may also have messages that it kept, in Gemini CLI in one message with the answer to the summary.
    """
    if _paraphrases(given, recorded):
        return [recorded]
    for at, message in enumerate(given if isinstance(recorded, CompactionSummary) else ()):
        if _paraphrases([message], recorded):
            return [*given[:at], recorded, *_without_answer_to_summary(given[at + 1 :])]
    return list(given)


def _without_answer_to_summary(messages: Sequence[Message]) -> list[Message]:
    first = messages[0] if messages else None
    if not isinstance(first, Assistant) or not first.content or first.content[0] != Text(ANSWER_TO_SUMMARY):
        return list(messages)
    rest = replace(first, content=first.content[1:])
    return [*([rest] if rest.content else []), *messages[1:]]


def _recorded(entry: CanonicalEntry) -> Message | None:
    """A summary, or a message with a role that only some agents have; None for any other entry."""
    summary, message = entry.fields.get("summary"), entry.fields.get("message")
    match entry.kind:
        case "compaction" if isinstance(summary, str):
            return CompactionSummary(summary=summary)
        case "branch_summary" if isinstance(summary, str):
            return BranchSummaryText(summary=summary)
        case "message" if isinstance(message, dict) and message.get("role") == "bashExecution":
            return parse_message(message)
        case _:
            return None


def _paraphrases(given: Sequence[Message], recorded: Message) -> bool:
    """Whether messages have all of a recorded text, and besides nothing but words of their agent around it.

    They are texts of the user, each with a recorded part or itself a part. Qwen Code adds an answer to a summary. In
    OpenCode, the summary is the answer to a question.
    """
    parts = [recorded.command, recorded.output] if isinstance(recorded, BashExecution) else [message_text(recorded)]
    parts = [fold(part.partition(_KEPT_PROMPTS)[0]) for part in parts]
    role = Assistant if message_text(given[0]) == QUESTION_BEFORE_SUMMARY else User
    words = (ANSWER_TO_SUMMARY, QUESTION_BEFORE_SUMMARY)
    given = [message for message in given if not (_is_text(message) and message_text(message) in words)]
    texts = [fold(message_text(message)) for message in given]
    whole = fold(message_text(recorded))
    return (
        all(isinstance(message, role) and _is_text(message) for message in given)
        and all(text in whole or any(part and part in text for part in parts) for text in texts)
        and all(any(part in text for text in texts) for part in parts)
    )


def _is_text(message: Message) -> bool:
    return all(isinstance(block, Text) for block in message_blocks(message))
