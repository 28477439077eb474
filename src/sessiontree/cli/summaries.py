"""Options of commands that write summaries, the settings in effect, and the summarizer."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from sessiontree.branches.summarize import SummaryOptions, budget_of
from sessiontree.cli import stderr
from sessiontree.cli.parser import Options
from sessiontree.compaction.summarizers import Summarizer, find_summarizer
from sessiontree.settings import Settings, load_settings

if TYPE_CHECKING:
    from sessiontree.session.session import Session


def add_summary_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--instructions", metavar="TEXT", help="what the summary should focus on")
    parser.add_argument(
        "--summarizer",
        metavar="NAME",
        help="extractive, which needs no model, or provider:model (default: from the settings)",
    )


def load_session_settings(session: Session, options: Options) -> Settings:
    """Load the settings for the session's folder; warnings are printed."""
    overrides = {"compaction.summarizer": options.summarizer} if options.summarizer else None
    loaded = load_settings(session.cwd or None, options.home, overrides=overrides)
    for notice in loaded.warnings:
        stderr.print_line(f"sessiontree: {notice}")
    return loaded.settings


def find_configured_summarizer(settings: Settings) -> Summarizer:
    """The summarizer that the settings name."""
    name = settings.compaction.summarizer
    if ":" in name:
        from sessiontree.models.model_summarizer import summarizer_for  # slow to import

        return summarizer_for(settings)

    return find_summarizer(name)


def build_summary_request(session: Session, options: Options) -> SummaryOptions:
    settings = load_session_settings(session, options)
    return SummaryOptions(
        instructions=options.instructions or settings.branch_summary.instructions,
        summarizer=find_configured_summarizer(settings),
        budget=budget_of(settings.branch_summary.reserve_tokens),
    )
