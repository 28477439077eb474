"""Dialects of another package, whose sessions have no branches, work with every command (`parrot/parrot.py`)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import sessiontree
from sessiontree import plugins
from sessiontree.core.entries import MessageEntry
from sessiontree.core.messages import message_text
from sessiontree.dialects.contract import Columns, Dialect, Envelope
from sessiontree.session.journal import Journal
from sessiontree.stores.memory import MemoryStore
from sessiontree.testing import check_dialect

PACKAGE = Path(__file__).parent / "parrot"
HEADER = {"session": "s1", "cwd": "/work", "start": "2026-01-01T00:00:00.000Z"}
LINES = [
    HEADER,
    {"id": "m1", "who": "user", "text": "Say hello", "time": "2026-01-01T00:00:01.000Z"},
    {"id": "m2", "who": "parrot", "text": "hel", "time": "2026-01-01T00:00:02.000Z", "seen": 10, "said": 1},
    {"who": "user", "text": "Now a cracker", "time": "2026-01-01T00:00:03.000Z"},
    {"id": "m2", "who": "parrot", "text": "hello polly", "time": "2026-01-01T00:00:02.000Z", "seen": 10, "said": 2},
    {"title": "Greetings"},
    {"who": "parrot", "text": "crunch", "time": "2026-01-01T00:00:04.000Z", "seen": 20, "said": 1},
]
TEXTS = ["Say hello", "hello polly", "Now a cracker", "crunch"]
IDS = ["m1", "m2", "00000002", "00000005"]

Run = Callable[..., str]


MACAW_LINES = [{"by": "macaw", **HEADER}, *LINES[1:]]


def data_of(*lines: object) -> bytes:
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


@pytest.fixture
def parrot(monkeypatch: pytest.MonkeyPatch) -> Dialect:
    monkeypatch.syspath_prepend(str(PACKAGE))
    found: Dialect = plugins.load("dialects", "parrot")
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return written(tmp_path, "parrot", LINES)


@pytest.fixture
def macaw(tmp_path: Path) -> Path:
    """A session of the client whose sessions can be written."""
    return written(tmp_path, "macaw", MACAW_LINES)


def written(tmp_path: Path, client: str, lines: list[dict[str, object]]) -> Path:
    path = tmp_path / "birds" / client / "s1.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(data_of(*lines))
    return path


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run a command that has to succeed, or to fail with `code`, and return what it prints."""
    folders = {"HOME": "user", "SESSIONTREE_HOME": "home", "SESSIONTREE_CACHE": "cache", "PARROT_HOME": "birds"}
    environment = {**os.environ, **{name: str(tmp_path / folder) for name, folder in folders.items()}}
    environment["PYTHONPATH"] = str(PACKAGE)

    def run(*arguments: str, code: int = 0) -> str:
        command = [sys.executable, "-m", "sessiontree", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, cwd=tmp_path)
        assert done.returncode == code, done.stderr
        return done.stderr if code else done.stdout

    return run


def texts_of(session: sessiontree.Session) -> list[str]:
    return [message_text(entry.message) for entry in session.path() if isinstance(entry, MessageEntry)]


def test_the_dialects_keep_the_contract(parrot: Dialect) -> None:
    check_dialect(parrot, [data_of(*LINES), data_of(*LINES[:3])], cuts=50)
    check_dialect(plugins.load("dialects", "macaw"), [data_of(*MACAW_LINES), data_of(*MACAW_LINES[:3])], cuts=50)


# Reading


def test_each_entry_is_a_child_of_the_one_before_it(parrot: Dialect, path: Path) -> None:
    session = sessiontree.open(path)
    assert [entry.id for entry in session.path()] == IDS
    assert [entry.parent_id for entry in session.path()] == [None, *IDS[:-1]]
    assert session.leaf == IDS[-1]
    assert session.name == "Greetings"


def test_a_repeated_id_replaces_the_content_at_its_place(parrot: Dialect, path: Path) -> None:
    session = sessiontree.open(path)
    assert texts_of(session) == TEXTS
    assert [message_text(message) for message in session.context().messages] == TEXTS
    assert session.problems == []
    assert session.usage().output == 3


def test_an_update_that_another_program_appends_is_seen(parrot: Dialect, path: Path) -> None:
    session = sessiontree.open(path)
    with path.open("ab") as file:
        file.write(data_of({"id": "m1", "who": "user", "text": "Say goodbye"}))
    session.refresh()
    assert texts_of(session) == ["Say goodbye", *TEXTS[1:]]
    assert session.leaf == IDS[-1]


def test_blocks_and_single_lines_give_the_same_tree(parrot: Dialect) -> None:
    class InBlocks(type(parrot)):  # type: ignore[misc]
        """Decodes blocks of messages in one call, as a fast dialect does."""

        def decode_block(self, data: memoryview, first: int) -> Columns | None:
            types, ids, parents = [], [], []
            for node, line in enumerate(bytes(data).splitlines(), first):
                envelope = self.decode_line(json.loads(line), node)
                if not isinstance(envelope, Envelope):
                    return None
                types.append(envelope.type)
                ids.append("" if envelope.is_metadata else envelope.id)
                parents.append(None if envelope.is_metadata else envelope.parent)
            return Columns(types, ids, parents)

    def read(dialect: Dialect, split: int) -> Journal:
        store = MemoryStore(data_of(*LINES[:split]))
        journal = Journal(store, dialect)
        journal.refresh()
        store.append(data_of(*LINES[split:]), expected_size=store.size())
        journal.refresh()
        return journal

    for split in range(1, len(LINES)):
        one, other = read(parrot, split), read(InBlocks(), split)
        assert other.tree.ids == one.tree.ids == ["m1", "m2", "00000002", "@3", "@4", "00000005"]
        assert other.types == one.types
        assert other.tree.parents() == one.tree.parents()
        nodes = range(len(one))
        assert other.entries(nodes) == one.entries(nodes)


# Commands


def test_commands_that_read_a_session(run: Run, path: Path) -> None:
    listed = json.loads(run("list", "--all", "--json"))["sessions"]
    assert [(found["id"], found["title"], found["messages"]) for found in listed] == [("s1", "Greetings", 4)]
    for command in ("tree", "show", "context", "export"):
        printed = run(command, str(path))
        assert [text in printed for text in TEXTS] == [True] * len(TEXTS), command
    assert "no problems found" in run("doctor", str(path))
    hits = json.loads(run("search", "polly", "--json"))["hits"]
    assert [(hit["session"]["id"], hit["entry"], hit["snippet"]["text"]) for hit in hits] == [
        ("s1", "m2", "hello polly")
    ]
    assert json.loads(run("stats", "--all", "--json"))["totals"]["tokens"] == {"input": 30, "output": 3, "cached": 0}


@pytest.mark.parametrize("to", ["native", "pi", "claude", "neovate", "omp"])
def test_a_session_can_be_converted_to_another_dialect(run: Run, path: Path, to: str, tmp_path: Path) -> None:
    run("convert", str(path), "--to", to, "--out", str(tmp_path / "out.jsonl"))
    session = sessiontree.open(tmp_path / "out.jsonl", dialect=to)
    assert texts_of(session) == TEXTS
    assert session.name == "Greetings"


@pytest.mark.parametrize(("client", "of_fork"), [("parrot", "native"), ("macaw", "macaw")])
def test_a_session_can_be_forked_at_an_entry(
    run: Run, path: Path, macaw: Path, parrot: Dialect, client: str, of_fork: str
) -> None:
    origin = {"parrot": path, "macaw": macaw}[client]
    forked = sessiontree.open(run("fork", str(origin), "--at", "m2").splitlines()[0])
    assert forked.dialect.name == of_fork
    assert texts_of(forked) == TEXTS[:2]


# Writing


def test_a_session_can_be_continued(run: Run, macaw: Path, parrot: Dialect, tmp_path: Path) -> None:
    run("append", str(macaw), "user", "and again")
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"turns": [{"text": "squawk"}]}))
    run("chat", "-p", "--session", str(macaw), "--model", f"scripted:{script}", "Speak")
    session = sessiontree.open(macaw)
    assert texts_of(session) == [*TEXTS, "and again", "Speak", "squawk"]
    assert macaw.read_bytes().startswith(data_of(*MACAW_LINES))


def test_a_session_of_another_dialect_can_be_converted(run: Run, path: Path, parrot: Dialect, tmp_path: Path) -> None:
    run("convert", str(path), "--to", "native", "--out", str(tmp_path / "native.jsonl"))
    run("convert", str(tmp_path / "native.jsonl"), "--to", "macaw", "--out", str(tmp_path / "back.jsonl"))
    back = sessiontree.open(tmp_path / "back.jsonl")
    assert (texts_of(back), back.name) == (TEXTS, "Greetings")
    assert "no branches" in run(
        "convert", str(tmp_path / "native.jsonl"), "--to", "macaw", "--branch", "all", "--out", "x.jsonl", code=2
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("append", "{}", "user", "again", "--at", "m1"), "no branches"),
        (("branch", "{}", "m1"), "no branches"),
        (("append", "{}", "bashExecution", "ls"), "cannot hold"),
        (("label", "{}", "m1", "start"), "cannot hold"),
    ],
)
def test_what_the_client_cannot_store_is_refused(
    run: Run, macaw: Path, arguments: tuple[str, ...], message: str
) -> None:
    assert message in run(*(argument.format(macaw) for argument in arguments), code=2)
    assert macaw.read_bytes() == data_of(*MACAW_LINES)


@pytest.mark.parametrize("command", [("append", "{}", "user", "again"), ("rename", "{}", "Other")])
def test_a_session_of_a_client_without_an_encoder_is_read_only(run: Run, path: Path, command: tuple[str, ...]) -> None:
    assert "read-only" in run(*(argument.format(path) for argument in command), code=1)
    assert path.read_bytes() == data_of(*LINES)
