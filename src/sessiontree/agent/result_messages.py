"""Messages for `append`: answers, tool results, and results of calls that did not complete."""

from __future__ import annotations

from typing import Any

import msgspec

from sessiontree.agent.tools.base import ToolOutput
from sessiontree.core.jsonio import JsonObject
from sessiontree.core.messages import Assistant, Text, ToolCall

_TAIL = 2_000
_BLOCKS: dict[str, JsonObject] = {
    "text": {"text": ""},
    "thinking": {"thinking": ""},
    "toolCall": {"id": "", "name": "", "arguments": {}},
}
_COUNTS: JsonObject = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 0}
_COSTS: JsonObject = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0}


def answer_fields(answer: Assistant) -> JsonObject:
    """An answer as a message for `append`, with every field that readers of this format rely on.

    An unknown cost is written as 0, because the format cannot express it otherwise.
    """
    fields: JsonObject = {"role": "assistant", "content": [], **msgspec.to_builtins(answer)}
    if not isinstance(fields["content"], str):
        fields["content"] = [_complete_block(block) for block in fields["content"]]
    used: dict[str, Any] = fields.get("usage") or {}
    fields["usage"] = {**_COUNTS, **used, "cost": {**_COSTS, **(used.get("cost") or {})}}
    fields.setdefault("stopReason", "stop")
    return fields


def _complete_block(block: JsonObject) -> JsonObject:
    return {"type": block["type"], **_BLOCKS.get(block["type"], {}), **block}


def result_message(call: ToolCall, output: ToolOutput) -> JsonObject:
    """A tool result as a message for `append`."""
    content = [msgspec.to_builtins(block) for block in (Text(output.text), *output.images)]
    message: JsonObject = {
        "role": "toolResult",
        "toolCallId": call.id,
        "toolName": call.name,
        "content": content,
        "isError": output.is_error,
    }
    return {**message, "details": output.details} if output.details else message


def interrupted(why: str, *, had_begun: bool, printed: str = "") -> ToolOutput:
    """The result of a call that was interrupted before or while it ran."""
    if not had_begun:
        return ToolOutput(
            f"This call was not run: {why}. It changed nothing.", True, {"interrupted": True, "begun": False}
        )
    text = f"This call was interrupted: {why}. It may have done part or all of its work, which was not undone."
    if printed.strip():
        text += f"\n\nIts last output:\n{printed[-_TAIL:]}"
    return ToolOutput(text, True, {"interrupted": True, "begun": True})


def not_run(why: str) -> ToolOutput:
    """The result of a call that was not started."""
    return ToolOutput(f"This call was not run: {why}. It changed nothing.", True, {"begun": False})


def lost(*, had_begun: bool) -> ToolOutput:
    """The result of a call whose process died, and that the user chose not to run again."""
    known = "It had begun to change files" if had_begun else "It is not known whether it ran, in part or at all"
    return ToolOutput(
        f"The result of this call was lost: the program ended before it was stored. {known}. It was not run again.",
        True,
        {"lost": True, "begun": had_begun},
    )
