"""Claude Code: compaction and token estimates of transcripts whose messages are decoded on demand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

import sessiontree
from sessiontree import Session
from sessiontree.compaction import MEASURED, compact
from sessiontree.compaction.token_estimate import estimated_size
from sessiontree.core.jsonio import parse_object, render_json
from sessiontree.core.messages import LazyMessages
from sessiontree.errors import CompactionError
from sessiontree.providers import render
from sessiontree.session import reader
from tests.builders import json_line, opened

CORPUS = sorted(Path(__file__).parent.parent.joinpath("corpus", "claude").glob("*.jsonl"))


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read files of any size on demand, as large files are."""
    monkeypatch.setattr(reader, "_LARGE_FILE", 0)


def lazy(session: Session) -> LazyMessages:
    messages = session.context().messages
    assert isinstance(messages, LazyMessages)
    return messages


def text(value: Any) -> dict[str, Any]:
    return {"type": "text", "text": value}


def call(id: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": "Bash", "input": arguments}


def result(id: str, content: Any = "out", **fields: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id, "content": content, **fields}


THINKING = {"type": "thinking", "thinking": "hm", "signature": "s"}


def write_transcript(path: Path, contents: Iterable[tuple[str, Any]]) -> None:
    """Write a linear transcript; the assistant lines between two user lines are one response."""
    response = ""
    with path.open("wb") as file:
        for at, (kind, content) in enumerate(contents):
            message = {"role": kind, "content": content}
            if kind == "assistant":
                response = response or f"msg_{at}"
                message |= {"id": response, "model": "m", "usage": {"input_tokens": 1}}
            else:
                response = ""
            parent, time = f"u{at - 1}" if at else None, f"2026-03-01T12:{at // 60 % 60:02}:{at % 60:02}.000Z"
            line = {"type": kind, "uuid": f"u{at}", "parentUuid": parent, "timestamp": time, "message": message}
            copy = {"toolUseResult": content} if isinstance(content, list) and kind == "user" else {}
            file.write(render_json(line | copy) + b"\n")


def long_conversation() -> Iterator[tuple[str, Any]]:
    """A few thousand calls, one in twenty of which fails."""
    random = Random(3)
    for turn in range(700):
        yield "user", "Please see to it. " * random.randint(1, 9)
        for number in range(4):
            id = f"c{turn}-{number}"
            yield "assistant", [THINKING]
            yield "assistant", [text("I look at `a.py` and go on. " * random.randint(1, 20))]
            yield "assistant", [call(id, command=f"make check-{random.randint(1, 50)}")]
            output = "tests/test_a.py::test_one PASSED\n" * random.randint(1, 90)
            yield "user", [result(id, output, **({"is_error": True} if random.random() < 0.05 else {}))]
        yield "assistant", [text("It is done. " * random.randint(1, 40))]


@pytest.fixture(scope="module")
def long_transcript(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("long") / "s.jsonl"
    write_transcript(path, long_conversation())
    return path


def test_the_token_estimate_of_undecoded_messages_is_close(long_transcript: Path) -> None:
    messages = lazy(sessiontree.open(long_transcript))
    assert len(messages) > 4096
    exact = sum(map(MEASURED, messages))
    assert abs(estimated_size(messages, MEASURED) - exact) < exact * 0.06


@pytest.mark.usefixtures("waits")
@pytest.mark.parametrize("strategy", ["recent", "segment", "replace"])
@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_a_compaction_is_the_same_whether_the_file_was_read_before_or_not(path: Path, strategy: str) -> None:
    read, unread = sessiontree.open(path), sessiontree.open(path)
    assert len(read)
    outcomes = []
    for session in (read, unread):
        try:
            done = compact(session, strategy=strategy, keep=200, dry_run=True)
            outcomes.append((done.summary, done.plan, done.tokens_before, done.tokens_after))
        except CompactionError as error:
            outcomes.append((str(error),))
    assert outcomes[0] == outcomes[1]


# Parallel results, for readers that only know `preservedSegment`

CALLS = ("c1", "c2", "c3")


def fan_out(*more: dict[str, Any]) -> bytes:
    """A transcript as the client writes it: each result of a parallel call is a child of the line with its call."""

    def line(id: str, parent: str | None, kind: str, *blocks: dict[str, Any], **fields: Any) -> dict[str, Any]:
        message = {"role": kind, "content": list(blocks), **({"id": "msg_1", "model": "m"} if kind != "user" else {})}
        return {"type": kind, "uuid": id, "parentUuid": parent, "message": message, **fields}

    lines = [
        line("old", None, "user", text("old")),
        line("U", "old", "user", text("three things")),
        *(line(f"A{at}", f"A{at - 1}" if at else "U", "assistant", call(CALLS[at])) for at in range(3)),
        *(line(f"R{at}", f"A{at}", "user", result(CALLS[at], f"result of {CALLS[at]}")) for at in (2, 0, 1)),
        line("V", "R1", "user", text("and then")),
        *more,
    ]
    times = (f"2026-03-01T12:00:{at:02}.000Z" for at in range(60))
    return b"".join(json_line({**each, "timestamp": time}) for each, time in zip(lines, times, strict=False))


def client_compaction() -> list[dict[str, Any]]:
    kept = ["U", "A0", "A1", "A2", "R2", "R0", "R1", "V"]
    segment = {"headUuid": "U", "anchorUuid": "S", "tailUuid": "V"}
    metadata = {"preservedSegment": segment, "preservedMessages": {"anchorUuid": "S", "uuids": kept, "allUuids": kept}}
    summary = {"role": "user", "content": "what happened"}
    return [
        {"type": "system", "subtype": "compact_boundary", "uuid": "B", "parentUuid": None, "logicalParentUuid": "V"}
        | {"compactMetadata": {"trigger": "manual", "preTokens": 10, **metadata}},
        {"type": "user", "uuid": "S", "parentUuid": "B", "isCompactSummary": True, "message": summary},
        {"type": "user", "uuid": "W", "parentUuid": "S", "message": {"role": "user", "content": "go on"}},
    ]


def sent_by(transcript: bytes) -> list[str]:
    """Prompts, and results by their calls, each call of an answer as its id."""
    messages = render(opened(transcript, "claude").context().messages, "anthropic").messages
    contents = (message["content"] for message in messages)
    blocks = [block for content in contents for block in ([text(content)] if isinstance(content, str) else content)]
    return [block.get("text") or block.get("id") or f"{block['tool_use_id']}: {block['content']}" for block in blocks]


def without_lists(transcript: bytes) -> bytes:
    """A transcript as a reader sees it that only knows segments: no boundary lists what it preserves."""
    lines = [parse_object(line) for line in transcript.splitlines()]
    for line in lines:
        line.get("compactMetadata", {}).pop("preservedMessages", None)
    return b"".join(map(json_line, lines))


def without_kept(transcript: bytes) -> bytes:
    return transcript.replace(b'"preservedSegment"', b'"unknown"')


def encoded(session: Session) -> bytes:
    return b"".join(sessiontree.convert(session, "claude", branch="all").lines)


@pytest.mark.parametrize("between", ["claude", "pi", "omp", "native"])
@pytest.mark.parametrize("compacted_by", ["the client", "us"])
def test_a_compacted_transcript_keeps_parallel_results_for_readers_of_segments(between: str, compacted_by: str) -> None:
    session = opened(fan_out(*(client_compaction() if compacted_by == "the client" else ())), "claude")
    if between != "claude":
        session = opened(b"".join(sessiontree.convert(session, between, branch="all").lines), between)
    if compacted_by == "us":
        first = next(id for id in session.context().sources if "three things" in str(session.fields(id)))
        session.append({"type": "compaction", "summary": "what happened", "firstKeptEntryId": first})
        session.append("user", "go on")
    transcript = encoded(session)
    results = [part for part in sent_by(transcript) if "result of" in part]
    assert [part.partition(":")[0] for part in sorted(results)] == list(CALLS)
    assert sent_by(without_lists(transcript)) == sent_by(transcript) != sent_by(without_lists(without_kept(transcript)))


def test_a_compaction_of_the_clients_own_file_loses_no_more_results_than_the_clients_own(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    path.write_bytes(fan_out())
    with sessiontree.open(path, dialect="claude") as session:
        session.append({"type": "compaction", "summary": "what happened", "firstKeptEntryId": "U"})
        session.append("user", "go on")
    ours, clients = path.read_bytes(), fan_out(*client_compaction())
    assert sorted(part.partition(":")[0] for part in sent_by(ours) if "result of" in part) == list(CALLS)
    # Its lines cannot be changed, and a segment has only those on the chain: here, one of the results.
    ours_of_segment, clients_of_segment = sent_by(without_lists(ours))[1:], sent_by(without_lists(clients))[1:]
    assert ours_of_segment == clients_of_segment
    assert [part.partition(":")[0] for part in ours_of_segment if "result of" in part] == ["c2"]
