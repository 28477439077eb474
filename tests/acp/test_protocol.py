"""The connection: versions and capabilities, errors for what a client sends wrong, and the end of a client."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from sessiontree.models.scripted import ScriptTurn
from tests.acp.client import SECONDS, Client, RefusedError
from tests.acp.conftest import scripted

SAMPLE = "01a1c0de-5e55-7000-8000-000000000001"


def test_the_agent_speaks_version_1_and_offers_unfinished_methods_only_on_request(home: Path) -> None:
    with Client(home) as client:
        answer = client.call("initialize", protocolVersion=2)
        assert answer["protocolVersion"] == 1
        offered = answer["agentCapabilities"]
        assert offered["loadSession"] is True
        assert offered["sessionCapabilities"].keys() == {"list", "resume", "close", "delete", "additionalDirectories"}
        with pytest.raises(RefusedError) as refused:
            client.call("session/fork", sessionId=SAMPLE, cwd=str(home))
        assert refused.value.code == -32601
    with Client(home, "--unstable") as client:
        offered = client.initialize()["agentCapabilities"]["sessionCapabilities"]
        assert offered.keys() >= {"fork", "title", "archive"}


def test_wrong_messages_get_errors_and_the_connection_goes_on(home: Path) -> None:
    with Client(home) as client:
        for line, code in (
            (b'{"jsonrpc": "2.0", "id": 1, "met', -32700),
            (b"\xff\xfe\x00", -32700),
            (b"[" * 100_000, -32700),
            (b'[{"jsonrpc": "2.0", "id": 7, "method": "initialize"}]', -32600),
            (b'{"jsonrpc": "2.0", "id": 7, "method": 5}', -32600),
            (b'"text"', -32600),
            (b'{"jsonrpc": "2.0", "id": 7, "method": "session/list", "params": "\\ud800"}', -32602),
        ):
            client.write_line(line)
            assert client.unasked.get(timeout=SECONDS)["error"]["code"] == code, line[:40]
        client.write_line(b"")
        for method, params, code in (
            ("session/nonsense", {}, -32601),
            ("session/new", {"mcpServers": []}, -32602),
            ("session/new", {"cwd": "relative", "mcpServers": []}, -32602),
            ("session/new", {"cwd": str(home / "missing"), "mcpServers": []}, -32602),
            ("session/load", {"sessionId": "unknown", "cwd": str(home), "mcpServers": []}, -32002),
            ("session/resume", {"sessionId": 5, "cwd": str(home)}, -32602),
            ("session/prompt", {"sessionId": SAMPLE, "prompt": []}, -32002),
            ("session/close", {"sessionId": SAMPLE}, -32002),
            ("session/list", {"cursor": "made up"}, -32602),
            ("session/list", {"cwd": "relative"}, -32602),
            ("authenticate", {"methodId": "x"}, -32602),
        ):
            with pytest.raises(RefusedError) as refused:
                client.call(method, **params)
            assert refused.value.code == code, (method, params)
            assert "\n" not in refused.value.message
        client.notify("session/cancel", sessionId="unknown")
        client.notify("session/cancel", wrong=1)
        client.notify("nonsense")
        client.write({"jsonrpc": "2.0", "id": 12345, "result": "an answer to no question"})
        assert client.initialize()["protocolVersion"] == 1


def test_without_a_model_sessions_can_be_read_and_a_prompt_explains_how_to_choose_one(home: Path) -> None:
    with Client(home) as client:
        assert client.load(SAMPLE, home)
        with pytest.raises(RefusedError, match="no model is configured") as refused:
            client.prompt(SAMPLE, "Go on.")
        assert refused.value.code == -32602
        with pytest.raises(RefusedError, match="no model is configured"):
            client.new(home)


def test_the_text_so_far_is_kept_when_the_client_ends_in_the_middle_of_an_answer(home: Path, project: Path) -> None:
    model = scripted(project, ScriptTurn(text="one two three four five six", piece=4, delay=0.05), ScriptTurn(text="x"))
    client = Client(home, "--model", model)
    with client:
        id = client.new(project)
        client.start_prompt(id, "count")
        client.wait_for(lambda: "one" in client.text(), "the beginning of the answer")
    with Client(home, "--model", model) as client:
        replayed = client.load(id, project)
    assert replayed[0]["content"]["text"] == "count"
    assert "one" in client.text()


@pytest.mark.slow
def test_a_signal_ends_the_agent_and_keeps_the_text_so_far(home: Path, project: Path) -> None:
    model = scripted(project, ScriptTurn(text="one two three four five six", piece=4, delay=0.05))
    client = Client(home, "--model", model)
    with client:
        id = client.new(project)
        client.start_prompt(id, "count")
        client.wait_for(lambda: "one" in client.text(), "the beginning of the answer")
        client.process.send_signal(signal.SIGTERM)
        assert client.process.wait(SECONDS) == 0
    with Client(home) as client:
        client.load(id, project)
        assert "one" in client.text()


def test_only_the_protocol_is_written_to_standard_output(home: Path, project: Path) -> None:
    """A script that is not one makes the model fail; a broken settings file makes a warning. Both go to stderr."""
    (home / ".local/share/sessiontree").mkdir(parents=True, exist_ok=True)
    (home / ".local/share/sessiontree/settings.toml").write_text("nonsense = 1\n")
    with Client(home, "--model", scripted(project, ScriptTurn(text="Hello."))) as client:
        id = client.new(project)
        assert client.prompt(id, "hi") == "end_turn"
        assert client.text().endswith("Hello.")
