"""What Pi says in other words than the native form and oh-my-pi do, and what it has no words for.

Types that Pi does not know stay as they are: Pi takes such a line for a link in the chain that says nothing. Where a
line would mislead Pi, or Pi would stumble over it, it is written in Pi's words and the entry rides along whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sessiontree.dialects.canonical import CanonicalEntry, LossNote
from sessiontree.dialects.pi.encoder import Said, ShapeEncoder, riding, unsaid
from sessiontree.dialects.pi.required_fields import with_needs

_ROLES = frozenset(
    {"assistant", "bashExecution", "branchSummary", "compactionSummary", "custom", "system", "toolResult", "user"}
)
_BESIDE = "Pi has nothing of the kind; the lines stay where it does not look"
_NOTES = {
    "config": LossNote("aside", "settings", _BESIDE),
    "file_snapshot": LossNote("aside", "file snapshots", _BESIDE),
    "mode_change": LossNote("aside", "changes of mode", _BESIDE),
    "reset_boundary": LossNote("changed", "resets", "Pi does not know them: its context reaches back behind them"),
    "service_tier_change": LossNote("aside", "changes of the service tier", _BESIDE),
    "session_init": LossNote("aside", "briefs of sub-agents", _BESIDE),
    "ttsr_injection": LossNote("aside", "injected rules", _BESIDE),
    "worktree": LossNote("aside", "worktrees", _BESIDE),
}
_OTHER_ROLE = LossNote("aside", "messages of unknown roles", _BESIDE)
_PASSING = frozenset({"prewalk-plan", "vibe-mode-context"})
"""Messages of oh-my-pi that it shows and never sends."""
_CONTEXT_NOTES = "experimental_context_notes"
_QUIET_TO_DOCTOR = frozenset(
    {"config", "credential_pin", "custom", "label", "model_usage", "session_info", "title_change", "usage"}
)


class PiScribe(ShapeEncoder):
    """Writes a session that Pi resumes."""

    _newest: str | None = None
    _last_kind = ""

    def say(self, entry: CanonicalEntry) -> Said:
        match entry.kind:
            case "message":
                return _message(entry, entry.fields["message"])
            case "custom_message" if is_left_out(entry):
                return hidden(entry)
            case "model_change":
                return _model_change(entry)
            case "thinking_level_change" if not isinstance(entry.fields.get("thinkingLevel"), str):
                note = LossNote("mapped", "thinking levels without a name", "Pi calls that off")
                return Said(entry.kind, riding(entry, {"thinkingLevel": "off"}, whole=True), (note,))
            case "compaction" if _has_history_of_its_own(entry.fields):
                why = "Pi cannot use it: its context has the summary and the kept messages"
                return Said(entry.kind, entry.fields, (LossNote("changed", "compactions kept by the provider", why),))
            case "custom" if entry.fields.get("customType") == _CONTEXT_NOTES:
                return Said(entry.kind, entry.fields, (LossNote("aside", "context notes", _BESIDE),))
            case kind:
                note_of_kind = _NOTES.get(kind)
                return Said(kind, entry.fields, () if note_of_kind is None else (note_of_kind,))

    def stands_at(self, leaf: str | None) -> bool:
        return super().stands_at(leaf) and not self._looks_stale()

    def wrote(self, kind: str, id: str, parent: str | None) -> None:
        super().wrote(kind, id, parent)
        self._last_kind = kind
        if kind == "message":
            self._newest = id

    def _looks_stale(self) -> bool:
        """Whether bookkeeping at the end leads away from the newest message, as after the death of a process."""
        if self._last_kind not in _QUIET_TO_DOCTOR or self._newest is None:
            return False
        node = self._last
        while node is not None and node != self._newest:
            node = self._parents.get(node)
        return node is None


def is_left_out(entry: CanonicalEntry) -> bool:
    """Whether an entry says itself that it is not to be sent, in words that only oh-my-pi understands."""
    if entry.kind == "custom_message":
        custom_type = entry.fields.get("customType")
        return isinstance(custom_type, str) and custom_type in _PASSING
    message = entry.fields.get("message")
    return isinstance(message, dict) and message.get("role") == "assistant" and bool(message.get("retryRecovery"))


def hidden(entry: CanonicalEntry) -> Said:
    """An entry as it is, with an edit of the context behind it that leaves it out."""
    note = LossNote("mapped", "entries that were never sent", "an edit of the context leaves them out")
    return Said(entry.kind, entry.fields, (note,), is_hidden=True)


def with_pair(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """A model change in canonical form: provider and id are two fields, also where one field names both."""
    model = fields.get("model")
    if not isinstance(model, str) or "provider" in fields or "modelId" in fields:
        return fields
    provider, _, model_id = model.partition("/")
    if not provider or not model_id:
        return fields
    pair = {"provider": provider, "modelId": model_id}
    return {**pair, **{name: value for name, value in fields.items() if name != "model"}}


def _model_change(entry: CanonicalEntry) -> Said:
    """Pi takes every model change for that of its one model."""
    fields = with_pair(entry.fields)
    if fields.get("role") not in (None, "", "default"):
        return unsaid(entry, LossNote("aside", "models of other roles", "Pi has one model"))
    if all(isinstance(fields.get(name), str) and fields[name] for name in ("provider", "modelId")):
        return Said(entry.kind, fields)
    return unsaid(entry, LossNote("aside", "models without a provider", "Pi names a model by provider and id"))


def _message(entry: CanonicalEntry, message: dict[str, Any]) -> Said:
    role = message.get("role")
    if role == "assistant" and is_left_out(entry):
        return hidden(entry)
    if isinstance(role, str) and role in _ROLES:
        return with_needs(entry, message, redacted_is_thinking=True)
    if role == "pythonExecution" and message.get("excludeFromContext"):
        return unsaid(entry, LossNote("aside", "Python runs that are not sent", _BESIDE))
    content = content_in_shared_words(message)
    return unsaid(entry, _OTHER_ROLE) if content is None else _custom_message(entry, str(role), content)


def _custom_message(entry: CanonicalEntry, custom_type: str, content: str | list[Any]) -> Said:
    """A message of a role that Pi does not know, as one of an extension: Pi sends it as the user's."""
    note = LossNote("mapped", f"messages of the role {custom_type}", "Pi sends them as messages of an extension")
    fields = {"customType": custom_type, "content": content, "display": True}
    return Said("custom_message", riding(entry, fields, whole=True), (note,))


def content_in_shared_words(message: Mapping[str, Any]) -> str | list[Any] | None:
    """What a message of a role that only oh-my-pi has says to a model; None for any other role."""
    match message.get("role"):
        case "developer":
            content = message.get("content")
            return content if isinstance(content, str | list) else ""
        case "fileMention":
            return _mentioned(message.get("files"))
        case "pythonExecution":
            return _python_text(message)
        case _:
            return None


def _mentioned(files: Any) -> list[Any]:
    """Files that were mentioned: their text in tags that name them, then their images."""
    blocks: list[Any] = []
    images: list[Any] = []
    for file in files if isinstance(files, list) else []:
        if not isinstance(file, dict):
            continue
        content, image = file.get("content"), file.get("image")
        if isinstance(content, str) and content:
            blocks.append({"type": "text", "text": f'<file path="{file.get("path")}">\n{content}\n</file>'})
        if isinstance(image, dict) and image.get("type") == "image":
            images.append(image)
    return blocks + images


def _python_text(message: Mapping[str, Any]) -> str:
    """What was run and what it printed."""
    parts = [f"Ran Python:\n```\n{message.get('code') or ''}\n```"]
    output = message.get("output")
    parts.append(f"Output:\n```\n{output}\n```" if output else "(no output)")
    if message.get("cancelled"):
        parts.append("(cancelled)")
    elif message.get("exitCode"):
        parts.append(f"Exited with code {message['exitCode']}")
    return "\n\n".join(parts)


def _has_history_of_its_own(fields: Mapping[str, Any]) -> bool:
    preserved = fields.get("preserveData")
    return isinstance(preserved, dict) and "openaiRemoteCompaction" in preserved
