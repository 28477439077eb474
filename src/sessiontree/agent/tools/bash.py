"""`bash`: runs a shell command in the project, without the secrets of the environment.

A command that only reads needs no approval. Commands are not parsed: one is plainly read-only, or it needs approval.
Plainly read-only: it consists of letters, digits and a few characters without meaning for shells, split at spaces; the
program is known; all options are known not to write, run or follow anything; and every other word, taken as a path, is
inside the workspace. `cat notes.md` passes. `cat notes.md > x`, `cat $(x)`, `find . -delete` and `cat ../x` do not.

A command without approval uses no program of the project. Git runs in the environment of `git.command`, in which the
repository cannot start programs. Where the system has one, a sandbox encloses the command (`agent.sandbox`).
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator, Mapping
from typing import Annotated

from msgspec import Meta, Struct

from sessiontree.agent.process import HEAD, TAIL, CommandResult, run_command
from sessiontree.agent.sandbox import Sandbox, is_available
from sessiontree.agent.tools.base import ArgumentsError, Plan, StructTool, ToolContext, ToolOutput
from sessiontree.agent.workspace import ResolvedPath, Workspace, is_within
from sessiontree.errors import PathError, StoreError
from sessiontree.git import command as git
from sessiontree.paths import without_folders
from sessiontree.secrets.environment import without_secrets
from sessiontree.secrets.names import has_secret_name
from sessiontree.stores.safe_files import read_regular

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
        plan = context.approved
        if plan is None:
            plan = await asyncio.to_thread(self.prepare, arguments, context)
        command, sandbox = _check(arguments.command), None
        environment: Mapping[str, str] = without_secrets(context.environment, context.allowed_secrets)
        if plan.changes == "nothing":
            command, environment, sandbox = await asyncio.to_thread(_restrict, plan, environment, context)
        result = await run_command(
            command,
            cwd=context.workspace.root,
            environment=environment,
            mask=context.masked(),
            seconds=arguments.timeout,
            outputs=context.outputs,
            name=context.call_id or "bash",
            update=context.update,
            sandbox=sandbox,
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
    "diff": "abBiqsuwy",
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
# Added to each command: without them, a repository of another person could make git start programs, or run in a
# submodule.
_GIT_ADDED = {
    "blame": "--no-textconv",
    "diff": "--no-ext-diff --no-textconv --ignore-submodules=dirty",
    "log": "--no-ext-diff --no-textconv --no-show-signature",
    "show": "--no-ext-diff --no-textconv --no-show-signature",
    "status": "--ignore-submodules=dirty",
}
_GIT_SELECTING = frozenset({"--all", "--cached", "--staged", "--tags"})
"""Options that select commits, rather than how they are shown."""
_LISTING_SECONDS = 10.0
_MAX_POINTER = 1 << 16
_WITHOUT_PATHS = frozenset({"echo", "date", "uname", "whoami", "id", "which", "true", "false"})
_WITH_FOLDERS = frozenset({"basename", "dirname", "du", "file", "ls", "pwd", "stat"})
"""Programs that show names in a folder. All others would read the files in it, whatever their names."""


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
    if program == "date" and any(not word.startswith(("-", "+")) for word in words):
        return None  # it would set the clock
    if program in _WITHOUT_PATHS:
        return ()
    reads = _resolve(words, workspace)
    if reads is None or program in _WITH_FOLDERS:
        return reads
    return None if any(os.path.isdir(read.path) for read in reads) else reads


def _git(words: list[str], workspace: Workspace) -> tuple[ResolvedPath, ...] | None:
    if not words or words[0] not in _GIT or not _are_allowed(words[1:], _GIT[words[0]], _GIT_LONG):
        return None
    verb, *words = words
    try:
        if not _is_ordinary_repository(workspace.root) or git.runs_programs(workspace.root):
            return None
        named = [word for word in words if not word.startswith("-")]
        if verb in ("diff", "show") and _names_content(workspace.root, named):
            return None
        shown = _list_secrets(workspace.root, verb, words) if _shows_content(verb, words) else []
    except (StoreError, OSError):
        return None
    return _resolve([*named, *_iter_named_files(named), *shown], workspace)


def _is_ordinary_repository(root: str) -> bool:
    """Whether git uses the repository in the nearest `.git`, for the files next to it, and reads no others.

    The `.git` of an unpacked project may name any repository of the user. One elsewhere has to name this folder, too,
    as that of a worktree or a submodule does.
    """
    top = git.find_top(root)
    located = ("--show-toplevel", "--git-common-dir", "--absolute-git-dir")
    found = git.query(root, "rev-parse", "--path-format=absolute", *located).splitlines()
    if top is None or len(found) != len(located):
        return False
    used, common, folder = map(os.path.realpath, found)
    top = os.path.realpath(top)
    if used != top or not (folder == common or is_within(folder, os.path.join(common, "worktrees"))):
        return False
    if git.reads_elsewhere(root, top, [*dict.fromkeys((folder, common))]):
        return False
    return is_within(folder, top) or _names_worktree(root, folder, top)


def _names_worktree(root: str, folder: str, top: str) -> bool:
    """Whether a git folder elsewhere names the worktree: in `gitdir`, or as `core.worktree`, which git has followed."""
    try:
        back = os.fsdecode(read_regular(os.path.join(folder, "gitdir"), _MAX_POINTER)).strip()
    except (OSError, PathError):
        return git.query(root, "config", "core.worktree") != ""
    return os.path.realpath(back) == os.path.join(top, ".git")


def _names_content(root: str, words: list[str]) -> bool:
    """Whether a word is the id of a blob: its content would be shown whatever the file's name, even one of a secret."""
    objects = [part for word in words for part in re.split(r"\.{2,}", word) if part and ":" not in part]
    if not objects:
        return False
    data = "".join(f"{name}^{{}}\n" for name in objects).encode()  # of a tag: what it points to
    return b"blob" in git.output(root, "cat-file", "--batch-check=%(objecttype)", data=data).split()


def _iter_named_files(words: list[str]) -> Iterator[str]:
    """The files in revisions such as `HEAD:id_rsa`."""
    for word in words:
        parts = word.split(":")
        yield from filter(None, (":".join(parts[at:]) for at in range(1, len(parts))))


def _shows_content(verb: str, words: list[str]) -> bool:
    if verb == "log":
        return any(word == "--patch" or re.fullmatch(r"-[a-z0-9]*[pu][a-z0-9]*", word) for word in words)
    return verb in ("diff", "show")


def _list_secrets(root: str, verb: str, words: list[str]) -> list[str]:
    """The files whose names indicate secrets and whose content would be shown; `StoreError` if listing them is slow."""
    selecting = [word for word in words if not word.startswith("-") or word in _GIT_SELECTING or _is_count(word)]
    form = ("--name-only", "--no-renames", "-z", "--no-ext-diff", "--no-textconv", "--ignore-submodules=dirty")
    format = () if verb == "diff" else ("--format=",)
    done = git.run(root, verb, *form, *format, *selecting, timeout=_LISTING_SECONDS)
    top = git.query(root, "rev-parse", "--show-toplevel")
    names = (os.fsdecode(name).strip("\n") for name in done.stdout.split(b"\0"))
    return [os.path.join(top, name) for name in dict.fromkeys(names) if name and has_secret_name(name)]


def _is_count(word: str) -> bool:
    return re.fullmatch(r"-n?[0-9]*", word) is not None and word != "-"


def _restrict(
    plan: Plan, environment: Mapping[str, str], context: ToolContext
) -> tuple[str, Mapping[str, str], Sandbox | None]:
    """How to run a command without approval: what to run instead, with which variables, and where."""
    workspace = context.workspace
    program, *words = (plan.command or "").split()
    path = without_folders(environment.get("PATH", os.defpath), workspace.folders)
    environment = {**environment, "PATH": path}
    readable = [read.path for read in plan.reads]
    if program == "git":
        verb, *words = words
        words = [verb, *_GIT_ADDED.get(verb, "").split(), *words]
        environment = git.environment(workspace.root, base=environment)
        located = ("--show-toplevel", "--git-common-dir", "--absolute-git-dir")
        readable += git.query(workspace.root, "rev-parse", "--path-format=absolute", *located).splitlines()
        readable += git.user_files(workspace.root)
    home = environment.get("HOME") or os.path.expanduser("~")
    is_enclosed = context.sandbox and is_available()
    sandbox = Sandbox(readable, home=home, folders=workspace.folders, path=path) if is_enclosed else None
    return " ".join([program, *words]), environment, sandbox


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
