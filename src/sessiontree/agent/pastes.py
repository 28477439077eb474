"""Large pastes: a short placeholder in the input, the full content in the message to the model.

    [Pasted text #1 +120 lines]     [Image #1]

The session's settings map placeholders to their content, so that a prompt can be shown and edited the way it was typed.
The message itself is complete: readers of the session do not need the map.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping

from sessiontree.core.entries import Config
from sessiontree.core.jsonio import JsonObject
from sessiontree.core.messages import Block, Image, Text
from sessiontree.errors import UsageError
from sessiontree.providers.turns import image_type
from sessiontree.session.session import Session

LINES = 10
CHARACTERS = 1_000
"""A paste with at least this many lines, or more characters than this, becomes a placeholder."""
IMAGE_BYTES = 5_000_000
"""The largest image that providers accept."""

_placeholder = re.compile(r"\[(?:Pasted text (#\d+) \+\d+ lines|Image (#\d+))\]")
_data_url = re.compile(r"data:(image/[a-z]+);base64,(.*)\Z", re.DOTALL)


class Pastes:
    """Content pasted into the prompts of a session."""

    def __init__(self, config: Config | None = None) -> None:
        known = config or Config()
        self._texts, self._images = dict(known.pasted_text_map), dict(known.pasted_image_map)

    def add_text(self, text: str) -> str:
        """Store a pasted text; returns its placeholder, or the text itself if it is short."""
        lines = text.count("\n") + 1
        if lines < LINES and len(text) <= CHARACTERS:
            return text
        key = _next_key(self._texts)
        self._texts[key] = text
        return f"[Pasted text {key} +{lines} lines]"

    def add_image(self, data: bytes) -> str:
        """Store a pasted image; returns its placeholder. `UsageError` if models do not accept it."""
        mime = image_type(data)
        if mime is None:
            raise UsageError("the pasted data is not an image that models accept: use PNG, JPEG, GIF or WebP")
        if len(data) > IMAGE_BYTES:
            raise UsageError(f"the pasted image has {len(data):,} bytes; providers accept at most {IMAGE_BYTES:,}")
        key = _next_key(self._images)
        self._images[key] = f"data:{mime};base64,{base64.b64encode(data).decode('ascii')}"
        return f"[Image {key}]"

    def message(self, prompt: str) -> JsonObject:
        """A prompt as a user message: expanded, and as typed (`displayText`) if that differs."""
        blocks = list(self._expanded(prompt))
        if all(isinstance(block, Text) for block in blocks):
            text = "".join(block.text for block in blocks if isinstance(block, Text))
            return {"role": "user", "content": text} | ({"displayText": prompt} if text != prompt else {})
        content = [
            {"type": "text", "text": block.text} if isinstance(block, Text) else _image(block) for block in blocks
        ]
        return {"role": "user", "content": content, "displayText": prompt}

    def _expanded(self, prompt: str) -> Iterator[Block]:
        """Texts and images in order. An unknown placeholder is left unchanged."""
        text, at = "", 0
        for found in _placeholder.finditer(prompt):
            text += prompt[at : found.start()]
            at = found.end()
            pasted, image = found.groups()
            block = self.image(image) if image else None
            if block is None:
                text += self._texts.get(pasted, found[0]) if pasted else found[0]
                continue
            yield Text(text + found[0])
            text = ""
            yield block
        if text or at < len(prompt) or not prompt:
            yield Text(text + prompt[at:])

    def image_keys(self, prompt: str) -> tuple[str, ...]:
        """The keys of the images that a prompt contains, each once."""
        found = dict.fromkeys(match[2] for match in _placeholder.finditer(prompt))
        return tuple(key for key in found if key in self._images)

    def image(self, key: str) -> Image | None:
        found = _data_url.match(self._images.get(key, ""))
        return Image(found[2], found[1]) if found is not None else None

    def used_in(self, prompt: str) -> bool:
        return _placeholder.search(prompt) is not None

    def save(self, session: Session) -> None:
        """Write the maps to the session's settings if they changed."""
        known = session.config
        if (known.pasted_text_map, known.pasted_image_map) != (self._texts, self._images):
            session.set_config(pasted_text_map=self._texts, pasted_image_map=self._images)


def _next_key(known: Mapping[str, str]) -> str:
    numbers = [int(key[1:]) for key in known if key[:1] == "#" and key[1:].isdecimal()]
    return f"#{max(numbers, default=0) + 1}"


def _image(block: Block) -> JsonObject:
    assert isinstance(block, Image)
    return {"type": "image", "data": block.data, "mimeType": block.mime_type}
