"""Tools of MCP servers, with a real server process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sessiontree.agent.approval import Ask, Reply
from sessiontree.agent.controller import Controller
from sessiontree.agent.mcp_client import McpServer, McpServers, McpTool, read_servers, running_servers
from sessiontree.agent.tool_calls import ToolRunner
from sessiontree.agent.tools.base import Tool, ToolOutput, Tools
from sessiontree.core.messages import ToolCall
from sessiontree.errors import DamagedError
from tests.agent.builders import Workplace, is_alive, wait_for

Use = Callable[[Callable[[McpServers], Coroutine[Any, Any, None]]], None]
SMALL = McpServer(sys.executable, (str(Path(__file__).with_name("mcp_server.py")),), timeout=20)


def with_servers(place: Workplace, use: Callable[[McpServers], Awaitable[None]], **servers: McpServer) -> None:
    async def run() -> None:
        async with running_servers(servers, str(place.project), str(place.outputs)) as started:
            await use(started)

    asyncio.run(run())


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Use]:
    """Run functions with one shared server, because starting one takes long."""
    folder = str(tmp_path_factory.mktemp("server"))
    with asyncio.Runner() as runner:
        stack = contextlib.AsyncExitStack()
        servers = runner.run(stack.enter_async_context(running_servers({"small": SMALL}, folder, folder)))
        yield lambda use: runner.run(use(servers))
        runner.run(stack.aclose())


def find(servers: McpServers, name: str) -> McpTool:
    return next(tool for tool in servers.tools if tool.name == name)


def test_tools_of_a_server_can_be_called(place: Workplace, shared: Use) -> None:
    async def use(servers: McpServers) -> None:
        assert servers.problems == {}
        add = find(servers, "small__add")
        assert isinstance(add, Tool)
        assert add.changes == "anything"
        assert add.description == "Add two numbers."
        assert set(add.schema["properties"]) == {"one", "other"}
        assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", tool.name) for tool in Tools(servers.tools))
        assert await add.run({"one": 2, "other": 3}, place.context) == ToolOutput("5")
        odd = next(tool for tool in servers.tools if tool.name.startswith("small__a_name_with_odd"))
        assert (await odd.run({}, place.context)).text.startswith("odd ")

    shared(use)


def test_the_state_of_an_app_has_the_servers_and_their_tools(place: Workplace, shared: Use) -> None:
    async def use(servers: McpServers) -> None:
        controller = Controller(place.project, home=place.home, in_memory=True, mcp=servers)
        await controller.new()
        (client,) = controller.state.mcp
        assert (client.name, client.is_running, client.problem) == ("small", True, "")
        assert "small__add" in client.tools
        await controller.close()

    shared(use)


def test_failures_and_wrong_arguments_are_error_results(place: Workplace, shared: Use) -> None:
    async def use(servers: McpServers) -> None:
        failed = await find(servers, "small__fail").run({}, place.context)
        assert failed.is_error
        assert "fail" in failed.text
        wrong = await find(servers, "small__add").run({"one": "two"}, place.context)
        assert wrong.is_error
        assert "other" in wrong.text

    shared(use)


def test_images_and_long_results_are_supported(place: Workplace, shared: Use) -> None:
    async def use(servers: McpServers) -> None:
        picture = await find(servers, "small__picture").run({}, place.context)
        assert [image.mime_type for image in picture.images] == ["image/png"]
        much = await find(servers, "small__much").run({"lines": 50_000}, place.context)
        assert len(much.text) < 40_000
        assert "all of it is in" in much.text

    shared(use)


@pytest.mark.slow
def test_a_server_that_dies_is_an_error_result_and_the_next_call_restarts_it(place: Workplace) -> None:
    async def use(servers: McpServers) -> None:
        died = await asyncio.wait_for(find(servers, "small__die").run({}, place.context), 15)
        assert died.is_error
        assert "has ended; it is not known whether the call was carried out" in died.text
        assert (await find(servers, "small__add").run({"one": 1, "other": 1}, place.context)).text == "2"

    with_servers(place, use, small=SMALL)


def test_a_call_that_takes_too_long_times_out(place: Workplace) -> None:
    async def use(servers: McpServers) -> None:
        output = await find(servers, "small__wait").run({"seconds": 30}, place.context)
        assert output.is_error
        assert "did not answer within 2 s" in output.text

    with_servers(place, use, small=msgspec.structs.replace(SMALL, timeout=2))


def test_servers_have_ended_after_a_cancellation(place: Workplace) -> None:
    pids: list[int] = []

    async def run() -> None:
        async with running_servers({"small": SMALL}, str(place.project), str(place.outputs)) as started:
            odd = next(tool for tool in started.tools if "odd" in tool.name)
            pids.append(int((await odd.run({}, place.context)).text.split()[1]))
            await asyncio.sleep(300)

    async def cancelled() -> None:
        task = asyncio.create_task(run())
        await asyncio.to_thread(wait_for, lambda: pids)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert not is_alive(pids[0])


def test_a_server_that_fails_to_start_is_a_problem_not_an_error(place: Workplace, tmp_path: Path) -> None:
    (tmp_path / "mute.py").write_text("import time; time.sleep(60)")
    (tmp_path / "noise.py").write_text("print('this is no protocol'); raise SystemExit(1)")

    async def use(servers: McpServers) -> None:
        assert set(servers.problems) == {"none", "mute", "noise"}
        assert "could not be started" in servers.problems["none"]
        assert "did not answer within 1 s" in servers.problems["mute"]
        assert find(servers, "small__add")

    with_servers(
        place,
        use,
        none=McpServer("/no/such/program"),
        mute=McpServer(sys.executable, (str(tmp_path / "mute.py"),), start_timeout=1),
        noise=McpServer(sys.executable, (str(tmp_path / "noise.py"),), start_timeout=10),
        small=SMALL,
    )


def test_a_server_gets_only_the_secrets_configured_for_it(place: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTHER_TOKEN", "for-nobody-at-all")

    async def use(servers: McpServers) -> None:
        variables = (await find(servers, "small__environment").run({}, place.context)).text
        assert "for-nobody-at-all" not in variables
        assert "GIVEN=abc" in variables

    with_servers(place, use, small=msgspec.structs.replace(SMALL, env={"GIVEN": "abc"}))
    log = next(place.outputs.glob("mcp-*.log"))
    assert "started" in log.read_text()
    assert log.stat().st_mode & 0o777 == 0o600


def test_calls_need_approval_like_commands(place: Workplace, shared: Use) -> None:
    async def use(servers: McpServers) -> None:
        add = find(servers, "small__add")
        decision = place.approvals.decide(add.name, add.plan({"one": 1}, place.context))
        assert isinstance(decision, Ask)
        assert decision.question.preview == 'add {"one":1}'
        calls = ToolRunner(Tools(servers.tools), place.context, place.approvals, approver=place.answers)
        place.answers.reply = Reply("no")
        denied = await calls.call(ToolCall("1", add.name, {"one": 1, "other": 1}))
        assert denied.text == "small__add was not run: the user denied it. Nothing was changed."

    shared(use)


def test_servers_are_listed_in_a_file_of_the_user(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    assert read_servers(str(path)) == {}
    listed = {
        "docs": {"type": "stdio", "command": "docs", "args": ["-x"], "env": {"KEY": "${DOCS}", "NONE": "${NONE}"}}
    }
    path.write_text(json.dumps({"mcpServers": listed}))
    servers = read_servers(str(path), {"DOCS": "secret"})
    assert servers == {"docs": McpServer("docs", ("-x",), {"KEY": "secret", "NONE": ""})}


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"mcpServers": 3}', '{"mcpServers": {"a": {"url": "http://x"}}}', '{"mcpServers": {"a": 1}}'],
)
def test_an_invalid_file_is_named_in_the_error(text: str, tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(text)
    with pytest.raises(DamagedError, match=re.escape(os.fspath(path))):
        read_servers(str(path))
