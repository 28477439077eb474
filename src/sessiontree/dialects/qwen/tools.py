"""Parse and render calls of Qwen Code's tools."""

from __future__ import annotations

from sessiontree.dialects.claude.tools import (
    parse_claude_edit,
    parse_claude_todo,
    render_claude_edit,
    render_claude_write,
)
from sessiontree.dialects.tool_intents import Bash, Edit, Glob, Grep, Ls, Read, Todo, Write
from sessiontree.dialects.tool_table import (
    Arguments,
    Rendered,
    Tool,
    ToolTable,
    at_any_depth,
    glob_in_folder,
    plain_file_glob,
    present_arguments,
    require,
    require_plain_grep,
)

_LONGEST_MS = 600_000


def _parse_read(arguments: Arguments) -> Read:
    path, skipped = arguments.path("file_path"), arguments.count("offset", 0) or 0
    return Read(path, skipped + 1, arguments.count("limit"))


def _render_read(read: Read) -> Rendered:
    # The tool takes an offset only together with a limit.
    require(read.first_line == 1 or read.line_count is not None)
    skipped = read.first_line - 1 if read.line_count is not None else None
    return present_arguments(file_path=read.path, offset=skipped or None, limit=read.line_count), ()


def _parse_write(arguments: Arguments) -> Write:
    return Write(arguments.path("file_path"), arguments.text("content"))


def _parse_bash(arguments: Arguments) -> Bash:
    return Bash(
        arguments.text("command"),
        arguments.milliseconds("timeout"),
        arguments.optional_text("description"),
        arguments.flag("is_background"),
    )


def _render_bash(bash: Bash) -> Rendered:
    require((bash.timeout_ms or 0) <= _LONGEST_MS)
    rendered = present_arguments(
        command=bash.command, timeout=bash.timeout_ms, description=bash.description, is_background=bash.background
    )
    return rendered, ()


def _parse_grep(arguments: Arguments) -> Grep:
    return Grep(
        pattern=arguments.text("pattern"),
        path=arguments.optional_path("path"),
        file_glob=plain_file_glob(arguments.optional_text("glob")),
        ignore_case=True,  # the tool never distinguishes case
        limit=arguments.count("limit"),
    )


def _render_grep(grep: Grep) -> Rendered:
    require_plain_grep(grep)
    require(grep.ignore_case and grep.lines_before == grep.lines_after == 0)
    return present_arguments(pattern=grep.pattern, path=grep.path, glob=grep.file_glob, limit=grep.limit), ()


def _parse_glob(arguments: Arguments) -> Glob:
    return glob_in_folder(arguments.optional_path("path"), at_any_depth(arguments.text("pattern")))


def _render_glob(glob: Glob) -> Rendered:
    require(glob.limit is None and "/" in glob.pattern)
    return present_arguments(pattern=glob.pattern, path=glob.folder), ()


def _parse_ls(arguments: Arguments) -> Ls:
    return Ls(arguments.path("path"))


def _render_ls(ls: Ls) -> Rendered:
    require(ls.path is not None and ls.limit is None)
    return {"path": ls.path}, ()


def _render_todo(todo: Todo) -> Rendered:
    todos = [
        {"id": str(number), "content": item.text, "status": item.status} for number, item in enumerate(todo.items, 1)
    ]
    return {"todos": todos}, ("tasks were numbered",)


TOOLS = ToolTable(
    Tool("read_file", Read, _parse_read, _render_read),
    Tool("write_file", Write, _parse_write, render_claude_write),
    Tool("edit", Edit, parse_claude_edit, render_claude_edit),
    Tool("run_shell_command", Bash, _parse_bash, _render_bash),
    Tool("grep_search", Grep, _parse_grep, _render_grep),
    Tool("glob", Glob, _parse_glob, _render_glob),
    Tool("list_directory", Ls, _parse_ls, _render_ls),
    Tool("todo_write", Todo, parse_claude_todo, _render_todo),
    timeout_unit="milliseconds",
    reports=frozenset({"task", "skill", "agent"}),
    path_key="file_path",
)
