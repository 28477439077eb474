"""The table of the agent's own tools, and calls of another client as calls of these tools.

A session of another client may end with a call that has no result. `runnable_call` maps it, so that it can be run.
"""

from __future__ import annotations

import msgspec

from sessiontree.agent.tools.base import Tools
from sessiontree.agent.tools.bash import MAX_SECONDS
from sessiontree.agent.tools.grep_glob_ls import MAX_LIMIT
from sessiontree.conversion.tool_mapping import tools_of
from sessiontree.core.messages import ToolCall
from sessiontree.dialects.tool_intents import Bash, Edit, Glob, Grep, Ls, Read, Write
from sessiontree.dialects.tool_table import (
    Arguments,
    NoEquivalentError,
    Rendered,
    Tool,
    ToolTable,
    at_any_depth,
    checked_replacement,
    glob_in_folder,
    only_replacement,
    parse_read_by_offset,
    plain_file_glob,
    present_arguments,
    render_bash_in_seconds,
    require,
    require_plain_grep,
    shown_offset,
)


def _parse_read(arguments: Arguments) -> Read:
    return parse_read_by_offset(arguments, "path", 1)


def _render_read(read: Read) -> Rendered:
    return present_arguments(path=read.path, offset=shown_offset(read), limit=read.line_count), ()


def _parse_write(arguments: Arguments) -> Write:
    return Write(arguments.path("path"), arguments.text("content"))


def _render_write(write: Write) -> Rendered:
    return {"path": write.path, "content": write.content}, ()


def _parse_edit(arguments: Arguments) -> Edit:
    path = arguments.path("path")
    old, new, everywhere = arguments.text("old_text"), arguments.text("new_text"), arguments.flag("replace_all")
    return Edit(path, (checked_replacement(old, new, everywhere, deleting_takes_line_end=False),))


def _render_edit(edit: Edit) -> Rendered:
    one = only_replacement(edit, deleting_takes_line_end=False)
    return present_arguments(path=edit.path, old_text=one.old, new_text=one.new, replace_all=one.everywhere), ()


def _parse_bash(arguments: Arguments) -> Bash:
    return Bash(arguments.text("command"), arguments.milliseconds("timeout", 1000))


def _render_bash(bash: Bash) -> Rendered:
    require(not bash.background and (bash.timeout_ms or 0) <= MAX_SECONDS * 1000)
    return render_bash_in_seconds(bash)


def _parse_grep(arguments: Arguments) -> Grep:
    arguments.expect("literal", False)
    return Grep(
        pattern=arguments.text("pattern"),
        path=arguments.optional_path("path"),
        file_glob=plain_file_glob(arguments.optional_text("glob")),
        ignore_case=arguments.flag("ignore_case"),
        limit=arguments.count("limit"),
    )


def _render_grep(grep: Grep) -> Rendered:
    require_plain_grep(grep)
    require(grep.lines_before == grep.lines_after == 0 and (grep.limit or 1) <= MAX_LIMIT)
    return present_arguments(
        pattern=grep.pattern, path=grep.path, glob=grep.file_glob, ignore_case=grep.ignore_case, limit=grep.limit
    ), ()


def _parse_glob(arguments: Arguments) -> Glob:
    pattern = at_any_depth(arguments.text("pattern"))
    return glob_in_folder(arguments.optional_path("path"), pattern, arguments.count("limit"))


def _render_glob(glob: Glob) -> Rendered:
    # A name without a folder would match at any depth.
    require("/" in glob.pattern and (glob.limit or 1) <= MAX_LIMIT)
    return present_arguments(pattern=glob.pattern, path=glob.folder, limit=glob.limit), ()


def _parse_ls(arguments: Arguments) -> Ls:
    return Ls(arguments.optional_path("path"), arguments.count("limit"))


def _render_ls(ls: Ls) -> Rendered:
    require((ls.limit or 1) <= MAX_LIMIT)
    return present_arguments(path=ls.path, limit=ls.limit), ()


TOOLS = ToolTable(
    Tool("read", Read, _parse_read, _render_read),
    Tool("write", Write, _parse_write, _render_write),
    Tool("edit", Edit, _parse_edit, _render_edit),
    Tool("bash", Bash, _parse_bash, _render_bash),
    Tool("grep", Grep, _parse_grep, _render_grep),
    Tool("glob", Glob, _parse_glob, _render_glob),
    Tool("ls", Ls, _parse_ls, _render_ls),
    timeout_unit="seconds",
    path_key="path",
)


def runnable_call(call: ToolCall, agent: str, tools: Tools) -> ToolCall | None:
    """The call with the name and arguments of one of `tools`; None if none of them can do the same.

    `agent` is the dialect of the session. A call that one of our tools understands is not changed.
    """
    is_ours = TOOLS.find_by_name(call.name) is not None
    if tools.find(call.name) is not None and (not is_ours or TOOLS.find_intent(call.name, call.arguments) is not None):
        return call
    client = tools_of(agent)
    intent = None if client is None else client.find_intent(call.name, call.arguments)
    try:
        name, arguments, _ = TOOLS.render(intent) if intent is not None else (call.name, call.arguments, ())
    except NoEquivalentError:
        name, arguments = call.name, call.arguments
    return None if tools.find(name) is None else msgspec.structs.replace(call, name=name, arguments=arguments)
