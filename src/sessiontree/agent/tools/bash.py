"""`bash`: runs a shell command in the project, without the secrets of the environment."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from sessiontree.agent.process import HEAD, TAIL, CommandResult, run_command
from sessiontree.agent.read_only_commands import find_read_paths
from sessiontree.agent.tools.base import ArgumentsError, Plan, StructTool, ToolContext, ToolOutput
from sessiontree.secrets.environment import without_secrets

SECONDS = 120.0
MAX_SECONDS = 3_600.0


class BashArguments(Struct, frozen=True, forbid_unknown_fields=True):
    command: Annotated[str, Meta(min_length=1, description="the shell command")]
    timeout: Annotated[float, Meta(gt=0, le=MAX_SECONDS, description=f"timeout in seconds; default {SECONDS:.0f}")] = (
        SECONDS
    )


class Bash(StructTool[BashArguments]):
    name = "bash"
    description = (
        f"Run a shell command in the project's folder. Of long output, the first {HEAD:,} and last {TAIL:,} bytes are "
        "returned, with the path of a file that has all of it. There is no terminal and no input; background processes "
        "are ended with the command. Variables with secrets are not set."
    )
    changes = "anything"
    Arguments = BashArguments

    def prepare(self, arguments: BashArguments, context: ToolContext) -> Plan:
        command = _check(arguments.command)
        reads = find_read_paths(command, context.workspace)
        changes = self.changes if reads is None else "nothing"
        return Plan(command, changes, reads=reads or (), command=command)

    async def carry_out(self, arguments: BashArguments, context: ToolContext) -> ToolOutput:
        result = await run_command(
            _check(arguments.command),
            cwd=context.workspace.root,
            environment=without_secrets(context.environment, context.allowed_secrets),
            mask=context.masked(),
            seconds=arguments.timeout,
            outputs=context.outputs,
            name=context.call_id or "bash",
            update=context.update,
        )
        return as_output(result, arguments.timeout)


def _check(command: str) -> str:
    if "\0" in command:
        raise ArgumentsError("bash: the command contains a NUL character, which is not allowed")
    try:
        command.encode()
    except UnicodeEncodeError:
        raise ArgumentsError("bash: the command contains a lone surrogate, which is not a valid character") from None
    return command


def as_output(result: CommandResult, seconds: float) -> ToolOutput:
    """The result of a command, for the model."""
    notes = []
    if result.timed_out:
        notes.append(f"timed out after {seconds:g} s; it and every process it started were ended")
    elif result.exit_code:
        notes.append(
            f"exit code {result.exit_code}" if result.exit_code > 0 else f"ended by signal {-result.exit_code}"
        )
    if result.left_background:
        notes.append("it left background processes, which were ended")
    if result.truncated:
        notes.append(describe_spill(result))
    output = result.output.rstrip("\n") or "(no output)"
    text = output + "".join(f"\n\n[{note}]" for note in notes)
    details = {
        "exitCode": result.exit_code,
        "timedOut": result.timed_out,
        "truncated": result.truncated,
        "size": result.size,
        "fullOutputPath": result.spill,
        "seconds": round(result.seconds, 3),
    }
    return ToolOutput(text, is_error=result.timed_out or bool(result.exit_code), details=details)


def describe_spill(result: CommandResult) -> str:
    if result.spill is None:
        return f"the output has {result.size:,} bytes; the rest was not stored"
    part = "all" if result.spill_is_complete else "the beginning"
    return f"the output has {result.size:,} bytes; {part} of it is in {result.spill}"


BASH = Bash()
