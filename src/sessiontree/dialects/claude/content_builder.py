"""Messages in canonical form -> content as the client writes it, and what was left out of it or changed.

Nothing here knows of lines: ids, parents and passthrough data are the encoder's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct, field

from sessiontree.dialects.canonical import LossNote
from sessiontree.dialects.claude.content import tool_word, written_answered, written_spoken
from sessiontree.dialects.claude.records import Fields, object_in, string_in

_UNSIGNED = "thinking without a signature of this provider"
_NO_PLACE = "Claude Code has no such block there"
_OTHER_ID = LossNote("changed", "ids of tool calls", "letters, digits, _ and - only, and each id only once")
_OTHER_NAME = LossNote("changed", "names of tools", "the provider takes letters, digits, _ and - only")


class Composed(Struct):
    """Content in the client's form."""

    blocks: list[Fields] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    """Where each of the blocks stood in the content as it was."""
    left_out: list[int] = field(default_factory=list)
    notes: list[LossNote] = field(default_factory=list)


def shared_blocks(content: Any) -> list[Any]:
    """Content in canonical form as a list, whichever way it stands there."""
    if isinstance(content, list):
        return content
    return [{"type": "text", "text": content}] if isinstance(content, str) and content else []


def composed_spoken(content: Any) -> Composed:
    """What a user or a tool says."""
    return _composed(content, written_spoken)


def composed_answer(message: Fields, name_call: Callable[[Fields], str]) -> Composed:
    """What the assistant says; `name_call` gives each call the id it shall have."""
    renamed: list[LossNote] = []

    def written(block: Any) -> Fields | None:
        if not isinstance(block, dict) or block.get("type") != "toolCall":
            return written_answered(block, message)
        form, notes = written_call(block, name_call)
        renamed.extend(notes)
        return form

    composed = _composed(message.get("content"), written)
    composed.notes += renamed
    return composed


def written_call(block: Fields, name_call: Callable[[Fields], str]) -> tuple[Fields, Sequence[LossNote]]:
    """A call in the client's form, and what had to be changed for it."""
    id, name = name_call(block), string_in(block, "name") or ""
    word = tool_word(name)
    form = {"type": "tool_use", "id": id, "name": word, "input": object_in(block, "arguments")}
    if id == block.get("id") and word == name:
        return form, ()
    notes = [_OTHER_ID] if id != block.get("id") else []
    return form, notes if word == name else [*notes, _OTHER_NAME]


def _composed(content: Any, written: Callable[[Any], Fields | None]) -> Composed:
    composed = Composed()
    found = [(at, block, written(block)) for at, block in enumerate(shared_blocks(content))]
    # The provider takes no empty texts. Where there is nothing else, the client leaves out the whole message.
    has_more = any(form is not None and not _is_empty_text(form) for _, _, form in found)
    for at, block, form in found:
        if form is None:
            composed.left_out.append(at)
            composed.notes.append(dropped(block))
        elif has_more and _is_empty_text(form):
            composed.left_out.append(at)
        else:
            composed.blocks.append(form)
            composed.places.append(at)
    return composed


def _is_empty_text(block: Fields) -> bool:
    return block.get("type") == "text" and not block.get("text")


def dropped(block: Any) -> LossNote:
    """What is said of a block that has no form."""
    kind = block.get("type") if isinstance(block, dict) else None
    if kind in ("thinking", "redactedThinking"):
        return LossNote("dropped", "thinking blocks", _UNSIGNED)
    return LossNote("dropped", f"{kind} blocks" if isinstance(kind, str) else "blocks of no kind", _NO_PLACE)


def result_content(composed: Composed) -> str | list[Fields]:
    """What a tool said: a text where it is one, as the client writes it."""
    blocks = composed.blocks
    if not blocks:
        return ""
    if len(blocks) == 1 and blocks[0].get("type") == "text" and isinstance(blocks[0].get("text"), str):
        text: str = blocks[0]["text"]
        return text
    return blocks


def summary_text(summary: str) -> str:
    """The summary that stands for the older part of the conversation."""
    return f"The earlier part of this conversation was compacted. This summary stands for it:\n\n{summary}"


def branch_text(summary: str) -> str:
    """What happened on a branch that was left."""
    return (
        f"Another branch of this conversation was followed for a while and then left. This happened on it:\n\n{summary}"
    )


def command_texts(message: Fields) -> tuple[str, str]:
    """A shell command the user ran, and what it printed, as the client writes them."""
    command, output = string_in(message, "command") or "", string_in(message, "output") or ""
    return (
        f"<bash-input>{command}</bash-input>",
        f"<bash-stdout>{output}</bash-stdout><bash-stderr></bash-stderr>",
    )
