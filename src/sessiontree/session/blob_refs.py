"""Large content in and out of entries: what goes to a blob, and how a line refers to it. Pure; the blobs are passed in.

* An image of 1,024 base64 characters and more: its bytes go to a blob, `data` becomes `blob:sha256:<hex>`. Base64 has
  no colon, so such a value cannot be meant otherwise.
* Any other string of more than 500,000 characters: its text goes to a blob and the string becomes such a reference,
  too. So does a pasted image in the settings of a session, from 1,024 characters on. As a person may well write a text
  that looks like a reference, the entry lists the places it means under `sessiontreeBlobs`, as JSON pointers.

Entries are walked with a list of what is still to be looked at, not by recursion: they may be nested deeper than Python
can call.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable, Iterator
from typing import Any, Literal

from sessiontree.core.jsonio import parse_json, render_json

LargeContent = Literal["blobs", "truncate", "inline"]
"""Where large content goes: to blobs, nowhere (it is cut), or on its line like everything else."""

IMAGE_CHARACTERS = 1_024
STRING_CHARACTERS = 500_000
PREFIX = "blob:sha256:"
BLOB_POINTERS = "sessiontreeBlobs"
"""The field of an entry that lists the strings which stand for blobs. Reserved: nobody else may write it."""

_PASTED = "/config/pastedImageMap/"
_REFERENCE = r"blob:sha256:([0-9a-f]{64})\Z"

Put = Callable[[bytes], str]
Get = Callable[[str], bytes | None]


def may_hold_large_content(line: bytes) -> bool:
    """A cheap look at a rendered entry that saves the walk through almost every one."""
    return len(line) >= IMAGE_CHARACTERS and (
        len(line) > STRING_CHARACTERS or b'"image"' in line or b'"pastedImageMap":{"' in line
    )


def externalize(fields: dict[str, Any], put: Put) -> dict[str, Any]:
    """A copy of an entry with large content put into blobs."""
    copy: dict[str, Any] = parse_json(render_json(fields))
    places: list[str] = []
    for holder, key, text, place in _iter_strings(copy):
        image = _base64_bytes(text) if _is_image_data(holder, key) and len(text) >= IMAGE_CHARACTERS else None
        if image is not None:
            holder[key] = PREFIX + put(image)
        elif len(text) > STRING_CHARACTERS or (len(text) >= IMAGE_CHARACTERS and place.startswith(_PASTED)):
            holder[key] = PREFIX + put(text.encode("utf-8", "surrogatepass"))
            places.append(place)
    if places:
        copy[BLOB_POINTERS] = places
    return copy


def truncate(fields: dict[str, Any]) -> dict[str, Any]:
    """A copy of an entry with strings that are too long cut off, with a notice at the cut. What is cut is lost."""
    copy: dict[str, Any] = parse_json(render_json(fields))
    for holder, key, text, _ in _iter_strings(copy):
        if len(text) > STRING_CHARACTERS:
            notice = f"\n\n[sessiontree left out {len(text) - STRING_CHARACTERS:,} or more characters here]"
            holder[key] = text[: STRING_CHARACTERS - len(notice)] + notice
    return copy


def restore(fields: dict[str, Any], get: Get) -> dict[str, Any]:
    """The entry as it was before `externalize`, changed in place. Where `get` gives None, the reference stays."""
    listed = fields.pop(BLOB_POINTERS, None)
    places = {place for place in listed if isinstance(place, str)} if isinstance(listed, list) else set()
    for holder, key, text, place in _iter_strings(fields):
        is_text = place in places or key == "image_url"
        found = re.match(_REFERENCE, text) if is_text or _is_image_data(holder, key) else None
        content = get(found[1]) if found else None
        if content is None:
            continue
        holder[key] = _text(content) if is_text else _base64_of(content)
    return fields


def _iter_strings(fields: dict[str, Any]) -> Iterator[tuple[Any, Any, str, str]]:
    """Every string in decoded JSON: what holds it, under which key or number, the string, its JSON pointer."""
    pending: list[tuple[Any, str]] = [(fields, "")]
    while pending:
        holder, place = pending.pop()
        for key, value in list(holder.items() if isinstance(holder, dict) else enumerate(holder)):
            if isinstance(value, str):
                yield holder, key, value, f"{place}/{_escaped(key)}"
            elif isinstance(value, dict | list):
                pending.append((value, f"{place}/{_escaped(key)}"))


def _escaped(key: object) -> str:
    return str(key).replace("~", "~0").replace("/", "~1")


def _is_image_data(holder: Any, key: object) -> bool:
    kind = holder.get("type") if isinstance(holder, dict) else None
    return (key == "data" and kind == "image") or (key == "result" and kind == "image_generation_call")


def _text(content: bytes) -> str:
    try:
        return content.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:  # not of our making; what is text in it is shown
        return content.decode("utf-8", "replace")


def _base64_of(content: bytes) -> str:
    return binascii.b2a_base64(content, newline=False).decode("ascii")


def _base64_bytes(value: str) -> bytes | None:
    """The bytes behind some base64, if encoding them again gives exactly the same characters."""
    try:
        content = binascii.a2b_base64(value, strict_mode=True)
    except (binascii.Error, ValueError):
        return None
    return content if _base64_of(content) == value else None
