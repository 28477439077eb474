"""Replace older messages with a summary, so that the session fits a model's context window again.

Nothing is removed from the file; --undo goes back to before the summary. A summary written by the agent itself is
undone only if --compaction names it. Works with every session that can be written, in its agent's own format.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

from sessiontree.app.actions.compact import compaction_fields, plan_compact, plan_undo_compaction, undone_fields
from sessiontree.cli import output, stderr
from sessiontree.cli.parser import Options
from sessiontree.cli.sessions import open_session, remember_session
from sessiontree.cli.summaries import add_summary_options, load_session_settings
from sessiontree.core.messages import Message, message_text
from sessiontree.errors import UsageError
from sessiontree.views.text import clean, cut, one_line, plural, short_entry_id

if TYPE_CHECKING:
    from sessiontree.compaction import Compacted, Undone
    from sessiontree.session.session import Session

EXAMPLES = """examples:
  sessiontree compact 019c2f3a --dry-run
  sessiontree compact s.jsonl --instructions "keep everything about the lexer" --keep 8000

Strategies: recent (keep the newest messages), segment (keep whole turns), replace (keep nothing). The default is what
the session's agent does."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", metavar="SESSION")
    add_summary_options(parser)
    parser.add_argument(
        "--keep", metavar="N", type=_tokens, help="tokens of recent messages to keep (default: from the settings)"
    )
    parser.add_argument("--strategy", metavar="NAME", help="what to keep: recent, segment or replace")
    parser.add_argument("--window", metavar="N", type=_tokens, help="fit a context window of N tokens")
    parser.add_argument("--dry-run", action="store_true", help="only show the result and the summary")
    parser.add_argument("--undo", action="store_true", help="go back to before the last compaction")
    parser.add_argument("--compaction", metavar="ENTRY", help="with --undo: undo this compaction, even the agent's own")


def _tokens(text: str) -> int:
    if not text.isascii() or not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of tokens")
    return int(text)


def run(options: Options) -> None:
    if options.compaction and not options.undo:
        raise UsageError("compact: --compaction needs --undo")
    session = open_session(options)
    if options.undo:
        undo_plan = plan_undo_compaction(session, options.compaction)
        undone = undo_plan.expected if options.dry_run else undo_plan.do().result
        session.flush()
        if not options.dry_run:
            remember_session(session.location, session.cwd, options)
        _print_undone(session, undone, options)
        return
    plan = plan_compact(
        session,
        load_session_settings(session, options),
        instructions=options.instructions,
        keep=options.keep,
        strategy=options.strategy,
        window=options.window,
        dry_run=options.dry_run,
    )
    done = plan.expected if options.dry_run else plan.do().result
    session.flush()
    for report in done.reports:
        stderr.print_line(f"sessiontree: {report}")
    if not options.dry_run:
        remember_session(session.location, session.cwd, options)
    if options.json:
        output.print_json({"session": session.id, "dialect": session.dialect.name, **compaction_fields(done)})
        return
    output.print_lines(_render(session, done))
    if options.dry_run:
        stderr.print_line("nothing was written (--dry-run)")
    elif not session.dialect.traits.is_linear:
        stderr.print_line(f"`sessiontree compact {shlex.quote(options.session)} --undo` reverts it")


def _print_undone(session: Session, undone: Undone, options: Options) -> None:
    if options.json:
        output.print_json({"session": session.id, "done": not options.dry_run, **undone_fields(undone)})
        return
    output.print_value(undone.leaf or "(before the first entry)")
    verb = "would move" if options.dry_run else "moved"
    where = undone.leaf or "before the first entry"
    stderr.print_line(f"the current entry {verb} from {undone.leaf_before} to {where}, before {undone.compaction}")
    if undone.left:
        stay = "stays" if undone.left == 1 else "stay"
        stderr.print_line(f"{plural(undone.left, 'message')} after the compaction {stay} in the file, on a branch")
    if options.dry_run:
        stderr.print_line("nothing was written (--dry-run)")
    else:
        before = shlex.quote(undone.leaf_before or "")
        stderr.print_line(f"to go back: sessiontree branch {shlex.quote(options.session)} {before}")


def _render(session: Session, done: Compacted) -> Iterator[str]:
    plan = done.plan
    yield f"{'tokens':<12}{done.tokens_before:,} before, about {done.tokens_after:,} after"
    prefix = f", {len(plan.turn_prefix):,} of a split turn" if plan.turn_prefix else ""
    yield f"{'summarized':<12}{plural(len(plan.summarized), 'message')}{prefix}"
    if plan.kept:
        first = cut(_preview(plan.kept[0]), max(output.width() - 50, 20))
        first_id = short_entry_id(plan.first_kept or "", session.id_prefixes)
        yield f"{'kept':<12}{plural(len(plan.kept), 'message')}, from {first_id}: {first}"
    else:
        yield f"{'kept':<12}nothing"
    yield f"{'files':<12}{len(plan.files.read):,} read, {len(plan.files.modified):,} modified"
    yield f"{'summary':<12}by {clean(done.summarizer)}, {len(done.summary):,} characters"
    if done.entry is not None:
        yield f"{'entry':<12}{clean(done.entry.id)}"
        return
    yield ""
    yield from clean(done.summary).splitlines()


def _preview(message: Message) -> str:
    return one_line(message_text(message)) or message.role
