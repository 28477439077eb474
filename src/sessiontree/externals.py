"""Large content in and out of entries: what goes to a blob, and how a line refers to it. Pure; the blobs are passed in.

* An image of 1,024 base64 characters and more: its bytes go to a blob, `data` becomes `blob:sha256:<hex>`. Base64 has
  no colon, so such a value cannot be meant otherwise.
* Any string of more than 500,000 characters: its text goes to a blob and the string becomes such a reference, too. As
  a person may well write a text that looks like one, the entry lists the places it means under `blobs`, as JSON
  pointers.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from typing import Any, Literal

LargeContent = Literal["blobs", "truncate", "inline"]

IMAGE_CHARACTERS = 1_024
STRING_CHARACTERS = 500_000
PREFIX = "blob:sha256:"

_reference = re.compile(r"blob:sha256:([0-9a-f]{64})\Z")

Put = Callable[[bytes], str]
Get = Callable[[str], bytes | None]


def may_hold_large_content(line: bytes) -> bool:
    """A cheap look at a rendered line that saves the walk through almost every entry."""
    return len(line) >= IMAGE_CHARACTERS and (len(line) > STRING_CHARACTERS or b'"image"' in line)


def externalise(fields: dict[str, Any], put: Put) -> dict[str, Any]:
    """The same entry with large content put into blobs. What needs no blob is shared, not copied."""
    places: list[str] = []

    def text(value: str, place: str) -> str:
        places.append(place)
        return PREFIX + put(value.encode("utf-8", "surrogatepass"))

    def image(value: str) -> str:
        content = _base64_bytes(value)
        return value if content is None else PREFIX + put(content)

    walked: dict[str, Any] = _walk(fields, "", text, image)
    return {**walked, "blobs": places} if places else walked


def truncate(fields: dict[str, Any]) -> dict[str, Any]:
    """The same entry with strings that are too long cut off, with a notice at the cut. What is cut is lost."""

    def text(value: str, place: str) -> str:  # noqa: ARG001 - the shape `_walk` asks for
        left_out = len(value) - STRING_CHARACTERS
        notice = f"\n\n[sessiontree left out {left_out:,} or more characters here]"
        kept = value[: STRING_CHARACTERS - len(notice)]
        return kept + notice

    walked: dict[str, Any] = _walk(fields, "", text, lambda value: value)
    return walked


def restore(fields: dict[str, Any], get: Callable[[str], bytes | None]) -> dict[str, Any]:
    """The entry as it was before `externalise`. Where `get` gives None, the reference stays."""
    places = fields.get("blobs")
    wanted = {place for place in places if isinstance(place, str)} if isinstance(places, list) else set()

    def text(value: str, place: str) -> str:
        found = _reference.match(value) if place in wanted else None
        content = get(found[1]) if found else None
        return value if content is None else content.decode("utf-8", "surrogatepass")

    def image(value: str) -> str:
        found = _reference.match(value)
        content = get(found[1]) if found else None
        return value if content is None else base64.b64encode(content).decode("ascii")

    restored: dict[str, Any] = _walk(fields, "", text, image, every_string=True)
    if wanted:
        restored = {key: value for key, value in restored.items() if key != "blobs"}
    return restored


def _walk(
    value: Any,
    place: str,
    text: Callable[[str, str], str],
    image: Callable[[str], str],
    *,
    every_string: bool = False,
) -> Any:
    """Rebuild decoded JSON with `image` applied to image data and `text` to long (or all) strings."""
    if isinstance(value, str):
        return text(value, place) if every_string or len(value) > STRING_CHARACTERS else value
    if isinstance(value, list):
        return [_walk(item, f"{place}/{at}", text, image, every_string=every_string) for at, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    data = value.get("data") if value.get("type") == "image" else None
    walked: dict[str, Any] = {}
    for key, item in value.items():
        if key == "data" and isinstance(data, str) and (every_string or len(data) >= IMAGE_CHARACTERS):
            changed = image(data)
            if changed != data or len(data) <= STRING_CHARACTERS:
                walked[key] = changed
                continue
        escaped = key.replace("~", "~0").replace("/", "~1")
        walked[key] = _walk(item, f"{place}/{escaped}", text, image, every_string=every_string)
    return walked


def _base64_bytes(value: str) -> bytes | None:
    """The bytes behind some base64, if encoding them again gives exactly the same characters."""
    try:
        content = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return None
    return content if base64.b64encode(content).decode("ascii") == value else None
