"""`grep`, `glob` and `ls`: looking for lines, files, and what is in a folder. `.gitignore` is respected."""

from __future__ import annotations

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
from sessiontree.agent.tools.base import ArgumentsError, Plan, StructTool, ToolContext, ToolOutput, in_thread, short
from sessiontree.agent.tools.grep_worker import LINE_CHARACTERS, Answer, Match, Request
from sessiontree.agent.workspace import ResolvedPath
from sessiontree.errors import PathError
from sessiontree.secrets.names import has_secret_name
from sessiontree.stores.safe_files import open_folder

SECONDS = 30.0
_MOST = 1_000
_CHARACTERS = 40_000


class GrepArguments(Struct, frozen=True, forbid_unknown_fields=True):
    pattern: Annotated[str, Meta(min_length=1, max_length=2_000, description="a regular expression for lines")]
    path: Annotated[str, Meta(min_length=1, description="the file or folder to look in; the project if not given")] = (
        "."
    )
    glob: Annotated[str, Meta(max_length=500, description="only files like this, as `*.py` or `src/**/*.ts`")] = ""
    ignore_case: Annotated[bool, Meta(description="take capital and small letters for the same")] = False
    literal: Annotated[bool, Meta(description="take the pattern for plain text")] = False
    limit: Annotated[int, Meta(ge=1, le=_MOST, description="how many lines to give at most")] = 200


class GlobArguments(Struct, frozen=True, forbid_unknown_fields=True):
    pattern: Annotated[str, Meta(min_length=1, max_length=500, description="as `*.py`, `src/**/*.ts`, `{a,b}.md`")]
    path: Annotated[str, Meta(min_length=1, description="the folder to look in; the project if not given")] = "."
    limit: Annotated[int, Meta(ge=1, le=_MOST, description="how many files to give at most")] = 200


class ListArguments(Struct, frozen=True, forbid_unknown_fields=True):
    path: Annotated[str, Meta(min_length=1, description="the folder; the project if not given")] = "."
    limit: Annotated[int, Meta(ge=1, le=_MOST, description="how many names to give at most")] = 500


class Grep(StructTool[GrepArguments]):
    name = "grep"
    description = (
        "Find lines in files by a regular expression. Files that .gitignore leaves out, binary files and files whose "
        "names say that they hold secrets are not looked into; name a file to look into it all the same."
    )
    Arguments = GrepArguments

    def prepare(self, arguments: GrepArguments, context: ToolContext) -> Plan:
        place = context.workspace.place(arguments.path)
        return Plan(f"grep {short(arguments.pattern)} in {place.shown}", reads=(place,))

    async def carry_out(self, arguments: GrepArguments, context: ToolContext) -> ToolOutput:
        place = _there(context.workspace.place(arguments.path), folder=False)
        request = Request(
            place.path,
            arguments.pattern,
            arguments.glob,
            arguments.ignore_case,
            arguments.literal,
            limit=arguments.limit,
        )
        ripgrep = shutil.which("rg", path=context.environment.get("PATH"))
        answer = await (_search(request) if ripgrep is None else _ripgrep(ripgrep, request))
        return _lines_output(answer, place, arguments.limit)


class Glob(StructTool[GlobArguments]):
    name = "glob"
    description = (
        "Find files by their paths, the last changed first. `*` stays within a folder, `**` goes over folders; a "
        "pattern without a slash is for names in any folder. Files that .gitignore leaves out are not found."
    )
    Arguments = GlobArguments

    def prepare(self, arguments: GlobArguments, context: ToolContext) -> Plan:
        place = context.workspace.place(arguments.path)
        return Plan(f"glob {short(arguments.pattern)} in {place.shown}", reads=(place,))

    async def carry_out(self, arguments: GlobArguments, context: ToolContext) -> ToolOutput:
        place = _there(context.workspace.place(arguments.path), folder=True)
        answer = await _search(Request(place.path, files=arguments.pattern, limit=arguments.limit))
        if answer.error:
            raise ArgumentsError(f"glob: the pattern cannot be used: {answer.error}")
        if not answer.files:
            return ToolOutput(f"no file in {place.shown} is like {arguments.pattern}", details={"files": 0})
        more = f"\n\n[more than {arguments.limit:,}; narrow the pattern or raise the limit]" if answer.more else ""
        told = "\n".join(os.path.normpath(os.path.join(place.shown, name)) for name in answer.files)
        return ToolOutput(printable(told) + more, details={"files": len(answer.files), "more": answer.more})


class List(StructTool[ListArguments]):
    name = "ls"
    description = "List a folder: folders end with `/`, links say where they lead, files have their size."
    Arguments = ListArguments

    def prepare(self, arguments: ListArguments, context: ToolContext) -> Plan:
        place = context.workspace.place(arguments.path)
        return Plan(f"ls {place.shown}", reads=(place,))

    async def carry_out(self, arguments: ListArguments, context: ToolContext) -> ToolOutput:
        place = _there(context.workspace.place(arguments.path), folder=True)
        names: list[str] = await in_thread(_listed, place.path)
        more = f"\n\n[{len(names) - arguments.limit:,} more]" if len(names) > arguments.limit else ""
        told = "\n".join(names[: arguments.limit]) or f"[{place.shown} is empty]"
        return ToolOutput(printable(told) + more, details={"names": len(names)})


def _there(place: ResolvedPath, *, folder: bool) -> ResolvedPath:
    mode = os.stat(place.path, follow_symlinks=False).st_mode
    if not stat.S_ISDIR(mode) and (folder or not stat.S_ISREG(mode)):
        raise PathError(f"{place.shown}: is no {'folder' if folder else 'file or folder'}")
    return place


def _listed(path: str) -> list[str]:
    fd = open_folder(path)
    try:
        with os.scandir(fd) as entries:
            return [_described(fd, entry) for entry in sorted(entries, key=lambda entry: entry.name)]
    finally:
        os.close(fd)


def _described(folder: int, entry: os.DirEntry[str]) -> str:
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
    """File names as text: what is no UTF-8 in them is replaced."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _lines_output(answer: Answer, place: ResolvedPath, limit: int) -> ToolOutput:
    if answer.error:
        raise ArgumentsError(f"grep: the pattern cannot be used: {answer.error}. `literal` takes it for plain text")
    notes = []
    told: list[str] = []
    length = 0
    for match in answer.matches:
        name = os.path.normpath(os.path.join(place.shown, match.file)) if match.file else place.shown
        line = f"{name}:{match.line}: {match.text}"
        length += len(line) + 1
        if length > _CHARACTERS:
            notes.append(f"only {len(told):,} lines are shown, as they are long")
            break
        told.append(line)
    if answer.more:
        notes.append(f"more than {limit:,} lines fit; narrow the pattern or raise the limit")
    if answer.left_out:
        some = "; ".join(answer.left_out[:5])
        notes.append(f"{len(answer.left_out):,} files were not looked into: {some}")
    text = "\n".join(told) or f"no line in {place.shown} fits"
    details = {"matches": len(answer.matches), "more": answer.more}
    return ToolOutput(printable(text) + "".join(f"\n\n[{note}]" for note in notes), details=details)


async def _search(request: Request) -> Answer:
    """Search in a process of its own."""
    command = (sys.executable, "-P", "-m", "sessiontree.agent.tools.grep_worker")
    code, out, err = await _run(command, msgspec.json.encode(request))
    if code:
        raise ArgumentsError(f"the search failed: {err.decode('utf-8', 'replace').strip().splitlines()[-1:]}")
    return msgspec.json.decode(out, type=Answer)


async def _ripgrep(program: str, request: Request) -> Answer:
    """The same by ripgrep, which is faster."""
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
        if file and has_secret_name(file):
            left_out[f"{file}: its name indicates secrets"] = None
            continue
        if len(matches) == request.limit:
            return Answer(tuple(matches), more=True, left_out=tuple(left_out))
        matches.append(Match(file, int(number), text.decode("utf-8", "replace").rstrip("\r")[:LINE_CHARACTERS]))
    return Answer(tuple(matches), left_out=tuple(left_out))


async def _run(command: Sequence[str], data: bytes, cwd: str = os.sep) -> tuple[int, bytes, bytes]:
    """Run a program of ours until it ends, the time is up, or the task is cancelled."""
    try:
        return await run_program(command, data, cwd=cwd, seconds=SECONDS)
    except TimeoutError:
        raise ArgumentsError(
            f"the search took longer than {SECONDS:.0f} s and was ended; use a simpler pattern"
        ) from None


GREP = Grep()
GLOB = Glob()
LS = List()
