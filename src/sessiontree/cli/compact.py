"""Let a summary stand for the older part of a session, so that it fits a model's window again.

Every line stays in the file: `--undo` lets the session stand before the summary again. Works on the sessions of every
agent that can be written, each in its own form.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from sessiontree.cli import output, stderr
from sessiontree.cli.parser import Options
from sessiontree.cli.sessions import open_session, remember_session
from sessiontree.cli.summaries import add_summary_options, find_configured_summarizer, load_session_settings
from sessiontree.compaction import Compacted, Undone, compact, policy_of, undo
from sessiontree.core.messages import Message, message_text
from sessiontree.views.text import clean, cut, one_line

if TYPE_CHECKING:
    from sessiontree.session.session import Session

EXAMPLES = """examples:
  sessiontree compact 019c2f3a --dry-run
  sessiontree compact s.jsonl --instructions "keep all about the lexer" --keep 8000

strategies: recent (keep the newest messages), segment (keep the last turns whole), replace (keep nothing); by default
the way of the agent whose session it is."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", metavar="SESSION")
    add_summary_options(parser)
    parser.add_argument(
        "--keep", metavar="N", type=_tokens, help="tokens of the newest messages to keep (default: as settings say)"
    )
    parser.add_argument("--strategy", metavar="NAME", help="what to keep: recent, segment or replace")
    parser.add_argument("--window", metavar="N", type=_tokens, help="make it fit a model with so many tokens")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--dry-run", action="store_true", help="show what would be done, and the summary")
    what.add_argument("--undo", action="store_true", help="stand before the last compaction again")


def _tokens(text: str) -> int:
    if not text.isascii() or not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of tokens")
    return int(text)


def run(options: Options) -> None:
    session = open_session(options)
    if options.undo:
        undone = undo(session)
        session.close()
        remember_session(session.location, session.cwd, options)
        _show_undone(session, undone, options)
        return
    settings = load_session_settings(session, options)
    # Which model it is is told by the whole context: it is asked only where that makes a difference.
    chosen = settings.compaction.for_model(_model_of(session) if settings.compaction.model_overrides else None)
    done = compact(
        session,
        instructions=options.instructions or chosen.instructions,
        keep=chosen.keep_recent_tokens if options.keep is None else options.keep,
        strategy=options.strategy,
        policy=policy_of(chosen),
        window=options.window,
        summarizer=find_configured_summarizer(settings),
        dry_run=options.dry_run,
    )
    session.close()
    for report in done.reports:
        stderr.print_line(f"sessiontree: {report}")
    if not options.dry_run:
        remember_session(session.location, session.cwd, options)
    if options.json:
        output.print_json(_described(session, done))
        return
    output.print_lines(_text(done))
    if options.dry_run:
        stderr.print_line("nothing was written; the same without --dry-run does it")
    else:
        stderr.print_line(f"`sessiontree compact {shlex.quote(options.session)} --undo` takes it back")


def _model_of(session: Session) -> str | None:
    """The model that the session is held with, as "provider/model"."""
    model = session.context().state.model
    return None if model is None else f"{model.provider}/{model.model_id}"


def _show_undone(session: Session, undone: Undone, options: Options) -> None:
    if options.json:
        output.print_json(
            {"session": session.id, "leaf": undone.leaf, "undone": undone.compaction, "leftBehind": undone.left}
        )
        return
    output.print_lines([undone.leaf or "(before the first entry)"])
    if undone.left:
        count = "1 message" if undone.left == 1 else f"{undone.left:,} messages"
        stderr.print_line(f"{count} said after the compaction stay on a branch of their own (see `sessiontree tree`)")


def _described(session: Session, done: Compacted) -> dict[str, Any]:
    prepared = done.prepared
    return {
        "session": session.id,
        "dialect": session.dialect.name,
        "done": done.entry is not None,
        "entry": done.entry.id if done.entry is not None else None,
        "strategy": prepared.strategy,
        "summarizer": done.summarizer,
        "tokensBefore": done.tokens_before,
        "tokensAfter": done.tokens_after,
        "piTokensBefore": prepared.tokens_before,
        "firstKept": prepared.first_kept,
        "kept": len(prepared.kept),
        "summarised": len(prepared.summarised),
        "turnPrefix": len(prepared.turn_prefix),
        "isSplitTurn": prepared.is_split_turn,
        "readFiles": list(prepared.files.read),
        "modifiedFiles": list(prepared.files.modified),
        "summary": done.summary,
        "reports": list(done.reports),
    }


def _text(done: Compacted) -> Iterator[str]:
    prepared = done.prepared
    yield f"{'tokens':<12}{done.tokens_before:,} before, about {done.tokens_after:,} after"
    prefix = f", {len(prepared.turn_prefix):,} of the turn that is cut" if prepared.turn_prefix else ""
    yield f"{'summarised':<12}{_messages(len(prepared.summarised))}{prefix}"
    if prepared.kept:
        first = cut(_shown(prepared.kept[0]), max(output.width() - 50, 20))
        yield f"{'kept':<12}{_messages(len(prepared.kept))}, from {clean(prepared.first_kept or '')[:8]}: {first}"
    else:
        yield f"{'kept':<12}nothing"
    yield f"{'files':<12}{len(prepared.files.read):,} read, {len(prepared.files.modified):,} modified"
    yield f"{'summary':<12}by {clean(done.summarizer)}, {len(done.summary):,} characters"
    if done.entry is not None:
        yield f"{'entry':<12}{clean(done.entry.id)}"
        return
    yield ""
    yield from clean(done.summary).splitlines()


def _messages(count: int) -> str:
    return "1 message" if count == 1 else f"{count:,} messages"


def _shown(message: Message) -> str:
    return one_line(message_text(message)) or message.role
