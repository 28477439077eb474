"""The /words of a conversation: one function each, in a table. The controller and the library do what they say."""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from sessiontree.agent.approval import MODES
from sessiontree.chat import choosing, exploring, in_sessions, in_tree, looking, rewinding
from sessiontree.chat.screen import DIM
from sessiontree.errors import UsageError
from sessiontree.views.text import cut

if TYPE_CHECKING:
    from sessiontree.chat.talking import Conversation


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
        "thinking": choosing.LEVELS,
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
        Command("new", "[NAME]", "start a session", in_sessions.new),
        Command("resume", "[ID]", "go on with another session, of any agent", in_sessions.resume),
        Command("continue", "", "go on with the last session of this project", in_sessions.go_on),
        Command("tree", "[ENTRY]", "go to any message; to a prompt means before it", in_tree.tree),
        Command("fork", "[ENTRY]", "a new session from before a prompt", in_sessions.fork_before),
        Command("clone", "", "a new session with all of this branch", in_sessions.clone),
        Command("branch", "[ENTRY [LABEL]]", "list branches, or begin one at an entry", in_tree.branch),
        Command("switch", "[ENTRY]", "go to the end of another branch", in_tree.switch),
        Command("merge", "[ENTRY]", "bring a summary of another branch in", in_tree.merge_in),
        Command("diff", "[ENTRY [ENTRY]]", "compare this branch with another", in_tree.compare),
        Command("explore", '[N "TEXT"]', "try N ways at once, then choose; choose later", exploring.explore_ways),
        Command("label", "[TEXT [@ENTRY]]", "name this message or another; list names", in_tree.label),
        Command("name", "[TEXT]", "name the session", in_tree.name),
        Command("compact", "[FOCUS]", "let a summary stand for the older part", in_tree.compact_older),
        Command("rewind", "[ENTRY|undo]", "take back conversation, files, or both", rewinding.rewind),
        Command("model", "[NAME]", "which model answers", choosing.model),
        Command("thinking", "[LEVEL]", "how much it thinks", choosing.thinking),
        Command("mode", "[MODE]", "what is asked: default, autoEdit, yolo", choosing.mode),
        Command("approve", "[TOOL...|none]", "tools that are not asked about", choosing.approve),
        Command("tools", "", "what the model can call", choosing.tools),
        Command("usage", "", "tokens and cost", looking.usage),
        Command("session", "", "what is in hand", looking.show),
        Command("history", "[WORDS]", "earlier prompts", looking.history),
        Command("search", "WORDS", "find what was said, in any session", looking.find),
        Command("export", "[FILE]", "write a document: html, md, txt, json, jsonl", looking.write_document),
        Command("doctor", "", "what is wrong with the session file", looking.doctor),
        Command("config", "[KEY]", "settings and where they come from", looking.config),
        Command("help", "[COMMAND]", "this list", _help),
        Command("quit", "", "leave", _quit),
    )
}
