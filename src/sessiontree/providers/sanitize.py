"""What may travel to a provider at all: text that UTF-8 can hold, arguments that JSON can hold, images that are images.

Pure functions from a recorded value to one that can be sent. Nothing here knows a turn or a provider's form: the rules
are those that every provider shares. Whether a change is worth a note is for the caller to say.
"""

from __future__ import annotations

import binascii
import math

from sessiontree.core.messages import Image

# The types that both Anthropic and OpenAI name in their documentation, with the bytes such a file begins with.
IMAGE_BEGINNINGS: dict[str, tuple[bytes, ...]] = {
    "image/png": (b"\x89PNG\r\n\x1a\n",),
    "image/jpeg": (b"\xff\xd8\xff",),
    "image/gif": (b"GIF87a", b"GIF89a"),
    "image/webp": (b"RIFF",),
}

# JSON decoders on the other side stop at some depth, the strictest common one at 128, and the message around it counts.
DEEPEST_ARGUMENT = 96
TOO_DEEP = "[nested too deeply to be sent]"

LONGEST_QUOTE = 48


def is_blank(text: str) -> bool:
    """True for text that providers refuse as empty."""
    return not text.strip()


def sendable_text(text: str) -> str:
    """The text with surrogates that stand alone replaced by U+FFFD; two halves that belong together are joined."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def sendable_json(value: object, levels: int = DEEPEST_ARGUMENT) -> object:
    """The value as JSON in UTF-8 can hold it: texts and keys made sendable, no NaN or infinity, not too deep."""
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
        # Two keys may differ only in what was replaced; neither value may be lost for that.
        while name in sendable:
            name += "\ufffd"
        sendable[name] = sendable_json(value, levels - 1)
    return sendable


def sendable_image(image: Image) -> Image | str:
    """The image as providers accept it, or why they would not.

    The type is taken from the bytes where they tell it, since a type that does not fit the bytes is refused.
    """
    declared = sendable_text(image.mime_type.strip().lower())
    # Some programs keep the whole data URL, and some break the base64 text into lines.
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
        # RIFF holds sounds and films too; the word after its length says which.
        if raw.startswith(beginnings) and (mime_type != "image/webp" or raw[8:12] == b"WEBP"):
            return mime_type
    return None


def quoted(text: str) -> str:
    """A recorded id or name for use in a note: in quotes, and cut when it is long."""
    return f'"{text}"' if len(text) <= LONGEST_QUOTE else f'"{text[:LONGEST_QUOTE]}…"'
