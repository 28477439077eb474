"""`chat --print`: one answer for a script, once through the real packages of each provider, else in the process."""

from __future__ import annotations

import json

import pytest

import sessiontree
from sessiontree.core.messages import message_text
from sessiontree.testing.model_server import ModelServer
from tests.chat.terminals import Place, call, scripted, texts, turn

MODELS = ["anthropic:claude-opus-5", "openai:gpt-5", "openai-chat:gpt-5"]


@pytest.mark.parametrize("model", MODELS)
def test_only_the_answer_after_parallel_calls_is_printed(place: Place, model: str) -> None:
    (place.project / "a.txt").write_text("alpha")
    (place.project / "b.txt").write_text("beta")
    script = [
        turn("I look.", call("read", path="a.txt"), call("read", path="b.txt")),
        turn("alpha and beta, 和平"),
    ]
    with ModelServer(script) as server:
        done = place.run("-p", "what is in them?", "--model", model, more=server.environment())
    assert (done.code, done.out, done.err) == (0, "alpha and beta, 和平\n", "")
    roles = [message.role for message in place.session().context().messages]
    assert roles == ["user", "assistant", "toolResult", "toolResult", "assistant"]


def test_json_is_one_object_that_names_the_session(place: Place) -> None:
    model = scripted(place, turn("Hello."))
    (result,) = place.run("-p", "hi", "--output", "json", "--model", model).objects()
    assert (result["schemaVersion"], result["text"], result["reason"]) == (1, "Hello.", "done")
    assert result["path"] == place.session().location
    assert result["model"] == model


def test_stream_json_prints_one_event_per_line(place: Place) -> None:
    model = scripted(place, turn("I look.", call("ls", path=".")), turn("Empty."))
    done = place.run("-p", "look", "--output", "stream-json", "--model", model)
    kinds = [event["type"] for event in done.objects()]
    assert kinds[0] == "agent_start"
    assert kinds[-1] == "agent_end"
    assert {"turn_start", "text_delta", "tool_start", "tool_end", "entry", "usage", "turn_end"} <= set(kinds)


def test_piped_input_is_the_prompt_or_is_appended_to_it(place: Place) -> None:
    model = scripted(place, turn("Done."))
    place.run("-p", "--model", model, typed="from the pipe\n")
    place.run("-p", "explain:", "--model", model, typed="from the pipe\n")
    texts = [message_text(session.context().messages[0]) for session in place.sessions()]
    assert texts == ["from the pipe", "explain:\n\nfrom the pipe"]


def test_continuing_without_a_session_starts_one_and_reports_that(place: Place) -> None:
    done = place.run("-c", "-p", "hello", "--model", scripted(place, turn("Hello.")))
    assert (done.code, done.out) == (0, "Hello.\n")
    assert "no session in this folder to continue; starting a new one" in done.err
    assert texts(place.session()) == ["hello", "Hello."]


def test_a_session_of_an_old_version_is_upgraded_by_the_first_prompt(place: Place) -> None:
    path = place.project / "old.jsonl"
    lines = (
        {"type": "session", "id": "old", "timestamp": "2025-01-01T00:00:00.000Z", "cwd": str(place.project)},
        {"type": "message", "timestamp": "2025-01-01T00:00:01.000Z", "message": {"role": "user", "content": "first"}},
    )
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    before = path.read_bytes()
    model = scripted(place, turn("Yes."))
    chat = place.run("-r", str(path), "--model", model, typed="/tree\n\n/quit\n")
    assert (chat.code, path.read_bytes()) == (0, before)
    chat = place.run("-r", str(path), "--model", model, typed="go on\n/quit\n")
    (backup,) = place.project.glob("*.bak")
    assert backup.read_bytes() == before
    assert chat.out.count(f"upgraded from version 1 to 3; the old file is {backup}") == 1
    assert texts(sessiontree.open(path)) == ["first", "go on", "Yes."]


def test_a_session_is_continued_in_place_or_in_a_copy(place: Place) -> None:
    answers = {"a": "One.", "b": "Two.", "c": "Three."}
    model = scripted(place, *(turn(answer, when=prompt) for prompt, answer in answers.items()))
    first = place.run("-p", "a", "--output", "json", "--model", model).objects()[0]
    second = place.run("-c", "-p", "b", "--output", "json", "--model", model).objects()[0]
    third = place.run("--fork", str(first["session"]), "-p", "c", "--json", "--model", model)
    assert second["session"] == first["session"]
    assert third.objects()[0]["session"] != first["session"]
    old, new = place.sessions()
    assert [message_text(message) for message in old.context().messages] == ["a", "One.", "b", "Two."]
    assert [message_text(message) for message in new.context().messages] == ["a", "One.", "b", "Two.", "c", "Three."]


def test_calls_that_need_approval_are_denied_and_reported(place: Place) -> None:
    model = scripted(place, turn("I write.", call("write", path="x", content="x")), turn("Denied, then."))
    done = place.run("-p", "write", "--model", model)
    assert done.out == "Denied, then.\n"
    assert "no user is present to approve it" in done.err
    assert not (place.project / "x").exists()


def test_approval_can_be_given_in_advance(place: Place) -> None:
    model = scripted(place, turn("I write.", call("write", path="x", content="x")), turn("Done."))
    place.run("-p", "write", "--approval", "autoEdit", "--model", model)
    assert (place.project / "x").read_text() == "x"


def test_with_no_session_nothing_is_saved(place: Place) -> None:
    done = place.run("-p", "hi", "--no-session", "--json", "--model", scripted(place, turn("Gone.")))
    assert done.objects()[0]["path"] is None
    assert place.sessions() == []


def test_a_provider_that_fails_is_an_error_with_its_reason(place: Place) -> None:
    with ModelServer([]) as server:
        done = place.run("-p", "hi", "--model", MODELS[0], more=server.environment())
    assert done.code == 1
    assert done.err.startswith("sessiontree: anthropic:claude-opus-5: ")


def test_without_a_model_the_error_explains_how_to_configure_one(place: Place) -> None:
    done = place.run("-p", "hi")
    assert done.code == 2
    for way in ("--model", "sessiontree config set model", "SESSIONTREE_MODEL", "ANTHROPIC_API_KEY", "--model demo"):
        assert way in done.err
    assert place.sessions() == []


def test_the_demonstration_needs_no_key_and_works_with_real_tools(place: Place) -> None:
    done = place.run("-p", "go", "--model", "demo", "--approval", "yolo", "--output", "stream-json")
    results = [event["output"] for event in done.objects() if event["type"] == "tool_end"]
    assert len(results) == 2
    assert not any(result["is_error"] for result in results)  # type: ignore[index]
    assert list(place.project.iterdir()) == []
