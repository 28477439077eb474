"""/commands for the agent's options: model, thinking, approval, tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sessiontree.agent.approval import MODES
from sessiontree.chat.terminal import DIM
from sessiontree.errors import UsageError
from sessiontree.views.text import cut, one_line

if TYPE_CHECKING:
    from sessiontree.chat.conversation import Conversation

LEVELS = ("off", "minimal", "low", "medium", "high", "xhigh")


async def model(chat: Conversation, rest: str) -> None:
    if rest:
        await chat.controller.set_model(rest)
    chat.screen.line(f"· {one_line(chat.controller.state.model or 'no model')}", DIM)


async def thinking(chat: Conversation, rest: str) -> None:
    match rest:
        case "":
            pass
        case "off" | "minimal" | "low" | "medium" | "high" | "xhigh":
            await chat.controller.set_thinking(rest)
        case _:
            raise UsageError(f"unknown thinking level {rest!r}; use {', '.join(LEVELS)}")
    chat.screen.line(f"· thinking: {one_line(chat.controller.state.thinking or 'model default')}", DIM)


async def mode(chat: Conversation, rest: str) -> None:
    match rest:
        case "":
            pass
        case "default" | "autoEdit" | "yolo":
            await chat.controller.choose_mode(rest)
        case _:
            raise UsageError(f"unknown approval mode {rest!r}; use {', '.join(MODES)}")
    chat.screen.line(f"· approval: {chat.controller.state.approval}", DIM)


async def approve(chat: Conversation, rest: str) -> None:
    controller = chat.controller
    names = rest.split()
    if names == ["none"]:
        await controller.revoke()
    elif names:
        for name in names:
            _ = controller.tools[name]
        await controller.approve(*names)
    approved = ", ".join(map(one_line, controller.state.approved))
    chat.screen.line(f"· approved for this session: {approved or 'nothing'}", DIM)


async def verbose(chat: Conversation, rest: str) -> None:
    match rest:
        case "" | "on" | "off":
            chat.controller.set_verbose(not chat.controller.state.verbose if rest == "" else rest == "on")
        case _:
            raise UsageError(f"unknown value {rest!r}; use on or off")
    shown = "complete" if chat.controller.state.verbose else "shortened"
    chat.screen.line(f"· tool output is shown {shown}", DIM)


async def tools(chat: Conversation, _: str) -> None:
    for tool in chat.controller.tools:
        first = one_line(tool.description).partition(". ")[0]
        chat.screen.line(cut(f"{one_line(tool.name):16} {tool.changes:9} {first}", chat.screen.width))
