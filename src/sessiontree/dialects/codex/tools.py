"""Parse and render calls of Codex's tools.

Codex reads, searches and lists files with shell commands. Those of other clients' tools are therefore kept as they
are; only commands and plans are mapped.
"""

from __future__ import annotations

import shlex

from sessiontree.dialects.tool_intents import STATUSES, Bash, Todo, TodoItem
from sessiontree.dialects.tool_table import (
    Arguments,
    Rendered,
    Tool,
    ToolTable,
    as_list,
    as_object,
    as_text,
    one_of,
    present_arguments,
    require,
)

_NO_DESCRIPTION = "the description of the command was left out"
_SHELLS = (["bash", "-lc"], ["bash", "-c"], ["sh", "-c"], ["zsh", "-lc"])


def _parse_exec_command(arguments: Arguments) -> Bash:
    command = arguments.text("cmd")
    _leave_out_limits(arguments)
    return Bash(command)


def _render_exec_command(bash: Bash) -> Rendered:
    # The tool returns after a while and leaves a longer command running, so it has no timeout.
    require(bash.timeout_ms is None and not bash.background)
    return {"cmd": bash.command}, () if bash.description is None else (_NO_DESCRIPTION,)


def _leave_out_limits(arguments: Arguments) -> None:
    """Leave out how long the tool waits for output, and how much of it the model receives."""
    for key in ("yield_time_ms", "max_output_tokens", "login", "justification"):
        arguments.leave_out(key)


def _parse_shell_command(arguments: Arguments) -> Bash:
    command, timeout = arguments.text("command"), arguments.milliseconds("timeout_ms")
    arguments.leave_out("login")
    arguments.leave_out("justification")
    return Bash(command, timeout)


def _parse_shell(arguments: Arguments) -> Bash:
    words = [as_text(word) for word in as_list(arguments.take("command"))]
    timeout = arguments.milliseconds("timeout_ms") if "timeout_ms" in arguments else arguments.milliseconds("timeout")
    require(bool(words))
    if len(words) == 3 and words[:2] in _SHELLS:
        return Bash(words[2], timeout)
    return Bash(shlex.join(words), timeout)


def _parse_plan(arguments: Arguments) -> Todo:
    arguments.leave_out("explanation", "the explanation of the plan was left out")
    items = []
    for entry in as_list(arguments.take("plan")):
        step = Arguments(as_object(entry), null_is_absent=False)
        items.append(TodoItem(step.text("step"), one_of(step.take("status"), STATUSES)))
        step.finish()
    return Todo(tuple(items))


def _render_plan(todo: Todo) -> Rendered:
    return {"plan": [present_arguments(step=item.text, status=item.status) for item in todo.items]}, ()


TOOLS = ToolTable(
    Tool("exec_command", Bash, _parse_exec_command, _render_exec_command),
    Tool("shell_command", Bash, _parse_shell_command),
    Tool("shell", Bash, _parse_shell),
    Tool("update_plan", Todo, _parse_plan, _render_plan),
    timeout_unit="milliseconds",
    path_key="path",
    null_is_absent=True,
)
