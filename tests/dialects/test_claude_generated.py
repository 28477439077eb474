"""Generated transcripts without the real client: our own operations give the history that was intended.

`make acceptance` lets the real client read the same transcripts.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from acceptance.edits import edit_transcript
from acceptance.transcripts import generate

from sessiontree.dialects.contract import AS_CLIENT
from sessiontree.session.open import open_store
from sessiontree.stores.memory import MemoryStore

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
        b'"thinking"',
        b'"redacted_thinking"',
        b'"image"',
        b'"is_error":true',
        b'"queued_command"',
        b'"queue-operation"',
        b'"hook_progress"',
        b'"rendered":[{"content"',
        b'"stop_hook_summary"',
        b"[Request interrupted by user]",
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


def test_histories_of_generated_transcripts_by_links_are_those_by_walks() -> None:
    linked = beside = 0
    for seed in range(1200):
        session = open_store(MemoryStore(generate(seed)))
        links = session.dialect.find_history_links(session.journal, AS_CLIENT)
        if links is None:
            continue
        linked += 1
        for leaf in session.leaves():
            node = session.node_of(leaf)
            if node not in links.hidden and session.type_of(leaf) != "progress":
                history = session.dialect.find_history(session.journal, node, AS_CLIENT)
                assert links.history(node) == history, (seed, leaf)
                beside += session.type_of(leaf) in ("system", "attachment")
    assert linked > 200
    assert beside > 50
