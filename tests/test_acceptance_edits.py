"""The changes that the acceptance run makes to generated transcripts, and the histories it expects of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from acceptance import edits
from acceptance.comparison import drops_open_calls

import sessiontree
from sessiontree.core.messages import User, message_text

CORPUS = Path(__file__).parent / "corpus" / "claude-rules"
CONFIRMED = [json.loads(line) for line in (CORPUS / "edited.txt").read_text().splitlines()]
"""Generated transcripts, and seeds of changes after which the client confirmed the history."""


def edited(case: dict[str, Any], folder: Path) -> Path:
    path = folder / "session.jsonl"
    path.write_text(case["transcript"])
    edits.edit_transcript(path, case["seed"])
    return path


def test_a_command_beside_the_result_that_a_branch_starts_at_is_expected(tmp_path: Path) -> None:
    (case,) = [case for case in CONFIRMED if case["name"] == "a command beside the result that a branch starts at"]
    path = edited(case, tmp_path)
    session = sessiontree.open(path, dialect="claude")
    messages = list(session.context().messages)
    assert [message_text(message) for message in messages][-2:] == [
        "<local-command-stdout>C1</local-command-stdout>",
        "E2",
    ]
    without_command = [*messages[:-2], messages[-1]]
    with pytest.raises(edits.WrongHistoryError):
        edits._check(path, edits.Intended(without_command), "branch")


def test_a_note_at_the_end_may_be_sent_elsewhere_but_not_be_lost(tmp_path: Path) -> None:
    name = "a move to the output of a command between the shards of a response"
    (case,) = [case for case in CONFIRMED if case["name"] == name]
    path = edited(case, tmp_path)
    messages = list(sessiontree.open(path, dialect="claude").context().messages)
    (note,) = [message for message in messages if "C2" in message_text(message)]
    elsewhere = [note, *(message for message in messages if message != note)]
    edits._check(path, edits.Intended(elsewhere, [note]), "move")
    with pytest.raises(edits.WrongHistoryError):
        edits._check(path, edits.Intended(elsewhere), "move")
    lost = User(note.timestamp, "another note")
    with pytest.raises(edits.WrongHistoryError):
        edits._check(path, edits.Intended([*messages, lost], [lost]), "move")


@pytest.mark.parametrize("case", CONFIRMED, ids=lambda case: case["name"])
def test_a_history_that_the_client_confirmed_is_expected(case: dict[str, Any], tmp_path: Path) -> None:
    edited(case, tmp_path)


CALLS = ["user: go", "assistant calls Bash a: {}", "assistant calls Bash b: {}"]
NOTHING = "(nothing was recorded)"


def test_a_history_may_lose_calls_without_a_result_and_nothing_else() -> None:
    before = [*CALLS, "result of a: x", f"error of b: {NOTHING}"]
    assert drops_open_calls(before, [*CALLS[:2], "result of a: x"])
    assert not drops_open_calls(before, [*CALLS[:2], "result of a: y"])
    assert not drops_open_calls(before, [CALLS[0]])


def test_a_lost_call_may_give_other_calls_their_results_back_in_their_place() -> None:
    before = [*CALLS[:2], f"error of a: {NOTHING}", "user: note", CALLS[2], f"error of b: {NOTHING}"]
    assert drops_open_calls(before, [*CALLS[:2], "result of a: x", "user: note"])
    assert not drops_open_calls(before, [*CALLS[:2], "user: note", "result of a: x"])
    assert not drops_open_calls(before, [*CALLS[:2], "result of a: x"])
