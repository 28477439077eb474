"""Extract the searchable texts from a line of any dialect.

It has its own decoder instead of the dialects' `parse` for two reasons. First, an entry drops fields that search needs:
Claude Code's `isMeta` and `isCompactSummary` distinguish prompts from inserted context and summaries. Second, indexing
spends most of its time here. On 109 MB of Claude Code sessions, `parse` alone takes 1.6 times as long as this module
(0.40 s against 0.25 s). Its texts would also have to be encoded again for the tokenizer.

A text stays the bytes of its JSON string until it is shown. Images and signatures are skipped. So are copies of other
text on the line, such as Claude Code's `toolUseResult` and `last-prompt`.

One set of rules reads all built-in formats, because they share most field names. A line has a type; the line or its
`message` has a role and content (a string or blocks). Lines of any other format are read through their dialect's entry.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeAlias

import msgspec
from msgspec import Raw, Struct

from sessiontree.core.jsonio import render_json
from sessiontree.search.texts import DECODE_ERRORS, Line, Text, parse_or_none

if TYPE_CHECKING:
    from sessiontree.dialects.contract import Dialect

_NOTHING = Raw(b"")

_inserted = re.compile(
    rb"(?:\s|\\n)*<(?:command-|local-command-|ide_|session-start-hook|system-reminder|user-prompt-submit-hook|task-)"
)

_shell = re.compile(rb"(?:\s|\\n)*<(?:bash-(?P<stream>input|stdout|stderr)|local-command-(?P<out>stdout|stderr))>")
_NEOVATE_SUMMARY = b'"Chat history compacted successfully."'


class _Block(Struct, gc=False):
    type: str = ""
    id: str | None = None
    text: Raw = _NOTHING
    thinking: Raw = _NOTHING
    name: str = ""
    input: Raw = _NOTHING
    arguments: Raw = _NOTHING
    content: Raw = _NOTHING
    result: Raw = _NOTHING
    tool_use_id: str = ""
    is_error: bool | None = None
    toolName: str = ""  # noqa: N815 - the files' spelling
    source: Raw = _NOTHING


class _MessageFields(Struct, gc=False):
    """Fields of a message other than its content; each format uses some of them."""

    role: str = ""
    model: str | None = None
    toolName: str = ""  # noqa: N815
    isError: bool | None = None  # noqa: N815
    errorMessage: Raw = _NOTHING  # noqa: N815
    command: Raw = _NOTHING
    code: Raw = _NOTHING
    output: Raw = _NOTHING
    exitCode: int | None = None  # noqa: N815
    files: Raw = _NOTHING
    summary: Raw = _NOTHING


class _Record(_MessageFields, gc=False):
    """Fields of a line other than its message and content."""

    type: str = ""
    id: str | None = None
    uuid: str | None = None
    timestamp: str = ""
    subtype: str | None = None
    isMeta: bool | None = None  # noqa: N815
    isCompactSummary: bool | None = None  # noqa: N815
    isApiErrorMessage: bool | None = None  # noqa: N815
    uiContent: Raw = _NOTHING  # noqa: N815
    attachment: Raw = _NOTHING
    rendered: Raw = _NOTHING
    entry: Raw = _NOTHING
    data: Raw = _NOTHING
    title: Raw = _NOTHING
    customTitle: Raw = _NOTHING  # noqa: N815
    aiTitle: Raw = _NOTHING  # noqa: N815
    agentName: Raw = _NOTHING  # noqa: N815
    name: Raw = _NOTHING
    label: Raw = _NOTHING
    tag: Raw = _NOTHING
    shortSummary: Raw = _NOTHING  # noqa: N815
    config: Raw = _NOTHING
    task: Raw = _NOTHING
    systemPrompt: Raw = _NOTHING  # noqa: N815
    replacement: Raw = _NOTHING
    prUrl: Raw = _NOTHING  # noqa: N815
    sessiontreeBlobs: Raw = _NOTHING  # noqa: N815


class _Message(_MessageFields, gc=False):
    content: str | list[_Block] | None = None


class _Line(_Record, gc=False):
    """The usual line: content is a string or blocks, decoded with the line."""

    content: str | list[_Block] | None = None
    message: _Message | None = None


class _OddMessage(_MessageFields, gc=False):
    content: Raw = _NOTHING


class _OddLine(_Record, gc=False):
    """A line with content or fields of other types, which are decoded one by one."""

    content: Raw = _NOTHING
    message: _OddMessage | None = None


_AnyLine: TypeAlias = _Line | _OddLine
_Content: TypeAlias = Raw | bytes | str | list[_Block] | None


class _Result(Struct, gc=False):
    llmContent: Raw = _NOTHING  # noqa: N815
    isError: bool | None = None  # noqa: N815


_decode_ordinary = msgspec.json.Decoder(_Line).decode
_decode_odd = msgspec.json.Decoder(_OddLine).decode
_decode_blocks = msgspec.json.Decoder(list[_Block]).decode
_decode_result = msgspec.json.Decoder(_Result).decode


def _decode_line(raw: bytes) -> _AnyLine:
    try:
        return _decode_ordinary(raw)
    except DECODE_ERRORS:
        return _decode_odd(raw)


def read_line(raw: bytes, dialect: Dialect | str, get_blob: Callable[[str], bytes | None] | None = None) -> list[Line]:
    """Extract the texts of each record on a line. Never raises for invalid content.

    A dialect given by name is loaded only if a line needs it, which few do.
    """
    try:
        line = _decode_line(raw)
    except DECODE_ERRORS:
        raw = raw if get_blob is None else _with_blobs(raw, get_blob)
        known = _loaded(dialect)
        return [found for record in _salvaged(raw, known) for found in _read_record(record, known)]
    if line.sessiontreeBlobs and get_blob is not None:
        return read_line(_with_blobs(raw, get_blob), dialect)
    found = _read(line)
    if not found.texts and not is_shared_form(dialect):
        return _from_entry(raw, _loaded(dialect))
    return [found] if found.texts else []


def is_shared_form(dialect: Dialect | str) -> bool:
    """Whether the rules of this module cover a dialect."""
    name = dialect if isinstance(dialect, str) else dialect.name
    return name in ("native", "pi", "omp", "claude", "neovate")


def _loaded(dialect: Dialect | str) -> Dialect:
    from sessiontree.library.roots import dialect_named

    return dialect_named(dialect) if isinstance(dialect, str) else dialect


def _read_record(record: bytes, dialect: Dialect) -> list[Line]:
    try:
        found = _read(_decode_line(record))
    except DECODE_ERRORS:
        return _from_entry(record, dialect)
    return [found] if found.texts else []


def _salvaged(raw: bytes, dialect: Dialect) -> Iterator[bytes]:
    from sessiontree.core.salvage import salvage

    for piece in salvage(raw, dialect.is_record):
        if piece.kind == "record":
            yield render_json(piece.value)


def _from_entry(raw: bytes, dialect: Dialect) -> list[Line]:
    """Read a line through its dialect's entry: for other formats, and for fields of unexpected types."""
    entry = dialect.parse(raw)
    fields = msgspec.to_builtins(entry, builtin_types=())
    if not isinstance(fields, dict):
        return []
    try:
        found = _read(_decode_line(render_json(fields)))
    except DECODE_ERRORS:
        return []
    return [found] if found.texts else []


def _with_blobs(raw: bytes, get_blob: Callable[[str], bytes | None]) -> bytes:
    from sessiontree.session.blob_refs import BLOB_POINTERS, restore

    fields = parse_or_none(raw)
    return render_json(restore(fields, get_blob)) if isinstance(fields, dict) and BLOB_POINTERS in fields else raw


# One function per type of line


def _read(line: _AnyLine) -> Line:
    message = line.message or line
    texts: list[Text] = []
    kind = line.type
    if kind in ("user", "assistant", "message"):
        _read_message(line, message, texts)
    else:
        read = _READERS.get(kind)
        if read is not None:
            read(line, texts)
    return Line(line.uuid or line.id or "", line.timestamp, message.model or "", texts)


def _read_message(line: _AnyLine, message: _AnyLine | _Message | _OddMessage, texts: list[Text]) -> None:
    role = message.role or line.type
    content = message.content
    if role == "assistant":
        _add_content(texts, content, "answer", role, is_error=line.isApiErrorMessage is True)
        if message.errorMessage:
            _add(texts, "answer", role, bytes(message.errorMessage), is_error=True)
    elif role in ("user", "tool"):
        if line.isCompactSummary or bytes(line.uiContent) == _NEOVATE_SUMMARY:
            _add_content(texts, content, "summary", "user")
        else:
            _add_content(texts, content, "context" if line.isMeta else "prompt", "user")
    elif role == "toolResult":
        _add_content(texts, content, "output", "tool", tool=message.toolName, is_error=message.isError is True)
    elif role in ("bashExecution", "pythonExecution"):
        tool = role.removesuffix("Execution")
        _add(texts, "input", "user", bytes(message.command or message.code), tool=tool)
        _add(texts, "output", "tool", bytes(message.output), tool=tool, is_error=bool(message.exitCode))
    else:  # inserted by an extension, the system or a program
        _add_content(texts, content, "context", role)
        _add(texts, "context", role, bytes(message.files))
        _add(texts, "summary", role, bytes(message.summary))


def _read_summary(line: _AnyLine, texts: list[Text]) -> None:
    _add(texts, "summary", "assistant", bytes(line.summary))
    _add(texts, "summary", "assistant", bytes(line.shortSummary))


def _read_title(line: _AnyLine, texts: list[Text]) -> None:
    for raw in (line.title, line.customTitle, line.aiTitle, line.agentName, line.name):
        _add(texts, "title", "", bytes(raw))


def _read_label(line: _AnyLine, texts: list[Text]) -> None:
    for raw in (line.label, line.tag, line.prUrl):
        _add(texts, "label", "", bytes(raw))


def _read_inserted(line: _AnyLine, texts: list[Text]) -> None:
    """Text of the system or of an extension, or a prompt in the queue."""
    _add_content(texts, line.content, "context", "system" if line.type == "system" else "custom")
    _add(texts, "context", "custom", bytes(line.data))


def _read_attachment(line: _AnyLine, texts: list[Text]) -> None:
    """The text the model received, if the line has it. A prompt typed during a turn is a prompt."""
    found = parse_or_none(bytes(line.attachment))
    prompt = found.get("prompt") if isinstance(found, dict) and found.get("type") == "queued_command" else None
    if prompt is not None:
        _add_content(texts, render_json(prompt), "prompt", "user")
    elif line.rendered:
        _add_content(texts, bytes(line.rendered), "context", "user")
    elif isinstance(found, dict):
        _add(texts, "context", "user", render_json({key: value for key, value in found.items() if key != "type"}))


def _read_start(line: _AnyLine, texts: list[Text]) -> None:
    """The task and system prompt of a sub-agent."""
    _add(texts, "prompt", "user", bytes(line.task))
    _add(texts, "context", "system", bytes(line.systemPrompt))


def _read_config(line: _AnyLine, texts: list[Text]) -> None:
    found = parse_or_none(bytes(line.config))
    summary = found.get("summary") if isinstance(found, dict) else None
    if isinstance(summary, str):
        _add(texts, "title", "", render_json(summary))


def _read_edit(line: _AnyLine, texts: list[Text]) -> None:
    found = parse_or_none(bytes(line.replacement))
    if isinstance(found, dict):
        _add_content(texts, render_json(found.get("content")), "context", "user")


def _read_embedded(line: _AnyLine, texts: list[Text]) -> None:
    """A native entry that is embedded in a line of another format."""
    try:
        texts += _read(_decode_line(bytes(line.entry))).texts
    except DECODE_ERRORS:
        return


_READERS: dict[str, Callable[[_AnyLine, list[Text]], None]] = {
    "agent-name": _read_title,
    "ai-title": _read_title,
    "attachment": _read_attachment,
    "branch_summary": _read_summary,
    "compaction": _read_summary,
    "config": _read_config,
    "context_edit": _read_edit,
    "custom": _read_inserted,
    "custom-title": _read_title,
    "custom_message": _read_inserted,
    "label": _read_label,
    "pr-link": _read_label,
    "progress": _read_inserted,
    "queue-operation": _read_inserted,
    "session": _read_title,
    "session_info": _read_title,
    "session_init": _read_start,
    "sessiontree": _read_embedded,
    "summary": _read_summary,
    "system": _read_inserted,
    "tag": _read_label,
    "title": _read_title,
    "title_change": _read_title,
}


# Content: a string or blocks


def _add_content(
    texts: list[Text],
    content: _Content,
    kind: str,
    role: str,
    *,
    tool: str = "",
    call: str = "",
    is_error: bool = False,
) -> None:
    if isinstance(content, list):
        for block in content:
            _add_block(texts, block, kind, role, tool, call, is_error)
        return
    if isinstance(content, str):
        _add_string(texts, render_json(content), kind, role, tool, call, is_error)
        return
    raw = bytes(content or b"")
    first = raw[:1]
    if first == b'"':
        _add_string(texts, raw, kind, role, tool, call, is_error)
    elif first == b"[":
        try:
            blocks = _decode_blocks(raw)
        except DECODE_ERRORS:
            _add(texts, kind, role, raw, tool=tool, call=call, is_error=is_error)
            return
        _add_content(texts, blocks, kind, role, tool=tool, call=call, is_error=is_error)
    elif first == b"{":
        _add_content(texts, b"[" + raw + b"]", kind, role, tool=tool, call=call, is_error=is_error)


def _add_string(texts: list[Text], raw: bytes, kind: str, role: str, tool: str, call: str, is_error: bool) -> None:
    """Add a string. Text in the user's role that a program inserted becomes `context`, `input` or `output`."""
    if kind == "prompt" and raw[1:2] in b"< \\":
        shell = _shell.match(raw, 1)
        if shell is not None:
            tool = "bash" if shell["stream"] else tool
            kind, role = ("input", "user") if shell["stream"] == "input" else ("output", "tool")
        elif _inserted.match(raw, 1):
            kind = "context"
    _add(texts, kind, role, raw, tool=tool, call=call, is_error=is_error)


def _add_block(texts: list[Text], block: _Block, kind: str, role: str, tool: str, call: str, is_error: bool) -> None:
    match block.type:
        case "text":
            _add_string(texts, bytes(block.text), kind, role, tool, call, is_error)
        case "thinking" | "reasoning":
            _add(texts, "thinking", role, bytes(block.thinking or block.text))
        case "tool_use" | "toolCall" | "server_tool_use" | "mcp_tool_use":
            name = render_json(block.name)
            arguments = bytes(block.input or block.arguments)
            _add(texts, "input", role, arguments if len(arguments) > 2 else name, tool=block.name, call=block.id or "")
        case "tool_result" | "tool-result":
            _add_result(texts, block)
        case "image" | "redacted_thinking" | "redactedThinking":
            return
        case _:  # documents, results of server tools, blocks without a type
            for raw in (block.text, block.content, block.source, block.result):
                _add_content(texts, bytes(raw), "output" if role == "assistant" else kind, role, tool=tool, call=call)


def _add_result(texts: list[Text], block: _Block) -> None:
    name, content, is_error = block.toolName or block.name, bytes(block.content), block.is_error is True
    if block.result:
        content = bytes(block.result)
        if content[:1] == b"{":
            try:
                result = _decode_result(content)
            except DECODE_ERRORS:
                result = _Result()
            content, is_error = bytes(result.llmContent), result.isError is True
    _add_content(texts, content, "output", "tool", tool=name, call=block.tool_use_id, is_error=is_error)


def _add(
    texts: list[Text], kind: str, role: str, raw: bytes, *, tool: str = "", call: str = "", is_error: bool = False
) -> None:
    if len(raw) > 2 and raw != b"null":
        texts.append(Text(kind, role, raw, tool, call, is_error))
