"""The history in the requests that a program sends, as messages in the form of the Anthropic API.

Codex sends items of the Responses API, Gemini CLI contents of the Gemini API, OpenCode and Qwen Code messages of the
Chat Completions API; the others send messages of the Anthropic API. Texts that programs add for the model are left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, TypeAlias

JsonObject: TypeAlias = dict[str, Any]

PREAMBLES = (
    *("<environment_context", "<user_instructions", "# AGENTS.md", "<permissions instructions", "<skills_instructions"),
    *("<system-reminder", "<session_context"),
)
MEDIA_OF_RESULT = ("Attached media from tool result:", "(attached media from previous tool call)")
"""The first text of the message in which OpenCode or Qwen Code sends the images of a result."""
NO_RESPONSE = "No response requested."
REMINDER = "<system-reminder>"
_REMINDER_BEFORE = re.compile(r"\A<system-reminder>\nToday: [^<]*</system-reminder>\s*")
_REMINDERS_AT_END = re.compile(
    r"(?:\s*<system-reminder>(?:(?!<system-reminder>).)*</system-reminder>)+\s*\Z", re.DOTALL
)
# A notification about a background task, and a prompt that was typed while the client worked.
_RECORDED = re.compile(
    r"<task-notification>.*?</task-notification>"
    r"|(?<=The user sent a new message while you were working:\n).*?(?=\n\nThis is how Claude Code surfaces)",
    re.DOTALL,
)


def find_history(requests: Iterable[JsonObject], prompt: str) -> list[JsonObject] | None:
    """The history in the first request with a prompt, without the prompt; None if there is no such request."""
    for request in requests:
        body = request["body"] or {}
        sent: list[JsonObject] = body.get("messages") or body.get("input") or body.get("contents") or []
        # OpenCode asks for a title first, and Qwen Code sends the history again to remember facts of it: without tools.
        if not body.get("tools") or prompt not in json.dumps(sent, ensure_ascii=False):
            continue
        if request["path"] == "/v1/messages":
            return conversation(sent, prompt)
        if "input" in body:
            blocks = _item_blocks(sent)
        else:
            blocks = _content_blocks(sent) if "contents" in body else _message_blocks(sent)
        kept = [(role, block) for role, block in blocks if not _is_added(role, block, prompt)]
        turns = groupby(kept, key=lambda pair: pair[0])
        return [{"role": role, "content": [block for _, block in turn]} for role, turn in turns]
    return None


def _is_added(role: str, block: JsonObject, prompt: str) -> bool:
    text = block.get("text", "").strip() if block["type"] == "text" else ""
    # OpenCode quotes a prompt that has white space.
    return role == "user" and (text.strip('"') == prompt or text.startswith(PREAMBLES))


def _item_blocks(items: list[JsonObject]) -> list[tuple[str, JsonObject]]:
    found: list[tuple[str, JsonObject]] = []
    for item in items:
        match item.get("type"):
            case "message" if item["role"] in ("user", "assistant"):
                found += [(item["role"], _block(part)) for part in item["content"]]
            case "function_call" | "custom_tool_call":
                arguments = json.loads(item["arguments"]) if "arguments" in item else {"input": item["input"]}
                call = {"type": "tool_use", "id": item["call_id"], "name": item["name"], "input": arguments}
                found.append(("assistant", call))
            case "function_call_output" | "custom_tool_call_output":
                output = item["output"]
                content = output if isinstance(output, str) else [_block(part) for part in output]
                found.append(("user", {"type": "tool_result", "tool_use_id": item["call_id"], "content": content}))
            case _:
                continue
    return found


def _message_blocks(messages: list[JsonObject]) -> list[tuple[str, JsonObject]]:
    found: list[tuple[str, JsonObject]] = []
    for message in messages:
        content = message.get("content") or []
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if _is_media_of_result(parts) and found and found[-1][1]["type"] == "tool_result":
            found[-1][1]["content"] += [*map(_block, parts[1:])]
        elif message["role"] == "tool":
            result = {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": [*map(_block, parts)]}
            found.append(("user", result))
        elif message["role"] in ("user", "assistant"):
            found += [(message["role"], _block(part)) for part in parts]
            for call in message.get("tool_calls") or ():
                made = call["function"]
                arguments = json.loads(made["arguments"] or "{}")
                use = {"type": "tool_use", "id": call["id"], "name": made["name"], "input": arguments}
                found.append(("assistant", use))
    return found


def _content_blocks(contents: list[JsonObject]) -> list[tuple[str, JsonObject]]:
    found: list[tuple[str, JsonObject]] = []
    for content in contents:
        role = "assistant" if content["role"] == "model" else "user"
        before = len(found)
        for part in content["parts"]:
            if "functionCall" in part:
                call = part["functionCall"]
                use = {"type": "tool_use", "id": call.get("id"), "name": call["name"], "input": call.get("args") or {}}
                found.append((role, use))
            elif "functionResponse" in part:
                answer = part["functionResponse"]
                output = answer["response"].get("output", answer["response"].get("error"))
                parts = [{"type": "text", "text": output if isinstance(output, str) else json.dumps(output)}]
                found.append((role, {"type": "tool_result", "tool_use_id": answer.get("id"), "content": parts}))
            elif "inlineData" in part:
                source = {"media_type": part["inlineData"]["mimeType"], "data": part["inlineData"]["data"]}
                image = {"type": "image", "source": source}
                if len(found) > before and found[-1][1]["type"] == "tool_result":  # it belongs to the result
                    found[-1][1]["content"].append(image)
                else:
                    found.append((role, image))
            elif "text" in part and not part.get("thought"):
                found.append((role, {"type": "text", "text": part["text"]}))
    return found


def _is_media_of_result(parts: list[JsonObject]) -> bool:
    """Whether a message has only the images of the result before it: those of tools are texts in this API."""
    return len(parts) > 1 and parts[0].get("text") in MEDIA_OF_RESULT


def _block(part: JsonObject) -> JsonObject:
    url = part.get("image_url")
    address = url.get("url", "") if isinstance(url, dict) else url
    if address:
        kind, _, data = str(address).removeprefix("data:").partition(";base64,")
        return {"type": "image", "source": {"media_type": kind, "data": data}}
    return {"type": "text", "text": part.get("text", "")}


def conversation(messages: list[JsonObject], prompt: str) -> list[JsonObject]:
    """Messages without our extra prompt and the client's additions."""
    conversation = []
    for message in without_reminders([message for message in messages if message["role"] != "system"]):
        kept = [block for block in message["content"] if block["type"] != "text" or block["text"].strip() != prompt]
        if kept:
            conversation.append({"role": message["role"], "content": kept})
    if conversation and conversation[-1]["content"] == [{"type": "text", "text": NO_RESPONSE}]:
        conversation.pop()
    return conversation


def without_reminders(messages: Sequence[JsonObject]) -> list[JsonObject]:
    """Messages without the reminders that a client adds: texts of their own, or the end of a result.

    Of a notification about a background task and of a prompt typed in between, which are reminders too, the recorded
    words stay, after the results.
    """
    found = []
    for message in messages:
        content = message["content"]
        blocks: list[JsonObject] = []
        notifications: list[JsonObject] = []
        for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            kept, reminders = _split_reminders(_without_reminder(block))
            notes = [{"type": "text", "text": text} for text in _RECORDED.findall(reminders)]
            if kept is None:
                blocks += [*notifications, *notes]
                notifications = []
            else:
                blocks += [kept] if block["type"] == "tool_result" else [*notifications, kept]
                notifications = notifications + notes if block["type"] == "tool_result" else []
        blocks += notifications
        if blocks:
            found.append({"role": message["role"], "content": blocks})
    return found


def _split_reminders(block: JsonObject) -> tuple[JsonObject | None, str]:
    """A block without reminders, if anything is left of it, and the reminders."""
    if block["type"] == "text":
        is_reminder = block["text"].lstrip().startswith(REMINDER)
        return (None, block["text"]) if is_reminder else (block, "")
    content = block.get("content")
    if block["type"] != "tool_result" or not content:
        return block, ""
    if isinstance(content, str):
        rest = _REMINDERS_AT_END.sub("", content)
        return {**block, "content": rest}, content[len(rest) :]
    kept, reminders = list(content), ""
    while kept and kept[-1].get("type") == "text":
        text = kept.pop()["text"]
        rest = _REMINDERS_AT_END.sub("", text)
        reminders = text[len(rest) :] + reminders
        if rest:
            kept.append({"type": "text", "text": rest})
            break
    return {**block, "content": kept}, reminders


def _without_reminder(block: JsonObject) -> JsonObject:
    """A text without the reminder that oh-my-pi puts before the first prompt; other clients use blocks of their own."""
    if block["type"] != "text":
        return block
    rest = _REMINDER_BEFORE.sub("", block["text"])
    return {**block, "text": rest} if rest else block
