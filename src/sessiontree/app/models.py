"""Model lookup by name, and the error when no model is configured."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from sessiontree.app.demo import DEMO, demo_lane_model, demo_model
from sessiontree.errors import UsageError
from sessiontree.models import Event, Facts, Model, Request, open_model

_HINT = (
    "name one with `--model provider:name`, in the setting `model` (`sessiontree config set model provider:name`) or "
    "in SESSIONTREE_MODEL, and set its key (ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY; ollama needs none); "
    "`--model demo` shows everything without a key"
)


def find_model(name: str, facts: str | None = None) -> Model:
    """Open a model by name; `demo` is the scripted demonstration."""
    return _named(demo_model() if name == DEMO else open_model(name, facts=facts), name)


def find_lane_model(name: str, number: int, facts: str | None = None) -> Model:
    """Open a model for one lane. Lanes do not share models: a script is played only once."""
    return _named(demo_lane_model(number) if name == DEMO else open_model(name, facts=facts), name)


def _named(model: Model, name: str) -> Model:
    return model if model.name == name else RenamedModel(model, name)


class RenamedModel:
    """A model with the name it was requested by, so that the session can be resumed with that name.

    All scripted models, including the demonstration, have the same name otherwise.
    """

    def __init__(self, model: Model, name: str) -> None:
        self._model, self.name = model, name

    @property
    def facts(self) -> Facts:
        return self._model.facts

    def stream(self, request: Request, /) -> AsyncGenerator[Event, None]:
        return self._model.stream(request)

    async def close(self) -> None:
        await self._model.close()


def no_model_error() -> UsageError:
    return UsageError(f"no model is configured: {_HINT}")
