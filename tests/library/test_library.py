"""Library queries: filters, order, finding one session, the newest of a project, threads."""

from __future__ import annotations

from pathlib import Path

import pytest

import sessiontree
from sessiontree.errors import AmbiguousError, NotFoundError
from sessiontree.library.threads import with_subagents
from tests.library.world import IDS, World, claude_lines, pi_lines


@pytest.fixture
def full(world: World) -> World:
    world.claude(IDS[0], "/x", ["mend the parser"], minute=10)
    world.pi(IDS[1], "/x", ["write the docs", "more"], minute=30)
    world.pi(IDS[2], "/y", ["tidy up"], minute=20)
    world.put(f".claude/projects/-x/{IDS[0]}/subagents/agent-a1.jsonl", claude_lines(IDS[0], "/x", sidechain=True))
    return world


def ids(world: World, **asked: object) -> list[str]:
    with world.library() as library:
        return [one.id for one in library.sessions(**asked)]  # type: ignore[arg-type]


def test_the_newest_comes_first_by_message_time(full: World) -> None:
    assert ids(full) == [IDS[1], IDS[2], IDS[0]]


def test_other_orders_can_be_chosen(full: World) -> None:
    with full.library() as library:
        sizes = [one.size for one in library.sessions(sort="size")]
    assert sizes == sorted(sizes, reverse=True)
    assert ids(full, sort="messages")[0] == IDS[1]
    assert ids(full, sort="cost")[0] == IDS[1]


def test_filters_narrow_the_listing(full: World) -> None:
    assert ids(full, agent="claude") == [IDS[0]]
    assert ids(full, include_subagents=True, agent="claude") == [IDS[0], "agent-a1"]
    with full.library() as library:
        middle = library.find(IDS[2]).active
    assert ids(full, since=middle) == [IDS[1], IDS[2]]
    assert ids(full, named=True) == []


def test_native_sessions_of_this_library_are_there_with_their_names(world: World) -> None:
    with sessiontree.create("/x", home=world.home / "st") as session:
        session.append("user", "hello there")
        session.rename("a name")
    with world.library() as library:
        (one,) = library.sessions(named=True)
        assert (one.id, one.title, one.agent, one.cwd) == (session.id, "a name", "native", "/x")
        assert library.find("a name").path == session.location


@pytest.mark.parametrize("wanted", [IDS[0], IDS[0][:8], IDS[0][:20], "mend the parser", "PARSER", "mend"])
def test_a_session_is_found_by_id_prefix_title_or_part_of_it(wanted: str, full: World) -> None:
    with full.library() as library:
        assert library.find(wanted).id == IDS[0]


def test_a_session_is_found_by_its_path_also_outside_of_all_folders(full: World) -> None:
    with full.library() as library:
        path = library.find(IDS[0]).path
        assert library.find(path).id == IDS[0]
        outside = full.folder / "copy.jsonl"
        outside.write_bytes(Path(path).read_bytes())
        assert library.find(str(outside)).title == "mend the parser"
        with pytest.raises(NotFoundError):
            library.find(str(full.folder / "nothing.jsonl"))
        (full.folder / "junk.jsonl").write_bytes(b"\x7fELF junk\n")
        with pytest.raises(sessiontree.NotASessionError):
            library.find(str(full.folder / "junk.jsonl"))


def test_ambiguity_lists_the_candidates(full: World) -> None:
    full.pi("0a000000-ffff", "/z", ["write the docs again"], minute=50)
    with full.library() as library:
        with pytest.raises(AmbiguousError) as caught:
            library.find("0a000000")
        assert len(caught.value.candidates) == 2
        assert IDS[0] in str(caught.value)
        with pytest.raises(AmbiguousError, match="write the docs again"):
            library.find("the docs")
        assert library.find("write the docs").id == IDS[1], "an exact title comes before a part of one"


@pytest.mark.parametrize("wanted", ["0b", "nothing like it", ""])
def test_no_match_is_an_error(wanted: str, full: World) -> None:
    with full.library() as library, pytest.raises(NotFoundError, match="no session matches"):
        library.find(wanted)


def test_the_newest_session_of_a_project_is_never_a_subagent_nor_empty(world: World) -> None:
    here = world.folder / "here"
    here.mkdir()
    with world.library() as library:
        assert library.newest(here) is None
    world.pi("empty", here, [], minute=50)
    with world.library() as library:
        newest = library.newest(here)
        assert newest is not None
        assert newest.id == "empty"
    main = world.claude(IDS[0], here, ["hello"], minute=10)
    side = claude_lines(IDS[0], str(here), ["x"], minute=40, sidechain=True)
    world.put(main.parent / IDS[0] / "subagents" / "agent-a.jsonl", side)
    with world.library() as library:
        newest = library.newest(here)
        assert newest is not None
        assert newest.id == IDS[0]


def test_forks_are_below_their_origin_across_dialects(world: World) -> None:
    origin = world.pi(IDS[0], "/x", ["the beginning"], minute=0)
    world.pi(IDS[1], "/x", ["a fork by path"], minute=10, parentSession=str(origin))
    world.pi(IDS[2], "/x", ["a fork by id"], minute=20, forkedFrom={"session": IDS[0], "entry": "u0000000"})
    world.pi(IDS[3], "/x", ["a fork by a path that has moved"], minute=5, parentSession=f"/old/2026_{IDS[1]}.jsonl")
    copied = [{**line, "forkedFrom": {"sessionId": IDS[0], "messageUuid": "u"}} for line in claude_lines(IDS[4], "/x")]
    world.put(f".claude/projects/-x/{IDS[4]}.jsonl", copied)
    world.pi(IDS[5], "/x", ["alone"], minute=15)
    with world.library() as library:
        found = [(one.summary.id, one.depth, one.relation) for one in library.thread()]
    assert found == [
        (IDS[0], 0, ""),
        (IDS[2], 1, "fork"),
        (IDS[1], 1, "fork"),
        (IDS[3], 2, "fork"),
        (IDS[4], 1, "fork"),
        (IDS[5], 0, ""),
    ]


def test_forks_that_name_each_other_do_not_form_a_cycle(world: World) -> None:
    for one, other in ((0, 1), (1, 2), (2, 0), (3, 3)):
        world.pi(IDS[one], "/x", minute=one, parentSession=IDS[other])
    with world.library() as library:
        assert {one.summary.id for one in library.thread()} == set(IDS[:4])


def test_a_copy_in_another_dialect_is_below_the_older_one(world: World) -> None:
    first = world.pi(IDS[0], "/x")
    second = world.claude(IDS[0], "/x")
    import os

    os.utime(first, (1, 1))
    os.utime(second, (2, 2))
    with world.library() as library:
        assert [(one.summary.agent, one.depth) for one in library.thread()] == [("pi", 0), ("claude", 1)]


def test_subagents_follow_their_session(full: World) -> None:
    with full.library() as library:
        everything = library.sessions(include_subagents=True)
        sessions = [one for one in everything if one.kind == "session"]
        found = with_subagents(sessions, [one for one in everything if one.kind == "subagent"])
    assert [(one.summary.id, one.depth) for one in found] == [
        (IDS[1], 0),
        (IDS[2], 0),
        (IDS[0], 0),
        ("agent-a1", 1),
    ]


def test_a_session_file_with_an_invalid_name_is_listed(world: World) -> None:
    folder = world.home / ".pi/agent/sessions/--x--"
    folder.mkdir(parents=True)
    import os

    path = os.fsencode(folder) + b"/2026_\xff\xfe.jsonl"
    with open(path, "wb") as file:
        from tests.library.world import json_lines

        file.write(json_lines(pi_lines("odd", "/x")))
    for _ in range(2):
        assert ids(world) == ["odd"]


def test_a_library_of_one_session_is_not_called_sessions(world: World) -> None:
    world.pi(IDS[0], "/work")
    with world.library() as library, pytest.raises(NotFoundError, match=r"searched 1 session;"):
        library.find("no such title")
