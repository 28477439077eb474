"""`bash`: a command of a model, in the project, without the secrets of the environment."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from sessiontree.agent.process import HEAD, TAIL, CommandResult, run_command
from sessiontree.agent.read_only_commands import find_read_paths
from sessiontree.agent.tools.base import ArgumentsError, Plan, StructTool, ToolContext, ToolOutput
from sessiontree.secrets.environment import without_secrets

SECONDS = 120.0
MOST_SECONDS = 3_600.0


class BashArguments(Struct, frozen=True, forbid_unknown_fields=True):
    command: Annotated[str, Meta(min_length=1, description="the command for the shell")]
    timeout: Annotated[
        float, Meta(gt=0, le=MOST_SECONDS, description=f"seconds after which it is ended; {SECONDS:.0f} if not given")
    ] = SECONDS


class Bash(StructTool[BashArguments]):
    name = "bash"
    description = (
        f"Run a shell command in the project's folder. Of a long output the first {HEAD:,} and the last {TAIL:,} bytes "
        "are told, and all of it is in a file that is named. There is no terminal and no input; processes in the "
        "background end with the command. Variables that hold secrets are not set."
    )
    changes = "anything"
    Arguments = BashArguments

    def prepare(self, arguments: BashArguments, context: ToolContext) -> Plan:
        command = _checked(arguments.command)
        reads = find_read_paths(command, context.workspace)
        changes = self.changes if reads is None else "nothing"
        return Plan(command, changes, reads=reads or (), command=command)

    async def carry_out(self, arguments: BashArguments, context: ToolContext) -> ToolOutput:
        ran = await run_command(
            _checked(arguments.command),
            cwd=context.workspace.root,
            environment=without_secrets(context.environment, context.allowed_secrets),
            mask=context.masked(),
            seconds=arguments.timeout,
            outputs=context.outputs,
            name=context.call_id or "bash",
            update=context.update,
        )
        return as_output(ran, arguments.timeout)


def _checked(command: str) -> str:
    if "\0" in command:
        raise ArgumentsError("bash: the command has a NUL character in it, which no command can have")
    try:
        command.encode()
    except UnicodeEncodeError:
        raise ArgumentsError("bash: the command has half of a character (a lone surrogate) in it") from None
    return command


def as_output(ran: CommandResult, seconds: float) -> ToolOutput:
    """What a model is told of a command that has ended."""
    notes = []
    if ran.timed_out:
        notes.append(f"ended after {seconds:g} s, with every process it had started")
    elif ran.exit_code:
        notes.append(f"exit code {ran.exit_code}" if ran.exit_code > 0 else f"ended by signal {-ran.exit_code}")
    if ran.left_behind:
        notes.append("it left processes in the background, which were ended")
    if ran.truncated:
        notes.append(describe_spill(ran))
    output = ran.output.rstrip("\n") or "(no output)"
    text = output + "".join(f"\n\n[{note}]" for note in notes)
    details = {
        "exitCode": ran.exit_code,
        "timedOut": ran.timed_out,
        "truncated": ran.truncated,
        "size": ran.size,
        "fullOutputPath": ran.spill,
        "seconds": round(ran.seconds, 3),
    }
    return ToolOutput(text, is_error=ran.timed_out or bool(ran.exit_code), details=details)


def describe_spill(ran: CommandResult) -> str:
    if ran.spill is None:
        return f"the output has {ran.size:,} bytes; the rest was not kept"
    whole = "all" if ran.spill_is_whole else "the beginning"
    return f"the output has {ran.size:,} bytes; {whole} of it is in {ran.spill}"


BASH = Bash()
