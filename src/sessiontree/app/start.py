"""From what was asked for to a controller with a session in hand."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator

from msgspec import Struct

from sessiontree.agent.approval import Approver
from sessiontree.agent.async_bridge import in_thread
from sessiontree.agent.controller import Controller
from sessiontree.agent.mcp_client import read_servers, running_servers
from sessiontree.agent.tools.registry import load_tools
from sessiontree.app.demo import DEMO, make_scratch
from sessiontree.app.models import find_model, no_model_error
from sessiontree.app.system_prompt import build_system_prompt
from sessiontree.core.entries import ApprovalMode
from sessiontree.explore.task_tool import TaskTool, find_unfinished
from sessiontree.models import ThinkingLevel
from sessiontree.settings import Settings
from sessiontree.views.text import one_line

_SERVERS = "mcp.json"


class StartOptions(Struct, frozen=True):
    """What someone asks for on the command line."""

    cwd: str
    home: str
    settings: Settings
    model: str | None = None
    session: str | None = None
    """The session to go on with; None for a new one."""
    is_fork: bool = False
    """Whether to go on in a copy."""
    in_memory: bool = False
    thinking: ThinkingLevel | None = None
    approval: ApprovalMode | None = None
    name: str | None = None
    added: tuple[str, ...] = ()


class Started(Struct, frozen=True):
    controller: Controller
    notes: tuple[str, ...] = ()
    """What a person should know: servers that did not start."""


@contextlib.asynccontextmanager
async def open_controller(wanted: StartOptions, approver: Approver | None = None) -> AsyncIterator[Started]:
    """A controller that has what was asked for; in the end everything is let go of."""
    cwd = make_scratch() if wanted.model == DEMO else wanted.cwd
    tools = load_tools()
    tools.add(TaskTool(find_model=lambda name: find_model(name, wanted.settings.models), home=wanted.home))
    notes: list[str] = []
    async with contextlib.AsyncExitStack() as stack:
        path = os.path.join(wanted.home, _SERVERS)
        if os.path.exists(path):
            servers = await stack.enter_async_context(
                running_servers(read_servers(path), cwd, os.path.join(wanted.home, "logs"))
            )
            for tool in servers.tools:
                tools.add(tool)
            notes += [f"MCP server {name}: {problem}" for name, problem in servers.problems.items()]
        controller = Controller(
            cwd,
            home=wanted.home,
            settings=wanted.settings,
            model=find_model(wanted.model, wanted.settings.models) if wanted.model is not None else None,
            find_model=lambda name: find_model(name, wanted.settings.models),
            tools=tools,
            approver=approver,
            added=wanted.added,
            system=build_system_prompt(cwd, wanted.added),
            in_memory=wanted.in_memory,
        )
        stack.push_async_callback(controller.close)
        notes += await _take_session(controller, wanted)
        yield Started(controller, tuple(notes))


async def _take_session(controller: Controller, wanted: StartOptions) -> list[str]:
    """Have the session in hand that was asked for; what a person should know of it."""
    notes: list[str] = []
    if wanted.session is None:
        await controller.new(wanted.name)
    else:
        await controller.resume(wanted.session)
        if wanted.is_fork:
            await controller.clone()
        notes += await find_unfinished_subagents(controller)
        if wanted.name:
            await controller.rename(wanted.name)
    if controller.state.model is None:
        raise no_model_error()
    _ = controller.model  # what is wrong with its name or key is said now, not after the first prompt
    if wanted.thinking is not None:
        await controller.set_thinking(wanted.thinking)
    if wanted.approval is not None:
        await controller.choose_mode(wanted.approval)
    return notes


async def find_unfinished_subagents(controller: Controller) -> list[str]:
    """Which sub-agents were at work when the session was ended, and how to get to them."""
    return [
        f"ended while the sub-agent for {one_line(one.description)!r} worked; /switch {one.leaf} goes to it"
        for one in await in_thread(find_unfinished, controller.session)
    ]
