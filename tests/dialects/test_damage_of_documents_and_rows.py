"""The damage table for sessions in a document or in rows of a database: the rest is read, and loss is reported."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import sessiontree
from sessiontree.errors import SessionTreeError
from sessiontree.library import Library
from sessiontree.repair import examine
from sessiontree.views.transcript import full_transcript
from tests.damage import CALLS, MARKS, id_of, role_of, stamp
from tests.search.four_agents import TABLES

SESSION, OTHER = "ses_e1cd69a3dffe21P69fMfXhTJAU", "ses_e1cd69a3dffe21P69fMfXhTJAV"
Document = dict[str, Any]


def shown_marks(ref: Path | str) -> list[str]:
    shown = "\n".join(full_transcript(sessiontree.open(ref)))
    return [mark for mark in MARKS if mark in shown]


def findings_of(ref: Path | str) -> list[str]:
    return [finding.rule.id for finding in examine(sessiontree.open(ref)) if finding.rule.id != "not-an-entry"]


# Documents


def gemini_document() -> Document:
    messages = []
    for item in range(20):
        kind = "gemini" if role_of(item) == "assistant" else "user"
        messages.append({"id": id_of(item), "timestamp": stamp(item), "type": kind, "content": MARKS[item]})
    head = {"sessionId": id_of(0), "projectHash": "ab" * 32, "startTime": stamp(0), "lastUpdated": stamp(19)}
    return {**head, "messages": messages}


def opencode_document() -> Document:
    messages = []
    for item in range(20):
        role = "assistant" if role_of(item) == "assistant" else "user"
        id = f"msg_{item:012x}{SESSION[-14:]}"
        info = {"id": id, "sessionID": SESSION, "role": role, "time": {"created": 1_771_236_000_000 + item}}
        part = {"id": f"prt_{item:012x}{SESSION[-14:]}", "sessionID": SESSION, "messageID": id, "type": "text"}
        messages.append({"info": info, "parts": [{**part, "text": MARKS[item]}]})
    times = {"created": 1_771_236_000_000, "updated": 1_771_236_000_020}
    info = {"id": SESSION, "title": "T", "version": "1.18.33", "directory": "/w", "time": times}
    return {"info": info, "messages": messages}


DOCUMENTS: dict[str, tuple[str, Callable[[], Document]]] = {
    "gemini": (".gemini/tmp/p/chats/session-2026-01-01T00-00-00000000.json", gemini_document),
    "opencode": (f"{SESSION}.json", opencode_document),
}


def cut(data: bytes) -> bytes:
    return data[: data.index(b"MARK-12") + 3]


def cut_before_the_end(data: bytes) -> bytes:
    return data[:-2]


def two_documents(data: bytes) -> bytes:
    return data + data


def half_a_document_after_it(data: bytes) -> bytes:
    return data + data[:300]


def nul_hole(data: bytes) -> bytes:
    at = data.index(b"MARK-12")
    return data[:at] + b"\x00" * 64 + data[at + 64 :]


def nul_tail(data: bytes) -> bytes:
    return data + b"\x00" * 4096


def bad_utf8(data: bytes) -> bytes:
    return data.replace(b"MARK-12", b"MARK-12\xff\xfe")


CUT_AT = MARKS[:12]
DOCUMENT_DAMAGE: dict[str, tuple[Callable[[bytes], bytes], list[str]]] = {
    "cut": (cut, CUT_AT),
    "cut before the end": (cut_before_the_end, MARKS),
    "two documents": (two_documents, MARKS),
    "half a document after it": (half_a_document_after_it, MARKS),
    "NUL hole": (nul_hole, CUT_AT),
    "NUL tail": (nul_tail, MARKS),
    "bad UTF-8": (bad_utf8, MARKS),
}
"""Kind -> what it does, and the messages that must still be shown at least."""


@pytest.mark.parametrize("kind", DOCUMENT_DAMAGE)
@pytest.mark.parametrize("agent", DOCUMENTS)
def test_messages_of_a_damaged_document_are_shown_and_the_damage_is_reported(
    tmp_path: Path, agent: str, kind: str
) -> None:
    name, build = DOCUMENTS[agent]
    damage, expected = DOCUMENT_DAMAGE[kind]
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(json.dumps(build()).encode())
    assert shown_marks(path) == MARKS
    assert findings_of(path) == []
    path.write_bytes(damage(path.read_bytes()))
    before = path.read_bytes()
    assert sessiontree.open(path).dialect.name == agent
    found = shown_marks(path)
    assert [mark for mark in expected if mark not in found] == []
    assert findings_of(path) != []
    assert path.read_bytes() == before


# Rows


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two sessions of twenty messages; small pages, so that a damaged page has some rows."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SESSIONTREE_CACHE", str(tmp_path / "cache"))
    for name in ("XDG_DATA_HOME", "SESSIONTREE_HOME", "OPENCODE_DB"):
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / ".local/share/opencode/opencode.db"
    path.parent.mkdir(parents=True)
    with closing(sqlite3.connect(path)) as made, made:
        made.execute("PRAGMA page_size = 1024")
        made.executescript(TABLES)
        for session in (SESSION, OTHER):
            _add_session(made, session)
    return path


def _add_session(made: sqlite3.Connection, session: str) -> None:
    start = 1_771_236_000_000
    names = "id, project_id, slug, directory, title, version, time_created, time_updated"
    values = (session, "p", "slug", "/w", "T", "1.18.33", start, start + 20)
    made.execute(f"INSERT INTO session ({names}) VALUES (?,?,?,?,?,?,?,?)", values)
    for item in range(20):
        id = f"msg_{item:012x}{session[-14:]}"
        role = "assistant" if role_of(item) == "assistant" else "user"
        info = {"role": role, "time": {"created": start + item}}
        made.execute(
            "INSERT INTO message VALUES (?,?,?,?,?)", (id, session, start + item, start + item, json.dumps(info))
        )
        parts: list[Document] = [{"type": "text", "text": MARKS[item]}]
        if item in CALLS:
            state = {"status": "completed", "input": {}, "output": "found", "time": {"start": start, "end": start}}
            parts.append({"type": "tool", "tool": "read", "callID": CALLS[item], "state": state})
        for at, part in enumerate(parts):
            row = (f"prt_{item:010x}{at:02x}{session[-14:]}", id, session, start + item, start + item, json.dumps(part))
            made.execute("INSERT INTO part VALUES (?,?,?,?,?,?)", row)


def run(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as made, made:
        for statement in statements:
            made.execute(statement)


MESSAGE = f"msg_{7:012x}{SESSION[-14:]}"
PART = f"prt_{7:010x}{0:02x}{SESSION[-14:]}"
WITHOUT_7 = [mark for mark in MARKS if mark != MARKS[7]]
ROW_DAMAGE: dict[str, tuple[str, list[str]]] = {
    "a part that is not JSON": (f"UPDATE part SET data = '{{\"type\":\"te' WHERE id = '{PART}'", WITHOUT_7),
    "a message that is not JSON": (f"UPDATE message SET data = '{{' WHERE id = '{MESSAGE}'", MARKS),
    "a message without its row": (f"DELETE FROM message WHERE id = '{MESSAGE}'", MARKS),
    "a part with NUL bytes": (f"UPDATE part SET data = x'00000000' WHERE id = '{PART}'", WITHOUT_7),
    "a part of another type": (f"UPDATE part SET data = '[1]' WHERE id = '{PART}'", WITHOUT_7),
}


@pytest.mark.parametrize("kind", ROW_DAMAGE)
def test_rows_next_to_a_damaged_one_are_shown_and_the_damage_is_reported(database: Path, kind: str) -> None:
    statement, expected = ROW_DAMAGE[kind]
    run(database, statement)
    assert shown_marks(f"{database}#{SESSION}") == expected
    assert findings_of(f"{database}#{SESSION}") != []
    assert shown_marks(f"{database}#{OTHER}") == MARKS
    assert findings_of(f"{database}#{OTHER}") == []


def test_a_message_without_parts_leaves_the_others(database: Path) -> None:
    run(database, f"DELETE FROM part WHERE message_id = '{MESSAGE}'")
    assert shown_marks(f"{database}#{SESSION}") == WITHOUT_7


def page_of(data: bytes, mark: bytes) -> int:
    """The start of the page with a text. Each is there twice: once for each session."""
    return data.index(mark) // 1024 * 1024


@pytest.mark.parametrize("how", ["zeros", "noise"])
@pytest.mark.parametrize("item", [0, 7, 19])
def test_a_corrupt_page_costs_its_rows_at_most(database: Path, how: str, item: int) -> None:
    data = bytearray(database.read_bytes())
    at = page_of(data, MARKS[item].encode())
    lost = bytes(data[at : at + 1024])
    data[at : at + 1024] = bytes(1024) if how == "zeros" else bytes((31 * n + 7) % 256 for n in range(1024))
    database.write_bytes(data)
    found: set[str] = set()
    for session in (SESSION, OTHER):
        with contextlib.suppress(SessionTreeError):  # the page may have had the row of the session
            found |= {*shown_marks(f"{database}#{session}")}
            findings_of(f"{database}#{session}")
    left = [mark for mark in MARKS if mark.encode() not in lost]
    assert [mark for mark in left if mark not in found] == []
    with Library() as library:
        library.everything()


@pytest.mark.parametrize("part", [0.3, 0.6, 0.9])
def test_of_a_truncated_database_the_rest_is_read(database: Path, part: float) -> None:
    data = database.read_bytes()
    database.write_bytes(data[: int(len(data) * part)])
    found: set[str] = set()
    reports: list[str] = []
    for session in (SESSION, OTHER):
        try:
            found |= {*shown_marks(f"{database}#{session}")}
            reports += findings_of(f"{database}#{session}")
        except SessionTreeError as error:
            reports.append(str(error))
    assert reports
    if part == 0.9:
        assert len(found) >= 10
    with Library() as library:
        library.everything()


def test_a_file_that_is_no_database_is_refused_with_its_name(database: Path) -> None:
    database.write_bytes(b"\x00" * 8192)
    with pytest.raises(SessionTreeError, match=r"opencode\.db"):
        sessiontree.open(f"{database}#{SESSION}").context()
    with Library() as library:
        assert [summary.health for summary in library.everything()] == ["damaged"]
