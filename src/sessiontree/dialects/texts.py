"""The searchable texts of a line: kept as JSON until they are read.

Search has its own decoder instead of the dialects' `parse` for two reasons. First, an entry drops fields that search
needs: Claude Code's `isMeta` and `isCompactSummary` distinguish prompts from inserted context and summaries. Second,
indexing spends most of its time here. On 109 MB of Claude Code sessions, `parse` alone takes 1.6 times as long as this
module (0.40 s against 0.25 s). Its texts would also have to be encoded again for the tokenizer.

A text stays the bytes of its JSON string until it is shown. Images and signatures are skipped. So are copies of other
text on the line, such as Claude Code's `toolUseResult` and `last-prompt`.

`TextReader` reads native lines. The formats share most field names: a line has a type; the line or its `message` has a
role and content (a string or blocks). A dialect with other line types has a subclass in its module `texts`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, TypeAlias

import msgspec
from msgspec import Raw, Struct

from sessiontree.core.ids import iso_time
from sessiontree.core.jsonio import parse_json, render_json
from sessiontree.dialects.passthrough import REPORT

KINDS = ("title", "label", "summary", "prompt", "answer", "thinking", "input", "output", "context")
"""Kinds of text: the values of `in:` in a query, and `context` for text that programs inserted."""

DESCRIPTIVE_KINDS = frozenset({"title", "label", "summary", "prompt"})
_FILE_KEYS = frozenset({"file_path", "filepath", "path", "notebook_path", "file", "filename", "paths", "files"})
_decode_named = msgspec.json.Decoder(dict[str, str]).decode
_decode_text = msgspec.json.Decoder(str).decode
_REPORT_TYPE = render_json(REPORT)
DECODE_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class Text(Struct, gc=False):
    """One text of a line with its kind, role and tool."""

    kind: str
    role: str
    raw: bytes
    """A JSON string with its quotes; for the arguments of a tool, any JSON value."""
    tool: str = ""
    call: str = ""
    """The id of the tool call; of a result, the id of its call."""
    is_error: bool = False

    @property
    def text(self) -> str:
        """The decoded text; the strings of a structured value are joined by line breaks."""
        raw = self.raw
        if raw[:1] == b'"':
            try:
                return _decode_text(raw)
            except DECODE_ERRORS:
                found = parse_or_none(raw)
                return found if isinstance(found, str) else ""
        return all_strings(raw)

    def files(self) -> list[str]:
        """File paths in the arguments of a tool."""
        if self.raw[:1] != b"{":
            return []
        named = _named_strings(parse_or_none(self.raw))
        return [value for key, value in named if key.lower().replace("-", "_") in _FILE_KEYS]


class Line(Struct, gc=False):
    """The searchable texts of one line, with the id, time and model of its entry."""

    id: str
    time: str
    model: str
    texts: list[Text]

    @property
    def is_descriptive(self) -> bool:
        """Whether the line describes the session: a title, a label, a summary or a prompt."""
        return self.texts[0].kind in DESCRIPTIVE_KINDS


def parse_or_none(raw: bytes) -> Any:
    try:
        return parse_json(raw) if raw else None
    except ValueError:
        return None


def all_strings(raw: bytes) -> str:
    """All strings in a JSON value, joined by line breaks. Most values are objects of strings, decoded in one step."""
    try:
        named = _decode_named(raw)
    except DECODE_ERRORS:
        return "\n".join(_strings(parse_or_none(raw)))
    return "" if named.get("type") == "image" else "\n".join(named.values())


def _strings(value: Any) -> Iterator[str]:
    return (text for _, text in _named_strings(value))


def _named_strings(value: Any) -> Iterator[tuple[str, str]]:
    """Every string in a value with its nearest key, in order. Iterative, since values may be nested deeply."""
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


# Decoding a line

_NOTHING = Raw(b"")

_inserted = re.compile(
    rb"(?:\s|\\n)*<(?:command-|local-command-|ide_|session-start-hook|system-reminder|user-prompt-submit-hook|task-)"
)

_shell = re.compile(rb"(?:\s|\\n)*<(?:bash-(?P<stream>input|stdout|stderr)|local-command-(?P<out>stdout|stderr))>")


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
    parts: Raw = _NOTHING


class _Record(_MessageFields, gc=False):
    """Fields of a line other than its message and content."""

    type: str = ""
    id: str | None = None
    uuid: str | None = None
    timestamp: str | int | float = ""
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
    customType: Raw = _NOTHING  # noqa: N815
    aiTitle: Raw = _NOTHING  # noqa: N815
    agentName: Raw = _NOTHING  # noqa: N815
    agentSetting: Raw = _NOTHING  # noqa: N815
    name: Raw = _NOTHING
    label: Raw = _NOTHING
    tag: Raw = _NOTHING
    shortSummary: Raw = _NOTHING  # noqa: N815
    config: Raw = _NOTHING
    task: Raw = _NOTHING
    systemPrompt: Raw = _NOTHING  # noqa: N815
    replacement: Raw = _NOTHING
    prUrl: Raw = _NOTHING  # noqa: N815
    sessiontree: Raw = _NOTHING
    sessiontreeBlobs: Raw = _NOTHING  # noqa: N815
    payload: Raw = _NOTHING
    systemPayload: Raw = _NOTHING  # noqa: N815


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


TextLine: TypeAlias = _Line | _OddLine
_Content: TypeAlias = Raw | bytes | str | list[_Block] | None


class _Result(Struct, gc=False):
    llmContent: Raw = _NOTHING  # noqa: N815
    isError: bool | None = None  # noqa: N815


_decode_ordinary = msgspec.json.Decoder(_Line).decode
_decode_odd = msgspec.json.Decoder(_OddLine).decode
_decode_blocks = msgspec.json.Decoder(list[_Block]).decode
_decode_result = msgspec.json.Decoder(_Result).decode


def decode_line(raw: bytes) -> TextLine:
    try:
        return _decode_ordinary(raw)
    except DECODE_ERRORS:
        return _decode_odd(raw)


# One function per type of line


def read_summary(line: TextLine, texts: list[Text]) -> None:
    add_text(texts, "summary", "assistant", bytes(line.summary))
    add_text(texts, "summary", "assistant", bytes(line.shortSummary))


def read_title(line: TextLine, texts: list[Text]) -> None:
    for raw in (line.title, line.name):
        add_text(texts, "title", "", bytes(raw))


def read_label(line: TextLine, texts: list[Text]) -> None:
    add_text(texts, "label", "", bytes(line.label))


def read_inserted(line: TextLine, texts: list[Text]) -> None:
    """Text of the system or of an extension, or a prompt in the queue; not our own report of a conversion."""
    if bytes(line.customType) == _REPORT_TYPE:
        return
    add_content(texts, line.content, "context", "system" if line.type == "system" else "custom")
    add_text(texts, "context", "custom", bytes(line.data))


def _read_start(line: TextLine, texts: list[Text]) -> None:
    """The task and system prompt of a sub-agent."""
    add_text(texts, "prompt", "user", bytes(line.task))
    add_text(texts, "context", "system", bytes(line.systemPrompt))


def _read_config(line: TextLine, texts: list[Text]) -> None:
    found = parse_or_none(bytes(line.config))
    summary = found.get("summary") if isinstance(found, dict) else None
    if isinstance(summary, str):
        add_text(texts, "title", "", render_json(summary))


def _read_edit(line: TextLine, texts: list[Text]) -> None:
    found = parse_or_none(bytes(line.replacement))
    if isinstance(found, dict):
        add_content(texts, render_json(found.get("content")), "context", "user")


def _read_embedded(line: TextLine, texts: list[Text]) -> None:
    """A native entry that is embedded in a line of another format."""
    try:
        texts += NATIVE_TEXTS.read(decode_line(bytes(line.entry))).texts
    except DECODE_ERRORS:
        return


class TextReader:
    """Reads the texts of lines by their type. Subclasses add the types of a client, and its kinds of user messages."""

    readers: ClassVar[Mapping[str, Callable[[TextLine, list[Text]], None]]] = {
        "branch_summary": read_summary,
        "compaction": read_summary,
        "config": _read_config,
        "context_edit": _read_edit,
        "custom": read_inserted,
        "custom_message": read_inserted,
        "label": read_label,
        "session": read_title,
        "session_info": read_title,
        "session_init": _read_start,
        "sessiontree": _read_embedded,
    }

    def read(self, line: TextLine) -> Line:
        message = line.message or line
        texts: list[Text] = []
        kind = line.type
        if kind in ("user", "assistant", "message"):
            self._read_message(line, message, texts)
        else:
            read = self.readers.get(kind)
            if read is not None:
                read(line, texts)
        return Line(line.uuid or line.id or "", iso_time(line.timestamp), message.model or "", texts)

    def read_other(self, raw: bytes) -> Line | None:
        """Read a line of a format with other fields, for which subclasses replace this; None to use `read`."""
        return None

    def user_text_kind(self, line: TextLine) -> str:
        """The kind of a message in the user's role: `prompt`, or `context` or `summary` if the client inserted it."""
        return "prompt"

    def _read_message(self, line: TextLine, message: TextLine | _Message | _OddMessage, texts: list[Text]) -> None:
        role = message.role or line.type
        content = message.content
        if role == "assistant":
            add_content(texts, content, "answer", role, is_error=line.isApiErrorMessage is True)
            if message.errorMessage:
                add_text(texts, "answer", role, bytes(message.errorMessage), is_error=True)
        elif role in ("user", "tool"):
            add_content(texts, content, self.user_text_kind(line), "user")
        elif role == "toolResult":
            add_content(texts, content, "output", "tool", tool=message.toolName, is_error=message.isError is True)
        elif role in ("bashExecution", "pythonExecution"):
            tool = role.removesuffix("Execution")
            add_text(texts, "input", "user", bytes(message.command or message.code), tool=tool)
            add_text(texts, "output", "tool", bytes(message.output), tool=tool, is_error=bool(message.exitCode))
        else:  # inserted by an extension, the system or a program
            add_content(texts, content, "context", role)
            add_text(texts, "context", role, bytes(message.files))
            add_text(texts, "summary", role, bytes(message.summary))


NATIVE_TEXTS = TextReader()


# Content: a string or blocks


def add_content(
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
            add_text(texts, kind, role, raw, tool=tool, call=call, is_error=is_error)
            return
        add_content(texts, blocks, kind, role, tool=tool, call=call, is_error=is_error)
    elif first == b"{":
        add_content(texts, b"[" + raw + b"]", kind, role, tool=tool, call=call, is_error=is_error)


def _add_string(texts: list[Text], raw: bytes, kind: str, role: str, tool: str, call: str, is_error: bool) -> None:
    """Add a string. Text in the user's role that a program inserted becomes `context`, `input` or `output`."""
    if kind == "prompt" and raw[1:2] in b"< \\":
        shell = _shell.match(raw, 1)
        if shell is not None:
            tool = "bash" if shell["stream"] else tool
            kind, role = ("input", "user") if shell["stream"] == "input" else ("output", "tool")
        elif _inserted.match(raw, 1):
            kind = "context"
    add_text(texts, kind, role, raw, tool=tool, call=call, is_error=is_error)


def _add_block(texts: list[Text], block: _Block, kind: str, role: str, tool: str, call: str, is_error: bool) -> None:
    match block.type:
        case "text":
            _add_string(texts, bytes(block.text), kind, role, tool, call, is_error)
        case "thinking" | "reasoning":
            add_text(texts, "thinking", role, bytes(block.thinking or block.text))
        case "tool_use" | "toolCall" | "server_tool_use" | "mcp_tool_use":
            name = render_json(block.name)
            arguments = bytes(block.input or block.arguments)
            shown = arguments if len(arguments) > 2 else name
            add_text(texts, "input", role, shown, tool=block.name, call=block.id or "")
        case "tool_result" | "tool-result":
            _add_result(texts, block)
        case "image" | "redacted_thinking" | "redactedThinking":
            return
        case _:  # documents, results of server tools, blocks without a type
            for raw in (block.text, block.content, block.source, block.result):
                add_content(texts, bytes(raw), "output" if role == "assistant" else kind, role, tool=tool, call=call)


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
    add_content(texts, content, "output", "tool", tool=name, call=block.tool_use_id, is_error=is_error)


def add_text(
    texts: list[Text], kind: str, role: str, raw: bytes, *, tool: str = "", call: str = "", is_error: bool = False
) -> None:
    if len(raw) > 2 and raw != b"null":
        texts.append(Text(kind, role, raw, tool, call, is_error))
