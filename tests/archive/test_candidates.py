"""Candidates from the library equal those from the files, which are opened only if the decision depends on it."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sessiontree.archive.candidates import Candidate, iter_candidates, iter_library_candidates, read_details
from sessiontree.errors import AmbiguousError, NotFoundError, UsageError
from sessiontree.library import Library
from tests.archive.conftest import Command
from tests.archive.machine import (
    CLAUDE_ID,
    NATIVE_ID,
    claude_line,
    claude_message,
    contents,
    environment,
    native_lines,
    write_claude,
    write_native,
)
from tests.builders import entry, header, message_line

CORPUS = Path(__file__).parents[1] / "corpus"
NEW_TIME = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime())
_opened: list[str] | None = None


def _listen(event: str, arguments: tuple[object, ...]) -> None:
    if _opened is not None and event == "open" and isinstance(arguments[0], str):
        _opened.append(arguments[0])


sys.addaudithook(_listen)


@contextmanager
def opened_files() -> Iterator[list[str]]:
    """Record the files that this process opens."""
    global _opened
    _opened = []
    try:
        yield _opened
    finally:
        _opened = None


def long_lines(last_message: bytes = b"") -> list[bytes]:
    """A Claude Code session with a message between the two ends that a listing reads."""
    progress = [claude_line("progress", f"p{number}", "u2", data={"text": "x" * 900}) for number in range(400)]
    begun = [claude_message("u1", None, "first"), claude_message("u2", "u1", "answer", "assistant")]
    return [*begun, *progress[:200], last_message, *progress[200:]]


def chosen(command: Command, *arguments: str) -> set[str]:
    return {row["path"] for row in command("clean", "--json", *arguments).json["sessions"]}


def put_corpus(tmp_path: Path) -> None:
    """Every session of the corpus, where its agent would keep it."""
    places = {"neovate": ".neovate/projects/-work", "pi-family": ".pi/agent/sessions/--work--"}
    for source in sorted(CORPUS.rglob("*.jsonl")):
        family = source.relative_to(CORPUS).parts[0]
        folder = tmp_path / "user" / places.get(family, ".claude/projects/-work")
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, folder / source.name)


def test_candidates_from_the_library_equal_those_from_the_files(tmp_path: Path) -> None:
    put_corpus(tmp_path)
    write_claude(tmp_path, long_lines(claude_message("u3", "u2", "later").replace(b"10:00:01", b"11:00:01")))
    write_native(tmp_path)
    with Library(environment=environment(tmp_path)) as library:
        found = {one.path: one for one in iter_library_candidates(library)}
        plain = {one.path: one for one in iter_candidates([root.folder for root in library.roots])}
    assert len(plain) > 40
    for path, one in plain.items():
        if one.active is None and path not in found:
            continue  # no message and no time in it
        known = found[path]
        assert (known.size, known.named) in ((one.size, one.named), (one.size, None))
        assert not known.is_dated or known.active == pytest.approx(one.active, abs=1)
        closer = read_details(known)
        assert closer is not None
        assert (closer.active, closer.named, closer.labeled) == (one.active, one.named, one.labeled)


def test_no_file_is_opened_for_a_known_field(tmp_path: Path, command: Command) -> None:
    paths = {str(write_native(tmp_path)), str(write_claude(tmp_path))}
    assert chosen(command) == paths
    with opened_files() as opened:
        assert chosen(command, "--keep-named") == paths
    assert paths.isdisjoint(opened)
    with opened_files() as opened:
        assert chosen(command, "--keep-labeled") == paths
    assert paths <= set(opened)
    with opened_files() as opened:
        assert chosen(command, "--keep-labeled", "--older-than", "90y") == set()
    assert paths.isdisjoint(opened)


def test_a_last_message_between_the_ends_of_a_large_file_counts(tmp_path: Path, command: Command) -> None:
    new = claude_message("u3", "u2", "today").replace(b"2026-02-16T10:00:01.000Z", NEW_TIME.encode())
    path = write_claude(tmp_path, long_lines(new))
    assert path.stat().st_size > 3 * 128 * 1024 / 2
    assert chosen(command) == set()
    path.write_bytes(b"".join(long_lines()))
    assert chosen(command) == {str(path)}


def test_a_name_between_the_ends_of_a_large_file_counts(tmp_path: Path, command: Command) -> None:
    filler = [message_line(f"f{number}", "n3", "x" * 900) for number in range(400)]
    named = entry("session_info", "i1", "n3", name="mine")
    path = write_native(tmp_path, [*native_lines(), *filler[:200], named, *filler[200:]])
    assert chosen(command) == {str(path)}
    assert chosen(command, "--keep-named") == set()


def test_a_session_that_continued_after_it_was_listed_is_not_old_any_more(tmp_path: Path, command: Command) -> None:
    path = write_claude(tmp_path)
    assert chosen(command) == {str(path)}
    with path.open("ab") as file:
        file.write(claude_message("u3", "u2", "today").replace(b"2026-02-16T10:00:01.000Z", NEW_TIME.encode()))
    assert chosen(command) == set()


def test_a_file_that_is_not_a_session_is_neither_counted_nor_kept(tmp_path: Path, command: Command) -> None:
    path = write_claude(tmp_path)
    (path.parent / "empty.jsonl").write_bytes(b"")
    (path.parent / "strange.jsonl").write_bytes(b"no session\n")
    (path.parent / "linked.jsonl").symlink_to(path)
    found = command("clean", "--json").json
    assert ([row["path"] for row in found["sessions"]], found["spared"]) == ([str(path)], {})
    assert [one["path"] for one in command("keep", "--all", "--json").json["kept"]] == [str(path)]


def test_a_session_without_an_id_can_be_pinned(tmp_path: Path, command: Command) -> None:
    path = write_native(tmp_path, [header(id=None, sessiontree=1), *native_lines()[1:]])
    assert chosen(command) == {str(path)}
    command("pin", str(path))
    assert chosen(command) == set()


def test_sessions_are_named_as_for_open(tmp_path: Path, command: Command) -> None:
    write_native(tmp_path, [*native_lines(), entry("session_info", "i1", "n3", name="parser rewrite")])
    claude = write_claude(tmp_path)
    for name in ("parser rewrite", "rewrite", NATIVE_ID, NATIVE_ID[:12]):
        assert command("tag", name, "--json").json["session"] == NATIVE_ID
    assert command("pin", CLAUDE_ID[:8], "--json").json["path"] == str(claude)
    write_native(tmp_path, name="2026-02-17T10-00-00-000Z_another").write_bytes(
        b"".join([header(id="another", sessiontree=1), *native_lines()[1:]])
    )
    write_claude(tmp_path)
    with pytest.raises(AmbiguousError) as raised:
        command("tag", "first")
    assert {str(claude)} < set(raised.value.candidates)
    with pytest.raises(NotFoundError, match="no session matches"):
        command("tag", "nothing like it")


def test_a_chosen_root_replaces_the_agents_own(tmp_path: Path, command: Command) -> None:
    own = write_claude(tmp_path)
    elsewhere = tmp_path / "elsewhere" / "-work-a"
    elsewhere.mkdir(parents=True)
    other = elsewhere / own.name
    shutil.copy(own, other)
    root = ("--root", f"claude={tmp_path / 'elsewhere'}")
    assert chosen(command, *root) == {str(other)}
    assert chosen(command) == {str(own)}
    assert command("tag", CLAUDE_ID, *root, "--json").json["path"] == str(other)
    before = contents(tmp_path / "user")
    with pytest.raises(UsageError, match="outside"):
        command("mv", str(own), "--cwd", str(tmp_path), "--yes", *root)
    assert command("clean", "--yes", *root).code == 0
    assert not other.exists()
    with pytest.raises(UsageError, match="outside"):
        command("restore", str(other))
    command("restore", str(other), *root)
    assert other.read_bytes() == own.read_bytes()
    assert contents(tmp_path / "user") == before
    copied = command("backup", str(tmp_path / "copy"), *root, "--json").json
    assert copied["counts"] == {"copied": 1}
    assert (tmp_path / "copy" / "claude" / "-work-a" / own.name).exists()
    with pytest.raises(UsageError, match="DIALECT=DIR"):
        command("clean", "--root", "nobody=/x")


def test_mv_project_opens_only_sessions_of_that_project(tmp_path: Path, command: Command) -> None:
    path = write_native(tmp_path)
    other = write_claude(tmp_path, [claude_message("u1", None, "first").replace(b"/work/a", b"/work/b")])
    command("clean")
    with opened_files() as opened:
        moves = command("mv", "--project", "/work/a", str(tmp_path), "--json").json["moves"]
    assert [move["from"] for move in moves] == [str(path)]
    assert str(other) not in opened


def test_details_of_a_missing_file_are_none() -> None:
    gone = Candidate("/nowhere/x.jsonl", "claude", "x", active=1, is_dated=False)
    assert read_details(gone) is None
