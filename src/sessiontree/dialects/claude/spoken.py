"""A path -> what the model sees of it, and the state at its end.

Said is what users and the assistant say, commands run beside the conversation, messages typed during a turn, and the
text of attachments that speaks as the user. The client's own system text and reminders are not history and are left
out, as are its notes about failed requests and answers of nothing but white space. The shards of a response are one
message. Calls without results stay as they are: `providers` completes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from sessiontree.context import Context, ModelRef, State, milliseconds
from sessiontree.dialects.claude.chain import Chain
from sessiontree.dialects.claude.path import Trail
from sessiontree.dialects.claude.wire import SYNTHETIC, Fields, object_in, string_in
from sessiontree.entries import Entry, MessageEntry, Unknown
from sessiontree.messages import (
    Assistant,
    Block,
    Content,
    Message,
    Text,
    ToolResult,
    Usage,
    User,
    blocks_of,
    tool_calls,
)

NO_CONTENT = "(no content)"
_STEP = 256
_MODES = {"mode": "mode", "permission-mode": "permissionMode"}


def build_context(chain: Chain, trail: Trail) -> Context:
    """What a model is sent for a path."""
    ids = chain.tree.ids
    said = _Said()
    for start in range(0, len(trail.nodes), _STEP):
        step = trail.nodes[start : start + _STEP]
        for node, entry in zip(step, chain.entries(step), strict=True):
            for message in _messages_of(entry):
                said.add(ids[node], _without_usage(message) if node in trail.kept else message)
    said.settle()
    path = tuple(ids[node] for node in trail.nodes)
    return Context(path, tuple(said.messages), tuple(said.sources), _state(chain, trail, said.messages))


class _Said:
    """The messages so far, and the id of the entry behind each."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.sources: list[str] = []

    def add(self, id: str, message: Message) -> None:
        at = self._place_of_response(message)
        if at is None:
            self.messages.append(message)
            self.sources.append(id)
        else:
            earlier = self.messages[at]
            assert isinstance(earlier, Assistant)
            assert isinstance(message, Assistant)
            self.messages[at] = _joined(earlier, message)

    def _place_of_response(self, message: Message) -> int | None:
        """Where the response stands that this is a shard of; only results may stand between them."""
        if not isinstance(message, Assistant) or not message.response_id:
            return None
        for at in range(len(self.messages) - 1, -1, -1):
            earlier = self.messages[at]
            if isinstance(earlier, ToolResult):
                continue
            is_same = isinstance(earlier, Assistant) and earlier.response_id == message.response_id
            return at if is_same else None
        return None

    def settle(self) -> None:
        """Leave out what says nothing, and tell results the names of their tools.

        The client does not send a result whose call is not there, nor do `providers`. It stays among the messages for
        those who look, and where a line held nothing else, the client sends words in its place.
        """
        names = {call.id: call.name for message in self.messages for call in tool_calls(message)}
        pairs = list(zip(self.messages, self.sources, strict=True))
        heard = {id for message, id in pairs if not _is_stray(message, names)}
        settled: list[tuple[Message, str]] = []
        for message, id in pairs:
            settled += [(kept, id) for kept in _settled(message, names)]
            if id not in heard:
                heard.add(id)
                settled.append((User(message.timestamp, NO_CONTENT), id))
        self.messages = [message for message, _ in settled]
        self.sources = [id for _, id in settled]


def _is_stray(message: Message, names: Mapping[str, str]) -> bool:
    return isinstance(message, ToolResult) and message.tool_call_id not in names


def _settled(message: Message, names: Mapping[str, str]) -> Iterator[Message]:
    match message:
        case ToolResult():
            yield msgspec.structs.replace(message, tool_name=names.get(message.tool_call_id, ""))
        case User(content=()) | Assistant(content=()):
            yield msgspec.structs.replace(message, content=NO_CONTENT)
        case Assistant() if _is_blank(message.content):
            return
        case _:
            yield message


def _is_blank(content: Content) -> bool:
    return all(isinstance(block, Text) and not block.text.strip() for block in blocks_of(content))


def _joined(earlier: Assistant, later: Assistant) -> Assistant:
    """Two shards of a response. Early shards may count only a part of what the response used."""
    return msgspec.structs.replace(
        earlier,
        content=blocks_of(earlier.content) + blocks_of(later.content),
        usage=_larger(earlier.usage, later.usage),
        stop_reason=later.stop_reason or earlier.stop_reason,
        model=later.model or earlier.model,
    )


def _larger(one: Usage | None, other: Usage | None) -> Usage | None:
    if one is None or other is None:
        return one or other
    return one if one.total_tokens > other.total_tokens else other


def _without_usage(message: Message) -> Message:
    """What was used before a compaction says nothing about the context after it."""
    if isinstance(message, Assistant) and message.usage is not None:
        return msgspec.structs.replace(message, usage=Usage())
    return message


def _messages_of(entry: Entry) -> Sequence[Message]:
    """What an entry says to the model."""
    match entry:
        case MessageEntry():
            return [message for message in entry.messages if not _is_of_the_client(message)]
        case Unknown(kind="attachment"):
            return _attachment_messages(entry.fields)
        case _:
            return ()


def _is_of_the_client(message: Message) -> bool:
    """A note about a failed request, or a reminder, which the client makes anew for each request."""
    if isinstance(message, User):
        return bool(message.content) and all(map(_is_reminder, blocks_of(message.content)))
    return isinstance(message, Assistant) and message.model == SYNTHETIC and message.stop_reason == "error"


def _is_reminder(block: Block) -> bool:
    return isinstance(block, Text) and block.text.lstrip().startswith("<system-reminder>")


def _attachment_messages(fields: Fields) -> list[Message]:
    attachment = object_in(fields, "attachment")
    rendered = fields.get("rendered")
    if not isinstance(rendered, list):
        text = _file_text(attachment)
        return [User(_time(fields), text)] if text else []
    if fields.get("renderedRole") == "system":
        return []
    texts = [Text(text) for part in rendered if isinstance(part, dict) and (text := string_in(part, "content"))]
    said = tuple(text for text in texts if not _is_reminder(text))
    return [User(_time(fields), said)] if said else []


def _file_text(attachment: Fields) -> str | None:
    """A file as clients attached it that did not record the text they sent."""
    file = object_in(object_in(attachment, "content"), "file")
    text = string_in(file, "content")
    if attachment.get("type") != "file" or text is None:
        return None
    path = string_in(file, "filePath") or string_in(attachment, "filename") or ""
    return f"The file {path} was attached, which held:\n\n{text}"


def _time(fields: Fields) -> int | None:
    return milliseconds(string_in(fields, "timestamp") or "")


def _state(chain: Chain, trail: Trail, messages: Sequence[Message]) -> State:
    spoken = (message.model for message in reversed(messages) if isinstance(message, Assistant))
    model = next((name for name in spoken if _is_model(name)), None) or _earlier_model(chain, trail)
    ref = ModelRef("anthropic", model) if model else None
    return State(model=ref, models={"default": f"anthropic/{model}"} if model else {}, mode=_mode(chain))


def _is_model(name: str | None) -> bool:
    return bool(name) and name != SYNTHETIC


def _earlier_model(chain: Chain, trail: Trail) -> str | None:
    """After a compaction that kept no answer: the model of the last one before it in the file."""
    first = trail.nodes[0] if trail.nodes else 0
    before = [node for node in range(max(0, first - _STEP), first) if chain.types[node] == "message"]
    for fields in reversed(chain.lines.fields(before)):
        model = string_in(object_in(fields, "message"), "model")
        if _is_model(model) and fields.get("isSidechain") is not True:
            return model
    return None


def _mode(chain: Chain) -> str:
    for node in range(len(chain) - 1, -1, -1):
        key = _MODES.get(chain.types[node])
        if key is not None:
            (fields,) = chain.lines.fields([node])
            return string_in(fields, key) or "none"
    return "none"
