"""Generated transcripts without the real client: our own operations give the history that was intended.

`make acceptance` lets the real client read the same transcripts.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from acceptance.edits import edit_transcript
from acceptance.transcripts import generate

SEEDS = range(150)


def test_a_seed_always_gives_the_same_transcript() -> None:
    assert generate(3) == generate(3) != generate(4)


@pytest.mark.parametrize(
    "wanted",
    [
        b'"last-prompt"',
        b'"progress"',
        b'"preservedMessages"',
        b'"preservedSegment"',
        b'"snipMetadata"',
        b'"isSidechain":true',
        b'"parentUuid":"lost1"',
        b"not JSON\n",
    ],
)
def test_the_generator_produces_every_kind_of_line(wanted: bytes) -> None:
    assert any(wanted in generate(seed) for seed in range(1000))


@pytest.mark.parametrize("seed", SEEDS)
def test_writing_to_a_generated_transcript_gives_the_intended_history(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SESSIONTREE_HOME", str(tmp_path / "home"))
    path = tmp_path / "session.jsonl"
    before = generate(seed)
    path.write_bytes(before)
    edit_transcript(path, seed)
    assert path.read_bytes().startswith(before)
