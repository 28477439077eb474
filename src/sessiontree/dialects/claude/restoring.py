"""What rode along of the client's own lines, put back where it still holds.

An item that was told from a transcript carries the fields of its lines that canonical form have no place for. It may
have been changed since, so each is used only if it says what the item says.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sessiontree.dialects.canonical import CanonicalEntry
from sessiontree.dialects.claude.content import text_of, told_blocks, told_reason, told_usage
from sessiontree.dialects.claude.content_builder import shared_blocks
from sessiontree.dialects.claude.decode_lines import NAME
from sessiontree.dialects.claude.records import Fields, object_in, string_in
from sessiontree.dialects.passthrough import PASSTHROUGH


def rests_of(entry: CanonicalEntry, count: int) -> Sequence[Fields]:
    """What rode along of each line that an item was told from; nothing when it now takes another number of lines."""
    found = object_in(entry.fields, PASSTHROUGH).get(NAME)
    if not found:
        return [{}] * count
    rests = [rest for rest in (found if isinstance(found, list) else [found]) if isinstance(rest, dict)]
    return rests if len(rests) == count else [{} for _ in range(count)]


def summary_content(entry: CanonicalEntry) -> Any:
    """The words in which the client put a summary, if they still are the summary; None when there are none."""
    found = object_in(entry.fields, PASSTHROUGH).get(NAME)
    last = found[-1] if isinstance(found, list) and found else None
    content = last.get("content") if isinstance(last, dict) else None
    return content if content is not None and text_of(content) == entry.fields.get("summary") else None


def shard_message(common: Fields, blocks: list[Fields], rest: Fields, message: Fields) -> Fields:
    shard = {**common, "content": blocks}
    if "message" not in rest:
        return shard
    more = object_in(rest, "message")
    if told_usage(more.get("usage")) != message.get("usage"):
        more = but(more, "usage")
    if told_reason(string_in(more, "stop_reason")) != message.get("stopReason"):
        more = but(more, "stop_reason", "stop_sequence")
    return shard | but(more, "content", "role", "id", "model", "type")


def says_block(content: Any, message: Fields, at: int) -> bool:
    """Whether content as it once stood on a line still says what the block at some position does."""
    return told_blocks(content) == [shared_blocks(message.get("content"))[at]]


def is_same_result(content: Any, block: Fields) -> bool:
    if not isinstance(content, list) or len(content) != 1 or not isinstance(content[0], dict):
        return False
    one = content[0]
    return (
        one.get("tool_use_id") == block["tool_use_id"]
        and one.get("type") == "tool_result"
        and (one.get("is_error") is True) == ("is_error" in block)
        and told_blocks(one.get("content")) == told_blocks(block["content"])
    )


def is_same_line(one: Fields, other: Fields) -> bool:
    """Whether two lines say the same, wherever they were written."""
    return but(one, "cwd", "version", "gitBranch") == but(other, "cwd", "version", "gitBranch")


def but(fields: Fields, *names: str) -> Fields:
    return {name: value for name, value in fields.items() if name not in names}
