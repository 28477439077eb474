"""Claude Code: a transcript in shared words, and the whole history of a leaf."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sessiontree.core.entries import parse_entry
from sessiontree.core.messages import Message, ToolResult, message_blocks, tool_calls
from sessiontree.dialects.canonical import CanonicalEntry, SessionMeta
from sessiontree.dialects.claude import CLAUDE
from sessiontree.dialects.contract import AS_CLIENT
from sessiontree.session.journal import Journal
from sessiontree.stores.memory import MemoryStore
from tests.building import json_line
from tests.dialects.test_claude import (
    assistant,
    at,
    attachment,
    boundary,
    call,
    line,
    pin,
    result,
    shard,
    summary,
    system,
    text,
    user,
)

CORPUS = Path(__file__).parent.parent / "corpus" / "claude"
each_golden = pytest.mark.parametrize("golden", sorted(CORPUS.glob("*.jsonl")), ids=lambda golden: golden.stem)


def journal_of(data: bytes) -> Journal:
    journal = Journal(MemoryStore(data), CLAUDE)
    journal.refresh()
    return journal


def read(*lines: dict[str, Any]) -> Journal:
    return journal_of(b"".join(map(json_line, lines)))


def history(journal: Journal) -> list[int]:
    return CLAUDE.find_history(journal, CLAUDE.find_leaf(journal, AS_CLIENT), AS_CLIENT)


def told(*lines: dict[str, Any]) -> list[CanonicalEntry]:
    return told_of(read(*lines))


def told_of(journal: Journal) -> list[CanonicalEntry]:
    return list(CLAUDE.decode(journal, history(journal)))


def history_ids(*lines: dict[str, Any]) -> list[str]:
    journal = read(*lines)
    return [journal.tree.ids[node] for node in history(journal)]


def only(*lines: dict[str, Any]) -> CanonicalEntry:
    (item,) = told(*lines)
    return item


def message_of(item: CanonicalEntry) -> dict[str, Any]:
    found: dict[str, Any] = item.fields["message"]
    return found


def kept(anchor: str, *uuids: str) -> dict[str, Any]:
    return {"preservedMessages": {"anchorUuid": anchor, "uuids": list(uuids), "allUuids": list(uuids)}}


# Histories


def test_a_history_goes_back_beyond_every_compaction() -> None:
    lines = [
        user("a", None),
        boundary("b1", "a"),
        summary("s1", "b1"),
        user("c", "s1"),
        boundary("b2", "c"),
        summary("s2", "b2"),
        user("d", "s2"),
    ]
    assert history_ids(*lines) == ["a", "b1", "s1", "c", "b2", "s2", "d"]


def test_what_a_compaction_kept_stands_at_its_old_place_and_nowhere_else() -> None:
    lines = [
        user("a", None),
        user("k", "a"),
        assistant("l", "k"),
        boundary("b", "l", **kept("s", "k", "l")),
        summary("s", "b"),
        user("d", "s"),
    ]
    assert history_ids(*lines) == ["a", "k", "l", "b", "s", "d"]
    items = told(*lines)
    assert [item.id for item in items] == ["a", "k", "l", "b", "d"]
    assert items[3].fields["firstKeptEntryId"] == "k"
    assert items[3].aliases == ("s",)


def test_metadata_and_sub_agents_are_no_part_of_a_history() -> None:
    lines = [
        user("a", None),
        {"type": "mode", "mode": "normal", "sessionId": "s"},
        user("side", "a", isSidechain=True),
        assistant("b", "a"),
        pin("b"),
    ]
    assert history_ids(*lines) == ["a", "b"]


def test_without_a_named_parent_a_boundary_follows_what_stood_before_it() -> None:
    lines = [user("a", None), boundary("b", None), summary("s", "b")]
    assert history_ids(*lines) == ["a", "b", "s"]


# Messages


def test_a_prompt_keeps_what_shared_words_have_no_place_for() -> None:
    item = only(user("a", None, 5, "hi", promptId="p", permissionMode="default", userType="external"))
    assert item == CanonicalEntry(
        "message",
        {
            "message": {"role": "user", "content": "hi", "timestamp": 1772366400005},
            "sessiontree": {"claude": {"promptId": "p", "permissionMode": "default"}},
        },
        "a",
        at(5),
    )


def test_a_line_tells_its_folder_and_branch_only_where_they_differ() -> None:
    items = told(
        user("a", None, cwd="/x", gitBranch="main", version="2.1.1"),
        user("b", "a", cwd="/x", gitBranch="main", version="2.1.1"),
        user("c", "b", cwd="/y", gitBranch="topic", version="2.1.2"),
    )
    assert [item.fields.get("sessiontree", {}).get("claude") for item in items] == [
        {"version": "2.1.1"},
        None,
        {"cwd": "/y", "gitBranch": "topic", "version": "2.1.2"},
    ]


def test_the_shards_of_a_response_are_one_item_with_its_results_behind_it() -> None:
    usage = {"input_tokens": 1, "output_tokens": 2, "cache_read_input_tokens": 3, "cache_creation_input_tokens": 4}
    items = told(
        user("a", None),
        assistant("s1", "a", 1, text("two"), response="msg_p", message={"usage": usage, "stop_reason": "tool_use"}),
        shard("s2", "s1", "c1"),
        shard("s3", "s2", "c2"),
        result("r2", "s3", "c2"),
        result("r1", "s2", "c1"),
        assistant("z", "r1"),
    )
    assert [item.id for item in items] == ["a", "s3", "r2", "r1", "z"]
    response = items[1]
    assert response.aliases == ("s1", "s2")
    message = message_of(response)
    assert [block["type"] for block in message["content"]] == ["text", "toolCall", "toolCall"]
    assert message["content"][1] == {"type": "toolCall", "id": "c1", "name": "tool-c1", "arguments": {"of": "c1"}}
    assert message["usage"] == {"input": 1, "output": 2, "cacheRead": 3, "cacheWrite": 4, "totalTokens": 10}
    assert (message["api"], message["provider"], message["model"]) == ("anthropic-messages", "anthropic", "claude-x")
    assert (message["stopReason"], message["responseId"]) == ("toolUse", "msg_p")
    assert message_of(items[2]) == {
        "role": "toolResult",
        "toolCallId": "c2",
        "toolName": "tool-c2",
        "content": [text("done c2")],
        "isError": False,
        "timestamp": 1772366400000,
    }


def test_shards_with_results_between_them_are_one_item_too() -> None:
    items = told(
        user("a", None),
        shard("s1", "a", "c1"),
        result("r1", "s1", "c1"),
        shard("s2", "r1", "c2"),
        result("r2", "s2", "c2"),
    )
    assert [item.id for item in items] == ["a", "s2", "r1", "r2"]


def test_each_result_on_a_line_is_an_item_and_so_is_what_the_user_says_beside_them() -> None:
    both = result("r", "s", "c1", "c2")
    both["message"]["content"].append(text("and more"))
    items = told(assistant("s", None, 0, call("c1"), call("c2")), both)
    assert [item.id for item in items] == ["s", "r", "r.2", "r.3"]
    assert [message_of(item)["role"] for item in items[1:]] == ["toolResult", "toolResult", "user"]


def test_the_fields_of_shards_ride_along_one_by_one() -> None:
    items = told(
        assistant("s1", None, 0, text("x"), response="m", requestId="req", effort="low"),
        assistant("s2", "s1", 0, call("c"), response="m", requestId="req", toolInputStreamMs=5),
    )
    assert items[0].fields["sessiontree"]["claude"] == [
        {"requestId": "req", "effort": "low"},
        {"requestId": "req", "toolInputStreamMs": 5},
    ]


def test_a_note_about_a_failed_request_is_an_answer_that_failed_and_says_nothing() -> None:
    note = assistant("e", None, 0, text("API Error: 529"), message={"model": "<synthetic>"}, isApiErrorMessage=True)
    message = message_of(only(note))
    assert (message["content"], message["stopReason"], message["errorMessage"]) == ([], "error", "API Error: 529")


def test_a_command_and_its_output_are_one_item() -> None:
    items = told(
        user("i", None, 0, "<bash-input>ls -l</bash-input>"),
        user("o", "i", 1, "<bash-stdout>a\nb</bash-stdout><bash-stderr>oops</bash-stderr>"),
        assistant("z", "o"),
    )
    assert [item.id for item in items] == ["i", "z"]
    assert items[0].aliases == ("o",)
    assert message_of(items[0]) == {
        "role": "bashExecution",
        "command": "ls -l",
        "output": "a\nb\noops",
        "cancelled": False,
        "truncated": False,
        "timestamp": 1772366400000,
    }


def test_a_command_without_output_is_what_the_user_said() -> None:
    assert message_of(only(user("i", None, 0, "<bash-input>ls</bash-input>")))["role"] == "user"


def test_commands_of_the_client_and_prompts_typed_during_a_turn_are_said_by_the_user() -> None:
    items = told(
        system("l", None, "local_command", content="<command-name>/x</command-name>"),
        attachment("q", "l", {"type": "queued_command", "prompt": "wait"}),
        user("c", "q", 0, "<command-name>/y</command-name>"),
    )
    assert [message_of(item)["content"] for item in items] == [
        "<command-name>/x</command-name>",
        "wait",
        "<command-name>/y</command-name>",
    ]
    assert items[0].fields["sessiontree"]["claude"] == {"type": "system", "subtype": "local_command"}


def test_what_the_client_says_in_the_users_place_is_a_custom_message() -> None:
    items = told(
        user("m", None, 0, "caveat", isMeta=True),
        attachment("f", "m", {"type": "file"}, rendered=[{"content": "the file"}], renderedRole="user"),
    )
    assert [item.kind for item in items] == ["custom_message"] * 2
    assert [item.fields["customType"] for item in items] == ["claude.meta", "claude.attachment"]
    assert [item.fields["content"] for item in items] == ["caveat", [text("the file")]]
    assert [item.fields["display"] for item in items] == [False, False]


def test_what_the_model_does_not_see_is_kept_whole_in_custom_entries() -> None:
    items = told(
        user("a", None),
        attachment("d", "a", {"type": "date"}),
        system("t", "d", "turn_duration", durationMs=5),
        user("r", "t", 0, "<system-reminder>x</system-reminder>", isMeta=True),
    )
    assert [item.kind for item in items[1:]] == ["custom"] * 3
    assert [item.fields["customType"] for item in items[1:]] == ["claude.attachment", "claude.system", "claude.user"]
    assert items[2].fields["data"] == {"type": "system", "subtype": "turn_duration", "durationMs": 5}


# Compactions


def test_a_compaction_tells_its_tokens_and_what_else_is_known_of_it() -> None:
    lines = [
        user("a", None),
        boundary("b", "a", preTokens=10, postTokens=3, trigger="auto"),
        summary("s", "b"),
        user("c", "s"),
    ]
    item = told(*lines)[1]
    assert item.kind == "compaction"
    assert item.fields == {
        "summary": "the summary",
        "tokensBefore": 10,
        "tokensAfter": 3,
        "details": {"trigger": "auto"},
    }


def test_a_boundary_with_nothing_behind_it_is_no_compaction() -> None:
    items = told(user("a", None), boundary("b", "a"))
    assert [item.kind for item in items] == ["message"] or items[-1].kind == "custom"
    assert all(item.kind != "compaction" for item in items)


def test_a_summary_of_what_came_later_tells_of_a_branch_that_was_left() -> None:
    lines = [
        user("a", None),
        assistant("b", "a"),
        user("x", "b"),
        assistant("y", "x"),
        boundary("k", "b", **kept("k", "a", "b")),
        summary("s", "k"),
        user("c", "s"),
    ]
    items = told(*lines)
    assert [item.id for item in items] == ["a", "b", "k", "c"]
    assert items[2].kind == "branch_summary"
    assert (items[2].fields["fromId"], items[2].fields["summary"]) == ("y", "the summary")


def test_kept_messages_that_are_no_tail_are_said_once_more_behind_the_summary() -> None:
    lines = [
        user("a", None),
        assistant("b", "a"),
        user("c", "b"),
        assistant("d", "c"),
        boundary("k", "d", **kept("s", "a", "d")),
        summary("s", "k"),
        user("e", "s"),
    ]
    items = told(*lines)
    assert [item.id for item in items] == ["a", "b", "c", "d", "k", "a+k", "d+k", "e"]
    assert "firstKeptEntryId" not in items[4].fields
    assert message_of(items[5]) == message_of(items[0])


def test_a_stretch_keeps_the_results_beside_it_too() -> None:
    lines = [
        user("a", None),
        user("q", "a"),
        shard("s1", "q", "c1"),
        shard("s2", "s1", "c2"),
        result("r1", "s1", "c1"),
        result("r2", "s2", "c2"),
        boundary("k", "r2", preservedSegment={"headUuid": "q", "anchorUuid": "s", "tailUuid": "r2"}),
        summary("s", "k"),
        user("e", "s"),
    ]
    items = told(*lines)
    assert [item.id for item in items] == ["a", "q", "s2", "r1", "r2", "k", "e"]
    assert items[5].fields["firstKeptEntryId"] == "q"


# Cuts


def test_lines_that_make_one_item_belong_together_and_prompts_do_not() -> None:
    journal = read(
        user("a", None),
        shard("s1", "a", "c1"),
        shard("s2", "s1", "c2"),
        result("r1", "s1", "c1"),
        user("b", "r1"),
        boundary("k", "b"),
        summary("s", "k"),
        user("i", "s", 0, "<bash-input>ls</bash-input>"),
        user("o", "i", 0, "<bash-stdout>x</bash-stdout><bash-stderr></bash-stderr>"),
    )
    together = [CLAUDE.must_decode_together(journal, node, node + 1) for node in range(len(journal) - 1)]
    assert together == [False, True, True, False, True, True, False, True]


@each_golden
def test_a_history_may_be_told_in_parts_cut_where_lines_do_not_belong_together(golden: Path) -> None:
    journal = journal_of(golden.read_bytes())
    nodes = history(journal)
    whole = list(CLAUDE.decode(journal, nodes))
    parts: list[list[int]] = []
    for place, node in enumerate(nodes):
        if place and CLAUDE.must_decode_together(journal, nodes[place - 1], node):
            parts[-1].append(node)
        else:
            parts.append([node])
    assert [item for part in parts for item in CLAUDE.decode(journal, part)] == whole


# The corpus


def outline(messages: tuple[Message, ...]) -> list[tuple[Any, ...]]:
    """Who says what: texts as blocks, whichever way they stood on the line."""
    return [
        (
            message.role,
            message_blocks(message),
            [call.id for call in tool_calls(message)],
            message.tool_call_id if isinstance(message, ToolResult) else None,
        )
        for message in messages
    ]


def context_of(journal: Journal) -> list[tuple[Any, ...]]:
    leaf = CLAUDE.find_leaf(journal, AS_CLIENT)
    return outline(CLAUDE.build_context(journal, leaf, AS_CLIENT).messages)


def rewritten(journal: Journal) -> Journal:
    header = journal.header
    assert header is not None
    encoder = CLAUDE.encoder(
        SessionMeta(header.id, header.timestamp, header.cwd, git_branch=CLAUDE.find_git_branch(journal))
    )
    lines = list(encoder.prologue())
    parent: str | None = None
    for item in told_of(journal):
        written = encoder.encode(item, parent)
        lines += written.lines
        assert not written.notes
        parent = written.id
    lines += encoder.epilogue(parent)
    return journal_of(b"".join(line + b"\n" for line in lines))


@each_golden
def test_a_transcript_told_and_written_again_says_the_same_to_the_model(golden: Path) -> None:
    journal = journal_of(golden.read_bytes())
    again = rewritten(journal)
    assert context_of(again) == context_of(journal)
    assert again.problems() == []


@each_golden
def test_a_transcript_told_and_written_again_is_told_the_same(golden: Path) -> None:
    journal = journal_of(golden.read_bytes())
    shape = [(item.kind, item.fields, item.id) for item in told_of(journal)]
    assert [(item.kind, item.fields, item.id) for item in told_of(rewritten(journal))] == shape


@each_golden
def test_everything_told_is_an_entry_of_the_native_form(golden: Path) -> None:
    for item in told_of(journal_of(golden.read_bytes())):
        entry = parse_entry({"type": item.kind, "id": item.id, "timestamp": item.timestamp, **item.fields})
        assert type(entry).__name__ != "Unknown"
        if item.kind == "message":
            assert entry.message.role == item.fields["message"]["role"]  # type: ignore[union-attr]


@each_golden
def test_the_history_of_every_line_can_be_told(golden: Path) -> None:
    journal = journal_of(golden.read_bytes())
    for node in range(len(journal)):
        list(CLAUDE.decode(journal, CLAUDE.find_history(journal, node, AS_CLIENT)))


def test_progress_between_lines_is_passed_over() -> None:
    assert history_ids(user("a", None), line("progress", "p", "a"), assistant("b", "p")) == ["a", "b"]
