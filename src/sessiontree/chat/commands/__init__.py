"""The /commands of a chat: a table, and one function for each. The controller and the library do the work."""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from sessiontree.agent.approval import MODES
from sessiontree.chat.commands import explore, inspect, options, rewind, sessions, tree
from sessiontree.chat.styles import DIM
from sessiontree.errors import UsageError
from sessiontree.views.text import cut

if TYPE_CHECKING:
    from sessiontree.chat.base_chat import BaseChat


class Command(Struct, frozen=True):
    """A slash command of the chat: its name, its arguments as the help shows them, and the function that runs it."""

    name: str
    arguments: str
    summary: str
    run: Callable[[BaseChat, str], Awaitable[None]]


async def carry_out(chat: BaseChat, line: str) -> None:
    """Run a line that begins with a slash."""
    name, _, rest = line[1:].strip().partition(" ")
    command = COMMANDS.get(name)
    if command is None:
        near = difflib.get_close_matches(name, COMMANDS, 1, 0.5)
        hint = f"did you mean /{near[0]}?" if near else "/help lists all commands"
        raise UsageError(f"unknown command /{name}; {hint}")
    await command.run(chat, rest.strip())


def complete(chat: BaseChat, text: str) -> Sequence[tuple[str, str]]:
    """Completions of the last word of a line, with descriptions."""
    if not text.startswith("/"):
        return []
    name, space, rest = text[1:].partition(" ")
    if not space:
        return [(f"/{command.name}", command.summary) for command in COMMANDS.values() if command.name.startswith(name)]
    word = rest.rpartition(" ")[2]
    choices: dict[str, Sequence[str]] = {
        "mode": MODES,
        "thinking": options.LEVELS,
        "approve": (*chat.controller.tools.names, "none"),
        "rewind": ("undo",),
        "verbose": ("on", "off"),
        "help": tuple(COMMANDS),
        "switch": tuple(chat.controller.session.labels.values()),
    }
    return [(choice, "") for choice in choices.get(name, ()) if choice.startswith(word)]


async def _help(chat: BaseChat, rest: str) -> None:
    for command in COMMANDS.values():
        if not rest or rest.lstrip("/") == command.name:
            usage = f"/{command.name} {command.arguments}".rstrip()
            chat.screen.line(cut(f"{usage:24} {command.summary}", chat.screen.width))
    if not rest:
        chat.screen.line("!cmd runs a shell command and saves its output; !!cmd hides it from the model", DIM)
        chat.screen.lines(chat.key_help, DIM)


async def _quit(chat: BaseChat, _: str) -> None:
    chat.is_over = True


COMMANDS = {
    command.name: command
    for command in (
        Command("new", "[NAME]", "start a new session", sessions.new),
        Command("resume", "[ID]", "resume a session of any agent", sessions.resume),
        Command("continue", "", "continue this project's last session", sessions.continue_last),
        Command("tree", "[ENTRY]", "jump to any message; a prompt means just before it", tree.tree),
        Command("fork", "[ENTRY]", "fork a new session just before a prompt", sessions.fork_before),
        Command("clone", "", "copy this branch into a new session", sessions.clone),
        Command("branch", "[ENTRY [LABEL]]", "list branches, or start one at an entry", tree.branch),
        Command("switch", "[ENTRY]", "switch to the end of another branch", tree.switch),
        Command("merge", "[ENTRY]", "merge a summary of another branch", tree.merge_in),
        Command("diff", "[ENTRY [ENTRY]]", "compare this branch with another", tree.compare),
        Command("explore", '[N "TEXT"]', "run N attempts in parallel, then choose one", explore.explore_ways),
        Command("label", "[TEXT [@ENTRY]]", "label this message or another; list labels", tree.label),
        Command("name", "[TEXT]", "rename the session", tree.name),
        Command("compact", "[FOCUS]", "replace older messages with a summary", tree.compact_older),
        Command("rewind", "[ENTRY|undo]", "rewind the conversation, files, or both", rewind.rewind),
        Command("model", "[NAME]", "show or change the model", options.model),
        Command("thinking", "[LEVEL]", "show or change the thinking level", options.thinking),
        Command("mode", "[MODE]", "approval mode: plan, default, autoEdit, yolo", options.mode),
        Command("approve", "[TOOL...|none]", "tools that need no approval", options.approve),
        Command("verbose", "[on|off]", "show complete tool output, or its beginning", options.verbose),
        Command("tools", "", "list the tools", options.tools),
        Command("usage", "", "show tokens and cost", inspect.usage),
        Command("session", "", "show the current session", inspect.show),
        Command("history", "[WORDS]", "search earlier prompts", inspect.history),
        Command("search", "WORDS", "search all sessions", inspect.find),
        Command("export", "[FILE]", "export as html, md, txt, json or jsonl", inspect.write_document),
        Command("doctor", "", "check the session file for problems", inspect.doctor),
        Command("config", "[KEY]", "show settings and their sources", inspect.config),
        Command("help", "[COMMAND]", "show this list", _help),
        Command("quit", "", "quit", _quit),
    )
}
