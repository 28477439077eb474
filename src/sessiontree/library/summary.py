"""The summary of a session as listings show it, and how titles and prompts are shortened."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal, TypeAlias

from msgspec import Struct

from sessiontree.core.jsonio import replace_surrogates
from sessiontree.core.usage import UnpricedUsage
from sessiontree.stores.contract import DocumentStore, not_a_file

Health: TypeAlias = Literal["ok", "unchecked", "damaged", "empty", "draft"]
"""`ok` only if `doctor` would report no damage: `unchecked` if the complete session was not examined yet."""

DAMAGE = frozenset({"torn-tail", "undecodable", "fused-records", "glued-stub", "nul-run", "not-an-object"})
"""Kinds of problems that mean lost or broken bytes."""
WINDOW = 64 * 1024
"""Bytes read at each end of a file."""
TAG_DOCUMENT = "marks.json"
"""The document with the tags and pins of the user (see `archive.tags`)."""
MAX_TITLE = 120
MAX_PROMPT = 240

# Text in the user's role that programs insert: output of commands, reminders, hooks, editor context.
_AUTOMATIC = (
    r"\s*(?:<(?:command-|local-command-|bash-|ide_|session-start-hook|system-reminder|user-prompt-submit-hook|task-"
    r"|tick>|goal>)|\[Request interrupted by user|Caveat: The messages below were generated)"
)


class Summary(Struct, frozen=True, gc=False, array_like=True):
    """One session as a listing shows it. Times are milliseconds since 1970."""

    ref: str
    """The session's reference as text: for a file its path (see `SessionRef`)."""
    agent: str
    """The dialect of the session."""
    id: str
    title: str
    """The name, else the first meaningful prompt, shortened; empty if there is none."""
    named: bool
    """Whether the title is a name that was given to the session."""
    cwd: str
    """Recorded working folder; empty if unknown."""
    created: int | None
    active: int | None
    """Time of the last message; never the modification time of the file."""
    messages: int
    branches: int
    exact: bool
    """Whether messages, branches and usage are counted; else they are estimated from both ends of the file."""
    size: int
    modified: int
    """Modification time, for sessions without timestamps."""
    model: str | None = None
    tokens_in: int = 0
    tokens_out: int = 0
    tokens_cached: int = 0
    cost: float = 0.0
    health: Health = "ok"
    kind: Literal["session", "subagent"] = "session"
    parent: str | None = None
    """For a sub-agent: the reference of the session that started it."""
    forked_from: str | None = None
    """The session it was forked from: an id or, in some formats, a path."""
    first_prompt: str = ""
    last_prompt: str = ""
    git_branch: str | None = None
    dated: bool = False
    """Whether `active` is exact; else a later message may be in the part of the file that was not read."""
    is_file: bool = True
    """Whether the session is a separate file, not one of several in a database or in a repository."""
    tags: tuple[str, ...] = ()
    """Tags that its client recorded; our own are in the home folder."""
    agent_setting: str | None = None
    """The agent definition that the client started it with."""
    pull_requests: tuple[str, ...] = ()
    is_line_file: bool = True
    """Whether that file consists of the session's lines, not of a document or compressed data."""
    unpriced: tuple[UnpricedUsage, ...] = ()
    """Usage without a recorded cost, by model."""
    description: str = ""
    """Description of the session in its settings, if that is not its name."""

    @property
    def path(self) -> str:
        """The path of the session's file; `UsageError` for a session that is not a separate file."""
        if not self.is_file:
            raise not_a_file(self.ref)
        return self.ref

    @property
    def is_whole(self) -> bool:
        """Whether the whole file was read; else names and labels may be missing."""
        return self.size <= 2 * WINDOW

    @property
    def recency(self) -> int:
        """Sort key: the last message, else the start, else the modification time."""
        return self.active or self.created or self.modified


def has_tags(documents: DocumentStore, summaries: Iterable[Summary]) -> bool:
    """Whether any session may have tags, of the user or of its agent."""
    return documents.read(TAG_DOCUMENT) is not None or any(summary.tags for summary in summaries)


def is_meaningful(prompt: str) -> bool:
    """Whether a prompt was written by a person rather than inserted by a program."""
    return bool(prompt.strip()) and re.match(_AUTOMATIC, prompt) is None


def cut_at_word(text: str, longest: int) -> str:
    """Shorten a text to one line, cut after a whole word if possible, with an ellipsis."""
    line = " ".join(replace_surrogates(text[: 4 * longest]).split())
    if len(line) <= longest:
        return line
    kept = line[: longest - 1]
    space = kept.rfind(" ")
    return (kept[:space] if space > longest // 2 else kept).rstrip() + "…"
