"""Options of commands that write summaries, and the settings in effect."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from sessiontree.app.summaries import summary_options
from sessiontree.cli import stderr
from sessiontree.cli.parser import Options
from sessiontree.settings import Settings, load_settings
from sessiontree.stores.repositories import home_folder

if TYPE_CHECKING:
    from sessiontree.branches.summarize import SummaryOptions
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
    loaded = load_settings(session.cwd or None, home_folder(options.home), overrides=overrides)
    for notice in loaded.warnings:
        stderr.print_line(f"sessiontree: {notice}")
    return loaded.settings


def build_summary_request(session: Session, options: Options) -> SummaryOptions:
    return summary_options(load_session_settings(session, options), options.instructions)
