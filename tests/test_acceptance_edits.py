"""The changes that the acceptance run makes to generated transcripts, and the histories it expects of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from acceptance import edits, transcripts
from acceptance.comparison import drops_open_calls

import sessiontree
from sessiontree.core.messages import message_text

COMMAND_BESIDE_A_RESULT = 945817413
"""The seed of a transcript with a branch after a result, and the output of a command beside that result."""

CONFIRMED = {
    539744628: "a boundary with a parent, and no user or assistant line after it",
    5150121: "a compaction preserves a command at the end of the path",
    5150317: "a compaction replaces the summary after an open call, which is sent again",
    5151113: "a branch drops an open call that separated other calls from their results",
    855510839: "a command in a response stays, because what followed it was repeated elsewhere",
    424227: "a command after the result of one of several calls stays when another call has no result",
    20000215: "a command follows another one after lines that were preserved: it stays",
    20004864: "a compaction cuts between a call and its result",
    20017011: "a line without a uuid is not continued",
    5153341: "a move to a response that a cycle puts before its own prompts",
    20002476: "a move to the output of a command in a cycle of repeated lines",
    20006671: "early results of a response with a note between its shards",
}
"""Seeds of transcripts whose history after the changes was confirmed with the client."""


def test_a_command_beside_the_result_that_a_branch_starts_at_is_expected(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    path.write_bytes(transcripts.generate(COMMAND_BESIDE_A_RESULT))
    edits.edit_transcript(path, COMMAND_BESIDE_A_RESULT)
    session = sessiontree.open(path, dialect="claude")
    messages = list(session.context().messages)
    assert [message_text(message) for message in messages][-2:] == [
        "<local-command-stdout>C1</local-command-stdout>",
        "E2",
    ]
    without_command = [*messages[:-2], messages[-1]]
    with pytest.raises(edits.WrongHistoryError):
        edits._check(path, without_command, "branch")


@pytest.mark.parametrize("seed", CONFIRMED, ids=CONFIRMED.__getitem__)
def test_a_history_that_the_client_confirmed_is_expected(seed: int, tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    path.write_bytes(transcripts.generate(seed))
    edits.edit_transcript(path, seed)


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
