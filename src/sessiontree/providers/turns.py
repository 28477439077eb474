"""Convert messages to turns of the user and the assistant, the same for every provider.

A turn contains only sendable content: nonblank texts in valid UTF-8, arguments in valid JSON, images that providers
accept. Tool names, call ids and the positions of results are still as recorded (see `tool_calls`).
"""

from __future__ import annotations

import binascii
import math
from collections.abc import Callable, Iterable
from typing import TypeAlias, assert_never

import msgspec

from sessiontree.core.jsonio import Value, convert_fields
from sessiontree.core.messages import (
    Assistant,
    BashExecution,
    Block,
    BranchSummaryText,
    CompactionSummary,
    CustomText,
    Image,
    Message,
    OtherBlock,
    OtherMessage,
    RedactedThinking,
    System,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    User,
    blocks_of,
    parse_block,
    parse_content,
    text_of,
)
from sessiontree.providers.templates import (
    branch_text,
    command_text,
    compaction_text,
    file_text,
    python_text,
)

UserBlock: TypeAlias = Text | Image
AssistantBlock: TypeAlias = Text | Thinking | RedactedThinking | ToolCall

UNNAMED_TOOL = "unknown_tool"

# The types that both Anthropic and OpenAI document, with the first bytes of such files.
IMAGE_BEGINNINGS: dict[str, tuple[bytes, ...]] = {
    "image/png": (b"\x89PNG\r\n\x1a\n",),
    "image/jpeg": (b"\xff\xd8\xff",),
    "image/gif": (b"GIF87a", b"GIF89a"),
    "image/webp": (b"RIFF",),
}

# Providers' JSON decoders have depth limits. The strictest common limit is 128, and the message's own levels count.
DEEPEST_ARGUMENT = 96
TOO_DEEP = "[nested too deeply to be sent]"

LONGEST_QUOTE = 48


class UserTurn(Value, frozen=True):
    blocks: tuple[UserBlock, ...]


class AssistantTurn(Value, frozen=True):
    """Blocks of one response, and the model if it was recorded."""

    blocks: tuple[AssistantBlock, ...]
    api: str | None = None
    provider: str | None = None
    model: str | None = None
    response_id: str | None = None


class Answer(Value, frozen=True):
    """The result of one tool call."""

    call_id: str
    blocks: tuple[UserBlock, ...] = ()
    is_error: bool = False
    tool_name: str = ""


class ResultsTurn(Value, frozen=True):
    answers: tuple[Answer, ...]


Turn: TypeAlias = UserTurn | AssistantTurn | ResultsTurn


class Conversation(Value, frozen=True):
    system: str | None
    turns: tuple[Turn, ...]
    notes: tuple[str, ...] = ()


def read_conversation(messages: Iterable[Message], shorten: Callable[[int, Turn], Turn] | None = None) -> Conversation:
    """Convert messages to turns in recorded order, and merge the system text. `shorten` may replace texts of a turn."""
    notes: list[str] = []
    turns: list[Turn] = []
    systems: list[System] = []
    for position, message in enumerate(messages):
        if isinstance(message, System):
            systems.append(message)  # not a turn: all of them together make the system text
            continue
        turn = to_turn(message, notes)
        if turn is None:
            continue
        turn = turn if shorten is None else shorten(position, turn)
        if isinstance(turn, AssistantTurn):
            _add_assistant(turns, turn)
        else:
            turns.append(turn)
    return Conversation(_system_text(systems, notes), tuple(turns), tuple(notes))


def to_turn(message: Message, notes: list[str]) -> Turn | None:
    """Convert a message; None if it has nothing to send, or is a system message."""
    match message:
        case System():
            return None
        case Assistant():
            turn = _assistant_turn(message, notes)
            return turn if turn.blocks else None
        case ToolResult():
            shown = _shown_blocks(blocks_of(message.content), "a tool result", notes)
            return ResultsTurn((Answer(message.tool_call_id, shown, message.is_error, message.tool_name or ""),))
        case _:
            blocks = _user_blocks(message, notes)
            return UserTurn(blocks) if blocks else None


def _system_text(messages: Iterable[System], notes: list[str]) -> str | None:
    texts: list[str] = []
    sections: dict[str, str | None] = {}
    for message in messages:
        texts.append(text_of(message.content))
        sections.update(message.sections or {})
        for block in blocks_of(message.content):
            if not isinstance(block, Text):
                _note_left_out(block, "a system message", notes)
    texts += [text for text in sections.values() if text is not None]
    return "\n\n".join(_cleaned(text, notes) for text in texts if not is_blank(text)) or None


def _add_assistant(turns: list[Turn], turn: AssistantTurn) -> None:
    """Append a turn, or join it to an earlier turn of the same response.

    Some clients record each block of a response as a separate message, with results of its calls in between.
    """
    for index in reversed(range(len(turns))):
        earlier = turns[index]
        if isinstance(earlier, ResultsTurn):
            continue
        if isinstance(earlier, AssistantTurn) and turn.response_id and turn.response_id == earlier.response_id:
            turns[index] = msgspec.structs.replace(earlier, blocks=earlier.blocks + turn.blocks)
            return
        break
    turns.append(turn)


def _assistant_turn(message: Assistant, notes: list[str]) -> AssistantTurn:
    blocks = tuple(
        converted for block in blocks_of(message.content) if (converted := _assistant_block(block, notes)) is not None
    )
    return AssistantTurn(blocks, message.api, message.provider, message.model, message.response_id)


def _assistant_block(block: Block, notes: list[str]) -> AssistantBlock | None:
    match block:
        case Text():
            return _assistant_text(block, notes)
        case Thinking():
            return _assistant_thinking(block)
        case RedactedThinking():
            return block if block.data.isascii() else RedactedThinking()
        case ToolCall():
            return _assistant_call(block, notes)
        case Image() | OtherBlock():
            _note_left_out(block, "an assistant message", notes)
            return None
        case _:
            assert_never(block)


def _assistant_text(block: Text, notes: list[str]) -> Text | None:
    text = _text(block.text, notes)
    if text is None or text.text != block.text:
        return text
    return Text(text.text, _sendable_signature(block.text_signature))


def _sendable_signature(signature: str | None) -> str | None:
    return signature if signature and signature.isascii() else None


def _assistant_thinking(block: Thinking) -> Thinking:
    thinking = sendable_text(block.thinking)
    signature = block.thinking_signature
    # A signature is valid only for the exact text.
    if signature is None or not signature.isascii() or (thinking != block.thinking and not block.redacted):
        signature = None
    return Thinking(thinking, signature, block.redacted)


def _assistant_call(call: ToolCall, notes: list[str]) -> ToolCall:
    arguments = sendable_json(call.arguments)
    if arguments != call.arguments:
        notes.append(f"Arguments of the call {quoted(call.id)} that JSON in UTF-8 cannot hold were replaced.")
    if not call.name:
        notes.append(f"The call {quoted(call.id)} has no tool name and was given {quoted(UNNAMED_TOOL)}.")
    return ToolCall(
        call.id,
        call.name or UNNAMED_TOOL,
        arguments if isinstance(arguments, dict) else {},
        _sendable_signature(call.thought_signature),
    )


def _user_blocks(
    message: User | CustomText | BashExecution | CompactionSummary | BranchSummaryText | OtherMessage, notes: list[str]
) -> tuple[UserBlock, ...]:
    match message:
        case User():
            return _shown_blocks(blocks_of(message.content), "a user message", notes)
        case CustomText():
            return _shown_blocks(blocks_of(message.content), "a custom message", notes)
        case BashExecution():
            return () if message.exclude_from_context else _text_blocks(command_text(message), notes)
        case CompactionSummary():
            return () if is_blank(message.summary) else _text_blocks(compaction_text(message.summary), notes)
        case BranchSummaryText():
            return () if is_blank(message.summary) else _text_blocks(branch_text(message.summary), notes)
        case OtherMessage():
            return _other_blocks(message, notes)
        case _:
            assert_never(message)


def _other_blocks(message: OtherMessage, notes: list[str]) -> tuple[UserBlock, ...]:
    """Convert a message of a nonstandard role: a known role of another agent, or else its text."""
    recorded = [_string_field(message.fields, name) for name in ("code", "output")]
    if message.kind == "pythonExecution" and recorded != [None, None]:  # a damaged one may have only its output
        execution = convert_fields(BashExecution, {**message.fields, "command": recorded[0] or ""})
        return () if execution.exclude_from_context else _text_blocks(python_text(execution), notes)
    if message.kind == "fileMention" and isinstance(message.fields.get("files"), list):
        mentioned = [block for file in message.fields["files"] for block in _file_blocks(file)]
        return _shown_blocks(mentioned, "a file mention", notes)
    shown = _shown_blocks(blocks_of(parse_content(message.fields.get("content"))), "a message", notes)
    if not shown:
        notes.append(f"A message with the role {quoted(message.kind)} was left out because it has no text.")
    return shown


def _file_blocks(file: object) -> list[Block]:
    path = _string_field(file, "path")
    if path is None or not isinstance(file, dict):
        return [OtherBlock("file", file)]
    mention = Text(file_text(path, _string_field(file, "content")))
    picture = file.get("image")
    return [mention, parse_block(picture)] if picture is not None else [mention]


def _string_field(fields: object, key: str) -> str | None:
    found = fields.get(key) if isinstance(fields, dict) else None
    return found if isinstance(found, str) else None


def _shown_blocks(blocks: Iterable[Block], where: str, notes: list[str]) -> tuple[UserBlock, ...]:
    return tuple(shown for block in blocks if (shown := _shown_block(block, where, notes)) is not None)


def _shown_block(block: Block, where: str, notes: list[str]) -> UserBlock | None:
    match block:
        case Text():
            return _text(block.text, notes)
        case Image():
            return _shown_image(block, notes)
        case Thinking() | RedactedThinking() | ToolCall() | OtherBlock():
            _note_left_out(block, where, notes)
            return None
        case _:
            assert_never(block)


def _text(text: str, notes: list[str]) -> Text | None:
    return None if is_blank(text) else Text(_cleaned(text, notes))


def _text_blocks(text: str, notes: list[str]) -> tuple[UserBlock, ...]:
    return (Text(_cleaned(text, notes)),)


def _cleaned(text: str, notes: list[str]) -> str:
    sendable = sendable_text(text)
    if sendable != text:
        notes.append("Characters of a text that UTF-8 cannot hold were replaced.")
    return sendable


def _shown_image(image: Image, notes: list[str]) -> UserBlock:
    found = sendable_image(image)
    if isinstance(found, Image):
        if found.mime_type != image.mime_type:
            notes.append(f"An image recorded as {quoted(image.mime_type)} was sent as {quoted(found.mime_type)}.")
        return found
    notes.append(f"An image of the type {quoted(image.mime_type)} was replaced by a text.")
    return Text(f"[{found}.]")


def _note_left_out(block: Block, where: str, notes: list[str]) -> None:
    match block:
        case OtherBlock():
            notes.append(f"A block of the unknown kind {quoted(block.kind)} was left out of {where}.")
        case Text():
            notes.append(f"A text was left out of {where}.")
        case Image():
            notes.append(f"An image was left out of {where}.")
        case Thinking() | RedactedThinking():
            notes.append(f"A thinking block was left out of {where}.")
        case ToolCall():
            notes.append(f"A tool call was left out of {where}.")
        case _:
            assert_never(block)


# Sanitizing: valid UTF-8 and JSON, known image types


def is_blank(text: str) -> bool:
    """Whether providers reject a text as empty."""
    return not text.strip()


def sendable_text(text: str) -> str:
    """Replace lone surrogates with U+FFFD, and join surrogate pairs."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def sendable_json(value: object, levels: int = DEEPEST_ARGUMENT) -> object:
    """Make a value valid JSON in UTF-8: texts and keys sanitized, no NaN or infinity, not too deep."""
    match value:
        case None | bool() | int():
            return value
        case str():
            return sendable_text(value)
        case float():
            return value if math.isfinite(value) else None
        case dict() | list() | tuple() if levels == 0:
            return TOO_DEEP
        case dict():
            return _sendable_object(value, levels)
        case list() | tuple():
            return [sendable_json(item, levels - 1) for item in value]
        case _:
            return sendable_text(str(value))


def _sendable_object(fields: dict[object, object], levels: int) -> dict[str, object]:
    sendable: dict[str, object] = {}
    for key, value in fields.items():
        name = sendable_text(str(key))
        # Two keys may become equal by the replacement; keep both values.
        while name in sendable:
            name += "\ufffd"
        sendable[name] = sendable_json(value, levels - 1)
    return sendable


def sendable_image(image: Image) -> Image | str:
    """Return the image in a form that providers accept, or the reason why they would reject it.

    The type is detected from the bytes if possible, because providers reject a type that does not match them.
    """
    declared = sendable_text(image.mime_type.strip().lower())
    # Some programs store the complete data URL, and some break the base64 text into lines.
    encoded = "".join(image.data.rpartition(";base64,")[2].split())
    try:
        raw = binascii.a2b_base64(encoded, strict_mode=True)
    except ValueError:
        return f"An image of the type {declared} is left out here because its data was not recorded in base64"
    if not raw:
        return f"An image of the type {declared} is left out here because its data is empty"
    actual = image_type(raw) or ("image/jpeg" if declared == "image/jpg" else declared)
    if actual not in IMAGE_BEGINNINGS:
        return f"An image of the type {declared} is left out here because that type cannot be sent"
    return Image(encoded, actual)


def image_type(raw: bytes) -> str | None:
    """The MIME type of an image that providers accept, by its first bytes."""
    for mime_type, beginnings in IMAGE_BEGINNINGS.items():
        # RIFF is also a container for audio and video; the four bytes after its length name the format.
        if raw.startswith(beginnings) and (mime_type != "image/webp" or raw[8:12] == b"WEBP"):
            return mime_type
    return None


def quoted(text: str) -> str:
    """Quote an id or name for a note, truncated if it is long."""
    return f'"{text}"' if len(text) <= LONGEST_QUOTE else f'"{text[:LONGEST_QUOTE]}…"'
