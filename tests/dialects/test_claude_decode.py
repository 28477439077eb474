"""Claude Code: transcripts decoded to canonical entries, and the complete history of a leaf."""

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
from tests.builders import json_line
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


def decode(*lines: dict[str, Any]) -> list[CanonicalEntry]:
    return decode_journal(read(*lines))


def decode_journal(journal: Journal) -> list[CanonicalEntry]:
    return list(CLAUDE.decode(journal, history(journal)))


def history_ids(*lines: dict[str, Any]) -> list[str]:
    journal = read(*lines)
    return [journal.tree.ids[node] for node in history(journal)]


def only(*lines: dict[str, Any]) -> CanonicalEntry:
    (entry,) = decode(*lines)
    return entry


def message_of(entry: CanonicalEntry) -> dict[str, Any]:
    found: dict[str, Any] = entry.fields["message"]
    return found


def kept(anchor: str, *uuids: str) -> dict[str, Any]:
    return {"preservedMessages": {"anchorUuid": anchor, "uuids": list(uuids), "allUuids": list(uuids)}}


# Histories


def test_a_history_starts_before_every_compaction() -> None:
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


def test_preserved_lines_appear_once_at_their_original_position() -> None:
    lines = [
        user("a", None),
        user("k", "a"),
        assistant("l", "k"),
        boundary("b", "l", **kept("s", "k", "l")),
        summary("s", "b"),
        user("d", "s"),
    ]
    assert history_ids(*lines) == ["a", "k", "l", "b", "s", "d"]
    entries = decode(*lines)
    assert [entry.id for entry in entries] == ["a", "k", "l", "b", "d"]
    assert entries[3].fields["firstKeptEntryId"] == "k"
    assert entries[3].aliases == ("s",)


def test_metadata_and_sub_agents_are_not_part_of_a_history() -> None:
    lines = [
        user("a", None),
        {"type": "mode", "mode": "normal", "sessionId": "s"},
        user("side", "a", isSidechain=True),
        assistant("b", "a"),
        pin("b"),
    ]
    assert history_ids(*lines) == ["a", "b"]


def test_a_boundary_without_a_logical_parent_follows_the_preceding_line() -> None:
    lines = [user("a", None), boundary("b", None), summary("s", "b")]
    assert history_ids(*lines) == ["a", "b", "s"]


# Messages


def test_a_prompt_keeps_client_fields_as_passthrough_data() -> None:
    entry = only(user("a", None, 5, "hi", promptId="p", permissionMode="default", userType="external"))
    assert entry == CanonicalEntry(
        "message",
        {
            "message": {"role": "user", "content": "hi", "timestamp": 1772366400005},
            "sessiontree": {"claude": {"promptId": "p", "permissionMode": "default"}},
        },
        "a",
        at(5),
    )


def test_folder_and_branch_are_passthrough_data_only_where_they_differ() -> None:
    entries = decode(
        user("a", None, cwd="/x", gitBranch="main", version="2.1.1"),
        user("b", "a", cwd="/x", gitBranch="main", version="2.1.1"),
        user("c", "b", cwd="/y", gitBranch="topic", version="2.1.2"),
    )
    assert [entry.fields.get("sessiontree", {}).get("claude") for entry in entries] == [
        {"version": "2.1.1"},
        None,
        {"cwd": "/y", "gitBranch": "topic", "version": "2.1.2"},
    ]


def test_the_shards_of_a_response_are_one_entry_followed_by_its_results() -> None:
    usage = {"input_tokens": 1, "output_tokens": 2, "cache_read_input_tokens": 3, "cache_creation_input_tokens": 4}
    entries = decode(
        user("a", None),
        assistant("s1", "a", 1, text("two"), response="msg_p", message={"usage": usage, "stop_reason": "tool_use"}),
        shard("s2", "s1", "c1"),
        shard("s3", "s2", "c2"),
        result("r2", "s3", "c2"),
        result("r1", "s2", "c1"),
        assistant("z", "r1"),
    )
    assert [entry.id for entry in entries] == ["a", "s3", "r2", "r1", "z"]
    response = entries[1]
    assert response.aliases == ("s1", "s2")
    message = message_of(response)
    assert [block["type"] for block in message["content"]] == ["text", "toolCall", "toolCall"]
    assert message["content"][1] == {"type": "toolCall", "id": "c1", "name": "tool-c1", "arguments": {"of": "c1"}}
    assert message["usage"] == {"input": 1, "output": 2, "cacheRead": 3, "cacheWrite": 4, "totalTokens": 10}
    assert (message["api"], message["provider"], message["model"]) == ("anthropic-messages", "anthropic", "claude-x")
    assert (message["stopReason"], message["responseId"]) == ("toolUse", "msg_p")
    assert message_of(entries[2]) == {
        "role": "toolResult",
        "toolCallId": "c2",
        "toolName": "tool-c2",
        "content": [text("done c2")],
        "isError": False,
        "timestamp": 1772366400000,
    }


def test_shards_with_results_between_them_are_one_entry_too() -> None:
    entries = decode(
        user("a", None),
        shard("s1", "a", "c1"),
        result("r1", "s1", "c1"),
        shard("s2", "r1", "c2"),
        result("r2", "s2", "c2"),
    )
    assert [entry.id for entry in entries] == ["a", "s2", "r1", "r2"]


def test_each_result_on_a_line_is_an_entry_and_so_is_the_text_of_the_user() -> None:
    both = result("r", "s", "c1", "c2")
    both["message"]["content"].append(text("and more"))
    entries = decode(assistant("s", None, 0, call("c1"), call("c2")), both)
    assert [entry.id for entry in entries] == ["s", "r", "r.2", "r.3"]
    assert [message_of(entry)["role"] for entry in entries[1:]] == ["toolResult", "toolResult", "user"]


def test_each_shard_keeps_its_own_client_fields() -> None:
    entries = decode(
        assistant("s1", None, 0, text("x"), response="m", requestId="req", effort="low"),
        assistant("s2", "s1", 0, call("c"), response="m", requestId="req", toolInputStreamMs=5),
    )
    assert entries[0].fields["sessiontree"]["claude"] == [
        {"requestId": "req", "effort": "low"},
        {"requestId": "req", "toolInputStreamMs": 5},
    ]


def test_an_api_error_line_is_a_failed_message_without_content() -> None:
    note = assistant("e", None, 0, text("API Error: 529"), message={"model": "<synthetic>"}, isApiErrorMessage=True)
    message = message_of(only(note))
    assert (message["content"], message["stopReason"], message["errorMessage"]) == ([], "error", "API Error: 529")


def test_a_command_and_its_output_are_one_entry() -> None:
    entries = decode(
        user("i", None, 0, "<bash-input>ls -l</bash-input>"),
        user("o", "i", 1, "<bash-stdout>a\nb</bash-stdout><bash-stderr>oops</bash-stderr>"),
        assistant("z", "o"),
    )
    assert [entry.id for entry in entries] == ["i", "z"]
    assert entries[0].aliases == ("o",)
    assert message_of(entries[0]) == {
        "role": "bashExecution",
        "command": "ls -l",
        "output": "a\nb\noops",
        "cancelled": False,
        "truncated": False,
        "timestamp": 1772366400000,
    }


def test_a_command_without_output_is_a_user_message() -> None:
    assert message_of(only(user("i", None, 0, "<bash-input>ls</bash-input>")))["role"] == "user"


def test_local_commands_and_prompts_typed_during_a_turn_are_user_messages() -> None:
    entries = decode(
        system("l", None, "local_command", content="<command-name>/x</command-name>"),
        attachment("q", "l", {"type": "queued_command", "prompt": "wait"}),
        user("c", "q", 0, "<command-name>/y</command-name>"),
    )
    assert [message_of(entry)["content"] for entry in entries] == [
        "<command-name>/x</command-name>",
        "wait",
        "<command-name>/y</command-name>",
    ]
    assert entries[0].fields["sessiontree"]["claude"] == {"type": "system", "subtype": "local_command"}


def test_injected_messages_of_the_client_are_custom_messages() -> None:
    entries = decode(
        user("m", None, 0, "caveat", isMeta=True),
        attachment("f", "m", {"type": "file"}, rendered=[{"content": "the file"}], renderedRole="user"),
    )
    assert [entry.kind for entry in entries] == ["custom_message"] * 2
    assert [entry.fields["customType"] for entry in entries] == ["claude.meta", "claude.attachment"]
    assert [entry.fields["content"] for entry in entries] == ["caveat", [text("the file")]]
    assert [entry.fields["display"] for entry in entries] == [False, False]


def test_lines_the_model_does_not_receive_are_custom_entries_with_all_fields() -> None:
    entries = decode(
        user("a", None),
        attachment("d", "a", {"type": "date"}),
        system("t", "d", "turn_duration", durationMs=5),
        user("r", "t", 0, "<system-reminder>x</system-reminder>", isMeta=True),
    )
    assert [entry.kind for entry in entries[1:]] == ["custom"] * 3
    assert [entry.fields["customType"] for entry in entries[1:]] == [
        "claude.attachment",
        "claude.system",
        "claude.user",
    ]
    assert entries[2].fields["data"] == {"type": "system", "subtype": "turn_duration", "durationMs": 5}


# Compactions


def test_a_compaction_has_its_token_counts_and_details() -> None:
    lines = [
        user("a", None),
        boundary("b", "a", preTokens=10, postTokens=3, trigger="auto"),
        summary("s", "b"),
        user("c", "s"),
    ]
    entry = decode(*lines)[1]
    assert entry.kind == "compaction"
    assert entry.fields == {
        "summary": "the summary",
        "tokensBefore": 10,
        "tokensAfter": 3,
        "details": {"trigger": "auto"},
    }


def test_a_boundary_with_nothing_after_it_is_not_a_compaction() -> None:
    lines = [user("a", None), boundary("b", "a")]
    assert [(entry.kind, entry.id) for entry in decode(*lines)] == [("message", "a")]
    journal = read(*lines)
    entries = list(CLAUDE.decode(journal, CLAUDE.find_history(journal, journal.tree.node_of["b"], AS_CLIENT)))
    assert [(entry.kind, entry.id) for entry in entries] == [("message", "a"), ("custom", "b")]
    assert entries[1].fields["customType"] == "claude.system"
    assert entries[1].fields["data"]["subtype"] == "compact_boundary"


def test_a_summary_of_later_messages_is_a_branch_summary() -> None:
    lines = [
        user("a", None),
        assistant("b", "a"),
        user("x", "b"),
        assistant("y", "x"),
        boundary("k", "b", **kept("k", "a", "b")),
        summary("s", "k"),
        user("c", "s"),
    ]
    entries = decode(*lines)
    assert [entry.id for entry in entries] == ["a", "b", "k", "c"]
    assert entries[2].kind == "branch_summary"
    assert (entries[2].fields["fromId"], entries[2].fields["summary"]) == ("y", "the summary")


def test_kept_messages_that_are_not_the_tail_are_repeated_after_the_summary() -> None:
    lines = [
        user("a", None),
        assistant("b", "a"),
        user("c", "b"),
        assistant("d", "c"),
        boundary("k", "d", **kept("s", "a", "d")),
        summary("s", "k"),
        user("e", "s"),
    ]
    entries = decode(*lines)
    assert [entry.id for entry in entries] == ["a", "b", "c", "d", "k", "a+k", "d+k", "e"]
    assert "firstKeptEntryId" not in entries[4].fields
    assert message_of(entries[5]) == message_of(entries[0])


def test_a_segment_keeps_only_the_lines_between_its_ends() -> None:
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
    entries = decode(*lines)
    assert [entry.id for entry in entries] == ["a", "q", "s2", "r1", "r2", "k", "q+k", "s2+k", "r2+k", "e"]
    assert "firstKeptEntryId" not in entries[5].fields


# Cuts


def test_lines_of_one_entry_must_be_decoded_together_and_prompts_need_not() -> None:
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
def test_a_history_may_be_decoded_in_parts(golden: Path) -> None:
    journal = journal_of(golden.read_bytes())
    nodes = history(journal)
    whole = list(CLAUDE.decode(journal, nodes))
    parts: list[list[int]] = []
    for place, node in enumerate(nodes):
        if place and CLAUDE.must_decode_together(journal, nodes[place - 1], node):
            parts[-1].append(node)
        else:
            parts.append([node])
    assert [entry for part in parts for entry in CLAUDE.decode(journal, part)] == whole


# The corpus


def outline(messages: tuple[Message, ...]) -> list[tuple[Any, ...]]:
    """Roles and contents, with texts always as blocks."""
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
        SessionMeta(header.id, header.timestamp, header.cwd, git_branch=CLAUDE.facts(journal).git_branch)
    )
    lines = list(encoder.prologue())
    parent: str | None = None
    for entry in decode_journal(journal):
        written = encoder.encode(entry, parent)
        lines += written.lines
        assert not written.notes
        parent = written.id
    lines += encoder.epilogue(parent)
    return journal_of(b"".join(line + b"\n" for line in lines))


@each_golden
def test_a_transcript_decoded_and_encoded_again_has_the_same_context(golden: Path) -> None:
    journal = journal_of(golden.read_bytes())
    again = rewritten(journal)
    assert context_of(again) == context_of(journal)
    assert again.problems() == []


@each_golden
def test_a_transcript_decoded_and_encoded_again_decodes_to_the_same_entries(golden: Path) -> None:
    journal = journal_of(golden.read_bytes())
    shape = [(entry.kind, entry.fields, entry.id) for entry in decode_journal(journal)]
    assert [(entry.kind, entry.fields, entry.id) for entry in decode_journal(rewritten(journal))] == shape


@each_golden
def test_every_canonical_entry_is_a_native_entry(golden: Path) -> None:
    for entry in decode_journal(journal_of(golden.read_bytes())):
        parsed = parse_entry({"type": entry.kind, "id": entry.id, "timestamp": entry.timestamp, **entry.fields})
        assert type(parsed).__name__ != "Unknown"
        if entry.kind == "message":
            assert parsed.message.role == entry.fields["message"]["role"]  # type: ignore[union-attr]


@each_golden
def test_the_history_of_every_line_can_be_decoded(golden: Path) -> None:
    journal = journal_of(golden.read_bytes())
    for node in range(len(journal)):
        list(CLAUDE.decode(journal, CLAUDE.find_history(journal, node, AS_CLIENT)))


def test_progress_between_lines_is_passed_over() -> None:
    assert history_ids(user("a", None), line("progress", "p", "a"), assistant("b", "p")) == ["a", "b"]
