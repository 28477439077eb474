"""`bash`: runs a shell command in the project, without the secrets of the environment.

A command that only reads needs no approval. Commands are not parsed: one is plainly read-only, or it needs approval.
Plainly read-only: it consists of letters, digits and a few characters without meaning for shells, split at spaces; the
program is known; all options are known not to write, run or follow anything; and every other word, taken as a path, is
inside the workspace. `cat notes.md` passes. `cat notes.md > x`, `cat $(x)`, `find . -delete` and `cat ../x` do not.
"""

from __future__ import annotations

import re
from typing import Annotated

from msgspec import Meta, Struct

from sessiontree.agent.process import HEAD, TAIL, CommandResult, run_command
from sessiontree.agent.tools.base import ArgumentsError, Plan, StructTool, ToolContext, ToolOutput
from sessiontree.agent.workspace import ResolvedPath, Workspace
from sessiontree.errors import PathError
from sessiontree.git.command import runs_programs
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


# Read-only commands

_PLAIN = re.compile(r"[A-Za-z0-9_./:@%+,=\- ]+")
_OPTION = re.compile(r"-[A-Za-z0-9]+")

# Program -> letters of its allowed short options. Digits are always allowed (`-5`), long options are not: programs
# accept abbreviations of them, so no list of forbidden ones would be complete. Not listed: `-o` of any program that
# writes a file with it, `-f` of grep and date (reads patterns from a file), `-R` of grep (follows links).
_PROGRAMS = {
    "basename": "",
    "cat": "AbeEnstTuv",
    "cmp": "bs",
    "cut": "bcdfs",
    "date": "uIR",
    "df": "hT",
    "diff": "abBiqrsuwy",
    "dirname": "",
    "du": "achks",
    "echo": "n",
    "false": "",
    "file": "bi",
    "grep": "cEFGhHilnoqsvwxABC",
    "head": "cnqv",
    "id": "gnuG",
    "ls": "AaCdFGhilnopRrSst1",
    "md5sum": "",
    "nl": "b",
    "pwd": "LP",
    "sha256sum": "",
    "stat": "L",
    "tail": "cnqv",
    "true": "",
    "uname": "amnrsv",
    "wc": "cLlmw",
    "which": "a",
    "whoami": "",
}
_GIT = {
    "blame": "Lswe",
    "describe": "",
    "diff": "bpuwz",
    "log": "npisu",
    "ls-files": "cdmosz",
    "rev-parse": "",
    "shortlog": "ensc",
    "show": "psuw",
    "status": "bsuz",
}
_GIT_LONG = frozenset(
    {
        "--abbrev-commit",
        "--all",
        "--branch",
        "--cached",
        "--decorate",
        "--graph",
        "--name-only",
        "--name-status",
        "--no-color",
        "--numstat",
        "--oneline",
        "--patch",
        "--porcelain",
        "--short",
        "--shortstat",
        "--staged",
        "--stat",
        "--summary",
        "--tags",
    }
)
_WITHOUT_PATHS = frozenset({"echo", "date", "uname", "whoami", "id", "which", "true", "false"})


def find_read_paths(command: str, workspace: Workspace) -> tuple[ResolvedPath, ...] | None:
    """The paths that a command reads, if it is plainly read-only; else None."""
    if not _PLAIN.fullmatch(command) or not command.strip():
        return None
    program, *words = command.split()
    if program == "git":
        return _git(words, workspace)
    letters = _PROGRAMS.get(program)
    if letters is None or not _are_allowed(words, letters, frozenset()):
        return None
    return () if program in _WITHOUT_PATHS else _resolve(words, workspace)


def _git(words: list[str], workspace: Workspace) -> tuple[ResolvedPath, ...] | None:
    if not words or words[0] not in _GIT or not _are_allowed(words[1:], _GIT[words[0]], _GIT_LONG):
        return None
    if runs_programs(workspace.root):
        return None
    return _resolve(words[1:], workspace)


def _are_allowed(words: list[str], letters: str, long: frozenset[str]) -> bool:
    for word in words:
        if not word.startswith("-") or word in long:
            continue
        if not _OPTION.fullmatch(word) or not all(letter in letters or letter.isdigit() for letter in word[1:]):
            return False
    return True


def _resolve(words: list[str], workspace: Workspace) -> tuple[ResolvedPath, ...] | None:
    # Every word that is not an option is taken as a path. Many are not (revisions, patterns), but resolving those
    # yields a path inside the workspace, so they do no harm.
    try:
        return tuple(workspace.resolve(word) for word in words if not word.startswith("-"))
    except PathError:
        return None
