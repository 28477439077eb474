"""`chat --print`: one answer for a script, once through the real packages of each provider, else in the process."""

from __future__ import annotations

import json

import pytest

import sessiontree
from sessiontree.agent.limits import RunUsage
from sessiontree.chat.event_printer import describe_usage
from sessiontree.core.messages import message_text
from sessiontree.sources.find import iter_sessions
from sessiontree.testing.model_server import ModelServer
from tests.chat.terminals import Place, call, scripted, texts, turn
from tests.dialects.packed_goldens import snapshot, unpack

MODELS = ["anthropic:claude-opus-5", "openai:gpt-5", "openai-chat:gpt-5"]


@pytest.mark.slow
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


@pytest.mark.parametrize(("mode", "hint"), [("default", "autoEdit or yolo"), ("autoEdit", "yolo")])
def test_a_denied_call_names_only_modes_that_allow_more(place: Place, mode: str, hint: str) -> None:
    model = scripted(place, turn("I run it.", call("bash", command="touch made")), turn("Denied."))
    done = place.run("-p", "go", "--approval", mode, "--model", model)
    assert f"(--approval {hint} allows more)" in done.err


def test_approval_can_be_given_in_advance(place: Place) -> None:
    model = scripted(place, turn("I write.", call("write", path="x", content="x")), turn("Done."))
    place.run("-p", "write", "--approval", "autoEdit", "--model", model)
    assert (place.project / "x").read_text() == "x"


def test_with_no_session_nothing_is_saved(place: Place) -> None:
    done = place.run("-p", "hi", "--no-session", "--json", "--model", scripted(place, turn("Gone.")))
    assert done.objects()[0]["path"] is None
    assert place.sessions() == []


@pytest.mark.slow
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


def claude_session(place: Place) -> str:
    """Two branches: the last line is on the older one. A snip removes the middle of the newer one."""

    def line(uuid: str, parent: str | None, second: int, text: str, **more: object) -> str:
        role = "assistant" if "model" in more else "user"
        content = [{"type": "text", "text": text}] if role == "assistant" else text
        message = {"role": role, "content": content, **more}
        fields = {"type": role, "uuid": uuid, "parentUuid": parent, "message": message, "cwd": str(place.project)}
        time = f"2026-01-01T00:00:{second:02}.000Z"
        return json.dumps({**fields, "sessionId": "s", "version": "2.1.150", "isSidechain": False, "timestamp": time})

    marker = {"removedUuids": ["a1", "u2"]}
    snip = {"type": "system", "subtype": "snip_boundary", "snipMetadata": marker, "content": "", "sessionId": "s"}
    lines = [
        line("u1", None, 1, "first"),
        line("a1", "u1", 2, "One.", model="m"),
        line("u2", "a1", 30, "to be snipped"),
        json.dumps({**snip, "uuid": "x", "parentUuid": "u2", "timestamp": "2026-01-01T00:00:31.000Z"}),
        line("a2", "x", 40, "Newest.", model="m"),
        line("u3", "a1", 3, "other"),
        line("a3", "u3", 4, "Other.", model="m"),
    ]
    path = place.project / "claude.jsonl"
    path.write_text("".join(f"{each}\n" for each in lines))
    return str(path)


def test_options_for_reading_a_session_need_a_session(place: Place) -> None:
    done = place.run("-p", "hello", "--snips", "--model", scripted(place, turn("No.")))
    assert (done.code, "need a session to resume" in done.err) == (2, True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ((), ["first", "One.", "other", "Other.", "go on"]),
        (("--as-of", "timestamps"), ["first", "One.", "to be snipped", "Newest.", "go on"]),
        (("--as-of", "timestamps", "--snips"), ["first", "Newest.", "go on"]),
    ],
)
def test_a_claude_session_is_resumed_as_the_options_read_it(
    place: Place, option: tuple[str, ...], expected: list[str]
) -> None:
    path = claude_session(place)
    with ModelServer([turn("Yes.")]) as server:
        place.run("-p", "go on", "-r", path, "--model", MODELS[0], *option, more=server.environment())
        (request,) = server.requests
    shown = [
        block["text"] if isinstance(block, dict) else block
        for message in request.body["messages"]
        for block in ([message["content"]] if isinstance(message["content"], str) else message["content"])
    ]
    assert shown == expected


def test_a_tiny_cost_is_not_shown_as_zero() -> None:
    assert "$<0.0001" in describe_usage(RunUsage(input=1, cost=0.00001))
    assert "cost unknown" in describe_usage(RunUsage(input=1))


@pytest.mark.parametrize("agent", ["gemini-cli", "opencode"])
def test_a_session_that_can_only_be_read_is_continued_in_a_native_copy(place: Place, agent: str) -> None:
    home = unpack(agent, "01-plain", place.project / "golden").home
    (found,) = [*iter_sessions(str(home))]
    before = snapshot(home)
    done = place.run("--session", str(found), "-p", "hello", "--model", scripted(place, turn("Hello.")))
    assert (done.code, done.out) == (0, "Hello.\n")
    assert done.err.count("can only be read; the chat continues in a copy") == 1
    copy = place.session()
    assert copy.dialect.name == "native"
    assert texts(copy)[-2:] == ["hello", "Hello."]
    assert len(texts(copy)) > 2
    assert snapshot(home) == before
