"""Talking to models: one small protocol, its events, and what is known about models.

    Request -> Model.stream -> events -> an Assistant message

`open_model("anthropic:claude-opus-5")` gives a model of a provider. Providers are spoken to by a library that is an
extra (`pip install 'sessiontree[models]'`) and is imported when the first request is made, not before; everything else
here needs none (see docs/decisions/0015-models.md). Messages go in and come out as `sessiontree.core.messages`, with
whatever signatures a provider wants to see again.
"""

from __future__ import annotations

from sessiontree.models.accumulator import Gathering
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
from sessiontree.models.script import Script, ScriptTurn
from sessiontree.models.scripted import ScriptedModel

__all__ = [
    "BlockEnd",
    "Event",
    "Facts",
    "Gathering",
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
