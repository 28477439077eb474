"""OpenCode: its database, its exports, and the folders of older versions."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import sessiontree
from sessiontree.conversion.install import Request, carry_out, make_plan
from sessiontree.conversion.launch import plan_resumption
from sessiontree.core.entries import MessageEntry
from sessiontree.core.messages import message_text
from sessiontree.dialects.contract import ReadOptions
from sessiontree.dialects.opencode import OPENCODE
from sessiontree.library import Library
from sessiontree.repair import examine
from sessiontree.sources import open_source
from sessiontree.stores.contract import SessionRef, read_bytes
from sessiontree.testing import check_dialect, check_source
from tests.dialects.packed_goldens import cases_of, flat, flat_context, once, snapshot, unpack

DATA = ".local/share/opencode"
LOST = "D1-truncated-db"
CASES = [case for case in cases_of("opencode") if case != LOST]
SESSION = "ses_e1cd69a3dffe21P69fMfXhTJAU"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.delenv("OPENCODE_DB", raising=False)
    monkeypatch.setenv("SESSIONTREE_HOME", str(tmp_path / "ours"))
    monkeypatch.setenv("SESSIONTREE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "home"


def opened(tmp_path: Path, case: str, **options: Any) -> tuple[sessiontree.Session, list[Any], Path]:
    golden = unpack("opencode", case, tmp_path)
    path = golden.home / DATA / "opencode.db"
    return sessiontree.open(f"{path}#{golden.session_id}", **options), golden.sent, path


def lines_of(path: Path, id: str = SESSION) -> bytes:
    store = open_source(SessionRef(str(path), "", id), OPENCODE)
    return read_bytes(store, 0, store.size())


def texts_of(session: sessiontree.Session) -> list[str]:
    return [message_text(message) for message in session.context().messages]


def run(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        for statement in statements:
            database.execute(statement)


@pytest.mark.parametrize("case", CASES)
def test_the_context_is_what_opencode_sends_on_resume_with_repeated_calls_once(tmp_path: Path, case: str) -> None:
    session, sent, _ = opened(tmp_path, case)
    assert flat_context(list(session.context().messages)) == once(flat(sent))


def test_a_database_that_was_cut_is_read_although_opencode_refuses_it(tmp_path: Path) -> None:
    session, sent, _ = opened(tmp_path, LOST)
    assert sent == []
    assert len(texts_of(session)) == 8
    assert [finding.rule.id for finding in examine(session)] == ["undecodable"]


def test_the_dialect_and_its_sources_keep_the_contract(tmp_path: Path) -> None:
    samples = []
    for case in ("01-plain", "03-parallel", "05b-compaction-manual", "06b-revert"):
        session, _, path = opened(tmp_path / case, case)
        samples.append(lines_of(path, session.id))
    check_dialect(OPENCODE, samples, cuts=40)
    check_source(OPENCODE, path)


WRITER = """
import os, sqlite3, sys
client = sqlite3.connect(sys.argv[1], isolation_level=None)
client.execute("PRAGMA journal_mode = WAL")
client.execute("PRAGMA wal_autocheckpoint = 0")
client.execute("UPDATE session SET title = 'Written to the log'")
print("written", flush=True)
sys.stdin.read()
os._exit(9)
"""


def test_listing_and_reading_changes_no_file_also_beside_a_running_opencode(tmp_path: Path) -> None:
    _, _, path = opened(tmp_path, "03-parallel")
    # Another process, as SQLite shares the index of the log between the connections of one.
    command = [sys.executable, "-c", WRITER, str(path)]
    client = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert client.stdout is not None
    assert client.stdin is not None
    assert client.stdout.readline() == "written\n"
    for is_running in (True, False):
        if not is_running:  # killed: its files stay
            client.stdin.close()
            client.wait(60)
            client.stdout.close()
            shutil.rmtree(tmp_path / "cache")
        before = snapshot(tmp_path / "home")
        assert {f"{DATA}/opencode.db-wal", f"{DATA}/opencode.db-shm"} <= before.keys()
        with Library() as library:
            (found,) = library.everything()
            assert [hit.session.id for hit in library.search("alpha")] == [found.id]
        session = sessiontree.open(found.ref)
        examine(session)
        assert session.name == "Written to the log"
        assert snapshot(tmp_path / "home") == before


def test_all_sessions_of_all_channels_are_listed_whatever_their_project(tmp_path: Path) -> None:
    _, _, path = opened(tmp_path, "06-fork")
    run(path, "UPDATE session SET project_id = 'another'", "PRAGMA foreign_keys = OFF")
    shutil.copy(path, path.with_name("opencode-beta.db"))
    run(path.with_name("opencode-beta.db"), "UPDATE session SET parent_id = NULL, title = title || ' beta'")
    with Library() as library:
        found = library.everything()
    assert len(found) == 4
    assert {one.agent for one in found} == {"opencode"}
    assert {one.cwd for one in found} == {"/tmp/g/proj"}
    assert sorted(one.title for one in found if "fork" in one.title) == [
        "Title by fake model (fork #1)",
        "Title by fake model (fork #1) beta",
    ]


def test_a_sub_agent_is_listed_below_its_session(tmp_path: Path) -> None:
    session, _, path = opened(tmp_path, "06-fork")
    run(path, f"UPDATE session SET parent_id = '{session.id}' WHERE id != '{session.id}'")
    with Library() as library:
        found = {one.kind: one for one in library.everything()}
    assert found["subagent"].parent == f"{path}#{session.id}"


# Damage


def test_a_part_that_is_not_json_is_restored_from_the_event_that_wrote_it(tmp_path: Path) -> None:
    session, sent, path = opened(tmp_path, "03-parallel")
    run(path, "UPDATE part SET data = substr(data, 1, 60) WHERE json_extract(data, '$.type') = 'tool'")
    session = sessiontree.open(f"{path}#{session.id}")
    assert flat_context(list(session.context().messages)) == flat(sent)
    (finding,) = [found for found in examine(session) if found.rule.id == "undecodable"]
    assert finding.count == 3
    assert "is not JSON; read from the event that wrote it" in finding.cost
    run(path, "DELETE FROM event")
    session = sessiontree.open(f"{path}#{session.id}")
    assert [text for text in texts_of(session) if "Read three files" in text] == [
        '"Read three files [[PAR:cat a.txt||cat b.txt||READ c.txt]]"',
        'DONE: "Read three files"',
    ]
    assert "undecodable" in {finding.rule.id for finding in examine(session)}


def test_older_databases_without_events_and_usage_are_read(tmp_path: Path) -> None:
    session, sent, path = opened(tmp_path, "01-plain")
    run(
        path, "DROP TABLE event", "ALTER TABLE session DROP COLUMN tokens_input", "ALTER TABLE session DROP COLUMN cost"
    )
    assert flat_context(list(sessiontree.open(f"{path}#{session.id}").context().messages)) == flat(sent)
    with Library() as library:
        assert [one.messages for one in library.everything()] == [4]


def test_parts_of_a_lost_message_are_recovered_and_reported(tmp_path: Path) -> None:
    session, sent, path = opened(tmp_path, "01-plain")
    lost = session.path_ids()[1]
    run(path, "PRAGMA foreign_keys = OFF", f"DELETE FROM message WHERE id = '{lost}'")
    reference = f"{path}#{session.id}"
    assert texts_of(sessiontree.open(reference)) == [
        message["blocks"][-1]["text"] for message in sent if message != sent[1]
    ]
    recovered = sessiontree.open(reference, read_options=ReadOptions(recovered=True))
    assert flat_context(list(recovered.context().messages)) == flat(sent)
    assert [finding.rule.id for finding in examine(sessiontree.open(reference))] != []


@pytest.mark.parametrize("column", ["message", "part"])
def test_any_damaged_row_is_a_problem_of_its_session_and_the_others_stay(tmp_path: Path, column: str) -> None:
    session, _, path = opened(tmp_path, "06-fork")
    for content in ("", "{", "[]", "null", '"text"', '{"role":5}', '{"a":' * 2000):
        with closing(sqlite3.connect(path)) as database, database:
            ids = [id for (id,) in database.execute(f"SELECT id FROM {column} WHERE session_id = ?", (session.id,))]
            database.execute(f"UPDATE {column} SET data = ? WHERE id = ?", (content, ids[1]))
            database.execute("DELETE FROM event")
        damaged = sessiontree.open(f"{path}#{session.id}")
        assert len(texts_of(damaged)) >= 4, content
        examine(damaged)


# Exports and older folders


def export_of(path: Path, id: str) -> dict[str, Any]:
    header, *messages = [json.loads(line) for line in lines_of(path, id).splitlines()]
    for message in messages:
        message.pop("compaction", None)
    return {**header, "messages": messages}


def test_an_export_and_the_folders_of_older_versions_give_the_same_session(tmp_path: Path, home: Path) -> None:
    session, sent, path = opened(tmp_path, "05b-compaction-manual")
    export = export_of(path, session.id)
    file = tmp_path / "export.json"
    file.write_text(json.dumps(export, indent=2))
    storage = home / DATA / "storage"
    write(storage / "session" / "project" / f"{session.id}.json", export["info"])
    for message in export["messages"]:
        id = message["info"]["id"]
        write(storage / "message" / session.id / f"{id}.json", message["info"])
        for part in message["parts"]:
            write(storage / "part" / id / f"{part['id']}.json", part)
    path.unlink()
    with Library() as library:
        (listed,) = library.everything()
    for reference in (str(file), listed.ref):
        read = sessiontree.open(reference)
        assert (read.id, read.dialect.name) == (session.id, "opencode")
        assert flat_context(list(read.context().messages)) == flat(sent)
    file.write_text(json.dumps(export)[:-300])
    torn = sessiontree.open(str(file))
    assert len(torn.context().messages) >= 2
    assert "undecodable" in {finding.rule.id for finding in examine(torn)}
    # It can be recovered into the current database.
    plan = plan_resumption(sessiontree.open(listed.ref))
    assert plan.plan is not None
    assert plan.plan.install[:2] == ("opencode", "import")


def write(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


# Writing


def test_a_session_of_the_database_is_resumed_in_place_and_another_one_is_imported(tmp_path: Path) -> None:
    session, _, path = opened(tmp_path, "01-plain")
    assert plan_resumption(session).command == ("opencode", "--session", session.id)
    assert plan_resumption(session).plan is None
    other = path.with_name("opencode-beta.db")
    shutil.copy(path, other)
    plan = plan_resumption(sessiontree.open(f"{other}#{session.id}")).plan
    assert plan is not None
    assert plan.install == ("opencode", "import", plan.path)
    assert plan.path.startswith(str(tmp_path / "ours" / "imports"))


def test_a_written_session_is_an_export_with_ascending_times_and_unique_ids(tmp_path: Path) -> None:
    session, _, _ = opened(tmp_path, "03-parallel")
    plan = make_plan(session, Request("opencode", cwd=str(tmp_path)))
    written = carry_out(session, plan)
    export = json.loads(Path(plan.path).read_text())
    infos = [message["info"] for message in export["messages"]]
    times = [info["time"]["created"] for info in infos]
    assert times == sorted(set(times))
    assert [info["id"] for info in infos] == sorted({info["id"] for info in infos})
    parts = [part["id"] for message in export["messages"] for part in message["parts"]]
    assert len(parts) == len(set(parts))
    assert export["info"]["id"] == written.id != session.id
    assert flat_context(list(written.context().messages)) == flat_context(list(session.context().messages))


def test_a_fork_is_a_new_import_file(tmp_path: Path) -> None:
    session, _, _ = opened(tmp_path, "01-plain")
    forked = sessiontree.fork(session).session
    assert forked.location.startswith(str(tmp_path / "ours" / "imports"))
    assert texts_of(forked) == texts_of(session)


# Many sessions


@pytest.fixture
def many(tmp_path: Path) -> Path:
    _, _, path = opened(tmp_path, "01-plain")
    with closing(sqlite3.connect(path)) as database, database:
        for number in range(60):
            id = f"ses_{number:012x}copyofsession0"
            columns = [name for _, name, *_ in database.execute("PRAGMA table_info(session)")][1:]
            listed = ", ".join(columns)
            database.execute(f"INSERT INTO session SELECT ?, {listed} FROM session WHERE id = ?", (id, SESSION))
            database.execute(
                "INSERT INTO message SELECT ? || id, ?, time_created, time_updated, data FROM message"
                " WHERE session_id = ?",
                (str(number), id, SESSION),
            )
            database.execute(
                "INSERT INTO part SELECT ? || id, ? || message_id, ?, time_created, time_updated, data FROM part"
                " WHERE session_id = ?",
                (str(number), str(number), id, SESSION),
            )
    return path


def test_a_large_database_is_listed_without_reading_every_session(many: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sessiontree.library.scanner._MAX_OF_DATABASES", 10_000)
    with Library() as library:
        found = library.everything()
        assert library.scan.bytes_read < 61 * 3_000
    assert len(found) == 61
    outlined = [one for one in found if one.health == "unchecked"]
    assert len(outlined) > 50
    assert {(one.title, one.messages, one.tokens_out, one.cwd) for one in outlined} == {
        ("Title by fake model", 4, 40, "/tmp/g/proj")
    }
    assert {one.last_prompt for one in outlined} == {'"Second question"'}
    with Library() as library:
        assert len(library.everything()) == 61
        assert library.scan.read == 0
    run(many, "UPDATE part SET time_updated = time_updated + 1 WHERE id LIKE '7prt_%'")
    with Library() as library:
        assert len(library.everything()) == 61
        assert library.scan.read == 1


def test_every_entry_of_a_reverted_session_is_still_shown(tmp_path: Path) -> None:
    session, _, _ = opened(tmp_path, "06b-revert")
    shown = [message_text(entry.message) for entry in session if isinstance(entry, MessageEntry)]
    assert '"This turn is reverted"' in shown
    assert os.path.basename(session.location).startswith("opencode.db#")
