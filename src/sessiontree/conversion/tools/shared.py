"""What several agents' modules need: the form of their tables, and the parts of calls that they have in common.

Each part is here in one form, so that two agents who mean the same thing are read into equal meanings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from sessiontree.conversion.tools.arguments import Arguments, as_list, as_object, one_of, require
from sessiontree.conversion.tools.intents import (
    GREP_MODES,
    Bash,
    Edit,
    Glob,
    Grep,
    GrepMode,
    Meaning,
    Read,
    Replacement,
)

Worded: TypeAlias = tuple[dict[str, Any], tuple[str, ...]]
"""The arguments for the target, and what it cannot say."""

_GLOB_CHARACTERS = frozenset("*?[]{}!")
_LISTED = re.compile(r"[\s,;]")
_BRACES = re.compile(r"\{[^{}]*\}")
_NO_DESCRIPTION = "the description of the command was left out"


class Tool(Struct, frozen=True):
    """One name that an agent's tool has or had. Without `word` it is only read: its agent does not have it any more."""

    name: str
    means: type[Meaning]
    parse: Callable[[Arguments], Meaning]
    word: Callable[[Any], Worded] | None = None
    # False where the name alone does not tell what was called.
    sure_by_name: bool = True


class AgentTools:
    """The table of one agent: every name is there once, and for every meaning at most one tool that can be worded."""

    def __init__(
        self,
        *tools: Tool,
        timeout_unit: str,
        path_key: str,
        null_is_absent: bool = False,
        file_in: Callable[[str], str] = str,
    ) -> None:
        self.timeout_unit = timeout_unit
        self.path_key = path_key
        """The argument of tools for one file that names it."""
        self.null_is_absent = null_is_absent
        self.file_in = file_in
        """The file in what such an argument says, where that may be more than a path."""
        self._by_name = {tool.name: tool for tool in tools}
        self._current = {tool.means: tool for tool in tools if tool.word is not None}

    def find_by_name(self, name: str) -> Tool | None:
        return self._by_name.get(name)

    def find_current(self, means: type[Meaning]) -> Tool | None:
        return self._current.get(means)


def present_arguments(**arguments: object) -> dict[str, Any]:
    """The arguments that say something: absent ones and flags that are off are not written."""
    return {key: value for key, value in arguments.items() if value is not None and value is not False}


def shown_offset(read: Read) -> int | None:
    return read.first_line if read.first_line > 1 else None


def parse_read_by_offset(arguments: Arguments, path_key: str, least_offset: int) -> Read:
    path = arguments.path(path_key)
    # Where 0 is allowed it means the beginning, as 1 does.
    first_line = max(1, arguments.count("offset", least_offset) or 1)
    return Read(path, first_line, arguments.count("limit"))


def checked_replacement(old: str, new: str, everywhere: bool = False, *, deleting_takes_line_end: bool) -> Replacement:
    # An empty text to be replaced means "make the file" to some and is an error to others.
    require(old not in ("", new))
    return Replacement(old, new, everywhere, deleting_takes_line_end and _deletes_up_to_line_end(old, new))


def parse_replacements(entries: object, parse: Callable[[Arguments], Replacement]) -> list[Replacement]:
    replacements = []
    for entry in as_list(entries):
        arguments = Arguments(as_object(entry), null_is_absent=False)
        replacements.append(parse(arguments))
        arguments.finish()
    require(bool(replacements))
    return replacements


def only_replacement(edit: Edit, *, deleting_takes_line_end: bool) -> Replacement:
    require(len(edit.replacements) == 1)
    require_same_deletion(edit, deleting_takes_line_end)
    return edit.replacements[0]


def require_same_deletion(edit: Edit, deleting_takes_line_end: bool) -> None:
    for one in edit.replacements:
        takes_line_end = deleting_takes_line_end and _deletes_up_to_line_end(one.old, one.new)
        require(one.takes_line_end == takes_line_end)


def _deletes_up_to_line_end(old: str, new: str) -> bool:
    """Whether a line end may follow what is deleted, since it does not end with one itself."""
    return new == "" and not old.endswith("\n")


def independent_replacements(replacements: Iterable[Replacement]) -> tuple[Replacement, ...]:
    """Replacements that a tool makes one after the other, if making them all at once surely gives the same file."""
    earlier: list[Replacement] = []
    for one in replacements:
        for before in earlier:
            # A deletion brings together what stood apart, and the next text may be found across the seam.
            require(before.new != "")
            require(not _may_touch(before.old, one.old) and not _may_touch(before.new, one.old))
        earlier.append(one)
    return tuple(earlier)


def _may_touch(first: str, second: str) -> bool:
    """Whether the two could share characters in a text: one holds the other, or one's end is the other's beginning."""
    if first in second or second in first:
        return True
    shorter = min(len(first), len(second))
    return any(first.endswith(second[:size]) or second.endswith(first[:size]) for size in range(1, shorter))


def is_glob(text: str) -> bool:
    return not _GLOB_CHARACTERS.isdisjoint(text)


def glob_in_folder(folder: str | None, pattern: str, limit: int | None = None) -> Glob:
    """A pattern that starts in `folder`, in one form: the folders that it names outright belong to the folder."""
    require("\\" not in pattern and not pattern.startswith(("!", "~", "@")) and ":" not in pattern)
    parts = pattern.split("/")
    for part in parts:
        require(part not in ("", ".", "..") and part.count("{") == part.count("}"))
    # Some tools show folders too and some do not, which matters only where everything matches.
    require(parts[-1].strip("*") != "")
    named = 0
    while named < len(parts) - 1 and not is_glob(parts[named]):
        named += 1
    return Glob(join_path(_folder(folder), parts[:named]), "/".join(parts[named:]), limit)


def _folder(path: str | None) -> str | None:
    if path is None:
        return None
    require(not is_glob(path) and "\\" not in path)
    while path.startswith("./"):
        path = path[2:].lstrip("/")
    path = path.rstrip("/") or ("/" if path.startswith("/") else "")
    return None if path in ("", ".") else path


def join_path(folder: str | None, names: list[str]) -> str | None:
    if not names:
        return folder
    below = "/".join(names)
    if folder is None:
        return below
    return folder + below if folder.endswith("/") else f"{folder}/{below}"


def at_any_depth(pattern: str) -> str:
    """The pattern of a tool for which a bare name matches in every folder."""
    return pattern if "/" in pattern else f"**/{pattern}"


def plain_file_glob(glob: str | None) -> str | None:
    """ripgrep's file filter in one form: a bare name matches at any depth, so `**/` before it says nothing."""
    if glob is None:
        return None
    require(glob != "" and not glob.startswith("!"))
    return glob[3:] if glob.startswith("**/") and "/" not in glob[3:] else glob


def holds_several(text: str) -> bool:
    """Whether a tool that takes several values in one text would see several here."""
    return _LISTED.search(_BRACES.sub("", text)) is not None


def lines_around(arguments: Arguments, both: Iterable[str], before: str, after: str) -> tuple[int, int]:
    around = [arguments.count(key, 0) for key in both if key in arguments]
    sides = (arguments.count(before, 0), arguments.count(after, 0))
    if not around:
        return sides[0] or 0, sides[1] or 0
    # Which one would win is each program's own affair.
    require(len(around) == 1 and sides == (None, None))
    return around[0] or 0, around[0] or 0


def parse_grep_mode(arguments: Arguments) -> GrepMode:
    return one_of(arguments.take("output_mode"), GREP_MODES)


def without_ignored_lines(grep: Grep) -> Grep:
    """Without what a tool ignores where it shows no lines."""
    if grep.mode == "content":
        return grep
    return msgspec.structs.replace(grep, lines_before=0, lines_after=0, line_numbers=True)


def require_plain_grep(grep: Grep) -> None:
    """For tools that can only show lines with their numbers."""
    require(grep.mode == "content" and grep.line_numbers and not grep.multiline)
    require(grep.file_type is None and grep.skip == 0)


def word_bash_in_milliseconds(bash: Bash) -> Worded:
    worded = present_arguments(
        command=bash.command,
        timeout=bash.timeout_ms,
        description=bash.description,
        run_in_background=bash.background,
    )
    return worded, ()


def word_bash_in_seconds(bash: Bash) -> Worded:
    notes = () if bash.description is None else (_NO_DESCRIPTION,)
    return present_arguments(command=bash.command, timeout=_seconds(bash.timeout_ms)), notes


def _seconds(milliseconds: int | None) -> int | float | None:
    if milliseconds is None:
        return None
    return milliseconds // 1000 if milliseconds % 1000 == 0 else milliseconds / 1000
