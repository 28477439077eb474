"""Writing a session as oh-my-pi does: a title slot and a header before the entries, and its own words for some of them.

The name of a session is not an entry here. A new file gets it in the slot and the header. In a file that is there, the
slot is overwritten in place; a file without one, as xcsh writes it, is written anew with another header. Both ways an
entry tells of the change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from sessiontree.core.jsonio import parse_json
from sessiontree.dialects.canonical import CanonicalEntry, Encoded, LossNote
from sessiontree.dialects.contract import IndexedLines
from sessiontree.dialects.defaults import replace_field
from sessiontree.dialects.omp.detect import SLOT, SLOT_SIZE, is_title_slot, render_slot
from sessiontree.dialects.pi.encoder import Said, ShapeEncoder, name_of, riding, unsaid
from sessiontree.dialects.pi.required_fields import with_needs

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
_BESIDE = "oh-my-pi has nothing of the kind; the lines stay where it does not look"
_NOTES = {
    "config": LossNote("aside", "settings", _BESIDE),
    "context_edit": LossNote("changed", "edits of the context", "oh-my-pi does not know them and sends what was said"),
    "file_snapshot": LossNote("aside", "file snapshots", _BESIDE),
    "worktree": LossNote("aside", "worktrees", _BESIDE),
}
_PROMPTS = LossNote("aside", "system prompts", "oh-my-pi makes its own; the lines stay where it does not look")
_OTHER_ROLE = LossNote("aside", "messages of unknown roles", _BESIDE)
_NAMELESS = LossNote("changed", "names", "the file has no header that could hold it; only an entry tells of it")


class OhMyPiScribe(ShapeEncoder):
    """Writes a session that oh-my-pi resumes."""

    names_by_entry = False

    def prologue(self) -> Sequence[bytes]:
        title = self._meta.title or ""
        return [render_slot(title, "user" if title else None, self._meta.timestamp), *super().prologue()]

    def encode(self, entry: CanonicalEntry, parent: str | None) -> Encoded:
        written = super().encode(entry, parent)
        if entry.kind != "session_info" or self._lines is None:
            return written
        return self._renamed(self._lines, written, name_of(entry))

    def say(self, entry: CanonicalEntry) -> Said:
        match entry.kind:
            case "message":
                return _message(entry, entry.fields["message"])
            case "model_change":
                return _model_change(entry)
            case "session_info":
                return _title_change(entry)
            case "usage" if _is_countable(entry.fields):
                return Said("model_usage", with_key(entry.fields, "kind", "purpose"))
            case "title" if is_title_slot({"type": SLOT, **entry.fields}):
                return unsaid(entry)
            case kind:
                note = _NOTES.get(kind)
                return Said(kind, entry.fields, () if note is None else (note,))

    def _renamed(self, lines: IndexedLines, written: Encoded, name: str) -> Encoded:
        """The same, with the name put where the client looks for it."""
        slot = render_slot(name, "user", self._time)
        first = next(iter(lines.raw_lines()), b"")
        if len(first) == SLOT_SIZE - 1 and _is_slot(first):
            return msgspec.structs.replace(written, overwrite=(0, slot + b"\n"))
        anew = list(lines.raw_lines())
        for at, line in enumerate(anew):
            if _is_slot(line):
                anew[at] = slot  # of a size that nobody writes: it cannot be overwritten in place
                break
            if self._is_header(line):
                anew[at] = replace_field(replace_field(line, "title", name), "titleSource", "user")
                break
        else:
            return msgspec.structs.replace(written, notes=(*written.notes, _NAMELESS))
        return msgspec.structs.replace(written, lines=(), rewrite=[*anew, *written.lines])

    def _is_header(self, line: bytes) -> bool:
        fields = _object(line)
        return fields is not None and self._dialect.is_header(fields)


def with_key(fields: Mapping[str, Any], old: str, new: str) -> dict[str, Any]:
    """The same fields, one under another name, in its place; as they are if that name is taken."""
    if new in fields:
        return dict(fields)
    return {new if name == old else name: value for name, value in fields.items()}


def _is_slot(line: bytes) -> bool:
    fields = _object(line)
    return fields is not None and is_title_slot(fields)


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        fields = parse_json(line)
    except ValueError:
        return None
    return fields if isinstance(fields, dict) else None


def _message(entry: CanonicalEntry, message: dict[str, Any]) -> Said:
    role = message.get("role")
    if isinstance(role, str) and role in _ROLES:
        return with_needs(entry, message, redacted_is_thinking=False)
    return unsaid(entry, _PROMPTS if role == "system" else _OTHER_ROLE)


def _model_change(entry: CanonicalEntry) -> Said:
    """One field names provider and id. Where it could be read in another way, the two ride along."""
    fields = entry.fields
    provider, model_id = fields.get("provider"), fields.get("modelId")
    if fields.get("model") or not isinstance(provider, str) or not isinstance(model_id, str):
        return Said(entry.kind, fields)
    if not provider or not model_id:
        return Said(entry.kind, fields)
    rest = {name: value for name, value in fields.items() if name not in ("provider", "modelId", "model")}
    line = {"model": f"{provider}/{model_id}", **rest}
    if "/" in provider:
        line = riding(entry, line, fields={"provider": provider, "modelId": model_id})
    return Said(entry.kind, line)


def _title_change(entry: CanonicalEntry) -> Said:
    fields = entry.fields
    if not isinstance(fields.get("name"), str) or "title" in fields:
        return Said("title_change", riding(entry, {"title": name_of(entry), "source": "user"}, whole=True))
    return Said("title_change", {**with_key(fields, "name", "title"), "source": fields.get("source", "user")})


def _is_countable(fields: Mapping[str, Any]) -> bool:
    """Whether oh-my-pi can add it to what was used."""
    return isinstance(fields.get("usage"), dict) and all(
        isinstance(fields.get(name), str) for name in ("provider", "model")
    )
