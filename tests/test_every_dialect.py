"""What holds for every file of every dialect in the corpus."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import sessiontree
from sessiontree.core.lines import iter_lines
from sessiontree.repair import examine, plan_repair

CORPUS = [path for path in sorted((Path(__file__).parent / "corpus").rglob("*.jsonl")) if path.stat().st_size]
FILES = [pytest.param(path, id=f"{path.parent.name}-{path.stem}") for path in CORPUS]


@pytest.mark.parametrize("path", FILES)
def test_every_line_is_an_entry_the_header_or_a_fragment_byte_for_byte(path: Path) -> None:
    session = sessiontree.open(path)
    journal = session.journal
    data = path.read_bytes()
    kept = {raw.strip() for raw in journal.iter_raw(range(len(journal)))}
    kept |= {fragment.raw.strip() for fragment in session.fragments}
    if journal.header_span is not None:
        kept.add(data[journal.header_span.start : journal.header_span.end].strip())
    assert [line for _, line in iter_lines(data) if line.strip() and line.strip() not in kept] == []


@pytest.mark.parametrize("path", FILES)
def test_looking_at_a_file_in_every_way_changes_no_byte_and_no_time(path: Path) -> None:
    before = path.read_bytes(), path.stat().st_mtime_ns, sorted(os.listdir(path.parent))
    session = sessiontree.open(path)
    session.context()
    list(session)
    examine(session)
    plan_repair(session)
    session.close()
    assert (path.read_bytes(), path.stat().st_mtime_ns, sorted(os.listdir(path.parent))) == before


@pytest.mark.parametrize("path", FILES)
def test_everything_needed_to_resume_can_be_asked_for(path: Path) -> None:
    session = sessiontree.open(path)
    assert session.leaf is None or session.leaf in session
    assert session.last_activity is None or session.last_activity[:2] == "20"
    assert set(session.orphans()) <= set(session.ids)
    assert session.usage().requests >= 0
    for call in session.pending_calls():
        assert call.id


def test_a_claude_transcript_tells_branch_folder_model_and_usage_of_each_response_once() -> None:
    session = sessiontree.open(next(path for path in CORPUS if path.stem == "03_parallel"))
    shards = [entry for entry in session if getattr(getattr(entry, "message", None), "response_id", None)]
    responses = {entry.message.response_id for entry in shards}  # type: ignore[union-attr]
    assert len(shards) > len(responses)
    assert session.usage().requests == len(responses)
    assert session.cwd
    assert session.context().state.model is not None
