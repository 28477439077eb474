"""Neovate's branches read from root to leaf after any moves, appends, merges and conversions, by us and by Neovate."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import sessiontree
from sessiontree.branches.merge import merge
from sessiontree.core.messages import message_text
from sessiontree.dialects.contract import is_metadata_id
from sessiontree.repair import examine
from sessiontree.session.session import Session
from tests.builders import THOROUGH, opened
from tests.conversion.conversations import assistant, call, result, text

PROBE = "and now?"
DIALECTS = ("claude", "omp", "pi", "native", "neovate")


def client_path(data: bytes) -> list[dict[str, Any]]:
    """The messages that Neovate loads: from the last message up its parents, in the order of the file."""
    messages = [line for line in map(json.loads, filter(None, data.split(b"\n"))) if line["type"] == "message"]
    by_uuid = {message["uuid"]: message for message in messages}
    on_path: set[str] = set()
    node = messages[-1]["uuid"] if messages else None
    while node in by_uuid:
        assert node not in on_path, "Neovate never ends on a cycle"
        on_path.add(node)
        node = by_uuid[node]["parentUuid"]
    return [message for message in messages if message["uuid"] in on_path]


def data_of(session: Session) -> bytes:
    return b"".join(line + b"\n" for line in session.journal.raw_lines())


def texts(session: Session, leaf: str | None = None) -> list[str]:
    return [message_text(message) for message in session.context(leaf).messages]


def client_texts(session: Session) -> list[str]:
    """The texts that Neovate sends."""
    lines = b"".join(json.dumps(line).encode() + b"\n" for line in client_path(data_of(session)))
    return texts(opened(lines, "neovate"))


class NeovateBranches(RuleBasedStateMachine):
    """A session next to a model of it: for each text, the texts from the root to it."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.paths: dict[str, list[str]] = {}
        self.current: list[str] = []
        self.session = sessiontree.create(cwd="/p", in_memory=True)

    @initialize()
    def start(self) -> None:
        self.session = opened(b"".join(sessiontree.convert(self.session, "neovate").lines), "neovate")
        self.ask()

    @rule()
    def ask(self) -> None:
        self._append({"role": "user", "content": self._next("question")})

    @rule()
    def answer(self) -> None:
        self._append(assistant(text(self._next("answer"))))

    @rule(results=st.integers(1, 3))
    def call_tools(self, results: int) -> None:
        words = self._next("looking")
        calls = [call(f"call-{self.count}-{at}", "read", {"path": "a"}) for at in range(results)]
        self._append(assistant(text(words), *calls))
        for made in calls:
            found = self._next("found")
            self._append(result(made["id"], "read", found))

    @rule(data=st.data())
    def move(self, data: st.DataObject) -> None:
        whole = [known for known in self.paths if not known.startswith(("looking", "found"))]
        chosen = data.draw(st.sampled_from(whole))
        self.session.move(self._find(chosen))
        self.current = list(self.paths[chosen])

    @precondition(lambda self: len(self._ends()) > 1)
    @rule(data=st.data(), how=st.sampled_from(["summary", "append"]))
    def merge(self, data: st.DataObject, how: Any) -> None:
        # A descendant of the current message has nothing to merge: `merge` refuses it.
        others = [end for end in self._ends() if self.paths[end][: len(self.current)] != self.current]
        if not others:
            return
        merged = merge(self.session, self._find(data.draw(st.sampled_from(others))), how=how)
        after = texts(self.session)
        assert after[: len(self.current)] == self.current
        assert merged is not None
        self.current = after
        self.paths.setdefault(after[-1], after)

    @rule(between=st.sampled_from(DIALECTS))
    def convert(self, between: str) -> None:
        """Convert to another dialect and back; the active branch stays active."""
        there = opened(b"".join(sessiontree.convert(self.session, between, branch="all").lines), between)
        back = sessiontree.convert(there, "neovate", branch="all")
        self.session = opened(b"".join(back.lines), "neovate")
        if self.current[-1] in self._ends():
            assert client_texts(self.session) == self.current

    @invariant()
    def the_current_branch_reads_from_root_to_leaf(self) -> None:
        assert texts(self.session) == self.current

    @invariant()
    def every_branch_reads_right_when_it_is_selected(self) -> None:
        for end in self._ends():
            copy = opened(data_of(self.session), "neovate")
            copy.move(self._find(end))
            assert texts(copy) == self.paths[end]
            # Neovate follows a move with the next message, as after its own forks.
            copy.append("user", PROBE)
            assert texts(copy) == [*self.paths[end], PROBE]
            assert client_texts(copy) == [*self.paths[end], PROBE]

    @invariant()
    def doctor_finds_nothing(self) -> None:
        assert [found.rule.id for found in examine(self.session) if found.rule.severity != "note"] == []

    def _next(self, kind: str) -> str:
        self.count += 1
        words = f"{kind} {self.count}"
        self.current = [*self.current, words]
        self.paths[words] = self.current
        return words

    def _append(self, message: dict[str, Any]) -> None:
        self.session.append(message)

    def _ends(self) -> list[str]:
        """The last texts of all branches."""
        inner = {path[-2] for path in self.paths.values() if len(path) > 1}
        return [known for known in self.paths if known not in inner]

    def _find(self, words: str) -> str:
        """The id of the line with a text, at the place where the model has it."""
        path = self.paths[words]
        session = self.session
        return next(
            id
            for id in session.journal.tree.ids
            if not is_metadata_id(id) and session.type_of(id) == "message" and texts(session, id) == path
        )


def test_branches_read_as_the_model_of_them_after_any_steps(store_kind: str) -> None:
    count = 100 if THOROUGH else 10
    tried = settings(
        max_examples=count // 5 if store_kind == "postgresql" else count,  # a step there takes several round trips
        stateful_step_count=12,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    run_state_machine_as_test(NeovateBranches, settings=tried)
