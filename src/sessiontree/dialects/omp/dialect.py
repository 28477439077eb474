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
from sessiontree.core.entries import BranchSummary, Compaction, Entry, Header, MessageEntry, Unknown, UsageRecord
from sessiontree.core.jsonio import convert_fields, parse_object
from sessiontree.core.messages import Assistant, Message, ToolResult, Usage
from sessiontree.dialects.canonical import CanonicalEntry, Destination, SessionMeta
from sessiontree.dialects.client import Client
from sessiontree.dialects.contract import (
    Columns,
    Envelope,
    Facts,
    HistoryLinks,
    IndexedLines,
    ReadOptions,
    SessionFile,
)
from sessiontree.dialects.defaults import head_records, path_of_nodes
from sessiontree.dialects.omp import locations
from sessiontree.dialects.omp.context import (
    RetriedTurn,
    SentMessages,
    as_client_reads,
    context_notes,
    is_sent,
    without_dangling_calls,
    without_failed_turns,
)
from sessiontree.dialects.omp.encoder import SUMMARY_TYPES, OhMyPiEncoder, with_key
from sessiontree.dialects.omp.header import (
    SLOT,
    OhMyPiFacts,
    header_with_title,
    is_own_header,
    is_own_record,
    is_slot_line,
    is_title_slot,
)
from sessiontree.dialects.pi.dialect import PiFamily
from sessiontree.dialects.pi.encoder import PiFamilyEncoder

TRUNCATION_NOTICE = "\n\n[Session persistence truncated large content]"

_RENAMED = {"model_usage": "usage"}
"""Types with another name in canonical form."""

_RETRIED = b'"retryRecovery"'
_TASK = b'"task"'
_FROM_EXTENSION = b'"fromExtension"'
_STREAMED = frozenset({"partialJson", "jsonlEvents"})
"""Fields that the client keeps only while a response is streamed."""
_PARTIAL_JSON, _JSONL_EVENTS = b'"partialJson":', b'"jsonlEvents":'


class OhMyPi(PiFamily):
    name = "omp"
    rules = Rules(resets=True, explicit_model_wins=True, default_thinking="off")
    traits = msgspec.structs.replace(
        PiFamily.traits,
        follows_tree=False,  # its context leaves out retried and failed turns
        bookkeeping=frozenset({SLOT}),
        encoder_types=frozenset({"session_info"}),
        has_short_summaries=True,
        truncation_notice=TRUNCATION_NOTICE,
        path_markers=("/.omp/", "/.xcsh/"),
        finds_ids_in_all_folders=True,
    )

    @property
    def client(self) -> Client:
        from sessiontree.dialects.omp.client import CLIENT

        return CLIENT

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

    def decode_block(self, data: memoryview, first: int) -> Columns | None:
        columns = super().decode_block(data, first)
        if columns is None or not columns.ids or SLOT in columns.types:
            return None
        if not _RENAMED.keys().isdisjoint(columns.types):
            return Columns([_RENAMED.get(kind, kind) for kind in columns.types], columns.ids, columns.parents)
        return columns

    def is_record(self, fields: dict[str, Any]) -> bool:
        return super().is_record(fields) or is_title_slot(fields)

    def decode_line(self, fields: dict[str, Any], node: int) -> Envelope | Header | None:
        if is_title_slot(fields):
            return Envelope(SLOT, is_metadata=True)
        decoded = super().decode_line(fields, node)
        if isinstance(decoded, Envelope) and decoded.type in _RENAMED:
            return Envelope(_RENAMED[decoded.type], decoded.id, decoded.parent)
        return decoded

    def parse(self, raw: bytes) -> Entry:
        entry = super().parse(raw)
        if isinstance(entry, Unknown) and entry.kind == "model_usage":
            return convert_fields(UsageRecord, {**entry.fields, "kind": entry.fields.get("purpose")})
        if isinstance(entry, MessageEntry):
            return _with_own_fields(entry, raw)
        if isinstance(entry, Compaction | BranchSummary) and _FROM_EXTENSION in raw:
            return msgspec.structs.replace(entry, from_hook=parse_object(raw).get("fromExtension") is True)
        return entry

    def find_header(self, lines: IndexedLines) -> Header | None:
        return header_with_title(lines)

    def iter_moves(self, lines: IndexedLines) -> Iterator[tuple[int, int | None]]:
        return (move for move in super().iter_moves(lines) if not is_slot_line(lines, move[0]))

    def find_path(self, lines: IndexedLines, leaf: int | None, read_options: ReadOptions) -> list[int]:
        return [node for node in super().find_path(lines, leaf, read_options) if not is_slot_line(lines, node)]

    def build_context(self, lines: IndexedLines, leaf: int | None, read_options: ReadOptions) -> Context:
        path = path_of_nodes(lines, self.find_path(lines, leaf, read_options))
        loaded: dict[str, Entry] = {}
        context = build_context(as_client_reads(path, loaded, read_options), self.rules)
        sent = [*context_notes(path), *_sent_messages(lines, context, loaded, read_options)]
        return Context(
            context.path,
            tuple(message for message, _ in sent),
            tuple(source for _, source in sent),
            context.state,
        )

    def build_messages(
        self, lines: IndexedLines, nodes: list[int], read_options: ReadOptions
    ) -> Sequence[Message] | None:
        path = path_of_nodes(lines, nodes)
        if context_notes(path):
            return None  # they replace earlier ones
        loaded: dict[str, Entry] = {}
        context = build_context(as_client_reads(path, loaded, read_options), self.rules)
        return [message for message, _ in _sent_messages(lines, context, loaded, read_options)]

    def find_history_links(self, lines: IndexedLines, read_options: ReadOptions) -> HistoryLinks | None:
        parents = lines.tree.parents()
        slots = (node for node, kind in enumerate(lines.types) if kind == SLOT)
        if read_options.recovered or not set(parents).isdisjoint(slots):
            return None
        return HistoryLinks(parents)

    def facts(self, lines: IndexedLines) -> Facts:
        return OhMyPiFacts(lines)

    def decode(self, lines: IndexedLines, nodes: Sequence[int]) -> Iterator[CanonicalEntry]:
        return super().decode(lines, [node for node in nodes if not is_slot_line(lines, node)])

    def to_canonical(self, line: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        match line.get("type"):
            case "model_usage":
                return _RENAMED["model_usage"], with_key(line, "purpose", "kind")
            case "title_change":
                is_by_user = line.get("source") == "user"  # implied by every `session_info` entry
                line = {name: value for name, value in line.items() if name != "source" or not is_by_user}
                return "session_info", with_key(line, "title", "name")
            case "compaction" | "branch_summary" if "fromExtension" in line:
                return line["type"], with_key(line, "fromExtension", "fromHook")
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

    def render_entry(self, kind: str, id: str, parent: str | None, timestamp: str, fields: Mapping[str, Any]) -> bytes:
        if kind in SUMMARY_TYPES and "fromHook" in fields:
            fields = with_key(fields, "fromHook", "fromExtension")
        raw = super().render_entry(kind, id, parent, timestamp, fields)
        if _PARTIAL_JSON in raw or _JSONL_EVENTS in raw:
            return super().render_entry(kind, id, parent, timestamp, _without_streamed(fields))
        return raw

    def header_fields(self, header: Header) -> dict[str, Any]:
        fields = super().header_fields(header)
        if not header.title:
            return fields
        own = ("type", "version", "id", "timestamp", "cwd")
        first = {name: fields[name] for name in own}
        return {**first, "title": header.title, "titleSource": "user", **fields}


def _sent_messages(
    lines: IndexedLines, context: Context, loaded: Mapping[str, Entry], read_options: ReadOptions
) -> SentMessages:
    sent = [
        (message, source)
        for message, source in zip(context.messages, context.sources, strict=True)
        if is_sent(lines, loaded[source], read_options)
    ]
    return sent if read_options.recovered else without_failed_turns(without_dangling_calls(sent))


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


def _without_streamed(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without_streamed(field) for name, field in value.items() if name not in _STREAMED}
    return [_without_streamed(item) for item in value] if isinstance(value, list) else value


def _message_fields(raw: bytes) -> dict[str, Any]:
    message = parse_object(raw).get("message")
    return message if isinstance(message, dict) else {}


OMP = OhMyPi()
