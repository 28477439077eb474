"""`read`: returns the text of a file, in parts if it is long, or an image."""

from __future__ import annotations

import asyncio
import base64
import io
import os
from typing import Annotated, BinaryIO

from msgspec import Meta, Struct

from sessiontree.agent.text_files import decode, is_binary, render_size
from sessiontree.agent.tools.base import Plan, StructTool, ToolContext, ToolOutput
from sessiontree.core.messages import Image
from sessiontree.errors import DamagedError, NotFoundError
from sessiontree.providers.turns import image_type
from sessiontree.session.blob_refs import PREFIX
from sessiontree.stores.safe_files import open_file

LINES = 2_000
CHARACTERS = 50_000
LINE_CHARACTERS = 2_000
IMAGE_BYTES = 5_000_000
_MAX_READ = 64 << 20
"""Bytes that are read to find a line and to count lines."""


class ReadArguments(Struct, frozen=True, forbid_unknown_fields=True):
    path: Annotated[str, Meta(min_length=1, description="path of the file, relative to the project or absolute")]
    offset: Annotated[int, Meta(ge=1, description="first line to read, starting at 1")] = 1
    limit: Annotated[int, Meta(ge=1, description=f"number of lines to read, at most {LINES:,}")] = LINES


class Read(StructTool[ReadArguments]):
    name = "read"
    description = (
        f"Read a text file (up to {LINES:,} lines or {CHARACTERS:,} characters at a time; `offset` and `limit` select "
        "lines) or view an image (PNG, JPEG, GIF, WebP). A note at the end of the result lists missing lines."
    )
    Arguments = ReadArguments

    def prepare(self, arguments: ReadArguments, context: ToolContext) -> Plan:
        if _is_output_blob(arguments.path, context):
            return Plan(f"read {arguments.path}")
        target = context.workspace.resolve(arguments.path)
        return Plan(f"read {target.shown}", reads=(target,))

    async def carry_out(self, arguments: ReadArguments, context: ToolContext) -> ToolOutput:
        if _is_output_blob(arguments.path, context):
            return await asyncio.to_thread(_read_blob, arguments, context)
        target = context.workspace.resolve(arguments.path)
        return await asyncio.to_thread(read_part, target.path, target.shown, arguments.offset, arguments.limit)


def _is_output_blob(path: str, context: ToolContext) -> bool:
    """Whether a path names long output that is in the blobs of the session's repository."""
    return path.startswith(PREFIX) and context.outputs is not None and not isinstance(context.outputs, str)


def _read_blob(arguments: ReadArguments, context: ToolContext) -> ToolOutput:
    assert context.outputs is not None
    assert not isinstance(context.outputs, str)
    try:
        data = context.outputs.get(arguments.path.removeprefix(PREFIX))
    except (NotFoundError, DamagedError) as error:
        return ToolOutput(str(error), is_error=True)
    if data is None:
        return ToolOutput(f"{arguments.path}: no such output", is_error=True)
    return _read_stream(io.BytesIO(data), len(data), arguments.path, arguments.offset, arguments.limit)


def read_part(path: str, shown: str, offset: int, limit: int) -> ToolOutput:
    """Read lines of a text file, or an image."""
    with os.fdopen(open_file(path), "rb") as file:
        return _read_stream(file, os.fstat(file.fileno()).st_size, shown, offset, limit)


def _read_stream(file: BinaryIO, size: int, shown: str, offset: int, limit: int) -> ToolOutput:
    head = file.read(8192)
    mime = image_type(head)
    if mime is not None:
        return _image(shown, head + file.read(IMAGE_BYTES + 1), mime, size)
    if is_binary(head):
        return ToolOutput(f"{shown}: a binary file of {render_size(size)}; not shown as text", is_error=True)
    data = head + file.read(_MAX_READ)
    found = decode(data)
    if found is None:
        return ToolOutput(f"{shown}: not readable as text ({render_size(size)})", is_error=True)
    text = found.text.encode("utf-8", found.errors).decode("utf-8", "replace")
    return _lines(shown, text, offset, min(limit, LINES), is_complete=len(data) >= size)


def _image(shown: str, data: bytes, mime: str, size: int) -> ToolOutput:
    if len(data) > IMAGE_BYTES:
        return ToolOutput(
            f"{shown}: an image of {size:,} bytes; at most {IMAGE_BYTES:,} are accepted. Make a smaller copy",
            is_error=True,
        )
    image = Image(base64.b64encode(data).decode("ascii"), mime)
    return ToolOutput(f"[{shown}: {mime}, {size:,} bytes]", images=(image,))


def _lines(shown: str, text: str, offset: int, limit: int, *, is_complete: bool) -> ToolOutput:
    lines = text.split("\n")
    if lines and not lines[-1]:
        lines.pop()
    total = f"{len(lines):,}" if is_complete else f"more than {len(lines):,}"
    if not lines:
        return ToolOutput(f"[{shown} is empty]", details={"lines": 0})
    if offset > len(lines):
        return ToolOutput(
            f"{shown}: has only {total} {'line' if total == '1' else 'lines'}; line {offset:,} does not exist",
            is_error=True,
        )
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
    notes = [f"{cut:,} long {'line was' if cut == 1 else 'lines were'} cut"] if cut else []
    if offset > 1 or last < len(lines) or not is_complete:
        notes.append(f"lines {offset:,} to {last:,} of {total}")
    if last < len(lines):
        notes.append(f"continue with offset={last + 1}")
    shown_text = "\n".join(taken)
    note = f"\n\n[{shown}: {'; '.join(notes)}]" if notes else ""
    return ToolOutput(
        shown_text + note, details={"first": offset, "last": last, "lines": len(lines), "whole": is_complete}
    )


READ = Read()
