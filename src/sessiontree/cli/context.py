"""Show the messages a model receives for a path, in order, with the model and mode in effect."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from sessiontree.cli import output, stderr
from sessiontree.cli.parser import Options
from sessiontree.cli.sessions import add_read_options, open_for_reading
from sessiontree.views.json import describe_message, describe_own_message, describe_state, iter_problems
from sessiontree.views.text import one_line, plural
from sessiontree.views.transcript import show_message

if TYPE_CHECKING:
    from sessiontree.core.context import Context
    from sessiontree.session.reader import Reader

EXAMPLES = """examples:
  sessiontree context 019c2f3a --json
  sessiontree context s.jsonl --leaf 8b01d2e4 --as anthropic"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", metavar="SESSION")
    parser.add_argument("--leaf", metavar="ENTRY", help="use the path to this entry (default: the current entry)")
    parser.add_argument(
        "--as",
        dest="form",
        choices=("native", "anthropic", "openai", "openai-chat"),
        help="print messages in the format of the session's client, or of a provider",
    )
    parser.add_argument(
        "--unanswered",
        choices=("complete", "strip"),
        default="complete",
        help="tool calls without a result: add an error result (default), or leave them out",
    )
    add_read_options(parser)


def run(options: Options) -> None:

    session = open_for_reading(options)
    leaf = session.find_entry(options.leaf) if options.leaf else session.leaf
    context = session.context(leaf) if options.leaf else session.context()
    if options.json or options.form in ("anthropic", "openai", "openai-chat"):
        output.print_json(_to_json(session, leaf, context, options))
        return
    output.print_lines(_text(context))
    stderr.print_problems(session.location, session.known_problems)


def _to_json(session: Reader, leaf: str | None, context: Context, options: Options) -> dict[str, Any]:
    value: dict[str, Any] = {
        "dialect": session.dialect.name,
        "session": session.id,
        "leaf": leaf,
        "path": list(context.path),
        **_messages(session, context, options),
        "state": describe_state(context.state),
        "problems": iter_problems(session),
    }
    return value


def _messages(session: Reader, context: Context, options: Options) -> dict[str, Any]:
    if options.form is None:
        return {"messages": map(describe_message, context.messages)}
    if options.form == "native":
        pairs = zip(context.sources, context.messages, strict=True)
        return {"messages": (describe_own_message(session, source, message) for source, message in pairs)}
    from sessiontree.providers import render_stream

    rendered = render_stream(context.messages, options.form, unanswered=options.unanswered)
    return {"system": rendered.system, "messages": rendered.messages, "notes": list(rendered.notes)}


def _text(context: Context) -> Iterator[str]:
    state = context.state
    model = state.models.get("default", "no model")
    rules = f" · rules {', '.join(state.rules)}" if state.rules else ""
    messages = plural(len(context.messages), "message")
    yield one_line(f"{messages} · {model} · thinking {state.thinking_level} · mode {state.mode}{rules}")
    yield ""
    for message in context.messages:
        yield from show_message(message)
