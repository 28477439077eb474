"""Ends of branches: one rule for the listing of branches and for conversions."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

import sessiontree
from sessiontree.branches.tips import find_tips
from sessiontree.session import branch_ends
from sessiontree.session.branch_ends import find_branch_ends, newest_leaves
from sessiontree.session.history import history_links
from sessiontree.session.reader import Reader
from tests.builders import json_line

CORPUS = sorted((Path(__file__).parents[1] / "corpus").rglob("*.jsonl"))


def sessions() -> list[Reader]:
    found: list[Reader] = []
    for path in CORPUS:
        with suppress(sessiontree.SessionTreeError):
            found.append(sessiontree.open(path))
    return found


def claude_line(kind: str, id: str, parent: str | None, **fields: object) -> bytes:
    time = f"2026-02-16T10:00:{int(id[1:]):02}.000Z"
    return json_line({"parentUuid": parent, "type": kind, "uuid": id, "timestamp": time, **fields})


def prompt(id: str, parent: str | None) -> bytes:
    return claude_line("user", id, parent, message={"role": "user", "content": id})


def test_ends_by_links_are_those_by_histories() -> None:
    linked = 0
    for session in sessions():
        links, leaves = history_links(session), newest_leaves(session, session.leaf)
        linked += links is not None
        by_links = [end.node for end in find_branch_ends(session, links, leaves)]
        assert by_links == [end.node for end in find_branch_ends(session, None, leaves)], session.location
    assert linked > 20


def test_a_search_that_tells_contexts_apart_finds_the_same_ends() -> None:
    for session in sessions():
        leaves = newest_leaves(session, session.leaf)
        ends = find_branch_ends(session, history_links(session), leaves, distinct_contexts=True)
        assert list(dict.fromkeys(end.node for end in ends)) == find_tips(session), session.location


def test_leaves_after_the_same_message_are_one_branch_unless_their_contexts_differ(tmp_path: Path) -> None:
    preserved = {"headUuid": "U2", "anchorUuid": "S9", "tailUuid": "U2"}
    metadata = {"trigger": "manual", "preTokens": 1, "preservedSegment": preserved}
    boundary = {"subtype": "compact_boundary", "logicalParentUuid": "U2", "compactMetadata": metadata}
    path = tmp_path / "session.jsonl"
    path.write_bytes(prompt("U1", None) + prompt("U2", "U1") + claude_line("system", "B3", None, **boundary))
    session = sessiontree.open(path, dialect="claude")
    tree, types, links = session.journal.tree, session.journal.types, history_links(session)
    leaves = newest_leaves(session, session.leaf)

    def find(*, distinct_contexts: bool) -> list[tuple[str, str]]:
        ends = find_branch_ends(
            session,
            links,
            leaves,
            is_message=lambda node: types[node] == "message",
            distinct_contexts=distinct_contexts,
        )
        return [(tree.ids[end.node], tree.ids[end.leaf]) for end in ends]

    assert find(distinct_contexts=False) == [("U2", "B3")]
    assert find(distinct_contexts=True) == [("U2", "B3"), ("U2", "U2")]


def test_what_is_not_a_message_ends_no_branch(tmp_path: Path) -> None:
    with sessiontree.create(cwd="/tmp", path=tmp_path / "session.jsonl", home=tmp_path) as session:
        session.append("user", "first")
        second = session.append("user", "second").id
        session.label(second, "a label")
        (end,) = find_branch_ends(session, history_links(session), newest_leaves(session, session.leaf))
        assert session.journal.tree.ids[end.node] == second
        by_type = find_branch_ends(
            session, history_links(session), newest_leaves(session, session.leaf), is_message=lambda node: False
        )
        assert by_type == []


@pytest.mark.parametrize("distinct_contexts", [False, True])
def test_no_history_is_built_for_results_of_parallel_calls(
    distinct_contexts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = sessiontree.open(Path(__file__).parents[1] / "corpus" / "claude" / "03_parallel.jsonl")
    leaves = newest_leaves(session, session.leaf)
    assert len(leaves) > 1, "results of parallel calls are leaves"
    built: list[str | None] = []
    history_nodes = branch_ends.history_nodes

    def counting(session: Reader, leaf: str | None) -> list[int]:
        built.append(leaf)
        return history_nodes(session, leaf)

    monkeypatch.setattr(branch_ends, "history_nodes", counting)
    assert len(find_branch_ends(session, None, leaves, distinct_contexts=distinct_contexts)) == 1
    assert built == [session.leaf]
