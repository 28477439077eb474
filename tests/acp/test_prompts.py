"""Prompts: streamed answers, approvals, cancellation, modes, content of all kinds, and sessions of other agents."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

import sessiontree
from sessiontree.core.messages import Image, User, message_blocks
from sessiontree.models.scripted import ScriptCall, ScriptError, ScriptTurn
from sessiontree.session.session import Session
from tests.acp.client import Client, RefusedError, choose, leave_open
from tests.acp.conftest import scripted

PI = "02a1c0de-5e55-7000-8000-000000000002"
PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 20).decode()


def opened(home: Path, id: str) -> Session:
    return sessiontree.open(id, home=home / ".local/share/sessiontree")


def write(name: str) -> ScriptTurn:
    return ScriptTurn(text=f"I write {name}.", tool_calls=(ScriptCall("write", {"path": name, "content": "x\n"}),))


def test_an_answer_is_streamed_and_a_call_runs_after_the_user_allowed_it(home: Path, project: Path) -> None:
    turns = (
        ScriptTurn(thinking="Let me see.", text="I write.", tool_calls=write("one").tool_calls),
        write("two"),
        write("three"),
        ScriptTurn(text="Done."),
    )
    with Client(home, "--model", scripted(project, *turns)) as client:
        id = client.new(project)
        answers = iter(("once", "always"))
        client.answer = lambda _: choose(next(answers))(_)
        assert client.prompt(id, "make files") == "end_turn"
        assert client.text("agent_thought_chunk") == "Let me see."
        assert client.text() == "I write.I write two.I write three.Done."
        messages = [update["messageId"] for update in client.updates if "messageId" in update]
        assert len(dict.fromkeys(messages)) == 4
        assert client.statuses()[:3] == [
            ("write one", "in_progress"),
            ("call_1", "in_progress"),
            ("call_1", "completed"),
        ]
        assert len(client.asked) == 2
        question = client.asked[0]["params"]
        assert question["toolCall"]["toolCallId"] == "call_1"
        assert [option["kind"] for option in question["options"]] == ["allow_once", "allow_always", "reject_once"]
        assert "+x" in question["toolCall"]["content"][1]["content"]["text"]
        titles = [update["title"] for update in client.updates if update["sessionUpdate"] == "session_info_update"]
        assert titles == ["make files"]
    assert {path.name for path in project.iterdir()} >= {"one", "two", "three"}
    with opened(home, id) as session:
        assert session.config.approval_tools == ("write",)


def test_a_rejected_call_is_not_run_and_the_model_is_told(home: Path, project: Path) -> None:
    with Client(
        home, "--model", scripted(project, write("one"), ScriptTurn(when="was not run", text="Fine."))
    ) as client:
        id = client.new(project)
        client.answer = choose("no")
        assert client.prompt(id, "make a file") == "end_turn"
        assert client.statuses()[-1] == ("call_1", "failed")
        assert client.text().endswith("Fine.")
    assert not (project / "one").exists()


@pytest.mark.slow
def test_an_answer_that_was_not_offered_or_an_error_of_the_client_is_a_no(home: Path, project: Path) -> None:
    turns = (write("one"), ScriptTurn(when="was not run", text="Fine."))
    with Client(home, "--model", scripted(project, *turns)) as client:
        id = client.new(project)
        client.answer = choose("made up")
        assert client.prompt(id, "make a file") == "end_turn"
    assert not (project / "one").exists()


@pytest.mark.parametrize(
    "how",
    ["notification", pytest.param("request", marks=pytest.mark.slow), pytest.param("outcome", marks=pytest.mark.slow)],
)
def test_a_cancel_during_an_approval_ends_the_prompt_and_runs_nothing(home: Path, project: Path, how: str) -> None:
    with Client(home, "--model", scripted(project, write("one"), ScriptTurn(text="Again."))) as client:
        id = client.new(project)
        client.answer = leave_open if how != "outcome" else lambda _: {"outcome": {"outcome": "cancelled"}}
        prompt = client.start_prompt(id, "make a file")
        client.wait_for(lambda: client.asked, "the question")
        if how == "notification":
            client.notify("session/cancel", sessionId=id)
        elif how == "request":
            client.notify("$/cancel_request", requestId=prompt)
        assert client.result(prompt) == {"stopReason": "cancelled"}
        if how != "outcome":
            client.wait_for(lambda: client.notifications, "the end of the question")
            withdrawn = client.notifications[0]
            assert withdrawn["method"] == "$/cancel_request"
            assert withdrawn["params"] == {"requestId": client.asked[0]["id"]}
            client.write({"jsonrpc": "2.0", "id": client.asked[0]["id"], "result": choose("once")({})})  # too late
        assert client.prompt(id, "try again") == "end_turn"
        assert client.text().endswith("Again.")
    assert not (project / "one").exists()
    with opened(home, id) as session:
        assert [message.role for message in session.context().messages] == [
            "user",
            "assistant",
            "toolResult",
            "user",
            "assistant",
        ]


def test_a_cancel_keeps_the_text_so_far_and_a_second_prompt_meanwhile_is_refused(home: Path, project: Path) -> None:
    turns = (ScriptTurn(text="one two three four", piece=4, delay=0.05), ScriptTurn(text="Hello."))
    with Client(home, "--model", scripted(project, *turns)) as client:
        id = client.new(project)
        first = client.start_prompt(id, "count")
        client.wait_for(client.text, "the beginning of the answer")
        with pytest.raises(RefusedError, match="a prompt is in progress") as refused:
            client.prompt(id, "and this")
        assert refused.value.code == -32600
        client.notify("session/cancel", sessionId=id)
        assert client.result(first) == {"stopReason": "cancelled"}
        shown = client.text()
        other = client.new(project)
        assert client.prompt(other, "hi") == "end_turn"
    with opened(home, id) as session:
        texts = [message.text for message in session.context().messages]
    assert texts[0] == "count"
    assert texts[1].startswith(shown.removesuffix(" "))


def test_a_failure_of_the_model_is_an_error_and_the_prompt_is_kept(home: Path, project: Path) -> None:
    turns = (ScriptTurn(error=ScriptError("auth")), ScriptTurn(text="cut", stop="length"))
    with Client(home, "--model", scripted(project, *turns)) as client:
        id = client.new(project)
        with pytest.raises(RefusedError) as refused:
            client.prompt(id, "important words")
        assert refused.value.code == -32603
        assert client.prompt(id, "more") == "max_tokens"
    with opened(home, id) as session:
        assert "important words" in [message.text for message in session.context().messages]


@pytest.mark.slow
def test_images_links_and_embedded_files_reach_the_model(home: Path, project: Path) -> None:
    long = "\n".join(f"line {number}" for number in range(30))
    blocks = [
        {"type": "text", "text": "Compare "},
        {"type": "image", "data": PIXEL, "mimeType": "image/png"},
        {"type": "resource_link", "uri": "file:///x/a.py", "name": "a.py"},
        {"type": "resource", "resource": {"uri": "file:///x/b.py", "text": long}},
    ]
    with Client(home, "--model", scripted(project, ScriptTurn(when="line 29", text="Same."))) as client:
        id = client.new(project)
        assert client.call("session/prompt", sessionId=id, prompt=blocks) == {"stopReason": "end_turn"}
        for wrong in ([], [{"type": "audio", "data": "", "mimeType": "audio/wav"}], [{**blocks[1], "data": "%"}]):
            with pytest.raises(RefusedError) as refused:
                client.call("session/prompt", sessionId=id, prompt=wrong)
            assert refused.value.code == -32602
        replayed = client.load(id, project)
    assert [update["content"]["type"] for update in replayed[:3]] == ["text", "image", "text"]
    with opened(home, id) as session:
        (message, _) = session.context().messages
    assert isinstance(message, User)
    assert any(isinstance(block, Image) for block in message_blocks(message))
    assert "[@a.py](file:///x/a.py)" in message.text
    assert "line 29" in message.text


def test_modes_are_approval_modes(home: Path, project: Path) -> None:
    with Client(home, "--model", scripted(project, write("one"), ScriptTurn(text="Done."))) as client:
        id = client.new(project)
        with pytest.raises(RefusedError, match="no mode is named 'wild'"):
            client.call("session/set_mode", sessionId=id, modeId="wild")
        client.call("session/set_mode", sessionId=id, modeId="autoEdit")
        assert client.prompt(id, "make a file") == "end_turn"
        assert client.asked == []
    assert (project / "one").exists()


def test_another_agents_session_is_continued_in_place_after_the_questions_of_a_chat(home: Path, project: Path) -> None:
    """Its file names another model: the user decides. A call without a result is not run without being asked for."""
    (file,) = home.glob(f".pi/**/*{PI}.jsonl")
    before = file.read_bytes()
    model = {"SESSIONTREE_MODEL": scripted(project, ScriptTurn(text="Continued."))}
    with Client(home, more=model) as client:
        client.load(PI, project)
        assert file.read_bytes() == before
        client.answer = leave_open
        prompt = client.start_prompt(PI, "Go on.")
        client.wait_for(lambda: client.asked, "the question about the model")
        assert file.read_bytes() == before
        client.notify("session/cancel", sessionId=PI)
        assert client.result(prompt) == {"stopReason": "cancelled"}
        assert file.read_bytes() == before

        client.answer = choose("no")
        assert client.prompt(PI, "Go on.") == "end_turn"
        assert "Use it?" in client.asked[-1]["params"]["toolCall"]["title"]
        assert client.text().endswith("Continued.")
    assert file.read_bytes().startswith(before)
    assert b"Continued." in file.read_bytes()


def test_a_call_without_a_result_is_asked_about_before_the_next_prompt(home: Path, project: Path) -> None:
    session = sessiontree.create(project, home=home / ".local/share/sessiontree")
    session.append({"role": "user", "content": "make a file"})
    call = {"type": "toolCall", "id": "c1", "name": "write", "arguments": {"path": "one", "content": "x"}}
    session.append({"role": "assistant", "content": [call], "stopReason": "toolUse"})
    session.close()
    with Client(home, "--model", scripted(project, ScriptTurn(text="I see."))) as client:
        client.call("session/resume", sessionId=session.id, cwd=str(project))
        client.answer = choose("no")
        assert client.prompt(session.id, "go on") == "end_turn"
        assert "write one" in client.asked[0]["params"]["toolCall"]["title"]
    assert not (project / "one").exists()
    with opened(home, session.id) as again:
        roles = [message.role for message in again.context().messages]
    assert roles == ["user", "assistant", "toolResult", "user", "assistant"]


@pytest.mark.slow
def test_notes_about_a_session_are_notices_for_clients_that_show_them(home: Path, project: Path) -> None:
    servers = [{"type": "http", "name": "docs", "url": "http://127.0.0.1:1", "headers": []}]
    for capabilities in ({}, {"session": {"notices": {}}}):
        with Client(home, "--model", scripted(project, ScriptTurn(text="Hello."))) as client:
            client.initialize(**capabilities)
            id = client.call("session/new", cwd=str(project), mcpServers=servers)["sessionId"]
            client.prompt(id, "hi")
            notices = [update["title"] for update in client.updates if update["sessionUpdate"] == "notice"]
            note = "MCP server docs: only servers started as programs are supported"
            assert note in (notices if capabilities else client.text())
            assert bool(notices) == bool(capabilities)
