"""The line of a session, of any agent, -> the texts in it that can be found.

Lines are decoded only as far as that takes. A text stays the bytes of a JSON string until someone wants to read it,
and what is no text, or says again what stands elsewhere on the line, is passed over: the structured copy that Claude
Code keeps of each result (`toolUseResult`), the last prompt it notes, signatures, images.

All formats are read by one set of rules, because they share most words: a line has a type and says something itself or
in its `message`, by a role, as a string or as blocks. A format that has none of these words is asked for its entry.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
from msgspec import Raw, Struct

from sessiontree.core.jsonio import parse_json, render_json

if TYPE_CHECKING:
    from sessiontree.dialects.contract import Dialect

KINDS = ("title", "label", "summary", "prompt", "answer", "thinking", "input", "output", "context")
"""Kinds of texts: what `in:` of a query knows, and what was put into the conversation by programs."""
TELLING = frozenset({"title", "label", "summary", "prompt"})

_FILE_KEYS = frozenset({"file_path", "filepath", "path", "notebook_path", "file", "filename", "paths", "files"})
_NOTHING = Raw(b"")
_automatic = re.compile(
    rb"(?:\s|\\n)*<(?:command-|local-command-|ide_|session-start-hook|system-reminder|user-prompt-submit-hook|task-)"
)
_shell = re.compile(rb"(?:\s|\\n)*<(?:bash-(?P<what>input|stdout|stderr)|local-command-(?P<out>stdout|stderr))>")
_seldom_escape = re.compile(rb"\\[tu\\rbf]")
_QUOTE = 0x22
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


class _Speech(Struct, gc=False):
    """What a message has beyond its content; each format uses some of it."""

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


class _Record(_Speech, gc=False):
    """What a line has beyond its message and its content."""

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


class _Said(_Speech, gc=False):
    content: str | list[_Block] | None = None


class _Line(_Record, gc=False):
    """A line as nearly all are: its content is a string or blocks, and is decoded with it."""

    content: str | list[_Block] | None = None
    message: _Said | None = None


class _OddSaid(_Speech, gc=False):
    content: Raw = _NOTHING


class _OddLine(_Record, gc=False):
    """A line whose content is something else, or has fields of other types: they are looked at one by one."""

    content: Raw = _NOTHING
    message: _OddSaid | None = None


_AnyLine: TypeAlias = _Line | _OddLine
_Content: TypeAlias = Raw | bytes | str | list[_Block] | None


class _Result(Struct, gc=False):
    llmContent: Raw = _NOTHING  # noqa: N815
    isError: bool | None = None  # noqa: N815


_decode_ordinary = msgspec.json.Decoder(_Line).decode
_decode_odd = msgspec.json.Decoder(_OddLine).decode
_decode_blocks = msgspec.json.Decoder(list[_Block]).decode
_decode_result = msgspec.json.Decoder(_Result).decode
_decode_named = msgspec.json.Decoder(dict[str, str]).decode
_decode_raws = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_text = msgspec.json.Decoder(str).decode
_DECODING = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def _decode_line(raw: bytes) -> _AnyLine:
    try:
        return _decode_ordinary(raw)
    except _DECODING:
        return _decode_odd(raw)


class Text(Struct, gc=False):
    """One text of a line: what kind of text, who says it, of which tool, and whether it tells of a failure."""

    kind: str
    role: str
    raw: bytes
    """A JSON string with its quotes; or, for what a tool was asked, a JSON value of any kind."""
    tool: str = ""
    call: str = ""
    """The id of the call that it is, or that it answers."""
    is_error: bool = False

    @property
    def text(self) -> str:
        """What it says. The strings of a structured value stand on lines of their own."""
        raw = self.raw
        if raw[:1] == b'"':
            try:
                return _decode_text(raw)
            except _DECODING:
                found = _parsed(raw)
                return found if isinstance(found, str) else ""
        return _said_in(raw)

    def files(self) -> list[str]:
        """The files that a tool was asked about."""
        if self.raw[:1] != b"{":
            return []
        named = _named_strings(_parsed(self.raw))
        return [value for key, value in named if key.lower().replace("-", "_") in _FILE_KEYS]


class Line(Struct, gc=False):
    """What can be found of one line."""

    id: str
    time: str
    model: str
    texts: list[Text]

    @property
    def is_telling(self) -> bool:
        """Whether it says what the session is about: a title, a label, a summary, a prompt."""
        return self.texts[0].kind in TELLING


def read_line(raw: bytes, dialect: Dialect | str, get_blob: Callable[[str], bytes | None] | None = None) -> list[Line]:
    """The texts of a line, of each record on it; of a line without any, nothing. Never raises for what it holds.

    A dialect that is given by its name is loaded when a line needs it, which few do.
    """
    try:
        line = _decode_line(raw)
    except _DECODING:
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
    """Whether a dialect is one whose lines are read here."""
    name = dialect if isinstance(dialect, str) else dialect.name
    return name in ("native", "pi", "omp", "claude", "neovate")


def _loaded(dialect: Dialect | str) -> Dialect:
    from sessiontree.library.roots import dialect_named

    return dialect_named(dialect) if isinstance(dialect, str) else dialect


def joined_texts(raws: Sequence[bytes]) -> tuple[bytes, bool]:
    """What some texts say as UTF-8 to take words from, and whether escapes are left in it that touch words.

    Most escapes separate words. The end of a line stands in nearly every text and is made a blank here; the others are
    left to be read once for each distinct word that has one.
    """
    strings: list[bytes | Raw] = []
    others: list[str] = []
    for raw in raws:
        if raw[0] == _QUOTE:
            strings.append(raw)
        elif (named := _strings_of(raw)) is not None:
            strings += named
        else:
            others.append(_said_in(raw))
    joined = b" ".join(strings)
    is_escaped = _seldom_escape.search(joined) is not None
    if is_escaped:
        joined = joined.replace(b"\\\\", b"  ")  # what is left of backslashes begins an escape
    joined = joined.replace(b"\\n", b"  ")
    if others:
        joined += b" " + "\n".join(others).encode("utf-8", "replace").replace(b"\\", b" ")
    return joined, is_escaped


def _strings_of(raw: bytes) -> list[Raw] | None:
    """The strings of an object that has nothing else, as they stand in JSON; None for any other value."""
    try:
        named = _decode_raws(raw)
    except _DECODING:
        return None
    values = list(named.values())
    is_other = any(memoryview(value)[0] != _QUOTE for value in values) or "type" in named
    return None if is_other else values


def _read_record(record: bytes, dialect: Dialect) -> list[Line]:
    try:
        found = _read(_decode_line(record))
    except _DECODING:
        return _from_entry(record, dialect)
    return [found] if found.texts else []


def _salvaged(raw: bytes, dialect: Dialect) -> Iterator[bytes]:
    from sessiontree.core.salvage import salvage

    for piece in salvage(raw, dialect.is_record):
        if piece.kind == "record":
            yield render_json(piece.value)


def _from_entry(raw: bytes, dialect: Dialect) -> list[Line]:
    """Through the dialect's own values: for formats we share no words with, and for lines with fields of odd types."""
    entry = dialect.parse(raw)
    fields = msgspec.to_builtins(entry, builtin_types=())
    if not isinstance(fields, dict):
        return []
    try:
        found = _read(_decode_line(render_json(fields)))
    except _DECODING:
        return []
    return [found] if found.texts else []


def _with_blobs(raw: bytes, get_blob: Callable[[str], bytes | None]) -> bytes:
    from sessiontree.session.blob_refs import BLOB_POINTERS, restore

    fields = _parsed(raw)
    return render_json(restore(fields, get_blob)) if isinstance(fields, dict) and BLOB_POINTERS in fields else raw


# What each type of line says


def _read(line: _AnyLine) -> Line:
    said = line.message or line
    texts: list[Text] = []
    kind = line.type
    if kind in ("user", "assistant", "message"):
        _read_message(line, said, texts)
    else:
        read = _OTHERS.get(kind)
        if read is not None:
            read(line, texts)
    return Line(line.uuid or line.id or "", line.timestamp, said.model or "", texts)


def _read_message(line: _AnyLine, said: _AnyLine | _Said | _OddSaid, texts: list[Text]) -> None:
    role = said.role or line.type
    content = said.content
    if role == "assistant":
        _add_content(texts, content, "answer", role, is_error=line.isApiErrorMessage is True)
        if said.errorMessage:
            _add(texts, "answer", role, bytes(said.errorMessage), is_error=True)
    elif role in ("user", "tool"):
        if line.isCompactSummary or bytes(line.uiContent) == _NEOVATE_SUMMARY:
            _add_content(texts, content, "summary", "user")
        else:
            _add_content(texts, content, "context" if line.isMeta else "prompt", "user")
    elif role == "toolResult":
        _add_content(texts, content, "output", "tool", tool=said.toolName, is_error=said.isError is True)
    elif role in ("bashExecution", "pythonExecution"):
        tool = role.removesuffix("Execution")
        _add(texts, "input", "user", bytes(said.command or said.code), tool=tool)
        _add(texts, "output", "tool", bytes(said.output), tool=tool, is_error=bool(said.exitCode))
    else:  # put in by an extension, the system or a program
        _add_content(texts, content, "context", role)
        _add(texts, "context", role, bytes(said.files))
        _add(texts, "summary", role, bytes(said.summary))


def _read_summary(line: _AnyLine, texts: list[Text]) -> None:
    _add(texts, "summary", "assistant", bytes(line.summary))
    _add(texts, "summary", "assistant", bytes(line.shortSummary))


def _read_title(line: _AnyLine, texts: list[Text]) -> None:
    for raw in (line.title, line.customTitle, line.aiTitle, line.agentName, line.name):
        _add(texts, "title", "", bytes(raw))


def _read_label(line: _AnyLine, texts: list[Text]) -> None:
    for raw in (line.label, line.tag, line.prUrl):
        _add(texts, "label", "", bytes(raw))


def _read_spoken(line: _AnyLine, texts: list[Text]) -> None:
    """What is said in the user's place or by the system, the state of an extension, a prompt that waits."""
    _add_content(texts, line.content, "context", "system" if line.type == "system" else "custom")
    _add(texts, "context", "custom", bytes(line.data))


def _read_attachment(line: _AnyLine, texts: list[Text]) -> None:
    """As the model saw it, where the line says so; a prompt that was typed during a turn is a prompt."""
    found = _parsed(bytes(line.attachment))
    prompt = found.get("prompt") if isinstance(found, dict) and found.get("type") == "queued_command" else None
    if prompt is not None:
        _add_content(texts, render_json(prompt), "prompt", "user")
    elif line.rendered:
        _add_content(texts, bytes(line.rendered), "context", "user")
    elif isinstance(found, dict):
        _add(texts, "context", "user", render_json({key: value for key, value in found.items() if key != "type"}))


def _read_start(line: _AnyLine, texts: list[Text]) -> None:
    """What a sub-agent was started with."""
    _add(texts, "prompt", "user", bytes(line.task))
    _add(texts, "context", "system", bytes(line.systemPrompt))


def _read_config(line: _AnyLine, texts: list[Text]) -> None:
    found = _parsed(bytes(line.config))
    summary = found.get("summary") if isinstance(found, dict) else None
    if isinstance(summary, str):
        _add(texts, "title", "", render_json(summary))


def _read_edit(line: _AnyLine, texts: list[Text]) -> None:
    found = _parsed(bytes(line.replacement))
    if isinstance(found, dict):
        _add_content(texts, render_json(found.get("content")), "context", "user")


def _read_inside(line: _AnyLine, texts: list[Text]) -> None:
    """An entry that its format has no line for, inside one of ours."""
    try:
        texts += _read(_decode_line(bytes(line.entry))).texts
    except _DECODING:
        return


_OTHERS: dict[str, Callable[[_AnyLine, list[Text]], None]] = {
    "agent-name": _read_title,
    "ai-title": _read_title,
    "attachment": _read_attachment,
    "branch_summary": _read_summary,
    "compaction": _read_summary,
    "config": _read_config,
    "context_edit": _read_edit,
    "custom": _read_spoken,
    "custom-title": _read_title,
    "custom_message": _read_spoken,
    "label": _read_label,
    "pr-link": _read_label,
    "progress": _read_spoken,
    "queue-operation": _read_spoken,
    "session": _read_title,
    "session_info": _read_title,
    "session_init": _read_start,
    "sessiontree": _read_inside,
    "summary": _read_summary,
    "system": _read_spoken,
    "tag": _read_label,
    "title": _read_title,
    "title_change": _read_title,
}


# Content: a string, or blocks


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
        _add_spoken(texts, render_json(content), kind, role, tool, call, is_error)
        return
    raw = bytes(content or b"")
    first = raw[:1]
    if first == b'"':
        _add_spoken(texts, raw, kind, role, tool, call, is_error)
    elif first == b"[":
        try:
            blocks = _decode_blocks(raw)
        except _DECODING:
            _add(texts, kind, role, raw, tool=tool, call=call, is_error=is_error)
            return
        _add_content(texts, blocks, kind, role, tool=tool, call=call, is_error=is_error)
    elif first == b"{":
        _add_content(texts, b"[" + raw + b"]", kind, role, tool=tool, call=call, is_error=is_error)


def _add_spoken(texts: list[Text], raw: bytes, kind: str, role: str, tool: str, call: str, is_error: bool) -> None:
    """A string; what programs put into the mouth of the user is told from what the user said."""
    if kind == "prompt" and raw[1:2] in b"< \\":
        shell = _shell.match(raw, 1)
        if shell is not None:
            tool = "bash" if shell["what"] else tool
            kind, role = ("input", "user") if shell["what"] == "input" else ("output", "tool")
        elif _automatic.match(raw, 1):
            kind = "context"
    _add(texts, kind, role, raw, tool=tool, call=call, is_error=is_error)


def _add_block(texts: list[Text], block: _Block, kind: str, role: str, tool: str, call: str, is_error: bool) -> None:
    match block.type:
        case "text":
            _add_spoken(texts, bytes(block.text), kind, role, tool, call, is_error)
        case "thinking" | "reasoning":
            _add(texts, "thinking", role, bytes(block.thinking or block.text))
        case "tool_use" | "toolCall" | "server_tool_use" | "mcp_tool_use":
            name = render_json(block.name)
            asked = bytes(block.input or block.arguments)
            _add(texts, "input", role, asked if len(asked) > 2 else name, tool=block.name, call=block.id or "")
        case "tool_result" | "tool-result":
            _add_result(texts, block)
        case "image" | "redacted_thinking" | "redactedThinking":
            return
        case _:  # documents, results of the provider's own tools, what has no type
            for raw in (block.text, block.content, block.source, block.result):
                _add_content(texts, bytes(raw), "output" if role == "assistant" else kind, role, tool=tool, call=call)


def _add_result(texts: list[Text], block: _Block) -> None:
    name, content, is_error = block.toolName or block.name, bytes(block.content), block.is_error is True
    if block.result:
        content = bytes(block.result)
        if content[:1] == b"{":
            try:
                result = _decode_result(content)
            except _DECODING:
                result = _Result()
            content, is_error = bytes(result.llmContent), result.isError is True
    _add_content(texts, content, "output", "tool", tool=name, call=block.tool_use_id, is_error=is_error)


def _add(
    texts: list[Text], kind: str, role: str, raw: bytes, *, tool: str = "", call: str = "", is_error: bool = False
) -> None:
    if len(raw) > 2 and raw != b"null":
        texts.append(Text(kind, role, raw, tool, call, is_error))


# Values of any kind


def _parsed(raw: bytes) -> Any:
    try:
        return parse_json(raw) if raw else None
    except ValueError:
        return None


def _said_in(raw: bytes) -> str:
    """The strings of a value of any kind, on lines of their own. Mostly it is an object of strings alone."""
    try:
        named = _decode_named(raw)
    except _DECODING:
        return "\n".join(_strings(_parsed(raw)))
    return "" if named.get("type") == "image" else "\n".join(named.values())


def _strings(value: Any) -> Iterator[str]:
    return (text for _, text in _named_strings(value))


def _named_strings(value: Any) -> Iterator[tuple[str, str]]:
    """Every string in a value with the nearest key above it, in order. A list of what is left, not recursion."""
    waiting: list[tuple[str, Any]] = [("", value)]
    while waiting:
        key, found = waiting.pop()
        if isinstance(found, str):
            yield key, found
        elif isinstance(found, dict):
            if found.get("type") == "image":
                continue
            waiting += reversed([(name, inner) for name, inner in found.items()])
        elif isinstance(found, list):
            waiting += [(key, inner) for inner in reversed(found)]
        elif found is not None and not isinstance(found, bool):
            yield key, str(found)
