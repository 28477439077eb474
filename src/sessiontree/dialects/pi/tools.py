"""Parse and render calls of Pi's tools, which native sessions share.

Public functions also parse calls of older versions of oh-my-pi.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from sessiontree.core.jsonio import parse_json
from sessiontree.dialects.tool_intents import Bash, Edit, Glob, Grep, Ls, Read, Replacement, Write
from sessiontree.dialects.tool_table import (
    Arguments,
    NoEquivalentError,
    Rendered,
    Tool,
    ToolTable,
    as_list,
    at_any_depth,
    checked_replacement,
    glob_in_folder,
    parse_read_by_offset,
    parse_replacements,
    plain_file_glob,
    present_arguments,
    render_bash_in_seconds,
    require,
    require_plain_grep,
    require_same_deletion,
    shown_offset,
)

_REGEX_CHARACTERS = re.compile(r"[\\.+*?()|\[\]{}^$]")


def _parse_read(arguments: Arguments) -> Read:
    return parse_read_by_offset(arguments, "path", 0)


def _render_read(read: Read) -> Rendered:
    return present_arguments(path=read.path, offset=shown_offset(read), limit=read.line_count), ()


def _parse_write(arguments: Arguments) -> Write:
    return Write(arguments.path("path"), arguments.text("content"))


def _render_write(write: Write) -> Rendered:
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


def _render_edit(edit: Edit) -> Rendered:
    require_same_deletion(edit, deleting_takes_line_end=False)
    require(not any(replacement.everywhere for replacement in edit.replacements))
    return {
        "path": edit.path,
        "edits": [{"oldText": replacement.old, "newText": replacement.new} for replacement in edit.replacements],
    }, ()


def _parse_bash(arguments: Arguments) -> Bash:
    return Bash(arguments.text("command"), arguments.milliseconds("timeout", 1000))


def _render_bash(bash: Bash) -> Rendered:
    require(not bash.background)
    return render_bash_in_seconds(bash)


def _parse_grep(arguments: Arguments) -> Grep:
    pattern = arguments.text("pattern")
    if arguments.flag("literal") and _REGEX_CHARACTERS.search(pattern):
        pattern = _REGEX_CHARACTERS.sub(r"\\\g<0>", pattern)
        arguments.notes.append("the literal text became a regular expression that matches it")
    context_lines = arguments.count("context", 0) or 0
    limit = arguments.count("limit")
    # Pi's limit counts matches. Without context lines that is lines of output, as for the others.
    require(limit is None or context_lines == 0)
    return Grep(
        pattern=pattern,
        path=arguments.optional_path("path"),
        file_glob=plain_file_glob(arguments.optional_text("glob")),
        ignore_case=arguments.flag("ignoreCase"),
        lines_before=context_lines,
        lines_after=context_lines,
        limit=limit,
    )


def _render_grep(grep: Grep) -> Rendered:
    require_plain_grep(grep)
    require(grep.lines_before == grep.lines_after)
    require(grep.limit is None or grep.lines_before == 0)
    rendered = present_arguments(
        pattern=grep.pattern,
        path=grep.path,
        glob=grep.file_glob,
        ignoreCase=grep.ignore_case,
        context=grep.lines_before or None,
        limit=grep.limit,
    )
    return rendered, ()


def parse_pi_find(arguments: Arguments) -> Glob:
    # A pattern with folders is matched against the whole absolute path, so it may also match above the folder.
    pattern = at_any_depth(arguments.text("pattern"))
    glob = glob_in_folder(arguments.optional_path("path"), pattern, arguments.count("limit"))
    _require_name_at_any_depth(glob)
    require(pattern.startswith("**/"))
    return glob


def _render_find(glob: Glob) -> Rendered:
    _require_name_at_any_depth(glob)
    return present_arguments(pattern=glob.pattern, path=glob.folder, limit=glob.limit), ()


def _require_name_at_any_depth(glob: Glob) -> None:
    """Require a search for a name in every folder below one, without folders in the pattern."""
    require(glob.pattern.startswith("**/") and "/" not in glob.pattern[3:])


def parse_pi_ls(arguments: Arguments) -> Ls:
    return Ls(arguments.optional_path("path"), arguments.count("limit"))


def _render_ls(ls: Ls) -> Rendered:
    return present_arguments(path=ls.path, limit=ls.limit), ()


TOOLS = ToolTable(
    Tool("read", Read, _parse_read, _render_read),
    Tool("write", Write, _parse_write, _render_write),
    Tool("edit", Edit, _parse_edit, _render_edit),
    Tool("bash", Bash, _parse_bash, _render_bash),
    Tool("grep", Grep, _parse_grep, _render_grep),
    Tool("find", Glob, parse_pi_find, _render_find),
    Tool("ls", Ls, parse_pi_ls, _render_ls),
    timeout_unit="seconds",
    reports=frozenset({"skill", "task"}),
    path_key="path",
)
