"""Intents: what a tool call requests, independent of the client."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

from msgspec import Struct

Status: TypeAlias = Literal["pending", "in_progress", "completed"]
GrepMode: TypeAlias = Literal["content", "files_with_matches", "count"]

STATUSES: tuple[Status, ...] = get_args(Status)
GREP_MODES: tuple[GrepMode, ...] = get_args(GrepMode)


class Read(Struct, frozen=True):
    path: str
    first_line: int = 1
    line_count: int | None = None


class Write(Struct, frozen=True):
    path: str
    content: str


class Replacement(Struct, frozen=True):
    old: str
    new: str
    everywhere: bool = False
    # When Claude Code and Neovate replace text with nothing, they also remove the line end after it.
    takes_line_end: bool = False


class Edit(Struct, frozen=True):
    """Replacements in one file, each found in the file as it was before the call."""

    path: str
    replacements: tuple[Replacement, ...]


class Bash(Struct, frozen=True):
    command: str
    timeout_ms: int | None = None
    description: str | None = None
    background: bool = False


class Grep(Struct, frozen=True):
    """A search for a regular expression. `limit` and `skip` count lines of output."""

    pattern: str
    path: str | None = None
    file_glob: str | None = None
    file_type: str | None = None
    mode: GrepMode = "content"
    ignore_case: bool = False
    multiline: bool = False
    lines_before: int = 0
    lines_after: int = 0
    line_numbers: bool = True
    limit: int | None = None
    skip: int = 0


class Glob(Struct, frozen=True):
    """A search for files. `pattern` starts in `folder`: only a leading `**/` matches at any depth."""

    folder: str | None
    pattern: str
    limit: int | None = None


class Ls(Struct, frozen=True):
    """The contents of one folder."""

    path: str | None = None
    limit: int | None = None


class Tree(Struct, frozen=True):
    """The contents of a folder and all folders below it."""

    path: str


class TodoItem(Struct, frozen=True):
    text: str
    status: Status


class Todo(Struct, frozen=True):
    """The complete task list, which replaces the previous one."""

    items: tuple[TodoItem, ...]


class Agent(Struct, frozen=True):
    """A sub-agent that runs in the foreground. `kind` is in Claude Code's spelling."""

    description: str
    prompt: str
    kind: str


Intent: TypeAlias = Read | Write | Edit | Bash | Grep | Glob | Ls | Tree | Todo | Agent
