"""Roots: every agent's own folders and variables, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sessiontree.errors import UsageError
from sessiontree.library.cache import Cache
from sessiontree.library.roots import find_roots, parse_roots
from sessiontree.library.scan import find_files
from tests.library.world import IDS, World, claude_lines, pi_lines


def folders(environment: dict[str, str], tmp_path: Path, *existing: str) -> dict[str, tuple[str, ...]]:
    for name in existing:
        (tmp_path / name).mkdir(parents=True, exist_ok=True)
    roots = find_roots({"HOME": str(tmp_path), **environment})
    return {os.path.relpath(root.folder, tmp_path): root.agents for root in roots}


def test_every_agent_is_searched_in_the_home_folder(tmp_path: Path) -> None:
    places = {
        ".claude/projects": ("claude",),
        ".pi/agent/sessions": ("pi",),
        ".omp/agent/sessions": ("omp",),
        ".xcsh/agent/sessions": ("omp",),
        ".neovate/projects": ("neovate",),
        ".takumi/projects": ("neovate",),
        ".neo/sessions": ("neovate",),
        ".local/share/sessiontree/sessions": ("native",),
    }
    assert folders({}, tmp_path, *places) == places


@pytest.mark.parametrize(
    ("variables", "expected", "agents"),
    [
        ({"CLAUDE_CONFIG_DIR": "{}/c"}, "c/projects", ("claude",)),
        ({"PI_CODING_AGENT_SESSION_DIR": "{}/flat"}, "flat", ("pi",)),
        ({"PI_CODING_AGENT_SESSION_DIR": "~/flat"}, "flat", ("pi",)),
        ({"PI_CODING_AGENT_DIR": "{}/agent"}, "agent/sessions", ("omp", "pi")),
        ({"PI_CONFIG_DIR": ".mine"}, ".mine/agent/sessions", ("omp",)),
        ({"OMP_PROFILE": "work"}, ".omp/profiles/work/agent/sessions", ("omp",)),
        ({"PI_PROFILE": "work"}, ".omp/profiles/work/agent/sessions", ("omp",)),
        ({"XDG_DATA_HOME": "{}/data"}, "data/omp/sessions", ("omp",)),
        ({"XDG_DATA_HOME": "{}/data"}, "data/sessiontree/sessions", ("native",)),
        ({"SESSIONTREE_HOME": "{}/st"}, "st/sessions", ("native",)),
    ],
)
def test_the_variables_of_each_agent_are_respected(
    variables: dict[str, str], expected: str, agents: tuple[str, ...], tmp_path: Path
) -> None:
    environment = {name: value.format(tmp_path) for name, value in variables.items()}
    assert folders(environment, tmp_path, expected) == {expected: agents}


def test_a_flat_folder_of_pi_does_not_hide_its_older_sessions(tmp_path: Path) -> None:
    environment = {"PI_CODING_AGENT_SESSION_DIR": str(tmp_path / "flat")}
    assert set(folders(environment, tmp_path, "flat", ".pi/agent/sessions")) == {"flat", ".pi/agent/sessions"}


def test_a_configured_root_replaces_the_default(world: World) -> None:
    world.claude(IDS[0], "/x")
    elsewhere = world.folder / "elsewhere"
    (elsewhere / "-x").mkdir(parents=True)
    (elsewhere / "-x" / f"{IDS[1]}.jsonl").write_bytes(b"")
    with world.library(roots={"claude": [str(elsewhere)]}) as library:
        assert [one.id for one in library.sessions()] == [IDS[1]]


@pytest.mark.parametrize("text", ["claude", "=x", "klingon=/x", "claude="])
def test_an_invalid_root_is_rejected(text: str) -> None:
    with pytest.raises(UsageError, match="DIALECT=DIR"):
        parse_roots([text])


def test_a_root_that_does_not_exist_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--root claude=.*/nope: no such folder"):
        parse_roots([f"claude={tmp_path}/nope"])
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="not a folder"):
        parse_roots([f"claude={tmp_path}/file"])
    assert parse_roots([f"claude={tmp_path}", "native=memory:team"]).keys() == {"claude", "native"}


def test_other_files_are_not_listed(world: World) -> None:
    main = world.claude(IDS[0], "/x")
    for name in (
        "memory/notes.jsonl",
        f"{IDS[0]}/tool-results/a.jsonl",
        f"{IDS[0]}/subagents/workflows/run/journal.jsonl",
        ".hidden.jsonl",
        f"{IDS[1]}.jsonl.bak",
        f"{IDS[1]}.txt",
    ):
        world.put(main.parent / name, b"{}\n")
    world.put(".neovate/projects/x/requests/r.jsonl", b"{}\n")
    world.put(".omp/agent/sessions/-x/.2026_x.jsonl.tmp", b"{}\n")
    (main.parent / "folder.jsonl").mkdir()
    with world.library() as library:
        assert [one.id for one in library.sessions(include_subagents=True)] == [IDS[0]]


def test_links_are_not_followed_out_of_the_folders(world: World) -> None:
    outside = world.folder / "outside"
    outside.mkdir()
    (outside / f"{IDS[1]}.jsonl").write_bytes(b"{}\n")
    main = world.claude(IDS[0], "/x")
    (main.parent / f"{IDS[2]}.jsonl").symlink_to(outside / f"{IDS[1]}.jsonl")
    (main.parent.parent / "linked").symlink_to(outside)
    (main.parent / "ring").symlink_to(main.parent)
    assert [Path(file.path).stem for file in find_files(find_roots(world.environment))] == [IDS[0]]


def test_a_root_that_is_itself_a_link_is_followed(world: World) -> None:
    real = world.folder / "dotfiles"
    real.mkdir()
    (world.home / ".claude").symlink_to(real)
    world.claude(IDS[0], "/x")
    with world.library() as library:
        assert library.sessions()[0].path.startswith(str(real))


def test_subagents_of_claude_are_found_under_their_parent_in_both_layouts(world: World) -> None:
    main = world.claude(IDS[0], "/x")
    side = claude_lines(IDS[0], "/x", ["look around"], sidechain=True)
    world.put(main.parent / IDS[0] / "subagents" / "agent-new.jsonl", side)
    world.put(main.parent / IDS[0] / "subagents" / "workflows" / "run" / "agent-deep.jsonl", side)
    world.put(main.parent / "agent-old.jsonl", side)
    with world.library() as library:
        found = library.sessions(include_subagents=True)
        assert {one.id: one.parent for one in found if one.kind == "subagent"} == {
            "agent-new": str(main),
            "agent-deep": str(main),
            "agent-old": str(main),
        }
        assert [one.id for one in library.sessions()] == [IDS[0]]


def test_subagents_of_oh_my_pi_are_found_under_their_parent(world: World) -> None:
    main = world.put(".omp/agent/sessions/-x/2026_one.jsonl", pi_lines("one", "/x"))
    inner = world.put(main.with_suffix("") / "scout.jsonl", pi_lines("two", "/x", parentSession=str(main)))
    world.put(inner.with_suffix("") / "deeper.jsonl", pi_lines("three", "/x", parentSession=str(inner)))
    with world.library() as library:
        found = {one.id: one for one in library.sessions(include_subagents=True)}
    assert found["one"].parent is None
    assert (found["two"].parent, found["three"].parent) == (str(main), str(inner))
    assert found["two"].forked_from is None


def test_a_subagent_without_its_parent_is_listed_alone(world: World) -> None:
    world.put(f".claude/projects/-x/{IDS[0]}/subagents/agent-a.jsonl", claude_lines(IDS[0], "/x", sidechain=True))
    with world.library() as library:
        (one,) = library.sessions(include_subagents=True)
    assert one.parent is None


def test_empty_and_draft_sessions_are_recognized(world: World) -> None:
    world.put(f".claude/projects/-x/{IDS[0]}.jsonl", b"")
    draft = world.put(".omp/agent/sessions/-x/2026_draft.jsonl", pi_lines("draft", "/x", []))
    (draft.with_suffix("")).mkdir()
    (draft.with_suffix("") / ".draft-only-session").write_bytes(b"")
    world.put(".pi/agent/sessions/--x--/2026_bare.jsonl", pi_lines("bare", "/x", []))
    with world.library() as library:
        assert {one.id: one.health for one in library.sessions()} == {
            IDS[0]: "empty",
            "draft": "draft",
            "bare": "empty",
        }


def test_in_a_shared_folder_the_agent_is_detected_by_content(world: World) -> None:
    world.environment["PI_CODING_AGENT_DIR"] = str(world.home / "both")
    world.put("both/sessions/x/2026_a.jsonl", pi_lines("a", "/x"))
    world.put("both/sessions/x/2026_b.jsonl", pi_lines("b", "/x", title="named", titleSource="user"))
    with world.library() as library:
        assert {one.id: one.agent for one in library.sessions()} == {"a": "pi", "b": "omp"}


def test_unreadable_folders_are_skipped(world: World) -> None:
    main = world.claude(IDS[0], "/x")
    locked = main.parent.parent / "locked"
    locked.mkdir()
    locked.chmod(0)
    try:
        with world.library() as library:
            assert [one.id for one in library.sessions()] == [IDS[0]]
    finally:
        locked.chmod(0o700)


def test_roots_are_cached_while_their_variables_are_unchanged(world: World) -> None:
    for name in ("one", "two"):
        (world.folder / name / "projects").mkdir(parents=True)
    cache = Cache(str(world.folder / "c.sqlite"))
    for _ in range(2):
        for name in ("one", "two"):
            environment = {**world.environment, "CLAUDE_CONFIG_DIR": str(world.folder / name), "OTHER": name}
            (root,) = find_roots(environment, cache=cache)
            assert root.folder == str(world.folder / name / "projects")
    (world.folder / "data" / "omp" / "sessions").mkdir(parents=True)
    environment = {**world.environment, "XDG_DATA_HOME": str(world.folder / "data")}
    assert [root.agents for root in find_roots(environment, cache=cache)] == [("omp",)]
    cache.close()


def test_a_listing_in_which_nothing_changed_imports_no_dialect(world: World) -> None:
    world.claude(IDS[0], "/x")
    world.put(".claude/projects/-x/a/journal.jsonl", b"{}\n")
    code = (
        "import sys\nfrom sessiontree.library import Library\n"
        "with Library() as library: print(len(library.sessions()))\n"
        "print(sorted(name for name in sys.modules if name.startswith('sessiontree.dialects.')))"
    )
    environment = {**os.environ, **world.environment}
    for _ in range(2):
        shown = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
        )
    assert shown.stdout == "1\n[]\n"
