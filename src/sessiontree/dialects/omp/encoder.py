"""Encoder for oh-my-pi: a title slot and a header before the entries, and its own form of some entries.

The name of a session is not an entry in this format. A new file has it in the slot and in the header. In an existing
file the slot is overwritten in place; a file without one, as xcsh writes it, is rewritten with another header. Either
way an entry records the change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from sessiontree.core.jsonio import parse_object
from sessiontree.dialects.canonical import CanonicalEntry, Encoded, LossNote
from sessiontree.dialects.contract import IndexedLines
from sessiontree.dialects.defaults import replace_field
from sessiontree.dialects.omp.header import SLOT, SLOT_SIZE, is_title_slot, render_slot
from sessiontree.dialects.omp.locations import is_of_xcsh
from sessiontree.dialects.pi.encoder import (
    EncodedLine,
    PiFamilyEncoder,
    ignored_line,
    session_name,
)

_ROLES = frozenset(
    {
        "assistant",
        "bashExecution",
        "branchSummary",
        "compactionSummary",
        "custom",
        "developer",
        "fileMention",
        "pythonExecution",
        "toolResult",
        "user",
    }
)
_IGNORED = "oh-my-pi has no equivalent; they are kept on lines that it ignores"
_NOTES = {
    "config": LossNote("aside", "settings", _IGNORED),
    "context_edit": LossNote("aside", "edits of the context", _IGNORED),
    "file_snapshot": LossNote("aside", "file snapshots", _IGNORED),
    "worktree": LossNote("aside", "worktrees", _IGNORED),
}
BEFORE_FIRST = "root"
"""Value of `fromId` for a branch that starts before the first entry."""
SUMMARY_TYPES = frozenset({"branch_summary", "compaction"})
"""Types of entries with a mark for summaries of an extension: `fromExtension`, in canonical form `fromHook`."""
_PROMPTS = LossNote("aside", "system prompts", "oh-my-pi builds its own; they are kept on lines that it ignores")
_UNKNOWN_ROLE = LossNote("aside", "messages of unknown roles", _IGNORED)
_NO_HEADER = LossNote("changed", "names", "the file has no header for it; only an entry records it")


class OhMyPiEncoder(PiFamilyEncoder):
    """Encodes a session that oh-my-pi resumes."""

    has_name_entries = False
    _parent: str | None = None
    """Parent of the entry that is being encoded."""

    def prologue(self) -> Sequence[bytes]:
        if is_of_xcsh(self._meta.origin):  # it replaces a file that starts with a slot with an empty session
            return super().prologue()
        title = self._meta.title or ""
        return [render_slot(title, "user" if title else None, self._meta.timestamp), *super().prologue()]

    def encode(self, entry: CanonicalEntry, parent: str | None) -> Encoded:
        self._parent = parent
        encoded = super().encode(entry, parent)
        if entry.kind != "session_info" or self._lines is None:
            return encoded
        return self._rename(self._lines, encoded, session_name(entry))

    def encode_line(self, entry: CanonicalEntry) -> EncodedLine:
        fields = entry.fields
        match entry.kind:
            case "message":
                return _message(entry, fields["message"])
            case "model_change":
                return _model_change(entry)
            case "session_info":
                return EncodedLine("title_change", _title_change(entry))
            case "usage" if _is_countable(fields):
                return EncodedLine("model_usage", with_key(fields, "kind", "purpose"))
            case "title" if is_title_slot({"type": SLOT, **fields}):
                return ignored_line()
            case "branch_summary":
                # Here the client names the entry that the new branch starts at, and not the one that was left.
                fields = {**fields, "fromId": self._parent or BEFORE_FIRST}
                return EncodedLine("branch_summary", with_key(fields, "fromHook", "fromExtension"))
            case "compaction" if "fromHook" in fields:
                return EncodedLine("compaction", with_key(fields, "fromHook", "fromExtension"))
            case kind:
                return EncodedLine(kind, fields, (_NOTES[kind],) if kind in _NOTES else ())

    def _rename(self, lines: IndexedLines, encoded: Encoded, name: str) -> Encoded:
        """Add the name where the client looks for it to an encoded entry."""
        slot = render_slot(name, "user", self._time)
        first = next(iter(lines.raw_lines()), b"")
        if len(first) == SLOT_SIZE - 1 and _is_slot(first):
            return msgspec.structs.replace(encoded, overwrite=(0, slot + b"\n"))
        rewritten = list(lines.raw_lines())
        for at, line in enumerate(rewritten):
            if _is_slot(line):
                rewritten[at] = slot  # of an unusual size: it cannot be overwritten in place
                break
            if self._is_header(line):
                rewritten[at] = replace_field(replace_field(line, "title", name), "titleSource", "user")
                break
        else:
            return msgspec.structs.replace(encoded, notes=(*encoded.notes, _NO_HEADER))
        return msgspec.structs.replace(encoded, lines=(), rewrite=[*rewritten, *encoded.lines])

    def _is_header(self, line: bytes) -> bool:
        return self._dialect.is_header(parse_object(line))


def with_key(fields: Mapping[str, Any], old: str, new: str) -> dict[str, Any]:
    """Rename a field, keeping the order; unchanged if the new name is taken."""
    if new in fields:
        return dict(fields)
    return {new if name == old else name: value for name, value in fields.items()}


def _is_slot(line: bytes) -> bool:
    return is_title_slot(parse_object(line))


def _message(entry: CanonicalEntry, message: dict[str, Any]) -> EncodedLine:
    role = message.get("role")
    if isinstance(role, str) and role in _ROLES:
        return EncodedLine(entry.kind, entry.fields)
    return ignored_line(_PROMPTS if role == "system" else _UNKNOWN_ROLE)


def _model_change(entry: CanonicalEntry) -> EncodedLine:
    """Encode a model change: one field has provider and model id."""
    fields = entry.fields
    provider, model_id = fields.get("provider"), fields.get("modelId")
    if fields.get("model") or not isinstance(provider, str) or not isinstance(model_id, str):
        return EncodedLine(entry.kind, fields)
    if not provider or not model_id:
        return EncodedLine(entry.kind, fields)
    rest = {name: value for name, value in fields.items() if name not in ("provider", "modelId", "model")}
    return EncodedLine(entry.kind, {"model": f"{provider}/{model_id}", **rest})


def _title_change(entry: CanonicalEntry) -> dict[str, Any]:
    fields = entry.fields
    if not isinstance(fields.get("name"), str) or "title" in fields:
        return {"title": session_name(entry), "source": "user"}
    return {**with_key(fields, "name", "title"), "source": fields.get("source", "user")}


def _is_countable(fields: Mapping[str, Any]) -> bool:
    """Whether oh-my-pi can add an entry to the session's usage."""
    return isinstance(fields.get("usage"), dict) and all(
        isinstance(fields.get(name), str) for name in ("provider", "model")
    )
