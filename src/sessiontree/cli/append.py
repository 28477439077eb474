"""Append a message or, without ROLE, entries read from stdin as JSON (one per line if there are several)."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from sessiontree.cli import output, stderr
from sessiontree.cli.parser import Options
from sessiontree.cli.sessions import open_session, remember_session
from sessiontree.core.entries import Entry, MessageEntry, milliseconds
from sessiontree.core.jsonio import parse_json
from sessiontree.core.messages import ToolCall, message_text
from sessiontree.errors import InvalidEntryError, UsageError, WriteError
from sessiontree.search.prompt_spool import remember
from sessiontree.session.pending_calls import open_calls
from sessiontree.stores.repositories import home_folder
from sessiontree.views.json import describe_entry
from sessiontree.views.text import plural

if TYPE_CHECKING:
    from sessiontree.session.session import Branch, Session

EXAMPLES = """examples:
  sessiontree append 019c2f3a user "add a --json flag"
  echo '{"type":"custom","customType":"notes","data":{"a":1}}' | sessiontree append s.jsonl"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", metavar="SESSION")
    parser.add_argument("role", metavar="ROLE", nargs="?", help="user, assistant, system, toolResult, ...")
    parser.add_argument("text", metavar="TEXT", nargs="?", help="the text; if '-' or omitted, read stdin")
    parser.add_argument("--role", metavar="ROLE", dest="role_option", help=argparse.SUPPRESS)
    parser.add_argument("--text", metavar="TEXT", dest="text_option", help=argparse.SUPPRESS)
    parser.add_argument("--at", metavar="ENTRY", help="append after this entry (default: the current entry)")
    parser.add_argument(
        "--durability",
        choices=("append", "turn", "system"),
        default="turn",
        help="when to fsync: after each append, after each turn (default), or when the system does",
    )


def run(options: Options) -> None:
    session = open_session(options, durability=options.durability)
    branch = session.branch(session.find_entry(options.at)) if options.at else session.branch()
    entries = [branch.append(entry) for entry in _read_entries(options, branch)]
    others = len(session.refresh())
    session.flush()
    # The history of a repository is made of its sessions.
    if "user" in (options.role, options.role_option) and not session.ref.home:
        _record_prompts(session, entries, home_folder(options.home))
    remember_session(session.location, session.cwd, options)
    if others:
        stderr.print_line(
            f"sessiontree: {session.location}: another process appended {plural(others, 'entry', 'entries')}"
        )
    if options.json:
        output.print_json({"session": session.id, "entries": [describe_entry(entry) for entry in entries]})
    else:
        output.print_lines(entry.id for entry in entries)


def _record_prompts(session: Session, entries: list[Entry], home: str) -> None:
    """Add prompts to the prompt history. They are in the session already, so a failure is only reported."""
    for entry in entries:
        if isinstance(entry, MessageEntry):
            text, at = message_text(entry.message), milliseconds(entry.timestamp)
            try:
                remember(
                    home,
                    text,
                    cwd=session.cwd,
                    session=session.id,
                    time=at,
                    agent=session.dialect.name,
                )
            except WriteError as error:
                stderr.print_error(str(error))


def _read_entries(options: Options, branch: Branch) -> list[dict[str, Any]]:
    role = options.role or options.role_option
    text = options.text if options.text is not None else options.text_option
    if role is None:
        return _entries_on_stdin()
    if text is None or text == "-":
        text = sys.stdin.buffer.read().decode("utf-8", "surrogateescape").removesuffix("\n")
    if role == "bashExecution":
        return [{"role": role, "command": text, "output": ""}]
    if role == "toolResult":
        call = _only_open_call(branch)
        content = [{"type": "text", "text": text}]
        return [{"role": role, "toolCallId": call.id, "toolName": call.name, "content": content}]
    content = text if role in ("user", "system", "custom") else [{"type": "text", "text": text}]
    return [{"role": role, "content": content}]


def _only_open_call(branch: Branch) -> ToolCall:
    """The call that a result without an id answers."""
    calls = open_calls(branch.context().messages)
    if len(calls) == 1:
        return calls[0]
    found = f"{len(calls):,} calls are open ({', '.join(call.id for call in calls)})" if calls else "no call is open"
    form = '{"role":"toolResult","toolCallId":ID,"toolName":NAME,"content":TEXT}'
    raise InvalidEntryError(f"which call has this result? {found}; pass JSON on stdin: {form}")


def _entries_on_stdin() -> list[dict[str, Any]]:
    data = sys.stdin.buffer.read().strip()
    if not data:
        raise UsageError("nothing to append: stdin is empty; pass ROLE and TEXT, or entries as JSON on stdin")
    try:
        values = [parse_json(data)]
    except ValueError:
        values = []
        for number, line in enumerate(data.split(b"\n"), 1):
            try:
                values.append(parse_json(line))
            except ValueError:
                found = line.strip()[:40].decode("utf-8", "replace") or "an empty line"
                raise InvalidEntryError(f"stdin line {number}: expected a JSON object, got {found}") from None
    for number, value in enumerate(values, 1):
        if not isinstance(value, dict):
            raise InvalidEntryError(f"stdin line {number}: expected a JSON object, got {type(value).__name__}")
    return values
