"""Spilled output: where it is stored, who may read it, and when it is deleted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import sessiontree
from sessiontree.agent.shell_commands import UserCommand
from sessiontree.agent.tool_output import FOLDER
from sessiontree.core.messages import BashExecution, ToolResult, message_text
from sessiontree.session.session import Session
from sessiontree.stores.blobs import blob_name
from tests.agent.builders import BARE
from tests.agent.runs import call, turn
from tests.agent.test_state_controller import Desk, go

LONG = "seq 1 20000"


def sessiontree_at(folder: Path, *arguments: str) -> int:
    """Run a command for a user with this home folder."""
    environment = {**BARE, "HOME": str(folder), "SESSIONTREE_HOME": str(folder / "home")}
    command = [sys.executable, "-m", "sessiontree", *arguments]
    return subprocess.run(command, env=environment, cwd=folder, capture_output=True, check=False).returncode


def session_with_long_output(folder: Path) -> tuple[Session, Path]:
    """A session with a long output, and its spill file."""
    desk = Desk(folder, turn("I count.", call("bash", command=LONG)), turn("Counted."))

    async def scene() -> None:
        await desk.controller.new()
        await desk.controller.approve("bash")
        await desk.say("Count")
        await desk.controller.close()

    go(scene())
    session = sessiontree.open(desk.controller.session.location)
    (result,) = [message for message in session.context().messages if isinstance(message, ToolResult)]
    return session, Path(message_text(result).rpartition("all of it is in ")[2].rstrip("]"))


def test_long_output_is_in_a_private_folder_of_its_session(tmp_path: Path) -> None:
    session, spilled = session_with_long_output(tmp_path)
    assert spilled.parent == Path(session.location).with_suffix("") / FOLDER
    assert spilled.read_text().split() == [str(number) for number in range(1, 20001)]
    assert spilled.stat().st_mode & 0o777 == 0o600


def test_the_model_may_read_it_without_approval_also_after_a_restart(tmp_path: Path) -> None:
    session, spilled = session_with_long_output(tmp_path)
    calls = (call("read", path=str(spilled), offset=19_990), call("grep", pattern="^19995$", path=str(spilled)))
    desk = Desk(tmp_path, turn("I read.", *calls), turn("Read."))

    async def scene() -> None:
        await desk.controller.resume(session.location)
        await desk.say("Read the end")

    go(scene())
    assert desk.answers.questions == []
    results = [one for one in desk.controller.session.context().messages if isinstance(one, ToolResult)]
    assert all("19995" in message_text(result) for result in results[-2:])


def test_changes_there_and_reads_elsewhere_in_the_home_need_approval(tmp_path: Path) -> None:
    session, spilled = session_with_long_output(tmp_path)
    calls = (call("read", path=session.location), call("write", path=str(spilled), content="other"))
    desk = Desk(tmp_path, turn("I try.", *calls), turn("Tried."))

    async def scene() -> None:
        await desk.controller.resume(session.location)
        await desk.say("Try")

    go(scene())
    assert sorted(question.tool for question in desk.answers.questions) == ["read", "write"]
    assert not any(question.may_always for question in desk.answers.questions)


def test_reading_outputs_of_another_session_needs_approval(tmp_path: Path) -> None:
    _, spilled = session_with_long_output(tmp_path)
    desk = Desk(tmp_path, turn("I read.", call("read", path=str(spilled))), turn("Read."))
    go(desk.say("Read"))
    assert [question.tool for question in desk.answers.questions] == ["read"]


def test_outputs_are_cleaned_restored_and_purged_with_their_session(tmp_path: Path) -> None:
    session, spilled = session_with_long_output(tmp_path)
    content = spilled.read_bytes()
    assert sessiontree_at(tmp_path, "clean", "--older-than", "0h", "--yes") == 0
    assert not os.path.exists(session.location)
    assert not spilled.parent.parent.exists()
    assert sessiontree_at(tmp_path, "restore", session.id) == 0
    assert spilled.read_bytes() == content
    assert sessiontree_at(tmp_path, "clean", "--older-than", "0h", "--yes", "--purge") == 0
    assert not spilled.parent.parent.exists()
    assert sessiontree_at(tmp_path, "restore", session.id) == 1


def test_a_session_that_never_got_a_file_leaves_no_outputs(tmp_path: Path) -> None:
    desk = Desk(tmp_path)

    async def scene() -> Path:
        entry = await desk.controller.command(UserCommand(LONG))
        assert desk.controller.session.is_pending
        message = getattr(entry, "message", None)
        assert isinstance(message, BashExecution)
        assert message.full_output_path is not None
        spilled = Path(message.full_output_path)
        assert spilled.exists()
        await desk.controller.close()
        return spilled

    assert not go(scene()).parent.parent.exists()


def test_outputs_of_a_session_in_memory_are_blobs_that_the_model_can_read(tmp_path: Path) -> None:
    counted = "".join(f"{number}\n" for number in range(1, 20001)).encode()
    name = f"blob:sha256:{blob_name(counted)}"
    desk = Desk(
        tmp_path,
        turn("I count.", call("bash", command=LONG)),
        turn("I read.", call("read", path=name, offset=19_990), call("read", path=name[:-1] + "?")),
        turn("Counted."),
        in_memory=True,
    )
    before = sorted(tmp_path.rglob("*"))

    async def scene() -> list[str]:
        await desk.controller.new()
        await desk.controller.approve("bash")
        await desk.say("Count")
        messages = desk.controller.session.context().messages
        await desk.controller.close()
        return [message_text(message) for message in messages if isinstance(message, ToolResult)]

    long, read, wrong = go(scene())
    assert f"all of it is in {name}" in long
    assert read.startswith("19990\n19991\n")
    assert "is not a blob name" in wrong
    assert desk.controller.session.repository.blobs.get(blob_name(counted)) == counted
    assert [path for path in sorted(tmp_path.rglob("*")) if path not in before and "sessions" in path.parts] == []


def test_a_session_of_another_agent_has_its_own_spill_folder(tmp_path: Path) -> None:
    session, _ = session_with_long_output(tmp_path)
    foreign = tmp_path / "project" / "foreign.jsonl"
    assert sessiontree_at(tmp_path, "convert", session.location, "--to", "pi", "--out", str(foreign)) == 0
    desk = Desk(tmp_path, turn("I count.", call("bash", command=LONG)), turn("Counted."))

    async def scene() -> None:
        await desk.controller.resume(str(foreign))
        await desk.controller.approve("bash")
        await desk.say("Count again")

    go(scene())
    assert len(list((tmp_path / "project" / "foreign" / FOLDER).iterdir())) == 1
    assert sessiontree.open(foreign).dialect.name == "pi"
