"""Codex and Qwen Code: how they are driven, and the history in the requests that they send.

Codex sends items of the Responses API, Qwen Code messages of the Chat Completions API. Both become messages in the form
of the Anthropic API, in which histories are compared. Texts that the programs add for the model are left out.
"""

from __future__ import annotations

import json
import re
import shutil
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, TypeAlias

from acceptance import network
from acceptance.programs import Program

JsonObject: TypeAlias = dict[str, Any]
OpenAIAgent: TypeAlias = Literal["codex", "qwen"]

PREAMBLES = (
    *("<environment_context", "<user_instructions", "# AGENTS.md", "<permissions instructions", "<skills_instructions"),
    "<system-reminder",
)
_CODEX_CONFIG = """model = "scripted"
model_provider = "scripted"
approval_policy = "never"
sandbox_mode = "danger-full-access"
[model_providers.scripted]
name = "scripted"
base_url = "http://127.0.0.1:{port}/v1"
env_key = "SCRIPTED_KEY"
wire_api = "responses"
"""
_QWEN_SETTINGS = {
    "security": {"auth": {"selectedType": "openai"}},
    "privacy": {"usageStatisticsEnabled": False},
    "general": {"enableAutoUpdate": False, "disableAutoUpdate": True},
}


def place_session(program: OpenAIAgent, session: Path, home: Path) -> str:
    """Copy a session, and those next to it, to where the program finds them; returns its id."""
    if program == "codex":
        folder = home / ".codex" / "sessions" / "2026" / "01" / "01"
        id = _field(session, '"id"')
        name = f"rollout-2026-01-01T00-00-00-{id}.jsonl"
    else:
        folder = home / ".qwen" / "projects" / re.sub(r"[^a-zA-Z0-9]", "-", str(home)) / "chats"
        id = _field(session, '"sessionId"')
        name = f"{id}.jsonl"
    folder.mkdir(parents=True, exist_ok=True)
    for other in session.parent.glob("*.jsonl"):
        if other != session:
            shutil.copyfile(other, folder / other.name)
    data = session.read_text("utf-8", "surrogateescape")
    if program == "qwen":  # the program looks for sessions of its working folder
        data = re.sub(r'"cwd":\s*"[^"]*"', lambda _: f'"cwd":{json.dumps(str(home))}', data)
    (folder / name).write_text(data, "utf-8", "surrogateescape")
    return id


def _field(session: Path, name: str) -> str:
    found = re.search(rf"{name}:\s*\"([0-9a-fA-F-]{{36}})\"", session.read_text("utf-8", "replace"))
    return found[1] if found else ""


def run_agent(
    program: OpenAIAgent, installed: Program, id: str, prompt: str, home: Path, seconds: float
) -> network.RunResult:
    """Resume a session with one more prompt."""
    assert installed.module is not None
    base = f"http://127.0.0.1:{network.PORT}/v1"
    runtime = [str(installed.binary), str(installed.module)]
    if program == "codex":
        command = [*runtime, "exec", "resume", "--json", "--skip-git-repo-check", id, prompt]
        environment = {"SCRIPTED_KEY": "dummy", "RUST_LOG": "error", "CODEX_HOME": str(home / ".codex")}
        files = {home / ".codex" / "config.toml": _CODEX_CONFIG.replace("{port}", network.PORT)}
    else:
        command = [
            *runtime,
            "--auth-type",
            "openai",
            "--approval-mode",
            "yolo",
            "-o",
            "json",
            "--resume",
            id,
            "-p",
            prompt,
        ]
        environment = {"OPENAI_API_KEY": "dummy", "OPENAI_BASE_URL": base, "OPENAI_MODEL": "scripted"}
        environment["QWEN_CODE_NO_RELAUNCH"] = "1"
        files = {home / ".qwen" / "settings.json": json.dumps(_QWEN_SETTINGS)}
    return network.run(command, environment, home, seconds, files)


def find_history(program: OpenAIAgent, requests: list[JsonObject], prompt: str) -> list[JsonObject] | None:
    """The history in the request with a prompt, without the prompt; None if there is no such request."""
    path, key = ("/v1/responses", "input") if program == "codex" else ("/v1/chat/completions", "messages")
    for request in requests:
        body = request["body"] or {}
        # Qwen Code sends the history a second time, without tools, to remember facts of it.
        if request["path"] == path and prompt in json.dumps(body.get(key)) and body.get("tools"):
            blocks = _item_blocks(body["input"]) if program == "codex" else _message_blocks(body["messages"])
            kept = [(role, block) for role, block in blocks if not _is_added(role, block, prompt)]
            turns = groupby(kept, key=lambda pair: pair[0])
            return [{"role": role, "content": [block for _, block in turn]} for role, turn in turns]
    return None


def _is_added(role: str, block: JsonObject, prompt: str) -> bool:
    text = block.get("text", "").strip() if block["type"] == "text" else ""
    return role == "user" and (text == prompt or text.startswith(PREAMBLES))


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
        if message["role"] == "tool":
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


def _block(part: JsonObject) -> JsonObject:
    url = part.get("image_url")
    address = url.get("url", "") if isinstance(url, dict) else url
    if address:
        kind, _, data = str(address).removeprefix("data:").partition(";base64,")
        return {"type": "image", "source": {"media_type": kind, "data": data}}
    return {"type": "text", "text": part.get("text", "")}
