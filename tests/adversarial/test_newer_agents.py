"""Hostile sessions of Codex, OpenCode, Gemini CLI and Qwen Code: commands end soon, with an answer or an error."""

from __future__ import annotations

import gc
import json
import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import zstandard

import sessiontree
from sessiontree.cli import main
from sessiontree.core.jsonio import parse_object
from sessiontree.dialects.codex import CODEX
from sessiontree.dialects.qwen.records import join_lines
from sessiontree.dialects.storage import Joined
from sessiontree.search import search
from sessiontree.sources import compressed, open_source
from sessiontree.sources.joined import open_joined
from sessiontree.stores.contract import SessionRef, read_bytes
from tests.library.world import World, json_lines
from tests.search.four_agents import OPENCODE_DATABASE, OPENCODE_SESSION, TABLES, opencode

TIME = "2026-11-16T07:18:13.000Z"
THREAD, OTHER = (f"019c0001-0000-7000-8000-{number:012x}" for number in (1, 2))
ROLLOUT = f".codex/sessions/2026/11/16/rollout-2026-11-16T07-18-13-{THREAD}.jsonl"
CHAT = ".gemini/tmp/proj/chats/session-2026-01-01T00-00-11111111"
QWEN = ".qwen/projects/-work/chats/23c9d07a-b8a9-4d00-aab1-cb91be59c9d0.jsonl"
Made = Callable[[World], Path | str]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    world = World(tmp_path)
    for name, value in world.environment.items():
        monkeypatch.setenv(name, value)
    for name in ("XDG_DATA_HOME", "CODEX_HOME", "OPENCODE_DB", "GEMINI_CLI_HOME", "QWEN_HOME", "QWEN_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    return world


def files_of(folder: Path) -> dict[str, tuple[int, int]]:
    found = [path for path in folder.rglob("*") if not path.is_dir()]
    return {str(path): (path.lstat().st_size, path.lstat().st_mtime_ns) for path in found}


def run_all(world: World, ref: Path | str) -> list[int]:
    """The exit codes of the commands that read a session. They change nothing, and write only the copy."""
    before = files_of(world.home)
    out = world.folder / "out.jsonl"
    of_one = [["info"], ["tree"], ["doctor"], ["convert", "--to", "native", "--out", str(out)]]
    commands = [["list", "--all"], ["search", "needle"], *([name, str(ref), *more] for name, *more in of_one)]
    start = time.process_time()
    codes = [main(command) for command in commands]
    assert time.process_time() - start < 60
    assert files_of(world.home) == before
    assert {path.name for path in world.folder.iterdir()} <= {"user", "cache", "out.jsonl"}
    return codes


# Codex


def rollout(*texts: str, thread: str = THREAD, **meta: Any) -> bytes:
    header = {"id": thread, "timestamp": TIME, "cwd": "/work", "originator": "x", "cli_version": "0.166.0", **meta}
    lines = [{"timestamp": TIME, "type": "session_meta", "payload": header}]
    for text in texts:
        item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
        lines.append({"timestamp": TIME, "type": "response_item", "payload": item})
    return json_lines(lines)


def continuing(thread: str, size: int = 100) -> dict[str, Any]:
    return {"history_mode": "paginated", "history_base": {"thread_id": thread, "end_byte_offset": size}}


def beside(world: World, make: Callable[[Path], object]) -> Path:
    path = world.put(ROLLOUT, rollout("needle", **continuing(OTHER)))
    make(path.with_name(path.name.replace(THREAD, OTHER)))
    return path


EARLIER: dict[str, Made] = {
    "itself": lambda world: world.put(ROLLOUT, rollout("needle", **continuing(THREAD))),
    "a path": lambda world: world.put(ROLLOUT, rollout("needle", **continuing("../../../../../../etc/passwd"))),
    "more than it has": lambda world: beside(world, lambda other: other.write_bytes(rollout("x", thread=OTHER))),
    "a pipe": lambda world: beside(world, os.mkfifo),
    "a link to another file": lambda world: beside(world, lambda other: other.symlink_to("/etc/passwd")),
}


@pytest.mark.parametrize("case", EARLIER)
def test_a_rollout_that_continues_something_else_has_its_own_lines_and_a_problem(
    world: World, case: str, capfd: pytest.CaptureFixture[str]
) -> None:
    path = EARLIER[case](world)
    assert run_all(world, path) == [0, 0, 0, 0, 3, 0]
    shown = capfd.readouterr()
    assert "needle" in shown.out
    assert "root:" not in shown.out + shown.err + (world.folder / "out.jsonl").read_text()


def test_a_long_chain_of_rollouts_resolves_each_path_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = [f"019c0001-0000-7000-8000-{number:012x}" for number in range(100)]
    for thread, earlier in zip(threads, [*threads[1:], threads[0]], strict=True):
        last = world.put(ROLLOUT.replace(THREAD, thread), rollout("needle", thread=thread, **continuing(earlier)))
    resolved = 0
    realpath = os.path.realpath

    def count(path: str) -> str:
        nonlocal resolved
        resolved += 1
        return realpath(path)

    monkeypatch.setattr("sessiontree.sources.joined.os.path.realpath", count)
    storage = CODEX.storage(str(last))
    assert isinstance(storage, Joined)
    open_joined(str(last), CODEX, storage).close()
    assert resolved < 100


def test_a_compressed_line_that_expands_without_end_is_cut_and_the_lines_before_it_are_read(
    world: World, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(compressed, "_LONG_LINE", 1 << 20)
    bomb = zstandard.ZstdCompressor().compress(rollout("needle") + b'{"type":"' + b" " * (10 << 20))
    path = world.put(f"{ROLLOUT}.zst", bomb)
    assert len(bomb) < 20_000
    assert run_all(world, path) == [0, 0, 0, 0, 3, 0]
    assert "«needle»" in capfd.readouterr().out
    store = open_source(SessionRef(str(path)), CODEX)
    assert b"a line has over 200 times its compressed size" in read_bytes(store, 0, store.size())


def test_a_compressed_session_that_repeats_itself_is_read_completely(world: World) -> None:
    data = rollout(*(["needle " + "x" * 10_000] * 2_000))
    packed = zstandard.ZstdCompressor().compress(data)
    assert len(data) > 200 * len(packed)
    with sessiontree.open(world.put(f"{ROLLOUT}.zst", packed)) as session:
        assert (len(session), list(session.problems)) == (2_000, [])


def test_ordinals_of_any_size_are_problems_and_no_error(world: World) -> None:
    raw = rollout("needle", "b", "c", history_mode="paginated").splitlines()
    numbers = (b"0", b"9" * 4_000, b"-5", b"18446744073709551617")
    start = b'{"timestamp": "%b", ' % TIME.encode()
    lines = [
        line.replace(start, start + b'"ordinal": %b, ' % number) for line, number in zip(raw, numbers, strict=True)
    ]
    assert lines[1] != raw[1]
    assert run_all(world, world.put(ROLLOUT, b"\n".join(lines) + b"\n"))[:2] == [0, 0]


# OpenCode

ENDLESS = "WITH RECURSIVE endless(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM endless)"


def database(world: World, *statements: str) -> str:
    opencode(world)
    path = world.home / OPENCODE_DATABASE
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)
    return f"{path}#{OPENCODE_SESSION}"


@pytest.mark.parametrize("table", ["session", "message", "part"])
def test_a_view_with_rows_without_end_is_not_read(world: World, table: str, capfd: pytest.CaptureFixture[str]) -> None:
    view = f"CREATE VIEW {table} AS {ENDLESS} SELECT kept.* FROM kept, endless"
    ref = database(world, f"ALTER TABLE {table} RENAME TO kept", view)
    assert run_all(world, ref)[2:] == [3, 3, 3, 3]
    shown = capfd.readouterr()
    assert "Traceback" not in shown.err
    with world.library() as library:
        results = search(library, "needle")
    assert not results.is_complete, "the database was not searched"
    assert results.unreadable == [ref.partition("#")[0]]


def test_a_column_that_the_database_computes_is_not_read(world: World) -> None:
    path = world.home / OPENCODE_DATABASE
    path.parent.mkdir(parents=True)
    tables = TABLES.replace("title text NOT NULL", "title text AS (hex(zeroblob(20000000)))")
    values = f"VALUES ('{OPENCODE_SESSION}', 'p', 's', '/w', '1', 1771236000000, 1771236000000)"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(tables)
        names = "id, project_id, slug, directory, version, time_created, time_updated"
        connection.execute(f"INSERT INTO session ({names}) {values}")
    assert run_all(world, f"{path}#{OPENCODE_SESSION}")[2:] == [3, 3, 3, 3]


def test_a_trigger_of_a_database_changes_nothing(world: World) -> None:
    ref = database(world, "CREATE TRIGGER evil AFTER INSERT ON part BEGIN DELETE FROM session; END")
    assert run_all(world, ref)[:4] == [0, 0, 0, 0]


@pytest.mark.parametrize("kind", ["a pipe", "a link to a text", "a link to a device"])
def test_a_database_that_is_something_else_stops_no_command(world: World, kind: str) -> None:
    path = world.home / OPENCODE_DATABASE
    path.parent.mkdir(parents=True)
    if kind == "a pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/etc/passwd" if kind == "a link to a text" else "/dev/zero")
    assert all(run_all(world, f"{path}#{OPENCODE_SESSION}")[2:])


def test_rows_with_nul_and_lone_surrogates_are_readable(world: World, capfd: pytest.CaptureFixture[str]) -> None:
    odd = "CAST(x'6162eda08000ff1b' AS TEXT)"
    text = json.dumps({"type": "text", "text": "a\0b\ud800\x1b needle"})
    ref = database(
        world,
        f"UPDATE session SET title = {odd}, directory = {odd}, version = {odd}, time_updated = 9223372036854775807",
        f"INSERT INTO part SELECT {odd}, id, session_id, 1, 1, '{text}' FROM message LIMIT 1",
        f"INSERT INTO part SELECT {odd} || 1, id, session_id, 1, 1, {odd} FROM message LIMIT 1",
    )
    assert run_all(world, ref)[:4] == [0, 0, 0, 0]
    shown = capfd.readouterr()
    assert not {"\x1b", "\0"} & set(shown.out + shown.err)


# Gemini CLI

META = {"sessionId": "11111111-1111-4111-8111-111111111111", "projectHash": "aa", "startTime": TIME}


def said(id: str, text: str, kind: str = "user", **more: Any) -> dict[str, Any]:
    return {"id": id, "timestamp": TIME, "type": kind, "content": [{"text": text}], **more}


def answered(*results: object) -> dict[str, Any]:
    calls = [
        {
            "id": "call",
            "name": "read",
            "args": {},
            "status": "success",
            "result": [{"functionResponse": {"id": "call", "name": "read", "response": {"output": result}}}],
        }
        for result in results
    ]
    return said("b", "x", "gemini", toolCalls=[*calls, None, 5])


def nested(opening: bytes, closing: bytes) -> bytes:
    head = json.dumps({**META, "messages": [said("a", "needle")]}).encode()[:-2]
    return head + b"," + 100_000 * opening + b"1" + 100_000 * closing + b"]}"


CHATS: dict[str, tuple[str, bytes]] = {
    "objects 100,000 deep": (".json", nested(b'{"a":', b"}")),
    "lists 100,000 deep": (".json", nested(b"[", b"]")),
    "lists 100,000 deep that are cut": (".json", nested(b"[", b"")),
    "a line of lists 100,000 deep": (
        ".jsonl",
        json_lines([META, said("a", "needle")]) + b'{"id":"b","type":"user","content":' + b"[" * 100_000 + b"\n",
    ),
    "rewinds to themselves": (
        ".jsonl",
        json_lines(
            [META, said("a", "needle"), {"id": "c", "$rewindTo": "c"}, {"$rewindTo": ["a"]}, said("c", "needle")]
        ),
    ),
    "results twice": (
        ".jsonl",
        json_lines([META, said("a", "needle"), answered("one", "two"), answered("three"), answered({"a": 1})]),
    ),
    "one id 5,000 times": (".jsonl", json_lines([META, *(said("a", f"needle {number}") for number in range(5_000))])),
    "1,000 rewinds": (
        ".jsonl",
        json_lines([META, *(line for at in range(1_000) for line in (said(f"m{at}", "needle"), {"$rewindTo": "m0"}))]),
    ),
}


@pytest.mark.parametrize("case", CHATS)
def test_a_hostile_chat_of_gemini_cli_stops_no_command(world: World, case: str) -> None:
    ending, data = CHATS[case]
    assert run_all(world, world.put(CHAT + ending, data))[:4] == [0, 0, 0, 0]


# Qwen Code


def record(uuid: Any, parent: Any, text: Any = "needle") -> dict[str, Any]:
    message = {"role": "user", "parts": [{"text": text}]}
    fields = {"sessionId": QWEN[-42:-6], "timestamp": TIME, "type": "user", "cwd": "/work", "version": "0.24.4"}
    return {"uuid": uuid, "parentUuid": parent, **fields, "message": message}


RECORDS: dict[str, list[dict[str, Any]]] = {
    "short cycles": [record("a", "b"), record("b", "a"), record("c", "c"), record("d", None)],
    "a cycle of 2,000": [record(f"u{at}", f"u{(at + 1) % 2_000}") for at in range(2_000)],
    "one uuid in 3,000 lines": [record("a", None, f"needle {at}") for at in range(3_000)],
    "one uuid in 3,000 lines, its own parent": [record("a", "a", f"needle {at}") for at in range(3_000)],
    "2,000 children of one": [record("r", None), *(record(f"u{at}", "r") for at in range(2_000))],
    "other types": [
        record("a", None),
        record(["x"], {"y": 1}),
        record(5, None, ["x"]),
        {**record("e", "a"), "message": {"role": "user", "parts": [None, 5, {"functionCall": 5}]}},
        {**record("f", "e"), "cwd": "a\0\ud800", "timestamp": 10**400},
    ],
}


@pytest.mark.parametrize("case", RECORDS)
def test_hostile_records_of_qwen_code_stop_no_command(world: World, case: str) -> None:
    assert run_all(world, world.put(QWEN, RECORDS[case]))[:4] == [0, 0, 0, 0]


@pytest.mark.slow
def test_joining_the_lines_of_one_uuid_takes_time_in_proportion() -> None:
    raws = json_lines([record("a", None, f"needle {at}") for at in range(60_000)]).splitlines()

    def seconds(work: Callable[[], object]) -> float:
        start = time.process_time()
        work()
        return time.process_time() - start

    gc.disable()  # it takes longer the more lines there are
    try:
        rounds = [(seconds(lambda: join_lines(raws)), seconds(lambda: [*map(parse_object, raws)])) for _ in range(3)]
    finally:
        gc.enable()
    assert min(join for join, _ in rounds) < 12 * min(parse for _, parse in rounds)
