"""Facts about an image in a message, without showing it: type, bytes and pixels."""

from __future__ import annotations

import binascii
from collections import OrderedDict

from msgspec import Struct
from rich.text import Text

from sessiontree.core.messages import Image
from sessiontree.providers.turns import image_type
from sessiontree.tui.image_size import image_size
from sessiontree.views.text import one_line

MAX_BYTES = 5_000_000
"""The largest image that is decoded; providers accept none that is larger."""
_KEPT = 256

ImageKey = tuple[int, int]


class ImageFacts(Struct, frozen=True):
    """`kind` is None if the data is not an image that models accept."""

    kind: str | None
    bytes: int
    size: tuple[int, int] | None


class ImagePart(Struct, frozen=True):
    """An image in the conversation, with where it comes from."""

    image: Image
    source: str = ""


_known: OrderedDict[ImageKey, ImageFacts] = OrderedDict()


def image_key(image: Image) -> ImageKey:
    """Identifies the data of an image in this process."""
    return len(image.data), hash(image.data)


def decode_image(image: Image) -> bytes:
    """The data of an image; empty if it is not base64, or too large."""
    if len(image.data) > MAX_BYTES * 4 // 3 + 4:
        return b""
    try:
        return binascii.a2b_base64(image.data)
    except (binascii.Error, ValueError):
        return b""


def image_facts(image: Image) -> ImageFacts:
    key = image_key(image)
    found = _known.get(key)
    if found is None:
        data = decode_image(image)
        count = len(data) if data else len(image.data) * 3 // 4 if len(image.data) > MAX_BYTES else 0
        found = _known[key] = ImageFacts(image_type(data), count, image_size(data))
        if len(_known) > _KEPT:
            _known.popitem(last=False)
    return found


def describe_image(image: Image, source: str = "") -> Text:
    """An image as a line: type, pixels, bytes, and where it comes from."""
    facts = image_facts(image)
    pixels = f"{facts.size[0]:,} × {facts.size[1]:,} pixels" if facts.size is not None else ""
    count = f"{max(facts.bytes / 1024, 1):,.0f} kB" if facts.bytes else "not stored here"
    parts = [f"▣ image {one_line(facts.kind or image.mime_type)}", pixels, count, source]
    return Text(" · ".join(filter(None, parts)), "magenta")
