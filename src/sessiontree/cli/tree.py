"""Draw the branches of a session: one column for each branch, with labels, times and the current entry.

In a terminal, branches are colored, a legend follows the rows, and a long tree opens in the pager at the current entry.
"""

from __future__ import annotations

import argparse
from itertools import islice

from sessiontree.cli import output, stderr
from sessiontree.cli.parser import Options
from sessiontree.cli.sessions import add_read_options, open_for_reading
from sessiontree.explore.branch_labels import find_marks
from sessiontree.session.reader import Reader
from sessiontree.views.graph import build_graph, describe_node
from sessiontree.views.json import iter_problems
from sessiontree.views.tree_drawing import AROUND, Part, PartKind, RowFormat, draw_tree, lane_color, legend
from sessiontree.views.tree_rows import FILTERS, TreeFilter, TreeRows

EXAMPLES = """examples:
  sessiontree tree 019c2f3a --fold
  sessiontree tree s.jsonl --around 4d871814"""

_ROWS_AT_ONCE = 256
_FILTERS = {name.replace(" ", "-"): name for name in FILTERS}
_STYLES: dict[PartKind, str] = {
    "id": "2",
    "fold": "2",
    "other text": "2",
    "label": "33",
    "here": "1;32",
    "time": "2",
}
_NAMES = {"user": "1;36", "assistant": "32", "merge": "35", "tools": "2", "result": "2"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", metavar="SESSION")
    parser.add_argument(
        "--filter",
        choices=list(_FILTERS),
        default="default",
        help="which entries to show: default, no-tools, user (your own messages), labeled, all",
    )
    parser.add_argument("--all", action="store_true", help="include entries without text: settings, labels, state")
    parser.add_argument(
        "--fold", action="store_true", help="fold runs of tool calls, and what a compaction replaced, into one row"
    )
    parser.add_argument("--around", metavar="ENTRY", help=f"only this entry, and {AROUND} rows before and after it")
    add_read_options(parser)


def run(options: Options) -> None:
    session = open_for_reading(options)
    if options.json:
        graph = build_graph(session, everything=True, marks=find_marks(session))
        output.print_json(
            {
                "session": session.id,
                "dialect": session.dialect.name,
                "leaf": session.leaf,
                "nodes": map(describe_node, graph.nodes),
                "problems": iter_problems(session),
            }
        )
        return
    _print_tree(session, options)
    stderr.print_problems(session.location, session.problems)


def _print_tree(session: Reader, options: Options) -> None:
    width = output.width()
    chosen: TreeFilter = "all" if options.all else _FILTERS[options.filter]
    rows = TreeRows(session, find_marks(session), filter=chosen, folds=options.fold, max_columns=max(1, width // 6))
    around = None
    if options.around:
        node = session.node_of(session.find_entry(options.around))
        assert node is not None
        around = rows.row_of(node)
    lines = draw_tree(rows, width, RowFormat.full(), _paint if output.use_color() else None, around)
    command = _pager()
    if command is None and not output.is_terminal():
        while step := list(islice(lines, _ROWS_AT_ONCE)):
            output.print_lines(["\n".join(step)])  # one write: each may be a system call
        return
    from sessiontree.cli.pager import page

    drawn = list(lines)
    signs = legend(drawn)
    drawn += ["", output.dim(signs)] if signs else []
    if command is None or len(drawn) < output.height():
        output.print_lines(drawn)
        return
    at = rows.here if around is None else around - max(around - AROUND, 0)
    page(command, drawn, max((at or 0) - output.height() // 2, 0))


def _pager() -> list[str] | None:
    if not output.is_terminal():
        return None
    from sessiontree.cli.pager import find_pager

    return find_pager()


def _paint(rows: TreeRows, row: int, part: Part) -> str:
    text, kind = part
    match kind:
        case "rails" | "other rails":
            color = lane_color(rows.lane(row))
            code = f"{'' if kind == 'rails' else '2;'}38;5;{color}"
        case "name":
            code = _NAMES.get(text.strip(), "2")
        case _:
            code = _STYLES.get(kind, "")
    return f"\x1b[{code}m{text}\x1b[0m" if code else text
