"""Show a session of any agent: its details, last messages and file path.

SESSION is a path, an id or a prefix of it, or a title. Part of a title is enough if it matches only one session.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from sessiontree.branches.tips import count_tips
from sessiontree.cli import output, stderr
from sessiontree.cli.library_options import add_root_option, open_library
from sessiontree.cli.parser import Options
from sessiontree.cli.sessions import print_next_command, remember_session
from sessiontree.core.entries import MessageEntry
from sessiontree.core.ids import session_word
from sessiontree.core.messages import Assistant, User, message_text
from sessiontree.session.open import open as open_path
from sessiontree.views.json import describe_shown
from sessiontree.views.listing import age, amount, describe_summary, iso
from sessiontree.views.text import one_line, plural
from sessiontree.views.transcript import show_entry

if TYPE_CHECKING:
    from sessiontree.library.library import Library
    from sessiontree.library.summary import Summary
    from sessiontree.session.session import Session

EXAMPLES = """examples:
  sessiontree open 019c2f3a
  sessiontree open "parser rewrite" --messages 6"""

_SHOWN_MESSAGES, _SHOWN_LINES, _STEP = 4, 8, 32


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", metavar="SESSION", help="path, id, first characters of an id, or title")
    parser.add_argument("--print-path", action="store_true", help="print only the path of the file")
    parser.add_argument(
        "--messages",
        metavar="N",
        type=int,
        default=_SHOWN_MESSAGES,
        help="how many of the last messages to show (default: 4)",
    )
    add_root_option(parser)


def run(options: Options) -> None:
    with open_library(options) as library:
        present(library, library.find(options.session), options, options.messages)


def present(library: Library, summary: Summary, options: Options, messages: int) -> None:
    """Print a session: its path, one JSON object, or its details and last messages."""
    remember_session(summary.ref, summary.cwd, options)
    if options.print_path:
        output.print_value(summary.ref)
        return
    session = open_path(summary.ref, home=library.home, dialect=summary.agent)
    last = _last_messages(session, messages)
    if options.json:
        output.print_json({**describe_summary(summary), "lastMessages": [describe_shown(entry) for entry in last]})
        return
    output.print_lines(_details(summary, session))
    for entry in last:
        output.print_lines(_render(entry))
    output.print_lines([""])
    stderr.print_problems(session.location, session.problems)
    alike = sum(other.id == summary.id for other in library.everything())
    word = session_word(summary.id if alike == 1 else "", summary.ref)
    print_next_command(word, summary.agent, summary.cwd)


def _last_messages(session: Session, count: int) -> list[MessageEntry]:
    """The last messages with text from the user or the assistant, oldest first."""
    found: list[MessageEntry] = []
    ids = session.path_ids() if session.leaf is not None else []
    for start in range(len(ids), 0, -_STEP):
        if len(found) >= count:
            break
        found += [
            entry
            for entry in reversed(session.entries(ids[max(start - _STEP, 0) : start]))
            if isinstance(entry, MessageEntry)
            and isinstance(entry.message, User | Assistant)
            and message_text(entry.message).strip()
        ]
    return found[:count][::-1]


def _render(entry: MessageEntry) -> Iterator[str]:
    """A headline and the first lines of a message."""
    headline, *body, _ = show_entry(entry)
    yield ""
    yield headline
    yield from body[:_SHOWN_LINES]
    if len(body) > _SHOWN_LINES:
        yield output.dim(f"   … {plural(len(body) - _SHOWN_LINES, 'more line')}")


def _details(summary: Summary, session: Session) -> Iterator[str]:
    yield output.bold(one_line(summary.title) or "(no title)")
    passed = age(summary.active, time.time())
    passed = f"{passed} ago" if passed != "now" else "just now"
    branches = plural(count_tips(session), "branch", "branches")
    rows: dict[str, Any] = {
        "session": summary.id,
        "agent": summary.agent,
        "folder": summary.cwd,
        "git branch": summary.git_branch or "",
        "active": f"{iso(summary.active)} ({passed})" if summary.active else "",
        "entries": f"{len(session):,} ({plural(session.count('message'), 'message')}, {branches})",
        "model": summary.model or "",
        "size": amount(summary.size),
        "forked from": summary.forked_from or "",
        "parent": summary.parent or "",
        "health": summary.health if summary.health != "ok" else "",
        "file": summary.ref,
    }
    for name, value in rows.items():
        if value:
            yield f"{name:12} {one_line(str(value))}"
