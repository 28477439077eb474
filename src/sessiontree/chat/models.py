"""Which model is meant, and what to do when none is configured."""

from __future__ import annotations

from sessiontree.chat.demo import DEMO, demo_model
from sessiontree.errors import UsageError
from sessiontree.models import Model, open_model

HOW = (
    "name one with `--model provider:name`, in the setting `model` (`sessiontree config set model provider:name`) or "
    "in SESSIONTREE_MODEL, and set its key (ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY; ollama needs none); "
    "`--model demo` shows everything without a key"
)


def find_model(name: str, facts: str | None = None) -> Model:
    """The model of a name, or the demonstration."""
    return demo_model() if name == DEMO else open_model(name, facts=facts)


def no_model() -> UsageError:
    return UsageError(f"no model is configured: {HOW}")
