"""The two OpenAI forms: Responses input items and Chat Completions messages."""

from __future__ import annotations

import json

from sessiontree.core.jsonio import JsonObject
from sessiontree.core.messages import Assistant, Image, Message, System, Text, Thinking, ToolCall, ToolResult, User
from sessiontree.providers import Rendered, render

PNG = "iVBORw0KGgo="
DATA_URL = f"data:image/png;base64,{PNG}"


def items(*messages: Message) -> list[JsonObject]:
    return render(messages, "openai").messages


def chat(*messages: Message) -> list[JsonObject]:
    return render(messages, "openai-chat").messages


CONVERSATION: tuple[Message, ...] = (
    System(content="be kind"),
    User(content="list"),
    Assistant(content=(Thinking("hm", "sig"), Text("sure"), ToolCall("call_1", "ls", {"path": "文"}))),
    ToolResult(tool_call_id="call_1", content="a"),
    Assistant(content="one file"),
)


def test_a_conversation_becomes_responses_items() -> None:
    assert render(CONVERSATION, "openai") == Rendered(
        "be kind",
        [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "list"}]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "sure"}]},
            {"type": "function_call", "call_id": "call_1", "name": "ls", "arguments": '{"path":"文"}'},
            {"type": "function_call_output", "call_id": "call_1", "output": "a"},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "one file"}]},
        ],
        ("A thinking block was left out.",),
    )


def test_a_conversation_becomes_chat_messages_with_the_system_text_first() -> None:
    function = {"name": "ls", "arguments": '{"path":"文"}'}
    assert render(CONVERSATION, "openai-chat") == Rendered(
        None,
        [
            {"role": "system", "content": "be kind"},
            {"role": "user", "content": "list"},
            {
                "role": "assistant",
                "content": "sure",
                "tool_calls": [{"id": "call_1", "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "a"},
            {"role": "assistant", "content": "one file"},
        ],
        ("A thinking block was left out.",),
    )


def test_nothing_in_gives_nothing_out() -> None:
    assert items() == []
    assert chat() == []


def test_user_messages_are_not_merged() -> None:
    two = (User(content="a"), User(content="b"))
    assert len(items(*two)) == 2
    assert chat(*two) == [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]


def test_texts_and_calls_of_a_response_keep_their_order() -> None:
    found = items(Assistant(content=(Text("a"), Text("b"), ToolCall("1", "t"), Text("c"), ToolCall("2", "t"))))
    assert [item["type"] for item in found] == [
        "message",
        "function_call",
        "message",
        "function_call",
        "function_call_output",
        "function_call_output",
    ]
    assert [part["text"] for part in found[0]["content"]] == ["a", "b"]


def test_a_chat_message_of_calls_only_has_no_content() -> None:
    found = chat(Assistant(content=(ToolCall("1", "t"),)))
    assert found[0]["content"] is None
    assert found[0]["tool_calls"][0]["function"]["arguments"] == "{}"


def test_a_chat_message_without_calls_has_no_list_of_calls() -> None:
    assert chat(Assistant(content=(Text("a"), Text("b")))) == [{"role": "assistant", "content": "a\nb"}]


def test_a_response_of_thinking_only_vanishes() -> None:
    message = Assistant(content=(Thinking("hm", "sig"),))
    assert items(message) == []
    assert chat(message) == []


def test_images_of_the_user_are_sent_as_data_urls() -> None:
    message = User(content=(Text("see"), Image(PNG)))
    assert items(message)[0]["content"][1] == {"type": "input_image", "image_url": DATA_URL}
    assert chat(message)[0]["content"][1] == {"type": "image_url", "image_url": {"url": DATA_URL}}


def test_images_of_results_follow_all_results_in_a_user_message() -> None:
    messages = (
        Assistant(content=(ToolCall("1", "t"), ToolCall("2", "t"))),
        ToolResult(tool_call_id="1", content=(Image(PNG),)),
        ToolResult(tool_call_id="2", content="fine"),
    )
    found = items(*messages)
    assert [item["type"] for item in found[2:]] == ["function_call_output", "function_call_output", "message"]
    assert "follow" in found[2]["output"]
    assert [part["type"] for part in found[4]["content"]] == ["input_text", "input_image"]
    spoken = chat(*messages)
    assert [message["role"] for message in spoken] == ["assistant", "tool", "tool", "user"]
    assert [part["type"] for part in spoken[3]["content"]] == ["text", "image_url"]


def test_a_failed_result_says_so_in_words() -> None:
    messages = (Assistant(content=(ToolCall("1", "t"),)), ToolResult(tool_call_id="1", content="boom", is_error=True))
    assert items(*messages)[1]["output"] == "Error: boom"
    assert chat(*messages)[1]["content"] == "Error: boom"


def test_an_unanswered_call_is_answered_as_unknown() -> None:
    message = Assistant(content=(ToolCall("1", "t"),))
    assert "unknown" in items(message)[1]["output"]
    assert "unknown" in chat(message)[1]["content"]
    assert render([message], "openai", unanswered="strip").messages == []


def test_a_result_without_text_says_that_there_was_none() -> None:
    messages = (Assistant(content=(ToolCall("1", "t"),)), ToolResult(tool_call_id="1"))
    assert items(*messages)[1]["output"] == "(no output)"


def test_long_ids_are_shortened_alike_and_stay_different() -> None:
    ids = ["x" * 100 + "a", "x" * 100 + "b"]
    messages: tuple[Message, ...] = (
        Assistant(content=tuple(ToolCall(call_id, "t") for call_id in ids)),
        *(ToolResult(tool_call_id=call_id, content=call_id[-1]) for call_id in ids),
    )
    found = items(*messages)
    assert len({item["call_id"] for item in found[:2]}) == 2
    assert all(len(item["call_id"]) == 64 for item in found)
    assert [(item["call_id"], item["output"]) for item in found[2:]] == [
        (found[0]["call_id"], "a"),
        (found[1]["call_id"], "b"),
    ]
    spoken = chat(*messages)
    assert [call["id"] for call in spoken[0]["tool_calls"]] == [message["tool_call_id"] for message in spoken[1:]]
    assert all(len(message["tool_call_id"]) == 40 for message in spoken[1:])


def test_long_tool_names_are_shortened_and_stay_different() -> None:
    found = items(Assistant(content=(ToolCall("1", "n" * 65), ToolCall("2", "n" * 66), ToolCall("3", "n" * 65))))
    names = [item["name"] for item in found[:3]]
    assert all(len(name) == 64 for name in names)
    assert names[0] == names[2] != names[1]


def test_arguments_are_valid_json_whatever_they_held() -> None:
    message = Assistant(content=(ToolCall("1", "t", {"a\ud800": float("nan"), "b": "\udfff"}),))
    arguments = items(message)[0]["arguments"]
    assert json.loads(arguments) == {"a\ufffd": None, "b": "\ufffd"}
