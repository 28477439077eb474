"""Options of commands that write summaries, and the settings in effect."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from sessiontree.app.summaries import summary_options
from sessiontree.cli import stderr
from sessiontree.cli.parser import Options
from sessiontree.settings import Settings, load_settings
from sessiontree.settings.known import AUTO
from sessiontree.stores.repositories import home_folder

if TYPE_CHECKING:
    from sessiontree.branches.summarize import SummaryOptions
    from sessiontree.session.session import Session


def add_summary_options(parser: argparse.ArgumentParser, *, with_model: bool = True) -> None:
    """Add the options; `--model` only where it cannot mean the model of a run."""
    parser.add_argument("--instructions", metavar="TEXT", help="what the summary should focus on")
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--summarizer",
        metavar="NAME",
        help="extractive, which needs no model, or provider:model (default: from the settings)",
    )
    if with_model:
        which.add_argument(
            "--model",
            metavar="NAME",
            dest="summary_model",
            help="the model that writes the summary, as provider:name (default: the setting `model`)",
        )


def load_session_settings(session: Session, options: Options) -> Settings:
    """Load the settings for the session's folder; warnings are printed."""
    overrides = {"compaction.summarizer": options.summarizer} if options.summarizer else {}
    if getattr(options, "summary_model", None):
        overrides = {"model": options.summary_model, "compaction.summarizer": AUTO}
    loaded = load_settings(session.cwd or None, home_folder(options.home), overrides=overrides)
    for notice in loaded.warnings:
        stderr.print_line(f"sessiontree: {notice}")
    return loaded.settings


def build_summary_request(session: Session, options: Options) -> SummaryOptions:
    return summary_options(load_session_settings(session, options), options.instructions)
