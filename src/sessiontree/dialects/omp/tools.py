"""Parse and render calls of oh-my-pi's tools.

Its paths can also hold values that other agents have arguments for: lines, file filters, members of archives, lists.
"""

from __future__ import annotations

import re

from sessiontree.dialects.claude.tools import parse_claude_todo
from sessiontree.dialects.pi.tools import parse_pi_find, parse_pi_ls
from sessiontree.dialects.tool_intents import Bash, Edit, Glob, Grep, Ls, Read, Replacement, Todo, TodoItem, Write
from sessiontree.dialects.tool_table import (
    Arguments,
    NoEquivalentError,
    Rendered,
    Tool,
    ToolTable,
    as_list,
    as_object,
    as_text,
    checked_replacement,
    glob_in_folder,
    holds_several,
    independent_replacements,
    is_glob,
    join_path,
    only_replacement,
    parse_read_by_offset,
    parse_replacements,
    present_arguments,
    render_bash_in_seconds,
    require,
    require_plain_grep,
)

_SHORTEST_MS = 1_000
_LONGEST_MS = 3_600_000
_MOST_FILES = 200
_LINES = re.compile(r"(?P<first>[1-9]\d{0,9})(?:-(?P<last>[1-9]\d{0,9})?|\+(?P<count>[1-9]\d{0,9}))?")
_SELECTOR = re.compile(r":(?:raw|[1-9]\d*(?:[-+]\d*)?)(?:[:,][\w+,-]*)*\Z")
_IMAGES = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp")
_OUTLINE = "oh-my-pi shows an outline when a complete code file is requested"
_CONTEXT = "how many lines are shown around a match depends on oh-my-pi's settings"
_PHASES = "the phases of tasks were left out"


def _omp_path(path: str) -> str:
    """Require a path that oh-my-pi does not parse as a selector, a query, a member of an archive or a list."""
    require(not any(character in path for character in ":?;") and path.strip("/") != "")
    return path


def _parse_read(arguments: Arguments) -> Read:
    if "offset" in arguments or "limit" in arguments or "lines" in arguments:
        arguments.leave_out("lines")
        read = parse_read_by_offset(arguments, "path", 0)
        return Read(_omp_path(read.path), read.first_line, read.line_count)
    path, _, selector = arguments.path("path").partition(":")
    require(not _omp_path(path).endswith("/"))
    parts = selector.split(":")
    if "raw" in parts:
        parts.remove("raw")
    elif selector == "" and not path.lower().endswith(_IMAGES):
        arguments.notes.append(_OUTLINE)
    require(len(parts) < 2)
    if not parts or parts[0] == "":
        return Read(path)
    found = _LINES.fullmatch(parts[0])
    if found is None:
        raise NoEquivalentError
    first = int(found["first"])
    if found["count"] is not None:
        return Read(path, first, int(found["count"]))
    if found["last"] is None:
        return Read(path, first)
    require(int(found["last"]) >= first)
    return Read(path, first, int(found["last"]) - first + 1)


def _render_read(read: Read) -> Rendered:
    path = _omp_path(read.path)
    require(not path.endswith("/"))
    if read.line_count is not None:
        return {"path": f"{path}:{read.first_line}+{read.line_count}"}, ()
    # An image has no lines. All lines of a text have to be requested by number: see _OUTLINE.
    if read.first_line == 1 and path.lower().endswith(_IMAGES):
        return {"path": path}, ()
    return {"path": f"{path}:{read.first_line}-"}, ()


def _parse_write(arguments: Arguments) -> Write:
    return Write(_omp_path(arguments.path("path")), arguments.text("content"))


def _render_write(write: Write) -> Rendered:
    return {"path": _omp_path(write.path), "content": write.content}, ()


def _parse_replacement(arguments: Arguments) -> Replacement:
    old, new, everywhere = ("old_string", "new_string", "replace_all")
    if "oldText" in arguments:
        old, new, everywhere = ("oldText", "newText", "all")
    elif "old_text" in arguments:
        old, new, everywhere = ("old_text", "new_text", "all")
    return checked_replacement(
        arguments.text(old), arguments.text(new), arguments.flag(everywhere), deleting_takes_line_end=False
    )


def _parse_edit(arguments: Arguments) -> Edit:
    path = _omp_path(arguments.path("path"))
    if "edits" in arguments:
        return Edit(path, independent_replacements(parse_replacements(arguments.take("edits"), _parse_replacement)))
    return Edit(path, (_parse_replacement(arguments),))


def _render_edit(edit: Edit) -> Rendered:
    one = only_replacement(edit, deleting_takes_line_end=False)
    path = _omp_path(edit.path)
    return present_arguments(path=path, old_string=one.old, new_string=one.new, replace_all=one.everywhere), (
        "the edit needs oh-my-pi's edit mode `replace`",
    )


def _parse_bash(arguments: Arguments) -> Bash:
    arguments.expect("pty", False)
    command = arguments.text("command")
    timeout_ms = arguments.milliseconds("timeout", 1000)
    if timeout_ms is not None:
        timeout_ms = min(max(timeout_ms, _SHORTEST_MS), _LONGEST_MS)
    return Bash(command, timeout_ms, background=arguments.flag("async"))


def _render_bash(bash: Bash) -> Rendered:
    require(bash.timeout_ms is None or _SHORTEST_MS <= bash.timeout_ms <= _LONGEST_MS)
    rendered, notes = render_bash_in_seconds(bash)
    # `async` is a keyword in Python.
    return rendered | ({"async": True} if bash.background else {}), notes


def _parse_grep(arguments: Arguments) -> Grep:
    arguments.expect("gitignore", True)
    require((arguments.count("skip", 0) or 0) == 0)
    pattern = arguments.text("pattern")
    _require_one_line(pattern)
    path, file_glob = _path_and_filter(arguments.optional_path("path"))
    arguments.notes.append(_CONTEXT)
    ignore_case = not arguments.flag("case", default=True)
    return Grep(pattern=pattern, path=path, file_glob=file_glob, ignore_case=ignore_case)


def _require_one_line(pattern: str) -> None:
    """oh-my-pi matches across lines as soon as the pattern contains a line end."""
    require("\n" not in pattern and "\\n" not in pattern)


def _path_and_filter(path: str | None) -> tuple[str | None, str | None]:
    """The path and the file filter, which are one text in oh-my-pi, as in `src/**/*.py`."""
    if path is None:
        return None, None
    require(":" not in path and not holds_several(path))
    if not is_glob(path):
        return _omp_path(path), None
    folder, between, name = path.rpartition("**/")
    if not between:
        folder, name = "", path
    require(not is_glob(folder) and "/" not in name and name.strip("*") != "")
    require(folder != "/" and (folder == "" or folder.endswith("/")))
    return folder.removesuffix("/") or None, name


def _render_grep(grep: Grep) -> Rendered:
    require_plain_grep(grep)
    _require_one_line(grep.pattern)
    require(grep.lines_before == grep.lines_after == 0 and grep.limit is None)
    path = None if grep.path is None else _omp_path(grep.path)
    if grep.file_glob is not None:
        require(is_glob(grep.file_glob))
        path = f"**/{grep.file_glob}" if path is None else f"{path}/**/{grep.file_glob}"
    require(_path_and_filter(path) == (grep.path, grep.file_glob))
    # `case` is only needed where it does not matter.
    rendered = present_arguments(pattern=grep.pattern, path=path)
    return rendered | ({"case": False} if grep.ignore_case else {}), (_CONTEXT,)


def _parse_glob(arguments: Arguments) -> Glob:
    arguments.expect("hidden", True)
    arguments.expect("gitignore", True)
    path = arguments.path("path")
    limit = arguments.count("limit")
    return _glob_of_path(path, None if limit is None else min(limit, _MOST_FILES))


def _glob_of_path(path: str, limit: int | None) -> Glob:
    require(":" not in path and not holds_several(path) and is_glob(path))
    if path.startswith("./"):
        return glob_in_folder(None, path[2:], limit)
    if path.startswith("/"):
        return glob_in_folder("/", path[1:], limit)
    first, _, _ = path.partition("/")
    return glob_in_folder(None, f"**/{path}" if is_glob(first) and first != "**" else path, limit)


def _render_glob(glob: Glob) -> Rendered:
    # oh-my-pi refuses to search from the root of the file system.
    require(glob.folder != "/" and (glob.limit is None or glob.limit <= _MOST_FILES))
    path = join_path(glob.folder, [glob.pattern]) or glob.pattern
    if glob.folder is None and not glob.pattern.startswith("**/"):
        path = f"./{path}"
    require(_glob_of_path(path, glob.limit) == glob)
    return present_arguments(path=path, limit=glob.limit), ()


def _parse_find(arguments: Arguments) -> Glob:
    """The older name of `glob`. Today `find` is another tool, which takes no pattern."""
    arguments.expect("hidden", True)
    arguments.expect("sortByMtime", False)
    return parse_pi_find(arguments)


def _parse_todo(arguments: Arguments) -> Todo:
    """Parse a new task list. Every other operation changes a list that we do not have."""
    require(arguments.take("op") == "init")
    if "list" in arguments:
        phases = [Arguments(as_object(phase), null_is_absent=True) for phase in as_list(arguments.take("list"))]
        texts = [as_text(text) for phase in phases for text in as_list(phase.take("items"))]
        for phase in phases:
            phase.leave_out("phase")
            phase.finish()
        arguments.notes.append(_PHASES)
    else:
        texts = [as_text(text) for text in as_list(arguments.take("items"))]
        arguments.leave_out("phase", _PHASES)
    require(texts != [] and "" not in texts and len(set(texts)) == len(texts))
    return Todo(tuple(TodoItem(text, "pending" if at else "in_progress") for at, text in enumerate(texts)))


def _render_todo(todo: Todo) -> Rendered:
    # A new list starts with its first task in progress and all others pending; no other state fits in one call.
    rendered = {"op": "init", "items": [item.text for item in todo.items]}
    require(_parse_todo(Arguments(rendered, null_is_absent=True)) == todo)
    return rendered, ()


def _file_in(path: str) -> str:
    """A path without the line selector after it."""
    return _SELECTOR.sub("", path)


TOOLS = ToolTable(
    Tool("read", Read, _parse_read, _render_read),
    Tool("write", Write, _parse_write, _render_write),
    Tool("edit", Edit, _parse_edit, _render_edit),
    Tool("bash", Bash, _parse_bash, _render_bash),
    Tool("grep", Grep, _parse_grep, _render_grep),
    Tool("search", Grep, _parse_grep),
    Tool("glob", Glob, _parse_glob, _render_glob),
    Tool("find", Glob, _parse_find, is_unambiguous=False),
    Tool("ls", Ls, parse_pi_ls),
    Tool("todo", Todo, _parse_todo, _render_todo),
    Tool("todo_write", Todo, parse_claude_todo),
    timeout_unit="seconds",
    reports=frozenset({"skill", "task"}),
    path_key="path",
    null_is_absent=True,
    extract_path=_file_in,
)
