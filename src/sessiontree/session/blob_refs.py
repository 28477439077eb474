"""Blob references in entries: move large content out of an entry and back in. Callers pass in the blob access.

* An image of 1,024 or more base64 characters: its bytes move to a blob, and `data` becomes `blob:sha256:<hex>`. Base64
  has no colon, so that value is unambiguous.
* Any other string of more than 500,000 characters, and a pasted image of 1,024 or more in a session's settings: the
  text moves to a blob, and the string becomes such a reference. A user's text may look like a reference as well, so the
  entry lists the replaced strings under `sessiontreeBlobs`, as JSON pointers.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, Literal

from sessiontree.core.jsonio import parse_json, render_json
from sessiontree.errors import DamagedError
from sessiontree.stores.contract import BlobStore

LargeContent = Literal["blobs", "truncate", "inline"]
"""How large content is written: to blobs, truncated, or unchanged in its line."""

IMAGE_CHARACTERS = 1_024
STRING_CHARACTERS = 500_000
PREFIX = "blob:sha256:"
BLOB_POINTERS = "sessiontreeBlobs"
"""Reserved field of an entry: JSON pointers of the strings that were replaced by references."""

_PASTED = "/config/pastedImageMap/"
_REFERENCE = r"blob:sha256:([0-9a-f]{64})\Z"
_REFERENCES = rb"blob:sha256:([0-9a-f]{64})"

Put = Callable[[bytes], str]
Get = Callable[[str], bytes | None]


def may_hold_large_content(line: bytes) -> bool:
    """Whether a rendered entry may hold large content: a cheap test that excludes almost all entries."""
    return len(line) >= IMAGE_CHARACTERS and (
        len(line) > STRING_CHARACTERS or b'"image"' in line or b'"pastedImageMap":{"' in line
    )


def externalize(fields: dict[str, Any], put: Put, notice: str | None = None) -> dict[str, Any]:
    """Copy an entry with its large content moved to blobs.

    With a notice, only images are moved: the client resolves no references in text. Longer text is truncated and ends
    with the notice, as the client itself writes it; the number of lines next to it is counted again.
    """
    copy: dict[str, Any] = parse_json(render_json(fields))
    pointers: list[str] = []
    for container, key, text, pointer in _iter_strings(copy):
        image = _base64_bytes(text) if _is_image_data(container, key) and len(text) >= IMAGE_CHARACTERS else None
        if image is not None:
            container[key] = PREFIX + put(image)
        elif notice is not None and not pointer.startswith("/config/"):
            if len(text) > STRING_CHARACTERS:
                container[key] = text[: STRING_CHARACTERS - len(notice)] + notice
                if key == "content" and isinstance(container, dict) and "lineCount" in container:
                    container["lineCount"] = container[key].count("\n") + 1
        elif len(text) > STRING_CHARACTERS or (len(text) >= IMAGE_CHARACTERS and pointer.startswith(_PASTED)):
            container[key] = PREFIX + put(text.encode("utf-8", "surrogatepass"))
            pointers.append(pointer)
    if pointers:
        copy[BLOB_POINTERS] = pointers
    return copy


def truncate(fields: dict[str, Any]) -> dict[str, Any]:
    """Copy an entry with long strings truncated and marked by a notice. The rest of each string is lost."""
    copy: dict[str, Any] = parse_json(render_json(fields))
    for container, key, text, _ in _iter_strings(copy):
        if len(text) > STRING_CHARACTERS:
            notice = f"\n\n[sessiontree left out {len(text) - STRING_CHARACTERS:,} or more characters here]"
            container[key] = text[: STRING_CHARACTERS - len(notice)] + notice
    return copy


def copy_blobs(lines: Iterable[bytes], source: BlobStore, target: BlobStore) -> Iterator[bytes]:
    """Pass lines on and copy the blobs they refer to from one store to another, except missing and damaged ones."""
    for line in lines:
        for name in re.findall(_REFERENCES, line):
            with suppress(DamagedError):
                content = source.get(name.decode())
                if content is not None:
                    target.put(content)
        yield line


def restore(fields: dict[str, Any], get: Get) -> dict[str, Any]:
    """Undo `externalize` in place. Where `get` returns None, the reference stays."""
    listed = fields.pop(BLOB_POINTERS, None)
    pointers = {pointer for pointer in listed if isinstance(pointer, str)} if isinstance(listed, list) else set()
    for container, key, text, pointer in _iter_strings(fields):
        is_text = pointer in pointers or key == "image_url"
        found = re.match(_REFERENCE, text) if is_text or _is_image_data(container, key) else None
        content = get(found[1]) if found else None
        if content is None:
            continue
        container[key] = _text(content) if is_text else _base64_of(content)
    return fields


def _iter_strings(fields: dict[str, Any]) -> Iterator[tuple[Any, Any, str, str]]:
    """Iterate over the strings in decoded JSON: (container, key or index, string, JSON pointer)."""
    # An explicit stack instead of recursion: entries may be nested deeper than Python's recursion limit.
    pending: list[tuple[Any, str]] = [(fields, "")]
    while pending:
        container, pointer = pending.pop()
        for key, value in list(container.items() if isinstance(container, dict) else enumerate(container)):
            if isinstance(value, str):
                yield container, key, value, f"{pointer}/{_escaped(key)}"
            elif isinstance(value, dict | list):
                pending.append((value, f"{pointer}/{_escaped(key)}"))


def _escaped(key: object) -> str:
    return str(key).replace("~", "~0").replace("/", "~1")


def _is_image_data(container: Any, key: object) -> bool:
    kind = container.get("type") if isinstance(container, dict) else None
    return (key == "data" and kind == "image") or (key == "result" and kind == "image_generation_call")


def _text(content: bytes) -> str:
    try:
        return content.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:  # written by another program: show what can be decoded
        return content.decode("utf-8", "replace")


def _base64_of(content: bytes) -> str:
    return binascii.b2a_base64(content, newline=False).decode("ascii")


def _base64_bytes(value: str) -> bytes | None:
    """Decode base64, but only if encoding the bytes again returns exactly the same characters."""
    try:
        content = binascii.a2b_base64(value, strict_mode=True)
    except (binascii.Error, ValueError):
        return None
    return content if _base64_of(content) == value else None
