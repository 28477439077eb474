"""Links, pipes and escape sequences in folders and sessions; values that no format allows; a full disk."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pty
import resource
import shlex
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import sessiontree
from sessiontree.agent.controller import Controller
from sessiontree.agent.process import OutputCollector
from sessiontree.agent.tools.grep_worker import Answer, Request
from sessiontree.archive.client_worktrees import build_backup_snapshot
from sessiontree.errors import UsageError
from sessiontree.git.worktree import WorktreeState
from sessiontree.secrets.environment import Mask
from sessiontree.stores.blobs import FileBlobs
from tests.adversarial.repositories import git, make_project

pytestmark = pytest.mark.slow

SECONDS = 60.0
CONTROLS = {"\x9b", "\x85", "\x7f", "\u061c", "\u200e", "\u202e", "\u2066", "\u2069", "\U0010eeee"}
"""C1 controls, DEL, characters that change the text direction, and one that a terminal shows as an image."""
HOSTILE = "\x9b31m" + "".join(sorted(CONTROLS - {"\x9b"}))


def sessiontree_command(*arguments: str | Path, home: Path, **more: object) -> subprocess.CompletedProcess[str]:
    """Run the program, as a user does; a program that waits for a pipe runs into the time limit."""
    return subprocess.run(
        [sys.executable, "-m", "sessiontree", *map(str, arguments)],
        capture_output=True, text=True, timeout=SECONDS, check=False, stdin=subprocess.DEVNULL,
        env={**os.environ, "SESSIONTREE_HOME": str(home), "HOME": str(home.parent)}, **more,  # type: ignore[call-overload]
    )  # fmt: skip


def session_in(tmp_path: Path, text: str = "hello") -> str:
    project = tmp_path / "project"
    project.mkdir(exist_ok=True)
    session = sessiontree.create(project, home=tmp_path / "home")
    session.append("user", text)
    session.close()
    return session.location


def lines(location: str, *added: object) -> None:
    with open(location, "a", encoding="utf-8", errors="surrogatepass") as file:
        file.writelines(json.dumps(line) + "\n" for line in added)


# Links


@pytest.mark.parametrize("linked", ["folder", "tool-results"])
def test_a_linked_folder_of_outputs_is_refused(tmp_path: Path, linked: str) -> None:
    location = session_in(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    folder = Path(os.path.splitext(location)[0])
    if linked == "folder":
        folder.symlink_to(tmp_path / "elsewhere")
    else:
        folder.mkdir()
        (folder / "tool-results").symlink_to(tmp_path / "elsewhere")
    controller = Controller(tmp_path / "project", home=tmp_path / "home")
    with pytest.raises(UsageError, match="symbolic link"):
        asyncio.run(controller.resume(location))


def test_output_is_not_written_through_a_link_that_appears_later(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "outputs").symlink_to(tmp_path / "elsewhere")
    collector = OutputCollector(Mask({}), str(tmp_path / "outputs"), "x", None)
    collector.add(b"line\n" * 20_000)
    collector.end()
    assert collector.result().spill is None
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_restoring_a_worktree_changes_no_file_that_exists_without_yes(tmp_path: Path) -> None:
    project = make_project(tmp_path / "project")
    location = session_in(tmp_path)
    home = tmp_path / "home"
    assert sessiontree_command("worktree", "save", location, home=home).returncode == 0
    git(project, "checkout", "-q", "-f")
    assert (project / "a.txt").read_text() == "one\n"
    refused = sessiontree_command("worktree", "restore", location, home=home)
    assert refused.returncode != 0
    assert "a.txt" in refused.stderr
    assert "--yes" in refused.stderr
    assert (project / "a.txt").read_text() == "one\n"
    assert sessiontree_command("worktree", "restore", location, "--yes", home=home).returncode == 0
    assert (project / "a.txt").read_text() == "two\n"


@pytest.mark.parametrize("name", ["native", "native.blobs"])
def test_sync_does_not_follow_a_linked_folder(tmp_path: Path, name: str) -> None:
    location = session_in(tmp_path)
    (tmp_path / "shared").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "shared" / name).symlink_to(tmp_path / "elsewhere")
    done = sessiontree_command("sync", tmp_path / "shared", home=tmp_path / "home")
    assert "symbolic link" in done.stdout + done.stderr
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert Path(location).exists()


def test_sync_does_not_follow_a_link_among_the_blobs(tmp_path: Path) -> None:
    session_in(tmp_path)
    name = FileBlobs(tmp_path / "home" / "blobs").put(b"content")
    (tmp_path / "elsewhere").mkdir()
    blobs = tmp_path / "shared" / "native.blobs"
    blobs.mkdir(parents=True)
    (blobs / name[:2]).symlink_to(tmp_path / "elsewhere")
    done = sessiontree_command("sync", tmp_path / "shared", home=tmp_path / "home")
    assert "was not touched" in done.stdout + done.stderr
    assert list((tmp_path / "elsewhere").iterdir()) == []


def session_with_a_linked_folder(tmp_path: Path) -> tuple[Path, Path]:
    """An old session of Claude Code whose folder is a link to a private one; returns its file and that folder."""
    project, private = tmp_path / ".claude" / "projects" / "-p", tmp_path / "private"
    for folder in (project, private):
        folder.mkdir(parents=True)
    (private / "notes.txt").write_text("private")
    file = project / "11111111-1111-4111-8111-111111111111.jsonl"
    result = {"type": "tool_result", "tool_use_id": "t", "content": "ok"}
    common = {"type": "user", "sessionId": file.stem, "cwd": "/p", "timestamp": "2020-01-01T00:00:00Z"}
    lines(
        str(file),
        {**common, "uuid": "a", "parentUuid": None, "message": {"role": "user", "content": "hi"}},
        {**common, "uuid": "b", "parentUuid": "a", "toolUseResult": {"agentId": "x"},
         "message": {"role": "user", "content": [result]}},
    )  # fmt: skip
    os.utime(file, (1_600_000_000, 1_600_000_000))
    (project / file.stem).symlink_to(private)
    return file, private


@pytest.mark.parametrize("more", [(), ("--purge",)], ids=["archive", "purge"])
def test_a_linked_folder_of_a_session_is_neither_archived_nor_deleted(tmp_path: Path, more: tuple[str, ...]) -> None:
    file, private = session_with_a_linked_folder(tmp_path)
    home = tmp_path / "home"
    assert sessiontree_command("backup", tmp_path / "copy", home=home).returncode == 0
    assert [copy.suffix for copy in (tmp_path / "copy").rglob("*") if copy.is_file()] == [".jsonl"]
    done = sessiontree_command("clean", "--older-than", "1d", "--yes", *more, home=home)
    assert done.returncode == 0, done.stderr
    assert not file.exists()
    assert (private / "notes.txt").read_text() == "private"


@pytest.mark.parametrize("place", [".config/autostart", ".autostart", "deep/er", "project/.git/hooks2"])
def test_a_session_does_not_choose_where_a_worktree_is_created(tmp_path: Path, place: str) -> None:
    project = make_project(tmp_path / "project")
    file, _ = session_with_a_linked_folder(tmp_path)
    state = {"worktreePath": str(tmp_path / place), "worktreeBranch": "side", "originalCwd": str(project)}
    git(project, "branch", "side")
    lines(str(file), {"type": "worktree-state", "sessionId": file.stem, "worktreeSession": state})
    done = sessiontree_command("worktree", "restore", file, home=tmp_path / "home")
    assert done.returncode == 2
    assert "--yes" in done.stderr
    assert not (tmp_path / place).exists()
    assert sessiontree_command("worktree", "restore", file, "--yes", home=tmp_path / "home").returncode == 0
    assert (tmp_path / place / "a.txt").exists()


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_a_backup_of_a_file_that_is_a_link_or_a_pipe_is_not_read(tmp_path: Path, kind: str) -> None:
    file, private = session_with_a_linked_folder(tmp_path)
    backups = {"a.txt": {"backupFileName": "0123abcd@v1"}}
    snapshot = {"messageId": "a", "trackedFileBackups": backups}
    lines(str(file), {"type": "file-history-snapshot", "messageId": "a", "snapshot": snapshot})
    copy = tmp_path / ".claude" / "file-history" / file.stem / "0123abcd@v1"
    copy.parent.mkdir(parents=True)
    copy.symlink_to(private / "notes.txt") if kind == "link" else os.mkfifo(copy)
    stored: list[bytes] = []

    def put(data: bytes) -> str:
        stored.append(data)
        return "0" * 64

    with sessiontree.open(file) as session:
        found = build_backup_snapshot(session, WorktreeState(str(tmp_path)), put)
    assert (list(found.files), list(found.left_out), stored) == ([], ["a.txt"], [])


def test_a_linked_folder_of_a_session_is_not_copied_by_a_fork(tmp_path: Path) -> None:
    file, _ = session_with_a_linked_folder(tmp_path)
    done = sessiontree_command("fork", file, home=tmp_path / "home")
    assert done.returncode == 0, done.stderr
    assert len(list(file.parent.glob("*.jsonl"))) == 2
    assert [path.name for path in file.parent.iterdir() if path.is_dir()] == [file.stem]


# Pipes


@pytest.mark.parametrize("name", ["commondir", "config", "packed-refs", "an included file"])
def test_listing_does_not_wait_for_a_pipe_in_a_repository(tmp_path: Path, name: str) -> None:
    session_in(tmp_path)
    folder = tmp_path / "project" / ".git"
    for inner in ("objects", "refs/heads"):
        (folder / inner).mkdir(parents=True)
    (folder / "HEAD").write_text("ref: refs/heads/main\n")
    settings = "[core]\n\trepositoryformatversion = 0\n"
    if name == "an included file":
        (folder / "refs" / "heads" / "main").write_text("1" * 40 + "\n")
        settings += "[include]\n\tpath = pipe\n"
        name = "pipe"
    (folder / "config").write_text(settings)
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    done = sessiontree_command("list", "--all", home=tmp_path / "home")
    assert done.returncode == 0
    assert "hello" in done.stdout


@pytest.mark.parametrize("name", [".gitignore", ".git/info/exclude"])
def test_a_search_does_not_wait_for_a_pipe_among_the_ignore_files(tmp_path: Path, name: str) -> None:
    (tmp_path / ".git" / "info").mkdir(parents=True)
    (tmp_path / "a.txt").write_text("found")
    os.mkfifo(tmp_path / name)
    request = msgspec.json.encode(Request(str(tmp_path), "found"))
    worker = [sys.executable, "-P", "-m", "sessiontree.agent.tools.grep_worker"]
    done = subprocess.run(worker, input=request, capture_output=True, timeout=SECONDS, check=True)
    assert [match.file for match in msgspec.json.decode(done.stdout, type=Answer).matches] == ["a.txt"]


def test_reading_a_blob_does_not_wait_for_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ("0" * 64))
    read = f"from sessiontree.stores.blobs import FileBlobs; FileBlobs({str(tmp_path)!r}, flat=True).get('0' * 64)"
    done = subprocess.run([sys.executable, "-c", read], capture_output=True, text=True, timeout=SECONDS, check=False)
    assert "is a named pipe, not a regular file" in done.stderr


def test_sync_does_not_wait_for_a_pipe(tmp_path: Path) -> None:
    location = session_in(tmp_path)
    home = tmp_path / "home"
    assert sessiontree_command("sync", tmp_path / "shared", home=home).returncode == 0
    (copy,) = (tmp_path / "shared").rglob("*.jsonl")
    copy.unlink()
    os.mkfifo(copy)
    blob = tmp_path / "shared" / "native.blobs" / "00" / ("0" * 64)
    blob.parent.mkdir(parents=True)
    os.mkfifo(blob)
    done = sessiontree_command("sync", tmp_path / "shared", home=home)
    assert "not a regular file" in done.stdout + done.stderr
    assert Path(location).exists()


@pytest.mark.parametrize("name", ["x.jsonl", "state.vscdb", "x.db", "x.json"])
def test_doctor_does_not_wait_for_a_pipe(tmp_path: Path, name: str) -> None:
    (tmp_path / "sessions").mkdir()
    os.mkfifo(tmp_path / "sessions" / name)
    done = sessiontree_command("doctor", tmp_path / "sessions", home=tmp_path / "home")
    assert "Traceback" not in done.stderr
    assert name != "x.jsonl" or "not a regular file" in done.stdout


# Terminals


def test_json_and_file_names_contain_no_controls(tmp_path: Path) -> None:
    home = tmp_path / "home"
    location = session_in(tmp_path, f"hello {HOSTILE}")
    for arguments in (
        ("show", location, "--json"),
        ("context", location, "--json"),
        ("context", location, "--as", "anthropic"),
        ("context", location, "--as", "openai"),
    ):
        done = sessiontree_command(*arguments, home=home)
        assert done.returncode == 0, done.stderr
        assert not CONTROLS & set(done.stdout), arguments
        assert "\\u009b" in done.stdout
        assert json.loads(done.stdout)
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / f"a{HOSTILE}\x1b[2J.jsonl").write_text("{")
    done = sessiontree_command("doctor", tmp_path / "bad", home=home)
    assert not {"\x1b", *CONTROLS} & set(done.stdout + done.stderr)


def test_exports_contain_no_controls(tmp_path: Path) -> None:
    home = tmp_path / "home"
    location = session_in(tmp_path, f"hello {HOSTILE}")
    with sessiontree.open(location, home=home) as session:
        session.rename(f"title {HOSTILE}")
        assert session.leaf is not None
        session.label(session.leaf, f"label {HOSTILE}")
    for format in ("json", "atif", "otel", "html", "md", "text"):
        done = sessiontree_command("export", location, "--format", format, home=home)
        assert done.returncode == 0, done.stderr
        assert not CONTROLS & set(done.stdout), format
        if format in ("json", "atif", "otel"):
            assert HOSTILE in json.dumps(json.loads(done.stdout), ensure_ascii=False)
            out = tmp_path / f"out.{format}"
            sessiontree_command("export", location, "--format", format, "--out", out, home=home)
            assert not CONTROLS & set(out.read_text()), format
    assert HOSTILE in sessiontree_command("export", location, "--format", "jsonl", home=home).stdout, "byte for byte"
    with open(location, "ab") as file:
        file.write(b"torn \x1b[2J\n")
    terminal, shown = pty.openpty()
    environment = {**os.environ, "SESSIONTREE_HOME": str(home), "HOME": str(tmp_path)}
    command = [sys.executable, "-m", "sessiontree", "export", location, "--format", "jsonl", "--branch", "all"]
    subprocess.run(command, stdout=shown, stderr=shown, stdin=subprocess.DEVNULL, env=environment, timeout=SECONDS)
    os.close(shown)
    seen = b""
    with contextlib.suppress(OSError):  # the end of a terminal is an error
        while data := os.read(terminal, 1 << 16):
            seen += data
    os.close(terminal)
    assert "torn ␛[2J" in seen.decode()
    assert not {"\x1b", *CONTROLS} & set(seen.decode())


def test_ids_and_paths_are_printed_without_controls(tmp_path: Path) -> None:
    home, file = tmp_path / "home", tmp_path / f"s{HOSTILE}.jsonl"
    ids = [f"{name}{HOSTILE}\x1b]0;title\x07$(touch started)" for name in "abc"]
    common = {"timestamp": "2026-01-01T00:00:00Z"}
    lines(
        str(file),
        {"type": "session", "version": 3, "id": "11111111-1111-4111-8111-111111111111", "cwd": "/p", **common},
        {"type": "message", "id": ids[0], "parentId": None, "message": {"role": "user", "content": "hi"}, **common},
        {"type": "label", "id": ids[1], "parentId": ids[0], "targetId": ids[0], "label": "here", **common},
        {"type": "compaction", "id": ids[2], "parentId": ids[1], "summary": "short", "firstKeptEntryId": ids[0],
         "tokensBefore": 10, **common},
    )  # fmt: skip
    for arguments in (
        ("label", file),
        ("open", "--print-path", file),
        ("compact", file, "--undo", "--compaction", ids[2]),
        ("branch", file, ids[0]),
    ):
        done = sessiontree_command(*arguments, home=home)
        assert done.returncode == 0, done.stderr
        assert not {"\x1b", "\x07", *CONTROLS} & set(done.stdout + done.stderr), arguments
        assert "to go back" not in done.stderr or done.stderr.rstrip().endswith("$(touch started)'")


@pytest.mark.parametrize("id", ["x; touch started", "--approval=yolo", "-p", f"a{HOSTILE}b", "$(touch started)"])
def test_the_id_of_a_session_cannot_be_an_option_or_a_second_command(tmp_path: Path, id: str) -> None:
    home, file = tmp_path / "home", tmp_path / "session.jsonl"
    common = {"timestamp": "2026-01-01T00:00:00Z"}
    lines(
        str(file),
        {"type": "session", "version": 3, "id": id, "cwd": str(tmp_path), "sessiontree": 1, **common},
        {"type": "message", "id": "a", "parentId": None, "message": {"role": "user", "content": "hi"}, **common},
    )
    for command in ("open", "resume"):
        done = sessiontree_command(command, file, home=home)
        printed = shlex.split(done.stderr.rstrip().rpartition("sessiontree chat ")[2])
        assert printed == ["--session", str(file)], done.stderr


@pytest.mark.parametrize(
    "text",
    [
        "[x]: javascript:alert(1)\n[click][x]",
        "- [x]: javascript:alert(1)\n\n[click][x]",
        "> 1. [x]: javascript:alert(1)\n\n[click][x]",
        "[a\\]b]: javascript:alert(1)\n\n[click][a\\]b]",
        "[" + "x" * 300 + "]: javascript:alert(1)",
        "[a\nb]: javascript:alert(1)\n\n[a b]",
    ],
)
def test_exported_markdown_defines_no_links(tmp_path: Path, text: str) -> None:
    location = session_in(tmp_path, text)
    done = sessiontree_command("export", location, "--format", "md", home=tmp_path / "home")
    assert done.returncode == 0, done.stderr
    assert "alert(1)" in done.stdout
    assert "]:" not in done.stdout


# Odd values


@pytest.mark.parametrize("cwd", ["/a\0b", "/a\ud800b", "\0", "\udcff"])
@pytest.mark.parametrize(
    "words",
    [
        ["info"],
        ["worktree", "save"],
        ["explore"],
        ["worktree", "restore"],
        ["convert", "--to", "pi"],
        ["convert", "--to", "omp"],
        ["convert", "--to", "gemini"],
        ["chat", "-p", "x"],
        ["open"],
        ["fork"],
    ],
)
def test_a_folder_that_cannot_exist_is_reported(tmp_path: Path, cwd: str, words: list[str]) -> None:
    location = session_in(tmp_path)
    text = Path(location).read_text()
    first, _, rest = text.partition("\n")
    Path(location).write_text(json.dumps({**json.loads(first), "cwd": cwd}) + "\n" + rest)
    verb, *options = words
    place = ["--session", location, "--model", "demo"] if verb == "chat" else [location]
    if verb == "explore":
        place = ["start", location, "go", "--n", "2", "--model", "demo"]
    elif verb == "worktree":
        place, options = [*options, location], []
    done = sessiontree_command(verb, *place, *options, home=tmp_path / "home", cwd=str(tmp_path))
    assert "Traceback" not in done.stderr


def session_of_pi(path: str, cwd: str = "/p") -> None:
    common = {"timestamp": "2026-01-01T00:00:00.000Z"}
    answer = {"role": "assistant", "content": [{"type": "text", "text": "yes"}], "usage": {"input": 1, "output": 1}}
    os.makedirs(os.path.dirname(path), exist_ok=True)
    lines(
        path,
        {"type": "session", "version": 3, "id": "11111111-1111-4111-8111-111111111111", "cwd": cwd, **common},
        {"type": "message", "id": "a", "parentId": None, "message": {"role": "user", "content": "hello"}, **common},
        {"type": "message", "id": "b", "parentId": "a", "message": answer, **common},
    )


@pytest.mark.parametrize("name", [b"--p--/\xff\xfe.jsonl", b"--\xff--/s.jsonl"])
def test_a_file_name_that_is_not_utf_8_hides_no_session(tmp_path: Path, name: bytes) -> None:
    home = tmp_path / "home"
    session_of_pi(os.path.join(tmp_path, ".pi/agent/sessions", os.fsdecode(name)))
    session_in(tmp_path)
    for _ in range(2):
        found = json.loads(sessiontree_command("search", "hello", "--json", home=home).stdout)
        assert (found["total"], found["complete"]) == (2, True)
        done = sessiontree_command("history", home=home)
        assert done.returncode == 0, done.stderr
        assert "hello" in done.stdout


@pytest.mark.parametrize("cwd", ["/a\0b", "/a\ud800b"])
def test_statistics_include_a_session_in_a_folder_that_cannot_exist(tmp_path: Path, cwd: str) -> None:
    session_of_pi(str(tmp_path / ".pi/agent/sessions/--p--/s.jsonl"), cwd)
    done = sessiontree_command("stats", "--all", "--by", "project", home=tmp_path / "home")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].endswith(" 1"), "one session in total"


@pytest.mark.parametrize("cwd", ["/a\0b", "/a\ud800b"])
def test_a_session_of_pi_in_a_folder_that_cannot_exist_is_not_resumed(tmp_path: Path, cwd: str) -> None:
    header = {"type": "session", "version": 3, "id": "s1", "timestamp": "2026-01-01T00:00:00.000Z", "cwd": cwd}
    message = {"role": "user", "content": "hi"}
    entry = {"type": "message", "id": "e1", "parentId": None, "timestamp": "2026-01-01T00:00:00.000Z"}
    location = tmp_path / "pi.jsonl"
    location.write_text(json.dumps(header) + "\n" + json.dumps({**entry, "message": message}) + "\n")
    done = sessiontree_command("resume", location, "--print", home=tmp_path / "home")
    assert done.returncode == 2
    assert "cannot be a folder" in done.stderr


def test_a_call_without_a_name_is_readable(tmp_path: Path) -> None:
    home = tmp_path / "home"
    location = tmp_path / "claude.jsonl"
    shared = {"sessionId": "s", "version": "2.0.0", "cwd": str(tmp_path), "timestamp": "2026-01-01T00:00:00.000Z"}
    user = {"type": "user", "uuid": "u1", "parentUuid": None, "message": {"role": "user", "content": "hi"}, **shared}
    for number, block in enumerate(
        [{"type": "tool_use", "id": "t1", "input": {}}, {"type": "tool_use", "id": "t1", "name": None, "input": {}},
         {"type": "tool_use", "id": 5, "name": 7, "input": "x"}, {"type": "tool_use"}]
    ):  # fmt: skip
        answer = {
            "type": "assistant", "uuid": "a1", "parentUuid": "u1",
            "message": {"role": "assistant", "model": "m", "id": "m1", "content": [block]}, **shared,
        }  # fmt: skip
        location.write_text(json.dumps(user) + "\n" + json.dumps(answer) + "\n")
        for words in (
            ["show"], ["context"], ["context", "--as", "anthropic"], ["context", "--as", "openai"], ["info"],
            ["context", "--as", "openai-chat"], ["doctor"], ["convert", "--to", "pi"], ["convert", "--to", "native"],
            ["export", "--format", "md"], ["export", "--format", "html"],
        ) if number == 0 else (["show"], ["context", "--as", "openai"], ["convert", "--to", "neovate"]):  # fmt: skip
            done = sessiontree_command(words[0], location, *words[1:], home=home)
            assert "Traceback" not in done.stderr, (block, words, done.stderr)


def test_saving_a_worktree_on_a_full_disk_is_reported(tmp_path: Path) -> None:
    project = make_project(tmp_path / "project")
    (project / "large.txt").write_bytes(os.urandom(400_000))
    location = session_in(tmp_path)

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    done = sessiontree_command("worktree", "save", location, home=tmp_path / "home", preexec_fn=limit)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert "worktree" in done.stderr or "blob" in done.stderr
    assert sessiontree_command("worktree", "save", location, home=tmp_path / "home").returncode == 0
