"""The /words of a conversation: one function each, in a table. The controller and the library do what they say."""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from sessiontree.agent.approval import MODES
from sessiontree.chat.commands import explore, inspect, options, rewind, sessions, tree
from sessiontree.chat.terminal import DIM
from sessiontree.errors import UsageError
from sessiontree.views.text import cut

if TYPE_CHECKING:
    from sessiontree.chat.conversation import Conversation


class Command(Struct, frozen=True):
    """A /word."""

    name: str
    arguments: str
    meaning: str
    run: Callable[[Conversation, str], Awaitable[None]]


async def carry_out(talk: Conversation, line: str) -> None:
    """Do what a line that begins with a slash asks for; one that is not known says so."""
    name, _, rest = line[1:].strip().partition(" ")
    command = COMMANDS.get(name)
    if command is None:
        near = difflib.get_close_matches(name, COMMANDS, 1, 0.5)
        meant = f"did you mean /{near[0]}? " if near else ""
        raise UsageError(f"there is no command /{name}; {meant}/help lists all")
    await command.run(talk, rest.strip())


def complete(talk: Conversation, text: str) -> Sequence[tuple[str, str]]:
    """The ways to go on with a line."""
    if not text.startswith("/"):
        return []
    name, space, rest = text[1:].partition(" ")
    if not space:
        return [(f"/{one.name}", one.meaning) for one in COMMANDS.values() if one.name.startswith(name)]
    word = rest.rpartition(" ")[2]
    choices: dict[str, Sequence[str]] = {
        "mode": MODES,
        "thinking": options.LEVELS,
        "approve": (*talk.controller.tools.names, "none"),
        "rewind": ("undo",),
        "help": tuple(COMMANDS),
        "switch": tuple(talk.controller.session.labels.values()),
    }
    return [(choice, "") for choice in choices.get(name, ()) if choice.startswith(word)]


async def _help(talk: Conversation, rest: str) -> None:
    for command in COMMANDS.values():
        if not rest or rest.lstrip("/") == command.name:
            usage = f"/{command.name} {command.arguments}".rstrip()
            talk.screen.line(cut(f"{usage:24} {command.meaning}", talk.screen.width))
    if not rest:
        talk.screen.line("!cmd runs a command and keeps it; !!cmd keeps it from the model", DIM)
        talk.screen.line("Tab completes · Up and Ctrl-R: earlier prompts · Alt-Enter: new line · Esc Esc: fork", DIM)
        talk.screen.line("While it works: Enter queues what you type for later · Ctrl-S says it after this call", DIM)
        talk.screen.line("Ctrl-C interrupts · twice, or Ctrl-D, leaves", DIM)


async def _quit(talk: Conversation, _: str) -> None:
    talk.is_over = True


COMMANDS = {
    command.name: command
    for command in (
        Command("new", "[NAME]", "start a session", sessions.new),
        Command("resume", "[ID]", "go on with another session, of any agent", sessions.resume),
        Command("continue", "", "go on with the last session of this project", sessions.go_on),
        Command("tree", "[ENTRY]", "go to any message; to a prompt means before it", tree.tree),
        Command("fork", "[ENTRY]", "a new session from before a prompt", sessions.fork_before),
        Command("clone", "", "a new session with all of this branch", sessions.clone),
        Command("branch", "[ENTRY [LABEL]]", "list branches, or begin one at an entry", tree.branch),
        Command("switch", "[ENTRY]", "go to the end of another branch", tree.switch),
        Command("merge", "[ENTRY]", "bring a summary of another branch in", tree.merge_in),
        Command("diff", "[ENTRY [ENTRY]]", "compare this branch with another", tree.compare),
        Command("explore", '[N "TEXT"]', "try N ways at once, then choose; choose later", explore.explore_ways),
        Command("label", "[TEXT [@ENTRY]]", "name this message or another; list names", tree.label),
        Command("name", "[TEXT]", "name the session", tree.name),
        Command("compact", "[FOCUS]", "let a summary stand for the older part", tree.compact_older),
        Command("rewind", "[ENTRY|undo]", "take back conversation, files, or both", rewind.rewind),
        Command("model", "[NAME]", "which model answers", options.model),
        Command("thinking", "[LEVEL]", "how much it thinks", options.thinking),
        Command("mode", "[MODE]", "what is asked: default, autoEdit, yolo", options.mode),
        Command("approve", "[TOOL...|none]", "tools that are not asked about", options.approve),
        Command("tools", "", "what the model can call", options.tools),
        Command("usage", "", "tokens and cost", inspect.usage),
        Command("session", "", "what is in hand", inspect.show),
        Command("history", "[WORDS]", "earlier prompts", inspect.history),
        Command("search", "WORDS", "find what was said, in any session", inspect.find),
        Command("export", "[FILE]", "write a document: html, md, txt, json, jsonl", inspect.write_document),
        Command("doctor", "", "what is wrong with the session file", inspect.doctor),
        Command("config", "[KEY]", "settings and where they come from", inspect.config),
        Command("help", "[COMMAND]", "this list", _help),
        Command("quit", "", "leave", _quit),
    )
}
