"""Models: a small protocol, its events, and facts about models.

    Request -> Model.stream -> events -> an Assistant message

`open_model("anthropic:claude-opus-5")` opens a provider's model. Requests to providers need Pydantic AI, an optional
dependency (`pip install 'sessiontree[models]'`). It is imported with the first request, and everything else here works
without it (see docs/decisions/0015-models.md). Messages are `sessiontree.core.messages`, including the signatures that
a provider wants back.
"""

from __future__ import annotations

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
