"""Model, thinking level and mode as a session records them."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from sessiontree.core.jsonio import JsonObject
from sessiontree.session.session import Session


class RecordedChoices(Struct, frozen=True):
    """The choices that a session records. Fields are None where it records none."""

    model: str | None = None
    """As `provider:name`."""
    thinking: str | None = None
    mode: str = "none"

    def changes_to(self, new: RecordedChoices) -> Iterator[JsonObject]:
        """The entries that record other choices. A choice that is not made changes nothing."""
        provider, _, name = (new.model or "").partition(":")
        if name and new.model != self.model:
            yield {"type": "model_change", "provider": provider, "modelId": name}
        if new.thinking is not None and new.thinking != self.thinking:
            yield {"type": "thinking_level_change", "thinkingLevel": new.thinking}
        if new.mode != self.mode:
            yield {"type": "mode_change", "mode": new.mode}


def read_choices(session: Session) -> RecordedChoices:
    recorded = session.context().state
    level = recorded.thinking_level if session.count("thinking_level_change") else None
    return RecordedChoices(recorded_model(session), level, recorded.mode)


def recorded_model(session: Session) -> str | None:
    """The model that a session names as the last one."""
    model = session.context().state.model
    return f"{model.provider}:{model.model_id}" if model is not None and model.provider else None
