"""Models: a small protocol, its events, and facts about models.

    Request -> Model.stream -> events -> an Assistant message

`open_model("anthropic:claude-opus-5")` opens a provider's model. Requests to providers need Pydantic AI, an optional
dependency (`pip install 'sessiontree[models]'`). It is imported with the first request, and everything else here works
without it (see docs/decisions/0015-models.md). Messages are `sessiontree.core.messages`, including the signatures that
a provider wants back.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sessiontree.models.accumulator import AnswerAccumulator
    from sessiontree.models.base import (
        BlockEnd,
        Event,
        Model,
        Request,
        Stop,
        TextDelta,
        ThinkingDelta,
        ThinkingLevel,
        Tool,
        ToolCallDelta,
        ToolCallStart,
        UsageReport,
        answer,
    )
    from sessiontree.models.facts import Facts, Prices, cost_of, find_facts, read_facts
    from sessiontree.models.open import open_model
    from sessiontree.models.retry import with_retries
    from sessiontree.models.scripted import Script, ScriptedModel, ScriptTurn

# Names are imported on first use: listings need only the prices.
_MODULES = {
    "AnswerAccumulator": "accumulator",
    "BlockEnd": "base",
    "Event": "base",
    "Facts": "facts",
    "Model": "base",
    "Prices": "facts",
    "Request": "base",
    "Script": "scripted",
    "ScriptTurn": "scripted",
    "ScriptedModel": "scripted",
    "Stop": "base",
    "TextDelta": "base",
    "ThinkingDelta": "base",
    "ThinkingLevel": "base",
    "Tool": "base",
    "ToolCallDelta": "base",
    "ToolCallStart": "base",
    "UsageReport": "base",
    "answer": "base",
    "cost_of": "facts",
    "find_facts": "facts",
    "open_model": "open",
    "read_facts": "facts",
    "with_retries": "retry",
}

__all__ = [
    "AnswerAccumulator",
    "BlockEnd",
    "Event",
    "Facts",
    "Model",
    "Prices",
    "Request",
    "Script",
    "ScriptTurn",
    "ScriptedModel",
    "Stop",
    "TextDelta",
    "ThinkingDelta",
    "ThinkingLevel",
    "Tool",
    "ToolCallDelta",
    "ToolCallStart",
    "UsageReport",
    "answer",
    "cost_of",
    "find_facts",
    "open_model",
    "read_facts",
    "with_retries",
]


def __getattr__(name: str) -> object:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'sessiontree.models' has no attribute {name!r}")
    found = getattr(importlib.import_module(f"sessiontree.models.{module}"), name)
    globals()[name] = found
    return found
