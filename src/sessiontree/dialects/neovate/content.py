"""Messages and entries in canonical form, in the words of Neovate's lines.

Each function gives bodies (lines without their envelope, see `hearing`) and says what it had to leave out. What cannot
be said in a line of the tree at all gives None, and goes to an aside.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from msgspec import Struct

from sessiontree.dialects.canonical import CanonicalEntry, LossNote
from sessiontree.dialects.neovate.records import COMPACTION_MARK, INTERRUPTION, number, string

_PARTS_OF = {
    "user": {"text": 0, "image": 0},
    "assistant": {"thinking": 0, "text": 1, "toolCall": 2},
    "toolResult": {"text": 0, "image": 0},
}
"""The blocks that a role may have, and their order: Neovate throws on others, and writes those of an assistant so."""

_BRANCH = "Another branch of this conversation was followed for a while and then left. This happened on it:"
_NO_PLACE = "Neovate has no place for them"
SIGNATURE = LossNote("aside", "signatures of thinking", _NO_PLACE)
_REORDERED = LossNote("changed", "orders of blocks", "Neovate puts thinking first, then text, then calls")


class Said(Struct, frozen=True, gc=False):
    """What was said, and how it differs from what was to be said."""

    bodies: list[dict[str, Any]]
    order: tuple[int, ...] = ()
    """For each block that was said, its position in the content; in the order it was said."""
    left_out: tuple[tuple[int, Any], ...] = ()
    """Blocks that could not be said, with their positions."""
    notes: tuple[LossNote, ...] = ()
    is_reworded: bool = False
    """Whether the words are ours, so that the entry has to ride along whole."""


_Blocks: TypeAlias = tuple[tuple[int, ...], tuple[tuple[int, Any], ...], tuple[LossNote, ...]]
"""What happened to the blocks of a content: `order`, `left_out` and `notes` of what is said."""


class Call(Struct, frozen=True, gc=False):
    """What a result has to repeat of its call."""

    name: str = ""
    input: Any = None


def say(entry: CanonicalEntry) -> Said | None:
    """Any entry but a result; None when Neovate's lines have no words for it."""
    fields = entry.fields
    match entry.kind:
        case "message" if isinstance(fields.get("message"), dict):
            return _say_message(fields["message"])
        case "custom_message":
            return _say_custom(fields)
        case "branch_summary" if string(fields, "summary"):
            return _say_branch(fields)
        case "compaction":
            text = {"type": "text", "text": string(fields, "summary")}
            return Said([{"role": "user", "content": [text], "uiContent": COMPACTION_MARK}])
        case _:
            return None


def _say_message(message: dict[str, Any]) -> Said | None:
    match message.get("role"):
        case "user":
            content, blocks = _content(message, "user")
            return Said([{"role": "user", "content": content}], *blocks)
        case "assistant":
            return _say_assistant(message)
        case "system" if isinstance(message.get("content"), str) and message.keys() <= {"role", "content", "timestamp"}:
            return Said([{"role": "system", "content": message["content"]}])
        case "bashExecution" if not message.get("excludeFromContext"):
            return _say_command(message)
        case "custom":
            return _say_custom(message)
        case _:
            return None


def _say_assistant(message: dict[str, Any]) -> Said:
    content, blocks = _content(message, "assistant")
    text = content if isinstance(content, str) else "".join([part["text"] for part in content if _is_text(part)])
    provider, model = string(message, "provider"), string(message, "model")
    body = {
        "role": "assistant",
        "content": content,
        "text": text,
        "model": f"{provider}/{model}" if provider and model else model or provider,
        "usage": say_usage(message.get("usage")),
    }
    return Said([body], *blocks)


def say_result(message: dict[str, Any], call: Call) -> Said:
    """One result as a part of a message of the role `tool`."""
    content, blocks = _content(message, "toolResult")
    if isinstance(content, list) and len(content) == 1 and _is_text(content[0]):
        content = content[0]["text"]
    result: dict[str, Any] = {"llmContent": content}
    if message.get("isError") is True:
        result["isError"] = True
    part = {
        "type": "tool-result",
        "toolCallId": string(message, "toolCallId"),
        "toolName": string(message, "toolName") or call.name,
        "input": {} if call.input is None else call.input,
        "result": result,
    }
    return Said([part], *blocks)


def missing_result(id: str, call: Call) -> dict[str, Any]:
    """The part that Neovate writes for a call that was interrupted."""
    display = "Tool execution was canceled by user."
    return {
        "type": "tool-result",
        "toolCallId": id,
        "toolName": call.name,
        "input": {} if call.input is None else call.input,
        "result": {"llmContent": INTERRUPTION, "returnDisplay": display, "isError": True},
    }


def say_stray_result(message: dict[str, Any]) -> Said:
    """A result whose call is not there, or was answered already: as words of the user."""
    content, (_, _, notes) = _content(message, "toolResult")
    given = [{"type": "text", "text": content}] if isinstance(content, str) else content
    opening = {"type": "text", "text": f"The tool {string(message, 'toolName') or 'that was called'} gave this result:"}
    why = "the call they answer is not before them, and Neovate cannot send a result without one"
    notes = (*notes, LossNote("changed", "tool results", why))
    return Said([{"role": "user", "content": [opening, *given]}], notes=notes, is_reworded=True)


def calls_of(body: dict[str, Any]) -> dict[str, Call]:
    """The calls of an assistant's body, by id."""
    content = body.get("content")
    if body.get("role") != "assistant" or not isinstance(content, list):
        return {}
    return {
        string(part, "id"): Call(string(part, "name"), part.get("input"))
        for part in content
        if isinstance(part, dict) and part.get("type") == "tool_use"
    }


def _say_command(message: dict[str, Any]) -> Said | None:
    command, output, code = message.get("command"), message.get("output", ""), message.get("exitCode")
    if not isinstance(command, str) or not isinstance(output, str):
        return None
    stream = "bash-stderr" if code else "bash-stdout"
    bodies = [{"role": "user", "content": f"<bash-input>{command}</bash-input>"}]
    if output:
        bodies.append({"role": "user", "content": f"<{stream}>{output}</{stream}>"})
    return Said(bodies)


def _say_custom(fields: dict[str, Any]) -> Said:
    content, (_, _, notes) = _content(fields, "user")
    if fields.get("display") is False:
        shown = [{"type": "text", "text": content}] if isinstance(content, str) else content
        content = [{**part, "hidden": True} if _is_text(part) else part for part in shown]
    notes = (*notes, LossNote("mapped", "messages of extensions", "they are words of the user in Neovate"))
    return Said([{"role": "user", "content": content}], notes=notes, is_reworded=True)


def _say_branch(fields: dict[str, Any]) -> Said:
    text = f"{_BRANCH}\n\n<summary>\n{string(fields, 'summary')}\n</summary>"
    body = {"role": "user", "content": [{"type": "text", "text": text, "hidden": True}]}
    notes = (LossNote("mapped", "summaries of branches", "they are hidden words of the user in Neovate"),)
    return Said([body], notes=notes, is_reworded=True)


def _content(message: dict[str, Any], role: str) -> tuple[Any, _Blocks]:
    """The content for a body, and what happened to its blocks."""
    content = message.get("content")
    if isinstance(content, str):
        return content, ((), (), ())
    blocks = content if isinstance(content, list) else []
    allowed = _PARTS_OF[role]
    parts: list[dict[str, Any]] = []
    order: list[int] = []
    ranks: list[int] = []
    left_out: list[tuple[int, Any]] = []
    notes: list[LossNote] = []
    for at, block in enumerate(blocks):
        part = _part(block, allowed)
        if part is None:
            left_out.append((at, block))
            notes.append(LossNote("aside", f"blocks of type {_kind(block)}", _NO_PLACE))
            continue
        parts.append(part)
        order.append(at)
        ranks.append(allowed[block["type"]])
        if block.get("thinkingSignature"):
            notes.append(SIGNATURE)
    if ranks != sorted(ranks):
        places = sorted(range(len(ranks)), key=ranks.__getitem__)
        parts, order = [parts[place] for place in places], [order[place] for place in places]
        notes.append(_REORDERED)
    return parts, (tuple(order), tuple(left_out), tuple(notes))


def _part(block: Any, allowed: dict[str, int]) -> dict[str, Any] | None:
    """One block as a part; None when there is no such part, or the block is not sound."""
    kind = block.get("type") if isinstance(block, dict) else None
    if not isinstance(kind, str) or kind not in allowed:
        return None
    if kind == "text":
        text = block.get("text")
        return {"type": "text", "text": text} if isinstance(text, str) else None
    if kind == "toolCall":
        id, name = block.get("id"), block.get("name")
        if not isinstance(id, str) or not isinstance(name, str):
            return None
        return {"type": "tool_use", "id": id, "name": name, "input": block.get("arguments")}
    if kind == "thinking":
        text = block.get("thinking")
        return {"type": "reasoning", "text": text} if isinstance(text, str) and not block.get("redacted") else None
    data, mime_type = block.get("data"), string(block, "mimeType") or "image/png"
    if not isinstance(data, str):
        return None
    url = data if data.startswith("data:") else f"data:{mime_type};base64,{data}"
    return {"type": "image", "data": url, "mimeType": mime_type}


def say_usage(usage: Any) -> dict[str, Any]:
    """Always there: Neovate adds up the tokens of the last answer to see whether it must compact."""
    fields = usage if isinstance(usage, dict) else {}
    found = {"input_tokens": number(fields, "input"), "output_tokens": number(fields, "output")}
    if read := number(fields, "cacheRead"):
        found["cache_read_input_tokens"] = read
    if written := number(fields, "cacheWrite"):
        found["cache_creation_input_tokens"] = written
    return found


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "text"


def _kind(block: Any) -> str:
    return str(block.get("type") or "") if isinstance(block, dict) else type(block).__name__
