"""Any sequence of operations loses nothing, keeps calls with their results, fits the window, and can be undone."""

from __future__ import annotations

import contextlib
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree import Session
from sessiontree.compaction import MEASURED, compact, prune, undo
from sessiontree.compaction.context_units import build_units
from sessiontree.compaction.strategies import STRATEGIES
from sessiontree.compaction.token_estimate import estimated_size
from sessiontree.core.messages import tool_calls
from sessiontree.errors import CompactionError
from sessiontree.repair import examine
from sessiontree.stores.contract import SessionStore
from tests.builders import examples
from tests.compaction.sessions import DIALECTS, sent, separated, stored, worked_session
from tests.conversion.conversations import assistant, call, result, text
from tests.stores import FILES_AND_POSTGRESQL, open_stored, stored_bytes

steps = st.one_of(
    st.tuples(st.just("ask"), st.integers(0, 400)),
    st.tuples(st.just("tools"), st.integers(1, 3)),
    st.tuples(st.just("half"), st.integers(1, 2)),
    st.tuples(st.just("compact"), st.sampled_from([*STRATEGIES, None]), st.sampled_from([0, 40, 300, 5000])),
    st.tuples(st.just("fit"), st.sampled_from([600, 900, 2000, 100_000])),
    st.tuples(st.just("branch"), st.integers(0, 60)),
    st.tuples(st.just("undo"), st.just(0)),
    st.tuples(st.just("prune"), st.just(0)),
)


class Work:
    """A user who works on one session and reads it again after each step."""

    def __init__(self, store: SessionStore, dialect: str) -> None:
        self.store = store
        self._dialect = dialect
        self._count = 0
        self._open_calls: list[str] = []

    def opened(self) -> Session:
        return open_stored(self.store, self._dialect)

    def lines(self) -> Counter[bytes]:
        return Counter(stored_bytes(self.store).splitlines())

    def do(self, step: tuple[object, ...]) -> None:
        session = self.opened()
        match step:
            case ("ask", int(words)):
                self._settle(session)
                session.append("user", "please " + "word " * words)
                session.append(assistant(text("sure " + "said " * words)))
            case ("tools", int(count)):
                self._settle(session)
                self._call(session, count)
                self._settle(session)
                session.append(assistant(text("done")))
            case ("half", int(count)):
                self._settle(session)
                self._call(session, count)
            case ("compact", strategy, int(keep)):
                self._compact(session, strategy=strategy, keep=keep)
            case ("fit", int(window)):
                self._compact(session, window=window)
            case ("branch", int(at)):
                session.move(self._complete_entry(session, at))
                self._open_calls = []
            case ("undo", _):
                self._undo(session)
            case ("prune", _) if session.dialect.name in ("native", "pi"):
                prune(session)
            case _:
                pass
        session.close()

    def _call(self, session: Session, count: int) -> None:
        self._open_calls = [f"toolu_{self._count}_{number}" for number in range(count)]
        self._count += 1
        calls = [call(id, "bash", {"command": f"run {id}"}) for id in self._open_calls]
        session.append("user", "run something")
        session.append(assistant(text("running"), *calls))

    def _settle(self, session: Session) -> None:
        for id in self._open_calls:
            session.append(result(id, "bash", "output " * 90))
        self._open_calls = []

    def _compact(self, session: Session, **how: object) -> None:
        before = sent(session)
        leaf_before_it = session.leaf
        data = stored_bytes(self.store)
        try:
            done = compact(session, **how)  # type: ignore[arg-type]
        except CompactionError:
            assert stored_bytes(self.store) == data
            assert sent(self.opened()) == before
            return
        assert done.leaf_before == leaf_before_it
        window = how.get("window")
        if isinstance(window, int):
            assert estimated_size(self.opened().context().messages, MEASURED) <= window
        again = self.opened()
        undo(again)
        assert sent(self.opened()) == before
        if not self._open_calls:
            self.opened().append("user", "on")
            assert sent(self.opened())[:-1] == before
        compacted = self.opened()
        if not self._open_calls:
            with contextlib.suppress(CompactionError):  # with one more word it may not fit
                compact(compacted, **how)  # type: ignore[arg-type]

    def _undo(self, session: Session) -> None:
        if self._open_calls:
            return
        if build_units(session, session.leaf).previous is not None:
            undo(session)
            return
        with pytest.raises(CompactionError, match="no compaction"):
            undo(session)

    def _complete_entry(self, session: Session, at: int) -> str | None:
        """An entry of the context after which no call lacks its result."""
        context = session.context()
        waiting: set[str] = set()
        places: list[str] = []
        for message, source in zip(context.messages, context.sources, strict=True):
            waiting |= {one.id for one in tool_calls(message)}
            waiting.discard(getattr(message, "tool_call_id", ""))
            if not waiting:
                places.append(source)
        return places[at % len(places)] if places else session.leaf


@FILES_AND_POSTGRESQL
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.usefixtures("store_kind")
@examples(40)
@given(st.lists(steps, min_size=1, max_size=9))
def test_any_sequence_of_operations_loses_no_line_splits_no_pair_and_can_be_undone(
    dialect: str, todo: list[tuple[object, ...]]
) -> None:
    work = Work(stored(worked_session(turns=1, words=60), dialect), dialect)
    original = work.lines()
    for step in todo:
        lines = work.lines()
        work.do(step)
        assert lines <= work.lines(), step
        assert separated(work.opened()) == [], step
    assert original <= work.lines()
    findings = [found.rule.id for found in examine(work.opened()) if found.rule.severity != "note"]
    assert findings == []
