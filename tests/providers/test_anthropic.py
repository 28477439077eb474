"""The Anthropic Messages form."""

from __future__ import annotations

import json

from sessiontree.core.jsonio import JsonObject
from sessiontree.core.messages import (
    Assistant,
    Image,
    Message,
    RedactedThinking,
    System,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    User,
)
from sessiontree.providers import Rendered, render

PNG = "iVBORw0KGgo="


def rendered(*messages: Message) -> Rendered:
    return render(messages, "anthropic")


def text(words: str) -> JsonObject:
    return {"type": "text", "text": words}


def contents(found: Rendered) -> list[list[JsonObject]]:
    return [message["content"] for message in found.messages]


def roles(found: Rendered) -> list[str]:
    return [message["role"] for message in found.messages]


def test_a_tool_use_is_spelled_as_the_api_wants_it() -> None:
    found = rendered(
        System(content="be kind"),
        User(content="list"),
        Assistant(content=(Text("sure"), ToolCall("toolu_1", "ls", {"path": "文"}))),
        ToolResult(tool_call_id="toolu_1", content="a"),
        Assistant(content="one file"),
    )
    assert found == Rendered(
        "be kind",
        [
            {"role": "user", "content": [text("list")]},
            {
                "role": "assistant",
                "content": [text("sure"), {"type": "tool_use", "id": "toolu_1", "name": "ls", "input": {"path": "文"}}],
            },
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": [text("a")]}],
            },
            {"role": "assistant", "content": [text("one file")]},
        ],
    )


def test_nothing_in_gives_nothing_out() -> None:
    assert render([], "anthropic") == Rendered(None, [])


def test_messages_of_one_role_are_merged() -> None:
    found = rendered(User(content="a"), User(content="b"), Assistant(content="c"), Assistant(content="d"))
    assert found.messages == [
        {"role": "user", "content": [text("a"), text("b")]},
        {"role": "assistant", "content": [text("c"), text("d")]},
    ]


def test_results_come_first_in_the_message_after_their_calls() -> None:
    found = rendered(
        User(content="go"),
        Assistant(content=(ToolCall("a", "t"), ToolCall("b", "t"))),
        User(content="and?"),
        ToolResult(tool_call_id="b", content="2"),
        ToolResult(tool_call_id="a", content="1"),
    )
    assert [block.get("tool_use_id", "text") for block in contents(found)[2]] == ["b", "a", "text"]


def test_a_list_that_begins_with_the_assistant_gets_a_user_text_before_it() -> None:
    found = rendered(Assistant(content="hello"))
    assert roles(found) == ["user", "assistant"]
    assert len(found.notes) == 1


def test_white_space_at_the_end_of_a_last_assistant_message_is_trimmed() -> None:
    assert contents(rendered(User(content="a"), Assistant(content="b \n")))[-1] == [text("b")]


def test_white_space_elsewhere_stays() -> None:
    found = rendered(User(content=" a "), Assistant(content="b \n"), User(content="c "))
    assert contents(found) == [[text(" a ")], [text("b \n")], [text("c ")]]


def test_signed_thinking_is_sent_in_recorded_order() -> None:
    found = rendered(
        User(content="go"),
        Assistant(
            content=(
                Thinking("one", "s1"),
                Text("x"),
                Thinking("", "s2"),
                RedactedThinking("r3"),
                Thinking("[hidden]", "r4", redacted=True),
                ToolCall("a", "t"),
            )
        ),
        ToolResult(tool_call_id="a"),
    )
    assert contents(found)[1][:5] == [
        {"type": "thinking", "thinking": "one", "signature": "s1"},
        text("x"),
        {"type": "thinking", "thinking": "", "signature": "s2"},
        {"type": "redacted_thinking", "data": "r3"},
        {"type": "redacted_thinking", "data": "r4"},
    ]
    assert found.notes == ()


def test_unsigned_thinking_is_left_out_with_a_note() -> None:
    found = rendered(User(content="go"), Assistant(content=(Thinking("hm"), Thinking("h", ""), Text("x"))))
    assert contents(found)[1] == [text("x")]
    assert found.notes == ("A thinking block without a signature was left out.",) * 2


def test_thinking_signed_by_another_maker_is_left_out_with_a_note() -> None:
    thought = (Thinking("hm", "sig"), Text("x"))
    for message in (
        Assistant(content=thought, api="openai-responses"),
        Assistant(content=thought, provider="openai", model="gpt-5"),
        Assistant(content=thought, api="anthropic-messages", provider="minimax", model="MiniMax-M2"),
    ):
        found = rendered(User(content="go"), message)
        assert contents(found)[1] == [text("x")]
        assert found.notes == ("A thinking block of another provider's model was left out.",)


def test_thinking_of_claude_is_kept_wherever_claude_was_served() -> None:
    thought = (Thinking("hm", "sig"), Text("x"))
    for message in (
        Assistant(content=thought, api="anthropic-messages"),
        Assistant(content=thought, api="bedrock-converse-stream", provider="bedrock", model="us.anthropic.claude-4"),
        Assistant(content=thought, provider="anthropic", model="next"),
    ):
        assert contents(rendered(User(content="go"), message))[1][0]["type"] == "thinking"


def test_a_turn_of_thinking_only_is_dropped_with_a_note() -> None:
    found = rendered(User(content="a"), Assistant(content=(Thinking("hm", "sig"),)), User(content="b"))
    assert found.messages == [{"role": "user", "content": [text("a"), text("b")]}]
    assert found.notes == ("A thinking block with nothing after it was left out.",)


def test_thinking_left_last_by_a_stripped_call_is_dropped() -> None:
    message = Assistant(content=(Text("x"), Thinking("hm", "sig"), ToolCall("a", "t")))
    found = render([User(content="go"), message], "anthropic", unanswered="strip")
    assert contents(found)[1] == [text("x")]


def test_a_response_with_thinking_is_not_joined_to_one_without() -> None:
    found = rendered(
        User(content="go"), Assistant(content="stopped"), Assistant(content=(Thinking("hm", "sig"), Text("x")))
    )
    assert roles(found) == ["user", "assistant", "user", "assistant"]
    assert contents(found)[3][0]["type"] == "thinking"
    assert len(found.notes) == 1


def test_an_image_of_an_accepted_type_is_sent_as_base64() -> None:
    source = {"type": "base64", "media_type": "image/png", "data": PNG}
    assert contents(rendered(User(content=(Image(PNG),)))) == [[{"type": "image", "source": source}]]


def test_an_image_of_another_type_becomes_a_text_that_names_it() -> None:
    found = rendered(User(content=(Image("PHN2Zy8+", "image/svg+xml"),)))
    [[block]] = contents(found)
    assert block["type"] == "text"
    assert "image/svg+xml" in block["text"]
    assert len(found.notes) == 1


def test_images_of_a_result_stay_in_it() -> None:
    found = rendered(
        User(content="go"),
        Assistant(content=(ToolCall("a", "t"),)),
        ToolResult(tool_call_id="a", content=(Text("see"), Image(PNG))),
    )
    assert [block["type"] for block in contents(found)[2][0]["content"]] == ["text", "image"]


def test_images_of_an_error_result_come_after_the_results() -> None:
    found = rendered(
        User(content="go"),
        Assistant(content=(ToolCall("a", "t"), ToolCall("b", "t"))),
        ToolResult(tool_call_id="a", content=(Image(PNG),), is_error=True),
        ToolResult(tool_call_id="b", content="fine"),
    )
    first, second, picture = contents(found)[2]
    assert first["is_error"] is True
    assert first["content"] == [text("(no output)")]
    assert "is_error" not in second
    assert picture["type"] == "image"


def test_a_result_without_text_says_that_there_was_none() -> None:
    found = rendered(User(content="go"), Assistant(content=(ToolCall("a", "t"),)), ToolResult(tool_call_id="a"))
    assert contents(found)[2][0]["content"] == [text("(no output)")]


def test_ids_outside_the_alphabet_are_changed_for_call_and_result_alike() -> None:
    found = rendered(
        User(content="go"),
        Assistant(content=(ToolCall("call|1", "t"), ToolCall("call_1", "t"), ToolCall("", "t"))),
        ToolResult(tool_call_id="call_1", content="kept"),
        ToolResult(tool_call_id="call|1", content="changed"),
    )
    used = [block["id"] for block in contents(found)[1]]
    assert used[1] == "call_1"
    assert used[2] == "call"
    assert len(set(used)) == 3
    assert [block["tool_use_id"] for block in contents(found)[2]] == [used[1], used[0], used[2]]
    assert contents(found)[2][1]["content"] == [text("changed")]
    assert 'The tool id "" was sent as "call".' in found.notes


def test_a_changed_id_does_not_depend_on_what_comes_later() -> None:
    long = "call_" + "x" * 400 + "|fc"
    start: list[Message] = [User(content="go"), Assistant(content=(ToolCall(long, "t"), ToolCall("a|b", "t")))]
    more: list[Message] = [Assistant(content=(ToolCall("x" * 90, "t"), ToolCall("c|d", "t")))]
    before = render(start, "anthropic").messages
    after = render(start + more, "anthropic").messages
    assert after[: len(before)] == before


def test_tool_names_outside_the_alphabet_are_changed() -> None:
    found = rendered(User(content="go"), Assistant(content=(ToolCall("a", "mcp.x/读"), ToolCall("b", "n" * 200))))
    names = [block["name"] for block in contents(found)[1]]
    assert names[0] == "mcp_x__"
    assert len(names[1]) == 128


def test_everything_sent_can_be_encoded_as_utf_8() -> None:
    found = rendered(
        System(content="s\ud800"),
        User(content="u\ud800"),
        Assistant(content=(Text("a\udfff"), ToolCall("i\ud800", "n\ud800", {"k\ud800": ["v\ud800"]}))),
        ToolResult(tool_call_id="i\ud800", content="r\ud800"),
    )
    sent = json.dumps([found.system, found.messages, found.notes], ensure_ascii=False).encode()
    assert "k\ufffd".encode() in sent


def test_arguments_nested_without_end_are_cut_with_a_note() -> None:
    deep: list[object] = []
    for _ in range(50_000):
        deep = [deep]
    found = rendered(User(content="go"), Assistant(content=(ToolCall("a", "t", {"x": deep}),)))
    assert len(json.dumps(found.messages)) < 2_000
    assert any("Arguments" in note for note in found.notes)
