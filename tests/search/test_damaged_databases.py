"""Flipped bytes in any database that we keep: commands answer as before, and the databases heal."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sessiontree.cli import main
from sessiontree.search.prompt_history import PromptHistory
from sessiontree.search.semantic import search_by_meaning
from tests.library.world import World

pytestmark = pytest.mark.slow

ROUNDS = 60 if os.environ.get("SESSIONTREE_THOROUGH") else 12
COMMANDS = [
    ["list", "--all"],
    ["search", "needle", "--limit", "100"],
    ["search", "only5x"],
    ["stats", "--all"],
    ["stats", "--all", "--by", "session"],
    ["continue", "--cwd", "/work"],
    ["open", "session-05"],
    ["history", "--limit", "100"],
    ["history", "needle typed"],
]
_VOLATILE = {"timings", "scan", "notes", "imported", "unindexed", "state", "files"}


class Place:
    """A world with filled databases, and the answers of all commands."""

    def __init__(self, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
        self.world = World(folder)
        self._capfd = capfd
        for number in range(12):
            make = self.world.claude if number % 2 else self.world.pi
            prompts = [f"needle only{number}x and more", "x" * 200]
            make(f"session-{number:02d}", "/work", prompts, minute=number)
        self.home = Path(self.world.environment["SESSIONTREE_HOME"])
        with PromptHistory(self.home) as history:
            for number in range(30):
                history.add(f"needle typed here {number}", cwd="/work", time=1_771_236_000_000 + number)
        self.answers = [self.answer(command) for command in COMMANDS]  # fills every database
        assert self.answers == [self.answer(command) for command in COMMANDS]
        self.databases = {
            "library": Path(self.world.environment["SESSIONTREE_CACHE"], "library.sqlite"),
            "search": Path(self.world.environment["SESSIONTREE_CACHE"], "search.sqlite"),
            "history": self.home / "history.sqlite",
        }
        for path in self.databases.values():
            with contextlib.closing(sqlite3.connect(path)) as database:
                database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._kept = folder / "kept"
        for name in ("cache", "home"):
            shutil.copytree(self._folder(name), self._kept / name)

    def _folder(self, name: str) -> Path:
        return self.home if name == "home" else Path(self.world.environment["SESSIONTREE_CACHE"])

    def reset(self) -> None:
        for name in ("cache", "home"):
            shutil.rmtree(self._folder(name))
            shutil.copytree(self._kept / name, self._folder(name))

    def answer(self, command: list[str]) -> Any:
        self._capfd.readouterr()
        code = main([*command, "--json"])
        out, err = self._capfd.readouterr()
        assert code == 0, (command, err)
        assert len(err.splitlines()) <= 1, (command, err)
        answer = _stable(json.loads(out))
        if command[0] == "history":  # also the damaged file's name is new
            answer["prompts"] = [prompt["prompt"] for prompt in answer["prompts"]]
        return answer


def _stable(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _stable(part) for name, part in value.items() if name not in _VOLATILE}
    return [_stable(part) for part in value] if isinstance(value, list) else value


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Place:
    world = World(tmp_path)
    for name, value in world.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("TERM_SESSION_ID", raising=False)
    return Place(tmp_path, capfd)


def flip_value(value: Any, chance: random.Random) -> Any:
    """A value with one flipped bit in one byte."""
    if isinstance(value, int):
        return value ^ 1 << chance.randrange(40)
    raw = bytearray(value.encode() if isinstance(value, str) else value or b"\0")
    if not raw:
        return b"\xff"
    raw[chance.randrange(len(raw))] ^= 1 << chance.randrange(8)
    return bytes(raw)


TABLES = {
    "library": ["sessions", "states", "facts", "notes", "versions"],
    "search": ["files", "numbers", "branches", "terms_data", "terms_idx", "blocks", "segments"],
    "history": ["prompts", "sources", "notes"],
}


@pytest.mark.parametrize("name", TABLES)
def test_a_flipped_bit_in_any_column_changes_no_answer(place: Place, name: str) -> None:
    chance = random.Random(name)
    path = place.databases[name]
    with contextlib.closing(sqlite3.connect(path)) as database:
        columns = [
            (table, column[1], column[2])
            for table in TABLES[name]
            for column in database.execute(f"PRAGMA table_info({table})")
        ]
    for table, column, kind in columns:
        place.reset()
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
            # Without the triggers that keep the index of the history in sync: damage does not run them.
            for (trigger,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
                database.execute("DROP TRIGGER " + trigger)
            rows = database.execute(f"SELECT {column} FROM {table}").fetchall()
            if not rows:
                continue
            old = chance.choice(rows)[0]
            new = flip_value(old, chance)
            cast = "CAST(? AS TEXT)" if kind == "TEXT" else "?"
            update = f"UPDATE OR REPLACE {table} SET {column} = {cast} WHERE {column} IS ?"
            with contextlib.suppress(sqlite3.IntegrityError):  # a rowid must be a number
                database.execute(update, (new, old))
        check_answers(place, f"{table}.{column}: {old!r} -> {new!r}")


@pytest.mark.parametrize("name", ["library", "history", "search"])
def test_flipped_bytes_in_any_page_change_no_answer(place: Place, name: str) -> None:
    for seed in range(ROUNDS):
        damage_pages(place, name, random.Random(seed))
        check_answers(place, f"{name} seed {seed}")


def test_a_flipped_byte_in_an_index_of_the_history_changes_no_answer(place: Place) -> None:
    path = place.databases["history"]
    with contextlib.closing(sqlite3.connect(path)) as database:
        (size,) = database.execute("PRAGMA page_size").fetchone()
        roots = database.execute(
            "SELECT name, rootpage FROM sqlite_master WHERE type = 'index' AND tbl_name = 'prompts'"
        )
        pages = dict(roots.fetchall())
    chance = random.Random(1)
    for name, page in pages.items():
        start = (page - 1) * size
        for _ in range(ROUNDS):
            place.reset()
            data = bytearray(path.read_bytes())
            content = int.from_bytes(data[start + 5 : start + 7], "big")  # where the records of the page start
            at = start + chance.randrange(content, size)
            data[at] ^= 1 << chance.randrange(8)
            path.write_bytes(data)
            check_answers(place, f"{name} byte {at}")


def test_a_time_that_became_a_text_in_an_index_changes_no_answer(place: Place) -> None:
    path = place.databases["history"]
    with contextlib.closing(sqlite3.connect(path)) as database:
        (size,) = database.execute("PRAGMA page_size").fetchone()
        (page,) = database.execute("SELECT rootpage FROM sqlite_master WHERE name = 'prompts_by_time'").fetchone()
        (time,) = database.execute("SELECT max(time) FROM prompts").fetchone()
    data = bytearray(path.read_bytes())
    at = data.index(time.to_bytes(6, "big"), (page - 1) * size)
    assert data[at - 2] == 5, "the code of an integer of six bytes"
    data[at - 2] = 25  # that of a text of six bytes
    path.write_bytes(data)
    expected = place.answers[COMMANDS.index(["history", "--limit", "100"])]
    for command in (["history", "--limit", "100", "--no-refresh"], ["history", "--limit", "100"]):
        assert place.answer(command)["prompts"] == expected["prompts"]


def test_a_prompt_that_became_bytes_changes_no_answer_while_prompts_are_indexed_again(place: Place) -> None:
    with contextlib.closing(sqlite3.connect(place.databases["history"], isolation_level=None)) as database:
        database.execute("UPDATE prompts SET prompt = CAST(prompt AS BLOB) WHERE prompt = 'needle typed here 1'")
        database.execute("UPDATE notes SET note = 'of an older version' WHERE name = 'words'")
    check_answers(place, "a prompt of bytes")


def damage_pages(place: Place, name: str, chance: random.Random) -> None:
    place.reset()
    path = place.databases[name]
    data = bytearray(path.read_bytes())
    for _ in range(chance.choice([1, 1, 4, 40])):
        at = chance.randrange(len(data))
        if not 60 <= at < 64:  # the version, which a newer program may have written
            data[at] ^= 1 << chance.randrange(8)
    path.write_bytes(data)


def check_answers(place: Place, damage: str) -> None:
    for _ in range(2):  # with the damage, and after it was repaired
        for command, expected in zip(COMMANDS, place.answers, strict=True):
            assert place.answer(command) == expected, (damage, command)


@pytest.mark.parametrize("kind", ["garbage", "truncated", "empty", "no tables", "other schema"])
@pytest.mark.parametrize("name", TABLES)
def test_a_database_that_is_damaged_as_a_whole_changes_no_answer(place: Place, name: str, kind: str) -> None:
    path = place.databases[name]
    data = path.read_bytes()
    changes: dict[str, Callable[[], object]] = {
        "garbage": lambda: path.write_bytes(b"no database at all, " * 400),
        "truncated": lambda: path.write_bytes(data[: len(data) // 2]),
        "empty": lambda: path.write_bytes(b""),
        "no tables": lambda: _drop_tables(path),
        "other schema": lambda: path.write_bytes(data.replace(b"CREATE TABLE", b"CREATF TABLE")),
    }
    changes[kind]()
    check_answers(place, f"{name} {kind}")


def _drop_tables(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
        for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            with contextlib.suppress(sqlite3.Error):  # parts of a virtual table go with it
                database.execute(f"DROP TABLE IF EXISTS {table}")


def test_the_history_needs_only_its_log_or_its_database(place: Place) -> None:
    expected = place.answer(["history", "--limit", "100"])
    (place.home / "history-log.jsonl").unlink()
    assert place.answer(["history", "--limit", "100"]) == expected
    assert (place.home / "history-log.jsonl").exists()
    place.databases["history"].unlink()
    assert place.answer(["history", "--limit", "100"]) == expected


def test_what_the_log_has_lost_is_read_from_the_damaged_database(place: Place) -> None:
    expected = place.answer(["history", "--limit", "100"])
    log = place.home / "history-log.jsonl"
    log.write_bytes(log.read_bytes().replace(b"needle typed here 2", b"needle typ\xffd here 2"))
    with contextlib.closing(sqlite3.connect(place.databases["history"], isolation_level=None)) as database:
        database.execute("DROP TRIGGER prompt_changed")
        database.execute("UPDATE prompts SET prompt = 'xeedle typed here 1' WHERE prompt = 'needle typed here 1'")
    assert place.answer(["history", "--limit", "100"]) == expected


def test_damaged_vectors_are_embedded_again(place: Place) -> None:
    class Letters:
        name, least = "letters", 0.0

        def embed(self, texts: list[str]) -> list[list[float]]:
            return [[text.count(chr(97 + at)) - 0.5 for at in range(32)] for text in texts]

    def found() -> list[str]:
        with place.world.library() as library:
            return [hit.entry for hit in search_by_meaning(library, "needle", embedder=Letters(), limit=100)]

    expected = found()
    path = Path(place.world.environment["SESSIONTREE_CACHE"], "meaning.sqlite")
    data = path.read_bytes()
    for seed in range(ROUNDS):
        chance = random.Random(seed)
        damaged = bytearray(data)
        for _ in range(chance.choice([1, 5, 50])):
            damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged)
        assert found() == expected, seed
