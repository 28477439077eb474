"""Sessions of xcsh, a relative of oh-my-pi that reads only files whose first line is the header."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

import sessiontree
from sessiontree.branches.leave import leave
from sessiontree.compaction import compact
from sessiontree.conversion.launch import install_copy, plan_resumption
from sessiontree.core.entries import Compaction
from sessiontree.core.messages import Image, User
from sessiontree.export import export
from sessiontree.library.last_session import find_last_session
from sessiontree.stores.file import FileStore

ID = "0123456789abcdef"
NOTICE = "\n\n[Session persistence truncated large content]"


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    bucket = tmp_path / ".xcsh" / "agent" / "sessions" / "-proj"
    bucket.mkdir(parents=True)
    path = bucket / f"2026-03-01T00-00-00-000Z_{ID}.jsonl"
    header = {"type": "session", "version": 3, "id": ID, "timestamp": "2026-03-01T00:00:00.000Z"}
    path.write_text(json.dumps({**header, "cwd": str(tmp_path / "proj"), "title": "t"}) + "\n")
    return path


def lines_of(path: Path | str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_bytes().splitlines()]


@pytest.mark.parametrize("folder", [None, "other"])
def test_a_fork_starts_with_the_header_and_stays_with_xcsh(path: Path, tmp_path: Path, folder: str | None) -> None:
    with sessiontree.open(str(path)) as session:
        session.append("user", "q")
        with session.fork(cwd=None if folder is None else str(tmp_path / folder)) as fork:
            assert lines_of(fork.location)[0]["type"] == "session"
            assert fork.location.startswith(str(tmp_path / ".xcsh"))
            assert fork.dialect.name == "omp"
            assert fork.name == "t"


def test_resuming_starts_xcsh(path: Path) -> None:
    with sessiontree.open(str(path)) as session:
        session.append("user", "q")
        resumption = plan_resumption(session)
    assert resumption.command == ("xcsh", "--resume", ID)
    assert resumption.plan is None


def test_a_session_in_a_folder_with_an_older_name_is_resumed_where_it_is(path: Path) -> None:
    older = path.parent.parent / "--an-older-name--" / path.name
    older.parent.mkdir()
    path.rename(older)
    with sessiontree.open(str(older)) as session:
        session.append("user", "q")
        resumption = plan_resumption(session)
    assert resumption.command == ("xcsh", "--resume", ID)
    assert resumption.plan is None


def test_resuming_in_another_folder_starts_xcsh_as_well(path: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with sessiontree.open(str(path)) as session:
        session.append("user", "q")
        resumption = plan_resumption(session, cwd=str(tmp_path / "other"))
        assert resumption.plan is not None
        assert resumption.command == ("xcsh", "--resume", resumption.plan.id)
        assert resumption.plan.path.startswith(str(tmp_path / ".xcsh"))
        install_copy(session, resumption.plan)
    assert lines_of(resumption.plan.path)[0]["type"] == "session"


def test_a_fork_to_another_place_takes_its_images_along(path: Path, tmp_path: Path) -> None:
    data = base64.b64encode(bytes(range(256)) * 8).decode()
    block = {"type": "image", "data": data, "mimeType": "image/png"}
    elsewhere = tmp_path / "copy" / "sessions" / "b" / "fork.jsonl"
    elsewhere.parent.mkdir(parents=True)
    with sessiontree.open(str(path)) as session:
        session.append({"role": "user", "content": [block]})
        assert data not in path.read_text()
        with session.fork(store=FileStore(str(elsewhere))) as fork:
            assert fork.dialect.name == "omp"
    with sessiontree.open(str(elsewhere)) as again:
        (message,) = again.context().messages
        assert isinstance(message, User)
        assert message.content == (Image(data),)
        assert not again.problems


def test_long_text_is_truncated_with_the_notice_of_the_client(path: Path) -> None:
    with sessiontree.open(str(path)) as session:
        session.append("user", "x\n" * 300_000)
        files = [{"path": "a", "content": "x\n" * 300_000, "lineCount": 300_001}]
        session.append({"type": "message", "message": {"role": "fileMention", "files": files}})
    message, mention = (line["message"] for line in lines_of(path)[1:])
    assert message["content"].startswith("x\nx\n")
    assert message["content"].endswith(NOTICE)
    assert len(message["content"]) == 500_000
    (file,) = mention["files"]
    assert file["content"].endswith(NOTICE)
    assert file["lineCount"] == file["content"].count("\n") + 1


def test_fields_of_a_streamed_response_are_not_persisted(path: Path) -> None:
    call = {"type": "toolCall", "id": "1", "name": "read", "arguments": {"path": "p"}, "partialJson": '{"path'}
    with sessiontree.open(str(path)) as session:
        session.append({"role": "assistant", "content": [call], "jsonlEvents": [1]})
    text = path.read_text()
    assert "partialJson" not in text
    assert "jsonlEvents" not in text
    assert lines_of(path)[-1]["message"]["content"][0]["arguments"] == {"path": "p"}


def test_summaries_of_extensions_have_the_mark_of_this_client(path: Path) -> None:
    fields = {"type": "compaction", "summary": "s", "firstKeptEntryId": "", "tokensBefore": 1}
    with sessiontree.open(str(path)) as session:
        session.append("user", "q")
        written = session.append({**fields, "fromHook": True})
        assert isinstance(written, Compaction)
        assert written.from_hook is True
        (decoded,) = session.dialect.decode(session.journal, [session.journal.tree.node_of[written.id]])
    assert decoded.fields["fromHook"] is True
    line = lines_of(path)[-1]
    assert line["fromExtension"] is True
    assert "fromHook" not in line


def test_the_last_session_of_the_terminal_is_found_in_the_folder_of_xcsh(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sessiontree.library.last_session._device", lambda: None)
    environment = {"HOME": str(tmp_path), "TMUX_PANE": "%7"}
    home = str(tmp_path / "home")
    assert find_last_session(home, environment) is None
    folder = tmp_path / ".xcsh" / "agent" / "terminal-sessions"
    folder.mkdir()
    (folder / "tmux-%7").write_text(f"/somewhere\n{path}\n")
    found = find_last_session(home, environment)
    assert found is not None
    assert (found.cwd, found.path) == ("/somewhere", str(path))


def test_a_branch_summary_names_the_entry_where_the_new_branch_starts(path: Path) -> None:
    with sessiontree.open(str(path)) as session:
        first = session.append("user", "q")
        second = session.append({"role": "assistant", "content": [{"type": "text", "text": "a"}]})
        at_first = leave(session, first.id)
        written = lines_of(path)[-1]
        assert (written["type"], written["fromId"], written["parentId"]) == ("branch_summary", first.id, first.id)
        (decoded,) = session.dialect.decode(session.journal, [session.journal.tree.node_of[at_first.entry or ""]])
        assert decoded.fields["fromId"] == second.id, "the branch that was left is known on the way to other formats"
        leave(session, None)
    written = lines_of(path)[-1]
    assert (written["type"], written["fromId"], written["parentId"]) == ("branch_summary", "root", None)


def test_a_page_names_only_a_branch_that_was_left_as_abandoned(path: Path) -> None:
    with sessiontree.open(str(path)) as session:
        first = session.append("user", "q")
        session.append({"role": "assistant", "content": [{"type": "text", "text": "a"}]})
        leave(session, first.id)
        page = b"".join(export(session, "text")).decode()
    assert "Branch summary" in page
    assert "abandoned branch" not in page


def test_a_compaction_has_a_short_summary_which_is_the_title_without_another(path: Path) -> None:
    path.write_text(path.read_text().replace(', "title": "t"', ""))
    with sessiontree.open(str(path)) as session:
        for number in range(4):
            session.append("user", f"Please add a lexer for rule {number}. " + "word " * 40)
            session.append({"role": "assistant", "content": [{"type": "text", "text": "Done."}]})
        compact(session, keep=10)
        assert session.name == lines_of(path)[-1]["shortSummary"]
    assert lines_of(path)[-1]["shortSummary"].startswith("Please add a lexer for rule")
    assert len(lines_of(path)[-1]["shortSummary"]) <= 100


@pytest.mark.parametrize("folder", ["copy", "copy/sessions/b"])
@pytest.mark.parametrize("program", ["native", ".xcsh/agent", ".omp/agent"])
def test_blobs_are_found_from_a_fork_in_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, folder: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SESSIONTREE_HOME", str(tmp_path / "home"))
    data = base64.b64encode(bytes(range(256)) * 8).decode()
    if program == "native":
        session = sessiontree.create(str(tmp_path))
    else:
        file = tmp_path / program / "sessions" / "-" / f"2026-03-01T00-00-00-000Z_{ID}.jsonl"
        file.parent.mkdir(parents=True)
        header = {"type": "session", "version": 3, "id": ID, "timestamp": "2026-03-01T00:00:00.000Z"}
        file.write_text(json.dumps({**header, "cwd": str(tmp_path), "title": "t"}) + "\n")
        session = sessiontree.open(str(file))
    elsewhere = tmp_path / folder / "fork.jsonl"
    elsewhere.parent.mkdir(parents=True)
    with session:
        session.append({"role": "user", "content": [{"type": "image", "data": data, "mimeType": "image/png"}]})
        session.fork(store=FileStore(str(elsewhere))).close()
    with sessiontree.open(str(elsewhere)) as again:
        (message,) = again.context().messages
        assert isinstance(message, User)
        assert message.content == (Image(data),)
        assert not again.problems
