"""Claude Code: format detection, parsing of individual lines, and the session's header and title."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sessiontree.core.entries import Compaction, Entry, ForkOrigin, MessageEntry, Unknown, type_of
from sessiontree.core.messages import (
    Assistant,
    Image,
    OtherBlock,
    RedactedThinking,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    User,
)
from sessiontree.core.usage import model_of, response_key, usage_of
from sessiontree.dialects.claude import CLAUDE
from sessiontree.dialects.contract import CERTAIN
from sessiontree.session.open import open_store
from sessiontree.session.session import Session
from sessiontree.stores.memory import MemoryStore
from tests.builders import json_line

TIME = "2026-03-01T12:00:00.000Z"


def prompt(content: Any, id: str = "u", **fields: Any) -> dict[str, Any]:
    outside = {"type": "user", "uuid": id, "parentUuid": None, "timestamp": TIME, "sessionId": "s"}
    return {**outside, "message": {"role": "user", "content": content}, **fields}


def session_of(*lines: dict[str, Any]) -> Session:
    return open_store(MemoryStore(b"".join(map(json_line, lines))), dialect="claude")


def parsed(fields: dict[str, Any]) -> Entry:
    return CLAUDE.parse(json.dumps(fields).encode())


def message_in(fields: dict[str, Any]) -> Any:
    entry = parsed(fields)
    assert isinstance(entry, MessageEntry)
    return entry.message


# Detection


def test_a_chain_line_is_recognized_with_certainty() -> None:
    assert CLAUDE.recognize(json_line(prompt("hi"))) == CERTAIN
    assert CLAUDE.recognize(b"\xef\xbb\xbfgarbage\n" + json_line(prompt("hi"))) == CERTAIN


def test_metadata_alone_is_recognized_as_likely() -> None:
    assert 0 < CLAUDE.recognize(json_line({"type": "summary", "summary": "x", "leafUuid": "y"})) < 60


def test_a_first_line_longer_than_the_head_is_still_recognized() -> None:
    assert 0 < CLAUDE.recognize(json_line({**prompt("x"), "isSidechain": False, "z": "y" * 70000})[: 64 * 1024]) < 60


@pytest.mark.parametrize(
    "foreign",
    [
        {"type": "session", "version": 3, "id": "x", "timestamp": TIME, "cwd": "/"},
        {"type": "message", "uuid": "u", "parentUuid": None, "role": "user", "content": "x", "sessionId": "s"},
        {"type": "config", "config": {}},
        {"name": "package", "version": "1"},
    ],
)
def test_files_of_other_clients_are_not_recognized(foreign: dict[str, Any]) -> None:
    assert CLAUDE.recognize(json_line(foreign)) == 0


# Lines


def test_chain_lines_have_their_uuid_and_everything_else_is_metadata() -> None:
    session = session_of(
        prompt("hi"),
        {"type": "custom-title", "customTitle": "t", "uuid": "c", "sessionId": "s"},
        {**prompt("no id"), "uuid": None},
        {"type": "new", "parentUuid": "u", "uuid": "n"},
    )
    assert session.ids == ["u", "@1", "@2", "@3"]
    assert [session.parent(id) for id in session.ids] == [None] * 4
    assert [type_of(entry) for entry in session] == ["message", "custom-title", "message", "new"]


def test_a_snapshot_that_names_a_message_is_not_read_as_that_message() -> None:
    session = session_of({"type": "file-history-snapshot", "messageId": "u", "snapshot": {}}, prompt("hi"))
    assert session.ids == ["@0", "u"]


def test_a_client_type_with_one_of_our_names_gets_a_prefix() -> None:
    session = session_of(prompt("hi"), {"type": "label", "label": "x", "sessionId": "s"})
    assert session.type_of("@1") == "claude:label"
    assert session.labels == {}


def test_all_fields_of_an_unknown_line_are_kept() -> None:
    fields = {"type": "progress", "uuid": "p", "parentUuid": "u", "timestamp": TIME, "data": {"type": "hook_progress"}}
    assert parsed(fields) == Unknown("p", "u", TIME, "progress", fields)


def test_a_user_line_is_a_message() -> None:
    assert parsed(prompt("hi")) == MessageEntry("u", None, TIME, User(1772366400000, "hi"))


def test_each_block_becomes_its_value() -> None:
    blocks: list[Any] = [
        {"type": "text", "text": "t"},
        {"type": "thinking", "thinking": "hm", "signature": "sig"},
        {"type": "redacted_thinking", "data": "xx"},
        {"type": "tool_use", "id": "1", "name": "Read", "input": {"a": 1}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
        {"type": "image", "source": {"type": "url", "url": "x"}},
        {"type": "server_tool_use", "id": "2"},
        5,
    ]
    assert message_in(prompt(blocks)).content == (
        Text("t"),
        Thinking("hm", "sig"),
        RedactedThinking("xx"),
        ToolCall("1", "Read", {"a": 1}),
        Image("AAAA", "image/png"),
        OtherBlock("image", blocks[5]),
        OtherBlock("server_tool_use", blocks[6]),
        OtherBlock("int", 5),
    )


def test_each_result_on_a_line_is_a_message_followed_by_the_text() -> None:
    def result(id: str) -> dict[str, Any]:
        return {"type": "tool_result", "tool_use_id": id, "content": f"out {id}"}

    entry = parsed(prompt([result("1"), {"type": "text", "text": "go on"}, result("2")]))
    assert isinstance(entry, MessageEntry)
    first, second, prompt_message = entry.messages
    assert isinstance(first, ToolResult)
    assert isinstance(second, ToolResult)
    assert isinstance(prompt_message, User)
    assert (first.content, second.tool_call_id, prompt_message.content) == ("out 1", "2", (Text("go on"),))


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [("end_turn", "stop"), ("tool_use", "toolUse"), ("max_tokens", "length"), ("refusal", "refusal")],
)
def test_an_assistant_line_has_model_response_usage_and_stop_reason(theirs: str, ours: str) -> None:
    usage = {"input_tokens": 1, "output_tokens": 2, "cache_read_input_tokens": 3, "cache_creation_input_tokens": 4}
    message = {"id": "msg_1", "model": "claude-x", "content": [], "stop_reason": theirs, "usage": usage}
    found = message_in({"type": "assistant", "uuid": "a", "message": message})
    assert isinstance(found, Assistant)
    assert (found.model, found.provider, found.api) == ("claude-x", "anthropic", "anthropic-messages")
    assert (found.response_id, found.stop_reason, found.usage) == ("msg_1", ours, Usage(1, 2, 3, 4, 10))


def test_a_boundary_is_a_compaction() -> None:
    about = {"trigger": "auto", "preTokens": 900, "postTokens": 90}
    fields = {"type": "system", "subtype": "compact_boundary", "uuid": "b", "compactMetadata": about}
    assert parsed(fields) == Compaction("b", tokens_before=900, tokens_after=90, details=about)


@pytest.mark.parametrize(
    "message", [None, "text", {"content": None}, {"content": {"type": "text", "text": "x"}}, [1], 7]
)
def test_a_message_of_any_form_is_read(message: Any) -> None:
    for kind in ("user", "assistant"):
        assert type_of(parsed({"type": kind, "uuid": "u", "message": message})) == "message"


# Header


def test_the_header_is_collected_from_the_lines() -> None:
    header = session_of(
        {"type": "mode", "mode": "normal", "sessionId": "of the mode"},
        prompt("hi", "u1", cwd="/first", sessionId="old"),
        prompt("ho", "u2", cwd="/second", sessionId="new"),
    ).header
    assert (header.id, header.cwd, header.timestamp, header.version) == ("new", "/first", TIME, 1)


def test_without_an_id_in_the_lines_the_file_s_name_is_the_id() -> None:
    nameless = prompt("hi")
    del nameless["sessionId"]
    assert session_of(nameless).id == MemoryStore(b"").location


def test_a_copy_names_its_origin() -> None:
    copied = [prompt("x", f"u{n}", forkedFrom={"sessionId": "old", "messageUuid": f"m{n}"}) for n in range(5)]
    header = session_of(*copied, prompt("own", "v"), prompt("own", "w")).header
    assert (header.parent_session, header.forked_from) == ("old", ForkOrigin("old", "m4"))


# Titles


def test_the_last_title_of_the_user_takes_precedence() -> None:
    lines = [
        {"type": "custom-title", "customTitle": "first"},
        {"type": "custom-title", "customTitle": "mine"},
        {"type": "ai-title", "aiTitle": "theirs"},
        prompt("hi"),
    ]
    assert session_of(*lines).name == "mine"
    assert session_of(*lines[2:]).name == "theirs"


def test_the_last_recorded_prompt_precedes_a_summary_and_that_the_first_prompt() -> None:
    noted = {"type": "last-prompt", "lastPrompt": "noted", "leafUuid": "u"}
    summed = {"type": "summary", "summary": "summed", "leafUuid": "u"}
    assert session_of(noted, summed, prompt("hi")).name == "noted"
    assert session_of(summed, prompt("hi")).name == "summed"
    assert session_of(prompt("hi")).name == "hi"


def test_the_first_prompt_skips_client_generated_text() -> None:
    meaningless = [
        prompt("caveat", isMeta=True),
        prompt("summary", isCompactSummary=True),
        prompt("a sub-agent's", isSidechain=True),
        prompt([{"type": "tool_result", "tool_use_id": "1", "content": "out"}]),
        prompt("<command-name>/model</command-name>"),
        prompt("<local-command-stdout>ok</local-command-stdout>"),
        prompt("<session-start-hook>x"),
        prompt("[Request interrupted by user for tool use]"),
        prompt("<ide_opened_file>a.py</ide_opened_file>"),
        prompt("  "),
    ]
    lines = [{**fields, "uuid": f"u{number}"} for number, fields in enumerate(meaningless)]
    real = prompt([{"type": "text", "text": "<ide_selection>x</ide_selection>"}, {"type": "text", "text": "do\nit"}])
    assert session_of(*lines, real).name == "do it"
    assert session_of(*lines).name == "/model"


def test_a_long_prompt_is_cut() -> None:
    assert session_of(prompt("x" * 300)).name == "x" * 200 + "…"


def test_a_session_without_messages_has_no_title() -> None:
    assert session_of({"type": "mode", "mode": "normal", "sessionId": "s"}).name is None


def test_the_transcript_of_a_sub_agent_is_named_by_its_task() -> None:
    assert session_of(prompt("the task", isSidechain=True)).name == "the task"


@pytest.mark.parametrize(
    "message",
    [
        {"id": "r", "model": "m", "usage": {"input_tokens": 5, "output_tokens": 2.5, "cache_read_input_tokens": 3}},
        {"id": "", "model": None, "usage": {"input_tokens": None, "output_tokens": True}},
        {"id": 7, "usage": {"input_tokens": "5"}, "content": [{"type": "text", "text": "hi"}]},
        {"id": "r", "model": "m", "usage": None},
        {"usage": []},
        "usage",
    ],
)
def test_usage_alone_is_parsed_as_in_the_complete_line(message: Any) -> None:
    raw = json_line({**prompt("x"), "type": "assistant", "message": message})
    complete, alone = CLAUDE.parse(raw), CLAUDE.parse_usage(raw)
    assert usage_of(alone) == usage_of(complete)
    assert (alone.id, response_key(alone), model_of(alone)) == ("u", response_key(complete), model_of(complete))
