"""The sessions of oh-my-pi and xcsh, where they differ from Pi's:

* the first line may be a title slot, overwritten in place at each rename; it is a metadata line, and its title counts;
* a reset boundary starts an empty context, unless a compaction follows it;
* an explicit model overrides the models that assistant messages name, and each role has its own;
* the context has only what can be sent: no calls without a result, and no failed turns. With `ReadOptions.recovered`
  they stay.

The leaf is the last line of any type, as in Pi's files. Usage outside turns and changes of the title decode to the
native entry types.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from sessiontree.core.context import Context, Rules, build_context
from sessiontree.core.entries import Compaction, Entry, Header, MessageEntry, Unknown, UsageRecord
from sessiontree.core.jsonio import convert_fields, parse_json
from sessiontree.core.messages import Assistant, ToolResult, Usage
from sessiontree.dialects.canonical import CanonicalEntry, Destination, SessionMeta
from sessiontree.dialects.contract import Columns, Envelope, IndexedLines, ReadOptions, SessionFile, is_metadata_id
from sessiontree.dialects.defaults import path_of_nodes
from sessiontree.dialects.detect import head_records
from sessiontree.dialects.omp import locations
from sessiontree.dialects.omp.context import (
    RetriedTurn,
    as_client_reads,
    context_notes,
    is_sent,
    without_dangling_calls,
    without_failed_turns,
)
from sessiontree.dialects.omp.detect import SLOT, is_own_header, is_own_record, is_title_slot
from sessiontree.dialects.omp.encoder import OhMyPiEncoder, with_key
from sessiontree.dialects.pi import PiFamily
from sessiontree.dialects.pi.encoder import PiFamilyEncoder

TRUNCATION_NOTICE = "\n\n[Session persistence truncated large content]"

_RENAMED = {"model_usage": "usage"}
"""Types with another name in canonical form."""

_RETRIED = b'"retryRecovery"'
_TASK = b'"task"'


class OhMyPi(PiFamily):
    name = "omp"
    path_markers = ("/.omp/", "/.xcsh/")
    rules = Rules(resets=True, explicit_model_wins=True, default_thinking="off")
    bookkeeping = frozenset({SLOT})
    encoder_types = frozenset({"session_info"})

    def is_truncated(self, text: str) -> bool:
        return is_truncated(text)

    def blob_folder(self, location: str) -> str | None:
        return locations.blob_folder(location)

    def recognize(self, head: bytes) -> int:
        records = head_records(head)
        if records and is_title_slot(records[0]):
            return 80
        header = next(filter(self.is_header, records), None)
        if (header is not None and is_own_header(header)) or any(map(is_own_record, records)):
            return 60
        if header is not None:
            return 40
        return 5 if any(map(self.is_record, records)) else 0

    def decode_block(self, data: memoryview) -> Columns | None:
        columns = super().decode_block(data)
        if columns is None or not columns.ids or SLOT in columns.types:
            return None
        if not _RENAMED.keys().isdisjoint(columns.types):
            return Columns([_RENAMED.get(kind, kind) for kind in columns.types], columns.ids, columns.parents)
        return columns

    def is_record(self, fields: dict[str, Any]) -> bool:
        return super().is_record(fields) or is_title_slot(fields)

    def envelope(self, fields: dict[str, Any]) -> Envelope:
        if is_title_slot(fields):
            return Envelope(SLOT, "", None, is_metadata=True)
        envelope = super().envelope(fields)
        if envelope.type in _RENAMED:
            return Envelope(_RENAMED[envelope.type], envelope.id, envelope.parent)
        return envelope

    def parse(self, raw: bytes) -> Entry:
        entry = super().parse(raw)
        if isinstance(entry, Unknown) and entry.kind == "model_usage":
            return convert_fields(UsageRecord, {**entry.fields, "kind": entry.fields.get("purpose")})
        if isinstance(entry, MessageEntry):
            return _with_own_fields(entry, raw)
        return entry

    def find_header(self, lines: IndexedLines) -> Header | None:
        """The header with the title of the slot, which the client updates without touching the header."""
        header, slot = lines.header, _slot_title(lines)
        if header is None or slot is None or (slot or None) == header.title:
            return header
        return msgspec.structs.replace(header, title=slot or None)

    def iter_moves(self, lines: IndexedLines) -> Iterator[tuple[int, int | None]]:
        return (move for move in super().iter_moves(lines) if not _is_slot_line(lines, move[0]))

    def find_path(self, lines: IndexedLines, leaf: int | None, read_options: ReadOptions) -> list[int]:
        return [node for node in super().find_path(lines, leaf, read_options) if not _is_slot_line(lines, node)]

    def build_context(self, lines: IndexedLines, leaf: int | None, read_options: ReadOptions) -> Context:
        path = path_of_nodes(lines, self.find_path(lines, leaf, read_options))
        loaded: dict[str, Entry] = {}
        context = build_context(as_client_reads(path, loaded), self.rules)
        sent = [
            (message, source)
            for message, source in zip(context.messages, context.sources, strict=True)
            if is_sent(lines, loaded[source], read_options)
        ]
        if not read_options.recovered:
            sent = without_failed_turns(without_dangling_calls(sent))
        sent = [*context_notes(path), *sent]
        return Context(
            context.path,
            tuple(message for message, _ in sent),
            tuple(source for _, source in sent),
            context.state,
        )

    def find_title(self, lines: IndexedLines) -> str | None:
        """The slot's title, else the header's, else the short summary of the latest compaction that has one."""
        given = self.find_given_title(lines)
        if given is not None:
            return given
        for node in range(len(lines.types) - 1, -1, -1):
            if lines.types[node] == "compaction":
                (entry,) = lines.entries([node])
                if isinstance(entry, Compaction) and entry.short_summary:
                    return entry.short_summary
        return None

    def find_given_title(self, lines: IndexedLines) -> str | None:
        header = self.find_header(lines)
        return header.title or None if header is not None else None

    def decode(self, lines: IndexedLines, nodes: Sequence[int]) -> Iterator[CanonicalEntry]:
        return super().decode(lines, [node for node in nodes if not _is_slot_line(lines, node)])

    def to_canonical(self, line: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        match line.get("type"):
            case "model_usage":
                return _RENAMED["model_usage"], with_key(line, "purpose", "kind")
            case "title_change":
                is_by_user = line.get("source") == "user"  # implied by every `session_info` entry
                line = {name: value for name, value in line.items() if name != "source" or not is_by_user}
                return "session_info", with_key(line, "title", "name")
            case _:
                return super().to_canonical(line)

    def encoder(self, meta: SessionMeta, lines: IndexedLines | None = None) -> PiFamilyEncoder:
        return OhMyPiEncoder(self, meta, lines)

    def destination(self, meta: SessionMeta, environment: Mapping[str, str]) -> Destination:
        return locations.find_destination(meta, environment)

    def session_roots(self, environment: Mapping[str, str]) -> tuple[str, ...]:
        return locations.session_roots(environment)

    def classify_file(self, root: str, relative: str) -> SessionFile | None:
        return locations.classify_file(relative)

    def header_fields(self, header: Header) -> dict[str, Any]:
        fields = super().header_fields(header)
        if not header.title:
            return fields
        own = ("type", "version", "id", "timestamp", "cwd")
        first = {name: fields[name] for name in own}
        return {**first, "title": header.title, "titleSource": "user", **fields}


def _slot_title(lines: IndexedLines) -> str | None:
    """The title in the slot, which may be empty; None without a slot."""
    if not lines.types or lines.types[0] != SLOT or not _is_slot_line(lines, 0):
        return None
    return str(lines.fields([0])[0].get("title", ""))


def _is_slot_line(lines: IndexedLines, node: int) -> bool:
    return lines.types[node] == SLOT and is_metadata_id(lines.tree.ids[node])


def _with_own_fields(entry: MessageEntry, raw: bytes) -> Entry:
    """Add fields that native entries do not have: a retried turn, and the usage of a sub-agent."""
    message = entry.message
    if isinstance(message, Assistant) and _RETRIED in raw:
        if _message_fields(raw).get("retryRecovery"):
            return RetriedTurn(entry.id, entry.parent_id, entry.timestamp, message)
    elif isinstance(message, ToolResult) and message.usage is None and message.tool_name == "task" and _TASK in raw:
        details = _message_fields(raw).get("details")
        usage = details.get("usage") if isinstance(details, dict) else None
        if isinstance(usage, dict):
            counted = msgspec.structs.replace(message, usage=convert_fields(Usage, usage))
            return msgspec.structs.replace(entry, message=counted)
    return entry


def _message_fields(raw: bytes) -> dict[str, Any]:
    try:
        fields = parse_json(raw)
    except ValueError:
        return {}
    message = fields.get("message") if isinstance(fields, dict) else None
    return message if isinstance(message, dict) else {}


def is_truncated(text: str) -> bool:
    """Whether the client truncated a text when it wrote it: the text then ends with a notice."""
    return text.endswith(TRUNCATION_NOTICE)


OMP = OhMyPi()
