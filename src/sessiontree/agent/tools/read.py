"""`read`: a file's text, in parts where it is long, or an image. What was left out is said."""

from __future__ import annotations

import base64
import os
from typing import Annotated

from msgspec import Meta, Struct

from sessiontree.agent.text_files import decode, image_type, is_binary
from sessiontree.agent.tools.base import Plan, StructTool, ToolContext, ToolOutput, in_thread
from sessiontree.core.messages import Image
from sessiontree.stores.safe_files import open_file

LINES = 2_000
CHARACTERS = 50_000
LINE_CHARACTERS = 2_000
IMAGE_BYTES = 5_000_000
_LOOKED_THROUGH = 64 << 20
"""How far into a file is read for a line, and to count its lines."""


class ReadArguments(Struct, frozen=True, forbid_unknown_fields=True):
    path: Annotated[str, Meta(min_length=1, description="the file; relative to the project, or absolute")]
    offset: Annotated[int, Meta(ge=1, description="the first line to read, counted from 1")] = 1
    limit: Annotated[int, Meta(ge=1, description=f"how many lines to read; at most {LINES:,}")] = LINES


class Read(StructTool[ReadArguments]):
    name = "read"
    description = (
        f"Read a text file (up to {LINES:,} lines or {CHARACTERS:,} characters at a time; `offset` and `limit` choose "
        "the lines) or look at an image (PNG, JPEG, GIF, WebP). The end of the result says what was left out."
    )
    Arguments = ReadArguments

    def prepare(self, arguments: ReadArguments, context: ToolContext) -> Plan:
        place = context.workspace.place(arguments.path)
        return Plan(f"read {place.shown}", reads=(place,))

    async def carry_out(self, arguments: ReadArguments, context: ToolContext) -> ToolOutput:
        place = context.workspace.place(arguments.path)
        output: ToolOutput = await in_thread(read_part, place.path, place.shown, arguments.offset, arguments.limit)
        return output


def read_part(path: str, shown: str, offset: int, limit: int) -> ToolOutput:
    """Some lines of a file, or the image that it is."""
    with os.fdopen(open_file(path), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        head = file.read(8192)
        mime = image_type(head)
        if mime is not None:
            return _image(shown, head + file.read(IMAGE_BYTES + 1), mime, size)
        if is_binary(head):
            return ToolOutput(f"{shown}: a binary file of {size:,} bytes; it cannot be shown as text", is_error=True)
        data = head + file.read(_LOOKED_THROUGH)
    found = decode(data)
    if found is None:
        return ToolOutput(f"{shown}: cannot be read as text ({size:,} bytes)", is_error=True)
    text = found.text.encode("utf-8", found.errors).decode("utf-8", "replace")
    return _lines(shown, text, offset, min(limit, LINES), is_whole=len(data) >= size)


def _image(shown: str, data: bytes, mime: str, size: int) -> ToolOutput:
    if len(data) > IMAGE_BYTES:
        return ToolOutput(
            f"{shown}: an image of {size:,} bytes; at most {IMAGE_BYTES:,} can be looked at. Make a smaller copy of it",
            is_error=True,
        )
    image = Image(base64.b64encode(data).decode("ascii"), mime)
    return ToolOutput(f"[{shown}: {mime}, {size:,} bytes]", images=(image,))


def _lines(shown: str, text: str, offset: int, limit: int, *, is_whole: bool) -> ToolOutput:
    lines = text.split("\n")
    if lines and not lines[-1]:
        lines.pop()
    total = f"{len(lines):,}" if is_whole else f"more than {len(lines):,}"
    if not lines:
        return ToolOutput(f"[{shown} is empty]", details={"lines": 0})
    if offset > len(lines):
        return ToolOutput(f"{shown}: has {total} lines; there is no line {offset:,}", is_error=True)
    taken: list[str] = []
    length, cut = 0, 0
    for line in lines[offset - 1 : offset - 1 + limit]:
        if len(line) > LINE_CHARACTERS:
            line = f"{line[:LINE_CHARACTERS]}… [{len(line) - LINE_CHARACTERS:,} more characters in this line]"
            cut += 1
        if taken and length + len(line) > CHARACTERS:
            break
        taken.append(line)
        length += len(line) + 1
    last = offset + len(taken) - 1
    notes = [f"{cut:,} long lines were cut"] if cut else []
    if offset > 1 or last < len(lines) or not is_whole:
        notes.append(f"lines {offset:,} to {last:,} of {total}")
    if last < len(lines):
        notes.append(f"go on with offset={last + 1}")
    told = "\n".join(taken)
    note = f"\n\n[{shown}: {'; '.join(notes)}]" if notes else ""
    return ToolOutput(told + note, details={"first": offset, "last": last, "lines": len(lines), "whole": is_whole})


READ = Read()
