"""Whether a session says the same as the one it was made from: read back and compared, entry by entry.

What is compared is what people and models see: who said what, in which order and on which branch, the calls and their
results. The words for tools are compared as their agent said them.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from sessiontree.conversion.tool_names import with_own_words
from sessiontree.conversion.walk import iter_items
from sessiontree.dialects.canonical import CanonicalEntry
from sessiontree.session.reader import Reader

_SPOKEN = frozenset({"message", "compaction", "branch_summary", "custom_message"})


class Difference(Struct, frozen=True):
    """Something that one session says and the other does not say in the same place of its tree."""

    one: str | None
    other: str | None


def first_difference(one: Reader, leaf: str | None, other: Reader, *, whole: bool) -> Difference | None:
    """What a session says that its copy does not, or the other way round; None when they say the same.

    Branches are compared wherever they stand: a copy may have them in another order.
    """
    copies = Counter(place for place, _ in _iter_said(other, other.leaf, whole=whole))
    for place, said in _iter_said(one, leaf, whole=whole):
        if not copies[place]:
            return Difference(_shown(said), None)
        copies[place] -= 1
    if not copies.total():
        return None
    for place, said in _iter_said(other, other.leaf, whole=whole):
        if copies[place]:
            return Difference(None, _shown(said))
    raise AssertionError("what was counted is there")


def _iter_said(session: Reader, leaf: str | None, *, whole: bool) -> Iterator[tuple[bytes, tuple[Any, ...]]]:
    """What each entry says, and a mark of it and of everything that leads to it."""
    marks: dict[str | None, bytes] = {None: b""}
    for entry, parent in iter_items(session, leaf, whole=whole):
        mark = marks.get(parent, b"")
        if entry.kind in _SPOKEN:
            said = (entry.kind, *_said(with_own_words(entry)))
            mark = hashlib.blake2b(mark + repr(said).encode("utf-8", "surrogatepass"), digest_size=16).digest()
            yield mark, said
        marks.update(dict.fromkeys((entry.id, *entry.aliases), mark))


def _said(entry: CanonicalEntry) -> tuple[Any, ...]:
    message = entry.fields.get("message")
    if isinstance(message, dict):
        about = tuple(message.get(name) for name in ("role", "toolCallId", "isError", "command", "output"))
        return (about, _content(message.get("content")))
    return (entry.fields.get("summary"), _content(entry.fields.get("content")))


def _content(content: Any) -> list[Any]:
    """Content as blocks, however it was written; empty texts say nothing."""
    blocks = content if isinstance(content, list) else [] if content is None else [{"type": "text", "text": content}]
    return [_block(block) for block in blocks if not (isinstance(block, dict) and block.get("text") == "")]


def _block(block: Any) -> Any:
    if not isinstance(block, dict):
        return block
    return tuple(
        (name, block[name]) for name in ("type", "text", "thinking", "id", "name", "arguments", "data") if name in block
    )


def _shown(said: tuple[Any, ...]) -> str:
    return repr(said)[:300]
