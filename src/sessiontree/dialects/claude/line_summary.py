"""What a line says, as far as it takes to know what belongs to it and whether a model is sent it: no texts.

Nearly every line of a long transcript is one block: a call, a result, a text. What it says is noted while its part of
the file is decoded at open (`columns`), and kept beside the tree; so the rules for paths and contexts need not read the
file again. Of lines without a note, `speech_of` tells the same by their entries.
"""

from __future__ import annotations

from msgspec import Struct

from sessiontree.core.entries import Entry, MessageEntry
from sessiontree.core.messages import Assistant, Block, Content, Message, Text, ToolResult, User, blocks_of, tool_calls
from sessiontree.dialects.claude.records import SYNTHETIC


class LineSummary(Struct, frozen=True, gc=False):
    """What a line says.

    If it was noted of a line, it is also known what a model is sent of the line: each of its results as a message, or
    else one message that says something; nothing, if it is no message.
    """

    is_message: bool = False
    is_assistant: bool = False
    response: str = ""
    calls: tuple[str, ...] = ()
    """The ids of its calls."""
    tools: tuple[str, ...] = ()
    """The name of the tool of each call."""
    answers: tuple[str, ...] = ()
    """The ids of the calls whose results it holds."""
    failures: tuple[str, ...] = ()
    """Those of them whose results are errors."""

    @property
    def is_prompt(self) -> bool:
        """Whether someone speaks here, and not a tool."""
        return self.is_message and not self.is_assistant and not self.answers


PROMPT = LineSummary(is_message=True)
SILENT = LineSummary()


def speech_of(entry: Entry) -> LineSummary:
    """What an entry says, whatever its line looks like."""
    if not isinstance(entry, MessageEntry):
        return LineSummary()
    first, calls = entry.message, tool_calls(entry.message)
    results = [message for message in entry.messages if isinstance(message, ToolResult)]
    return LineSummary(
        True,
        isinstance(first, Assistant),
        (first.response_id or "") if isinstance(first, Assistant) else "",
        tuple(call.id for call in calls),
        tuple(call.name for call in calls),
        tuple(result.tool_call_id for result in results),
        tuple(result.tool_call_id for result in results if result.is_error),
    )


def is_of_the_client(message: Message) -> bool:
    """A note about a failed request, or a reminder, which the client makes anew for each request."""
    if isinstance(message, User):
        return bool(message.content) and all(map(is_reminder, blocks_of(message.content)))
    return isinstance(message, Assistant) and message.model == SYNTHETIC and message.stop_reason == "error"


def is_reminder(block: Block) -> bool:
    return isinstance(block, Text) and is_reminder_text(block.text)


def is_reminder_text(text: str) -> bool:
    return text.lstrip().startswith("<system-reminder>")


def is_blank(content: Content) -> bool:
    """Whether there is nothing but white space, or nothing at all."""
    return all(isinstance(block, Text) and is_blank_text(block.text) for block in blocks_of(content))


def is_blank_text(text: str) -> bool:
    return not text.strip()
