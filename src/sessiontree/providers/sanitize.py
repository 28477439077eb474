"""Sanitize texts, arguments and images by rules that all providers share: valid UTF-8 and JSON, known image types.

Pure functions; the caller decides which changes to note.
"""

from __future__ import annotations

import binascii
import math

from sessiontree.core.messages import Image

# The types that both Anthropic and OpenAI document, with the first bytes of such files.
IMAGE_BEGINNINGS: dict[str, tuple[bytes, ...]] = {
    "image/png": (b"\x89PNG\r\n\x1a\n",),
    "image/jpeg": (b"\xff\xd8\xff",),
    "image/gif": (b"GIF87a", b"GIF89a"),
    "image/webp": (b"RIFF",),
}

# Providers' JSON decoders have depth limits. The strictest common limit is 128, and the message's own levels count.
DEEPEST_ARGUMENT = 96
TOO_DEEP = "[nested too deeply to be sent]"

LONGEST_QUOTE = 48


def is_blank(text: str) -> bool:
    """Whether providers reject a text as empty."""
    return not text.strip()


def sendable_text(text: str) -> str:
    """Replace lone surrogates by U+FFFD, and join surrogate pairs."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def sendable_json(value: object, levels: int = DEEPEST_ARGUMENT) -> object:
    """Make a value valid JSON in UTF-8: texts and keys sanitized, no NaN or infinity, not too deep."""
    match value:
        case None | bool() | int():
            return value
        case str():
            return sendable_text(value)
        case float():
            return value if math.isfinite(value) else None
        case dict() | list() | tuple() if levels == 0:
            return TOO_DEEP
        case dict():
            return _sendable_object(value, levels)
        case list() | tuple():
            return [sendable_json(item, levels - 1) for item in value]
        case _:
            return sendable_text(str(value))


def _sendable_object(fields: dict[object, object], levels: int) -> dict[str, object]:
    sendable: dict[str, object] = {}
    for key, value in fields.items():
        name = sendable_text(str(key))
        # Two keys may become equal by the replacement; keep both values.
        while name in sendable:
            name += "\ufffd"
        sendable[name] = sendable_json(value, levels - 1)
    return sendable


def sendable_image(image: Image) -> Image | str:
    """Return the image in a form that providers accept, or the reason why they would reject it.

    The type is detected from the bytes if possible, because providers reject a type that does not match them.
    """
    declared = sendable_text(image.mime_type.strip().lower())
    # Some programs store the complete data URL, and some break the base64 text into lines.
    encoded = "".join(image.data.rpartition(";base64,")[2].split())
    try:
        raw = binascii.a2b_base64(encoded, strict_mode=True)
    except ValueError:
        return f"An image of the type {declared} is left out here because its data was not recorded in base64"
    if not raw:
        return f"An image of the type {declared} is left out here because its data is empty"
    actual = _image_type(raw) or ("image/jpeg" if declared == "image/jpg" else declared)
    if actual not in IMAGE_BEGINNINGS:
        return f"An image of the type {declared} is left out here because that type cannot be sent"
    return Image(encoded, actual)


def _image_type(raw: bytes) -> str | None:
    for mime_type, beginnings in IMAGE_BEGINNINGS.items():
        # RIFF is also a container for audio and video; the four bytes after its length name the format.
        if raw.startswith(beginnings) and (mime_type != "image/webp" or raw[8:12] == b"WEBP"):
            return mime_type
    return None


def quoted(text: str) -> str:
    """Quote an id or name for a note, truncated if it is long."""
    return f'"{text}"' if len(text) <= LONGEST_QUOTE else f'"{text[:LONGEST_QUOTE]}…"'
