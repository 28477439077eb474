"""Which sessions belong to a project: by real path and repository, never by the name of an agent's folder."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from sessiontree.git.repository import find_repository, normalize_remote
from sessiontree.library.projects import Projects
from tests.library.world import IDS, World, claude_lines, git, repository

REMOTE = "git@example.com:ada/tides.git"


def listed(world: World, project: Path) -> set[str]:
    with world.library() as library:
        return {one.id for one in library.sessions(project=project)}


def test_sessions_are_listed_for_the_folder_they_worked_in(world: World) -> None:
    here, there = world.folder / "here", world.folder / "there"
    here.mkdir(), there.mkdir()
    world.claude(IDS[0], here)
    world.pi(IDS[1], here)
    world.claude(IDS[2], there)
    assert listed(world, here) == {IDS[0], IDS[1]}


def test_a_repository_is_identified_by_its_first_commit_once_it_has_one(world: World) -> None:
    new = world.folder / "new"
    new.mkdir()
    git(new, "init", "-q", "-b", "main")
    home = str(world.home / "st")
    assert Projects(home).of(str(new)).first_commit is None
    git(new, "commit", "-q", "--allow-empty", "-m", "first")
    first = git(new, "rev-parse", "HEAD").strip()
    assert Projects(home).of(str(new)).first_commit == first
    git(new, "commit", "-q", "--allow-empty", "-m", "second")
    git(new, "pack-refs", "--all")
    assert Projects(str(world.home / "other")).of(str(new)).first_commit == first
    git(new, "checkout", "-q", "--detach")
    assert Projects(str(world.home / "third")).of(str(new)).first_commit == first


def test_a_renamed_repository_keeps_its_sessions(world: World) -> None:
    old = repository(world.folder / "old")
    world.claude(IDS[0], old)
    world.pi(IDS[1], old / "sub")
    assert listed(world, old) == {IDS[0]}
    (old / "sub").mkdir()
    assert listed(world, old) == {IDS[0], IDS[1]}
    old.rename(world.folder / "new")
    assert listed(world, world.folder / "new") == {IDS[0], IDS[1]}


def test_a_renamed_repository_keeps_its_sessions_after_the_cache_is_deleted(world: World) -> None:
    old = repository(world.folder / "old")
    world.claude(IDS[0], old)
    listed(world, old)
    old.rename(world.folder / "new")
    shutil.rmtree(world.folder / "cache")
    assert listed(world, world.folder / "new") == {IDS[0]}


@pytest.mark.parametrize("remote", [None, REMOTE])
def test_another_clone_has_the_sessions_of_the_first_one(remote: str | None, world: World) -> None:
    first = repository(world.folder / "first", remote=remote)
    world.claude(IDS[0], first)
    git(world.folder, "clone", "-q", str(first), "second")
    assert listed(world, world.folder / "second") == {IDS[0]}


def test_another_clone_has_the_sessions_even_if_the_first_one_is_gone(world: World) -> None:
    first = repository(world.folder / "first", remote=REMOTE)
    world.claude(IDS[0], first)
    listed(world, first)
    git(world.folder, "clone", "-q", str(first), "second")
    git(world.folder / "second", "remote", "set-url", "origin", "https://ada:token@example.com/ada/tides")
    shutil.rmtree(first)
    assert listed(world, world.folder / "second") == {IDS[0]}


def test_a_project_opened_through_a_link_is_the_same(world: World) -> None:
    real = world.folder / "real"
    real.mkdir()
    link = world.folder / "link"
    link.symlink_to(real)
    world.claude(IDS[0], link)
    world.claude(IDS[1], real)
    assert listed(world, real) == listed(world, link) == {IDS[0], IDS[1]}


def test_worktrees_of_one_repository_are_listed_together(world: World) -> None:
    main = repository(world.folder / "main")
    git(main, "worktree", "add", "-q", str(world.folder / "tree"), "-b", "other")
    world.claude(IDS[0], main)
    world.claude(IDS[1], world.folder / "tree")
    assert listed(world, main) == listed(world, world.folder / "tree") == {IDS[0], IDS[1]}
    git(main, "worktree", "remove", str(world.folder / "tree"))
    assert listed(world, main) == {IDS[0], IDS[1]}


def test_worktrees_of_a_repository_without_a_remote_are_the_same_project(world: World) -> None:
    main = repository(world.folder / "main")
    git(main, "worktree", "add", "-q", str(world.folder / "tree"))
    one, other = Projects(str(world.home)).of(str(main)), Projects(str(world.home)).of(str(world.folder / "tree"))
    assert one.git_folder == other.git_folder == str(main / ".git")
    assert one.is_same(other)


def test_the_recorded_folder_decides_between_folders_with_colliding_names(world: World) -> None:
    dashed, nested = world.folder / "a-b", world.folder / "a" / "b"
    dashed.mkdir(), nested.mkdir(parents=True)
    one = world.claude(IDS[0], dashed)
    other = world.claude(IDS[1], nested, minute=30)
    assert one.parent == other.parent
    world.pi(IDS[2], nested, minute=31)
    assert listed(world, dashed) == {IDS[0]}
    assert listed(world, nested) == {IDS[1], IDS[2]}
    with world.library() as library:
        newest = library.newest(dashed)
        assert newest is not None
        assert newest.id == IDS[0]
        assert library.newest(world.folder / "a") is None


def test_different_repositories_are_different_projects(world: World) -> None:
    one = repository(world.folder / "one", content="one")
    other = repository(world.folder / "other", content="other")
    world.claude(IDS[0], one)
    world.claude(IDS[1], other)
    assert listed(world, one) == {IDS[0]}
    assert listed(world, other) == {IDS[1]}


def test_copies_of_a_template_with_their_own_remotes_are_different_projects(world: World) -> None:
    template = repository(world.folder / "template")
    for name in ("one", "other"):
        git(world.folder, "clone", "-q", str(template), name)
        git(world.folder / name, "remote", "set-url", "origin", f"https://example.com/ada/{name}.git")
    world.claude(IDS[0], world.folder / "one")
    assert listed(world, world.folder / "one") == {IDS[0]}
    assert listed(world, world.folder / "other") == set()


def test_a_repository_that_replaces_a_renamed_one_does_not_get_its_sessions(world: World) -> None:
    old = repository(world.folder / "old", content="one")
    world.claude(IDS[0], old)
    listed(world, old)
    old.rename(world.folder / "new")
    repository(world.folder / "old", content="another")
    assert listed(world, world.folder / "new") == {IDS[0]}


def test_a_home_folder_under_version_control_is_not_a_project(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(world.home))
    git(world.home, "init", "-q")
    git(world.home, "commit", "-q", "--allow-empty", "-m", "dotfiles")
    one, other = world.home / "one", world.home / "other"
    one.mkdir(), other.mkdir()
    world.claude(IDS[0], one)
    assert find_repository(os.path.realpath(one)) is None
    assert listed(world, other) == set()


def test_a_neovate_session_belongs_to_the_folder_that_neovate_recorded(world: World) -> None:
    cwd = world.folder / "tides"
    cwd.mkdir()
    name = str(cwd).strip("/").replace("/", "-").replace("_", "-").lower()
    line = {
        "type": "message",
        "uuid": "u1",
        "parentUuid": None,
        "role": "user",
        "content": "hi",
        "sessionId": "abcd1234",
    }
    world.put(f".neovate/projects/{name}/abcd1234.jsonl", [line])
    assert listed(world, cwd) == set()
    shutil.rmtree(world.folder / "cache")
    world.put(".neovate/data.json", [{"projects": {str(cwd): {}, "/elsewhere": {}}}])
    assert listed(world, cwd) == {"abcd1234"}
    shutil.rmtree(world.folder / "cache")
    world.put(
        ".neovate/data.json", [{"projects": {str(cwd): {}, f"{cwd}/": {}, str(cwd).replace("/tides", "-tides"): {}}}]
    )
    assert listed(world, cwd) == set()


@pytest.mark.parametrize(
    "url",
    [
        "git@example.com:ada/tides.git",
        "ssh://git@example.com:2222/ada/tides",
        "https://Example.com/ada/tides.git/",
        "https://ada:secret@example.com/ada/tides",
        "example.com:ada/tides",
    ],
)
def test_all_spellings_of_a_remote_have_one_normal_form(url: str) -> None:
    assert normalize_remote(url) == "example.com/ada/tides"


@pytest.mark.parametrize("url", ["/srv/git/x.git", "../x", "file:///srv/x", "", "C:\\x", "https://", "x"])
def test_a_local_remote_does_not_identify_a_repository(url: str) -> None:
    assert normalize_remote(url) is None


@pytest.mark.parametrize("text", ["", "gitdir: ", "gitdir: /nonexistent", "\x00\xff", "gitdir: " + "x" * 5000])
def test_an_invalid_git_file_is_not_a_repository(text: str, tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / ".git").write_bytes(text.encode("latin-1"))
    assert find_repository(str(tmp_path / "p")) is None or find_repository(str(tmp_path / "p")).root != str(
        tmp_path / "p"
    )  # type: ignore[union-attr]


def test_records_survive_torn_lines(world: World) -> None:
    old = repository(world.folder / "old")
    world.claude(IDS[0], old)
    listed(world, old)
    memory = world.home / "st" / "projects.jsonl"
    assert memory.stat().st_mode & 0o777 == 0o600
    memory.write_bytes(b'{"cwd":"/x"}\n\xff\xfe\n[]\n{"cw' + b"\n" + memory.read_bytes() + b'{"cwd":')
    old.rename(world.folder / "new")
    assert listed(world, world.folder / "new") == {IDS[0]}


def test_an_invalid_folder_belongs_to_no_project(world: World) -> None:
    here = world.folder / "here"
    here.mkdir()
    for number, cwd in enumerate(["", "relative", "..", "\x00", "/" + "x" * 5000, "~"]):
        world.put(f".claude/projects/-x/{IDS[number]}.jsonl", claude_lines(IDS[number], cwd))
    assert listed(world, here) == set()
