"""`!command` and `!!command` of the user: run at once, with the user's whole environment, and kept in the session.

The user asked for it, so nobody is asked. What it prints is masked all the same, for it goes into the session, and from
there to a model; `!!` keeps it out of what a model is sent.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from sessiontree.agent.output_throttle import OutputThrottle
from sessiontree.agent.process import CommandResult, run_until_cancelled
from sessiontree.agent.tools.base import ToolContext
from sessiontree.core.entries import Entry
from sessiontree.session.session import Branch, Session


class UserCommand(Struct, frozen=True):
    """What the user wants to run."""

    command: str
    exclude_from_context: bool = False


def parse_user_command(text: str) -> UserCommand | None:
    """The command in a line of input; None when the line is none."""
    if not text.startswith("!"):
        return None
    is_excluded = text.startswith("!!")
    command = text[2 if is_excluded else 1 :].strip()
    return UserCommand(command, is_excluded) if command else None


async def run_user_command(
    command: UserCommand, branch: Branch | Session, context: ToolContext
) -> tuple[CommandResult, Entry]:
    """Run a command of the user and append it to the session. A cancel ends the command, and that is kept, too.

    `context.update` hears what it prints on the way; what it printed in the end is in the result.
    """
    updates = OutputThrottle(context.update or (lambda _: None))
    try:
        ran = await run_until_cancelled(
            command.command,
            cwd=context.workspace.root,
            environment=context.environment,
            mask=context.masked(),
            outputs=context.outputs,
            name="user",
            update=updates.add,
        )
    finally:
        updates.close()
    return ran, branch.append(as_message(command, ran, context))


def as_message(command: UserCommand, ran: CommandResult, context: ToolContext) -> dict[str, Any]:
    """A command of the user as a message of the session."""
    message: dict[str, Any] = {
        "role": "bashExecution",
        "command": context.masked().text(command.command),
        "output": ran.output,
        "exitCode": ran.exit_code,
        "cancelled": ran.cancelled,
        "truncated": ran.truncated,
    }
    if ran.spill is not None:
        message["fullOutputPath"] = ran.spill
    if command.exclude_from_context:
        message["excludeFromContext"] = True
    return message
