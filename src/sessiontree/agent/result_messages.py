"""What a session says of answers and calls that did not come to their end, and answers as they are written."""

from __future__ import annotations

from typing import Any

import msgspec

from sessiontree.agent.tools.base import ToolOutput
from sessiontree.core.jsonio import JsonObject
from sessiontree.core.messages import Assistant

_TAIL = 2_000
_BLOCKS: dict[str, JsonObject] = {
    "text": {"text": ""},
    "thinking": {"thinking": ""},
    "toolCall": {"id": "", "name": "", "arguments": {}},
}
_COUNTS: JsonObject = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 0}
_COSTS: JsonObject = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0}


def answer_fields(answer: Assistant) -> JsonObject:
    """An answer as a message for `append`, with every field that readers of this shape count on.

    A cost that is not known is written as 0, as the shape has no other way to say it.
    """
    fields: JsonObject = {"role": "assistant", "content": [], **msgspec.to_builtins(answer)}
    if not isinstance(fields["content"], str):
        fields["content"] = [_whole_block(block) for block in fields["content"]]
    used: dict[str, Any] = fields.get("usage") or {}
    fields["usage"] = {**_COUNTS, **used, "cost": {**_COSTS, **(used.get("cost") or {})}}
    fields.setdefault("stopReason", "stop")
    return fields


def _whole_block(block: JsonObject) -> JsonObject:
    return {"type": block["type"], **_BLOCKS.get(block["type"], {}), **block}


def interrupted(why: str, *, had_begun: bool, printed: str = "") -> ToolOutput:
    """The result of a call that was interrupted, or that an interrupt came before."""
    if not had_begun:
        return ToolOutput(
            f"This call was not run: {why}. Nothing was changed by it.", True, {"interrupted": True, "begun": False}
        )
    text = f"This call was interrupted: {why}. It may have done a part of its work, or all of it; that is not undone."
    if printed.strip():
        kept = printed[-_TAIL:]
        text += f"\n\nThe last it had printed:\n{kept}"
    return ToolOutput(text, True, {"interrupted": True, "begun": True})


def not_run(why: str) -> ToolOutput:
    """The result of a call in an answer that did not come to its end."""
    return ToolOutput(f"This call was not run: {why}. Nothing was changed by it.", True, {"begun": False})


def lost(*, had_begun: bool) -> ToolOutput:
    """The result of a call whose process died, and that the user does not want to be run again."""
    said = (
        "It had begun to change files" if had_begun else "Whether it was carried out, in part or at all, is not known"
    )
    return ToolOutput(
        f"The result of this call was lost: the program ended before it was kept. {said}. It was not run again.",
        True,
        {"lost": True, "begun": had_begun},
    )
