"""The summarizer that the settings name, and the options of branch summaries."""

from __future__ import annotations

from sessiontree.branches.summarize import SummaryOptions, budget_of
from sessiontree.compaction.summarizers import Summarizer, find_summarizer
from sessiontree.settings import Settings
from sessiontree.settings.known import AUTO


def configured_summarizer(settings: Settings) -> Summarizer:
    """The summarizer that the settings name: a model, or one that needs none.

    "auto" is the model of the settings. The session's own model is not asked: a file cannot choose who receives it.
    """
    if settings.compaction.summarizer == AUTO and settings.model is None:
        return find_summarizer()
    from sessiontree.app.start import find_model  # slow to import
    from sessiontree.models.model_summarizer import summarizer_for

    return summarizer_for(settings, find_model=lambda name: find_model(name, settings.models))


def summary_options(
    settings: Settings, instructions: str | None = None, summarizer: Summarizer | None = None
) -> SummaryOptions:
    """How to summarize a branch; `instructions` and `summarizer` replace those of the settings."""
    return SummaryOptions(
        instructions=instructions or settings.branch_summary.instructions,
        summarizer=summarizer or configured_summarizer(settings),
        budget=budget_of(settings.branch_summary.reserve_tokens),
    )
