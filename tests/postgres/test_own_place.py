"""Everything of a session in PostgreSQL stays there: the file system has no byte of it, whatever command was run."""

from __future__ import annotations

from pathlib import Path

import pytest

import sessiontree
from sessiontree.cli import main
from sessiontree.library import Library
from sessiontree.search import search
from sessiontree.stores.postgres.repository import PostgresRepository

SECRET = "kumquat"


def all_bytes(place: Path) -> bytes:
    return b"\n".join(
        bytes(path.relative_to(place)) + b"\n" + path.read_bytes() for path in place.rglob("*") if path.is_file()
    )


def write_session(home: str) -> sessiontree.Session:
    with sessiontree.create(home=home, cwd=".") as session:
        first = session.append("user", f"Sort this {SECRET} list by clock.")
        session.append("assistant", [{"type": "text", "text": f"Quicksort for the {SECRET}?"}])
        session.branch(at=first.id).append("assistant", [{"type": "text", "text": f"Merge the {SECRET}!"}])
        session.append("user", f"{SECRET} " * 20_000)
        session.append("user", [{"type": "image", "mimeType": "image/png", "data": "a3VtcXVhdCBr" * 9000}])
    return session


def test_no_command_leaves_anything_of_a_session_outside_of_its_home(
    repository: PostgresRepository, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = repository.home
    session = write_session(home)
    ref, first = str(session.ref), sessiontree.open(str(session.ref)).ids[0]
    printed = ""
    for arguments in (
        *(["list", "--home", home], ["list", "--all", "--home", home], ["search", "clock", "--home", home]),
        *(
            ["search", "Quicksort", "--semantic", "--home", home],
            ["stats", "--home", home],
            ["history", "--home", home],
        ),
        *(["info", ref], ["tree", ref], ["show", ref], ["context", ref], ["branches", ref], ["doctor", ref]),
        *(["doctor", "--home", home], ["export", ref, "--format", "md"], ["export", ref, "--format", "html"]),
        *(["tag", ref, SECRET], ["label", ref, first, SECRET], ["rename", ref, f"The {SECRET}"], ["pin", ref]),
        *(["fork", ref], ["append", ref, "user", f"More {SECRET}!"], ["repair", ref], ["convert", ref, "--to", "pi"]),
        *(["compact", ref], ["branch", ref, first], ["list", "--home", home], ["search", SECRET, "--home", home]),
        *(
            ["history", SECRET, "--home", home],
            ["store", "vacuum", "--home", home],
            ["search", "clock", "--home", home],
        ),
    ):
        main(arguments)
        printed += capsys.readouterr().out
        found = all_bytes(place)
        assert session.id.encode() not in found, arguments
        assert SECRET.encode() not in found, arguments
        assert b"a3VtcXVhdA" not in found, arguments
    assert printed.count(SECRET) > 20, "the commands did their work"


def test_listing_and_searching_again_reads_no_session(
    repository: PostgresRepository, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_session(repository.home)
    with Library(repository.home) as library:
        assert len(library.sessions()) == 1
        assert [hit.session.id for hit in search(library, "Quicksort")]
    with Library(repository.home) as library:
        (summary,) = library.everything()
        assert library.cache.find_stamp(summary.ref) is not None, "from the repository"
        found = search(library, "Quicksort", refresh="none")
        assert list(found)
        assert found.unindexed == 0, "the index was loaded, and nothing was scanned"
    with sessiontree.open(summary.ref) as session:
        session.append("user", "another zebra")
    with Library(repository.home) as library:
        assert list(search(library, "zebra"))


def test_the_prompts_of_a_repository_are_its_history(
    repository: PostgresRepository, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_session(repository.home)
    with sessiontree.create(cwd=".") as session:
        session.append("user", "a prompt in a file")
    main(["history", "--home", repository.home])
    assert f"Sort this {SECRET}" in (shown := capsys.readouterr().out)
    assert "a prompt in a file" not in shown
    main(["history"])
    assert "a prompt in a file" in (shown := capsys.readouterr().out)
    assert SECRET not in shown
    main(["history", "--no-refresh", "clock", "--home", repository.home])
    assert SECRET in capsys.readouterr().out, "it is stored there"


def test_the_environment_may_name_a_repository_as_the_home(
    repository: PostgresRepository, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SESSIONTREE_HOME", repository.home)
    with sessiontree.create(cwd=".") as session:
        session.append("user", "hello")
    assert session.ref.home == repository.home
    assert len(sessiontree.open(session.id)) == 1
    main(["new"])
    main(["list"])
    assert session.id[:8] in capsys.readouterr().out
    assert len(list(repository.iter_stats())) == 2
    assert not list((place / "work").iterdir()), "no folder with the name of the address"
    with Library() as library:
        assert {summary.id for summary in library.sessions()} >= {session.id}
