"""What a listing tells of one session, and how its title and prompts are cut."""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

from msgspec import Struct

Health: TypeAlias = Literal["ok", "damaged", "empty", "draft"]

WINDOW = 64 * 1024
"""How much is read at each end of a file."""
LONGEST_TITLE = 120
LONGEST_PROMPT = 240

# What programs put into the mouth of the user: output of commands, reminders, hooks, what an editor says by itself.
_automatic = re.compile(
    r"\s*(?:<(?:command-|local-command-|bash-|ide_|session-start-hook|system-reminder|user-prompt-submit-hook|task-"
    r"|tick>|goal>)|\[Request interrupted by user|Caveat: The messages below were generated)"
)


class Summary(Struct, frozen=True, gc=False, array_like=True):
    """One session as a listing shows it. Times are milliseconds since 1970."""

    path: str
    agent: str
    """The dialect of the file."""
    id: str
    title: str
    """The name, else the first prompt that means something, cut at a word; empty when nothing was said."""
    named: bool
    """Whether someone gave it that title."""
    cwd: str
    """The recorded working folder; empty when the file does not tell."""
    created: int | None
    active: int | None
    """The time of the last message; never the date of the file."""
    messages: int
    branches: int
    exact: bool
    """Whether messages, branches and usage were counted; else they are estimated from the ends of the file."""
    size: int
    modified: int
    """The date of the file, for what has no times of its own."""
    model: str | None = None
    tokens_in: int = 0
    tokens_out: int = 0
    tokens_cached: int = 0
    cost: float = 0.0
    health: Health = "ok"
    kind: Literal["session", "subagent"] = "session"
    parent: str | None = None
    """For a sub-agent: the path of the session that started it."""
    forked_from: str | None = None
    """The session it was forked from: an id, or for formats that keep it so, a path."""
    first_prompt: str = ""
    last_prompt: str = ""
    git_branch: str | None = None
    dated: bool = False
    """Whether `active` is surely right; else a later message may stand in a part of the file that was not read."""

    @property
    def is_whole(self) -> bool:
        """Whether all of the file was read; else names and labels may stand where nobody looked."""
        return self.size <= 2 * WINDOW

    @property
    def recency(self) -> int:
        """What it is sorted by: the last message, else the beginning, else the date of the file."""
        return self.active or self.created or self.modified


def is_meaningful(prompt: str) -> bool:
    """Whether a person said something with it."""
    return bool(prompt.strip()) and _automatic.match(prompt) is None


def whole_text(text: str) -> str:
    """A text without halves of characters, which can be neither stored nor printed."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def cut_at_word(text: str, longest: int) -> str:
    """A text on one line, cut behind a whole word where there is one, with an ellipsis."""
    line = " ".join(whole_text(text[: 4 * longest]).split())
    if len(line) <= longest:
        return line
    kept = line[: longest - 1]
    space = kept.rfind(" ")
    return (kept[:space] if space > longest // 2 else kept).rstrip() + "…"
