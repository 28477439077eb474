"""What commands that have something summarised share: their options, the settings that hold, and who writes."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from sessiontree.cli import stderr
from sessiontree.cli.parser import Options

if TYPE_CHECKING:
    from sessiontree.branches.summarize import SummaryOptions
    from sessiontree.compaction.summarizers import Summarizer
    from sessiontree.session.session import Session
    from sessiontree.settings import Settings


def add_summary_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--instructions", metavar="TEXT", help="what the summary shall keep above all")
    parser.add_argument(
        "--summarizer",
        metavar="NAME",
        help="who writes it: extractive, which needs no model, or provider:model (default: as settings say)",
    )


def load_session_settings(session: Session, options: Options) -> Settings:
    """The settings for work on a session, by its own folder; what is odd in their files is said."""
    from sessiontree.settings import load_settings

    overrides = {"compaction.summarizer": options.summarizer} if options.summarizer else None
    loaded = load_settings(session.cwd or None, options.home, overrides=overrides)
    for notice in loaded.warnings:
        stderr.print_line(f"sessiontree: {notice}")
    return loaded.settings


def find_configured_summarizer(settings: Settings) -> Summarizer:
    """Whoever the settings name. The part that talks to models is imported only for a model."""
    name = settings.compaction.summarizer
    if ":" in name:
        from sessiontree.models.model_summarizer import summarizer_for

        return summarizer_for(settings)
    from sessiontree.compaction.summarizers import find_summarizer

    return find_summarizer(name)


def build_summary_request(session: Session, options: Options) -> SummaryOptions:
    """How a branch shall be summarised."""
    from sessiontree.branches.summarize import SummaryOptions, budget_of

    settings = load_session_settings(session, options)
    return SummaryOptions(
        instructions=options.instructions or settings.branch_summary.instructions,
        summarizer=find_configured_summarizer(settings),
        budget=budget_of(settings.branch_summary.reserve_tokens),
    )
