"""What commands without approval may read, and the sandbox around them."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from sessiontree.agent.approval import Reply
from sessiontree.agent.process import CommandResult, run_command
from sessiontree.agent.sandbox import Sandbox, is_available, landlock_version
from sessiontree.agent.tools.bash import find_read_paths
from sessiontree.agent.workspace import Workspace
from sessiontree.secrets.environment import Mask
from tests.adversarial.repositories import git, make_project
from tests.agent.builders import BARE, Workplace

pytestmark = pytest.mark.slow

SECRET = "hunter2-hunter2-hunter2"


@pytest.fixture
def place(tmp_path: Path) -> Workplace:
    place = Workplace(tmp_path)
    place.approvals.set_mode("autoEdit")
    place.answers.reply = Reply("no")
    git(make_project(place.project), "checkout", "-q", "-f")
    return place


def commit_secret(project: Path, name: str = "id_rsa") -> None:
    (project / name).write_text(SECRET)
    git(project, "add", "-A")
    git(project, "commit", "-q", "-m", "a secret")


def assert_asked(place: Workplace, command: str) -> None:
    before = len(place.answers.questions)
    output = place.call("bash", command=command)
    assert SECRET not in output.text
    assert len(place.answers.questions) == before + 1, command


@pytest.mark.parametrize(
    "command",
    [
        "git show HEAD:id_rsa",
        "git show :id_rsa",
        "git show HEAD:./id_rsa",
        "git show HEAD",
        "git show",
        "git log -p",
        "git log -n 1 -p --all",
        "git log -1 -u",
        "git log --patch",
        "git diff main~1 main",
        "git blame id_rsa",
        "cat id_rsa",
        "grep x a.txt id_rsa",
    ],
)
def test_a_command_that_shows_a_file_named_like_a_secret_is_asked_about(place: Workplace, command: str) -> None:
    commit_secret(place.project)
    assert_asked(place, command)


def test_the_question_names_the_secret_file(place: Workplace) -> None:
    commit_secret(place.project, ".env")
    place.call("bash", command="git log -p")
    assert place.answers.questions[0].reasons == ("the name of .env indicates secrets",)


def test_a_secret_file_that_was_deleted_later_is_still_a_secret(place: Workplace) -> None:
    commit_secret(place.project)
    git(place.project, "mv", "id_rsa", "harmless.txt")
    git(place.project, "commit", "-q", "-m", "renamed")
    assert_asked(place, "git log -p")
    assert_asked(place, "git show HEAD")


def test_a_secret_file_that_is_a_link_is_still_a_secret(place: Workplace) -> None:
    commit_secret(place.project)
    first = git(place.project, "rev-parse", "HEAD")
    (place.project / "notes").write_text(SECRET)
    for name in ("id_rsa", ".env"):
        (place.project / name).unlink(missing_ok=True)
        (place.project / name).symlink_to("notes")
    git(place.project, "commit", "-q", "-a", "-m", "a link")
    for command in ("cat .env", f"git show {first}:id_rsa", f"git show {first}", f"git blame {first} id_rsa"):
        assert_asked(place, command)
    before = len(place.answers.questions)
    assert SECRET not in place.call("read", path=".env").text
    assert SECRET not in place.call("grep", pattern="hunter", path=".env").text
    assert len(place.answers.questions) == before + 2


def test_the_content_of_a_file_by_its_object_id_is_asked_about(place: Workplace) -> None:
    commit_secret(place.project)
    name = git(place.project, "rev-parse", "HEAD:id_rsa")
    assert_asked(place, f"git show {name}")
    assert_asked(place, f"git diff {git(place.project, 'rev-parse', 'HEAD:a.txt')} {name}")


def test_commands_about_harmless_files_are_not_asked_about(place: Workplace) -> None:
    commit_secret(place.project)
    (place.project / "a.txt").write_text("three\n")
    for command in ("git status", "git diff", "git log --oneline", "git log -p a.txt", "git show HEAD:a.txt"):
        assert not place.call("bash", command=command).is_error, command
    assert place.answers.questions == []


def test_a_diff_of_folders_is_asked_about(place: Workplace) -> None:
    for name in ("x", "y"):
        (place.project / name).mkdir()
    (place.project / "x" / ".env").write_text(SECRET)
    (place.project / "y" / ".env").symlink_to("/etc/passwd")
    for command in ("diff x y", "diff -r x y", "diff a.txt x", "diff -r . x"):
        assert_asked(place, command)


def test_a_repository_for_files_elsewhere_is_asked_about(place: Workplace, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a.txt").write_text(SECRET)
    git(place.project, "config", "core.worktree", str(tmp_path / "elsewhere"))
    assert_asked(place, "git diff")
    git(place.project, "config", "core.worktree", str(tmp_path))
    assert_asked(place, "git diff")


@pytest.mark.parametrize("way", ["commondir", "gitdir", "link"])
def test_a_repository_elsewhere_is_asked_about(place: Workplace, tmp_path: Path, way: str) -> None:
    elsewhere = make_project(tmp_path / "elsewhere") / ".git"
    (tmp_path / "elsewhere" / "a.txt").write_text(SECRET)
    git(tmp_path / "elsewhere", "commit", "-q", "-a", "-m", SECRET)
    own = place.project / ".git"
    if way == "commondir":
        (own / "commondir").write_text(f"{elsewhere}\n")
    else:
        own.rename(tmp_path / "unused")
        own.symlink_to(elsewhere) if way == "link" else own.write_text(f"gitdir: {elsewhere}\n")
    for command in ("git log --oneline", "git log -p", "git show HEAD:a.txt"):
        assert_asked(place, command)


@pytest.mark.parametrize(
    ("key", "command"),
    [
        ("include.path", "git status"),
        ("includeIf.gitdir:/.path", "git log"),
        ("blame.ignoreRevsFile", "git blame a.txt"),
        ("core.attributesFile", "git diff"),
    ],
)
@pytest.mark.parametrize("prefix", ["", ":(optional)"])
def test_a_setting_that_names_a_file_elsewhere_is_asked_about(
    place: Workplace, tmp_path: Path, key: str, command: str, prefix: str
) -> None:
    (tmp_path / "notes").write_text(f"a {SECRET}!\n")  # no word of it is valid in such a file
    git(place.project, "config", key, f"{prefix}{tmp_path / 'notes'}")
    assert_asked(place, command)


def test_settings_that_a_model_can_write_are_asked_about(place: Workplace) -> None:
    (place.project / "more").write_text("[core]\n\tabbrev = 8\n")
    git(place.project, "config", "include.path", "../more")
    assert_asked(place, "git log")


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("packed-refs", "git log"),
        ("shallow", "git log"),
        ("info/attributes", "git diff"),
        ("info/grafts", "git log"),
        ("objects/info/alternates", "git status"),
        ("rebase-merge/done", "git status"),
        ("BISECT_START", "git status"),
    ],
)
def test_a_link_among_the_files_of_git_is_asked_about(
    place: Workplace, tmp_path: Path, name: str, command: str
) -> None:
    (tmp_path / "notes").write_text(f"{SECRET} {SECRET}!\n")
    if name.startswith("rebase-merge"):
        (place.project / ".git/rebase-merge").mkdir()
        (place.project / ".git/rebase-merge/interactive").touch()
        (place.project / ".git/rebase-merge/git-rebase-todo").touch()
    if name == "BISECT_START":
        (place.project / ".git/BISECT_LOG").touch()
    (place.project / ".git" / name).symlink_to(tmp_path / "notes")
    assert_asked(place, command)


def test_files_of_a_repository_that_its_settings_name_are_not_asked_about(place: Workplace) -> None:
    (place.project / ".git-blame-ignore-revs").write_text("# none\n")
    (place.project / ".git/more").write_text("[core]\n\tabbrev = 8\n")
    (place.project / ".git/refs/heads/link").symlink_to("main")
    git(place.project, "config", "blame.ignoreRevsFile", ".git-blame-ignore-revs")
    git(place.project, "config", "include.path", "more")
    for command in ("git blame a.txt", "git log", "git status"):
        assert "[exit code" not in place.call("bash", command=command).text
    assert place.answers.questions == []


@pytest.mark.parametrize("name", [".npmrc.bak", ".env.local~", ".ssh/deploy", ".aws/config", "auth.json", ".pgpass"])
def test_copies_of_secret_files_and_folders_for_them_are_asked_about(place: Workplace, name: str) -> None:
    path = place.project / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(SECRET)
    before = len(place.answers.questions)
    assert SECRET not in place.call("bash", command=f"cat {name}").text
    assert SECRET not in place.call("read", path=name).text
    assert SECRET not in place.call("grep", pattern="hunter", path=".").text
    assert SECRET not in place.call("grep", pattern="hunter", path=str(path.parent)).text
    assert len(place.answers.questions) >= before + 1


def test_the_addresses_of_remotes_are_asked_about(place: Workplace) -> None:
    git(place.project, "remote", "add", "origin", f"https://me:{SECRET}@example.org/x.git")
    assert_asked(place, "cat .git/config")
    assert_asked(place, "grep url .git/config")


def test_the_addresses_of_remotes_of_a_submodule_are_asked_about(place: Workplace) -> None:
    for folder in (".git/modules/inner", ".git/worktrees/x"):
        (place.project / folder).mkdir(parents=True)
        (place.project / folder / "config").write_text(f"url = https://me:{SECRET}@example.org/x.git\n")
        assert_asked(place, f"cat {folder}/config")
        assert SECRET not in place.call("grep", pattern="url", path=folder).text


def test_the_files_of_git_are_asked_about_whatever_their_folder_is_called(place: Workplace) -> None:
    git(place.project, "remote", "add", "origin", f"https://me:{SECRET}@example.org/x.git")
    (place.project / ".git").rename(place.project / ".bare")
    (place.project / ".git").write_text("gitdir: ./.bare\n")
    assert_asked(place, "cat .bare/config")
    for name in (".bare/hooks/post-checkout", ".bare/config", ".bare/info/attributes"):
        before = len(place.answers.questions)
        assert place.call("write", path=name, content="x").is_error
        assert len(place.answers.questions) == before + 1, name


def test_a_worktree_inside_the_folder_of_git_is_not_asked_about(place: Workplace, tmp_path: Path) -> None:
    git(place.project, "worktree", "add", "-q", str(place.project / ".git" / "inner"))
    git(place.project, "config", "core.bare", "true")
    (place.project / ".git").rename(tmp_path / "bare")
    workspace = Workspace(tmp_path / "bare")
    assert not workspace.resolve("inner/a.txt").is_guarded
    assert workspace.resolve("hooks/post-checkout").is_guarded


def test_a_worktree_and_a_submodule_are_not_asked_about(place: Workplace, tmp_path: Path) -> None:
    make_project(tmp_path / "inner")
    git(place.project, "worktree", "add", "-q", str(tmp_path / "worktree"))
    add = ("submodule", "add", "-q", str(tmp_path / "inner"), "module")
    git(place.project, "-c", "protocol.file.allow=always", *add)
    for folder in (tmp_path / "worktree", place.project / "module"):
        assert find_read_paths("git log --oneline", Workspace(folder)) is not None, folder


def test_the_content_of_a_file_by_a_tag_is_asked_about(place: Workplace) -> None:
    commit_secret(place.project)
    git(place.project, "tag", "-a", "-m", "a tag", "v1", "HEAD:id_rsa")
    assert_asked(place, "git show v1")


def test_a_command_that_sets_the_clock_is_asked_about(tmp_path: Path) -> None:
    # Not run: it would set the clock if the question were not asked.
    assert find_read_paths("date 010100002020", Workspace(tmp_path)) is None
    assert find_read_paths("date -u +%F", Workspace(tmp_path)) == ()


def test_a_command_has_no_variable_with_a_secret(tmp_path: Path) -> None:
    password = "correct-horse-7"
    secrets = {
        "PGPASSWORD": password,
        "DATABASE_URL": f"postgresql://user:{password}@localhost/app",  # the same one, under a harmless name
        "HTTPS_PROXY": f"http://user:{password}@proxy:3128",
        "MYSQL_PWD": "battery-staple-8",
        "SSHPASS": "battery-staple-9",
    }
    place = Workplace(tmp_path, environment={**BARE, **secrets, "PWD": str(tmp_path), "EDITOR": "vi"})
    printed = place.call("bash", command="env").text
    assert not [name for name in secrets if f"{name}=" in printed]
    assert "EDITOR=vi" in printed
    assert "PWD=" in printed


# The sandbox


def run(command: str, sandbox: Sandbox, cwd: Path) -> CommandResult:
    return asyncio.run(run_command(command, cwd=str(cwd), environment=BARE, mask=Mask({}), seconds=30, sandbox=sandbox))


@pytest.fixture
def enclosed(place: Workplace, tmp_path: Path) -> Sandbox:
    return Sandbox([], home=str(tmp_path), folders=[str(place.project)], path=os.environ["PATH"])


def test_whether_there_is_a_sandbox_is_known() -> None:
    assert is_available() == (landlock_version() > 0)
    if not sys.platform.startswith("linux"):
        assert not is_available()


def test_inside_the_sandbox_nothing_is_written_started_or_reached(
    place: Workplace, enclosed: Sandbox, tmp_path: Path
) -> None:
    (tmp_path / "key").write_text(SECRET)
    (place.project / "program").write_text("#!/bin/sh\necho started\n")
    (place.project / "program").chmod(0o755)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        attempts = {
            "write": "echo x > made; test -e made && echo done",
            "truncate": ": > a.txt; test -s a.txt || echo done",
            "remove": "rm -f a.txt; test -e a.txt || echo done",
            "read": f"grep -q {SECRET} {tmp_path}/key && echo done",
            "start": "./program && echo done",
            "inspect": f"cat /proc/{os.getpid()}/environ && echo done",
            "connect": f"exec 3<>/dev/tcp/127.0.0.1/{port} && echo done",
        }
        version = landlock_version()
        expected = dict.fromkeys(attempts, version == 0)
        expected["truncate"], expected["connect"] = version < 3, version < 4
        if version == 0:
            with pytest.raises(Exception, match="sandbox"):
                run("true", enclosed, place.project)
            return
        results = {name: "done" in run(line, enclosed, place.project).output for name, line in attempts.items()}
    assert results == expected
    assert run("cat a.txt; ls /usr > /dev/null && echo listed", enclosed, place.project).output == "one\nlisted\n"


def test_the_sandbox_encloses_only_what_it_starts(place: Workplace, enclosed: Sandbox) -> None:
    if is_available():
        run("true", enclosed, place.project)
    (place.project / "written-by-us").write_text("x")
    assert subprocess.run(["touch", place.project / "by-a-child"], check=False).returncode == 0


def test_a_command_without_approval_runs_in_the_sandbox_if_there_is_one(place: Workplace, tmp_path: Path) -> None:
    # `git log` follows `info/alternates`, which nothing but the sandbox notices.
    elsewhere = make_project(tmp_path / "elsewhere")
    commit_secret(elsewhere, "notes.txt")
    (place.project / ".git" / "objects" / "info" / "alternates").write_text(f"{elsewhere}/.git/objects\n")
    name = git(elsewhere, "rev-parse", "HEAD")
    environment = {**BARE, "HOME": str(tmp_path)}
    enclosed = Workplace(tmp_path, environment=environment)
    enclosed.answers.reply = Reply("no")
    output = enclosed.call("bash", command=f"git log --oneline {name}")
    assert ("a secret" in output.text) == (not is_available())


def test_an_approved_command_runs_outside_of_the_sandbox(place: Workplace) -> None:
    place.answers.reply = Reply("once")
    assert not place.call("bash", command="touch made").is_error
    assert (place.project / "made").exists()


def test_the_profile_for_macos_allows_only_reading_what_is_not_masked(tmp_path: Path) -> None:
    home, hostile = tmp_path / "home", tmp_path / 'a")) (allow default) (subpath "\\'
    sandbox = Sandbox([str(home / "notes")], home=str(home), folders=[str(hostile)], path=f"{home}/bin:relative")
    lines = sandbox.profile().splitlines()
    assert lines[:2] == ["(version 1)", "(deny default)"]
    allowed = [line for line in lines if line.startswith("(allow ")]
    assert not [line for line in allowed if "network" in line or "default)" in line.partition('"')[0]]
    (written,) = [line for line in allowed if "file-write" in line]
    assert written == '(allow file-write-data (literal "/dev/null"))'
    (masked,) = [line for line in lines if line.startswith("(deny file-read*")]
    quoted = os.path.realpath(hostile).replace("\\", "\\\\").replace('"', '\\"')
    for folder in (os.path.realpath(home), quoted, "/proc"):
        assert f'(subpath "{folder}")' in masked
    # The last rule that matches counts: what is readable comes after what is masked, and programs only from the PATH.
    (readable,) = [line for line in lines if line.startswith("(allow file-read* (")]
    assert lines.index(readable) > lines.index(masked)
    assert f'(subpath "{os.path.realpath(home / "notes")}")' in readable
    (programs,) = [line for line in lines if line.startswith("(allow file-read* process-exec (")]
    assert f'(subpath "{os.path.realpath(home / "bin")}")' in programs
    assert "relative" not in programs
    assert quoted not in programs


def test_on_macos_a_command_is_started_by_its_sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sessiontree.agent import sandbox as module

    program = tmp_path / "sandbox-exec"
    program.write_text('#!/bin/sh\nprintf "enclosed %s\\n" "$1"\nshift 2\nexec "$@"\n')
    program.chmod(0o755)
    monkeypatch.setattr(module, "_SEATBELT", str(program))
    monkeypatch.setattr(module, "_has_seatbelt", lambda: True)
    done = run("echo done", Sandbox([], home=str(tmp_path), folders=[], path="/bin"), tmp_path)
    assert done.output.split() == ["enclosed", "-p", "done"]
