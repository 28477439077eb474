"""`sessiontree acp` with the client of the Python package, which validates every message."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import pytest
from acp.schema import AllowedOutcome, DeniedOutcome, RequestPermissionResponse

import acp
from tests_adapters.acp.conftest import CLAUDE, PI, REPLAYED, Setup


class Editor(acp.Client):
    """A client that keeps what it receives."""

    def __init__(self) -> None:
        self.updates: list[Any] = []
        self.asked: list[Any] = []
        self.choice: str | None = "once"
        self.changed = asyncio.Event()

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.updates.append(update)
        self.changed.set()

    async def request_permission(self, session_id: str, tool_call: Any, options: Any, **_: Any) -> Any:
        self.asked.append((tool_call, options))
        self.changed.set()
        if self.choice is None:
            await asyncio.Event().wait()
        if self.choice == "cancelled":
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=self.choice))

    def on_connect(self, conn: Any) -> None: ...

    async def wait_for(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                self.changed.clear()
                await self.changed.wait()

    def text(self) -> str:
        found = [update for update in self.updates if update.session_update == "agent_message_chunk"]
        return "".join(update.content.text for update in found)

    def steps(self) -> list[str]:
        found: list[str] = []
        for update in self.updates:
            match update.session_update:
                case "tool_call":
                    found.append(f"call {update.title.partition(' ')[0]}")
                case "tool_call_update":
                    found.append(str(update.status))
                case kind:
                    found.append(kind.removesuffix("_message_chunk"))
        return found


def drive(setup: Setup, work: Callable[[Editor, Any], Any]) -> None:
    async def main() -> None:
        editor = Editor()
        spawned = acp.spawn_agent_process(
            editor,
            setup.command,
            *setup.arguments,
            env=setup.environment,
            cwd=setup.project,
            use_unstable_protocol=True,
        )
        async with spawned as (agent, _):
            answer = await agent.initialize(protocol_version=acp.PROTOCOL_VERSION)
            assert answer.protocol_version == acp.PROTOCOL_VERSION
            assert answer.agent_capabilities.load_session
            await work(editor, agent)

    asyncio.run(main())


def test_sessions_are_listed_and_replayed_in_order(setup: Setup) -> None:
    async def work(editor: Editor, agent: Any) -> None:
        listed = await agent.list_sessions()
        assert {CLAUDE, PI} <= {session.session_id for session in listed.sessions}
        shop = await agent.list_sessions(cwd=str(setup.home / "projects/shop"))
        assert {session.cwd for session in shop.sessions} == {str(setup.home / "projects/shop")}
        for id, steps in REPLAYED.items():
            editor.updates.clear()
            await agent.load_session(session_id=id, cwd=str(setup.project), mcp_servers=[])
            assert editor.steps() == steps
            await agent.close_session(session_id=id)

    drive(setup, work)


def test_a_prompt_is_answered_after_an_approval_and_the_session_is_resumed(setup: Setup) -> None:
    async def work(editor: Editor, agent: Any) -> None:
        id = (await agent.new_session(cwd=str(setup.project), mcp_servers=[])).session_id
        await agent.set_session_mode(session_id=id, mode_id="default")
        done = await agent.prompt(session_id=id, prompt=[acp.text_block("make a file")])
        assert done.stop_reason == "end_turn"
        (call, options) = editor.asked[0]
        assert call.title == "create made.txt"
        assert [option.kind for option in options] == ["allow_once", "allow_always", "reject_once"]
        assert (setup.project / "made.txt").read_text() == "made\n"
        assert editor.text() == "I write it.Done."

        await agent.close_session(session_id=id)
        editor.updates.clear()
        await agent.resume_session(session_id=id, cwd=str(setup.project), mcp_servers=[])
        assert editor.updates == []
        done = await agent.prompt(session_id=id, prompt=[acp.text_block("still there?")])
        assert (done.stop_reason, editor.text()) == ("end_turn", "Yes.")
        forked = (await agent.fork_session(session_id=id, cwd=str(setup.project), mcp_servers=[])).session_id
        editor.updates.clear()
        await agent.load_session(session_id=forked, cwd=str(setup.project), mcp_servers=[])
        assert editor.text() == "I write it.Done.Yes."

    drive(setup, work)


@pytest.mark.parametrize("prompt", ["make a file", "count slowly"])
def test_a_prompt_is_cancelled_during_an_approval_and_during_an_answer(setup: Setup, prompt: str) -> None:
    async def work(editor: Editor, agent: Any) -> None:
        editor.choice = None
        id = (await agent.new_session(cwd=str(setup.project), mcp_servers=[])).session_id
        running = asyncio.ensure_future(agent.prompt(session_id=id, prompt=[acp.text_block(prompt)]))
        await editor.wait_for(lambda: editor.asked if prompt == "make a file" else editor.text())
        await agent.cancel(session_id=id)
        assert (await asyncio.wait_for(running, 60)).stop_reason == "cancelled"
        assert not (setup.project / "made.txt").exists()
        done = await agent.prompt(session_id=id, prompt=[acp.text_block("still there?")])
        assert done.stop_reason == "end_turn"

    drive(setup, work)


def test_mcp_servers_of_the_editor_are_tools_that_need_approval(setup: Setup) -> None:
    """The server is our own: past sessions as tools."""
    from acp.schema import EnvVariable, McpServerStdio

    environment = [EnvVariable(name=name, value=value) for name, value in setup.environment.items()]
    server = McpServerStdio(name="past", command=sys.executable, args=["-m", "sessiontree", "mcp"], env=environment)

    async def work(editor: Editor, agent: Any) -> None:
        id = (await agent.new_session(cwd=str(setup.project), mcp_servers=[server])).session_id
        await agent.prompt(session_id=id, prompt=[acp.text_block("what was decided")])
        assert len(editor.asked) == 1
        assert editor.text() == "You fixed a flaky test."

    drive(setup, work)
