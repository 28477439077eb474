"""The table of a client's tools: how its calls are parsed into intents, and rendered from them.

Rules for every table:

* A call is mapped only when the target's tool would do the same with the new arguments. Otherwise the call is kept: an
  unusual call in a history is harmless, a wrong one is not.
* An argument that we do not know, or of an unexpected type, makes a call unmappable (`NoEquivalentError`).
* A tool's defaults (timeout, amount and order of output, ignored files) are not arguments. They are never written out,
  since the model never gave them.
* Every spelling that a version of a client has had is parsed; only the current one is rendered.

The helpers normalize, so that equivalent calls of two clients are parsed into equal intents.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from sessiontree.dialects.tool_intents import (
    GREP_MODES,
    Bash,
    Edit,
    Glob,
    Grep,
    GrepMode,
    Intent,
    Read,
    Replacement,
    Status,
    Write,
)

Rendered: TypeAlias = tuple[dict[str, Any], tuple[str, ...]]
"""The arguments for the target, and notes about what it has no argument for."""

FileUse: TypeAlias = Literal["read", "write", "edit"]
_FILE_USES: dict[type[Intent], FileUse] = {Read: "read", Write: "write", Edit: "edit"}
_GLOB_CHARACTERS = frozenset("*?[]{}!")
_LISTED = re.compile(r"[\s,;]")
_BRACES = re.compile(r"\{[^{}]*\}")
_NO_DESCRIPTION = "the description of the command was left out"
_LiteralT = TypeVar("_LiteralT", Status, GrepMode)

# The limit of setTimeout, which all of these clients use.
_LONGEST_MS = 2**31 - 1


class FileArgument(Struct, frozen=True):
    """The argument of a tool that names the file it works on."""

    use: FileUse
    key: str
    extract_path: Callable[[str], str]

    def find_in(self, arguments: Mapping[str, Any]) -> tuple[FileUse, str] | None:
        path = arguments.get(self.key)
        file = self.extract_path(path) if isinstance(path, str) else ""
        return (self.use, file) if file else None


class Tool(Struct, frozen=True):
    """One current or former tool name of a client. A former one has no `render` and is only parsed."""

    name: str
    intent: type[Intent]
    parse: Callable[[Arguments], Intent]
    render: Callable[[Any], Rendered] | None = None
    # False where different tools have had this name.
    is_unambiguous: bool = True


class ToolTable:
    """The tools of one client: each name once, and at most one tool to render per intent."""

    def __init__(
        self,
        *tools: Tool,
        timeout_unit: str,
        path_key: str,
        null_is_absent: bool = False,
        extract_path: Callable[[str], str] = str,
        reports: frozenset[str] = frozenset(),
    ) -> None:
        self.timeout_unit = timeout_unit
        self.path_key = path_key
        """The argument that names the file, in tools that work on one file."""
        self.null_is_absent = null_is_absent
        self.extract_path = extract_path
        """Extracts the path from that argument, which may hold more than a path."""
        self.reports = reports
        """Tools whose outputs are instructions or reports, which another call would not reproduce."""
        self._by_name = {tool.name: tool for tool in tools}
        self._current = {tool.intent: tool for tool in tools if tool.render is not None}

    def find_by_name(self, name: str) -> Tool | None:
        return self._by_name.get(name)

    def find_current(self, intent: type[Intent]) -> Tool | None:
        return self._current.get(intent)

    def parse(self, name: str, given: Mapping[str, Any]) -> tuple[Intent, list[str]]:
        """Parse a call into its intent, and notes about what the intent leaves out."""
        tool = self.find_by_name(name)
        if tool is None:
            raise NoEquivalentError
        arguments = Arguments(as_object(given), null_is_absent=self.null_is_absent)
        intent = tool.parse(arguments)
        arguments.finish()
        return intent, arguments.notes

    def find_intent(self, name: str, arguments: Mapping[str, Any]) -> Intent | None:
        """The intent of a call; None when no intent can express it."""
        try:
            return self.parse(name, arguments)[0]
        except NoEquivalentError:
            return None

    def render(self, intent: Intent) -> tuple[str, dict[str, Any], tuple[str, ...]]:
        """The tool's name, its arguments, and what the client has no argument for."""
        tool = self.find_current(type(intent))
        if tool is None or tool.render is None:
            raise NoEquivalentError
        arguments, lost = tool.render(intent)
        return tool.name, arguments, lost

    def file_argument(self, name: str) -> FileArgument | None:
        """The argument of a tool that names its file; None for a tool that does not work on a file."""
        tool = self.find_by_name(name)
        use = None if tool is None else _FILE_USES.get(tool.intent)
        return None if use is None else FileArgument(use, self.path_key, self.extract_path)


class NoEquivalentError(Exception):
    """A call has no intent or no equivalent in the target. Handled where calls are mapped."""


def require(condition: bool) -> None:
    if not condition:
        raise NoEquivalentError


class Arguments:
    """The arguments of one call, taken out one by one: `finish` fails if an unknown one is left."""

    def __init__(self, given: Mapping[str, Any], *, null_is_absent: bool) -> None:
        self._left = dict(given)
        if null_is_absent:
            self._left = {key: value for key, value in given.items() if value is not None}
        self.notes: list[str] = []

    def __contains__(self, key: str) -> bool:
        return key in self._left

    def take(self, key: str) -> Any:
        require(key in self._left)
        return self._left.pop(key)

    def text(self, key: str) -> str:
        return as_text(self._left.pop(key, None))

    def optional_text(self, key: str) -> str | None:
        return self.text(key) if key in self._left else None

    def path(self, key: str) -> str:
        return _plain_path(self.text(key))

    def optional_path(self, key: str) -> str | None:
        return self.path(key) if key in self._left else None

    def flag(self, key: str, default: bool = False) -> bool:
        value = self._left.pop(key, default)
        if not isinstance(value, bool):
            raise NoEquivalentError
        return value

    def count(self, key: str, least: int = 1) -> int | None:
        if key not in self._left:
            return None
        value = _integer(self.take(key))
        require(value >= least)
        return value

    def milliseconds(self, key: str, factor: int = 1) -> int | None:
        if key not in self._left:
            return None
        given = _number(self.take(key)) * factor
        # Seconds may be fractions, and 0.1 * 1000 may not be exactly 100.
        nearest = round(given)
        require(0 < nearest <= _LONGEST_MS and math.isclose(nearest, given, rel_tol=1e-9))
        return nearest

    def expect(self, key: str, value: object) -> None:
        """Take an argument that is harmless only with this value."""
        require(self._left.pop(key, value) is value)

    def leave_out(self, key: str, note: str | None = None) -> None:
        """Take a descriptive argument and drop it."""
        if key in self._left:
            require(isinstance(self._left.pop(key), str | bool | int))
            if note is not None:
                self.notes.append(note)

    def finish(self) -> None:
        require(not self._left)


def _number(value: object) -> int | float:
    # JavaScript's numbers are not exact beyond this.
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= 2**53:
        raise NoEquivalentError
    return value


def _integer(value: object) -> int:
    number = _number(value)
    require(number == int(number))
    return int(number)


def _plain_path(path: str) -> str:
    """Require a path that names the same file for every client: some expand a leading `~` or drop a leading `@`."""
    require(path != "" and not path.startswith(("~", "@")) and "://" not in path and "\x00" not in path)
    return path


def as_object(value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict) and not isinstance(value, Mapping):  # checking for Mapping is slow
        raise NoEquivalentError
    return value


def as_list(value: object) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise NoEquivalentError
    return list(value)


def as_text(value: object) -> str:
    if not isinstance(value, str):
        raise NoEquivalentError
    return value


def one_of(value: object, choices: tuple[_LiteralT, ...]) -> _LiteralT:
    for choice in choices:
        if choice == value:
            return choice
    raise NoEquivalentError


def present_arguments(**arguments: object) -> dict[str, Any]:
    """The arguments without absent values and flags that are off."""
    return {key: value for key, value in arguments.items() if value is not None and value is not False}


def shown_offset(read: Read) -> int | None:
    return read.first_line if read.first_line > 1 else None


def parse_read_by_offset(arguments: Arguments, path_key: str, least_offset: int) -> Read:
    path = arguments.path(path_key)
    # Where 0 is allowed it means the first line, as 1 does.
    first_line = max(1, arguments.count("offset", least_offset) or 1)
    return Read(path, first_line, arguments.count("limit"))


def checked_replacement(old: str, new: str, everywhere: bool = False, *, deleting_takes_line_end: bool) -> Replacement:
    # Replacing an empty text creates the file in some agents and is an error in others.
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
    for replacement in edit.replacements:
        takes_line_end = deleting_takes_line_end and _deletes_up_to_line_end(replacement.old, replacement.new)
        require(replacement.takes_line_end == takes_line_end)


def _deletes_up_to_line_end(old: str, new: str) -> bool:
    """Whether text is deleted that does not end with a line end, so that one may follow it."""
    return new == "" and not old.endswith("\n")


def independent_replacements(replacements: Iterable[Replacement]) -> tuple[Replacement, ...]:
    """Require that sequential replacements certainly give the same file when made all at once."""
    earlier: list[Replacement] = []
    for replacement in replacements:
        for before in earlier:
            # A deletion joins two pieces of text, and the next replacement may match across the seam.
            require(before.new != "")
            require(not _may_touch(before.old, replacement.old) and not _may_touch(before.new, replacement.old))
        earlier.append(replacement)
    return tuple(earlier)


def _may_touch(first: str, second: str) -> bool:
    """Whether two texts could overlap: one contains the other, or ends with the start of the other."""
    if first in second or second in first:
        return True
    shorter = min(len(first), len(second))
    return any(first.endswith(second[:size]) or second.endswith(first[:size]) for size in range(1, shorter))


def is_glob(text: str) -> bool:
    return not _GLOB_CHARACTERS.isdisjoint(text)


def glob_in_folder(folder: str | None, pattern: str, limit: int | None = None) -> Glob:
    """A pattern that starts in `folder`, normalized: leading folders without wildcards become part of the folder."""
    require("\\" not in pattern and not pattern.startswith(("!", "~", "@")) and ":" not in pattern)
    parts = pattern.split("/")
    for part in parts:
        require(part not in ("", ".", "..") and part.count("{") == part.count("}"))
    # Some tools list folders too, which matters only where everything matches.
    require(parts[-1].strip("*") != "")
    literal = 0
    while literal < len(parts) - 1 and not is_glob(parts[literal]):
        literal += 1
    return Glob(join_path(_folder(folder), parts[:literal]), "/".join(parts[literal:]), limit)


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
    """The pattern for a tool where a bare name matches in every folder."""
    return pattern if "/" in pattern else f"**/{pattern}"


def plain_file_glob(glob: str | None) -> str | None:
    """ripgrep's file filter, normalized: a bare name matches at any depth, so a leading `**/` is redundant."""
    if glob is None:
        return None
    require(glob != "" and not glob.startswith("!"))
    return glob[3:] if glob.startswith("**/") and "/" not in glob[3:] else glob


def holds_several(text: str) -> bool:
    """Whether a tool that takes a list of values in one text would find several here."""
    return _LISTED.search(_BRACES.sub("", text)) is not None


def lines_around(arguments: Arguments, both: Iterable[str], before: str, after: str) -> tuple[int, int]:
    both_sides = [arguments.count(key, 0) for key in both if key in arguments]
    sides = (arguments.count(before, 0), arguments.count(after, 0))
    if not both_sides:
        return sides[0] or 0, sides[1] or 0
    # Agents differ in which one wins.
    require(len(both_sides) == 1 and sides == (None, None))
    return both_sides[0] or 0, both_sides[0] or 0


def parse_grep_mode(arguments: Arguments) -> GrepMode:
    return one_of(arguments.take("output_mode"), GREP_MODES)


def without_ignored_lines(grep: Grep) -> Grep:
    """The search without what a tool ignores when it shows no lines."""
    if grep.mode == "content":
        return grep
    return msgspec.structs.replace(grep, lines_before=0, lines_after=0, line_numbers=True)


def require_plain_grep(grep: Grep) -> None:
    """For tools that can only show lines with their numbers."""
    require(grep.mode == "content" and grep.line_numbers and not grep.multiline)
    require(grep.file_type is None and grep.skip == 0)


def render_bash_in_milliseconds(bash: Bash) -> Rendered:
    rendered = present_arguments(
        command=bash.command,
        timeout=bash.timeout_ms,
        description=bash.description,
        run_in_background=bash.background,
    )
    return rendered, ()


def render_bash_in_seconds(bash: Bash) -> Rendered:
    notes = () if bash.description is None else (_NO_DESCRIPTION,)
    return present_arguments(command=bash.command, timeout=_seconds(bash.timeout_ms)), notes


def _seconds(milliseconds: int | None) -> int | float | None:
    if milliseconds is None:
        return None
    return milliseconds // 1000 if milliseconds % 1000 == 0 else milliseconds / 1000
