"""Pi's tools, which are also those of native sessions: how its calls are read, and how its calls are worded.

What is public here also reads calls of the older versions of oh-my-pi.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from sessiontree.conversion.tools.arguments import Arguments, NoEquivalentError, as_list, require
from sessiontree.conversion.tools.intents import Bash, Edit, Glob, Grep, Ls, Read, Replacement, Write
from sessiontree.conversion.tools.shared import (
    AgentTools,
    Tool,
    Worded,
    at_any_depth,
    checked_replacement,
    glob_in_folder,
    parse_read_by_offset,
    parse_replacements,
    plain_file_glob,
    present_arguments,
    require_plain_grep,
    require_same_deletion,
    shown_offset,
    word_bash_in_seconds,
)
from sessiontree.core.jsonio import parse_json

_REGEX_CHARACTERS = re.compile(r"[\\.+*?()|\[\]{}^$]")


def _parse_read(arguments: Arguments) -> Read:
    return parse_read_by_offset(arguments, "path", 0)


def _word_read(read: Read) -> Worded:
    return present_arguments(path=read.path, offset=shown_offset(read), limit=read.line_count), ()


def _parse_write(arguments: Arguments) -> Write:
    return Write(arguments.path("path"), arguments.text("content"))


def _word_write(write: Write) -> Worded:
    return {"path": write.path, "content": write.content}, ()


def _parse_replacement(arguments: Arguments) -> Replacement:
    return checked_replacement(arguments.text("oldText"), arguments.text("newText"), deleting_takes_line_end=False)


def _parse_edit(arguments: Arguments) -> Edit:
    path = arguments.path("path")
    entries = _edit_entries(arguments.take("edits")) if "edits" in arguments else []
    if "oldText" in arguments:
        entries.append({"oldText": arguments.take("oldText"), "newText": arguments.take("newText")})
    return Edit(path, tuple(parse_replacements(entries, _parse_replacement)))


def _edit_entries(edits: object) -> list[Any]:
    """Pi itself accepts the list as a JSON text, and one entry without a list."""
    if isinstance(edits, str):
        try:
            edits = parse_json(edits.encode())
        except ValueError:
            raise NoEquivalentError from None
    return [edits] if isinstance(edits, Mapping) else as_list(edits)


def _word_edit(edit: Edit) -> Worded:
    require_same_deletion(edit, deleting_takes_line_end=False)
    require(not any(one.everywhere for one in edit.replacements))
    return {"path": edit.path, "edits": [{"oldText": one.old, "newText": one.new} for one in edit.replacements]}, ()


def _parse_bash(arguments: Arguments) -> Bash:
    return Bash(arguments.text("command"), arguments.milliseconds("timeout", 1000))


def _word_bash(bash: Bash) -> Worded:
    require(not bash.background)
    return word_bash_in_seconds(bash)


def _parse_grep(arguments: Arguments) -> Grep:
    pattern = arguments.text("pattern")
    if arguments.flag("literal") and _REGEX_CHARACTERS.search(pattern):
        pattern = _REGEX_CHARACTERS.sub(r"\\\g<0>", pattern)
        arguments.notes.append("the literal text became a regular expression that matches it")
    around = arguments.count("context", 0) or 0
    limit = arguments.count("limit")
    # Pi counts matches. Without lines around them that is lines of output, as the others count.
    require(limit is None or around == 0)
    return Grep(
        pattern=pattern,
        path=arguments.optional_path("path"),
        file_glob=plain_file_glob(arguments.optional_text("glob")),
        ignore_case=arguments.flag("ignoreCase"),
        lines_before=around,
        lines_after=around,
        limit=limit,
    )


def _word_grep(grep: Grep) -> Worded:
    require_plain_grep(grep)
    require(grep.lines_before == grep.lines_after)
    require(grep.limit is None or grep.lines_before == 0)
    worded = present_arguments(
        pattern=grep.pattern,
        path=grep.path,
        glob=grep.file_glob,
        ignoreCase=grep.ignore_case,
        context=grep.lines_before or None,
        limit=grep.limit,
    )
    return worded, ()


def parse_pi_find(arguments: Arguments) -> Glob:
    # A pattern with folders is matched against the whole absolute path, so it may match above the folder too.
    pattern = at_any_depth(arguments.text("pattern"))
    glob = glob_in_folder(arguments.optional_path("path"), pattern, arguments.count("limit"))
    _require_name_at_any_depth(glob)
    require(pattern.startswith("**/"))
    return glob


def _word_find(glob: Glob) -> Worded:
    _require_name_at_any_depth(glob)
    return present_arguments(pattern=glob.pattern, path=glob.folder, limit=glob.limit), ()


def _require_name_at_any_depth(glob: Glob) -> None:
    """A name is asked for in every folder below one; patterns that name folders are something else."""
    require(glob.pattern.startswith("**/") and "/" not in glob.pattern[3:])


def parse_pi_ls(arguments: Arguments) -> Ls:
    return Ls(arguments.optional_path("path"), arguments.count("limit"))


def _word_ls(ls: Ls) -> Worded:
    return present_arguments(path=ls.path, limit=ls.limit), ()


PI = AgentTools(
    Tool("read", Read, _parse_read, _word_read),
    Tool("write", Write, _parse_write, _word_write),
    Tool("edit", Edit, _parse_edit, _word_edit),
    Tool("bash", Bash, _parse_bash, _word_bash),
    Tool("grep", Grep, _parse_grep, _word_grep),
    Tool("find", Glob, parse_pi_find, _word_find),
    Tool("ls", Ls, parse_pi_ls, _word_ls),
    timeout_unit="seconds",
    path_key="path",
)
