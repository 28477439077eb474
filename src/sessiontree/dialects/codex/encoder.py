"""Encode canonical entries as lines of a legacy rollout.

A message becomes one or several items, and the events that Codex's picker and user interface show it by. Other entries
become lines of the type `sessiontree`, which Codex skips. The first line of an entry carries passthrough data.

A compaction lists the whole new history: the summary, as a message of the user, and the items of the kept entries. A
reset is a compaction that lists nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from sessiontree.core.entries import Config
from sessiontree.core.ids import timestamp
from sessiontree.core.jsonio import convert_fields, native_fields, render_json
from sessiontree.core.usage import RESPONSE
from sessiontree.dialects.canonical import CanonicalEntry, Encoded, LossNote, SessionMeta
from sessiontree.dialects.codex.decode import CARRIED, merged_message
from sessiontree.dialects.codex.items import (
    CALL_TYPES,
    SUMMARY_PREFIX,
    EncodedItems,
    Item,
    encode_assistant,
    encode_output,
    encode_text,
    encode_user,
    images_of,
    string,
    summary_with_prompts,
    texts_of,
)
from sessiontree.dialects.codex.kept_items import KeptItems
from sessiontree.dialects.codex.locations import thread_id
from sessiontree.dialects.codex.records import BOOKKEEPING, RESPONSE_USAGE, call_of_note
from sessiontree.dialects.codex.rollbacks import find_history, item_notes, last_entry
from sessiontree.dialects.contract import IndexedLines, position_id
from sessiontree.dialects.passthrough import PASSTHROUGH, apply_delta, build_passthrough, carried_data
from sessiontree.errors import UsageError

CLI_VERSION = "0.166.0"
"""The version of Codex that new rollouts name as their writer; required in a header."""
ORIGINATOR = "sessiontree"

_BRANCH = "Another branch of this conversation was followed for a while and then left. This happened on it:"
_TOO_DEEP = LossNote("dropped", "entries nested too deeply", "no line can hold them; an empty line replaces them")
_EXTENSION = LossNote("mapped", "messages of extensions", "they are user messages in Codex")
_SUMMARY = LossNote("mapped", "summaries of branches", "they are user messages in Codex")
_STRAY = LossNote("changed", "tool results", "the call they answer is not before them, and Codex drops such results")
_LOST = LossNote("changed", "compactions", "the entries they keep are too far back to be repeated")
_KEPT = LossNote("mapped", "kept entries of compactions", "Codex lists the whole new history in a compaction")


class CodexEncoder:
    """Encodes one session; without branches, so each entry follows the one before it."""

    def __init__(self, meta: SessionMeta, lines: IndexedLines | None = None) -> None:
        self._meta = meta
        self._lines = lines
        self._nodes = 0 if lines is None else len(lines.types)
        self._time = meta.timestamp
        self._kept = KeptItems(lines)
        self._entry_of: dict[str, str] = {}
        """Ids and aliases of encoded entries -> the id under which their items are kept."""
        self._calls: dict[str, bool] = {}
        """The calls that an output may answer, and whether their input is a text."""
        self._ends: set[str | None] = {None}
        """The last entry, and entries of bookkeeping after it: the parents that a new entry may have."""
        self._places: list[bool] = []
        """For each line of the entry that is being encoded: whether it is part of the tree."""
        self._held: list[Item] | None = None
        """The items of that entry, if it has any."""
        self._title: str | None = None
        self._config = Config()
        if lines is not None:
            self._read_end(lines)

    def _read_end(self, lines: IndexedLines) -> None:
        last = last_entry(lines)
        history = find_history(lines, last)
        self._ends = {None} if not history else set()
        for node in reversed(history):
            self._ends.add(lines.tree.ids[node])
            if lines.types[node] not in BOOKKEEPING:
                break
        else:
            self._ends.add(None)
        notes = item_notes(lines)
        for node in history:
            note = notes[node] or ""
            if note[:1] == "c":
                id, name = call_of_note(note)
                self._calls[id] = name == "apply_patch"

    # The contract

    def prologue(self) -> Sequence[bytes]:
        meta = self._meta
        id = thread_id(meta.id)
        payload: Item = {
            "id": id,
            "timestamp": meta.timestamp,
            "cwd": meta.cwd,
            "originator": ORIGINATOR,
            "cli_version": CLI_VERSION,
            "source": "cli",
        }
        if meta.forked_from is not None:
            payload["forked_from_id"] = thread_id(meta.forked_from.session)
        if meta.git_branch:
            payload["git"] = {"branch": meta.git_branch}
        return [render_json({"timestamp": meta.timestamp, "type": "session_meta", "payload": payload})]

    def encode(self, entry: CanonicalEntry, parent: str | None) -> Encoded:
        if parent not in self._ends:
            raise UsageError("these sessions have no branches: only the last entry can be continued; fork instead")
        self._time = entry.timestamp or (self._time if self._lines is None else timestamp())
        self._places, self._held = [], None
        try:
            lines, notes = self._encode(entry)
        except RecursionError:
            self._places, self._held = [], None
            lines, notes = [self._own_line(CanonicalEntry(PASSTHROUGH, {}, entry.id))], [_TOO_DEEP]
        return self._finish(entry, lines, notes)

    def epilogue(self, leaf: str | None) -> Sequence[bytes]:
        lines: list[bytes] = []
        title, config = " ".join((self._meta.title or "").split()), self._meta.config
        if title and title != self._title:
            lines.append(self._own_line(CanonicalEntry("session_info", {"name": title})))
        if config is not None and config != self._config:
            lines.append(self._own_line(CanonicalEntry("config", {"config": msgspec.to_builtins(config)})))
        return lines

    # Internal

    def _finish(self, entry: CanonicalEntry, lines: list[bytes], notes: Sequence[LossNote]) -> Encoded:
        last = max(at for at, is_entry in enumerate(self._places) if is_entry)
        id = position_id(self._nodes + last)
        self._nodes += len(lines)
        self._ends = self._ends | {id} if entry.kind in BOOKKEEPING else {id}
        for old in (entry.id, *entry.aliases, id):
            if old:
                self._entry_of[old] = id
        self._kept.add(id, self._held or [])  # a compaction may also keep an entry without items, and those after it
        return Encoded(id, lines, notes)

    def _encode(self, entry: CanonicalEntry) -> tuple[list[bytes], Sequence[LossNote]]:
        fields = entry.fields
        message = fields.get("message")
        match entry.kind:
            case "message" if isinstance(message, dict):
                return self._encode_message(entry, message)
            case "compaction":
                return self._encode_compaction(entry)
            case "reset_boundary":
                return self._compaction_lines(entry, {"message": "", "replacement_history": []}), ()
            case "custom_message":
                encoded = encode_user(fields)
                return self._item_lines(entry, encoded.items, is_reworded=True), [*encoded.notes, _EXTENSION]
            case "branch_summary" if string(fields, "summary").strip():
                text = f"{_BRANCH}\n\n<summary>\n{string(fields, 'summary')}\n</summary>"
                return self._item_lines(entry, [encode_text(text)], is_reworded=True), [_SUMMARY]
            case "session_info":
                self._title = " ".join(string(fields, "name").split())
            case "config":
                config = fields.get("config")
                self._config = convert_fields(Config, config) if isinstance(config, dict) else Config()
            case _:
                pass
        return [self._own_line(entry)], ()

    def _encode_message(self, entry: CanonicalEntry, message: dict[str, Any]) -> tuple[list[bytes], Sequence[LossNote]]:
        own = carried_data(entry, CARRIED)
        own = own if isinstance(own, dict) else None
        match message.get("role"):
            case "user":
                return self._with_own_data(entry, encode_user(message), own)
            case "assistant":
                return self._with_own_data(entry, encode_assistant(message, is_own=own is not None), own)
            case "toolResult":
                call = string(message, "toolCallId")
                if call in self._calls:
                    return self._with_own_data(entry, encode_output(message, is_custom=self._calls[call]), own)
                encoded = encode_user(message)
                name = string(message, "toolName") or "that was called"
                opening = encode_text(f"The tool {name} gave this result:")
                opening["content"] += encoded.items[0]["content"]
                return self._item_lines(entry, [opening], is_reworded=True), [*encoded.notes, _STRAY]
            case _:
                return [self._own_line(entry)], ()

    def _with_own_data(
        self, entry: CanonicalEntry, encoded: EncodedItems, own: dict[str, Any] | None
    ) -> tuple[list[bytes], Sequence[LossNote]]:
        items, left_out = encoded.items, encoded.left_out
        if not items:
            return [self._own_line(entry)], encoded.notes
        deltas = own.get("deltas") if own is not None else None
        if isinstance(deltas, list) and len(deltas) == len(items):
            items = [_applied(item, delta) for item, delta in zip(items, deltas, strict=True)]
        elif own is not None and isinstance(own.get("items"), list) and all(map(_is_item, own["items"])):
            items = own["items"] or items
        lines = self._item_lines(entry, items, left_out, thinking=encoded.thinking)
        return lines, encoded.notes

    def _item_lines(
        self,
        entry: CanonicalEntry,
        items: list[Item],
        left_out: tuple[int, ...] = (),
        *,
        thinking: tuple[str, ...] = (),
        is_reworded: bool = False,
    ) -> list[bytes]:
        decoded = CanonicalEntry(
            "message", {"message": native_fields(merged_message(items, self._time, is_ours=True))}, ""
        )
        passthrough = build_passthrough(entry, decoded, left_out=left_out, is_reworded=is_reworded)
        self._held = items
        self._calls.update(
            (string(item, "call_id"), string(item, "type") == "custom_tool_call")
            for item in items
            if string(item, "type") in CALL_TYPES
        )
        lines = [self._event("agent_reasoning", text=text) for text in thinking]
        for at, item in enumerate(items):
            lines.append(self._line("response_item", item, {"part": True} if at else passthrough))
            lines += self._events(item)
        usage = self._usage_line(entry)
        return lines if usage is None else [*lines, usage]

    def _events(self, item: Item) -> list[bytes]:
        """The events by which Codex shows a message, and lists a thread."""
        if item.get("type") != "message":
            return []
        text = texts_of([item])
        if item.get("role") == "user":
            return [self._event("user_message", message=text, images=images_of([item]))]
        return [self._event("agent_message", message=text)] if item.get("role") == "assistant" else []

    def _usage_line(self, entry: CanonicalEntry) -> bytes | None:
        """The usage of a response, where statistics find it."""
        message = entry.fields.get("message")
        usage = message.get("usage") if isinstance(message, dict) and message.get("role") == "assistant" else None
        if not isinstance(message, dict) or not isinstance(usage, dict):
            return None
        names = {name: message[name] for name in ("provider", "model") if isinstance(message.get(name), str)}
        return self._line(PASSTHROUGH, {"type": RESPONSE_USAGE, "kind": RESPONSE, **names, "usage": usage}, None)

    def _encode_compaction(self, entry: CanonicalEntry) -> tuple[list[bytes], Sequence[LossNote]]:
        own = carried_data(entry, CARRIED)
        payload = own.get("payload") if isinstance(own, dict) else None
        notes: list[LossNote] = []
        if not isinstance(payload, dict) or summary_with_prompts(payload) != string(entry.fields, "summary"):
            text = f"{SUMMARY_PREFIX}\n{string(entry.fields, 'summary')}"
            items = [encode_text(text)] if string(entry.fields, "summary").strip() else []
            kept = entry.fields.get("firstKeptEntryId")
            if isinstance(kept, str) and kept in self._entry_of:
                found, is_available = self._kept.find(self._entry_of[kept])
                items += found
                notes.append(_KEPT if is_available else _LOST)
            payload = {"message": text, "replacement_history": items}
        return self._compaction_lines(entry, payload), notes

    def _compaction_lines(self, entry: CanonicalEntry, payload: Item) -> list[bytes]:
        replaced = payload.get("replacement_history")
        self._calls = {
            string(item, "call_id"): string(item, "type") == "custom_tool_call"
            for item in (replaced if isinstance(replaced, list) else [])
            if isinstance(item, dict) and string(item, "type") in CALL_TYPES
        }
        decoded = CanonicalEntry("compaction", {"summary": summary_with_prompts(payload)}, "")
        line = self._line("compacted", payload, build_passthrough(entry, decoded))
        return [line, self._event("context_compacted")]

    def _own_line(self, entry: CanonicalEntry) -> bytes:
        kind = entry.kind if entry.kind not in ("", RESPONSE_USAGE) else PASSTHROUGH
        fields = {name: value for name, value in entry.fields.items() if name not in (PASSTHROUGH, "type")}
        target = fields.get("targetId")
        if isinstance(target, str) and target in self._entry_of:
            fields["targetId"] = self._entry_of[target]
        passthrough = build_passthrough(entry, CanonicalEntry(kind, fields, ""))
        return self._line(PASSTHROUGH, {"type": kind, **fields}, passthrough)

    def _event(self, kind: str, **fields: object) -> bytes:
        return self._line("event_msg", {"type": kind, **fields}, None)

    def _line(self, kind: str, payload: Mapping[str, Any], passthrough: Mapping[str, Any] | None) -> bytes:
        self._places.append(kind != "event_msg" and payload.get("type") != RESPONSE_USAGE)
        fields: dict[str, Any] = {"timestamp": self._time, "type": kind, "payload": payload}
        if passthrough is not None:
            fields[PASSTHROUGH] = passthrough
        return render_json(fields)


def _applied(item: Item, delta: Any) -> Item:
    found = apply_delta(item, delta)
    return found if _is_item(found) else item


def _is_item(value: object) -> bool:
    return isinstance(value, dict) and isinstance(value.get("type"), str)
