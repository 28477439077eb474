"""The tree: it accepts any input and never loops forever."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree.core.tree import Tree, TreeProblem
from tests.builders import examples

Fed = list[tuple[str, str | None]]


def grown(*nodes: tuple[str, str | None]) -> Tree:
    tree = Tree()
    tree.extend([id for id, _ in nodes], [parent for _, parent in nodes])
    return tree


def odd(tree: Tree) -> list[tuple[int, str, str]]:
    return [(problem.node, problem.kind, problem.id) for problem in tree.problems()]


# a - b - c
#       \ d - e        x - y
FOREST = [("a", None), ("b", "a"), ("c", "b"), ("d", "b"), ("e", "d"), ("x", None), ("y", "x")]


def test_an_empty_tree_can_be_queried() -> None:
    tree = Tree()
    assert len(tree) == 0
    assert (tree.roots(), tree.leaves(), tree.path(None), list(tree.iter_subtree(None)), odd(tree)) == (
        [],
        [],
        [],
        [],
        [],
    )


def test_a_path_goes_from_root_to_node() -> None:
    tree = grown(*FOREST)
    assert tree.path(4) == [0, 1, 3, 4]
    assert tree.path(0) == [0]
    assert tree.path(6) == [5, 6]


def test_the_path_of_no_node_is_empty() -> None:
    assert grown(*FOREST).path(None) == []


def test_children_are_in_file_order() -> None:
    tree = grown(*FOREST)
    assert tree.children(1) == [2, 3]
    assert tree.children(4) == []


def test_the_children_of_no_node_are_the_roots() -> None:
    tree = grown(*FOREST)
    assert tree.children(None) == tree.roots() == [0, 5]


def test_leaves_are_the_nodes_without_children() -> None:
    assert grown(*FOREST).leaves() == [2, 4, 6]


def test_parents_are_numbers_of_nodes() -> None:
    tree = grown(*FOREST)
    assert list(tree.parents()) == [None, 0, 1, 1, 3, None, 5]
    assert tree.parent(3) == 1


def test_the_common_ancestor_is_the_deepest_shared_node() -> None:
    tree = grown(*FOREST)
    assert tree.common_ancestor(2, 4) == 1
    assert tree.common_ancestor(4, 2) == 1


def test_a_node_is_its_own_common_ancestor_with_its_descendants() -> None:
    tree = grown(*FOREST)
    assert tree.common_ancestor(1, 4) == 1
    assert tree.common_ancestor(4, 1) == 1
    assert tree.common_ancestor(3, 3) == 3


def test_nodes_of_different_roots_share_nothing() -> None:
    tree = grown(*FOREST)
    assert tree.common_ancestor(4, 6) is None
    assert tree.common_ancestor(None, 4) is None
    assert tree.common_ancestor(4, None) is None


def test_a_subtree_is_walked_depth_first() -> None:
    tree = grown(*FOREST)
    assert list(tree.iter_subtree(1)) == [1, 2, 3, 4]
    assert list(tree.iter_subtree(None)) == [0, 1, 2, 3, 4, 5, 6]


def test_an_ordinary_tree_has_no_problems() -> None:
    assert odd(grown(*FOREST)) == []


def test_children_are_updated_after_more_nodes_are_added() -> None:
    tree = grown(("a", None), ("b", "a"))
    assert tree.children(0) == [1]
    tree.append("c", "a")
    assert tree.children(0) == [1, 2]
    tree.extend(["d"], ["a"])
    assert tree.children(0) == [1, 2, 3]
    assert tree.leaves() == [1, 2, 3]


def test_an_orphan_is_a_root_and_reported() -> None:
    tree = grown(("a", None), ("b", "lost"), ("c", "b"))
    assert tree.roots() == [0, 1]
    assert tree.path(2) == [1, 2]
    assert [tree.is_orphan(node) for node in range(3)] == [False, True, False]
    assert odd(tree) == [(1, "missing-parent", "lost")]


@pytest.mark.parametrize("by_append", [True, False])
@pytest.mark.parametrize("looked", [True, False])
def test_an_orphan_gets_its_parent_when_that_is_added(by_append: bool, looked: bool) -> None:
    tree = grown(("child", "parent"))
    if looked:
        assert tree.is_orphan(0)
    if by_append:
        assert tree.append("parent", None) == 1
    else:
        tree.extend(["parent"], [None])
    assert tree.parent(0) == 1
    assert not tree.is_orphan(0)
    assert tree.children(1) == [0]
    assert odd(tree) == [(0, "forward-reference", "parent")]


def test_a_forward_reference_is_followed_and_reported() -> None:
    tree = grown(("a", None), ("c", "b"), ("b", "a"))
    assert tree.path(1) == [0, 2, 1]
    assert odd(tree) == [(1, "forward-reference", "b")]


def test_the_later_of_two_entries_with_one_id_has_it() -> None:
    tree = grown(("a", None), ("a", None), ("b", "a"))
    assert tree.node_of["a"] == 1
    assert tree.path(2) == [1, 2]
    assert odd(tree) == [(0, "duplicate-id", "a")]


def test_the_earlier_of_two_entries_with_one_id_is_kept_without_children() -> None:
    tree = grown(("r", None), ("a", "r"), ("b", "a"), ("a", "r"))
    assert tree.path(1) == [0, 1]
    assert tree.children(1) == []
    assert tree.path(2) == [0, 3, 2]
    assert odd(tree) == [(1, "duplicate-id", "a"), (2, "forward-reference", "a")]


def test_of_many_entries_with_one_id_the_last_has_it() -> None:
    tree = grown(("a", None), ("a", None), ("a", None), ("b", "a"))
    assert tree.parent(3) == 2
    assert odd(tree) == [(0, "duplicate-id", "a"), (1, "duplicate-id", "a")]


def test_an_entry_that_is_its_own_parent_is_a_root() -> None:
    tree = grown(("a", "a"), ("b", "a"))
    assert tree.path(1) == [0, 1]
    assert tree.roots() == [0]
    assert odd(tree) == [(0, "self-parent", "a")]


def test_an_entry_appended_as_its_own_parent_is_a_root() -> None:
    tree = grown(("a", None))
    assert tree.append("b", "b") == 1
    assert tree.path(1) == [1]
    assert odd(tree) == [(1, "self-parent", "b")]


@pytest.mark.parametrize("size", [2, 3, 10, 5000])
def test_a_cycle_is_cut_at_its_earliest_entry(size: int) -> None:
    ring: Fed = [(f"n{at}", f"n{(at + 1) % size}") for at in range(size)]
    tree = grown(("before", None), *ring, ("hangs-on", "n0"))
    assert tree.roots() == [0, 1]
    assert tree.path(2) == [1, *range(size, 1, -1)]
    assert tree.path(size + 1) == [1, size + 1]
    assert [each for each in odd(tree) if each[1] == "cycle"] == [(1, "cycle", "n1")]


def test_two_cycles_are_both_cut() -> None:
    tree = grown(("a", "b"), ("b", "a"), ("c", "d"), ("d", "c"))
    assert tree.roots() == [0, 2]
    assert [each for each in odd(tree) if each[1] == "cycle"] == [(0, "cycle", "b"), (2, "cycle", "d")]


def test_a_tail_that_leads_into_a_cycle_is_kept() -> None:
    tree = grown(("t", "a"), ("a", "b"), ("b", "a"))
    assert tree.path(0) == [1, 0]
    assert tree.roots() == [1]


def test_a_cycle_that_closes_later_is_cut_when_it_closes() -> None:
    tree = grown(("a", "b"))
    assert tree.path(0) == [0]
    tree.extend(["b"], ["a"])
    assert tree.path(1) == [0, 1]
    assert odd(tree) == [(0, "cycle", "b")]


def test_a_cycle_that_a_later_entry_breaks_is_no_longer_cut() -> None:
    """The later entry with an id has it, so a cycle with the earlier one may become a plain path."""
    tree = grown(("a", "b"), ("b", "a"))
    assert tree.path(1) == [0, 1]
    tree.extend(["b"], [None])
    assert tree.path(0) == [2, 0]
    assert tree.path(1) == [2, 0, 1]
    assert odd(tree) == [(0, "forward-reference", "b"), (1, "duplicate-id", "b")]


def test_a_very_long_path_is_walked() -> None:
    count = 200_000
    tree = grown(("n0", None), *((f"n{at}", f"n{at - 1}") for at in range(1, count)))
    assert len(tree.path(count - 1)) == count
    assert tree.common_ancestor(count - 1, count // 2) == count // 2


names = st.sampled_from("abcdefgh")
fed = st.lists(st.tuples(names, st.none() | names | st.just("lost")), max_size=14)


def reference(nodes: Fed) -> tuple[list[int | None], set[tuple[int, str, str]]]:
    """A simple second implementation of the rules: (parents, problems)."""
    last = {id: node for node, (id, _) in enumerate(nodes)}
    parents: list[int | None] = [None if parent is None else last.get(parent) for _, parent in nodes]
    problems = {(node, "duplicate-id", id) for node, (id, _) in enumerate(nodes) if last[id] != node}
    problems |= {
        (node, "missing-parent", parent) for node, (_, parent) in enumerate(nodes) if parent and parent not in last
    }
    for node in range(len(nodes)):
        ring = [node]
        while (following := parents[ring[-1]]) is not None and following not in ring:
            ring.append(following)
        if following == node:
            first = min(ring)
            towards = parents[first]
            assert towards is not None
            problems.add((first, "self-parent" if len(ring) == 1 else "cycle", nodes[towards][0]))
            parents[first] = None
    for node, parent in enumerate(parents):
        if parent is not None and parent > node:
            problems.add((node, "forward-reference", nodes[parent][0]))
    return parents, problems


@examples(400)
@given(fed)
def test_parents_and_problems_follow_the_rules(nodes: Fed) -> None:
    parents, problems = reference(nodes)
    tree = grown(*nodes)
    assert list(tree.parents()) == parents
    assert sorted(odd(tree)) == sorted(problems)
    assert [problem.node for problem in tree.problems()] == sorted(problem.node for problem in tree.problems())


@examples(400)
@given(fed, st.lists(st.tuples(st.integers(1, 4), st.booleans(), st.booleans()), max_size=14))
def test_a_tree_built_in_parts_equals_the_tree_built_at_once(nodes: Fed, parts: list[tuple[int, bool, bool]]) -> None:
    whole, pieces = grown(*nodes), Tree()
    at = 0
    for size, by_append, looked in [*parts, (len(nodes), False, True)]:
        part = nodes[at : at + size]
        at += size
        if by_append:
            assert [pieces.append(id, parent) for id, parent in part] == list(range(at - size, at))[: len(part)]
        else:
            pieces.extend([id for id, _ in part], [parent for _, parent in part])
        if looked:
            pieces.problems()
            pieces.children(None)
    assert list(pieces.parents()) == list(whole.parents())
    assert sorted(odd(pieces)) == sorted(odd(whole))
    assert pieces.node_of == whole.node_of
    assert [pieces.children(node) for node in (None, *range(len(nodes)))] == [
        whole.children(node) for node in (None, *range(len(nodes)))
    ]


@examples(200)
@given(fed)
def test_every_node_is_reached_from_a_root_exactly_once(nodes: Fed) -> None:
    tree = grown(*nodes)
    assert sorted(tree.iter_subtree(None)) == list(range(len(nodes)))
    reached = [node for root in tree.roots() for node in tree.iter_subtree(root)]
    assert sorted(reached) == list(range(len(nodes)))


@examples(200)
@given(fed)
def test_each_step_of_a_path_is_the_parent_of_the_next(nodes: Fed) -> None:
    tree = grown(*nodes)
    for node in range(len(nodes)):
        path = tree.path(node)
        assert path[-1] == node
        assert path[0] in tree.roots()
        assert [tree.parent(step) for step in path] == [None, *path[:-1]]


@examples(200)
@given(fed.filter(bool), st.data())
def test_the_common_ancestor_is_the_last_step_two_paths_share(nodes: Fed, data: st.DataObject) -> None:
    tree = grown(*nodes)
    one, other = (data.draw(st.integers(0, len(nodes) - 1)) for _ in range(2))
    shared = [step for step in tree.path(one) if step in tree.path(other)]
    assert tree.common_ancestor(one, other) == (shared[-1] if shared else None)


def test_a_tree_problem_is_a_value() -> None:
    assert TreeProblem(1, "cycle", "a") == TreeProblem(1, "cycle", "a")
