"""Every command works with sessions of other repositories: `memory:`, and `box:` of another package (`box/box.py`).

A box keeps its sessions in one SQLite file, and nothing but its entry point is known to sessiontree.
"""

from __future__ import annotations

import io
import json
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import sessiontree
from sessiontree import plugins
from sessiontree.app.actions.table import ACTIONS, Subject
from sessiontree.archive.archive_home import Home
from sessiontree.cli import main
from sessiontree.core.entries import MessageEntry
from sessiontree.core.messages import message_text
from sessiontree.stores.repositories import find_ref, open_repository
from sessiontree.testing import check_repository

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "tests" / "box"
FOLDERS = {
    "HOME": "user",
    "SESSIONTREE_HOME": "home",
    "SESSIONTREE_CACHE": "cache",
    "XDG_CACHE_HOME": "cache",
    "TMPDIR": "tmp",
}
WORD = "Quetzalcoatlus"
"""Occurs in every session of these tests, and in no other file."""

Run = Callable[..., str]


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with the package installed, a home folder and a project, in a terminal with a last session."""
    monkeypatch.syspath_prepend(str(PACKAGE))
    for variable, folder in FOLDERS.items():
        (tmp_path / folder).mkdir(exist_ok=True)
        monkeypatch.setenv(variable, str(tmp_path / folder))
    monkeypatch.setenv("TMUX_PANE", "%1")
    monkeypatch.setenv("COLUMNS", "100")
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    notes = {"when": "Write (none) under a heading", "text": "## Goal\n\n- Learn about it.", "repeat": True}
    script = {"turns": [notes, {"text": f"The {WORD} could fly."}]}
    (tmp_path / "script.json").write_text(json.dumps(script))
    return tmp_path


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command that has to end with `code`; returns what it prints, with its message if it fails."""

    def run(*arguments: str, code: int = 0) -> str:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO()))
        capfd.readouterr()
        found = main(arguments)
        printed = capfd.readouterr()
        assert found == code, printed.err
        return printed.out + (printed.err if code else "")

    return run


@pytest.fixture(params=["box", "memory"])
def home(request: pytest.FixtureRequest, machine: Path, run: Run) -> Iterator[str]:
    """The address of a repository. One in memory leaves nothing behind, not even in a cache."""
    if request.param == "box":
        yield f"box:{machine}/team.box"
        return
    run("append", load(run("new", "--json"))["path"], "user", "a session in a file")
    run("list", "--all")  # creates the caches
    run("search", "anything")
    before = sorted(machine.rglob("*"))
    yield f"memory:{machine.name}"
    out = machine / "out"
    assert [
        path for path in sorted(machine.rglob("*")) if path not in before and out not in (path, *path.parents)
    ] == []
    for path in before:
        if path.is_file() and path.name != "script.json":
            assert WORD.encode() not in path.read_bytes(), path


@pytest.fixture
def ref(home: str, run: Run, machine: Path) -> str:
    """A session with a prompt, an answer, a name and two branches."""
    run("chat", "-p", "--home", home, "--model", f"scripted:{machine}/script.json", f"Can a {WORD} fly?")
    (stat,) = open_repository(home).iter_stats()
    run("rename", str(stat.ref), "Pterosaurs")
    question, _ = [entry for entry in sessiontree.open(stat.ref).path() if isinstance(entry, MessageEntry)]
    run("append", str(stat.ref), "assistant", "It could walk, too.", "--at", question.id)
    return str(stat.ref)


def load(text: str) -> Any:
    return json.loads(text)


def texts_of(ref: str) -> list[str]:
    return [message_text(message) for message in sessiontree.open(ref).context().messages]


def test_a_box_keeps_the_contract(machine: Path) -> None:
    make = plugins.load("stores", "box")
    check_repository(lambda name: make(f"box:{machine}/{name}.box"))


def test_the_documentation_shows_the_box_of_these_tests() -> None:
    assert (PACKAGE / "box.py").read_text() in (ROOT / "docs" / "extending.md").read_text()


def test_one_session_passes_through_everything(run: Run, home: str, machine: Path) -> None:
    created = sessiontree.create(machine / "project", home=home)
    question = created.append("user", f"What did the {WORD} eat?")
    answer = created.append(role="assistant", content="Small animals.", provider="p", model="m")
    ref = str(created.ref)
    session = sessiontree.open(ref)

    def write(number: int) -> None:
        branch = session.branch(answer.id)
        for step in range(10):
            branch.append("user", f"thread {number}, step {step}")

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(session) == 2 + 8 * 10
    assert len(created.refresh()) == 8 * 10
    other = session.branch(question.id).append(role="assistant", content="Fish.", provider="p", model="m")
    session.append("user", "x" * 600_000)  # becomes a blob
    run("merge", ref, other.id, "--how", "append")
    run("compact", ref, "--keep", "600", "--summarizer", "extractive")
    forked = run("fork", ref).strip()
    assert texts_of(forked) == texts_of(ref)
    model = f"scripted:{machine}/script.json"
    run("chat", "-p", "--session", forked, "--model", model, "And how did it hunt?")
    assert texts_of(forked)[-1] == f"The {WORD} could fly."
    listed = load(run("list", "--home", home, "--json"))["sessions"]
    assert {found["path"] for found in listed} == {ref, forked}
    hits = load(run("search", "Fish", "--home", home, "--json"))["hits"]
    assert {hit["session"]["path"] for hit in hits} == {ref, forked}
    assert "x" * 600_000 in run("export", ref, "--branch", "all", "--format", "text")
    assert sessiontree.open(ref).problems == []


def test_a_repository_whose_package_is_missing_is_not_taken_for_a_folder(run: Run, machine: Path) -> None:
    for arguments in (
        ("show", "cargo://host/db/0123456789ab"),
        ("new", "--home", "cargo://host/db"),
        ("list", "--home", "cargo://host/db"),
    ):
        assert "no store named 'cargo' is installed (available: box, file, memory, postgresql)" in run(
            *arguments, code=1
        )
    assert list((machine / "project").iterdir()) == []
    (machine / "project" / "cargo:").mkdir()
    run("new", "--home", "cargo:/db")
    assert (machine / "project" / "cargo:" / "db" / "sessions").is_dir()


# Commands that read


def test_sessions_are_listed_and_found(run: Run, home: str, ref: str) -> None:
    listed = load(run("list", "--home", home, "--json"))["sessions"]
    assert [(found["path"], found["title"], found["messages"]) for found in listed] == [(ref, "Pterosaurs", 3)]
    assert "Pterosaurs" in run("list", "--home", home)
    id = ref.rpartition("/")[2]
    for name in (ref, id, id[:13], "Pterosaurs"):
        assert load(run("info", name, "--home", home, "--json"))["id"] == id
        assert WORD in run("show", name, "--home", home)
        assert run("open", name, "--home", home, "--print-path").strip() == ref
    assert WORD in run("open", ref)
    assert run("continue", "--home", home, "--print-path").strip() == ref
    assert "no session" in run("show", "ffffffff", "--home", home, code=1)


def test_sessions_are_searched(run: Run, home: str, ref: str) -> None:
    for _ in range(2):  # without an index, and with it
        hits = load(run("search", WORD, "--home", home, "--json"))["hits"]
        assert {hit["session"]["path"] for hit in hits} == {ref}
        assert len(hits) == 2
    run("append", ref, "user", f"Where did the {WORD} live?")
    assert len(load(run("search", WORD, "--home", home, "--json"))["hits"]) == 3


def test_statistics_count_sessions(run: Run, home: str, ref: str) -> None:
    totals = load(run("stats", "--home", home, "--json"))["totals"]
    assert (totals["sessions"], totals["requests"]) == (1, 1)


@pytest.mark.parametrize("command", ["show", "tree", "context", "export", "branches", "info"])
def test_a_session_is_shown(run: Run, ref: str, command: str) -> None:
    assert re.search(f"{WORD}|walk|Pterosaurs", run(command, ref))


def test_only_files_have_processes_that_write_to_them(ref: str, capfd: pytest.CaptureFixture[str]) -> None:
    capfd.readouterr()
    assert main(["branches", ref]) == 0
    assert capfd.readouterr().err == ""


def test_an_exploration_runs_in_the_repository(run: Run, home: str, machine: Path) -> None:
    ref = run("new", "--home", home).strip()
    run("append", ref, "user", f"Describe the {WORD}")
    run("append", ref, "assistant", "It had wings.")
    model = f"scripted:{machine}/script.json"
    run("explore", "start", ref, "Go on", "--n", "2", "--model", model, "--no-worktrees")
    assert run("tree", ref).count("could fly") == 2
    assert "2 done" in run("explore", "list", ref)
    assert [str(stat.ref) for stat in open_repository(home).iter_stats()] == [ref]


def test_branches_are_compared(run: Run, ref: str) -> None:
    session = sessiontree.open(ref)
    other = next(leaf for leaf in session.leaves() if leaf != session.leaf)
    assert "diverge" in run("diff", ref, str(session.leaf), other)


def test_a_session_is_checked(run: Run, ref: str) -> None:
    assert "no problems found" in run("doctor", ref)


def test_a_session_is_exported_in_every_format(run: Run, ref: str, machine: Path) -> None:
    (machine / "out").mkdir()
    for format in ("html", "md", "text", "json", "jsonl"):
        run("export", ref, "--format", format, "--out", f"{machine}/out/session.{format}")
        assert WORD in (machine / "out" / f"session.{format}").read_text()


# Commands that write


def test_a_session_is_appended_to_and_switched(run: Run, home: str, ref: str) -> None:
    leaf = sessiontree.open(ref).leaf
    entry = run("append", ref, "user", "And its wings?").strip()
    assert texts_of(ref)[-1] == "And its wings?"
    run("branch", ref, str(leaf))
    assert sessiontree.open(ref).leaf == leaf
    run("label", ref, entry, "wings")
    assert "wings" in run("tree", ref)


def test_branches_are_merged_and_compacted(run: Run, ref: str) -> None:
    session = sessiontree.open(ref)
    other = next(leaf for leaf in session.leaves() if leaf != session.leaf)
    run("merge", ref, other, "--how", "append")
    merged = "\n".join(texts_of(ref))
    assert ("could fly" in merged, "walk" in merged) == (True, True)
    for number in range(20):
        run("append", ref, "user" if number % 2 == 0 else "assistant", f"{number} " + "word " * 500)
    run("compact", ref, "--keep", "600", "--summarizer", "extractive")
    assert sessiontree.open(ref).count("compaction") == 1


def test_forks_are_in_the_repository_and_listed(run: Run, home: str, ref: str) -> None:
    for to in (None, "claude", "neovate"):
        forked = run("fork", ref, *(("--to", to) if to else ())).strip()
        assert forked.startswith(f"{home}/")
        assert texts_of(forked) == texts_of(ref)
        assert sessiontree.open(forked).dialect.name == (to or "native")
    listed = load(run("list", "--home", home, "--all", "--json"))["sessions"]
    assert sorted(found["agent"] for found in listed) == ["claude", "native", "native", "neovate"]


def test_a_session_is_converted_to_a_file(run: Run, ref: str, machine: Path) -> None:
    (machine / "out").mkdir()
    run("convert", ref, "--to", "pi", "--out", f"{machine}/out/pi.jsonl")
    assert texts_of(f"{machine}/out/pi.jsonl") == texts_of(ref)


def test_a_session_is_continued_in_a_chat(run: Run, home: str, ref: str, machine: Path) -> None:
    model = f"scripted:{machine}/script.json"
    run("chat", "-p", "--session", ref, "--model", model, "Is that so?")
    assert texts_of(ref)[-2:] == ["Is that so?", f"The {WORD} could fly."]
    run("chat", "-p", "--home", home, "-c", "--model", model, "Really?")
    assert texts_of(ref)[-2:] == ["Really?", f"The {WORD} could fly."]


def test_tags_and_pins_are_in_the_repository(run: Run, home: str, ref: str, machine: Path) -> None:
    run("tag", ref, "birds")
    run("pin", ref)
    found = load(run("tag", "Pterosaurs", "--home", home, "--json"))
    assert (found["tags"], found["pinned"]) == (["birds"], True)
    subject = Subject(sessiontree.open(ref), Home(str(machine / "home")))
    ACTIONS["tag"].plan(subject, add=("flying",)).do()
    assert run("tag", ref).split() == ["birds", "flying"]
    assert b"birds" in (open_repository(home).documents.read("marks.json") or b"")
    assert not (machine / "home" / "marks.json").exists()


def test_a_damaged_session_is_repaired(run: Run, home: str, ref: str) -> None:
    store = open_repository(home).open(find_ref(ref))
    store.append(b'{"type":"message","id":"torn', expected_size=store.size())
    assert "torn" in run("doctor", ref, code=3)
    assert "torn-tail" in run("repair", ref)
    sidecar = load(run("repair", ref, "--in-place", "--json"))["sidecar"]
    assert sidecar.startswith(home)
    assert b"torn" in (open_repository(home).documents.read(re.split("[/ ]", sidecar)[-1]) or b"")
    assert "no problems found" in run("doctor", ref)


# Commands for files only


@pytest.mark.parametrize(
    "arguments",
    [
        ("prune", "{ref}", "--branch", "{entry}", "--yes"),
        ("shrink", "{ref}"),
        ("worktree", "save", "{ref}"),
        ("keep", "{ref}"),
        ("mv", "--project", "/before", "/after", "--home", "{home}"),
        ("mv", "{ref}", "--cwd", "{machine}/out"),
        ("sync", "{machine}/out", "--home", "{home}"),
        ("backup", "{machine}/out", "--home", "{home}"),
        ("clean", "--home", "{home}"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_commands_for_files_refuse_other_sessions_in_one_line(
    run: Run, home: str, ref: str, machine: Path, arguments: tuple[str, ...]
) -> None:
    entry = sessiontree.open(ref).leaf
    before = texts_of(ref)
    message = run(*(text.format(ref=ref, home=home, entry=entry, machine=machine) for text in arguments), code=2)
    assert message.count("\n") == 1
    assert "files" in message
    assert texts_of(ref) == before
