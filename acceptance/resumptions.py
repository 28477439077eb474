"""Sessions converted for OpenCode and Gemini CLI, resumed by the real program.

Both keep only what they send, so the history is taken from the request for one more prompt. Texts, calls and results
must be those of the converted session, in the same order.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, cast

from acceptance import network
from acceptance.cases import Case, Outcome
from acceptance.comparison import differences
from acceptance.network import PORT
from acceptance.programs import Name, Resuming, install
from acceptance.sources import Source
from sessiontree.conversion.install import Request, carry_out, make_plan
from sessiontree.core.messages import Message, Text, Thinking, ToolCall, ToolResult, message_blocks

PROGRAMS: tuple[Resuming, ...] = ("opencode", "gemini")
PROMPT = "SESSIONTREE-ACCEPTANCE-PROMPT"
SECONDS = 120
_ENVIRONMENT_MARK = "<session_context>"
_MODEL = "scripted"

Item: TypeAlias = tuple[str, ...]


def try_resumptions(programs: Sequence[Resuming], sources: Sequence[Source], folder: Path) -> Iterator[Outcome]:
    """Every sound session in every program, one after the other: each program uses a fixed port of its own."""
    for program in programs:
        for number, source in enumerate(sources):
            if source.is_healthy() and source.opened().context().messages:
                yield _try(source, program, folder / program / str(number))


def _try(source: Source, program: Resuming, folder: Path) -> Outcome:
    case = Case(source, cast(Name, program))  # a case of the other programs, only to be shown with them
    project = folder / "project"
    project.mkdir(parents=True)
    home = folder / "home"
    environment = {"HOME": str(home), "SESSIONTREE_HOME": str(folder / "ours")}
    session = source.opened()
    plan = make_plan(session, Request(program, cwd=str(project)), environment)
    expected = _items_of(list(carry_out(session, plan).context().messages), program)
    runs = _commands(program, plan.install, plan.resume[-1])
    files = _files(program, home)
    result = network.RunResult(None, "", "")
    for command in runs:
        result = network.run(command, {**_variables(home), "PWD": str(project)}, project, SECONDS, files)
        if result.exit_code != 0:
            return Outcome(case, "differs", f"exit code {result.exit_code}: {(result.stderr or result.stdout)[-300:]}")
    for request in result.requests:
        body = request["body"] if isinstance(request["body"], dict) else {}
        if PROMPT in json.dumps(body.get("messages") or body.get("contents") or "") and body.get("tools"):
            found = _items_of_chat(body["messages"]) if "messages" in body else _items_of_contents(body["contents"])
            ours, theirs = [*map(repr, expected)], [*map(repr, found)]
            return Outcome(case, "ok") if ours == theirs else Outcome(case, "differs", "", differences(ours, theirs))
    return Outcome(case, "differs", "the program sent no request with the prompt")


def _commands(program: Resuming, importing: Sequence[str], id: str) -> list[list[str]]:
    installed = install(program)
    if program == "opencode":
        binary = str(installed.binary)
        run = [binary, "run", "--session", id, "--model", f"scripted/{_MODEL}", "--format", "json", PROMPT]
        return [[binary, *importing[1:]], run]
    options = ["-m", "gemini-2.5-flash", "--approval-mode", "yolo", "-o", "json", "--resume", id, "-p", PROMPT]
    return [[str(installed.binary), str(installed.module), *options]]


def _variables(home: Path) -> dict[str, str]:
    return {
        "HOME": str(home),
        "NO_COLOR": "1",
        "TERM": "dumb",
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        "OPENCODE_DISABLE_SHARE": "1",
        "GEMINI_API_KEY": "none",
        "GOOGLE_GEMINI_BASE_URL": f"http://127.0.0.1:{PORT}",
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
        "GEMINI_CLI_NO_RELAUNCH": "1",
        "NO_BROWSER": "1",
    }


def _files(program: Resuming, home: Path) -> dict[Path, str]:
    if program == "opencode":
        model = {
            "name": _MODEL,
            "attachment": True,
            "modalities": {"input": ["text", "image"], "output": ["text"]},
            "limit": {"context": 1_000_000, "output": 4096},
        }
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "name": "scripted",
            "options": {"baseURL": f"http://127.0.0.1:{PORT}/v1", "apiKey": "none"},
            "models": {_MODEL: model},
        }
        name = f"scripted/{_MODEL}"
        settings: dict[str, Any] = {"autoupdate": False, "share": "disabled", "model": name, "small_model": name}
        return {home / ".config/opencode/opencode.json": json.dumps({**settings, "provider": {"scripted": provider}})}
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"enableAutoUpdate": False, "disableAutoUpdate": True},
    }
    return {home / ".gemini/settings.json": json.dumps(settings)}


# Histories as items: texts of one role that follow each other are one


def _items_of(messages: list[Message], program: Resuming) -> list[Item]:
    items: list[Item] = []
    for message in messages:
        calls: list[Item] = []
        for block in message_blocks(message):
            match block:
                case ToolCall():
                    calls.append(("call", block.id, block.name, _canonical(block.arguments)))
                case Text() if isinstance(message, ToolResult):
                    items.append(("result", message.tool_call_id, block.text))
                case Text():
                    _add_text(items, message.role, block.text)
                case Thinking() if program == "opencode":  # of another model: sent as text
                    _add_text(items, message.role, block.thinking)
                case _:
                    pass
        items += calls
    return items


def _items_of_chat(messages: list[dict[str, Any]]) -> list[Item]:
    items: list[Item] = []
    for message in messages:
        content = message.get("content")
        parts = content if isinstance(content, list) else [{"text": content or ""}]
        text = "".join(part.get("text") or "" for part in parts)
        if message["role"] == "tool":
            items.append(("result", message["tool_call_id"], text))
        elif message["role"] != "system" and text.strip('"') != PROMPT:
            _add_text(items, message["role"], text)
        for call in message.get("tool_calls") or ():
            function = call["function"]
            items.append(("call", call["id"], function["name"], _canonical(json.loads(function["arguments"]))))
    return items


def _items_of_contents(contents: list[dict[str, Any]]) -> list[Item]:
    items: list[Item] = []
    for content in contents:
        role = {"model": "assistant"}.get(content["role"], content["role"])
        for part in content["parts"]:
            if "functionCall" in part:
                call = part["functionCall"]
                items.append(("call", call.get("id"), call["name"], _canonical(call.get("args") or {})))
            elif "functionResponse" in part:
                response = part["functionResponse"]["response"]
                text = response.get("output", response.get("error"))
                items.append(("result", part["functionResponse"].get("id"), text))
            elif "text" in part and part["text"] != PROMPT and not part["text"].startswith(_ENVIRONMENT_MARK):
                _add_text(items, role, part["text"])
    return items


def _add_text(items: list[Item], role: str, text: str) -> None:
    text = "".join(text.split())
    if items and items[-1][0] == role:
        items[-1] = (role, items[-1][1] + text)
    elif text:
        items.append((role, text))


def _canonical(arguments: Mapping[str, Any]) -> str:
    return json.dumps(arguments, sort_keys=True)
