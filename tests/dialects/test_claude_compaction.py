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
from sessiontree.core.jsonio import render_json
from sessiontree.core.messages import LazyMessages
from sessiontree.errors import CompactionError
from sessiontree.session import reader

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
