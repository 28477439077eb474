"""Sessions that are not files of lines: documents, databases, compressed and continued files (`aviary/`)."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import zstandard

import sessiontree
from sessiontree import plugins
from sessiontree.archive.archive_home import Home
from sessiontree.archive.candidates import iter_library_candidates
from sessiontree.archive.move import plan_move
from sessiontree.archive.rewrite import ByteChange, rewrite
from sessiontree.core.messages import message_text
from sessiontree.dialects.contract import Dialect
from sessiontree.errors import NotASessionError, NotFoundError, ReadOnlyError, StoreError, UsageError
from sessiontree.library import Library
from sessiontree.sources import open_source
from sessiontree.sources.database import open_database
from sessiontree.stores.contract import SessionRef
from sessiontree.testing import ContractError, check_source

PLUGINS = [str(Path(__file__).parent / "aviary"), str(Path(__file__).parents[1] / "parrot")]
LINES = [
    {"id": "m1", "who": "user", "text": "Say hello", "time": "2026-01-01T00:00:01.000Z"},
    {"id": "m2", "who": "parrot", "text": "hello polly", "time": "2026-01-01T00:00:02.000Z", "seen": 10, "said": 2},
]
MORE = [
    {"id": "m3", "who": "user", "text": "Now a cracker", "time": "2026-01-01T00:00:03.000Z"},
    {"id": "m4", "who": "parrot", "text": "crunch", "time": "2026-01-01T00:00:04.000Z", "seen": 20, "said": 1},
]
TEXTS = ["Say hello", "hello polly", "Now a cracker", "crunch"]
KINDS = ["crow", "heron", "kiwi", "owl"]


def header(id: str, by: str, **more: object) -> dict[str, object]:
    return {"session": id, "by": by, "cwd": "/work", "start": "2026-01-01T00:00:00.000Z", **more}


def data_of(*lines: object) -> bytes:
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


@pytest.fixture(autouse=True)
def aviary(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    for folder in PLUGINS:
        monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("AVIARY", str(tmp_path / "aviary"))
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setenv("SESSIONTREE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SESSIONTREE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "aviary"


def dialect_of(kind: str) -> Dialect:
    found: Dialect = plugins.load("dialects", kind)
    return found


def put(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def write_database(path: Path, **chats: list[dict[str, object]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE chat(id TEXT PRIMARY KEY, header TEXT, updated INTEGER, parent TEXT)")
        database.execute("CREATE TABLE message(chat TEXT, number INTEGER, body TEXT)")
        for id, lines in chats.items():
            add_chat(database, id, lines)
    return path


def add_chat(database: sqlite3.Connection, id: str, lines: list[dict[str, object]], parent: str | None = None) -> None:
    database.execute("INSERT INTO chat VALUES(?, ?, 1000, ?)", (id, json.dumps(header(id, "heron")), parent))
    rows = [(id, number, json.dumps(line, indent=1)) for number, line in enumerate(lines)]
    database.executemany("INSERT INTO message VALUES(?, ?, ?)", rows)


def sample(kind: str, aviary: Path) -> Path:
    """A file with a session of four messages, whose id is `s1`."""
    folder = aviary / kind
    match kind:
        case "crow":
            document = json.dumps({**header("s1", "crow"), "messages": [*LINES, *MORE]}, indent=2)
            return put(folder / "s1.crow.json", document.encode())
        case "heron":
            return write_database(folder / "heron.db", s1=[*LINES, *MORE])
        case "kiwi":
            return put(folder / "s1.kiwi.gz", gzip.compress(data_of(header("s1", "kiwi"), *LINES, *MORE)))
        case _:
            first = put(folder / "may" / "2026_s0.owl", data_of(header("s0", "owl"), *LINES, *MORE))
            skip, end = len(data_of(header("s0", "owl"))), len(data_of(header("s0", "owl"), *LINES))
            own = header("s1", "owl", continues="s0", skip=skip, bytes=end)
            return put(first.parents[1] / "june" / "2026_s1.owl", data_of(own, *MORE))


def ref_of(kind: str, path: Path) -> str:
    return f"{path}#s1" if kind == "heron" else str(path)


def texts_of(session: sessiontree.Session) -> list[str]:
    return [message_text(message) for message in session.context().messages]


def problems_of(ref: str, kind: str) -> list[str]:
    return [problem.kind for problem in sessiontree.open(ref, dialect=kind).problems]


# Every kind


@pytest.mark.parametrize("kind", KINDS)
def test_the_source_keeps_the_contract(kind: str, aviary: Path) -> None:
    path = sample(kind, aviary)
    assert [str(ref) for ref in check_source(dialect_of(kind), path)] == [ref_of(kind, path)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_session_is_opened_by_its_reference_and_its_dialect_is_detected(kind: str, aviary: Path) -> None:
    session = sessiontree.open(ref_of(kind, sample(kind, aviary)))
    assert (session.dialect.name, session.header.id, session.problems) == (kind, "s1", [])
    assert texts_of(session) == TEXTS
    with pytest.raises(ReadOnlyError):
        session.append("user", "more")


@pytest.mark.parametrize("kind", KINDS)
def test_every_command_that_reads_takes_it(kind: str, aviary: Path, tmp_path: Path) -> None:
    path = sample(kind, aviary)
    before = sorted(str(file) for file in aviary.rglob("*"))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(PLUGINS)}

    def run(*arguments: str, code: int = 0) -> str:
        command = [sys.executable, "-m", "sessiontree", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, cwd=tmp_path)
        assert done.returncode == code, done.stderr
        return done.stderr if code else done.stdout

    ref = ref_of(kind, path)
    listed = [found for found in json.loads(run("list", "--all", "--json"))["sessions"] if found["id"] == "s1"]
    assert [(found["path"], found["agent"], found["messages"], found["health"]) for found in listed] == [
        (ref, kind, 4, "ok")
    ]
    for command in ("tree", "show", "context", "export", "info"):
        printed = run(command, ref)
        assert command == "info" or [text in printed for text in TEXTS] == [True] * 4, command
    assert "Say hello" in run("show", "s1"), "by its id"
    assert "no problems found" in run("doctor", ref)
    hits = json.loads(run("search", "crunch", "--json"))["hits"]
    assert (ref, "m4") in [(hit["session"]["path"], hit["entry"]) for hit in hits]
    assert json.loads(run("search", "crunch", "--json"))["hits"] == hits, "from the index, without reading it again"
    for _ in range(2):  # read, then from the cache
        totals = json.loads(run("stats", "--all", "--json"))["totals"]
        assert (totals["requests"], totals["tokens"]["output"]) == (2, 3), "shared history counts once"
    run("convert", ref, "--to", "pi", "--out", str(tmp_path / "out.jsonl"))
    assert texts_of(sessiontree.open(tmp_path / "out.jsonl")) == TEXTS
    assert sorted(str(file) for file in aviary.rglob("*")) == before


@pytest.mark.parametrize("kind", KINDS)
def test_a_second_listing_reads_nothing_and_a_change_is_noticed(kind: str, aviary: Path) -> None:
    path = sample(kind, aviary)
    with Library() as library:
        (found,) = [one for one in library.everything() if one.id == "s1"]
    with Library() as library:
        assert found in library.everything()
        assert library.scan.read == 0
    change(kind, path)
    with Library() as library:
        (grown,) = [one for one in library.everything() if one.id == "s1"]
        assert (grown.messages, library.scan.read) == (5, 1)
        assert [hit.session.id for hit in library.search("seeds")] == ["s1"]


def change(kind: str, path: Path) -> None:
    line = {"id": "m5", "who": "user", "text": "seeds", "time": "2026-01-01T00:00:05.000Z"}
    match kind:
        case "crow":
            path.write_text(json.dumps({**header("s1", "crow"), "messages": [*LINES, *MORE, line]}))
        case "heron":
            with closing(sqlite3.connect(path)) as database, database:
                database.execute("INSERT INTO message VALUES('s1', 9, ?)", (json.dumps(line),))
                database.execute("UPDATE chat SET updated = 2000 WHERE id = 's1'")
        case "kiwi":
            with path.open("ab") as file:
                file.write(gzip.compress(data_of(line)))
        case _:
            with path.open("ab") as file:
                file.write(data_of(line))


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_only_for_files_of_lines_is_refused_and_changes_nothing(kind: str, aviary: Path) -> None:
    path = sample(kind, aviary)
    session = sessiontree.open(ref_of(kind, path))
    before = path.read_bytes()
    home = Home(str(aviary.parent / "home"))
    with pytest.raises(ReadOnlyError, match="only for sessions in files of lines"):
        plan_move(session, "/elsewhere", home.archive.allowed_paths, os.environ)
    with pytest.raises(ReadOnlyError, match="only for sessions in files of lines"):
        rewrite(home.archive, session, [ByteChange(0, 1)], "test", lambda _: None)
    with Library() as library:
        listed = [one for one in library.everything() if one.is_file]
        assert {candidate.path for candidate in iter_library_candidates(library)} == {one.path for one in listed}
    assert path.read_bytes() == before


def test_a_broken_source_fails_the_check(aviary: Path) -> None:
    class Forgetful(type(dialect_of("crow"))):  # type: ignore[misc]
        def recognize(self, head: bytes) -> int:
            return 0

    with pytest.raises(ContractError, match="recognizes the lines"):
        check_source(Forgetful(), sample("crow", aviary))


# Documents


def test_a_damaged_document_is_listed_as_damaged_and_names_the_reason(aviary: Path) -> None:
    path = put(aviary / "crow" / "torn.crow.json", sample("crow", aviary).read_bytes()[:200])
    with Library() as library:
        assert {one.id: one.health for one in library.everything()} == {"s1": "ok", "torn": "damaged"}
    with pytest.raises(NotASessionError, match="JSONDecodeError"):
        sessiontree.open(path, dialect="crow")


def test_the_lines_before_the_damage_are_kept(aviary: Path) -> None:
    document = {**header("s1", "crow"), "messages": [*LINES, object]}
    path = put(aviary / "crow" / "odd.crow.json", json.dumps(document, default=lambda _: None).encode())
    session = sessiontree.open(path)
    assert texts_of(session) == TEXTS[:2]
    assert [problem.kind for problem in session.problems] == ["not-an-object"]


# Databases


def test_each_session_of_a_database_is_listed_with_its_sub_agents(aviary: Path) -> None:
    path = write_database(aviary / "heron" / "heron.db", s1=LINES, s2=MORE)
    with closing(sqlite3.connect(path)) as database, database:
        add_chat(database, "sub#1", LINES, parent="s2")
    with Library() as library:
        found = {one.id: one for one in library.everything()}
        assert found.keys() == {"s1", "s2", "sub#1"}
        assert (found["sub#1"].kind, found["sub#1"].parent) == ("subagent", f"{path}#s2")
        assert library.find(f"{path}#sub#1") == found["sub#1"]
        with pytest.raises(UsageError, match="only for sessions in separate files"):
            _ = found["s1"].path


def test_only_the_changed_session_of_a_database_is_read_again_and_a_deleted_one_is_gone(aviary: Path) -> None:
    path = write_database(aviary / "heron" / "heron.db", s1=LINES, s2=MORE, s3=LINES)
    with Library() as library:
        assert (len(library.everything()), library.scan.read) == (3, 3)
    change("heron", path)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("DELETE FROM chat WHERE id = 's3'")
    with Library() as library:
        assert {one.id: one.messages for one in library.everything()} == {"s1": 3, "s2": 2}
        assert library.scan.read == 1


def test_a_database_that_another_program_has_open_is_read_with_its_log(aviary: Path) -> None:
    path = write_database(aviary / "heron" / "heron.db", s1=LINES)
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("PRAGMA wal_autocheckpoint = 0")
        with Library() as library:
            assert [one.messages for one in library.everything()] == [2]
        with writer:
            add_chat(writer, "s2", MORE)
        assert Path(f"{path}-wal").stat().st_size
        with Library() as library:
            assert sorted(one.id for one in library.everything()) == ["s1", "s2"]
        # A killed program leaves its log, and nothing may be written back or created by reading it.
        copy = aviary / "heron" / "killed" / "heron.db"
        copy.parent.mkdir()
        for end in ("", "-wal"):
            shutil.copy(f"{path}{end}", f"{copy}{end}")
    before = {file.name: file.read_bytes() for file in copy.parent.iterdir()}
    assert texts_of(sessiontree.open(f"{copy}#s2")) == TEXTS[2:]
    assert {file.name: file.read_bytes() for file in copy.parent.iterdir()} == before
    assert texts_of(sessiontree.open(f"{path}#s2")) == TEXTS[2:]
    assert sorted(file.name for file in path.parent.iterdir()) == ["heron.db", "killed"]


def test_a_damaged_row_is_a_problem_of_its_session_alone(aviary: Path) -> None:
    path = write_database(aviary / "heron" / "heron.db", s1=[*LINES, *MORE], s2=LINES)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE message SET body = '{torn' WHERE chat = 's1' AND number = 1")
    with Library() as library:
        assert {one.id: one.health for one in library.everything()} == {"s1": "damaged", "s2": "ok"}
    assert problems_of(f"{path}#s1", "heron") == ["undecodable"]
    assert texts_of(sessiontree.open(f"{path}#s1")) == [TEXTS[0], *TEXTS[2:]]


def test_a_file_that_is_not_a_database_is_listed_as_damaged(aviary: Path) -> None:
    path = put(aviary / "heron" / "heron.db", b"this is not a database" * 100)
    sample("crow", aviary)
    with Library() as library:
        assert {one.ref: one.health for one in library.everything() if one.agent == "heron"} == {str(path): "damaged"}
        assert [one.id for one in library.everything() if one.agent == "crow"] == ["s1"]
    with pytest.raises(StoreError, match="cannot be read"), open_database(str(path)) as database:
        database.execute("SELECT 1 FROM chat")


def test_a_database_needs_the_name_of_a_session(aviary: Path) -> None:
    path = sample("heron", aviary)
    dialect = dialect_of("heron")
    with pytest.raises(UsageError, match="contains several sessions"):
        open_source(SessionRef(str(path)), dialect)
    with pytest.raises(NotFoundError, match="no such session in the database"):
        sessiontree.open(f"{path}#s9", dialect="heron")
    with pytest.raises(NotFoundError, match="only one session"):
        open_source(SessionRef(str(path.with_name("x.jsonl")), "", "s1"), dialect)


# Compressed files


@pytest.mark.parametrize("ending", ["gz", "zst"])
def test_compressed_streams_are_read_up_to_the_damage(ending: str, aviary: Path) -> None:
    def compress(data: bytes) -> bytes:
        return gzip.compress(data) if ending == "gz" else zstandard.ZstdCompressor().compress(data)

    parts = [compress(data_of(header("s1", "kiwi"), *LINES)), compress(data_of(*MORE))]
    path = put(aviary / "kiwi" / f"s1.kiwi.{ending}", b"".join(parts))
    assert texts_of(sessiontree.open(path)) == TEXTS
    path.write_bytes(parts[0] + parts[1][:-12])
    session = sessiontree.open(path)
    assert texts_of(session)[:2] == TEXTS[:2]
    assert any("ends early" in line.decode() for line in session.journal.raw_lines())
    assert session.problems[-1].kind == "undecodable"


def test_a_large_compressed_session_is_not_held_in_memory(aviary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sessiontree.sources.lines_store._IN_MEMORY", 1000)
    lines = [{**LINES[0], "id": f"m{number}"} for number in range(500)]
    data = data_of(header("s1", "kiwi"), *lines)
    path = put(aviary / "kiwi" / "s1.kiwi.gz", gzip.compress(data))
    store = open_source(SessionRef(str(path)), dialect_of("kiwi"))
    assert store.size() == len(data)
    assert len(store._held) < 1000  # type: ignore[attr-defined]
    assert len(sessiontree.open(path)) == 500


def test_a_file_that_expands_without_end_is_cut(aviary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sessiontree.sources.lines_store._LARGEST", 100_000)
    lines = [{**LINES[0], "id": f"m{number}"} for number in range(5_000)]
    path = put(aviary / "kiwi" / "s1.kiwi.gz", gzip.compress(data_of(header("s1", "kiwi"), *lines)))
    session = sessiontree.open(path)
    assert 0 < len(session) < 5_000
    assert any("the rest is not read" in line.decode() for line in session.journal.raw_lines())


# Continued files


def test_a_chain_of_files_is_read_as_one_session(aviary: Path) -> None:
    path = sample("owl", aviary)
    own = len(data_of(json.loads(path.read_text().splitlines()[0])))
    more = {"id": "m5", "who": "user", "text": "seeds", "time": "2026-01-01T00:00:05.000Z"}
    last = header("s2", "owl", continues="s1", skip=own, bytes=path.stat().st_size)
    third = put(aviary / "owl" / "july" / "2026_s2.owl", data_of(last, more))
    session = sessiontree.open(third)
    assert texts_of(session) == [*TEXTS, "seeds"]
    assert (session.header.id, session.problems) == ("s2", [])


def test_new_lines_of_the_last_file_are_seen(aviary: Path) -> None:
    path = sample("owl", aviary)
    session = sessiontree.open(path)
    change("owl", path)
    assert session.follow() == "m5"
    assert texts_of(session) == [*TEXTS, "seeds"]


@pytest.mark.parametrize(
    ("continues", "end", "reason"),
    [
        ("s9", 100, "is missing"),
        ("s1", 100, "continues the session itself"),
        ("s0", 10**9, "but the session uses"),
        ("s0", "many", "TypeError|not supported"),
        ("secret", 10, "not a session of the same format"),
    ],
)
def test_an_earlier_part_that_cannot_be_used_is_a_problem(
    continues: str, end: object, reason: str, aviary: Path
) -> None:
    path = sample("owl", aviary)
    put(aviary / "owl" / "may" / "secret.owl", b"password: polly\n")
    path.write_bytes(data_of(header("s1", "owl", continues=continues, skip=0, bytes=end), *MORE))
    session = sessiontree.open(path)
    assert texts_of(session) == TEXTS[2:]
    (line,) = [line.decode() for line in session.journal.raw_lines() if line.startswith(b"[damaged")]
    assert any(part in line for part in reason.split("|")), line
    assert "password" not in line
    assert [problem.kind for problem in session.problems] == ["undecodable"]
