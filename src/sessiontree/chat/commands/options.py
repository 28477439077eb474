"""/words for how the agent works: its model, what it is asked about, its tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sessiontree.agent.approval import MODES
from sessiontree.chat.terminal import DIM
from sessiontree.errors import UsageError
from sessiontree.views.text import cut, one_line

if TYPE_CHECKING:
    from sessiontree.chat.conversation import Conversation

LEVELS = ("off", "minimal", "low", "medium", "high", "xhigh")


async def model(talk: Conversation, rest: str) -> None:
    if rest:
        await talk.controller.set_model(rest)
    talk.screen.line(f"· {one_line(talk.controller.state.model or 'no model')}", DIM)


async def thinking(talk: Conversation, rest: str) -> None:
    match rest:
        case "":
            pass
        case "off" | "minimal" | "low" | "medium" | "high" | "xhigh":
            await talk.controller.set_thinking(rest)
        case _:
            raise UsageError(f"{rest!r} is no level: {', '.join(LEVELS)}")
    talk.screen.line(f"· thinking: {one_line(talk.controller.state.thinking or 'as the model does by itself')}", DIM)


async def mode(talk: Conversation, rest: str) -> None:
    match rest:
        case "":
            pass
        case "default" | "autoEdit" | "yolo":
            await talk.controller.choose_mode(rest)
        case _:
            raise UsageError(f"{rest!r} is no approval mode: {', '.join(MODES)}")
    talk.screen.line(f"· approval: {talk.controller.state.approval}", DIM)


async def approve(talk: Conversation, rest: str) -> None:
    controller = talk.controller
    names = rest.split()
    if names == ["none"]:
        await controller.revoke()
    elif names:
        for name in names:
            _ = controller.tools[name]
        await controller.approve(*names)
    approved = ", ".join(map(one_line, controller.state.approved))
    talk.screen.line(f"· approved for this session: {approved or 'nothing'}", DIM)


async def tools(talk: Conversation, _: str) -> None:
    for tool in talk.controller.tools:
        first = one_line(tool.description).partition(". ")[0]
        talk.screen.line(cut(f"{one_line(tool.name):16} {tool.changes:9} {first}", talk.screen.width))
