"""Requests to a provider: retries, thinking, overflow, tools of MCP servers, secrets."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from sessiontree.core.entries import Compaction, ThinkingLevelChange
from sessiontree.models.scripted import ScriptError, ScriptTurn
from sessiontree.testing.model_server import ModelServer, Recorded
from tests.chat.serving import (
    ANTHROPIC,
    COMPLETIONS,
    MODELS,
    PROTOCOLS,
    RESPONSES,
    checked,
    leave,
    opened,
    results_sent,
    say,
    sent,
    tools_offered,
    wait_for_question,
)
from tests.chat.terminals import Place, call, turn

pytestmark = pytest.mark.slow

TOO_LONG = ScriptTurn(error=ScriptError("overflow"))
SUMMARY_PROMPT = "Write (none) under a heading without content."
"""The end of each request for a summary."""


def thinking_sent(recorded: Recorded) -> Any:
    """The thinking parameter of a request, as its protocol encodes it."""
    body = recorded.body
    if recorded.path.endswith("/responses"):
        return body["reasoning"]["effort"]
    if recorded.path.endswith("/chat/completions"):
        return body["reasoning_effort"]
    return body["thinking"]["type"], body["output_config"]["effort"]


LEVELS: dict[str, tuple[Any, Any]] = {
    ANTHROPIC: (("adaptive", "high"), ("adaptive", "low")),
    RESPONSES: ("high", "low"),
    COMPLETIONS: ("high", "low"),
}


@pytest.mark.parametrize("model", PROTOCOLS)
def test_a_busy_provider_is_retried_and_the_thinking_level_is_sent_and_recorded(place: Place, model: str) -> None:
    script = [
        ScriptTurn(error=ScriptError("rate_limit", retry_after=0.01)),
        ScriptTurn(error=ScriptError("overloaded")),
        turn("I thought.", thinking="Hm, hm."),
        turn("I thought less."),
    ]
    quick = {"SESSIONTREE_RETRY_FIRST_DELAY": "0.05"}
    with ModelServer(script) as server, opened(place, server, model, "--thinking", "high", more=quick) as terminal:
        shown = say(terminal, "think", "I thought.")
        assert "attempt 1 failed, retrying in 0 s" in shown
        assert "attempt 2 failed, retrying in 0 s" in shown
        terminal.enter("/thinking low")
        terminal.wait_for("thinking: low")
        say(terminal, "think less", "I thought less.")
        leave(terminal)
    assert [one.outcome for one in server.requests] == ["refused", "refused", "answered", "answered"]
    assert [thinking_sent(one) for one in server.requests] == [*[LEVELS[model][0]] * 3, LEVELS[model][1]]
    assert server.requests[0].body == server.requests[2].body
    assert [one.text for one in checked(place)] == ["think", "I thought.", "think less", "I thought less."]
    changes = [one for one in place.session().path() if isinstance(one, ThinkingLevelChange)]
    assert [one.thinking_level for one in changes] == ["high", "low"]


@pytest.mark.parametrize("model", MODELS)
def test_a_conversation_that_is_too_long_is_compacted_and_sent_again(place: Place, model: str) -> None:
    long = "The lexer is slow. " * 60
    longer = "It reads by letters. " * 60
    notes = turn("## Goal\n\n- Make it fast.", when=SUMMARY_PROMPT, repeat=True)
    script = [notes, turn(long), turn(longer), TOO_LONG, turn("It fits now."), turn(longer * 3), TOO_LONG, TOO_LONG]

    def conversation(server: ModelServer) -> list[Recorded]:
        return [one for one in server.requests if SUMMARY_PROMPT not in sent(one)]

    with ModelServer(script) as server, opened(place, server, model) as terminal:
        say(terminal, "what is slow?", "slow.")
        say(terminal, "and why?", "letters.")
        terminal.enter("what to do?")
        terminal.wait_for("compacting: the context window is full")
        terminal.wait_for("summarized older messages")
        terminal.wait_for("It fits now.")
        terminal.wait_for("tokens in")
        assert len(conversation(server)) == 4
        refused, accepted = conversation(server)[2:]
        assert long in sent(refused)
        assert long not in sent(accepted)
        messages = checked(place)
        assert (messages[0].role, messages[-1].text) == ("compactionSummary", "It fits now.")
        assert "Make it fast." in messages[0].text
        assert json.dumps(messages[0].text, ensure_ascii=False)[1:-1] in sent(accepted)

        say(terminal, "how does it read?", "letters.")
        terminal.enter("more?")
        terminal.wait_for("still too long after a compaction")
        terminal.wait_for("tokens in")
        assert len(conversation(server)) == 7  # once more, and no further
        leave(terminal)
    messages = checked(place)
    assert "more?" in [one.text for one in messages]
    assert len([one for one in place.session().path() if isinstance(one, Compaction)]) == 2


SECRET = "hunter2-is-no-secret-any-more"
SERVER = Path(__file__).parents[1] / "agent" / "mcp_server.py"


@pytest.mark.parametrize("model", MODELS)
def test_tools_of_an_mcp_server_are_called_and_no_secret_is_stored_in_the_home_folder(place: Place, model: str) -> None:
    """A command, a tool, a server and the user print the secret; what is stored and sent contains only its name."""
    (place.home / "mcp.json").write_text(
        json.dumps(
            {
                "mcpServers": {
                    "small": {"command": sys.executable, "args": [str(SERVER)], "env": {"KEY": "${THE_TOKEN}"}}
                }
            }
        )
    )
    (place.project / "notes.txt").write_text(f"it is {SECRET}\n")
    reading = (
        call("read", path="notes.txt"),
        call("bash", command='echo "[$THE_TOKEN]"; cat notes.txt; base64 < notes.txt; env'),
        call("small__environment"),
    )
    script = [
        turn("I add.", call("small__add", one=2, other=3)),
        turn("Five."),
        turn("I look.", *reading),
        turn("Seen."),
    ]
    with ModelServer(script) as server, opened(place, server, model, more={"THE_TOKEN": SECRET}) as terminal:
        terminal.enter("add")
        wait_for_question(terminal, "small__add")
        terminal.answer("y")
        terminal.wait_for("Five.")
        terminal.wait_for("tokens in")
        assert {"small__add", "small__fail", "bash", "read"} <= tools_offered(server.requests[0])
        assert results_sent(server.requests[1]) == ["5"]
        terminal.enter("/mode yolo")
        terminal.enter("!echo mine is $THE_TOKEN")
        terminal.wait_for("exit code 0")
        say(terminal, "look everywhere", "Seen.")
        leave(terminal)
    _, read, ran, environment = results_sent(server.requests[-1])
    assert read == "it is [secret THE_TOKEN]"
    assert ran.startswith("[]\nit is [secret THE_TOKEN]\n")
    assert "KEY=[secret THE_TOKEN]" in environment
    assert any("mine is [secret THE_TOKEN]" in one.text for one in checked(place))
    kept = b"".join(path.read_bytes() for path in place.home.rglob("*") if path.is_file())
    for spelling in (SECRET, "a-key-for-nothing"):
        assert spelling.encode() not in kept
        assert all(spelling not in sent(one) for one in server.requests)
