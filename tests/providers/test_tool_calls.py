"""Turns and tool pairing, which all providers share."""

from __future__ import annotations

import json

import pytest

from sessiontree.core.messages import (
    Assistant,
    BashExecution,
    BranchSummaryText,
    CompactionSummary,
    CustomText,
    Image,
    Message,
    OtherBlock,
    OtherMessage,
    System,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    User,
)
from sessiontree.providers import Form, render
from sessiontree.providers.templates import NO_RESULT
from sessiontree.providers.tool_calls import Unanswered, pair_results
from sessiontree.providers.turns import (
    TOO_DEEP,
    Answer,
    AssistantTurn,
    Conversation,
    ResultsTurn,
    Turn,
    UserTurn,
    read_conversation,
    sendable_image,
    sendable_json,
    sendable_text,
)

PNG = "iVBORw0KGgo="
JPEG = "/9j/4AAQ"


def paired(*messages: Message, unanswered: Unanswered = "complete") -> Conversation:
    conversation = read_conversation(messages)
    notes = list(conversation.notes)
    turns = pair_results(conversation.turns, unanswered, notes)
    return Conversation(conversation.system, tuple(turns), tuple(notes))


def said(text: str) -> UserTurn:
    return UserTurn((Text(text),))


def call(call_id: str, name: str = "read") -> ToolCall:
    return ToolCall(call_id, name, {"path": "a"})


def result(call_id: str, text: str) -> ToolResult:
    return ToolResult(tool_call_id=call_id, content=text)


def calls(*ids: str) -> Assistant:
    return Assistant(content=tuple(call(call_id) for call_id in ids))


def shape(turns: tuple[Turn, ...]) -> list[str]:
    """The turns in short: u:text, a:ids of calls or text, r:id=text."""
    words = []
    for turn in turns:
        match turn:
            case UserTurn():
                words.append("u:" + "|".join(block.text for block in turn.blocks if isinstance(block, Text)))
            case AssistantTurn():
                words.append(
                    "a:"
                    + ",".join(
                        block.id if isinstance(block, ToolCall) else block.text
                        for block in turn.blocks
                        if isinstance(block, ToolCall | Text)
                    )
                )
            case ResultsTurn():
                words.append("r:" + ",".join(f"{answer.call_id}={first_text(answer)}" for answer in turn.answers))
    return words


def first_text(answer: Answer) -> str:
    block = answer.blocks[0] if answer.blocks else Text()
    assert isinstance(block, Text)
    return "?" if block.text == NO_RESULT else block.text


def only_text(*messages: Message) -> str:
    [turn] = paired(*messages).turns
    assert isinstance(turn, UserTurn)
    [block] = turn.blocks
    assert isinstance(block, Text)
    return block.text


def test_a_conversation_that_is_in_order_stays_as_it_is() -> None:
    found = paired(User(content="hi"), calls("a", "b"), result("a", "1"), result("b", "2"), User(content="on"))
    assert shape(found.turns) == ["u:hi", "a:a,b", "r:a=1,b=2", "u:on"]
    assert found.notes == ()


def test_results_keep_the_order_they_came_in() -> None:
    found = paired(calls("a", "b"), result("b", "2"), result("a", "1"))
    assert shape(found.turns) == ["a:a,b", "r:b=2,a=1"]


def test_a_result_recorded_later_moves_up_and_the_user_text_between_comes_after_it() -> None:
    found = paired(calls("a"), User(content="wait"), result("a", "1"))
    assert shape(found.turns) == ["a:a", "r:a=1", "u:wait"]
    assert found.notes == ('The result for "a" was moved after its call.',)


def test_results_of_two_turns_go_to_their_own_turn() -> None:
    found = paired(calls("a"), calls("b"), result("a", "1"), result("b", "2"))
    assert shape(found.turns) == ["a:a", "r:a=1", "a:b", "r:b=2"]


def test_a_result_recorded_before_its_call_is_taken_when_nothing_better_comes() -> None:
    assert shape(paired(result("a", "early"), calls("a")).turns) == ["a:a", "r:a=early"]
    found = paired(result("a", "early"), calls("a"), result("a", "1"))
    assert shape(found.turns) == ["a:a", "r:a=1"]
    assert found.notes == ('A second result for "a" was dropped.',)


def test_a_second_result_for_a_call_is_dropped_and_noted() -> None:
    found = paired(calls("a"), result("a", "1"), result("a", "again"))
    assert shape(found.turns) == ["a:a", "r:a=1"]
    assert found.notes == ('A second result for "a" was dropped.',)


def test_a_result_without_a_call_is_sent_as_text_where_it_was_recorded() -> None:
    found = paired(User(content="hi"), calls("a"), result("gone", "1"), result("a", "2"), User(content="on"))
    stray = found.turns[3]
    assert shape((*found.turns[:3], found.turns[4])) == ["u:hi", "a:a", "r:a=2", "u:on"]
    assert stray == UserTurn((Text("The tool was called; the call was not recorded. It returned:"), Text("1")))
    assert found.notes[0] == 'The result for "gone" has no call and was sent as text.'


@pytest.mark.parametrize("form", ["anthropic", "openai", "openai-chat"])
def test_a_result_without_a_call_or_an_id_reaches_the_provider(form: Form) -> None:
    messages: list[Message] = [
        User(content="hi"),
        ToolResult(tool_name="read", content="first"),
        ToolResult(content="", is_error=True),
    ]
    sent = json.dumps(render(messages, form).messages)
    assert "The tool read was called; the call was not recorded. It returned:" in sent
    assert "first" in sent
    assert "The tool was called; the call was not recorded. It failed with:" in sent
    assert "(no output)" in sent
    assert "tool_result" not in sent
    assert "function_call_output" not in sent


def test_an_unanswered_call_is_completed_with_an_error_that_says_the_outcome_is_unknown() -> None:
    found = paired(calls("a", "b"), result("b", "2"), User(content="on"))
    assert shape(found.turns) == ["a:a,b", "r:b=2,a=?", "u:on"]
    results = found.turns[1]
    assert isinstance(results, ResultsTurn)
    assert [answer.is_error for answer in results.answers] == [False, True]
    assert found.notes == ('The call "a" of "read" has no result and was answered as unknown.',)


def test_an_unanswered_call_can_be_stripped() -> None:
    message = Assistant(content=(Text("look"), call("a"), call("b")))
    found = paired(message, result("b", "2"), unanswered="strip")
    assert shape(found.turns) == ["a:look,b", "r:b=2"]
    assert found.notes == ('The call "a" of "read" has no result and was removed.',)


def test_a_turn_of_stripped_calls_only_vanishes() -> None:
    assert shape(paired(User(content="hi"), calls("a", "b"), unanswered="strip").turns) == ["u:hi"]


def test_calls_of_a_failed_or_stopped_response_are_completed_like_any_other() -> None:
    for reason in ("error", "aborted"):
        found = paired(Assistant(content=(call("a"),), stop_reason=reason), User(content="on"))
        assert shape(found.turns) == ["a:a", "r:a=?", "u:on"]


def test_an_id_used_again_is_numbered_together_with_its_result() -> None:
    found = paired(calls("x"), result("x", "1"), calls("x"), result("x", "2"), calls("x"), result("x", "3"))
    assert shape(found.turns) == ["a:x", "r:x=1", "a:x_2", "r:x_2=2", "a:x_3", "r:x_3=3"]
    assert found.notes[0] == 'The call id "x" was used again and became "x_2".'


def test_the_number_never_makes_an_id_that_is_recorded_elsewhere() -> None:
    found = paired(calls("x"), calls("x"), calls("x_2"))
    assert shape(found.turns) == ["a:x", "r:x=?", "a:x_3", "r:x_3=?", "a:x_2", "r:x_2=?"]


def test_results_of_a_repeated_id_are_given_out_in_order() -> None:
    found = paired(calls("x"), calls("x"), result("x", "1"), result("x", "2"))
    assert shape(found.turns) == ["a:x", "r:x=1", "a:x_2", "r:x_2=2"]


def test_one_result_for_a_repeated_id_answers_the_latest_call() -> None:
    found = paired(calls("x"), User(content="again"), calls("x"), result("x", "1"))
    assert shape(found.turns) == ["a:x", "r:x=?", "u:again", "a:x_2", "r:x_2=1"]


def test_a_repeated_result_is_not_taken_for_a_later_call_of_the_same_id() -> None:
    found = paired(calls("x"), result("x", "1"), result("x", "1"), calls("x"))
    assert shape(found.turns) == ["a:x", "r:x=1", "a:x_2", "r:x_2=?"]


def test_a_stripped_call_does_not_use_up_its_id() -> None:
    found = paired(calls("x"), calls("x"), result("x", "1"), unanswered="strip")
    assert shape(found.turns) == ["a:x", "r:x=1"]


def test_calls_without_an_id_are_paired_like_any_other() -> None:
    assert shape(paired(calls(""), result("", "1")).turns) == ["a:", "r:=1"]


def test_parts_of_one_response_are_joined_across_the_results_between_them() -> None:
    found = paired(
        Assistant(content=(Thinking("hm", "sig"),), response_id="r1"),
        Assistant(content=(call("a"),), response_id="r1"),
        result("a", "1"),
        Assistant(content=(call("b"),), response_id="r1"),
        result("b", "2"),
        Assistant(content="done", response_id="r2"),
    )
    assert shape(found.turns) == ["a:a,b", "r:a=1,b=2", "a:done"]
    assert found.notes == ()


def test_a_call_without_a_name_is_called_unknown_tool() -> None:
    found = paired(Assistant(content=(ToolCall("a", ""),)), result("a", "1"))
    first = found.turns[0]
    assert isinstance(first, AssistantTurn)
    assert first.blocks == (ToolCall("a", "unknown_tool", {}),)


def test_assistant_messages_without_anything_to_send_vanish() -> None:
    empty = (Assistant(), Assistant(content=" \n"), Assistant(content=(Text(""), Text("\t"))))
    found = paired(User(content="hi"), *empty)
    assert shape(found.turns) == ["u:hi"]
    assert found.notes == ()


def test_user_messages_without_anything_to_send_vanish() -> None:
    assert paired(User(), User(content="  "), CustomText(content=())).turns == ()


def test_user_and_custom_messages_keep_text_and_images() -> None:
    for message in (User(content=(Text("see"), Image(PNG))), CustomText(content=(Text("see"), Image(PNG)))):
        assert paired(message).turns == (UserTurn((Text("see"), Image(PNG, "image/png"))),)


def test_unknown_blocks_are_left_out_with_a_note() -> None:
    found = paired(User(content=(Text("hi"), OtherBlock("video", {"type": "video"}))))
    assert found.turns == (said("hi"),)
    assert found.notes == ('A block of the unknown kind "video" was left out of a user message.',)


def test_an_image_of_an_assistant_is_left_out_with_a_note() -> None:
    found = paired(Assistant(content=(Text("look"), Image(PNG))))
    assert shape(found.turns) == ["a:look"]
    assert found.notes == ("An image was left out of an assistant message.",)


def test_a_command_text_has_the_command_and_its_output() -> None:
    text = only_text(BashExecution(command="ls", output="a\nb\n", exit_code=0))
    assert "```\nls\n```" in text
    assert "```\na\nb\n```" in text
    assert "exit code" not in text


def test_a_command_text_has_the_failure() -> None:
    text = only_text(
        BashExecution(
            command="make", output="x", exit_code=2, cancelled=True, truncated=True, full_output_path="/tmp/out.log"
        )
    )
    assert "exit code 2" in text
    assert "stopped" in text
    assert "was cut" in text
    assert "/tmp/out.log" in text


def test_a_command_that_printed_nothing_says_so() -> None:
    assert "It printed nothing." in only_text(BashExecution(command="true", output="\n"))


def test_backticks_in_an_output_do_not_end_its_fence() -> None:
    assert "````\n```sh\nls\n```\n````" in only_text(BashExecution(command="cat", output="```sh\nls\n```"))


def test_a_command_kept_out_of_the_context_is_left_out() -> None:
    assert paired(BashExecution(command="ls", exclude_from_context=True)).turns == ()


def test_summaries_are_introduced_and_wrapped() -> None:
    for message in (CompactionSummary(summary="so far"), BranchSummaryText(summary="so far")):
        text = only_text(message)
        assert text.endswith("\n\n<summary>\nso far\n</summary>")
        assert not text.startswith("<summary>")


def test_a_developer_message_becomes_user_text() -> None:
    assert only_text(OtherMessage(kind="developer", fields={"content": "be brief"})) == "be brief"


def test_an_unknown_message_with_text_becomes_user_text() -> None:
    fields = {"content": [{"type": "text", "text": "hello"}]}
    assert only_text(OtherMessage(kind="narrator", fields=fields)) == "hello"


def test_an_unknown_message_without_text_is_left_out_with_a_note() -> None:
    found = paired(OtherMessage(kind="telemetry", fields={"n": 1}))
    assert found.turns == ()
    assert found.notes == ('A message with the role "telemetry" was left out because it has no text.',)


def test_python_code_is_rendered_like_a_command() -> None:
    fields = {"code": "1/0", "output": "ZeroDivisionError", "exitCode": 1}
    text = only_text(OtherMessage(kind="pythonExecution", fields=fields))
    assert "Python" in text
    assert "1/0" in text
    assert "ZeroDivisionError" in text
    assert "exit code 1" in text
    hidden = OtherMessage(kind="pythonExecution", fields={**fields, "excludeFromContext": True})
    assert paired(hidden).turns == ()


def test_the_output_of_python_code_is_sent_even_if_the_code_is_missing() -> None:
    assert "42" in only_text(OtherMessage(kind="pythonExecution", fields={"output": "42", "exitCode": 0}))
    assert paired(OtherMessage(kind="pythonExecution", fields={"exitCode": 0})).turns == ()


def test_mentioned_files_are_rendered_with_their_content_and_images() -> None:
    files = [
        {"path": "a.py", "content": "x = 1"},
        {"path": "b.png", "image": {"type": "image", "data": PNG, "mimeType": "image/png"}},
        "odd",
    ]
    found = paired(OtherMessage(kind="fileMention", fields={"files": files}))
    [turn] = found.turns
    assert isinstance(turn, UserTurn)
    first, second, picture = turn.blocks
    assert isinstance(first, Text)
    assert "a.py" in first.text
    assert "x = 1" in first.text
    assert isinstance(second, Text)
    assert "b.png" in second.text
    assert picture == Image(PNG, "image/png")
    assert len(found.notes) == 1


def test_system_messages_make_one_text_and_no_turn() -> None:
    found = paired(System(content="be kind"), User(content="hi"), System(content="be brief"))
    assert found.system == "be kind\n\nbe brief"
    assert shape(found.turns) == ["u:hi"]


def test_sections_are_patched_by_name_and_follow_the_content() -> None:
    found = paired(
        System(content="top", sections={"rules": "old", "skills": "s", "tools": "t"}),
        System(sections={"skills": None, "rules": "new"}),
        System(content="more"),
    )
    assert found.system == "top\n\nmore\n\nnew\n\nt"


def test_no_system_text_is_none() -> None:
    assert paired(System(content=" "), System(sections={"a": None})).system is None


def test_lone_surrogates_are_replaced_and_split_pairs_joined() -> None:
    assert sendable_text("a\ud83db") == "a\ufffdb"
    assert sendable_text("a\ude00") == "a\ufffd"
    assert sendable_text("\ud83d\ud83d\ude00\ud83d") == "\ufffd\U0001f600\ufffd"
    assert sendable_text("\ufeff中文 한국어") == "\ufeff中文 한국어"


def test_arguments_are_made_fit_for_json() -> None:
    value = {chr(0xD800): 1, chr(0xD801): float("nan"), "n": [float("inf"), 1.5, True, None, "\udfff"]}
    assert sendable_json(value) == {
        "\ufffd": 1,
        "\ufffd\ufffd": None,
        "n": [None, 1.5, True, None, "\ufffd"],
    }


def test_arguments_nested_without_end_are_cut() -> None:
    value: object = "x"
    for _ in range(100_000):
        value = [value]
    found = sendable_json({"deep": value})
    assert TOO_DEEP in str(found)
    assert len(str(found)) < 500


def test_an_image_is_sent_with_the_type_its_bytes_show() -> None:
    assert sendable_image(Image(JPEG, "image/png")) == Image(JPEG, "image/jpeg")
    assert sendable_image(Image(f"data:image/png;base64,{PNG}", "image/png")) == Image(PNG, "image/png")
    assert sendable_image(Image("aGVsbG8=", "image/jpg")) == Image("aGVsbG8=", "image/jpeg")


def test_an_image_that_cannot_be_sent_says_why() -> None:
    assert "image/svg+xml" in str(sendable_image(Image("aGVsbG8=", "image/svg+xml")))
    assert "base64" in str(sendable_image(Image("blob:sha256:00", "image/png")))
    assert "empty" in str(sendable_image(Image("", "image/png")))


def test_thinking_whose_text_had_to_change_loses_its_signature() -> None:
    [turn] = paired(Assistant(content=(Thinking("a\ud800", "sig"),))).turns
    assert isinstance(turn, AssistantTurn)
    assert turn.blocks == (Thinking("a\ufffd", None),)
