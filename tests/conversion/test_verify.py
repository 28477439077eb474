"""The comparison of a converted session with its source."""

from __future__ import annotations

from typing import Any

import pytest

import sessiontree
from sessiontree import Session
from sessiontree.conversion.verify import first_difference
from sessiontree.stores.memory import MemoryStore
from tests.conversion.conversations import assistant, call, result, text

QUESTION = {"role": "user", "content": "Read both."}
CALLS = assistant(call("call_1", "read", {"path": "a"}), call("call_2", "read", {"path": "b"}))
FIRST = result("call_1", "read", "the first file")
SECOND = result("call_2", "read", "the second file")
PROMPT = {"role": "user", "content": "And?"}
DONE = assistant(text("Done."))


def session_of(*messages: dict[str, Any]) -> Session:
    session = sessiontree.create(cwd="/src", in_memory=True)
    for message in messages:
        session.append(message)
    return session


def compare(one: Session, other: Session) -> tuple[str | None, str | None] | None:
    found = first_difference(one, one.leaf, other, all_branches=False)
    return None if found is None else (found.source, found.copy)


@pytest.mark.parametrize(
    "moved",
    [
        pytest.param((QUESTION, CALLS, FIRST, SECOND, PROMPT, DONE), id="directly-after-the-calls"),
        pytest.param((QUESTION, CALLS, SECOND, PROMPT, FIRST, DONE), id="in-another-order"),
        pytest.param((QUESTION, FIRST, CALLS, PROMPT, SECOND, DONE), id="before-its-call"),
    ],
)
def test_a_result_may_be_at_another_place(moved: tuple[dict[str, Any], ...]) -> None:
    assert compare(session_of(QUESTION, CALLS, PROMPT, FIRST, SECOND, DONE), session_of(*moved)) is None


@pytest.mark.parametrize(
    ("changed", "lost"),
    [
        pytest.param((QUESTION, CALLS, PROMPT, FIRST, DONE), "the second file", id="a-lost-result"),
        pytest.param((QUESTION, CALLS, PROMPT, FIRST, FIRST, DONE), "the second file", id="a-repeated-result"),
        pytest.param(
            (QUESTION, CALLS, PROMPT, FIRST, result("call_1", "read", "the second file"), DONE),
            "the second file",
            id="the-result-of-another-call",
        ),
        pytest.param((CALLS, FIRST, SECOND, QUESTION, PROMPT, DONE), "Read both.", id="a-prompt-at-another-place"),
        pytest.param((QUESTION, CALLS, FIRST, SECOND, DONE, PROMPT), "And?", id="an-answer-before-its-prompt"),
    ],
)
def test_anything_else_is_a_difference(changed: tuple[dict[str, Any], ...], lost: str) -> None:
    found = compare(session_of(QUESTION, CALLS, PROMPT, FIRST, SECOND, DONE), session_of(*changed))
    assert found is not None
    assert found[0] is not None
    assert lost in found[0]


def test_a_result_after_a_summary_is_converted_to_claude_code_with_every_entry() -> None:
    session = session_of(QUESTION, CALLS, FIRST)
    session.append({"type": "compaction", "summary": "Much was done.", "firstKeptEntryId": session.path_ids()[0]})
    session.append(SECOND)
    session.append(DONE)
    converted = sessiontree.convert(session, "claude")
    there = sessiontree.open_store(MemoryStore(b"".join(converted.lines)), dialect="claude")
    assert first_difference(session, session.leaf, there, all_branches=False) is None
