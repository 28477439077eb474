"""Which model is meant, and what to do when none is configured."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from sessiontree.app.demo import DEMO, demo_lane_model, demo_model
from sessiontree.errors import UsageError
from sessiontree.models import Event, Facts, Model, Request, open_model

HOW = (
    "name one with `--model provider:name`, in the setting `model` (`sessiontree config set model provider:name`) or "
    "in SESSIONTREE_MODEL, and set its key (ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY; ollama needs none); "
    "`--model demo` shows everything without a key"
)


def find_model(name: str, facts: str | None = None) -> Model:
    """The model of a name, or the demonstration."""
    return _named(demo_model() if name == DEMO else open_model(name, facts=facts), name)


def find_lane_model(name: str, number: int, facts: str | None = None) -> Model:
    """The model of a name for a lane, one of its own: a script that two lanes shared would be played once."""
    return _named(demo_lane_model(number) if name == DEMO else open_model(name, facts=facts), name)


def _named(model: Model, name: str) -> Model:
    return model if model.name == name else Named(model, name)


class Named:
    """A model by the name it was asked for, so that whoever asks by that name finds the same one: all scripts, the
    demonstration among them, call themselves alike."""

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
    return UsageError(f"no model is configured: {HOW}")
