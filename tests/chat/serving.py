"""Helpers of the end-to-end tests: protocols, requests that a server received, and checks of the session afterwards."""

from __future__ import annotations

import contextlib
import io
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from sessiontree.cli import main
from sessiontree.testing.model_server import ModelServer, Recorded
from tests.chat.terminals import SECONDS, Place, Terminal

ANTHROPIC, RESPONSES, COMPLETIONS = "anthropic:claude-opus-5", "openai:gpt-5", "openai-chat:gpt-5"
MODELS = [ANTHROPIC, pytest.param(RESPONSES, marks=pytest.mark.slow)]
PROTOCOLS = [*MODELS, pytest.param(COMPLETIONS, marks=pytest.mark.slow)]
"""For whole conversations, each of which takes seconds. `test_print.py` has every protocol in the ordinary run."""


def opened(
    place: Place, server: ModelServer, model: str, *arguments: str, more: Mapping[str, str] | None = None
) -> Terminal:
    """A terminal with a chat whose model is the server."""
    return Terminal(place, ["--model", model, *arguments], {**server.environment(), **(more or {})})


def say(terminal: Terminal, prompt: str, answer: str) -> str:
    """Send a prompt and wait for the end of the run; returns the output before the answer."""
    terminal.enter(prompt)
    shown = terminal.wait_for(answer)
    terminal.wait_for("tokens in")
    return shown


def leave(terminal: Terminal) -> None:
    terminal.enter("/quit")
    assert terminal.end() == 0


def wait_for_question(terminal: Terminal, tool: str) -> None:
    """Wait until the approval of a tool call is requested. The screen is redrawn when it is answered."""
    terminal.wait_for(f"\n? {tool}: ")
    terminal.wait_for("or n and a reason:")


class ShownMessage(Struct, frozen=True):
    """A message as `sessiontree context` prints it."""

    role: str
    text: str
    calls: tuple[str, ...]
    """The tools it calls."""
    is_error: bool


def newest(place: Place) -> Path:
    return max((place.home / "sessions").rglob("*.jsonl"), key=lambda path: path.name)


def checked(place: Place, path: Path | None = None) -> list[ShownMessage]:
    """The messages of a session, as our commands print them; `doctor` must find nothing, and no call may be open."""
    file = str(path or newest(place))
    (examined,) = _told(place, "doctor", file)["sessions"]
    assert (examined["error"], examined["findings"]) == (None, [])
    messages = _told(place, "context", file)["messages"]
    answered = {one["toolCallId"] for one in messages}
    assert [call for one in messages for call in one["toolCalls"] if call["id"] not in answered] == []
    return [
        ShownMessage(one["role"], one["text"], tuple(call["name"] for call in one["toolCalls"]), one["isError"])
        for one in messages
    ]


def texts(place: Place, path: Path | None = None) -> list[str]:
    return [one.text for one in checked(place, path)]


def _told(place: Place, *arguments: str) -> dict[str, Any]:
    out = io.TextIOWrapper(io.BytesIO(), "utf-8")
    with contextlib.redirect_stdout(out):
        code = main([*arguments, "--json", "--home", str(place.home)])
        out.flush()
    printed = out.buffer.getvalue()
    assert code == 0, printed
    result: dict[str, Any] = json.loads(printed)
    return result


def results_sent(recorded: Recorded) -> list[str]:
    """The tool results in a request to the model, in the order of the calls."""
    return [text for _, text in sorted(_results(recorded))]


def _results(recorded: Recorded) -> list[tuple[str, str]]:
    body = recorded.body
    if recorded.path.endswith("/responses"):
        items = [one for one in body["input"] if one.get("type") == "function_call_output"]
        return [(one["call_id"], _text(one["output"])) for one in items]
    if recorded.path.endswith("/chat/completions"):
        return [(one["tool_call_id"], _text(one["content"])) for one in body["messages"] if one["role"] == "tool"]
    blocks = [block for one in body["messages"] for block in one["content"] if isinstance(block, dict)]
    return [(one["tool_use_id"], _text(one["content"])) for one in blocks if one["type"] == "tool_result"]


def tools_offered(recorded: Recorded) -> set[str]:
    return {tool.get("name") or tool["function"]["name"] for tool in recorded.body["tools"]}


def sent(recorded: Recorded) -> str:
    """An entire request as text."""
    return json.dumps(recorded.body, ensure_ascii=False)


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content)


def wait_for(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come about"
        time.sleep(0.02)


def wait_for_end(place: Place, name: str) -> None:
    """Wait until the process group whose id a command wrote to a file has ended."""
    group = (place.project / name).read_text().strip()
    wait_for(lambda: not _members(group), f"the end of the process group in {name}")


def _members(group: str) -> list[str]:
    """The processes of a group, without zombies."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, its_group = stat.read_text().rpartition(")")[2].split()[:3]
        except (FileNotFoundError, ProcessLookupError):  # it has just ended
            continue
        if its_group == group and state not in ("Z", "X"):
            found.append(stat.parent.name)
    return found
