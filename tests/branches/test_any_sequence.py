"""Any sequence of operations: no call is separated from its result, and no line is lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree import Session
from sessiontree.branches.diff import diff
from sessiontree.branches.leave import leave
from sessiontree.branches.list import list_branches
from sessiontree.branches.merge import merge
from sessiontree.branches.merge_records import append_point
from sessiontree.branches.pick import pick
from sessiontree.branches.replay import check_no_open_calls
from sessiontree.compaction.compact import compact, undo
from sessiontree.errors import CompactionError, UsageError
from tests.branches.worlds import (
    DIALECTS,
    beginning,
    check_lines_are_kept,
    check_pairs_are_whole,
    context_texts,
    findings,
    stored,
    write_call,
)
from tests.builders import examples
from tests.conversion.conversations import assistant, call, result, text
from tests.stores import open_stored, stored_bytes

pytestmark = pytest.mark.usefixtures("store_kind")

PLACES = st.integers(0, 30)
STEPS = st.one_of(
    st.tuples(st.just("say"), PLACES, st.integers(0, 3)),
    st.tuples(st.just("merge"), PLACES, PLACES, st.sampled_from(["summary", "append"])),
    st.tuples(st.just("pick"), st.lists(PLACES, min_size=1, max_size=4), PLACES),
    st.tuples(st.just("leave"), PLACES),
    st.tuples(st.just("move"), PLACES),
    st.tuples(st.just("compact"), st.integers(0, 60)),
    st.tuples(st.just("undo")),
)


class Walk:
    """A session that is checked after each operation on it."""

    def __init__(self, dialect: str) -> None:
        self.dialect = dialect
        self.store = stored(beginning("/work"), dialect)
        self.turns = 0

    def opened(self) -> Session:
        return open_stored(self.store, self.dialect)

    def data(self) -> bytes:
        return stored_bytes(self.store)

    def do(self, step: tuple[Any, ...]) -> None:
        before = self.data()
        session = self.opened()
        try:
            getattr(self, step[0])(session, *step[1:])
        except (UsageError, CompactionError):
            session.flush()
            assert self.data() == before, "the operation was refused but something was written"
        session.flush()
        after = self.data()
        check_lines_are_kept(before, after)
        found = self.opened()
        assert context_texts(found) == context_texts(session), "the current entry after reopening differs"
        for leaf in self.places_to_check(found):
            check_pairs_are_whole(found, leaf)
        assert findings(found) == []

    def places_to_check(self, session: Session) -> Sequence[str | None]:
        if self.dialect == "neovate":  # it uses the order of lines, so only the current path reads as it was written
            return [None]
        return session.leaves()

    def place(self, session: Session, number: int) -> str:
        """One of the entries with a message, on any branch."""
        sources = {source: None for leaf in session.leaves() for source in session.context(leaf).sources}
        return list(sources)[number % len(sources)]

    def say(self, session: Session, at: int, count: int) -> None:
        place = append_point(session, self.place(session, at))
        check_no_open_calls(session, place)
        self.turns += 1
        branch = session.branch(place)
        branch.append("user", f"请做第{self.turns}件事")
        ids = [f"toolu_{self.turns}_{number}" for number in range(count)]
        calls = [
            write_call(self.dialect, id, f"f{self.turns % 3}.py", f"{self.turns}")
            if number
            else call(id, "bash", {"command": "x"})
            for number, id in enumerate(ids)
        ]
        if calls:
            branch.append(assistant(text(f"Doing {self.turns}."), *calls))
        for each in calls:
            branch.append(result(each["id"], each["name"], f"output {self.turns}"))
        branch.append(assistant(text(f"Did {self.turns}.")))
        assert branch.leaf is not None
        session.move(branch.leaf)

    def merge(self, session: Session, source: int, into: int, how: str) -> None:
        one, other = self.place(session, source), self.place(session, into)
        here = set(context_texts(session, other))
        done = merge(session, one, into=other, how=how)  # type: ignore[arg-type]
        size = session.journal.size
        again = merge(session, one, into=other, how=how)  # type: ignore[arg-type]
        assert again.nothing is not None
        if done.entry is not None:
            assert merge(session, one, how=how).nothing is not None  # type: ignore[arg-type]
            assert here <= set(context_texts(session)), "messages of our branch are gone"
        assert session.journal.size == size

    def pick(self, session: Session, entries: list[int], onto: int) -> None:
        chosen = [self.place(session, entry) for entry in entries]
        place = self.place(session, onto)
        done = pick(session, chosen, onto=place)
        assert done.entry is None or done.messages >= 1
        assert pick(session, chosen, onto=place).nothing is not None

    def leave(self, session: Session, to: int) -> None:
        place = self.place(session, to)
        check_no_open_calls(session, place)
        leave(session, place)

    def move(self, session: Session, to: int) -> None:
        place = append_point(session, self.place(session, to))
        check_no_open_calls(session, place)
        session.move(place)

    def compact(self, session: Session, keep: int) -> None:
        compact(session, keep=keep)

    def undo(self, session: Session) -> None:
        undo(session)


@pytest.mark.parametrize("dialect", DIALECTS)
@examples(20)
@given(st.lists(STEPS, min_size=2, max_size=9))
def test_after_any_steps_pairs_are_complete_and_no_line_is_lost(dialect: str, steps: list[tuple[Any, ...]]) -> None:
    walk = Walk(dialect)
    for step in [("say", 1, 2), ("say", 1, 1), *steps]:
        walk.do(step)
    session = walk.opened()
    branches = list_branches(session)
    assert sum(branch.is_active for branch in branches) == 1
    diff(session, branches[0].leaf, branches[-1].leaf)


FACTS = st.lists(
    st.tuples(
        st.from_regex(r"[a-z]{3,9}\.(py|rs)", fullmatch=True),
        st.from_regex(r"[A-Z][a-z]{4,8}Error: [a-z0-9 ]{4,30}[0-9]{3}", fullmatch=True),
        st.sampled_from(["SQLite", "正则表达式", "a queue", "gRPC"]),
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda fact: fact[0],
)


@pytest.mark.parametrize("how", ["summary", "append"])
@examples(20)
@given(ours=FACTS, theirs=FACTS, dialect=st.sampled_from(DIALECTS))
def test_facts_of_both_branches_are_reachable_in_the_merged_context(
    how: str, ours: list[tuple[str, str, str]], theirs: list[tuple[str, str, str]], dialect: str
) -> None:
    store = stored(beginning("/work"), dialect)
    session = open_stored(store, dialect)
    fork = session.context().sources[-1]
    ends: list[str] = []
    for side, facts in enumerate((ours, theirs)):
        branch = session.branch(fork)
        for number, (file, error, decision) in enumerate(facts):
            id = f"toolu_{side}_{number}"
            branch.append("user", f"Work on {file}, please.")
            made = write_call(dialect, f"{id}w", file, f"{side}{number}")
            run = call(f"{id}r", "Bash" if dialect == "claude" else "bash", {"command": f"check {file}"})
            branch.append(assistant(text(f"We decided to use {decision} for {file}."), made, run))
            branch.append(result(made["id"], made["name"], "written"))
            branch.append(result(run["id"], run["name"], error, is_error=True))
            branch.append(assistant(text(f"Still to do: mend {file}.")))
        ends.append(str(branch.leaf))
    done = merge(session, ends[1], into=ends[0], how=how)  # type: ignore[arg-type]
    merged = " ".join("\n".join(context_texts(open_stored(store, dialect))).split())
    for file, error, decision in (*ours, *theirs):
        assert file in merged
        assert " ".join(error.split()) in merged
        assert decision in merged
    assert {file for file, _, _ in theirs} == set(done.files.modified)
