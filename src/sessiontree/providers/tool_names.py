"""Tool names and call ids in the characters that providers accept: letters, digits, underscore and hyphen.

Valid names stay unchanged. Others change in the same way for a call and its result, and different names stay different.
A change depends on the recorded id alone wherever possible. So the start of a growing conversation stays the same, and
the provider's prompt cache stays valid.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from itertools import count
from typing import assert_never

import msgspec

from sessiontree.core.jsonio import Value
from sessiontree.core.messages import ToolCall
from sessiontree.providers.sanitize import quoted
from sessiontree.providers.turns import Answer, AssistantBlock, AssistantTurn, ResultsTurn, Turn, UserTurn

REFUSED_CHARACTER = re.compile("[^a-zA-Z0-9_-]")
DIGEST_LENGTH = 8


class Limits(Value, frozen=True):
    """Maximum lengths."""

    call_id: int
    tool_name: int


def rename_tools(turns: Sequence[Turn], limits: Limits, notes: list[str]) -> list[Turn]:
    """Replace call ids and tool names that are not valid."""
    calls = [
        block
        for turn in turns
        if isinstance(turn, AssistantTurn)
        for block in turn.blocks
        if isinstance(block, ToolCall)
    ]
    ids = fitting_names((call.id for call in calls), limits.call_id, fallback="call")
    names = fitting_names((call.name for call in calls), limits.tool_name, fallback="tool")
    _note_changes("id", ids, notes)
    _note_changes("name", names, notes)
    return [_renamed(turn, ids, names) for turn in turns]


def fitting_names(recorded: Iterable[str], longest: int, *, fallback: str) -> dict[str, str]:
    """Map each recorded name to a valid one, all different."""
    distinct = list(dict.fromkeys(recorded))
    fitting = {name: name for name in distinct if _fits(name, longest)}
    # Valid names come first: they must not change because another name was changed into the same one.
    taken = set(fitting)
    for name in distinct:
        if name not in fitting:
            fitting[name] = _fitted(name, longest, fallback, taken)
            taken.add(fitting[name])
    return fitting


def _fits(name: str, longest: int) -> bool:
    return 0 < len(name) <= longest and REFUSED_CHARACTER.search(name) is None


def _fitted(name: str, longest: int, fallback: str, taken: set[str]) -> str:
    plain = REFUSED_CHARACTER.sub("_", name) or fallback
    if len(plain) <= longest and plain not in taken:
        return plain
    for attempt in count():
        seed = f"{attempt}:{name}".encode("utf-8", "surrogatepass")
        ending = f"_{hashlib.sha256(seed).hexdigest()[:DIGEST_LENGTH]}"
        candidate = plain[: longest - len(ending)] + ending
        if candidate not in taken:
            return candidate
    raise AssertionError("count() ended")


def _note_changes(what: str, names: dict[str, str], notes: list[str]) -> None:
    notes.extend(
        f"The tool {what} {quoted(recorded)} was sent as {quoted(sent)}."
        for recorded, sent in names.items()
        if recorded != sent
    )


def _renamed(turn: Turn, ids: dict[str, str], names: dict[str, str]) -> Turn:
    match turn:
        case UserTurn():
            return turn
        case AssistantTurn():
            return msgspec.structs.replace(
                turn, blocks=tuple(_renamed_block(block, ids, names) for block in turn.blocks)
            )
        case ResultsTurn():
            return ResultsTurn(
                tuple(Answer(ids[answer.call_id], answer.blocks, answer.is_error) for answer in turn.answers)
            )
        case _:
            assert_never(turn)


def _renamed_block(block: AssistantBlock, ids: dict[str, str], names: dict[str, str]) -> AssistantBlock:
    if isinstance(block, ToolCall):
        return ToolCall(ids[block.id], names[block.name], block.arguments, block.thought_signature)
    return block
