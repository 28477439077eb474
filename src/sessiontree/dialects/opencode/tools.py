"""Parse and render calls of OpenCode's tools."""

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
    parse_read_by_offset,
    plain_file_glob,
    present_arguments,
    require,
    require_plain_grep,
    shown_offset,
)

_NO_DESCRIPTION = "the description of the command was left out"


def _parse_read(arguments: Arguments) -> Read:
    # Lines were counted from 0 in older versions, so a call with an offset is ambiguous.
    require("offset" not in arguments)
    return parse_read_by_offset(arguments, "filePath", 1)


def _render_read(read: Read) -> Rendered:
    return present_arguments(filePath=read.path, offset=shown_offset(read), limit=read.line_count), ()


def _parse_write(arguments: Arguments) -> Write:
    return Write(arguments.path("filePath"), arguments.text("content"))


def _render_write(write: Write) -> Rendered:
    return {"filePath": write.path, "content": write.content}, ()


def _parse_edit(arguments: Arguments) -> Edit:
    path = arguments.path("filePath")
    replacement = checked_replacement(
        arguments.text("oldString"),
        arguments.text("newString"),
        arguments.flag("replaceAll"),
        deleting_takes_line_end=False,
    )
    return Edit(path, (replacement,))


def _render_edit(edit: Edit) -> Rendered:
    one = only_replacement(edit, deleting_takes_line_end=False)
    return present_arguments(filePath=edit.path, oldString=one.old, newString=one.new, replaceAll=one.everywhere), ()


def _parse_bash(arguments: Arguments) -> Bash:
    require("workdir" not in arguments)
    return Bash(arguments.text("command"), arguments.milliseconds("timeout"), arguments.optional_text("description"))


def _render_bash(bash: Bash) -> Rendered:
    require(not bash.background)
    return present_arguments(command=bash.command, timeout=bash.timeout_ms, description=bash.description), ()


def _parse_grep(arguments: Arguments) -> Grep:
    return Grep(
        pattern=arguments.text("pattern"),
        path=arguments.optional_path("path"),
        file_glob=plain_file_glob(arguments.optional_text("include")),
    )


def _render_grep(grep: Grep) -> Rendered:
    require_plain_grep(grep)
    require(not grep.ignore_case and grep.lines_before == grep.lines_after == 0 and grep.limit is None)
    return present_arguments(pattern=grep.pattern, path=grep.path, include=grep.file_glob), ()


def _parse_glob(arguments: Arguments) -> Glob:
    # ripgrep's filter: a bare name matches at any depth.
    pattern = arguments.text("pattern")
    return glob_in_folder(arguments.optional_path("path"), pattern if "/" in pattern else f"**/{pattern}")


def _render_glob(glob: Glob) -> Rendered:
    require(glob.limit is None and "/" in glob.pattern)
    return present_arguments(pattern=glob.pattern, path=glob.folder), ()


def _parse_list(arguments: Arguments) -> Ls:
    return Ls(arguments.optional_path("path"))


def _parse_todo(arguments: Arguments) -> Todo:
    items = []
    for entry in as_list(arguments.take("todos")):
        item = Arguments(as_object(entry), null_is_absent=False)
        text = item.text("content")
        require(text != "")
        item.leave_out("id", "the ids of tasks were left out")
        item.leave_out("priority", "the priorities of tasks were left out")
        items.append(TodoItem(text, one_of(item.take("status"), STATUSES)))
        item.finish()
        arguments.notes += item.notes
    return Todo(tuple(items))


def _render_todo(todo: Todo) -> Rendered:
    todos = [{"content": item.text, "status": item.status, "priority": "medium"} for item in todo.items]
    return {"todos": todos}, ("each task got the priority medium",)


TOOLS = ToolTable(
    Tool("read", Read, _parse_read, _render_read),
    Tool("write", Write, _parse_write, _render_write),
    Tool("edit", Edit, _parse_edit, _render_edit),
    Tool("bash", Bash, _parse_bash, _render_bash),
    Tool("grep", Grep, _parse_grep, _render_grep),
    Tool("glob", Glob, _parse_glob, _render_glob),
    Tool("list", Ls, _parse_list),
    Tool("todowrite", Todo, _parse_todo, _render_todo),
    timeout_unit="milliseconds",
    reports=frozenset({"skill", "task"}),
    path_key="filePath",
)
