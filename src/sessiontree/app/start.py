"""Build a controller from options: the model by its name, the tools, the system prompt and the session."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence

from msgspec import Struct

from sessiontree.agent.approval import Approver
from sessiontree.agent.async_bridge import in_thread
from sessiontree.agent.controller import Controller
from sessiontree.agent.mcp_client import FILE, McpServer, McpServers, read_servers, require_mcp, running_servers
from sessiontree.agent.recorded_choices import recorded_model
from sessiontree.agent.sandbox import is_available
from sessiontree.agent.tools.base import load_tools
from sessiontree.app.demo import DEMO, demo_lane_model, demo_model
from sessiontree.core.entries import ApprovalMode
from sessiontree.dialects.contract import AS_CLIENT, ReadOptions
from sessiontree.errors import UsageError
from sessiontree.explore.task_tool import TaskTool, find_unfinished
from sessiontree.library.last_session import record_last_session
from sessiontree.models import Event, Facts, Model, Request, ThinkingLevel, open_model
from sessiontree.settings import Settings
from sessiontree.views.text import one_line

_HINT = (
    "name one with `--model provider:name`, in the setting `model` (`sessiontree config set model provider:name`) or "
    "in SESSIONTREE_MODEL, and set its key (ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY; ollama needs none); "
    "`--model demo` shows everything without a key"
)


class StartOptions(Struct, frozen=True):
    """The options of a chat."""

    cwd: str
    home: str
    settings: Settings
    model: str | None = None
    session: str | None = None
    """The session to resume; None for a new one."""
    is_fork: bool = False
    """Whether to continue in a copy."""
    in_memory: bool = False
    repository: str | None = None
    """The address where a new session is created; default: `home`."""
    thinking: ThinkingLevel | None = None
    approval: ApprovalMode | None = None
    name: str | None = None
    added: tuple[str, ...] = ()
    read_options: ReadOptions = AS_CLIENT
    """How resumed sessions are read."""
    mcp_servers: Mapping[str, McpServer] = {}
    """More MCP servers. Of two with the same name, the one of the home folder is started."""


class Started(Struct, frozen=True):
    controller: Controller
    notes: tuple[str, ...] = ()
    """Messages for the user, such as MCP servers that did not start."""


@contextlib.asynccontextmanager
async def open_controller(
    options: StartOptions,
    approver: Approver | None = None,
    confirm: Callable[[str], Awaitable[bool]] | None = None,
) -> AsyncIterator[Started]:
    """A controller with its session open; closed at the end, with its MCP servers. `confirm` as for `Controller`."""
    cwd = options.cwd
    tools = load_tools()
    tools.add(TaskTool(find_model=lambda name: find_model(name, options.settings.models), home=options.home))
    notes: list[str] = []
    if options.settings.sandbox and not is_available():
        notes.append("commands run without a sandbox: this system has none (it needs macOS, or Linux with Landlock)")
    servers: McpServers | None = None
    async with contextlib.AsyncExitStack() as stack:
        listed, note = _mcp_servers(options)
        notes += note
        if listed is not None:
            servers = await stack.enter_async_context(running_servers(listed, cwd, os.path.join(options.home, "logs")))
            for tool in servers.tools:
                tools.add(tool)
            notes += [f"MCP server {name}: {problem}" for name, problem in servers.problems.items()]
        controller = Controller(
            cwd,
            home=options.home,
            settings=options.settings,
            model=find_model(options.model, options.settings.models) if options.model is not None else None,
            find_model=lambda name: find_model(name, options.settings.models),
            tools=tools,
            approver=approver,
            added=options.added,
            system=build_system_prompt(cwd, options.added),
            in_memory=options.in_memory,
            repository=options.repository,
            read_options=options.read_options,
            confirm=confirm,
            has_approval_mode=options.approval is not None,
            mcp=servers,
            unsaved_models=(DEMO,),
        )
        stack.push_async_callback(controller.close)
        notes += await _open_session(controller, options)
        yield Started(controller, tuple(notes))


def _mcp_servers(options: StartOptions) -> tuple[dict[str, McpServer] | None, list[str]]:
    """The MCP servers to start, or None, and a message if those of the options cannot be used."""
    path = os.path.join(options.home, FILE)
    listed = read_servers(path) if os.path.exists(path) else None
    if not options.mcp_servers:
        return listed, []
    try:
        require_mcp()
    except UsageError as error:  # a front end may always name some: the session is usable without them
        return listed, [str(error)]
    return {**options.mcp_servers, **(listed or {})}, []


async def _open_session(controller: Controller, options: StartOptions) -> list[str]:
    """Start or resume the session and apply the options; returns messages for the user."""
    notes: list[str] = []
    if options.session is None:
        await controller.new(options.name)
    else:
        await controller.resume(options.session, to_fork=options.is_fork)
        if options.is_fork:
            await controller.clone()
        notes += await find_unfinished_subagents(controller)
        if options.name:
            await controller.rename(options.name)
    if controller.state.model is None:
        raise no_model_error(await in_thread(recorded_model, controller.session))
    _ = controller.model  # opens it: a wrong name or key is reported now, not after the first prompt
    if options.thinking is not None:
        await controller.set_thinking(options.thinking)
    if options.approval is not None:
        await controller.choose_mode(options.approval)
    return notes


def record_session(controller: Controller) -> None:
    """Make `--continue` continue the session in this terminal, unless it would not be found again."""
    session = controller.session
    if session.ref.is_file and not session.is_pending:
        record_last_session(session.location, session.cwd or controller.cwd, home=controller.home)


async def find_unfinished_subagents(controller: Controller) -> list[str]:
    """Messages about sub-agents that were interrupted when the session ended, with how to switch to them."""
    return [
        f"sub-agent {one_line(started.description)!r} did not finish; /switch {started.leaf} shows its branch"
        for started in await in_thread(find_unfinished, controller.session)
    ]


def build_system_prompt(cwd: str, added: Sequence[str] = ()) -> str:
    """The system prompt. It depends only on the folders, so that a provider's prompt cache stays valid."""
    folders = "".join(f"\nYou may also work in {folder}." for folder in added)
    return f"""You are a coding agent. You work in the folder {cwd} with the tools you are given.{folders}

Look before you change: read a file before you edit it. Make calls that do not depend on each other together. A call may
be denied; the result says why, and you find another way or ask. Paths are relative to the folder above. Say briefly
what you did and what you found; when something failed, say so plainly."""


# Models


def is_unsaved_demo(model: str | None, settings: Settings) -> bool:
    """Whether a new chat is the demonstration, which is for trying out: its script is not worth a session."""
    return (model or settings.model) == DEMO


def find_model(name: str, facts: str | None = None) -> Model:
    """Open a model by name; `demo` is the scripted demonstration."""
    return _named(demo_model() if name == DEMO else open_model(name, facts=facts), name)


def find_lane_model(name: str, number: int, facts: str | None = None) -> Model:
    """Open a model for one lane. Lanes do not share models: a script is played only once."""
    return _named(demo_lane_model(number) if name == DEMO else open_model(name, facts=facts), name)


def _named(model: Model, name: str) -> Model:
    return model if model.name == name else RenamedModel(model, name)


class RenamedModel:
    """A model with the name it was requested by, so that the session can be resumed with that name.

    All scripted models, including the demonstration, have the same name otherwise.
    """

    def __init__(self, model: Model, name: str) -> None:
        self._model, self.name = model, name

    @property
    def facts(self) -> Facts:
        return self._model.facts

    def stream(self, request: Request, /) -> AsyncGenerator[Event, None]:
        return self._model.stream(request)

    async def close(self) -> None:
        await self._model.close()


def no_model_error(last: str | None = None) -> UsageError:
    """Return the error for a missing model. `last` is the one that a session file names, which may be any text."""
    if last is None:
        return UsageError(f"no model is configured: {_HINT}")
    return UsageError(
        "no model is configured; to use the one that last answered in this session, pass "
        f"--model {shlex.quote(one_line(last))}"
    )
