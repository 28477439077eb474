"""`!command` and `!!command` of the user: run with the user's full environment, and recorded in the session.

They need no approval. Their output is masked like that of tools, because it becomes part of the session and of the
model's context; `!!` keeps it out of the context.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from sessiontree.agent.process import CommandResult, run_until_cancelled
from sessiontree.agent.tool_output import OutputThrottle
from sessiontree.agent.tools.base import ToolContext
from sessiontree.core.entries import Entry
from sessiontree.session.session import Branch, Session


class UserCommand(Struct, frozen=True):
    command: str
    exclude_from_context: bool = False


def parse_user_command(text: str) -> UserCommand | None:
    """Parse a line of input; None if it is not a command."""
    if not text.startswith("!"):
        return None
    is_excluded = text.startswith("!!")
    command = text[2 if is_excluded else 1 :].strip()
    return UserCommand(command, is_excluded) if command else None


async def run_user_command(
    command: UserCommand, branch: Branch | Session, context: ToolContext
) -> tuple[CommandResult, Entry]:
    """Run a command and append it to the session. A cancellation ends the command, which is still recorded.

    `context.update` receives output while the command runs; the result has the final output.
    """
    throttle = OutputThrottle(context.update or (lambda _: None))
    try:
        result = await run_until_cancelled(
            command.command,
            cwd=context.workspace.root,
            environment=context.environment,
            mask=context.masked(),
            outputs=context.outputs,
            name="user",
            update=throttle.add,
        )
    finally:
        throttle.close()
    return result, branch.append(as_message(command, result, context))


def as_message(command: UserCommand, result: CommandResult, context: ToolContext) -> dict[str, Any]:
    """A command as a message for `append`."""
    message: dict[str, Any] = {
        "role": "bashExecution",
        "command": context.masked().text(command.command),
        "output": result.output,
        "exitCode": result.exit_code,
        "cancelled": result.cancelled,
        "truncated": result.truncated,
    }
    if result.spill is not None:
        message["fullOutputPath"] = result.spill
    if command.exclude_from_context:
        message["excludeFromContext"] = True
    return message
