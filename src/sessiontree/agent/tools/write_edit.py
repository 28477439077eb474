"""`write` and `edit`: files are replaced atomically; encoding, line endings and permissions are preserved."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Callable, Sequence
from typing import Annotated

from msgspec import Meta, Struct

from sessiontree.agent.async_bridge import uncancelled
from sessiontree.agent.text_files import FileText, decode, line_end_of, render_diff, render_size, with_line_ends
from sessiontree.agent.tools.base import (
    ArgumentsError,
    FileWrite,
    Plan,
    StructTool,
    ToolContext,
    ToolOutput,
    same_writes,
)
from sessiontree.agent.workspace import ResolvedPath
from sessiontree.stores.safe_files import FileContent, find_file, read_file, write_file

MAX_BYTES = 50_000_000
"""The largest file that can be changed: it is held in memory, and stored in the checkpoint."""
_DIFF_CHARACTERS = 20_000
_SHOWN_LINES = 20
_MAX_SEARCHED = 20_000
_MIN_RATIO = 0.6


class WriteArguments(Struct, frozen=True, forbid_unknown_fields=True):
    path: Annotated[str, Meta(min_length=1, description="path of the file, relative to the project or absolute")]
    content: Annotated[str, Meta(description="the complete content of the file")]


class EditArguments(Struct, frozen=True, forbid_unknown_fields=True):
    path: Annotated[str, Meta(min_length=1, description="path of the file, relative to the project or absolute")]
    old_text: Annotated[str, Meta(min_length=1, description="the text to replace, exactly as in the file")]
    new_text: Annotated[str, Meta(description="the replacement")]
    replace_all: Annotated[bool, Meta(description="replace all occurrences")] = False


class Write(StructTool[WriteArguments]):
    name = "write"
    description = (
        "Write a complete file: creates it, with missing folders, or replaces an existing one. "
        "Use `edit` to change part of a file."
    )
    changes = "files"
    Arguments = WriteArguments

    def prepare(self, arguments: WriteArguments, context: ToolContext) -> Plan:
        target = _check_file(context.workspace.resolve(arguments.path))
        found = _check_size(find_file(target.path, MAX_BYTES + 1), target)
        data = _encode(FileText(""), arguments.content)
        old = None if found is None else found.data
        verb = "create" if found is None else "overwrite"
        write = FileWrite(target, data, old, None if found is None else found.permissions)
        return Plan(f"{verb} {target.shown}", "files", writes=(write,))

    async def carry_out(self, arguments: WriteArguments, context: ToolContext) -> ToolOutput:
        return await _in_thread(lambda: _carry_out(self.prepare(arguments, context), context))


class Edit(StructTool[EditArguments]):
    name = "edit"
    description = (
        "Replace text in a file. `old_text` must occur in the file exactly as given, and only once unless "
        "`replace_all` is set: include enough surrounding lines. Line endings, encoding and permissions are preserved."
    )
    changes = "files"
    Arguments = EditArguments

    def prepare(self, arguments: EditArguments, context: ToolContext) -> Plan:
        target = _check_file(context.workspace.resolve(arguments.path))
        found = _check_size(read_file(target.path, MAX_BYTES + 1), target)
        assert found is not None
        text = decode(found.data)
        if text is None:
            raise ArgumentsError(f"edit: {target.shown}: is a binary file, which cannot be edited as text")
        new, count = _replace(text, arguments, target.shown)
        times = "" if count == 1 else f" in {count:,} places"
        write = FileWrite(target, _encode(text, new), found.data, found.permissions)
        return Plan(f"edit {target.shown}{times}", "files", writes=(write,))

    async def carry_out(self, arguments: EditArguments, context: ToolContext) -> ToolOutput:
        return await _in_thread(lambda: _carry_out(self.prepare(arguments, context), context))


async def _in_thread(work: Callable[[], ToolOutput]) -> ToolOutput:
    # Not cancelled: an interrupted run must not continue while this may still write.
    return await uncancelled(asyncio.to_thread(work))


def _carry_out(plan: Plan, context: ToolContext) -> ToolOutput:
    (write,) = plan.writes
    if context.approved is not None and not same_writes(context.approved.writes, plan.writes):
        return ToolOutput(
            f"{write.target.shown}: has changed since the approval; nothing was written. Read it again",
            is_error=True,
        )
    diff = render_diff(write.target.shown, write.old, write.data)
    if len(diff) > _DIFF_CHARACTERS:
        diff = f"{diff[:_DIFF_CHARACTERS]}\n[{len(diff) - _DIFF_CHARACTERS:,} more characters]\n"
    if write.old == write.data:
        return ToolOutput(f"{write.target.shown}: already has this content; nothing was written")
    made = write_file(write.target.path, write.data, write.permissions)
    done = "created" if write.old is None else "changed"
    lines = write.data.count(b"\n") + (not write.data.endswith(b"\n") and bool(write.data))
    details = {"path": write.target.path, "diff": diff, "made": made}
    return ToolOutput(
        f"{done} {write.target.shown} ({lines:,} {'line' if lines == 1 else 'lines'}, {render_size(len(write.data))})",
        details=details,
    )


def _check_size(found: FileContent | None, target: ResolvedPath) -> FileContent | None:
    if found is not None and len(found.data) > MAX_BYTES:
        raise ArgumentsError(f"{target.shown}: has {found.stat.st_size:,} bytes; at most {MAX_BYTES:,} can be changed")
    return found


def _check_file(target: ResolvedPath) -> ResolvedPath:
    if target.path.endswith("/"):
        raise ArgumentsError(f"{target.shown}: is the root folder, not a file")
    return target


def _encode(like: FileText, text: str) -> bytes:
    try:
        return like.encode(text)
    except UnicodeEncodeError as error:
        wrong = text[error.start : error.start + 1]
        raise ArgumentsError(
            f"the text has the character {wrong!r}, which {like.encoding} cannot encode; nothing was written"
        ) from None


def _replace(found: FileText, arguments: EditArguments, shown: str) -> tuple[str, int]:
    """The text after the edit, and the number of replacements."""
    text, old, new = found.text, arguments.old_text, arguments.new_text
    try:
        new.encode()
    except UnicodeEncodeError:
        raise ArgumentsError(
            "edit: `new_text` contains a lone surrogate, which is not a valid character; nothing was written"
        ) from None
    # Models write LF. Where only some lines end with CRLF, that is tried if LF is not found.
    if line_end_of(text) == "\r\n" or (old not in text and "\r\n" in text):
        old, new = with_line_ends(old, "\r\n"), with_line_ends(new, "\r\n")
    if old == new:
        raise ArgumentsError("edit: `old_text` and `new_text` are the same; nothing to change")
    count = text.count(old)
    if count == 0:
        raise ArgumentsError(f"edit: {shown}: `old_text` was not found.{_describe_nearest(text, arguments.old_text)}")
    if count > 1 and not arguments.replace_all:
        lines = ", ".join(str(line) for line in _line_numbers(text, old)[:10])
        raise ArgumentsError(
            f"edit: {shown}: `old_text` occurs {count} times (lines {lines}{', …' if count > 10 else ''}). "
            "Include more surrounding text, or set `replace_all`"
        )
    return text.replace(old, new), count


def _line_numbers(text: str, wanted: str) -> list[int]:
    numbers: list[int] = []
    at = text.find(wanted)
    while at >= 0:
        numbers.append(text.count("\n", 0, at) + 1)
        at = text.find(wanted, at + len(wanted))
    return numbers


def _describe_nearest(text: str, wanted: str) -> str:
    """Describe the most similar text in the file, so that the model can see its mistake."""
    lines = [line.rstrip("\r") for line in text.split("\n")[:_MAX_SEARCHED]]
    sought = [line.rstrip("\r") for line in wanted.strip("\n").split("\n")]
    loose = [" ".join(line.split()) for line in lines]
    at = _find_block(loose, [" ".join(line.split()) for line in sought])
    if at is not None:
        return f" Line {at + 1} has the same text with different whitespace:\n{_block(lines, at, len(sought))}"
    key = max((line.strip() for line in sought), key=len)
    best, ratio = None, _MIN_RATIO
    matcher = difflib.SequenceMatcher(autojunk=False)
    matcher.set_seq2(key[:200])
    for number, line in enumerate(lines):
        matcher.set_seq1(line.strip()[:200])
        if matcher.real_quick_ratio() > ratio and matcher.quick_ratio() > ratio and (found := matcher.ratio()) > ratio:
            best, ratio = number, found
    if best is None:
        return " Nothing similar was found either; read the file again"
    start = max(0, best - next(at for at, line in enumerate(sought) if line.strip() == key))
    return f" The most similar text is in line {start + 1}:\n{_block(lines, start, len(sought))}"


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
