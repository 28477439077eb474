"""The lines of a drawn tree: they connect what belongs together, and nothing else."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree.core.layout import NO_LANE, NO_NODE, Layout, LayoutColumns, find_runs, lay_out
from sessiontree.views.rails import DOWN, LEFT, RIGHT, UP, RailRow, Rails, group_lanes
from tests.builders import examples

WIDE = 1_000
DOTS = "0123456789abcdefghijklmnopqrstuvwxyz"


def layout_of(*parents: int | None, joins: list[tuple[int, int]] | None = None) -> Layout:
    return lay_out(LayoutColumns(parents, [True] * len(parents)), joins or [])


def drawn(layout: Layout, max_columns: int = WIDE) -> list[str]:
    """The rows in groups, each with the number of its node as its dot."""
    nodes = group_lanes(layout, layout.rows())
    return [row.text(DOTS[row.node]) for row in Rails(layout, nodes, max_columns)]


def test_one_branch_is_one_column() -> None:
    assert drawn(layout_of(None, 0, 1)) == ["0", "1", "2"]


def test_a_fork_is_a_line_from_its_entry_to_the_new_branch() -> None:
    assert drawn(layout_of(None, 0, 1, 0, 3)) == ["0─╮", "1 │", "2 │", "  3", "  4"]


def test_branches_from_the_same_entry_share_a_line() -> None:
    assert drawn(layout_of(None, 0, 0, 2, 0, 0)) == ["0─╮", "1 │", "  ├─2", "  │ 3", "  ├─4", "  5"]


def test_a_merge_is_a_line_from_the_merged_branch() -> None:
    assert drawn(layout_of(None, 0, 0, 2, 3, joins=[(1, 4)])) == ["0─╮", "1 │", "│ 2", "│ 3", "╰─4"]


def test_lines_cross() -> None:
    rows = drawn(layout_of(None, 0, 0, 2, 0, 3, joins=[(1, 5)]))
    assert rows == ["0─╮", "1 │", "│ ├─2", "│ │ 3", "╰─┼─5", "  4"]


def test_columns_are_used_again() -> None:
    """Twelve times the last message is replaced: two columns are enough."""
    parents: list[int | None] = [None]
    for at in range(1, 24, 2):
        parents += [at - 1 if at < 2 else at - 2, at]
    assert {len(row.rstrip()) for row in drawn(layout_of(*parents))} <= {1, 3}


def test_a_new_tree_starts_on_the_left() -> None:
    assert drawn(layout_of(None, 0, None, 2)) == ["0", "1", "2", "3"]


def test_parallel_branches_are_drawn_one_after_the_other() -> None:
    layout = layout_of(None, 0, 0, 1, 2, 3, 4)
    assert group_lanes(layout, layout.rows()) == [0, 1, 3, 5, 2, 4, 6]


def test_a_merge_comes_after_what_it_merges() -> None:
    layout = layout_of(None, 0, 0, 2, 1, 4, joins=[(3, 4)])
    assert group_lanes(layout, layout.rows()) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("max_columns", [1, 2, 3])
def test_a_narrow_drawing_shares_its_last_column(max_columns: int) -> None:
    rows = drawn(layout_of(None, *[0] * 12, joins=[(3, 12)]), max_columns)
    assert len(rows) == 13
    assert max(map(len, rows)) <= 2 * max_columns


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    size = draw(st.integers(1, 24))
    parents = [draw(st.none() | st.integers(max(0, at - 6), at)) for at in range(size)]
    placed = draw(st.lists(st.sampled_from([True, True, True, False]), min_size=size, max_size=size))
    joins = draw(st.lists(st.tuples(st.integers(0, size), st.integers(0, size)), max_size=3))
    return lay_out(LayoutColumns(parents, placed), joins)


@given(st.data(), layouts(), st.booleans())
@examples(500)
def test_every_line_starts_and_ends_somewhere(data: st.DataObject, layout: Layout, in_groups: bool) -> None:
    everything = data.draw(st.booleans())
    nodes = list(range(len(layout))) if everything else layout.rows()
    rows = list(Rails(layout, group_lanes(layout, nodes) if in_groups else nodes, WIDE))
    for row, following in pairwise([*rows, RailRow(-1, 0, ())]):
        for column in range(max(len(row.cells), len(following.cells))):
            assert bool(cell(row, column) & DOWN) is bool(cell(following, column) & UP)
        for column in range(-1, len(row.cells)):
            assert bool(cell(row, column) & RIGHT) is bool(cell(row, column + 1) & LEFT)


def cell(row: RailRow, column: int) -> int:
    return row.cells[column] if 0 <= column < len(row.cells) else 0


@given(layouts(), st.booleans())
@examples(500)
def test_a_lane_has_one_column_and_a_line_to_what_it_follows(layout: Layout, in_groups: bool) -> None:
    nodes = group_lanes(layout, layout.rows()) if in_groups else layout.rows()
    column_of: dict[int, int] = {}
    for row in Rails(layout, nodes, WIDE):
        lane = layout.lanes[row.node]
        is_first = layout.first[lane] == row.node
        assert column_of.setdefault(lane, row.column) == row.column
        lines = row.cells[row.column]
        if not is_first:
            assert lines & UP
        elif layout.fork(lane) == NO_NODE:
            assert not lines & UP
        else:
            assert lines & (UP | LEFT | RIGHT)


@given(layouts(), st.booleans())
@examples(500)
def test_groups_keep_every_node_and_the_order_of_what_follows(layout: Layout, everything: bool) -> None:
    nodes = list(range(len(layout))) if everything else layout.rows()
    grouped = group_lanes(layout, nodes)
    assert sorted(grouped) == nodes
    position = {node: at for at, node in enumerate(grouped)}
    for node in nodes:
        if layout.before[node] != NO_NODE:
            assert position[layout.before[node]] < position[node]
    for source, merge in layout.joins:
        # Lines without a lane, which are no part of the conversation, only stay where they are.
        if source in position and merge in position and NO_LANE not in (layout.lanes[source], layout.lanes[merge]):
            assert position[source] < position[merge]


@given(layouts())
@examples(500)
def test_showing_or_hiding_the_rows_of_a_run_draws_what_drawing_anew_does(layout: Layout) -> None:
    whole = Rails(layout, group_lanes(layout, layout.rows()), WIDE)
    for run in find_runs(layout):
        others = [node for node in layout.rows() if node not in run[1:]]
        folded = Rails(layout, group_lanes(layout, others), WIDE)
        unfolded = folded.splice(folded.find_row(run[0]), 0, run[1:])
        hidden = whole.splice(whole.find_row(run[0]), len(run) - 1, ())
        assert (unfolded is None) is (hidden is None)
        if unfolded is not None and hidden is not None:
            assert (list(unfolded), rows_of(unfolded)) == (list(whole), rows_of(whole))
            assert (list(hidden), rows_of(hidden)) == (list(folded), rows_of(folded))
            again = hidden.splice(hidden.find_row(run[0]), 0, run[1:])
            assert again is not None
            assert (list(again), rows_of(again)) == (list(whole), rows_of(whole))


def rows_of(rails: Rails) -> list[int]:
    """By node: its row."""
    return [rails.find_row(node) for node in range(max(rails.nodes, default=-1) + 1)]


def test_a_run_without_forks_is_spliced() -> None:
    layout = lay_out(LayoutColumns([None, 0, 1, 2, 3], [True] * 5))
    assert Rails(layout, [0, 1, 4], WIDE).splice(1, 0, [2, 3]) is not None
