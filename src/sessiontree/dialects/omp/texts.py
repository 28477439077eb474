"""The searchable texts of oh-my-pi's lines."""

from __future__ import annotations

from typing import ClassVar

from sessiontree.dialects.texts import TextReader, read_title


class OhMyPiTexts(TextReader):
    readers: ClassVar = {**TextReader.readers, "title": read_title, "title_change": read_title}


TEXTS = OhMyPiTexts()
