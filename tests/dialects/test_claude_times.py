"""Transcripts whose lines count milliseconds instead of writing ISO times."""

from __future__ import annotations

import json
from pathlib import Path

import sessiontree
from sessiontree.core.messages import message_text
from sessiontree.dialects.contract import ReadOptions

ID = "0a000000-0000-4000-8000-00000a000000"


def test_numeric_timestamps_are_read(tmp_path: Path) -> None:
    path = tmp_path / f"{ID}.jsonl"
    start = 1767225600000  # 2026-01-01T00:00:00.000Z
    lines = []
    for at, (id, parent, text) in enumerate([("a", None, "one"), ("b", "a", "two"), ("c", "a", "older")]):
        message = {"role": "user", "content": text}
        own = {"uuid": id, "parentUuid": parent, "sessionId": ID, "cwd": "/p", "version": "2.1.0"}
        time = start + (at * 1000 if text != "older" else 500)
        lines.append({"type": "user", **own, "timestamp": time, "message": message})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with sessiontree.open(str(path), dialect="claude") as session:
        assert session.header.timestamp == "2026-01-01T00:00:00.000Z"
        assert session.entry("b").timestamp == "2026-01-01T00:00:01.000Z"
        first, *_ = session.context().messages
        assert first.timestamp == start
        (entry, *_) = session.dialect.decode(session.journal, [0])
        assert entry.timestamp == "2026-01-01T00:00:00.000Z"
    options = ReadOptions(as_of="timestamps")
    with sessiontree.open(str(path), dialect="claude", read_options=options) as session:
        assert [message_text(message) for message in session.context().messages] == ["one", "two"]
