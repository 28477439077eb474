"""Parse and render calls of Claude Code's tools.

Public functions are also used for Neovate and older versions of oh-my-pi, which have some of these tools unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sessiontree.dialects.tool_intents import (
    STATUSES,
    Agent,
    Bash,
    Edit,
    Glob,
    Grep,
    Read,
    Replacement,
    Todo,
    TodoItem,
    Tree,
    Write,
)
from sessiontree.dialects.tool_table import (
    Arguments,
    Rendered,
    Tool,
    ToolTable,
    as_list,
    as_object,
    at_any_depth,
    checked_replacement,
    glob_in_folder,
    holds_several,
    independent_replacements,
    lines_around,
    one_of,
    only_replacement,
    parse_grep_mode,
    parse_read_by_offset,
    parse_replacements,
    plain_file_glob,
    present_arguments,
    render_bash_in_milliseconds,
    require,
    shown_offset,
    without_ignored_lines,
)

_LONGEST_MS = 600_000
_LONGEST_BACKGROUND_MS = 7_200_000
_TODO_DETAILS = {
    "activeForm": "the texts shown while tasks are in progress were left out",
    "id": "the ids of tasks were left out",
    "priority": "the priorities of tasks were left out",
}
_SHARED_KINDS = frozenset(("general-purpose", "Explore", "Plan"))


def _parse_read(arguments: Arguments) -> Read:
    arguments.expect("allow_large", False)
    return parse_read_by_offset(arguments, "file_path", 0)


def render_claude_read(read: Read) -> Rendered:
    return present_arguments(file_path=read.path, offset=shown_offset(read), limit=read.line_count), ()


def _parse_write(arguments: Arguments) -> Write:
    return Write(arguments.path("file_path"), arguments.text("content"))


def render_claude_write(write: Write) -> Rendered:
    return {"file_path": write.path, "content": write.content}, ()


def _parse_replacement(arguments: Arguments) -> Replacement:
    return checked_replacement(
        arguments.text("old_string"),
        arguments.text("new_string"),
        arguments.flag("replace_all"),
        deleting_takes_line_end=True,
    )


def parse_claude_edit(arguments: Arguments) -> Edit:
    return Edit(arguments.path("file_path"), (_parse_replacement(arguments),))


def _parse_multi_edit(arguments: Arguments) -> Edit:
    path = arguments.path("file_path")
    return Edit(path, independent_replacements(parse_replacements(arguments.take("edits"), _parse_replacement)))


def render_claude_edit(edit: Edit) -> Rendered:
    one = only_replacement(edit, deleting_takes_line_end=True)
    return present_arguments(
        file_path=edit.path, old_string=one.old, new_string=one.new, replace_all=one.everywhere
    ), ()


def _parse_bash(arguments: Arguments) -> Bash:
    arguments.expect("dangerouslyDisableSandbox", False)
    return Bash(
        arguments.text("command"),
        arguments.milliseconds("timeout"),
        arguments.optional_text("description"),
        arguments.flag("run_in_background"),
    )


def _render_bash(bash: Bash) -> Rendered:
    longest = _LONGEST_BACKGROUND_MS if bash.background else _LONGEST_MS
    require((bash.timeout_ms or 0) <= longest)
    return render_bash_in_milliseconds(bash)


def _parse_grep(arguments: Arguments) -> Grep:
    arguments.expect("-o", False)
    pattern = arguments.text("pattern")
    mode = parse_grep_mode(arguments) if "output_mode" in arguments else "files_with_matches"
    before, after = lines_around(arguments, ("context", "-C"), "-B", "-A")
    file_glob = plain_file_glob(arguments.optional_text("glob"))
    # Only Claude Code takes several filters in one text.
    require(file_glob is None or not holds_several(file_glob))
    return without_ignored_lines(
        Grep(
            pattern=pattern,
            path=arguments.optional_path("path"),
            file_glob=file_glob,
            file_type=arguments.optional_text("type"),
            mode=mode,
            ignore_case=arguments.flag("-i"),
            multiline=arguments.flag("multiline"),
            lines_before=before,
            lines_after=after,
            line_numbers=arguments.flag("-n", default=True),
            limit=arguments.count("head_limit"),
            skip=arguments.count("offset", 0) or 0,
        )
    )


def _render_grep(grep: Grep) -> Rendered:
    require(grep.file_glob is None or not holds_several(grep.file_glob))
    rendered: dict[str, Any] = {"pattern": grep.pattern}
    rendered |= present_arguments(path=grep.path, glob=grep.file_glob, type=grep.file_type, output_mode=grep.mode)
    if grep.lines_before == grep.lines_after:
        rendered |= {"-C": grep.lines_before} if grep.lines_before else {}
    else:
        sides = {"-B": grep.lines_before, "-A": grep.lines_after}
        rendered |= {key: lines for key, lines in sides.items() if lines}
    rendered |= {} if grep.line_numbers else {"-n": False}
    rendered |= {"-i": True} if grep.ignore_case else {}
    return rendered | present_arguments(multiline=grep.multiline, head_limit=grep.limit, offset=grep.skip or None), ()


def _parse_glob(arguments: Arguments) -> Glob:
    return glob_in_folder(arguments.optional_path("path"), at_any_depth(arguments.text("pattern")))


def _render_glob(glob: Glob) -> Rendered:
    require(glob.limit is None)
    if "/" in glob.pattern:
        return present_arguments(pattern=glob.pattern, path=glob.folder), ()
    # A bare name would match at any depth, so the folder becomes part of the pattern.
    above, _, name = (glob.folder or "").rpartition("/")
    require(name not in ("", ".."))
    if not above and glob.folder is not None and glob.folder.startswith("/"):
        above = "/"
    return present_arguments(pattern=f"{name}/{glob.pattern}", path=above or None), ()


def _parse_ls(arguments: Arguments) -> Tree:
    if "ignore" in arguments:
        require(as_list(arguments.take("ignore")) == [])
    return Tree(arguments.path("path"))


def parse_claude_todo(arguments: Arguments) -> Todo:
    items, notes = _todo_items(arguments.take("todos"), _TODO_DETAILS)
    arguments.notes += notes
    return Todo(items)


def _todo_items(todos: object, ignored: Mapping[str, str]) -> tuple[tuple[TodoItem, ...], list[str]]:
    """A task list and notes about what is left out. `ignored` has the note for each descriptive key."""
    items = []
    notes: list[str] = []
    for entry in as_list(todos):
        arguments = Arguments(as_object(entry), null_is_absent=False)
        text = arguments.text("content")
        for key, note in ignored.items():
            arguments.leave_out(key, note)
        status = one_of(arguments.take("status"), STATUSES)
        arguments.finish()
        notes += arguments.notes
        require(text != "")
        items.append(TodoItem(text, status))
    return tuple(items), notes


def _render_todo(todo: Todo) -> Rendered:
    todos = [{"content": item.text, "status": item.status, "activeForm": item.text} for item in todo.items]
    return {"todos": todos}, ("the text shown while a task is in progress repeats its text",)


def _parse_agent(arguments: Arguments) -> Agent:
    # The default has changed between versions.
    require(arguments.take("run_in_background") is False)
    return _agent_of_kind(arguments, arguments.text("subagent_type"))


def _parse_task(arguments: Arguments) -> Agent:
    # The older name of the tool, from when every agent ran in the foreground, at first with only one kind.
    arguments.expect("run_in_background", False)
    return _agent_of_kind(arguments, arguments.optional_text("subagent_type") or "general-purpose")


def _agent_of_kind(arguments: Arguments, kind: str) -> Agent:
    require(kind in _SHARED_KINDS)
    return Agent(arguments.text("description"), arguments.text("prompt"), kind)


def _render_agent(agent: Agent) -> Rendered:
    rendered = {"description": agent.description, "prompt": agent.prompt, "subagent_type": agent.kind}
    return rendered | {"run_in_background": False}, ()


TOOLS = ToolTable(
    Tool("Read", Read, _parse_read, render_claude_read),
    Tool("Write", Write, _parse_write, render_claude_write),
    Tool("Edit", Edit, parse_claude_edit, render_claude_edit),
    Tool("MultiEdit", Edit, _parse_multi_edit),
    Tool("Bash", Bash, _parse_bash, _render_bash),
    Tool("Grep", Grep, _parse_grep, _render_grep),
    Tool("Glob", Glob, _parse_glob, _render_glob),
    Tool("LS", Tree, _parse_ls),
    Tool("TodoWrite", Todo, parse_claude_todo, _render_todo),
    Tool("Agent", Agent, _parse_agent, _render_agent),
    Tool("Task", Agent, _parse_task),
    timeout_unit="milliseconds",
    reports=frozenset({"Agent", "Skill", "Task"}),
    path_key="file_path",
)
