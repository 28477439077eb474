"""Claude Code: the current leaf, the path to it, and the context of the path."""

from __future__ import annotations

from typing import Any

import pytest

from sessiontree.core.messages import (
    Assistant,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    User,
    message_text,
    tool_calls,
)
from sessiontree.dialects.contract import ReadOptions
from sessiontree.errors import InvalidEntryError
from sessiontree.providers import render
from sessiontree.session.open import open_store
from sessiontree.session.session import Session
from sessiontree.stores.contract import read_bytes
from sessiontree.stores.memory import MemoryStore
from tests.builders import json_line

NIL = "00000000-0000-0000-0000-000000000000"
RECOVERED = ReadOptions(recovered=True)
OLD = ReadOptions(as_of="timestamps")


def at(milliseconds: int) -> str:
    """A time so many milliseconds after noon."""
    return f"2026-03-01T12:{milliseconds // 60000:02}:{milliseconds // 1000 % 60:02}.{milliseconds % 1000:03}Z"


def line(kind: str, id: str, parent: str | None, time: int = 0, **fields: Any) -> dict[str, Any]:
    outside = {"parentUuid": parent, "isSidechain": False, "type": kind, "uuid": id, "timestamp": at(time)}
    return {**outside, "sessionId": "s", **fields}


def user(id: str, parent: str | None, time: int = 0, content: Any = None, **fields: Any) -> dict[str, Any]:
    return line("user", id, parent, time, message={"role": "user", "content": content or f"says {id}"}, **fields)


def assistant(
    id: str, parent: str | None, time: int = 0, *blocks: dict[str, Any], response: str | None = "", **fields: Any
) -> dict[str, Any]:
    """An assistant line; a response of its own unless one is named."""
    message: dict[str, Any] = {
        "role": "assistant",
        "model": "claude-x",
        "content": list(blocks) or [text(f"says {id}")],
    }
    if response is not None:
        message["id"] = response or f"msg_{id}"
    return line("assistant", id, parent, time, message={**message, **fields.pop("message", {})}, **fields)


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def call(id: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": f"tool-{id}", "input": {"of": id}}


def shard(id: str, parent: str | None, call_id: str, response: str | None = "msg_p", time: int = 0) -> dict[str, Any]:
    return assistant(id, parent, time, call(call_id), response=response)


def result(id: str, parent: str | None, *call_ids: str, time: int = 0, output: str = "done") -> dict[str, Any]:
    blocks = [{"type": "tool_result", "tool_use_id": call_id, "content": f"{output} {call_id}"} for call_id in call_ids]
    return user(id, parent, time, blocks)


def system(id: str, parent: str | None, subtype: str, time: int = 0, **fields: Any) -> dict[str, Any]:
    return line("system", id, parent, time, subtype=subtype, **fields)


def boundary(id: str, before: str | None, *, parent: str | None = None, time: int = 0, **about: Any) -> dict[str, Any]:
    return system(id, parent, "compact_boundary", time, logicalParentUuid=before, compactMetadata=about)


def summary(id: str, parent: str | None, time: int = 0) -> dict[str, Any]:
    return user(id, parent, time, "the summary", isCompactSummary=True)


def pin(leaf: str | None, **fields: Any) -> dict[str, Any]:
    return {"type": "last-prompt", "leafUuid": leaf, "sessionId": "s", **fields}


def attachment(id: str, parent: str | None, about: dict[str, Any], time: int = 0, **fields: Any) -> dict[str, Any]:
    return line("attachment", id, parent, time, attachment=about, **fields)


def session_of(*lines: dict[str, Any], read_options: ReadOptions | None = None) -> Session:
    data = b"".join(map(json_line, lines))
    return open_store(MemoryStore(data), dialect="claude", read_options=read_options or ReadOptions())


def path_of(*lines: dict[str, Any], read_options: ReadOptions | None = None) -> list[str]:
    return session_of(*lines, read_options=read_options).path_ids()


def leaf_of(*lines: dict[str, Any], read_options: ReadOptions | None = None) -> str | None:
    return session_of(*lines, read_options=read_options).leaf


def messages_of(*lines: dict[str, Any], read_options: ReadOptions | None = None) -> tuple[Message, ...]:
    return session_of(*lines, read_options=read_options).context().messages


def texts_of(*lines: dict[str, Any]) -> list[str]:
    return [message_text(message) for message in messages_of(*lines)]


# The leaf


def test_the_leaf_is_the_last_chain_line_whatever_the_timestamps() -> None:
    lines = [user("a", None, 9000), assistant("b", "a", 8000), user("c", "a", 1000)]
    assert leaf_of(*lines) == "c"


def test_older_clients_take_the_leaf_with_the_newest_time() -> None:
    lines = [user("a", None, 0), assistant("b", "a", 8000), user("c", "a", 1000), pin("c")]
    assert leaf_of(*lines, read_options=OLD) == "b"


def test_older_clients_do_not_take_a_line_followed_only_by_progress_for_a_leaf() -> None:
    lines = [user("a", None), line("progress", "p", "a", 9000), assistant("b", "p", 10), user("c", "a", 5)]
    assert leaf_of(*lines, read_options=OLD) == "b"


def test_metadata_progress_and_sub_agents_do_not_move_the_leaf() -> None:
    lines = [
        user("a", None),
        line("progress", "p", "a"),
        user("side", "a", isSidechain=True),
        {"type": "custom-title", "customTitle": "t", "uuid": "m", "sessionId": "s"},
        {"type": "some-new-type", "uuid": "n", "parentUuid": "a", "sessionId": "s"},
    ]
    assert leaf_of(*lines) == "a"


def test_meta_lines_attachments_and_request_errors_do_move_the_leaf() -> None:
    assert leaf_of(user("a", None), user("b", "a", isMeta=True)) == "b"
    assert leaf_of(user("a", None), attachment("b", "a", {"type": "date"})) == "b"
    assert leaf_of(user("a", None), assistant("b", "a", isApiErrorMessage=True)) == "b"


def test_in_the_transcript_of_a_sub_agent_its_lines_count() -> None:
    lines = [user("a", None, isSidechain=True), assistant("b", "a", isSidechain=True)]
    assert path_of(*lines) == ["a", "b"]


def test_a_child_before_its_parent_in_the_file_is_the_leaf() -> None:
    assert leaf_of(user("a", None), assistant("c", "b"), user("b", "a")) == "c"


def test_the_descendants_of_a_repeated_line_are_found_through_progress_lines() -> None:
    progress = {**user("p", "a"), "type": "progress"}
    assert leaf_of(user("a", None), progress, user("b", "p", 1), user("a", None)) == "b"


def test_a_pin_ends_the_chain_when_the_last_line_is_on_another_branch() -> None:
    assert leaf_of(user("a", None), assistant("b", "a"), user("c", "a"), pin("b")) == "b"


def test_a_pin_is_passed_when_the_last_line_descends_from_it() -> None:
    assert leaf_of(user("a", None), pin("a"), assistant("b", "a")) == "b"
    assert leaf_of(user("a", None), assistant("b", "a"), pin("a")) == "b"


def test_an_explicit_pin_counts_only_what_was_written_after_it() -> None:
    assert leaf_of(user("a", None), assistant("b", "a"), pin("a", explicit=True)) == "a"
    assert leaf_of(user("a", None), assistant("b", "a"), pin("a", explicit=True), user("c", "a")) == "c"


@pytest.mark.parametrize("named", [NIL, "not-there"])
def test_a_pin_to_an_unknown_line_is_ignored(named: str) -> None:
    assert leaf_of(user("a", None), assistant("b", "a"), pin("b"), user("c", "a"), pin(named, explicit=True)) == "c"


def test_an_explicit_pin_without_a_line_is_before_the_first_line_until_another_follows() -> None:
    lines = [user("a", None), assistant("b", "a"), pin("b"), user("c", "a"), pin(None, explicit=True)]
    assert leaf_of(*lines) is None
    assert leaf_of(*lines, user("d", None)) == "d"


def test_a_pin_on_another_shard_of_the_same_response_is_passed() -> None:
    lines = [
        user("a", None),
        shard("s1", "a", "1"),
        shard("s2", "s1", "2"),
        pin("s2"),
        result("r2", "s2", "2"),
        result("r1", "s1", "1"),
        assistant("b", "r1"),
    ]
    assert leaf_of(*lines) == "b"


def test_a_file_of_metadata_only_has_no_leaf() -> None:
    session = session_of({"type": "mode", "mode": "normal", "sessionId": "s"})
    assert (session.leaf, session.path_ids(), session.context().messages) == (None, [], ())


# The walk


def test_progress_is_passed_through() -> None:
    lines = [user("a", None), line("progress", "p", "a"), line("progress", "q", "p"), assistant("b", "q")]
    assert path_of(*lines) == ["a", "b"]


def test_a_cycle_is_walked_only_once() -> None:
    lines = [user("a", "c"), assistant("b", "a"), user("c", "b"), assistant("d", "b")]
    assert path_of(*lines) == ["c", "a", "b", "d"]


def test_a_cycle_is_bridged_by_time_like_a_missing_parent() -> None:
    assert path_of(user("x", None, 0), user("a", "b", 5000), assistant("b", "a", 5000)) == ["x", "b", "a"]


def test_a_recovered_reading_continues_before_a_cycle() -> None:
    lines = [user("x", None, 0), user("a", "b", 5001), assistant("b", "a", 5001)]
    assert path_of(*lines) == ["b", "a"]
    assert path_of(*lines, read_options=RECOVERED) == ["x", "b", "a"]


def test_a_line_that_is_its_own_parent_is_a_root() -> None:
    assert path_of(user("a", "a"), assistant("b", "a")) == ["a", "b"]


def test_a_missing_parent_is_bridged_by_time_up_to_five_seconds() -> None:
    assert path_of(user("a", None, 0), assistant("b", "lost", 5000)) == ["a", "b"]
    assert path_of(user("a", None, 0), assistant("b", "lost", 5001)) == ["b"]


def test_a_missing_parent_is_bridged_to_the_newest_older_line_wherever_it_is_in_the_file() -> None:
    lines = [user("a", None, 0), user("far", "a", 1000), user("young", "a", 4001), user("near", "a", 3000)]
    assert path_of(*lines, assistant("b", "lost", 4000)) == ["a", "near", "b"]
    assert path_of(user("a", None), assistant("b", "lost", 50), user("z", "a", 40), pin("b")) == ["a", "z", "b"]


def test_a_missing_parent_may_be_bridged_to_a_descendant_as_in_the_client() -> None:
    lines = [user("a", None, 0), assistant("b", "lost", 10), user("c", "b", 10), user("d", "b", 10)]
    assert path_of(*lines) == ["a", "c", "b", "d"]


def test_a_recovered_reading_restores_history_before_a_missing_parent() -> None:
    lines = [user("a", None, 0), assistant("b", "a", 100), user("c", "lost", 60000), assistant("d", "c", 60001)]
    assert path_of(*lines) == ["c", "d"]
    assert path_of(*lines, read_options=RECOVERED) == ["a", "b", "c", "d"]


def test_lines_that_lost_the_same_parent_are_linked_to_the_same_line() -> None:
    lines = [user("a", None), user("left", "lost", 60000), assistant("more", "left", 60001), user("c", "lost", 120000)]
    assert path_of(*lines, read_options=RECOVERED) == ["a", "c"]


def test_lines_of_another_session_are_skipped_when_history_is_recovered() -> None:
    lines = [user("a", None, 0), user("other", None, 100, sessionId="t"), user("c", "lost", 60000)]
    assert path_of(*lines, read_options=RECOVERED) == ["a", "c"]


def test_a_line_without_time_and_parent_is_linked_to_the_preceding_line() -> None:
    lines = [user("a", None, 0), {**user("b", "lost"), "timestamp": 5}]
    assert path_of(*lines) == ["b"]
    assert path_of(*lines, read_options=RECOVERED) == ["a", "b"]


def test_a_root_in_the_middle_hides_earlier_lines_except_in_a_recovered_reading() -> None:
    lines = [user("a", None), assistant("b", "a"), user("c", None), assistant("d", "c")]
    assert path_of(*lines) == ["c", "d"]
    assert path_of(*lines, read_options=RECOVERED) == ["a", "b", "c", "d"]


def test_a_rewind_to_the_first_prompt_is_not_a_false_root() -> None:
    lines = [user("a", None), assistant("b", "a"), user("c", None), pin(NIL, explicit=True), assistant("d", "c")]
    assert path_of(*lines, read_options=RECOVERED) == ["c", "d"]


def test_the_later_of_two_lines_with_one_id_counts() -> None:
    lines = [user("a", None), user("b", "a", content="first"), user("b", "a", content="second")]
    assert texts_of(*lines) == ["says a", "second"]


def test_snipped_lines_are_left_out_only_on_request() -> None:
    lines = [
        user("a", None),
        assistant("b", "a"),
        user("c", "b"),
        system("x", "c", "snip_boundary", snipMetadata={"removedUuids": ["b", "gone"]}),
        user("d", "x"),
    ]
    assert path_of(*lines) == ["a", "b", "c", "x", "d"]
    assert path_of(*lines, read_options=ReadOptions(snips=True)) == ["a", "c", "x", "d"]


# Parallel calls


def parallel(response: str | None = "msg_p") -> list[dict[str, Any]]:
    """Three shards; the next turn is a child of the result of the second call, which came last."""
    return [
        user("a", None),
        shard("s1", "a", "1", response),
        shard("s2", "s1", "2", response),
        shard("s3", "s2", "3", response),
        result("r3", "s3", "3"),
        result("r1", "s1", "1"),
        result("r2", "s2", "2"),
        assistant("b", "r2"),
    ]


def test_shards_and_results_off_the_path_follow_the_last_shard() -> None:
    assert path_of(*parallel()) == ["a", "s1", "s2", "s3", "r3", "r1", "r2", "b"]


def test_without_the_id_of_the_response_shards_and_results_are_lost() -> None:
    assert path_of(*parallel(None)) == ["a", "s1", "s2", "r2", "b"]


def test_a_recovered_reading_finds_shards_and_results_without_a_response_id() -> None:
    assert path_of(*parallel(None), read_options=RECOVERED) == ["a", "s1", "r1", "s2", "s3", "r3", "r2", "b"]


def test_branches_whose_calls_have_the_same_id_keep_their_own_results() -> None:
    lines = [
        user("a", None),
        shard("s1", "a", "1"),
        result("r1", "s1", "1"),
        user("b", "a"),
        {**shard("s2", "b", "1"), "message": {**shard("s2", "b", "1")["message"], "id": "msg_other"}},
        result("r2", "s2", "1"),
        assistant("c", "r2"),
    ]
    assert path_of(*lines) == ["a", "b", "s2", "r2", "c"]


def test_the_first_shard_on_the_path_comes_before_those_beside_it() -> None:
    lines = [
        user("a", None),
        shard("s1", "a", "1"),
        shard("s2", "a", "2"),
        result("r1", "s1", "1"),
        result("r2", "s2", "2"),
        assistant("b", "r2"),
    ]
    assert path_of(*lines) == ["a", "s2", "s1", "r1", "r2", "b"]


def test_all_results_of_one_line_with_many_calls_are_found() -> None:
    lines = [
        user("a", None),
        assistant("s", "a", 0, text("look"), call("1"), call("2"), call("3")),
        result("r1", "s", "1"),
        result("r2", "s", "2"),
        result("r3", "s", "3"),
        assistant("b", "r3"),
    ]
    assert path_of(*lines) == ["a", "s", "r1", "r2", "r3", "b"]


def test_a_shard_after_progress_is_found() -> None:
    lines = parallel()
    lines[3] = {**lines[3], "parentUuid": "p"}
    lines.insert(3, line("progress", "p", "s2"))
    assert path_of(*lines) == ["a", "s1", "s2", "s3", "r3", "r1", "r2", "b"]


def test_a_shard_that_lost_its_parent_is_found_by_its_response() -> None:
    lines = [
        user("a", None),
        shard("s1", "a", "1"),
        shard("s3", "lost", "3", time=60000),
        result("r3", "s3", "3"),
        result("r1", "s1", "1"),
        assistant("b", "r1"),
    ]
    assert path_of(*lines) == ["a", "s1", "s3", "r3", "r1", "b"]


def test_of_two_results_for_one_call_the_first_is_kept() -> None:
    lines = parallel()
    lines.insert(6, result("again", "s1", "1", output="again"))
    assert path_of(*lines) == ["a", "s1", "s2", "s3", "r3", "r1", "r2", "b"]


def test_a_call_without_a_result_is_on_the_path_but_not_sent_once_the_turn_ends() -> None:
    lines = [each for each in parallel() if each["uuid"] != "r3"]
    assert path_of(*lines) == ["a", "s1", "s2", "s3", "r1", "r2", "b"]
    assert calls_sent(*lines[:-1]) == ["1", "2", "3"]
    assert calls_sent(*lines) == ["1", "2"]
    assert calls_sent(*lines, read_options=ReadOptions(recovered=True)) == ["1", "2", "3"]


def calls_sent(*lines: dict[str, Any], read_options: ReadOptions | None = None) -> list[str]:
    messages = messages_of(*lines, read_options=read_options)
    return [call.id for message in messages for call in tool_calls(message)]


def test_a_pin_on_a_line_of_a_sub_agent_has_no_effect() -> None:
    lines = [user("a", None), assistant("b", "a"), {**user("x", None), "isSidechain": True}]
    assert path_of(*lines, {"type": "last-prompt", "leafUuid": "x"}) == ["a", "b"]


def test_calls_that_were_running_when_the_client_was_killed_stay() -> None:
    lines = [user("a", None), shard("s1", "a", "1"), shard("s2", "s1", "2"), result("r1", "s1", "1")]
    assert path_of(*lines) == ["a", "s1", "s2", "r1"]


def test_an_abandoned_branch_is_not_read_as_part_of_the_response() -> None:
    lines = [
        user("a", None),
        shard("s1", "a", "1"),
        result("r1", "s1", "1"),
        assistant("left", "r1"),
        user("old", "left"),
        user("new", "s1"),
        assistant("b", "new"),
    ]
    assert path_of(*lines) == ["a", "s1", "r1", "new", "b"]


def test_shards_of_a_response_become_one_message_with_the_usage_of_all() -> None:
    def used(tokens: int) -> dict[str, Any]:
        return {"usage": {"input_tokens": 5, "output_tokens": tokens, "cache_read_input_tokens": 7}}

    thinking = {"type": "thinking", "thinking": "hm", "signature": "sig"}
    lines = [
        user("a", None),
        assistant("s0", "a", 0, thinking, response="msg_p", message=used(1)),
        assistant("s1", "s0", 0, call("1"), response="msg_p", message=used(9)),
        result("r1", "s1", "1"),
        assistant("s2", "r1", 0, call("2"), response="msg_p", message={"stop_reason": "tool_use"}),
        result("r2", "s2", "2"),
    ]
    session = session_of(*lines)
    prompt, message, *results = session.context().messages
    assert isinstance(prompt, User)
    assert isinstance(message, Assistant)
    assert message.content == (
        Thinking("hm", "sig"),
        ToolCall("1", "tool-1", {"of": "1"}),
        ToolCall("2", "tool-2", {"of": "2"}),
    )
    assert message.usage is not None
    assert (message.usage.output, message.usage.total_tokens, message.stop_reason) == (9, 21, "toolUse")
    assert [each.tool_name for each in results if isinstance(each, ToolResult)] == ["tool-1", "tool-2"]
    assert session.context().sources == ("a", "s0", "r1", "r2")


# Compaction


def compacted(**about: Any) -> list[dict[str, Any]]:
    """Four lines, a boundary, its summary, a line written directly after it, and the next turn."""
    return [
        user("a", None),
        assistant("b", "a"),
        user("c", "b"),
        assistant("d", "c", message={"usage": {"input_tokens": 9}}),
        boundary("B", "d", **about),
        summary("S", "B"),
        user("e", "S"),
        assistant("f", "e"),
    ]


def test_a_boundary_begins_the_path() -> None:
    assert path_of(*compacted()) == ["B", "S", "e", "f"]


def test_a_boundary_with_a_parent_still_begins_the_path() -> None:
    lines = compacted()
    lines[4]["parentUuid"] = "d"
    assert path_of(*lines) == ["B", "S", "e", "f"]


def test_preserved_messages_follow_the_summary_when_it_is_the_anchor() -> None:
    lines = compacted(preservedMessages={"anchorUuid": "S", "uuids": ["c", "d"]})
    assert path_of(*lines) == ["B", "S", "c", "d", "e", "f"]


def test_preserved_messages_precede_the_summary_when_the_boundary_is_the_anchor() -> None:
    lines = compacted(preservedMessages={"anchorUuid": "B", "uuids": ["a", "b"]})
    assert path_of(*lines) == ["B", "a", "b", "S", "e", "f"]


def test_a_preserved_segment_reaches_from_head_to_tail() -> None:
    lines = compacted(preservedSegment={"headUuid": "b", "anchorUuid": "S", "tailUuid": "d"})
    assert path_of(*lines) == ["B", "S", "b", "c", "d", "e", "f"]


def test_a_list_of_preserved_messages_takes_precedence_over_a_segment_and_may_have_gaps() -> None:
    stretch = {"headUuid": "b", "anchorUuid": "S", "tailUuid": "d"}
    lines = compacted(preservedSegment=stretch, preservedMessages={"anchorUuid": "S", "uuids": ["b", "d"]})
    assert path_of(*lines) == ["B", "S", "b", "d", "e", "f"]


@pytest.mark.parametrize("end", ["headUuid", "tailUuid"])
def test_a_segment_without_one_of_its_ends_preserves_nothing(end: str) -> None:
    stretch = {"headUuid": "b", "anchorUuid": "S", "tailUuid": "d", end: "gone"}
    assert path_of(*compacted(preservedSegment=stretch)) == ["B", "S", "e", "f"]


def test_the_next_turn_may_be_a_child_of_the_last_preserved_message() -> None:
    lines = compacted(preservedMessages={"anchorUuid": "S", "uuids": ["c", "d"]})
    lines[6]["parentUuid"] = "d"
    assert path_of(*lines) == ["B", "S", "c", "d", "e", "f"]


def test_only_the_last_boundary_on_the_chain_counts() -> None:
    lines = compacted(preservedMessages={"anchorUuid": "S", "uuids": ["c", "d"]})
    lines += [boundary("B2", "f", preservedMessages={"anchorUuid": "S2", "uuids": ["f"]}), summary("S2", "B2")]
    assert path_of(*lines, user("g", "S2")) == ["B2", "S2", "f", "g"]


def test_a_branch_from_before_a_compaction_is_not_compacted() -> None:
    assert path_of(*compacted(), user("g", "b")) == ["a", "b", "g"]


def test_lines_before_a_compaction_can_still_be_read() -> None:
    session = session_of(*compacted(preservedMessages={"anchorUuid": "S", "uuids": ["c", "d"]}))
    assert session.path_ids("b") == ["a", "b"]
    assert session.path_ids("d") == ["a", "b", "c", "d"]


def test_a_preserved_line_that_is_pinned_follows_the_summary() -> None:
    session = session_of(
        *compacted(preservedMessages={"anchorUuid": "S", "uuids": ["c", "d"]}), pin("d", explicit=True)
    )
    assert (session.leaf, session.path_ids("d")) == ("d", ["B", "S", "c", "d"])


def test_moving_to_a_preserved_line_undoes_the_compaction() -> None:
    session = session_of(*compacted(preservedMessages={"anchorUuid": "S", "uuids": ["c", "d"]}))
    session.move("d")
    for read in (session, open_store(MemoryStore(read_bytes(session.journal.store, 0, session.journal.size)))):
        assert read.leaf == "d"
        assert [id for id in read.path_ids() if id in "abcdBSef"] == ["a", "b", "c", "d"]


def test_a_boundary_with_nothing_after_it_is_ignored() -> None:
    session = session_of(*compacted()[:5])
    assert (session.leaf, session.path_ids()) == ("d", ["a", "b", "c", "d"])
    assert session.path_ids("B") == ["a", "b", "c", "d", "B"]


def test_without_a_summary_only_later_messages_are_sent_except_in_a_recovered_reading() -> None:
    lines = [each for each in compacted() if each["uuid"] != "S"]
    lines[4] |= {"timestamp": user("later", None, 5)["timestamp"]}
    lines[5] |= {"timestamp": user("later", None, 10)["timestamp"]}
    assert path_of(*lines) == ["B", "e", "f"]
    assert path_of(*lines, read_options=RECOVERED) == ["a", "b", "c", "d", "B", "e", "f"]


def test_a_recovered_reading_keeps_a_complete_compaction() -> None:
    assert path_of(*compacted(), read_options=RECOVERED) == ["B", "S", "e", "f"]


def test_results_off_a_preserved_segment_are_not_preserved() -> None:
    before = parallel()
    lines = [
        *before,
        boundary("B", "b", preservedSegment={"headUuid": "s1", "anchorUuid": "S", "tailUuid": "b"}),
        summary("S", "B"),
        user("e", "S"),
    ]
    assert path_of(*lines) == ["B", "S", "s1", "s2", "r2", "b", "e"]


def test_usage_of_preserved_messages_is_not_counted_in_the_new_context() -> None:
    kept = messages_of(*compacted(preservedMessages={"anchorUuid": "S", "uuids": ["d"]}))[1]
    assert isinstance(kept, Assistant)
    assert kept.usage is not None
    assert kept.usage.total_tokens == 0


# What the model receives


def test_flags_on_user_lines_change_nothing() -> None:
    marks = ({"isMeta": True}, {"isVisibleInTranscriptOnly": True}, {"isCompactSummary": True})
    for mark in marks:
        assert texts_of(user("a", None, **mark)) == ["says a"]


def test_a_command_stays_with_its_response_if_a_later_one_repeats_the_ids_of_its_calls() -> None:
    lines = [
        user("a", None),
        assistant("b", "a", 0, call("c1"), response="m1"),
        assistant("c", "b", 0, call("c2"), response="m1"),
        result("d", "c", "c1"),
        local_command("e", "d"),
        result("f", "e", "c2"),
        boundary("g", "f"),
        summary("h", "g"),
        assistant("i", "h", 0, call("c1"), response="m2"),
        assistant("j", "i", 0, call("c2"), response="m2"),
        result("k", "j", "c1"),
        result("l", "k", "c2"),
        user("m", "l"),
    ]
    assert not any("local-command-stdout" in text for text in texts_of(*lines))


def test_of_system_lines_only_local_commands_are_sent() -> None:
    lines = [
        user("a", None),
        system("b", "a", "local_command", content="<command-name>/x</command-name>"),
        system("c", "b", "informational", content="not said"),
        system("d", "c", "turn_duration", durationMs=5),
    ]
    assert texts_of(*lines) == ["says a", "<command-name>/x</command-name>"]


def test_attachments_are_sent_as_they_were_rendered_except_system_text() -> None:
    rendered = [{"content": "one"}, {"content": "two"}]
    lines = [
        user("a", None),
        attachment("b", "a", {"type": "file"}, rendered=rendered, renderedRole="user"),
        attachment("c", "b", {"type": "date"}, rendered=rendered, renderedRole="system"),
        attachment("d", "c", {"type": "of another day"}),
    ]
    assert texts_of(*lines) == ["says a", "one\ntwo"]


def test_a_message_typed_during_a_turn_is_the_user_s() -> None:
    lines = [user("a", None), attachment("b", "a", {"type": "queued_command", "prompt": "wait"})]
    assert texts_of(*lines) == ["says a", "wait"]
    blocks = attachment("b", "a", {"type": "queued_command", "prompt": [text("stop")]})
    assert texts_of(user("a", None), blocks) == ["says a", "stop"]


def test_a_result_is_kept_that_the_client_loses_after_a_prompt_typed_between_shards_of_another_response() -> None:
    typed = {"type": "queued_command", "prompt": "wait"}
    lines = [
        user("a", None),
        shard("b", "a", "c1", response="msg_1"),
        shard("c", "b", "c2", response="msg_2"),
        attachment("q", "c", typed),
        result("r", "q", "c1"),
        assistant("d", "r", response="msg_2"),
        user("e", "d"),
    ]
    assert texts_of(*lines) == ["says a", "", "wait", "done c1", "says d", "says e"]
    assert calls_sent(*lines) == ["c1"]


def test_a_last_record_is_kept_that_the_client_loses_after_the_start_of_another_one() -> None:
    lines = [user("a", None), shard("b", "a", "c1"), shard("x", "b", "c2"), result("r", "b", "c1")]
    whole = [json_line(each) for each in lines]
    torn = whole[2][: whole[2].index(b'"message":') + len(b'"message":')] + b"\n"
    session = open_store(MemoryStore(b"".join([*whole[:2], torn, whole[3]])), dialect="claude")
    assert sent(session) == ["says a", "", "done c1"]


def test_a_file_attached_by_an_older_client_is_shown() -> None:
    about = {"type": "file", "filename": "/x/a.txt", "content": {"type": "text", "file": {"content": "alpha"}}}
    assert "alpha" in texts_of(user("a", None), attachment("b", "a", about))[1]


def test_request_errors_are_dropped_and_other_synthetic_answers_stay() -> None:
    synthetic = {"model": "<synthetic>"}
    failed = assistant("b", "a", isApiErrorMessage=True, message=synthetic)
    assert texts_of(user("a", None), failed) == ["says a"]
    assert texts_of(user("a", None), assistant("b", "a", message=synthetic)) == ["says a", "says b"]


def test_blank_answers_are_dropped_and_empty_ones_become_a_placeholder() -> None:
    assert texts_of(user("a", None), assistant("b", "a", 0, text(" \n"))) == ["says a"]
    assert texts_of(user("a", None), assistant("b", "a", message={"content": []})) == ["says a", "(no content)"]


def test_a_result_without_its_call_is_sent_as_no_content_and_recovered_as_text() -> None:
    lines = user("a", None), assistant("b", "a"), result("c", "b", "gone")
    recovered = messages_of(*lines, read_options=ReadOptions(recovered=True))
    assert [message_text(message) for message in recovered] == ["says a", "says b", "done gone"]
    assert render(recovered, "anthropic").messages[-1]["content"][-1] == text("done gone")
    messages = messages_of(*lines)
    assert [message_text(message) for message in messages] == ["says a", "says b", "(no content)"]
    assert render(messages, "anthropic").messages[-1]["content"] == [text("(no content)")]


def test_a_line_with_another_result_needs_no_placeholder_for_a_stray_one() -> None:
    messages = messages_of(user("a", None), shard("s", "a", "1"), result("c", "s", "gone", "1"))
    assert [message_text(message) for message in messages] == ["says a", "", "done 1"]


def test_unanswered_calls_stay_and_are_completed_when_rendered() -> None:
    messages = messages_of(user("a", None), shard("s", "a", "1"))
    rendered = render(messages, "anthropic").messages
    assert [block["type"] for block in rendered[-1]["content"]] == ["tool_result"]
    assert rendered[-1]["content"][0]["is_error"] is True


def test_text_that_looks_like_a_reference_to_a_blob_is_only_text() -> None:
    prompt = "see blob:sha256:" + "0" * 64
    assert texts_of(user("a", None, content=prompt)) == [prompt]


def test_the_model_is_that_of_the_last_real_assistant_message() -> None:
    lines = [user("a", None), assistant("b", "a"), assistant("c", "b", message={"model": "<synthetic>"})]
    state = session_of(*lines).context().state
    assert state.model is not None
    assert (state.model.provider, state.model.model_id, state.thinking_level) == ("anthropic", "claude-x", "off")


def test_a_compaction_that_preserved_no_assistant_message_keeps_the_model() -> None:
    state = session_of(*compacted()[:6]).context().state
    assert state.model is not None
    assert state.model.model_id == "claude-x"


def test_the_mode_is_the_last_one_recorded() -> None:
    assert session_of(user("a", None)).context().state.mode == "none"
    modes = [{"type": "mode", "mode": "normal"}, {"type": "permission-mode", "permissionMode": "plan"}]
    assert session_of(user("a", None), *modes).context().state.mode == "plan"


def test_results_come_before_text_on_the_same_line() -> None:
    both = [text("and"), {"type": "tool_result", "tool_use_id": "1", "content": [text("out")], "is_error": True}]
    _, _, tool_result, prompt = messages_of(user("a", None), shard("s", "a", "1"), user("r", "s", 0, both))
    assert tool_result == ToolResult(tool_result.timestamp, "1", "tool-1", (Text("out"),), True)
    assert message_text(prompt) == "and"


# Moving


def reopened(session: Session) -> Session:
    return open_store(MemoryStore(read_bytes(session.journal.store, 0, session.journal.size)), dialect="claude")


def local_command(id: str, parent: str | None, time: int = 0) -> dict[str, Any]:
    return system(id, parent, "local_command", time, content=f"<local-command-stdout>{id}</local-command-stdout>")


def sent(session: Session) -> list[str]:
    return [message_text(message) for message in session.context().messages]


def test_a_move_to_before_the_first_prompt_is_found_again_after_the_output_of_local_commands() -> None:
    # The client ignores a pin on a line without a user or assistant line above it.
    session = session_of(local_command("x", None), user("a", "x", 1), assistant("b", "a", 2))
    session.move("x")
    assert sent(reopened(session)) == ["<local-command-stdout>x</local-command-stdout>"]
    session.append("user", "instead")
    assert sent(reopened(session)) == ["<local-command-stdout>x</local-command-stdout>", "instead"]


def test_a_move_to_before_the_first_line_is_found_again() -> None:
    session = session_of(user("a", None), assistant("b", "a", 1))
    session.reset()
    again = reopened(session)
    assert sent(again) == []
    again.append("user", "from the start")
    assert sent(reopened(again)) == ["from the start"]


def test_a_move_to_hidden_output_of_local_commands_restores_it() -> None:
    lines = [local_command("x", None), user("a", "x", 1), assistant("b", "a", 2), boundary("B", "b", time=3)]
    lines[-1]["compactMetadata"] = {"preservedMessages": {"anchorUuid": "S", "uuids": ["b"]}}
    session = session_of(*lines, summary("S", "B", 4), user("c", "S", 5))
    session.move("x")
    assert sent(reopened(session)) == ["<local-command-stdout>x</local-command-stdout>"]


def test_a_move_to_a_boundary_gives_the_history_that_it_compacts() -> None:
    session = session_of(*compacted(preservedMessages={"anchorUuid": "S", "uuids": ["c", "d"]}))
    before = [message_text(message) for message in session.context("B").messages]
    session.move("B")
    assert sent(reopened(session)) == before == ["says a", "says b", "says c", "says d"]


def test_a_boundary_at_the_end_that_hides_a_summary_has_the_lines_preserved_after_it() -> None:
    # The client sends nothing here: a boundary preserved lines once, so the last one hides everything before it.
    before = compacted(preservedMessages={"anchorUuid": "S", "uuids": ["c", "d"]})[:6]
    session = session_of(*before, boundary("B2", "S", time=1))
    assert sent(session) == ["the summary", "says c", "says d"]
    session.append("user", "next")
    assert sent(reopened(session)) == ["the summary", "says c", "says d", "next"]


def test_a_boundary_at_the_end_that_names_a_parent_has_the_history_before_it() -> None:
    session = session_of(user("a", None), assistant("b", "a", 1), boundary("B", "b", parent="a", time=2))
    assert sent(session) == ["says a", "says b"]


@pytest.mark.parametrize("time", [2, 9])
def test_a_command_beside_a_boundary_at_the_end_is_sent(time: int) -> None:
    # The client sends nothing that precedes the boundary: only the command, if it is newer.
    lines = [user("a", None), assistant("b", "a", 1), local_command("c", "b", time)]
    session = session_of(*lines, boundary("B", "b", parent="b", time=5))
    before = ["says a", "says b", "<local-command-stdout>c</local-command-stdout>"]
    assert sent(session) == before
    session.append("user", "next")
    assert sent(reopened(session)) == [*before, "next"]


def test_a_boundary_at_the_end_with_a_hidden_anchor_has_the_lines_that_it_preserves() -> None:
    # The client sends nothing: the first preserved line follows the last one, so no branch has an end.
    lines = [user("a", None), assistant("b", "a", 1), user("c", "b", 2), assistant("d", "c", 3), summary("S", None, 4)]
    last = boundary("B", "d", time=5)
    last["compactMetadata"] = {"preservedMessages": {"anchorUuid": "S", "uuids": ["c", "d"]}}
    session = session_of(*lines, last)
    assert sent(session) == ["says c", "says d"]
    session.append("user", "next")
    assert sent(reopened(session)) == ["says c", "says d", "next"]


def test_a_move_to_a_line_that_a_boundary_names_as_its_parent_restores_its_history() -> None:
    # The client sends the lines after the current one with it, and nothing that precedes a boundary among them.
    session = session_of(
        user("a", None), assistant("b", "a", 1), boundary("B", "b", parent="b", time=2), summary("S", "B", 3)
    )
    session.move("b")
    again = reopened(session)
    assert sent(again) == ["says a", "says b"]
    (restored,) = [line for id in again.ids if (line := again.fields(id)).get("logicalParentUuid") and id != "B"]
    assert restored["compactMetadata"]["preservedMessages"]["uuids"] == ["a", "b"]


def test_a_move_to_a_line_of_a_subagent_is_refused_with_a_fork_as_the_next_step() -> None:
    session = session_of(user("a", None), user("s", "a", 1, isSidechain=True), assistant("b", "a", 2))
    size = session.journal.size
    with pytest.raises(InvalidEntryError, match=r"cannot switch to s: .* `sessiontree fork SESSION --at s`"):
        session.move("s")
    assert (session.leaf, session.journal.size) == ("b", size)
