"""The changes that the acceptance run makes to generated transcripts, and the histories it expects of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from acceptance import edits, transcripts

import sessiontree
from sessiontree.core.messages import message_text

COMMAND_BESIDE_A_RESULT = 945817413
"""The seed of a transcript with a branch after a result, and the output of a command beside that result."""


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
