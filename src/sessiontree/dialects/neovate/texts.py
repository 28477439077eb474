"""The searchable texts of Neovate's lines."""

from __future__ import annotations

from typing import ClassVar

from sessiontree.dialects.texts import Text, TextLine, TextReader, add_text

_COMPACTED = b'"Chat history compacted successfully."'
"""What the client shows instead of a summary, which is a message in the user's role."""


def _read_title(line: TextLine, texts: list[Text]) -> None:
    add_text(texts, "title", "", bytes(line.customTitle))


class NeovateTexts(TextReader):
    readers: ClassVar = {**TextReader.readers, "custom-title": _read_title}

    def user_text_kind(self, line: TextLine) -> str:
        return "summary" if bytes(line.uiContent) == _COMPACTED else "prompt"


TEXTS = NeovateTexts()
