"""Parse and render calls of Neovate's tools, where they differ from Claude Code's."""

from __future__ import annotations

from sessiontree.dialects.claude.tools import (
    parse_claude_edit,
    parse_claude_todo,
    render_claude_edit,
    render_claude_read,
    render_claude_write,
)
from sessiontree.dialects.tool_intents import Agent, Bash, Edit, Glob, Grep, Read, Todo, Tree, Write
from sessiontree.dialects.tool_table import (
    Arguments,
    NoEquivalentError,
    Rendered,
    Tool,
    ToolTable,
    glob_in_folder,
    lines_around,
    parse_grep_mode,
    parse_read_by_offset,
    plain_file_glob,
    present_arguments,
    render_bash_in_milliseconds,
    require,
    without_ignored_lines,
)

_LONGEST_MS = 600_000
_MOST_LINES = 1_000
_KIND_NAMES = {"general-purpose": "GeneralPurpose", "Explore": "Explore", "Plan": "Plan"}
_KINDS_BY_NAME = {theirs: ours for ours, theirs in _KIND_NAMES.items()}


def _parse_read(arguments: Arguments) -> Read:
    return parse_read_by_offset(arguments, "file_path", 1)


def _parse_write(arguments: Arguments) -> Write:
    path, content = arguments.path("file_path"), arguments.text("content")
    if not content.endswith("\n"):
        arguments.notes.append("the last line end, which Neovate adds itself, was written out")
        content += "\n"
    return Write(path, content)


def _render_write(write: Write) -> Rendered:
    # Neovate ends every file that it writes with a line end.
    require(write.content.endswith("\n"))
    return render_claude_write(write)


def _parse_bash(arguments: Arguments) -> Bash:
    timeout_ms = arguments.milliseconds("timeout")
    return Bash(
        arguments.text("command"),
        None if timeout_ms is None else min(timeout_ms, _LONGEST_MS),
        arguments.optional_text("description"),
        arguments.flag("run_in_background"),
    )


def _render_bash(bash: Bash) -> Rendered:
    require(bash.command.strip() != "" and (bash.timeout_ms or 0) <= _LONGEST_MS)
    # Neovate refuses commands with command substitution. It would accept some that quotes make harmless, but we do not
    # parse the shell's quoting.
    require("$(" not in bash.command and "`" not in bash.command)
    return render_bash_in_milliseconds(bash)


def _parse_grep(arguments: Arguments) -> Grep:
    pattern = arguments.text("pattern")
    mode = parse_grep_mode(arguments) if "output_mode" in arguments else "files_with_matches"
    before, after = lines_around(arguments, ("context",), "before_context", "after_context")
    return without_ignored_lines(
        Grep(
            pattern=pattern,
            path=arguments.optional_path("search_path"),
            file_glob=plain_file_glob(arguments.optional_text("include")),
            file_type=arguments.optional_text("type"),
            mode=mode,
            ignore_case=arguments.flag("ignore_case"),
            multiline=arguments.flag("multiline"),
            lines_before=before,
            lines_after=after,
            line_numbers=arguments.flag("line_numbers", default=True),
            limit=arguments.count("limit"),
            skip=arguments.count("offset", 0) or 0,
        )
    )


def _render_grep(grep: Grep) -> Rendered:
    require((grep.limit or 0) <= _MOST_LINES)
    rendered = present_arguments(
        pattern=grep.pattern,
        search_path=grep.path,
        include=grep.file_glob,
        type=grep.file_type,
        output_mode=grep.mode,
        ignore_case=grep.ignore_case,
        multiline=grep.multiline,
        limit=grep.limit,
        offset=grep.skip or None,
    )
    if grep.lines_before == grep.lines_after:
        rendered |= present_arguments(context=grep.lines_before or None)
    else:
        rendered |= present_arguments(before_context=grep.lines_before or None, after_context=grep.lines_after or None)
    return rendered | ({} if grep.line_numbers else {"line_numbers": False}), ()


def _parse_glob(arguments: Arguments) -> Glob:
    return glob_in_folder(arguments.optional_path("path"), arguments.text("pattern"))


def _render_glob(glob: Glob) -> Rendered:
    require(glob.limit is None)
    return present_arguments(pattern=glob.pattern, path=glob.folder), ()


def _parse_ls(arguments: Arguments) -> Tree:
    return Tree(arguments.path("dir_path"))


def _render_ls(tree: Tree) -> Rendered:
    return {"dir_path": tree.path}, ()


def _render_todo(todo: Todo) -> Rendered:
    todos = [
        {"id": str(number), "content": item.text, "status": item.status, "priority": "medium"}
        for number, item in enumerate(todo.items, 1)
    ]
    return {"todos": todos}, ("tasks were numbered, and all were given the priority medium",)


def _parse_task(arguments: Arguments) -> Agent:
    kind = _KINDS_BY_NAME.get(arguments.text("subagent_type"))
    if kind is None:
        raise NoEquivalentError
    return Agent(arguments.text("description"), arguments.text("prompt"), kind)


def _render_task(agent: Agent) -> Rendered:
    kind = _KIND_NAMES[agent.kind]
    return {"description": agent.description, "prompt": agent.prompt, "subagent_type": kind}, ()


TOOLS = ToolTable(
    Tool("read", Read, _parse_read, render_claude_read),
    Tool("write", Write, _parse_write, _render_write),
    Tool("edit", Edit, parse_claude_edit, render_claude_edit),
    Tool("bash", Bash, _parse_bash, _render_bash),
    Tool("grep", Grep, _parse_grep, _render_grep),
    Tool("glob", Glob, _parse_glob, _render_glob),
    Tool("ls", Tree, _parse_ls, _render_ls),
    Tool("todoWrite", Todo, parse_claude_todo, _render_todo),
    Tool("todo-write", Todo, parse_claude_todo),
    Tool("task", Agent, _parse_task, _render_task),
    timeout_unit="milliseconds",
    reports=frozenset({"skill", "task"}),
    path_key="file_path",
    null_is_absent=True,
)
