"""`grep`, `glob` and `ls`: find lines, find files, list a folder. `grep` and `glob` respect `.gitignore`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import stat
import sys
from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from sessiontree.agent.process import run_program
from sessiontree.agent.tools.base import ArgumentsError, Plan, StructTool, ToolContext, ToolOutput, short
from sessiontree.agent.tools.grep_worker import LINE_CHARACTERS, Answer, Match, Request
from sessiontree.agent.workspace import ResolvedPath
from sessiontree.errors import PathError
from sessiontree.paths import without_folders
from sessiontree.secrets.names import has_secret_name
from sessiontree.stores.safe_files import open_folder

SECONDS = 30.0
MAX_LIMIT = 1_000
_MAX_CHARACTERS = 40_000


class GrepArguments(Struct, frozen=True, forbid_unknown_fields=True):
    pattern: Annotated[str, Meta(min_length=1, max_length=2_000, description="regular expression to match lines")]
    path: Annotated[str, Meta(min_length=1, description="file or folder to search; default: the project")] = "."
    glob: Annotated[
        str, Meta(max_length=500, description="only search files that match, such as `*.py` or `src/**/*.ts`")
    ] = ""
    ignore_case: Annotated[bool, Meta(description="ignore case")] = False
    literal: Annotated[bool, Meta(description="treat the pattern as plain text")] = False
    limit: Annotated[int, Meta(ge=1, le=MAX_LIMIT, description="maximum number of lines to return")] = 200


class GlobArguments(Struct, frozen=True, forbid_unknown_fields=True):
    pattern: Annotated[str, Meta(min_length=1, max_length=500, description="such as `*.py`, `src/**/*.ts`, `{a,b}.md`")]
    path: Annotated[str, Meta(min_length=1, description="folder to search; default: the project")] = "."
    limit: Annotated[int, Meta(ge=1, le=MAX_LIMIT, description="maximum number of files to return")] = 200


class ListArguments(Struct, frozen=True, forbid_unknown_fields=True):
    path: Annotated[str, Meta(min_length=1, description="folder to list; default: the project")] = "."
    limit: Annotated[int, Meta(ge=1, le=MAX_LIMIT, description="maximum number of names to return")] = 500


class Grep(StructTool[GrepArguments]):
    name = "grep"
    description = (
        "Find lines in files by a regular expression. Skips binary files, files that .gitignore excludes and files "
        "whose names indicate secrets; pass the path of such a file to search it."
    )
    Arguments = GrepArguments

    def prepare(self, arguments: GrepArguments, context: ToolContext) -> Plan:
        target = context.workspace.resolve(arguments.path)
        return Plan(f"grep {short(arguments.pattern)} in {target.shown}", reads=(target,))

    async def carry_out(self, arguments: GrepArguments, context: ToolContext) -> ToolOutput:
        target = _check_exists(context.workspace.resolve(arguments.path), folder=False)
        request = Request(
            target.path,
            arguments.pattern,
            arguments.glob,
            arguments.ignore_case,
            arguments.literal,
            limit=arguments.limit,
        )
        # No approval was asked for, so the project must not provide the program.
        path = without_folders(context.environment.get("PATH", os.defpath), context.workspace.folders)
        ripgrep = shutil.which("rg", path=path)
        answer = await (_search(request) if ripgrep is None else _ripgrep(ripgrep, request))
        return _lines_output(answer, target, arguments.limit)


class Glob(StructTool[GlobArguments]):
    name = "glob"
    description = (
        "Find files by path, most recently changed first. `*` matches within a folder, `**` across folders; a pattern "
        "without a slash matches file names in any folder. Skips files that .gitignore excludes."
    )
    Arguments = GlobArguments

    def prepare(self, arguments: GlobArguments, context: ToolContext) -> Plan:
        target = context.workspace.resolve(arguments.path)
        return Plan(f"glob {short(arguments.pattern)} in {target.shown}", reads=(target,))

    async def carry_out(self, arguments: GlobArguments, context: ToolContext) -> ToolOutput:
        target = _check_exists(context.workspace.resolve(arguments.path), folder=True)
        answer = await _search(Request(target.path, files=arguments.pattern, limit=arguments.limit))
        if answer.error:
            raise ArgumentsError(f"glob: invalid pattern: {answer.error}")
        if not answer.files:
            return ToolOutput(f"no file in {target.shown} matches {arguments.pattern}", details={"files": 0})
        more = f"\n\n[more than {arguments.limit:,}; narrow the pattern or raise the limit]" if answer.more else ""
        lines = "\n".join(os.path.normpath(os.path.join(target.shown, name)) for name in answer.files)
        return ToolOutput(printable(lines) + more, details={"files": len(answer.files), "more": answer.more})


class List(StructTool[ListArguments]):
    name = "ls"
    description = "List a folder: folders end with `/`, links show their target, files their size."
    Arguments = ListArguments

    def prepare(self, arguments: ListArguments, context: ToolContext) -> Plan:
        target = context.workspace.resolve(arguments.path)
        return Plan(f"ls {target.shown}", reads=(target,))

    async def carry_out(self, arguments: ListArguments, context: ToolContext) -> ToolOutput:
        target = _check_exists(context.workspace.resolve(arguments.path), folder=True)
        names: list[str] = await asyncio.to_thread(_list_names, target.path)
        more = f"\n\n[{len(names) - arguments.limit:,} more]" if len(names) > arguments.limit else ""
        lines = "\n".join(names[: arguments.limit]) or f"[{target.shown} is empty]"
        return ToolOutput(printable(lines) + more, details={"names": len(names)})


def _check_exists(target: ResolvedPath, *, folder: bool) -> ResolvedPath:
    mode = os.stat(target.path, follow_symlinks=False).st_mode
    if not stat.S_ISDIR(mode) and (folder or not stat.S_ISREG(mode)):
        raise PathError(f"{target.shown}: not a {'folder' if folder else 'file or folder'}")
    return target


def _list_names(path: str) -> list[str]:
    fd = open_folder(path)
    try:
        with os.scandir(fd) as entries:
            return [_describe(fd, entry) for entry in sorted(entries, key=lambda entry: entry.name)]
    finally:
        os.close(fd)


def _describe(folder: int, entry: os.DirEntry[str]) -> str:
    if entry.is_symlink():
        with contextlib.suppress(OSError):
            return f"{entry.name} -> {os.readlink(entry.name, dir_fd=folder)}"
    if entry.is_dir(follow_symlinks=False):
        return f"{entry.name}/"
    try:
        return f"{entry.name}  {entry.stat(follow_symlinks=False).st_size:,}"
    except OSError:
        return entry.name


def printable(text: str) -> str:
    """Replace bytes in file names that are not valid UTF-8."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _lines_output(answer: Answer, target: ResolvedPath, limit: int) -> ToolOutput:
    if answer.error:
        raise ArgumentsError(f"grep: invalid pattern: {answer.error}. Set `literal` to search for plain text")
    notes = []
    lines: list[str] = []
    length = 0
    for match in answer.matches:
        name = os.path.normpath(os.path.join(target.shown, match.file)) if match.file else target.shown
        line = f"{name}:{match.line}: {match.text}"
        length += len(line) + 1
        if length > _MAX_CHARACTERS:
            notes.append(f"only {len(lines):,} lines are shown, because they are long")
            break
        lines.append(line)
    if answer.more:
        notes.append(f"more than {limit:,} lines match; narrow the pattern or raise the limit")
    if answer.left_out:
        some = "; ".join(answer.left_out[:5])
        count = "1 file was" if len(answer.left_out) == 1 else f"{len(answer.left_out):,} files were"
        notes.append(f"{count} not searched: {some}")
    text = "\n".join(lines) or f"no line in {target.shown} matches"
    details = {"matches": len(answer.matches), "more": answer.more}
    return ToolOutput(printable(text) + "".join(f"\n\n[{note}]" for note in notes), details=details)


async def _search(request: Request) -> Answer:
    """Search in a separate process."""
    # -P: no module is imported from the current folder.
    command = (sys.executable, "-P", "-m", "sessiontree.agent.tools.grep_worker")
    code, out, err = await _run(command, msgspec.json.encode(request))
    if code:
        raise ArgumentsError(f"the search failed: {err.decode('utf-8', 'replace').strip().splitlines()[-1:]}")
    return msgspec.json.decode(out, type=Answer)


async def _ripgrep(program: str, request: Request) -> Answer:
    """Search with ripgrep, which is faster."""
    options = ["--no-config", "--line-number", "--no-heading", "--color=never", "--with-filename", "--null", "--hidden"]
    options += ["--no-messages", "--sort=path", "--glob=!.git", "--max-filesize=20M", "--no-require-git"]
    options += [f"--glob={request.files}"] if request.files else []
    options += ["--ignore-case"] if request.ignore_case else []
    options += ["--fixed-strings"] if request.literal else []
    is_file = not os.path.isdir(request.path)
    folder = os.path.dirname(request.path) if is_file else request.path
    where = os.path.basename(request.path) if is_file else "."
    command = (program, *options, "--regexp", request.pattern, "--", f"./{where}")
    code, out, err = await _run(command, b"", cwd=folder)
    if code > 1:
        return Answer(error=err.decode("utf-8", "replace").strip() or f"ripgrep failed with {code}")
    return _ripgrep_answer(out, request, is_file)


def _ripgrep_answer(out: bytes, request: Request, is_file: bool) -> Answer:
    matches: list[Match] = []
    left_out: dict[str, None] = {}
    for line in out.split(b"\n"):
        name, nul, rest = line.partition(b"\0")
        number, _, text = rest.partition(b":")
        if not nul or not number.isdigit():
            continue
        file = "" if is_file else os.path.normpath(os.fsdecode(name))
        if file and has_secret_name(os.path.join(request.path, file)):
            left_out[f"{file}: its name indicates secrets"] = None
            continue
        if len(matches) == request.limit:
            return Answer(tuple(matches), more=True, left_out=tuple(left_out))
        matches.append(Match(file, int(number), text.decode("utf-8", "replace").rstrip("\r")[:LINE_CHARACTERS]))
    return Answer(tuple(matches), left_out=tuple(left_out))


async def _run(command: Sequence[str], data: bytes, cwd: str = os.sep) -> tuple[int, bytes, bytes]:
    try:
        return await run_program(command, data, cwd=cwd, seconds=SECONDS)
    except TimeoutError:
        raise ArgumentsError(f"the search was stopped after {SECONDS:.0f} s; use a simpler pattern") from None


GREP = Grep()
GLOB = Glob()
LS = List()
