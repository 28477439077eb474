"""Parse and render calls of Gemini CLI's tools."""

from __future__ import annotations

from sessiontree.dialects.tool_intents import STATUSES, Bash, Edit, Glob, Grep, Ls, Read, Todo, TodoItem, Write
from sessiontree.dialects.tool_table import (
    Arguments,
    Rendered,
    Tool,
    ToolTable,
    as_list,
    as_object,
    checked_replacement,
    glob_in_folder,
    one_of,
    only_replacement,
    plain_file_glob,
    present_arguments,
    require,
    require_plain_grep,
)

_NO_TIMEOUT = "the timeout of the command was left out"


def _path_key(arguments: Arguments, *names: str) -> str:
    """The name of the argument with a path, which has changed between versions."""
    return next((name for name in names if name in arguments), names[0])


def _parse_read(arguments: Arguments) -> Read:
    path = arguments.path(_path_key(arguments, "file_path", "absolute_path"))
    if "offset" in arguments or "limit" in arguments:  # older versions, which counted lines from 0
        first = arguments.count("offset", 0) or 0
        return Read(path, first + 1, arguments.count("limit"))
    first, last = arguments.count("start_line") or 1, arguments.count("end_line")
    require(last is None or last >= first)
    return Read(path, first, None if last is None else last - first + 1)


def _render_read(read: Read) -> Rendered:
    last = None if read.line_count is None else read.first_line + read.line_count - 1
    first = read.first_line if read.first_line > 1 else None
    return present_arguments(file_path=read.path, start_line=first, end_line=last), ()


def _parse_write(arguments: Arguments) -> Write:
    return Write(arguments.path("file_path"), arguments.text("content"))


def _render_write(write: Write) -> Rendered:
    return {"file_path": write.path, "content": write.content}, ()


def _parse_edit(arguments: Arguments) -> Edit:
    path = arguments.path("file_path")
    arguments.leave_out("instruction", "the description of the change was left out")
    require("expected_replacements" not in arguments)
    replacement = checked_replacement(
        arguments.text("old_string"),
        arguments.text("new_string"),
        arguments.flag("allow_multiple"),
        deleting_takes_line_end=False,
    )
    return Edit(path, (replacement,))


def _render_edit(edit: Edit) -> Rendered:
    one = only_replacement(edit, deleting_takes_line_end=False)
    rendered = present_arguments(file_path=edit.path, old_string=one.old, new_string=one.new)
    return {**rendered, "instruction": "Replace the text.", **present_arguments(allow_multiple=one.everywhere)}, ()


def _parse_bash(arguments: Arguments) -> Bash:
    require("dir_path" not in arguments and "directory" not in arguments)
    background = arguments.flag("is_background")
    return Bash(arguments.text("command"), None, arguments.optional_text("description"), background)


def _render_bash(bash: Bash) -> Rendered:
    rendered = present_arguments(command=bash.command, description=bash.description, is_background=bash.background)
    return rendered, () if bash.timeout_ms is None else (_NO_TIMEOUT,)


def _parse_grep(arguments: Arguments) -> Grep:
    return Grep(
        pattern=arguments.text("pattern"),
        path=arguments.optional_path(_path_key(arguments, "dir_path", "path")),
        file_glob=plain_file_glob(arguments.optional_text(_path_key(arguments, "include_pattern", "include"))),
        ignore_case=True,
    )


def _render_grep(grep: Grep) -> Rendered:
    require_plain_grep(grep)
    require(grep.ignore_case and grep.lines_before == grep.lines_after == 0 and grep.limit is None)
    return present_arguments(pattern=grep.pattern, dir_path=grep.path, include_pattern=grep.file_glob), ()


def _parse_glob(arguments: Arguments) -> Glob:
    return glob_in_folder(arguments.optional_path(_path_key(arguments, "dir_path", "path")), arguments.text("pattern"))


def _render_glob(glob: Glob) -> Rendered:
    require(glob.limit is None)
    return present_arguments(pattern=glob.pattern, dir_path=glob.folder), ()


def _parse_ls(arguments: Arguments) -> Ls:
    return Ls(arguments.optional_path(_path_key(arguments, "dir_path", "path")))


def _render_ls(ls: Ls) -> Rendered:
    require(ls.limit is None)
    return {"dir_path": ls.path or "."}, ()


def _parse_todo(arguments: Arguments) -> Todo:
    items = []
    for entry in as_list(arguments.take("todos")):
        item = Arguments(as_object(entry), null_is_absent=False)
        text = item.text("description")
        require(text != "")
        items.append(TodoItem(text, one_of(item.take("status"), STATUSES)))
        item.finish()
    return Todo(tuple(items))


def _render_todo(todo: Todo) -> Rendered:
    return {"todos": [{"description": item.text, "status": item.status} for item in todo.items]}, ()


TOOLS = ToolTable(
    Tool("read_file", Read, _parse_read, _render_read),
    Tool("write_file", Write, _parse_write, _render_write),
    Tool("replace", Edit, _parse_edit, _render_edit),
    Tool("run_shell_command", Bash, _parse_bash, _render_bash),
    Tool("grep_search", Grep, _parse_grep, _render_grep),
    Tool("search_file_content", Grep, _parse_grep),
    Tool("glob", Glob, _parse_glob, _render_glob),
    Tool("list_directory", Ls, _parse_ls, _render_ls),
    Tool("write_todos", Todo, _parse_todo, _render_todo),
    timeout_unit="milliseconds",
    reports=frozenset({"activate_skill", "invoke_agent"}),
    path_key="file_path",
)
