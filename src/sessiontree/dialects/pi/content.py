"""Encoding of entries that Pi stores differently from native files and oh-my-pi, or not at all.

Entry types that Pi does not know are written unchanged: to Pi such a line is a link in the chain without content. Where
a line would mislead Pi or make it fail, Pi's form is written and the entry becomes passthrough data.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sessiontree.dialects.canonical import CanonicalEntry, LossNote
from sessiontree.dialects.pi.client import CONTEXT_NOTES
from sessiontree.dialects.pi.encoder import (
    TRAILING_TYPES,
    EncodedLine,
    PiFamilyEncoder,
    ignored_line,
)
from sessiontree.dialects.roles import content_for_model

_ROLES = frozenset(
    {"assistant", "bashExecution", "branchSummary", "compactionSummary", "custom", "system", "toolResult", "user"}
)
_IGNORED = "Pi has no equivalent; they are kept on lines that it ignores"
_NOTES = {
    "config": LossNote("aside", "settings", _IGNORED),
    "file_snapshot": LossNote("aside", "file snapshots", _IGNORED),
    "mode_change": LossNote("aside", "changes of mode", _IGNORED),
    "service_tier_change": LossNote("aside", "changes of the service tier", _IGNORED),
    "session_init": LossNote("aside", "briefs of sub-agents", _IGNORED),
    "ttsr_injection": LossNote("aside", "injected rules", _IGNORED),
    "worktree": LossNote("aside", "worktrees", _IGNORED),
}
_UNKNOWN_ROLE = LossNote("aside", "messages of unknown roles", _IGNORED)
_UNSENT_CUSTOM_TYPES = frozenset({"prewalk-plan", "vibe-mode-context"})
"""Messages that oh-my-pi shows and never sends."""


class PiEncoder(PiFamilyEncoder):
    """Encodes a session that Pi resumes."""

    _newest_message: str | None = None
    _last_kind = ""

    def encode_line(self, entry: CanonicalEntry) -> EncodedLine:
        match entry.kind:
            case "message":
                return _message(entry, entry.fields["message"])
            case "reset_boundary":
                return _reset()
            case "custom_message" if is_never_sent(entry):
                return hidden_line(entry)
            case "model_change":
                return _model_change(entry)
            case "thinking_level_change" if not isinstance(entry.fields.get("thinkingLevel"), str):
                note = LossNote("mapped", "thinking levels without a name", "Pi calls that off")
                return EncodedLine(entry.kind, {"thinkingLevel": "off"}, (note,))
            case "compaction" if _is_kept_by_provider(entry.fields):
                why = "Pi cannot use it: its context has the summary and the kept messages"
                note = LossNote("changed", "compactions kept by the provider", why)
                return EncodedLine(entry.kind, entry.fields, (note,))
            case "custom" if entry.fields.get("customType") == CONTEXT_NOTES:
                return EncodedLine(entry.kind, entry.fields, (LossNote("aside", "context notes", _IGNORED),))
            case kind:
                return EncodedLine(kind, entry.fields, (_NOTES[kind],) if kind in _NOTES else ())

    def is_current(self, leaf: str | None) -> bool:
        return super().is_current(leaf) and not self._looks_stale()

    def track_line(self, kind: str, id: str, parent: str | None) -> None:
        super().track_line(kind, id, parent)
        self._last_kind = kind
        if kind == "message":
            self._newest_message = id

    def _looks_stale(self) -> bool:
        """Whether bookkeeping at the end is on another branch than the newest message, as after a killed process."""
        if self._last_kind not in TRAILING_TYPES or self._newest_message is None:
            return False
        node = self._last
        while node is not None and node != self._newest_message:
            node = self._parents.get(node)
        return node is None


def is_never_sent(entry: CanonicalEntry) -> bool:
    """Whether an entry has a mark, known only to oh-my-pi, that excludes it from the context."""
    if entry.kind == "custom_message":
        custom_type = entry.fields.get("customType")
        return isinstance(custom_type, str) and custom_type in _UNSENT_CUSTOM_TYPES
    message = entry.fields.get("message")
    return isinstance(message, dict) and message.get("role") == "assistant" and bool(message.get("retryRecovery"))


def hidden_line(entry: CanonicalEntry) -> EncodedLine:
    """Encode an entry unchanged, followed by a `context_edit` that removes it from the context."""
    note = LossNote("mapped", "entries that were never sent", "an edit of the context leaves them out")
    return EncodedLine(entry.kind, entry.fields, (note,), is_hidden=True)


def with_model_pair(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a model change in canonical form: provider and model id in two fields, even if one field had both."""
    model = fields.get("model")
    if not isinstance(model, str) or "provider" in fields or "modelId" in fields:
        return fields
    provider, _, model_id = model.partition("/")
    if not provider or not model_id:
        return fields
    pair = {"provider": provider, "modelId": model_id}
    return {**pair, **{name: value for name, value in fields.items() if name != "model"}}


def _reset() -> EncodedLine:
    """Encode a reset as a compaction that keeps nothing, whose summary an edit removes from the context."""
    note = LossNote("mapped", "resets", "written as compactions whose summary is not sent")
    fields = {"summary": "", "firstKeptEntryId": "", "tokensBefore": 0}
    return EncodedLine("compaction", fields, (note,), is_hidden=True)


def _model_change(entry: CanonicalEntry) -> EncodedLine:
    # Pi has one model and applies every model change to it.
    fields = with_model_pair(entry.fields)
    if fields.get("role") not in (None, "", "default"):
        return ignored_line(LossNote("aside", "models of other roles", "Pi has one model"))
    if all(isinstance(fields.get(name), str) and fields[name] for name in ("provider", "modelId")):
        return EncodedLine(entry.kind, fields)
    return ignored_line(LossNote("aside", "models without a provider", "Pi names a model by provider and id"))


def _message(entry: CanonicalEntry, message: dict[str, Any]) -> EncodedLine:
    role = message.get("role")
    if role == "assistant" and is_never_sent(entry):
        return hidden_line(entry)
    if isinstance(role, str) and role in _ROLES:
        return _with_redacted_thinking(entry, message)
    if role == "pythonExecution" and message.get("excludeFromContext"):
        return ignored_line(LossNote("aside", "Python runs that are not sent", _IGNORED))
    content = content_for_model(message)
    if content is None:
        return ignored_line(_UNKNOWN_ROLE)
    note = LossNote("mapped", f"messages of the role {role}", "Pi sends them as messages of an extension")
    return EncodedLine("custom_message", {"customType": str(role), "content": content, "display": True}, (note,))


def _with_redacted_thinking(entry: CanonicalEntry, message: dict[str, Any]) -> EncodedLine:
    """Encode a message; Pi sends redacted thinking only in its own form."""
    content = message.get("content")
    if not isinstance(content, list) or not any(map(_is_redacted, content)):
        return EncodedLine(entry.kind, entry.fields)
    content = [_as_thinking(block) if _is_redacted(block) else block for block in content]
    return EncodedLine(entry.kind, {**entry.fields, "message": {**message, "content": content}})


def _is_redacted(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") == "redactedThinking"


def _as_thinking(block: dict[str, Any]) -> dict[str, Any]:
    return {"type": "thinking", "thinking": "", "thinkingSignature": block.get("data", ""), "redacted": True}


def _is_kept_by_provider(fields: Mapping[str, Any]) -> bool:
    preserved = fields.get("preserveData")
    return isinstance(preserved, dict) and "openaiRemoteCompaction" in preserved
