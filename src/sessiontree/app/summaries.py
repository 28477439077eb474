"""The summarizer that the settings name, and the options of branch summaries."""

from __future__ import annotations

from sessiontree.branches.summarize import SummaryOptions, budget_of
from sessiontree.compaction.summarizers import Summarizer, find_summarizer
from sessiontree.settings import Settings


def configured_summarizer(settings: Settings) -> Summarizer:
    """The summarizer that the settings name: a model, or one that needs none."""
    name = settings.compaction.summarizer
    if ":" in name:
        from sessiontree.models.model_summarizer import summarizer_for  # slow to import

        return summarizer_for(settings)
    return find_summarizer(name)


def summary_options(settings: Settings, instructions: str | None = None) -> SummaryOptions:
    """How to summarize a branch; `instructions` replace those of the settings."""
    return SummaryOptions(
        instructions=instructions or settings.branch_summary.instructions,
        summarizer=configured_summarizer(settings),
        budget=budget_of(settings.branch_summary.reserve_tokens),
    )
