"""`write` and `edit`: files that appear whole or not at all, with everything kept that was not to be changed."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from typing import Annotated

from msgspec import Meta, Struct

from sessiontree.agent.async_bridge import uncancelled
from sessiontree.agent.diff import render_diff
from sessiontree.agent.text_files import FileText, decode, line_end_of, with_line_ends
from sessiontree.agent.tools.base import (
    ArgumentsError,
    FileWrite,
    Plan,
    StructTool,
    ToolContext,
    ToolOutput,
    in_thread,
    same_writes,
)
from sessiontree.agent.workspace import ResolvedPath
from sessiontree.stores.safe_files import FileContent, find_file, read_file, write_file

LARGEST = 50_000_000
"""Bytes of a file that can be changed: all of it is held in memory, and kept."""
_DIFF_CHARACTERS = 20_000
_SHOWN_LINES = 20
_SEARCHED_LINES = 20_000
_ALIKE = 0.6


class WriteArguments(Struct, frozen=True, forbid_unknown_fields=True):
    path: Annotated[str, Meta(min_length=1, description="the file; relative to the project, or absolute")]
    content: Annotated[str, Meta(description="the whole content of the file")]


class EditArguments(Struct, frozen=True, forbid_unknown_fields=True):
    path: Annotated[str, Meta(min_length=1, description="the file; relative to the project, or absolute")]
    old_text: Annotated[str, Meta(min_length=1, description="the text to replace, exactly as it stands in the file")]
    new_text: Annotated[str, Meta(description="the text to put in its place")]
    replace_all: Annotated[bool, Meta(description="replace every place, not only one")] = False


class Write(StructTool[WriteArguments]):
    name = "write"
    description = (
        "Write a whole file: a new one, with the folders it needs, or in place of one that is there. "
        "To change a part of a file, use `edit`."
    )
    changes = "files"
    Arguments = WriteArguments

    def prepare(self, arguments: WriteArguments, context: ToolContext) -> Plan:
        place = _writable(context.workspace.place(arguments.path))
        found = _checked(find_file(place.path, LARGEST + 1), place)
        data = _encoded(FileText(""), arguments.content)
        old = None if found is None else found.data
        verb = "create" if found is None else "overwrite"
        write = FileWrite(place, data, old, None if found is None else found.permissions)
        return Plan(f"{verb} {place.shown}", "files", writes=(write,))

    async def carry_out(self, arguments: WriteArguments, context: ToolContext) -> ToolOutput:
        return await _in_one_go(lambda: _carry_out(self.prepare(arguments, context), context))


class Edit(StructTool[EditArguments]):
    name = "edit"
    description = (
        "Replace a text in a file. `old_text` must stand in the file exactly as given, and only once unless "
        "`replace_all` is set: give enough lines around it. Line ends, encoding and permissions stay as they are."
    )
    changes = "files"
    Arguments = EditArguments

    def prepare(self, arguments: EditArguments, context: ToolContext) -> Plan:
        place = _writable(context.workspace.place(arguments.path))
        found = _checked(read_file(place.path, LARGEST + 1), place)
        assert found is not None
        text = decode(found.data)
        if text is None:
            raise ArgumentsError(f"edit: {place.shown}: is a binary file; there is no text to replace")
        new, places = _replaced(text, arguments, place.shown)
        times = "" if places == 1 else f" in {places:,} places"
        write = FileWrite(place, _encoded(text, new), found.data, found.permissions)
        return Plan(f"edit {place.shown}{times}", "files", writes=(write,))

    async def carry_out(self, arguments: EditArguments, context: ToolContext) -> ToolOutput:
        return await _in_one_go(lambda: _carry_out(self.prepare(arguments, context), context))


async def _in_one_go(work: Callable[[], ToolOutput]) -> ToolOutput:
    """Do it in a thread. Whoever is interrupted waits for it, so that nothing is written once they have gone on."""
    return await uncancelled(in_thread(work))


def _carry_out(plan: Plan, context: ToolContext) -> ToolOutput:
    (write,) = plan.writes
    if context.approved is not None and not same_writes(context.approved.writes, plan.writes):
        return ToolOutput(
            f"{write.place.shown}: has changed since this change was looked at; nothing was written. Read it again",
            is_error=True,
        )
    diff = render_diff(write.place.shown, write.old, write.data)
    if len(diff) > _DIFF_CHARACTERS:
        diff = f"{diff[:_DIFF_CHARACTERS]}\n[{len(diff) - _DIFF_CHARACTERS:,} more characters]\n"
    if write.old == write.data:
        return ToolOutput(f"{write.place.shown}: has that content already; nothing was written")
    made = write_file(write.place.path, write.data, write.permissions)
    done = "created" if write.old is None else "changed"
    lines = write.data.count(b"\n") + (not write.data.endswith(b"\n") and bool(write.data))
    details = {"path": write.place.path, "diff": diff, "made": made}
    return ToolOutput(f"{done} {write.place.shown} ({lines:,} lines, {len(write.data):,} bytes)", details=details)


def _checked(found: FileContent | None, place: ResolvedPath) -> FileContent | None:
    if found is not None and len(found.data) > LARGEST:
        raise ArgumentsError(f"{place.shown}: has {found.stat.st_size:,} bytes; at most {LARGEST:,} can be changed")
    return found


def _writable(place: ResolvedPath) -> ResolvedPath:
    if place.path.endswith("/"):
        raise ArgumentsError(f"{place.shown}: is the root of the file system, no file")
    return place


def _encoded(like: FileText, text: str) -> bytes:
    try:
        return like.encode(text)
    except UnicodeEncodeError as error:
        wrong = text[error.start : error.start + 1]
        raise ArgumentsError(
            f"the text has the character {wrong!r}, which {like.encoding} cannot hold; nothing was written"
        ) from None


def _replaced(found: FileText, arguments: EditArguments, shown: str) -> tuple[str, int]:
    """The text after the edit, and in how many places it was changed."""
    text, old, new = found.text, arguments.old_text, arguments.new_text
    try:
        new.encode()
    except UnicodeEncodeError:
        raise ArgumentsError(
            "edit: `new_text` has half of a character (a lone surrogate); nothing was written"
        ) from None
    # Models say LF. Where only some lines end with CRLF, that is tried when LF is not found.
    if line_end_of(text) == "\r\n" or (old not in text and "\r\n" in text):
        old, new = with_line_ends(old, "\r\n"), with_line_ends(new, "\r\n")
    if old == new:
        raise ArgumentsError("edit: `old_text` and `new_text` are the same; there is nothing to change")
    places = text.count(old)
    if places == 0:
        raise ArgumentsError(f"edit: {shown}: `old_text` does not stand in it.{_nearest(text, arguments.old_text)}")
    if places > 1 and not arguments.replace_all:
        lines = ", ".join(str(line) for line in _line_numbers(text, old)[:10])
        raise ArgumentsError(
            f"edit: {shown}: `old_text` stands in it {places} times (lines {lines}{', …' if places > 10 else ''}). "
            "Give more of the text around the place that is meant, or set `replace_all`"
        )
    return text.replace(old, new), places


def _line_numbers(text: str, wanted: str) -> list[int]:
    numbers: list[int] = []
    at = text.find(wanted)
    while at >= 0:
        numbers.append(text.count("\n", 0, at) + 1)
        at = text.find(wanted, at + len(wanted))
    return numbers


def _nearest(text: str, wanted: str) -> str:
    """Where something like the wanted text stands, for a model to see what it got wrong."""
    lines = [line.rstrip("\r") for line in text.split("\n")[:_SEARCHED_LINES]]
    sought = [line.rstrip("\r") for line in wanted.strip("\n").split("\n")]
    loose = [" ".join(line.split()) for line in lines]
    at = _find_block(loose, [" ".join(line.split()) for line in sought])
    if at is not None:
        return f" The same stands in line {at + 1} with other white space:\n{_block(lines, at, len(sought))}"
    key = max((line.strip() for line in sought), key=len)
    best, ratio = None, _ALIKE
    matcher = difflib.SequenceMatcher(autojunk=False)
    matcher.set_seq2(key[:200])
    for number, line in enumerate(lines):
        matcher.set_seq1(line.strip()[:200])
        if matcher.real_quick_ratio() > ratio and matcher.quick_ratio() > ratio and (found := matcher.ratio()) > ratio:
            best, ratio = number, found
    if best is None:
        return " Nothing like it does either; read the file again"
    start = max(0, best - next(at for at, line in enumerate(sought) if line.strip() == key))
    return f" The nearest stands in line {start + 1}:\n{_block(lines, start, len(sought))}"


def _find_block(lines: Sequence[str], block: Sequence[str]) -> int | None:
    if not any(block):
        return None
    first = block[0]
    for at, line in enumerate(lines):
        if line == first and list(lines[at : at + len(block)]) == list(block):
            return at
    return None


def _block(lines: Sequence[str], start: int, count: int) -> str:
    shown = [line[:300] for line in lines[start : start + min(count, _SHOWN_LINES)]]
    return "\n".join(line.encode("utf-8", "replace").decode() for line in shown)


WRITE = Write()
EDIT = Edit()
