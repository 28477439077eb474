"""A chat with a session in a repository that is not a folder: it works, and nothing of it is in the file system."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import pytest

import sessiontree
from sessiontree.agent.controller import Controller
from sessiontree.app.actions.compact import plan_compact
from sessiontree.app.actions.merge import plan_merge
from sessiontree.app.actions.table import ACTIONS, Subject
from sessiontree.app.start import record_session
from sessiontree.archive.archive_home import Home
from sessiontree.core.messages import message_text
from sessiontree.models import ScriptedModel
from tests.agent.builders import BARE, Answers
from tests.agent.runs import call, turn

PNG = b"\x89PNG\r\n\x1a\n" + bytes(32)


def files_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that has everything the program can write to."""
    for name in ("project", "home", "tmp"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TMUX_PANE", "%1")  # a terminal whose last session could be recorded
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path


def test_a_chat_in_a_memory_repository_leaves_no_trace_in_the_file_system(machine: Path) -> None:
    before = files_below(machine)
    model = ScriptedModel(
        [
            turn("I look.", call("bash", command="seq 1 30000")),
            turn("Many numbers. " + "words " * 3000),
            turn("A picture. " + "words " * 24_000),
            turn("Another way."),
            turn("Forked."),
        ]
    )
    refs: list[str] = []

    async def scene() -> None:
        controller = Controller(
            machine / "project",
            home=machine / "home",
            model=model,
            approver=Answers(),
            environment={**BARE, "HOME": str(machine)},
            repository="memory:chat-test",
        )

        async def say(prompt: str) -> None:
            async for _ in controller.send(prompt):
                pass
            record_session(controller)

        await say("Count")
        first = controller.session.leaf
        await say(f"Look: {controller.paste_image(PNG)} {controller.paste_text('long ' * 3000)}")
        other = controller.session.leaf
        assert first is not None
        assert other is not None
        await controller.switch(first)
        await say("Try another way")
        session = controller.session
        await controller.carry_out(plan_merge(session, other))
        await controller.carry_out(plan_compact(session, controller.settings, keep=10))
        refs.append(str(session.ref))
        await controller.clone()
        await say("And in the copy")
        refs.append(str(controller.session.ref))
        await controller.resume(refs[0])
        assert str(controller.session.ref) == refs[0]
        subject = Subject(controller.session, Home(str(machine / "home")))
        assert ACTIONS["archive"].why_not(subject)
        assert ACTIONS["tag"].plan(subject, add=["kept here"]).do().result.tags == ("kept here",)
        forked = ACTIONS["fork"].plan(subject).do()
        assert forked.result.session.ref.home == "memory:chat-test"
        assert forked.undo is None
        await controller.close()

    asyncio.run(scene())
    assert all(ref.startswith("memory:chat-test/") for ref in refs)
    assert refs[0] != refs[1]
    assert message_text(sessiontree.open(refs[1]).context().messages[-1]) == "Forked."
    assert files_below(machine) == before
