"""/commands for the agent's options: model, thinking, approval, tools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sessiontree.agent.approval import MODES
from sessiontree.agent.recorded_choices import recorded_model
from sessiontree.chat.styles import DIM
from sessiontree.errors import UsageError
from sessiontree.views.text import cut, one_line

if TYPE_CHECKING:
    from sessiontree.chat.base_chat import BaseChat

MODE_NOTES = (
    ("plan", "only read, until you approve the plan"),
    ("default", "ask before changes and commands"),
    ("autoEdit", "edit files of this project without asking"),
    ("yolo", "never ask"),
)
OTHER = "another"
"""The option to type a name instead."""
LEVELS = ("off", "minimal", "low", "medium", "high", "xhigh")


async def model(chat: BaseChat, rest: str) -> None:
    state = chat.controller.state
    rest = rest or await chat.choose_option("Model", known_models(chat), state.model) or ""
    if rest == OTHER:
        rest = (await chat.ask_text("Model (provider:name)")).strip()
    if rest:
        await chat.controller.set_model(rest)
    chat.screen.line(f"· {one_line(chat.controller.state.model or 'no model')}", DIM)


def known_models(chat: BaseChat) -> Sequence[tuple[str, str]]:
    """Models to choose from, with notes: the one in use, the one of the settings, and the last one of the session."""
    controller = chat.controller
    found: dict[str, str] = {}
    for name, note in (
        (controller.state.model, "in use"),
        (controller.settings.model, "in your settings"),
        (recorded_model(controller.session), "answered last in this session"),
    ):
        if name:
            found.setdefault(name, note)
    return (*found.items(), (OTHER, "type provider:name"))


async def thinking(chat: BaseChat, rest: str) -> None:
    levels = [(level, "") for level in LEVELS]
    rest = rest or await chat.choose_option("Thinking level", levels, chat.controller.state.thinking) or ""
    match rest:
        case "":
            pass
        case "off" | "minimal" | "low" | "medium" | "high" | "xhigh":
            await chat.controller.set_thinking(rest)
        case _:
            raise UsageError(f"unknown thinking level {rest!r}; use {', '.join(LEVELS)}")
    chat.screen.line(f"· thinking: {one_line(chat.controller.state.thinking or 'model default')}", DIM)


async def mode(chat: BaseChat, rest: str) -> None:
    rest = rest or await chat.choose_option("Approval mode", MODE_NOTES, chat.controller.state.approval) or ""
    match rest:
        case "":
            pass
        case "plan" | "default" | "autoEdit" | "yolo":
            await chat.controller.choose_mode(rest)
        case _:
            raise UsageError(f"unknown approval mode {rest!r}; use {', '.join(MODES)}")
    chat.screen.line(f"· approval: {chat.controller.state.approval}", DIM)


async def approve(chat: BaseChat, rest: str) -> None:
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


async def verbose(chat: BaseChat, rest: str) -> None:
    match rest:
        case "" | "on" | "off":
            chat.controller.set_verbose(not chat.controller.state.verbose if rest == "" else rest == "on")
        case _:
            raise UsageError(f"unknown value {rest!r}; use on or off")
    shown = "complete" if chat.controller.state.verbose else "shortened"
    chat.screen.line(f"· tool output is shown {shown}", DIM)


async def tools(chat: BaseChat, _: str) -> None:
    for tool in chat.controller.tools:
        first = one_line(tool.description).partition(". ")[0]
        chat.screen.line(cut(f"{one_line(tool.name):16} {tool.changes:9} {first}", chat.screen.width))
