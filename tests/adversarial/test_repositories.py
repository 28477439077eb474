"""A repository, or files that git takes for one, cannot run a program unless the user approved a command."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sessiontree.agent.approval import Reply
from sessiontree.errors import SessionTreeError
from sessiontree.explore.worktrees import LaneWorktrees
from sessiontree.git import command, trees
from sessiontree.git.snapshot import take_snapshot
from sessiontree.git.worktree import read_worktree
from tests.adversarial.repositories import SETTINGS, WAYS, Trap, git, make_project, set_trap
from tests.agent.builders import Workplace

pytestmark = pytest.mark.slow

COMMANDS = (
    "git status",
    "git log -p",
    "git log --oneline",
    "git diff",
    "git show",
    "git blame a.txt",
    "git describe --all",
    "git ls-files -m",
    "git shortlog",
)
# What the plain git program does in such a repository: proof that the traps work.
RUNNING = {
    "fsmonitor": "git status",
    "external diff": "git diff",
    "external diff of a driver": "git diff",
    "textconv": "git diff",
    "clean filter": "git diff",
    "filter process": "git diff",
    "signature check": "git log",
    "included settings": "git status",
    "settings of the worktree": "git status",
    "hooks": "git status",
    "submodule": "git status",
}


@pytest.fixture
def trap(tmp_path: Path) -> Trap:
    return Trap(tmp_path)


@pytest.fixture
def place(tmp_path: Path) -> Workplace:
    place = Workplace(tmp_path)
    place.approvals.set_mode("autoEdit")
    place.answers.reply = Reply("no")
    return place


@pytest.mark.parametrize(("way", "line"), RUNNING.items(), ids=list(RUNNING))
def test_the_traps_are_real(way: str, line: str, place: Workplace, trap: Trap) -> None:
    set_trap(make_project(place.project), trap, way)
    os.utime(place.project / "a.txt")
    subprocess.run(line.split(), cwd=place.project, capture_output=True, check=False)
    assert trap.has_run


@pytest.mark.parametrize("way", WAYS)
def test_git_without_approval_runs_nothing_of_a_repository(way: str, place: Workplace, trap: Trap) -> None:
    set_trap(make_project(place.project), trap, way)
    for line in COMMANDS:
        place.call("bash", command=line)
        assert not trap.has_run, line


@pytest.mark.parametrize("way", WAYS)
def test_the_environment_alone_lets_git_run_nothing(way: str, place: Workplace, trap: Trap) -> None:
    set_trap(make_project(place.project), trap, way)
    submodules = ["--ignore-submodules=dirty"]
    for line in COMMANDS:
        words = line.split()
        words[2:2] = submodules if words[1] in ("status", "diff") else []
        variables = command.environment(str(place.project))
        subprocess.run(words, cwd=place.project, env=variables, capture_output=True, check=False)
        assert not trap.has_run, line


@pytest.mark.parametrize("key", [key for keys in SETTINGS.values() for key in keys])
def test_files_that_look_like_a_repository_are_not_one(key: str, place: Workplace, trap: Trap) -> None:
    section, _, name = key.rpartition(".")
    header = section.replace(".", ' "', 1) + '"' if "." in section else section
    settings = f"[core]\n\tbare = false\n\tworktree = .\n[{header}]\n\t{name} = {trap.program}\n"
    files = {"HEAD": "ref: refs/heads/main\n", "config": settings, "objects/x": "", "refs/heads/main": "0" * 40 + "\n"}
    for path, content in files.items():
        assert not place.call("write", path=path, content=content).is_error
    for line in COMMANDS:
        place.call("bash", command=line)
    assert command.query(str(place.project), "rev-parse", "--show-toplevel") == ""
    assert not trap.has_run


@pytest.mark.parametrize("way", WAYS)
def test_our_own_git_runs_nothing_of_a_repository(way: str, place: Workplace, trap: Trap, tmp_path: Path) -> None:
    project = make_project(place.project)
    set_trap(project, trap, way)
    read_worktree(str(project))
    take_snapshot(str(project), None, lambda data: "0" * 64)
    trees.find_nested_repositories(str(project), "HEAD")
    lanes = LaneWorktrees(str(tmp_path / "home"), "session-1", str(project))
    with contextlib.suppress(SessionTreeError):  # a repository with filters is refused
        lanes.begin("0123456789ab")
        worktree = lanes.make("0123456789ab", 1)
        Path(worktree.path, "a.txt").write_text("three\n")
        lanes.files(worktree)
        lanes.apply(worktree)
        lanes.remove(worktree)
    assert not trap.has_run


@pytest.mark.parametrize("way", WAYS)
def test_git_around_an_approved_command_runs_nothing_of_a_repository(way: str, place: Workplace, trap: Trap) -> None:
    set_trap(make_project(place.project), trap, way)
    place.answers.reply = Reply("once")
    place.call("bash", command="echo changed > a.txt")
    assert (place.project / "a.txt").read_text() == "changed\n"
    assert not trap.has_run


def test_filters_of_the_user_still_run(place: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = make_project(place.project)
    settings = tmp_path / "gitconfig"
    git(project, "config", "--file", str(settings), "filter.evil.clean", "tr a-z A-Z")
    git(project, "config", "filter.evil.clean", "false")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    tree = trees.write_tree(str(project), "HEAD")
    assert git(project, "show", f"{tree}:a.txt") == "TWO"


def test_a_program_of_the_project_on_the_path_is_not_used(tmp_path: Path, trap: Trap) -> None:
    bin = tmp_path / "project" / "bin"
    bin.mkdir(parents=True)
    for name in ("cat", "git"):
        (bin / name).symlink_to(trap.program)
    place = Workplace(tmp_path, environment={"PATH": f"{bin}:bin:.:{os.environ['PATH']}", "HOME": str(tmp_path)})
    place.answers.reply = Reply("no")
    make_project(place.project)
    assert place.call("bash", command="cat a.txt").text == "two"
    assert "a.txt" in place.call("bash", command="git status").text
    assert not trap.has_run


def test_a_search_uses_no_program_of_the_project_on_the_path(tmp_path: Path, trap: Trap) -> None:
    place = Workplace(tmp_path, environment={"PATH": f"{tmp_path}/project:.:{os.environ['PATH']}"})
    (place.project / "rg").symlink_to(trap.program)
    (place.project / "a.txt").write_text("found\n")
    assert "found" in place.call("grep", pattern="found").text
    assert not trap.has_run


def test_our_own_git_is_no_program_of_the_project(
    place: Workplace, trap: Trap, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = make_project(place.project)
    (project / "bin").mkdir()
    (project / "bin" / "git").symlink_to(trap.program)
    monkeypatch.setenv("PATH", f"{project}/bin:{os.environ['PATH']}")
    place.call("bash", command="git status")
    take_snapshot(str(project), None, lambda data: "0" * 64)
    assert not trap.has_run


@pytest.mark.parametrize("name", [".gitconfig", ".config/git/config", "dotfiles/settings"])
def test_a_model_does_not_change_the_settings_of_git_without_a_question(
    name: str, place: Workplace, trap: Trap, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = make_project(place.project)
    (project / "dotfiles").mkdir()
    (project / "dotfiles" / "settings").write_text("")
    if name == "dotfiles/settings":
        (project / ".gitconfig").symlink_to("dotfiles/settings")
    for variable in ("XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(project))
    place.call("write", path=name, content=f"[core]\n\tfsmonitor = {trap.program}\n")
    assert [question.tool for question in place.answers.questions] == ["write"]
    place.call("bash", command="git status")
    assert not trap.has_run


@pytest.mark.parametrize(("release", "is_protected"), [("6.1.0-13-amd64", False), ("5.15.1-microsoft-WSL2", True)])
def test_linux_inside_windows_keeps_the_protection_of_its_disks(release: str, is_protected: bool) -> None:
    lines = (
        "import os, types",
        f"os.uname = lambda: types.SimpleNamespace(release={release!r})",
        "from sessiontree.git import command",
        "print('core.protectNTFS' in command.environment('.').values())",
    )
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(not is_protected)


def test_a_relative_folder_on_the_path_has_no_git(tmp_path: Path, trap: Trap, monkeypatch: pytest.MonkeyPatch) -> None:
    project = make_project(tmp_path / "project")
    (project / "git").symlink_to(trap.program)
    monkeypatch.chdir(project)
    monkeypatch.setenv("PATH", f".:{os.environ['PATH']}")
    assert command.query(str(project), "rev-parse", "--show-toplevel") == str(project.resolve())
    assert not trap.has_run


def test_a_lost_object_is_not_fetched_from_the_server_that_a_repository_names(
    place: Workplace, trap: Trap, tmp_path: Path
) -> None:
    project = make_project(place.project)
    for key, value in {
        "remote.origin.url": str(project),
        "remote.origin.promisor": "true",
        "remote.origin.uploadpack": str(trap.program),
        "extensions.partialClone": "origin",
        "core.repositoryFormatVersion": "1",
    }.items():
        git(project, "config", key, value)
    missing = git(project, "rev-parse", "HEAD:a.txt")
    (project / ".git" / "objects" / missing[:2] / missing[2:]).unlink()
    for line in COMMANDS:
        place.call("bash", command=line)
    take_snapshot(str(project), None, lambda data: "0" * 64)
    assert not trap.has_run
