"""The sessions of Neovate (once Takumi), 0.9 to 0.28 and after: read, never written.

There is no header. A line of the type `message` is an entry; a `config` line, file snapshots, titles and anything else
are asides. What Neovate loads is the chain of the last message in the file, put in the order of the file; roots are
common, since a compaction is nothing but a new root. Versions differ: 0.28 drops every assistant message of which a
call has no result in the new form. That is a loss, and providers need no such thing from us, so all are kept.

With `Reading.recovered` the chain goes on where Neovate's ends:

* a compaction follows what it summarises, though the context still begins with it;
* the first message after an old automatic compaction, which forgot its parent, follows the summary;
* a root behind a line that is no message follows the message before it: Neovate takes the parent from the last line of
  the file, whatever that is;
* a message whose parent is lost follows the message before it;
* results of calls that were cancelled together stand side by side, and all of them belong to the chain.
"""

from __future__ import annotations

import hashlib
import os
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from sys import intern
from typing import Any

import msgspec
from msgspec import Struct

from sessiontree.context import Context, build_context, milliseconds
from sessiontree.dialects.base import (
    Columns,
    DialectBase,
    Envelope,
    Lines,
    Reading,
    Relink,
    decode_wires,
    path_of,
    relinked_path,
)
from sessiontree.dialects.pi import iter_head_records
from sessiontree.entries import (
    ENTRY_TYPES,
    Config,
    ConfigChange,
    Entry,
    FileSnapshot,
    ForkOrigin,
    Header,
    MessageEntry,
    SessionInfo,
    Unknown,
)
from sessiontree.messages import (
    Assistant,
    Block,
    Content,
    Image,
    Message,
    OtherBlock,
    OtherMessage,
    System,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    User,
    tool_calls,
)
from sessiontree.values import parse_json, tolerant

COMPACTION_MARK = "Chat history compacted successfully."
INTERRUPTION = "[Request interrupted by user]"

_MESSAGE = "message"
_SHARED_TYPES = {"config": "config", "snapshot": "file_snapshot", "custom-title": "session_info"}
_LONGEST_TITLE = 50
_STEP = 32

_data_url = re.compile(r"data:([^;,]*)[^,]*;base64,", re.IGNORECASE)
_shell_echo = re.compile(r"\s*<bash-(?:input|stdout|stderr)>")
# A first line that is longer than the head: Neovate writes the keys of a line in this order.
_long_first_line = re.compile(
    rb'\s*\{\s*(?:"type"\s*:\s*"config"\s*,\s*"config"\s*:\s*\{'
    rb'|"parentUuid"\s*:\s*(?:null|"[^"]*")\s*,\s*"uuid"\s*:\s*"[^"]+"\s*,\s*"role"\s*:\s*")'
)


class _Wire(Struct, gc=False, rename={"parent": "parentUuid", "id": "uuid"}):
    type: str = ""
    id: str | None = None
    parent: str | None = None


_decode_lines = msgspec.json.Decoder(_Wire).decode_lines


class Neovate(DialectBase):
    name = "neovate"
    folders = ("/.neovate/projects/", "/.takumi/projects/")
    parent_key = "parentUuid"
    id_key = "uuid"
    bookkeeping = frozenset(_SHARED_TYPES.values())

    def recognise(self, head: bytes) -> int:
        records = list(iter_head_records(head))
        if any(record.get("type") == "session" or _is_claude_line(record) for record in records):
            return 0
        if any(map(_is_sure_sign, records)) or (not records and _long_first_line.match(head)):
            return 60
        return 10 if any(map(self.is_record, records)) else 0

    def decode_block(self, data: memoryview) -> Columns | None:
        wires = decode_wires(_decode_lines, data)
        if wires is None:
            return None
        if not wires or any(
            not wire.type or (wire.type == _MESSAGE and (not wire.id or wire.parent == "")) for wire in wires
        ):
            return None
        return Columns(
            [intern(shared_type(wire.type)) for wire in wires],
            [(wire.id or "") if wire.type == _MESSAGE else "" for wire in wires],
            [wire.parent if wire.type == _MESSAGE else None for wire in wires],
        )

    def is_record(self, fields: dict[str, Any]) -> bool:
        match fields.get("type"):
            case "message":
                return isinstance(fields.get("role"), str)
            case "config":
                return isinstance(fields.get("config"), dict) and "id" not in fields  # with an id it is a native line
            case "snapshot":
                return isinstance(fields.get("trackedFileBackups"), dict)
            case "custom-title":
                return isinstance(fields.get("customTitle"), str)
            case _:
                return False

    def find_header(self, lines: Lines) -> Header | None:
        """The session's id as its last message gives it, else the name of the file."""
        if not lines.types:
            return None
        nodes = _messages(lines)
        if not nodes:
            return Header(id=_stem(lines.location))
        first, last = lines.fields([nodes[0], nodes[-1]])
        return Header(
            id=_string(last, "sessionId") or _stem(lines.location),
            timestamp=_string(first, "timestamp"),
            forked_from=_fork_origin(lines, nodes, first),
        )

    def envelope(self, fields: dict[str, Any]) -> Envelope:
        kind = _string(fields, "type")
        if kind != _MESSAGE:
            return Envelope(shared_type(kind), "", None, aside=bool(kind))
        parent = fields.get("parentUuid")
        return Envelope(kind, _string(fields, "uuid"), parent if parent is None or isinstance(parent, str) else "")

    def parse(self, raw: bytes) -> Entry:
        try:
            fields = parse_json(raw)
        except ValueError:
            fields = None
        return parse_line(fields if isinstance(fields, dict) else {})

    def find_leaf(self, lines: Lines, reading: Reading) -> int | None:
        for node in range(len(lines.types) - 1, -1, -1):
            if lines.types[node] == _MESSAGE:
                return node
        return None

    def find_path(self, lines: Lines, leaf: int | None, reading: Reading) -> list[int]:
        if not reading.recovered:
            return _in_file_order(lines, lines.tree.path(leaf))
        links = {relink.node: relink.parent for relink in self.find_relinks(lines)}
        chain = relinked_path(lines.tree, leaf, {**_compaction_links(lines), **links})
        return _in_file_order(lines, _with_lost_results(lines, chain))

    def find_relinks(self, lines: Lines) -> list[Relink]:
        relinks: list[Relink] = []
        stands_for: dict[str, int] = {}
        for node, before in _iter_with_before(lines):
            lost = lines.tree.missing_parent(node)
            if lost is not None:  # all children of a lost message get the same parent, so that branches stay branches
                parent = stands_for.setdefault(lost, before)
                relinks.append(Relink(node, parent, "it stands where the lost parent stood"))
            elif lines.tree.parent(node) is None:
                relink = _root_relink(lines, node, before)
                relinks += [relink] if relink is not None else []
        return relinks

    def build_context(self, lines: Lines, leaf: int | None, reading: Reading) -> Context:
        nodes = self.find_path(lines, leaf, reading)
        start = _last_compaction(lines, nodes) if reading.recovered else 0
        context = build_context(path_of(lines, nodes[start:]), self.rules)
        return Context(tuple(lines.tree.ids[node] for node in nodes), context.messages, context.sources, context.state)

    def find_config(self, lines: Lines) -> Config:
        """The settings of the session: those of the first line that has any."""
        entry = _first_config(lines)
        return entry.config if entry is not None else Config()

    def find_title(self, lines: Lines) -> str | None:
        """The newest title that was given, else the one in the settings, else the beginning of the first prompt."""
        for node in range(len(lines.types) - 1, -1, -1):
            if lines.types[node] == "session_info":
                (entry,) = lines.entries([node])
                if isinstance(entry, SessionInfo) and entry.name:
                    return entry.name
        config = _first_config(lines)
        if config is not None and config.config.summary:
            return config.config.summary
        return next(_iter_prompts(lines), None)


def shared_type(kind: str) -> str:
    """A line's type in shared words. A type we do not know keeps its name, unless that name means something else."""
    if kind == _MESSAGE or kind in _SHARED_TYPES:
        return _SHARED_TYPES.get(kind, kind)
    return f"neovate:{kind}" if kind in ENTRY_TYPES else kind


def parse_line(fields: dict[str, Any]) -> Entry:
    """One line out of decoded JSON, whatever it is."""
    kind, time = _string(fields, "type"), _string(fields, "timestamp")
    match kind:
        case "message":
            first, *more = parse_messages(fields)
            parent = _string(fields, "parentUuid") or None
            return MessageEntry(_string(fields, "uuid"), parent, time, first, tuple(more))
        case "config":
            config = fields.get("config")
            return ConfigChange(config=tolerant(Config, config) if isinstance(config, dict) else Config())
        case "snapshot":
            files = fields.get("trackedFileBackups")
            return FileSnapshot(timestamp=time, files=files if isinstance(files, dict) else {})
        case "custom-title":
            return SessionInfo(timestamp=time, name=_string(fields, "customTitle") or None)
        case _:
            return Unknown(timestamp=time, kind=shared_type(kind), fields=fields)


def parse_messages(fields: dict[str, Any]) -> list[Message]:
    """The messages of a line: one, or one for each result it holds."""
    role, content = fields.get("role"), fields.get("content")
    time = milliseconds(_string(fields, "timestamp"))
    match role:
        case "user" | "tool":
            results = [_tool_result(part, time) for part in _parts(content) if _is_result(part)]
            rest = [part for part in content if not _is_result(part)] if isinstance(content, list) else content
            if role == "tool" and not results:
                return [OtherMessage(time, "tool", fields)]
            return [*results, *([User(time, _content(rest))] if rest or not results else [])]
        case "assistant":
            return [_assistant(fields, time)]
        case "system":
            return [System(time, _content(content))]
        case _:
            return [OtherMessage(time, role if isinstance(role, str) else "", fields)]


def _assistant(fields: dict[str, Any], time: int | None) -> Assistant:
    provider, slash, model = _string(fields, "model").partition("/")
    usage = fields.get("usage")
    return Assistant(
        time,
        _content(fields.get("content") or fields.get("text")),
        provider=provider if slash else None,
        model=(model if slash else provider) or None,
        usage=_usage(usage) if isinstance(usage, dict) else None,
    )


def _usage(fields: dict[str, Any]) -> Usage:
    read, written = _number(fields, "input_tokens"), _number(fields, "output_tokens")
    return Usage(
        input=read,
        output=written,
        cache_read=_number(fields, "cache_read_input_tokens"),
        cache_write=_number(fields, "cache_creation_input_tokens"),
        total_tokens=read + written,
    )


def _is_result(part: object) -> bool:
    """A result of the new kind, or of the kind that was a part of a user message up to 0.14."""
    return isinstance(part, dict) and part.get("type") in ("tool-result", "tool_result")


def _tool_result(part: dict[str, Any], time: int | None) -> ToolResult:
    result = part.get("result")
    fields = result if isinstance(result, dict) else {"llmContent": result}
    is_old = part.get("type") == "tool_result"
    return ToolResult(
        time,
        tool_call_id=_string(part, "id" if is_old else "toolCallId"),
        tool_name=_string(part, "name" if is_old else "toolName"),
        content=_content(fields.get("llmContent")),
        is_error=fields.get("isError") is True,
    )


def _parts(content: object) -> list[Any]:
    return content if isinstance(content, list) else []


def _content(content: object) -> Content:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return tuple(_block(part) for part in content)
    return () if content is None else (_block(content),)


def _block(part: object) -> Block:
    if not isinstance(part, dict):
        return Text(part) if isinstance(part, str) else OtherBlock(type(part).__name__, part)
    match part.get("type"):
        case "text":
            return Text(_string(part, "text"))
        case "reasoning":
            return Thinking(_string(part, "text"))
        case "image":
            return _image(part)
        case "tool_use":
            given = part.get("input")
            arguments = given if isinstance(given, dict) else {} if given is None else {"input": given}
            return ToolCall(_string(part, "id"), _string(part, "name"), arguments)
        case kind:
            return OtherBlock(str(kind or ""), part)


def _image(part: dict[str, Any]) -> Image:
    """An image, whose data may be a whole data URL."""
    data, mime_type = _string(part, "data"), _string(part, "mimeType")
    url = _data_url.match(data)
    if url:
        data, mime_type = data[url.end() :], mime_type or url[1]
    return Image(data, mime_type or "image/png")


def _string(fields: dict[str, Any], name: str) -> str:
    found = fields.get(name)
    return found if isinstance(found, str) else ""


def _number(fields: dict[str, Any], name: str) -> int | float:
    found = fields.get(name)
    return found if isinstance(found, int | float) and not isinstance(found, bool) else 0


def _is_sure_sign(fields: dict[str, Any]) -> bool:
    if fields.get("type") == _MESSAGE:
        return isinstance(fields.get("uuid"), str) and isinstance(fields.get("role"), str)
    return fields.get("type") == "config" and isinstance(fields.get("config"), dict) and "id" not in fields


def _is_claude_line(fields: dict[str, Any]) -> bool:
    return fields.get("type") in ("user", "assistant") and "uuid" in fields


def _stem(location: str) -> str:
    return os.path.splitext(os.path.basename(location))[0]


def _messages(lines: Lines) -> list[int]:
    return [node for node, kind in enumerate(lines.types) if kind == _MESSAGE]


def _first_config(lines: Lines) -> ConfigChange | None:
    if "config" not in lines.types:
        return None
    (entry,) = lines.entries([lines.types.index("config")])
    return entry if isinstance(entry, ConfigChange) else None


def _fork_origin(lines: Lines, nodes: Sequence[int], first: dict[str, Any]) -> ForkOrigin | None:
    """Where a session was forked. The copied messages carry the mark, and all of them stand before the new ones."""
    if _fork_mark(first) is None:
        return None
    copied = bisect_left(nodes, True, key=lambda node: _fork_mark(lines.fields([node])[0]) is None)
    mark = _fork_mark(lines.fields([nodes[copied - 1]])[0]) if copied else None
    return ForkOrigin(_string(mark, "sessionId"), _string(mark, "messageUuid") or None) if mark else None


def _fork_mark(fields: dict[str, Any]) -> dict[str, Any] | None:
    mark = fields.get("forkedFrom")
    return mark if isinstance(mark, dict) else None


def _iter_prompts(lines: Lines) -> Iterator[str]:
    """What the user asked for, each as a title: not what a command printed, what was interrupted or is hidden."""
    nodes = _messages(lines)
    for start in range(0, len(nodes), _STEP):
        for fields in lines.fields(nodes[start : start + _STEP]):
            text = " ".join(_shown_text(fields).split())
            if fields.get("role") == "user" and text and text != INTERRUPTION and not _shell_echo.match(text):
                yield text if len(text) <= _LONGEST_TITLE else f"{text[:_LONGEST_TITLE]}..."


def _shown_text(fields: dict[str, Any]) -> str:
    content = fields.get("content")
    if isinstance(content, str):
        return content
    parts = [part for part in _parts(content) if isinstance(part, dict) and not part.get("hidden")]
    return " ".join(_string(part, "text") for part in parts if part.get("type") == "text")


def _in_file_order(lines: Lines, chain: Sequence[int]) -> list[int]:
    """The lines of a chain as they stand in the file. An id that stands there twice brings both of its lines."""
    ids, types = lines.tree.ids, lines.types
    wanted = {ids[node] for node in chain}
    if len(lines.tree.node_of) == len(ids):
        return sorted(node for node in chain if types[node] == _MESSAGE)
    return [node for node, id in enumerate(ids) if id in wanted and types[node] == _MESSAGE]


def _is_compaction(fields: dict[str, Any]) -> bool:
    return fields.get("role") == "user" and fields.get("uiContent") == COMPACTION_MARK


def _last_compaction(lines: Lines, nodes: Sequence[int]) -> int:
    """The position of the last compaction on a path, where its context begins; 0 when there is none."""
    for at in range(len(nodes) - 1, 0, -1):
        # Only a root can be one, so the other lines need not be read.
        if lines.tree.parent(nodes[at]) is None and _is_compaction(lines.fields([nodes[at]])[0]):
            return at
    return 0


def _root_relink(lines: Lines, root: int, before: int) -> Relink | None:
    """The link that a root lacks, or None when it is one in its own right: a compaction, or where a ring was opened."""
    fields, earlier = lines.fields([root, before])
    if fields.get("parentUuid") or _is_compaction(fields):
        return None
    if fields.get("role") == "assistant" and _is_compaction(earlier):
        return Relink(root, before, "old automatic compaction forgot the summary", "summary-off-path")
    if lines.types[root - 1] != _MESSAGE:
        return Relink(root, before, "its parent was looked for on a line that is no message", "false-root")
    return None


def _compaction_links(lines: Lines) -> dict[int, int]:
    """Compactions and the message each of them follows. To be read along, never to be written: history would return."""
    followed = {node: before for node, before in _iter_with_before(lines) if lines.tree.parent(node) is None}
    fields = lines.fields(list(followed))
    return {node: followed[node] for node, found in zip(followed, fields, strict=True) if _is_compaction(found)}


def _iter_with_before(lines: Lines) -> Iterator[tuple[int, int]]:
    """Each message but the first, with the message before it in the file."""
    before: int | None = None
    for node, kind in enumerate(lines.types):
        if kind == _MESSAGE:
            if before is not None:
                yield node, before
            before = node


def _with_lost_results(lines: Lines, chain: list[int]) -> list[int]:
    """The chain with results that stand beside it and answer calls in it that nothing else answers."""
    entries = lines.entries(chain)
    messages = [message for entry in entries if isinstance(entry, MessageEntry) for message in entry.messages]
    answered = {message.tool_call_id for message in messages if isinstance(message, ToolResult)}
    on_chain = set(chain)
    found: list[int] = []
    for node, entry in zip(chain, entries, strict=True):
        calls = tool_calls(entry.message) if isinstance(entry, MessageEntry) else ()
        open_calls = {call.id for call in calls} - answered
        beside = [child for child in lines.tree.children(node) if child not in on_chain] if open_calls else []
        for child, sibling in zip(beside, lines.entries(beside), strict=True):
            given = _answered_by(sibling)
            if given and given <= open_calls:
                found.append(child)
                open_calls -= given
    return [*chain, *found]


def _answered_by(entry: Entry) -> set[str]:
    """The calls that a line answers, if results are all it holds."""
    messages = entry.messages if isinstance(entry, MessageEntry) else ()
    if not all(isinstance(message, ToolResult) for message in messages):
        return set()
    return {message.tool_call_id for message in messages if isinstance(message, ToolResult)}


def project_folder_name(cwd: str) -> str:
    """The folder below `projects` for work in `cwd`; empty for the root, whose sessions lie in `projects` itself.

    Different folders may share a name, and the cwd stands nowhere in the file.
    """
    return re.sub(r"[^a-zA-Z0-9]+", "-", cwd.strip("/")).strip("-").lower()


def file_history_path(project_folder: str, session_id: str, relative_path: str, version: int) -> str:
    """Where the copy of a file lies that a snapshot names."""
    digest = hashlib.sha256(relative_path.encode("utf-8", "surrogatepass")).hexdigest()
    return os.path.join(project_folder, "file-history", session_id, f"{digest[:16]}@v{version}")


def tool_output_folder(config_folder: str) -> str:
    """Where the full text of long tool output lies, below `~/.neovate`."""
    return os.path.join(config_folder, "tool-output")


NEOVATE = Neovate()
