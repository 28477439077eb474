"""The layout of a tree: positions that never change, one lane per branch, whatever the file looks like."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sessiontree
from sessiontree.branches.session_layout import extend_layout, find_layout
from sessiontree.core.layout import NO_LANE, NO_NODE, Layout, LayoutColumns, find_runs, lay_out
from sessiontree.core.tree import Tree
from sessiontree.session.journal import Journal
from sessiontree.session.session import Session
from sessiontree.stores.memory import MemoryStore
from sessiontree.views.tree_drawing import draw_tree
from sessiontree.views.tree_rows import TreeRows
from tests.builders import entry, examples, header, message_line, opened

CORPUS = Path(__file__).parent / "corpus"


def columns_of(parents: list[int | None], placed: list[bool] | None = None) -> LayoutColumns:
    return LayoutColumns(parents, [True] * len(parents) if placed is None else placed)


@st.composite
def all_columns(draw: st.DrawFn) -> LayoutColumns:
    """Any columns: also links to later entries and to themselves, entries without content, and shared responses."""
    size = draw(st.integers(0, 24))
    parents = draw(st.lists(st.none() | st.integers(0, size), min_size=size, max_size=size))
    placed = draw(st.lists(st.sampled_from([True, True, True, False]), min_size=size, max_size=size))
    responses = draw(st.just([]) | st.lists(st.sampled_from([None, "r1", "r2"]), min_size=size, max_size=size))
    return LayoutColumns(parents, placed, responses)


def all_joins(size: int) -> st.SearchStrategy[list[tuple[int, int]]]:
    return st.lists(st.tuples(st.integers(0, size), st.integers(0, size)), max_size=3)


# One lane per branch


def test_the_first_child_continues_the_lane_and_others_fork_from_it() -> None:
    # 0 - 1 - 2 - 3
    #       \ 4 - 5
    #       \ 6        7
    layout = lay_out(columns_of([None, 0, 1, 2, 1, 4, 1, None]))
    assert layout.lanes == [0, 0, 0, 0, 1, 1, 2, 3]
    assert [layout.fork(lane) for lane in range(4)] == [NO_NODE, 1, 1, NO_NODE]
    assert layout.first == [0, 4, 6, 7]
    assert layout.last == [3, 5, 6, 7]


def test_a_branch_that_is_continued_later_is_still_in_its_lane() -> None:
    layout = lay_out(columns_of([None, 0, 0, 2, 1, 3]))
    assert layout.lanes == [0, 0, 1, 1, 0, 1]


def test_entries_without_content_take_the_lane_of_their_entry_and_start_none() -> None:
    layout = lay_out(columns_of([None, None, 1, 1, 3, 2], [False, True, False, True, True, True]))
    assert layout.lanes == [NO_LANE, 0, 0, 0, 0, 1]
    assert layout.before == [NO_NODE, NO_NODE, 1, 1, 3, 1]
    assert layout.rows() == [1, 3, 4, 5]


def test_parallel_results_and_what_follows_them_stay_in_one_lane() -> None:
    # Two blocks of a response, the result of each as its child, then the next turn below the first result.
    columns = LayoutColumns([None, 0, 1, 2, 1, 3, 1], [True] * 7, [None, "r", "r", "r", "r", None, None])
    layout = lay_out(columns)
    assert layout.lanes == [0, 0, 0, 0, 0, 0, 1]
    assert layout.before[4:6] == [3, 4]


@given(all_columns())
@examples(400)
def test_a_lane_is_a_sequence_of_entries_each_of_which_follows_the_one_before(columns: LayoutColumns) -> None:
    layout = lay_out(columns)
    for lane in range(len(layout.first)):
        nodes = [node for node in layout.rows() if layout.lanes[node] == lane]
        assert (nodes[0], nodes[-1]) == (layout.first[lane], layout.last[lane])
        assert [layout.before[node] for node in nodes[1:]] == nodes[:-1]
        assert layout.fork(lane) < nodes[0]
        assert layout.fork(lane) == NO_NODE or layout.lanes[layout.fork(lane)] != lane


@given(all_columns())
@examples(400)
def test_there_are_as_many_lanes_as_roots_and_further_children(columns: LayoutColumns) -> None:
    layout = lay_out(LayoutColumns(columns.parents, columns.placed))
    followed = [layout.before[node] for node in layout.rows()]
    inner = {node for node in followed if node != NO_NODE}
    assert len(layout.first) == followed.count(NO_NODE) + sum(followed.count(node) - 1 for node in inner)


# Positions never change


@given(st.data(), all_columns())
@examples(600)
def test_the_layout_of_a_beginning_is_the_beginning_of_the_layout(data: st.DataObject, columns: LayoutColumns) -> None:
    joins = data.draw(all_joins(len(columns)))
    whole = lay_out(columns, joins)
    for cut in range(len(columns) + 1):
        part = lay_out(columns[:cut], [join for join in joins if join[1] < cut])
        assert part.lanes == whole.lanes[:cut]
        assert part.before == whole.before[:cut]
        assert part.first == whole.first[: len(part.first)]
        assert part.joins == [join for join in whole.joins if join[1] < cut]


@given(st.data(), all_columns())
@examples(400)
def test_a_layout_that_grows_is_the_layout_of_the_whole(data: st.DataObject, columns: LayoutColumns) -> None:
    joins = data.draw(all_joins(len(columns)))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(columns)), max_size=4)))
    grown = Layout()
    for start, end in zip([0, *cuts], [*cuts, len(columns)], strict=True):
        grown.extend(columns[start:end], [join for join in joins if start <= join[1] < end])
    whole = lay_out(columns, joins)
    assert sorted(grown.joins) == sorted(whole.joins)
    assert msgspec.structs.replace(grown, joins=[]) == msgspec.structs.replace(whole, joins=[])


def test_a_layout_can_be_stored_and_extended_after_reading_it() -> None:
    columns = LayoutColumns([None, 0, 0, 1], [True] * 4, ["r", None, "r", None])
    first = lay_out(columns[:2])
    stored = msgspec.json.decode(msgspec.json.encode(first), type=Layout)
    stored.extend(columns[2:])
    assert stored == lay_out(columns)


ids = st.sampled_from(["a", "b", "c", "d", "e", "f", "g"])
lines = st.lists(st.tuples(ids, st.none() | ids | st.just("lost")), max_size=14)


@given(lines)
@examples(600)
def test_earlier_parents_do_not_depend_on_later_lines(fed: list[tuple[str, str | None]]) -> None:
    """With duplicate ids, forward references, cycles and missing parents."""

    def earlier(count: int) -> list[int | None]:
        tree = Tree()
        tree.extend([id for id, _ in fed[:count]], [parent for _, parent in fed[:count]])
        return list(tree.earlier_parents())

    whole = earlier(len(fed))
    for count in range(len(fed)):
        assert earlier(count) == whole[:count]
    last: dict[str, int] = {}
    for node, (id, parent) in enumerate(fed):
        assert whole[node] == (None if parent is None else last.get(parent))
        last[id] = node


@given(lines, st.data())
@examples(150)
def test_a_damaged_file_keeps_its_positions_when_it_grows(
    fed: list[tuple[str, str | None]], data: st.DataObject
) -> None:
    kinds = data.draw(st.lists(st.sampled_from(["message", "message", "label"]), min_size=len(fed), max_size=len(fed)))
    raw = [
        message_line(id, parent) if kind == "message" else entry("label", id, parent, targetId="a", label="x")
        for kind, (id, parent) in zip(kinds, fed, strict=True)
    ]
    check_all_cuts([header(sessiontree=1), *raw])


def check_all_cuts(raw: list[bytes], every: int = 1, dialect: str | None = None) -> None:
    """Compare the layout of each beginning of a file with that of the whole, and extend it by the rest."""
    session = opened(b"".join(raw), dialect)
    whole = find_layout(session)
    for count in range(1, len(raw), every):
        part = find_layout(opened(b"".join(raw[:count]), dialect))
        assert part.lanes == whole.lanes[: len(part)]
        assert part.before == whole.before[: len(part)]
        extend_layout(session, part)
        assert part == whole


@pytest.mark.parametrize("path", sorted(CORPUS.rglob("*.jsonl")), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_real_files_keep_their_positions_when_they_grow(path: Path) -> None:
    raw = path.read_bytes().splitlines(keepends=True)
    try:
        dialect = sessiontree.open(path).dialect.name
    except sessiontree.SessionTreeError:
        pytest.skip("not a session")
    check_all_cuts(raw, every=max(1, len(raw) // 12), dialect=dialect)


# The current entry


def branching() -> Session:
    lines = (message_line("a"), message_line("b", "a"), message_line("c", "b"), message_line("d", "b"))
    return opened(header(sessiontree=1) + b"".join(lines) + message_line("e", "c") + message_line("f", "d"))


@pytest.mark.parametrize("target", ["a", "b", "c", "d", "e", "f"])
def test_moving_the_current_entry_changes_no_position(target: str) -> None:
    session = branching()
    before, drawn = find_layout(session), picture(session)
    session.move(target)
    assert session.leaf == target
    after = find_layout(session)
    assert after.lanes[: len(before)] == before.lanes
    assert after.before[: len(before)] == before.before
    assert picture(session) == drawn


def picture(session: Session) -> list[str]:
    """The drawn tree without the marks of the active path and the current entry."""
    rows = draw_tree(TreeRows(session, folds=False), 80)
    return [" ".join(row.replace("●", "○").replace("◀ here", "").split()) for row in rows]


# Runs


def test_runs_end_at_forks_and_merges() -> None:
    layout = lay_out(columns_of([None, 0, 1, 2, 1, 4, 3, 6]), [(5, 6)])
    assert find_runs(layout) == [[0, 1], [2, 3], [4, 5], [6, 7]]


@given(st.data(), all_columns())
@examples(300)
def test_runs_contain_each_placed_entry_once_and_hide_no_branch(data: st.DataObject, columns: LayoutColumns) -> None:
    layout = lay_out(columns, data.draw(all_joins(len(columns))))
    runs = find_runs(layout)
    assert sorted(node for run in runs for node in run) == layout.rows()
    forks = {layout.fork(lane) for lane in range(len(layout.first))}
    for run in runs:
        assert [layout.before[node] for node in run[1:]] == run[:-1]
        assert not forks.intersection(run[:-1])
        assert not any(source in run[:-1] or merge in run[1:] for source, merge in layout.joins)


# Cost


SHAPES: dict[str, Callable[[int], list[int | None]]] = {
    "a chain": lambda size: [None, *range(size - 1)],
    "a star": lambda size: [None, *[0] * (size - 1)],
    "a comb": lambda size: [None, *(node if node % 2 else max(0, node - 1) for node in range(size - 1))],
    "roots": lambda size: [None] * size,
    "forward references": lambda size: [*range(1, size), None],
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("work", [lay_out, lambda columns: find_runs(lay_out(columns))], ids=["layout", "runs"])
def test_the_work_grows_linearly_with_the_entries(shape: str, work: Callable[[LayoutColumns], Any]) -> None:
    small, large = (columns_of(SHAPES[shape](size)) for size in (1_000, 4_000))
    assert steps(lambda: work(large)) <= 4.1 * steps(lambda: work(small))


def steps(work: Callable[[], Any]) -> int:
    """The number of lines of Python that are executed: unlike time, the same on every machine."""
    count = 0

    def trace(frame: Any, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def test_no_body_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = [message_line(f"n{at}", f"n{at // 2}" if at else None) for at in range(40)]
    session = opened(header(sessiontree=1) + b"".join(tree))
    assert len(session) == 40

    def refuse(*_: object) -> Any:
        raise AssertionError("a body was read")

    for name in ("entries", "fields", "resolved_fields", "iter_raw", "raw_lines"):
        monkeypatch.setattr(Journal, name, refuse)
    monkeypatch.setattr(MemoryStore, "readinto", refuse)
    layout = lay_out(session.dialect.layout_columns(session.journal))
    assert len(layout.rows()) == 40
    assert len(layout.first) == 20
