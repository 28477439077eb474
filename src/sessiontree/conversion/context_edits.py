"""Apply context edits where the target does not support them, so that edited text is never sent again.

The original stays on the entry as passthrough data, which no client sends. Converting back to a client that applies
edits restores it, with the edit itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from sessiontree.conversion.walk import iter_entries
from sessiontree.dialects.canonical import CanonicalEntry, LossNote
from sessiontree.dialects.contract import Dialect
from sessiontree.dialects.passthrough import LEFT_OUT, PASSTHROUGH, carried_data, with_carried_data
from sessiontree.session.reader import Reader

_EDIT = "context_edit"
_ORIGINAL = "before-edit"
_REMOVED = "removed-by-edit"
"""The mark of a message that an edit removed: the client may not be able to store the edit itself."""
_REMOVABLE = frozenset({"message", "custom_message", "branch_summary"})
_NOTE = LossNote("changed", "edited messages", "edits are applied; the originals are kept as data that is not sent")


class ContextEdits:
    """The edits in the converted part of a session. If several edit one entry, the last one on the active branch wins.

    An edit applies to its entry on every branch: branches share the entry in the target.
    """

    def __init__(self, session: Reader, target: Dialect, leaf: str | None, *, all_branches: bool) -> None:
        self._client = target.client
        self._replacements: dict[str, str | list[Any] | None] = {}
        """The new content of entries; None if they are removed."""
        if _EDIT in session.journal.types:
            for entry, _ in iter_entries(session, leaf, all_branches=all_branches):
                if entry.kind == _EDIT:
                    content = _new_content(entry.fields.get("replacement"))
                    self._replacements[str(entry.fields.get("targetId"))] = content

    def apply(self, entry: CanonicalEntry) -> tuple[CanonicalEntry, Sequence[LossNote]]:
        """Return an entry as the target needs it: edited, or as it was before if the target applies the edit."""
        if entry.id not in self._replacements:
            return entry, ()
        original, replacement = with_original_content(entry), self._replacements[entry.id]
        if self._client.applies_context_edits or (replacement is None and self._client.never_sends(original)):
            return original, ()
        if replacement is None:
            edited = original
            if original.kind in _REMOVABLE:
                edited = with_carried_data(leave_out(original), _REMOVED, True)
        else:
            edited = _with_original_kept(_replaced(original, replacement), original)
        return edited, () if edited is original else (_NOTE,)


def with_original_content(entry: CanonicalEntry) -> CanonicalEntry:
    """Return an entry as it was before an edit was applied to it, or before it was left out."""
    stored = carried_data(entry, _ORIGINAL)
    if not isinstance(stored, dict) or not isinstance(stored.get("type"), str):
        return entry
    carried = {name: value for name, value in entry.fields.items() if name == PASSTHROUGH}
    fields = {name: value for name, value in stored.items() if name != "type"}
    original = msgspec.structs.replace(entry, kind=stored["type"], fields={**fields, **carried})
    return with_carried_data(with_carried_data(original, _ORIGINAL, None), _REMOVED, None)


def is_left_out(entry: CanonicalEntry) -> bool:
    """Whether an entry has a message only as data that no client sends."""
    return entry.kind == "custom" and entry.fields.get("customType") == LEFT_OUT


def is_removed_by_edit(entry: CanonicalEntry) -> bool:
    """Whether an entry was left out because an edit removed it."""
    return is_left_out(entry) and carried_data(entry, _REMOVED) is True


def leave_out(entry: CanonicalEntry) -> CanonicalEntry:
    """Return an entry that no client sends, with the original as passthrough data."""
    entry = with_original_content(entry)
    carried = {name: value for name, value in entry.fields.items() if name == PASSTHROUGH}
    left_out = msgspec.structs.replace(entry, kind="custom", fields={"customType": LEFT_OUT, **carried})
    return _with_original_kept(left_out, entry)


def _with_original_kept(edited: CanonicalEntry, original: CanonicalEntry) -> CanonicalEntry:
    if edited is original:
        return edited
    stored = {name: value for name, value in original.fields.items() if name != PASSTHROUGH}
    return with_carried_data(edited, _ORIGINAL, {"type": original.kind, **stored})


def _new_content(replacement: Any) -> str | list[Any] | None:
    """The content of a replacement. As in a context, nothing of the original remains if it cannot be read."""
    content = replacement.get("content") if isinstance(replacement, dict) else None
    return content if isinstance(content, str | list) else None


def _replaced(entry: CanonicalEntry, content: str | list[Any]) -> CanonicalEntry:
    if entry.kind == "custom_message":
        return msgspec.structs.replace(entry, fields={**entry.fields, "content": content})
    message = entry.fields.get("message")
    if not isinstance(message, dict) or message.get("role") not in ("user", "assistant", "toolResult", "custom"):
        return entry
    if isinstance(content, str) and message["role"] in ("assistant", "toolResult"):
        content = [{"type": "text", "text": content}]
    return msgspec.structs.replace(entry, fields={**entry.fields, "message": {**message, "content": content}})
