"""Neovate's lines decoded to canonical entries: what each line becomes, and that a round trip loses nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sessiontree.core.messages import Message, message_blocks
from sessiontree.dialects.canonical import CanonicalEntry, SessionMeta
from sessiontree.dialects.contract import AS_CLIENT, ReadOptions
from sessiontree.dialects.neovate import COMPACTION_MARK, NEOVATE
from sessiontree.session.journal import Journal
from sessiontree.session.open import open_store
from sessiontree.stores.memory import MemoryStore
from tests.builders import NOWHERE, json_line
from tests.dialects.test_neovate import SNAPSHOT, TIME, answer, call, compaction, config, message, outcome, title

FOLDER = Path(__file__).parents[1] / "corpus" / "neovate"
# Not healthy: files that Neovate does not open, and responses with an unanswered call, which 0.28 drops.
REFUSED = ("cycle", "empty", "spaces_line")
DROPPING = ("partial_two_tools", "unmatched_middle")
HEALTHY = sorted(path for path in FOLDER.glob("*.jsonl") if path.stem not in (*REFUSED, *DROPPING))
MS = 1767225600000
UUIDS = [f"00000000-0000-4000-8000-{number:012d}" for number in range(9)]


def journal(*lines: bytes) -> Journal:
    found = Journal(MemoryStore(b"".join(lines), location="/p/abcd1234.jsonl"), NEOVATE)
    found.refresh()
    return found


def decode(*lines: bytes, read_options: ReadOptions = AS_CLIENT) -> list[CanonicalEntry]:
    found = journal(*lines)
    return list(
        NEOVATE.decode(found, NEOVATE.find_history(found, NEOVATE.find_leaf(found, read_options), read_options))
    )


def rewritten(entries: list[CanonicalEntry]) -> bytes:
    encoder = NEOVATE.encoder(SessionMeta("abcd1234", TIME))
    lines = list(encoder.prologue())
    parent = None
    for entry in entries:
        written = encoder.encode(entry, parent)
        lines += written.lines
        parent = written.id
    return b"".join(line + b"\n" for line in (*lines, *encoder.epilogue(parent)))


def bodies(data: bytes) -> list[dict[str, Any]]:
    """The message lines of a file without our own field."""
    lines = [json.loads(line) for line in data.decode().split("\n") if line]
    return [
        {name: value for name, value in line.items() if name != "sessiontree"}
        for line in lines
        if line["type"] == "message"
    ]


def messages(entries: list[CanonicalEntry]) -> list[dict[str, Any]]:
    return [entry.fields["message"] for entry in entries]


def test_a_prompt_and_an_answer_in_canonical_form() -> None:
    parts = [{"type": "reasoning", "text": "hm"}, {"type": "text", "text": "ok"}, call("1")]
    usage = {"input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 3}
    asked, answered = decode(message("a", None, "hi"), answer("b", "a", parts, usage=usage))
    assert asked == CanonicalEntry(
        "message", {"message": {"role": "user", "content": "hi", "timestamp": MS}}, "a", TIME
    )
    assert answered.fields["message"] == {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "hm"},
            {"type": "text", "text": "ok"},
            {"type": "toolCall", "id": "1", "name": "read", "arguments": {"file_path": "a"}},
        ],
        "provider": "p",
        "model": "m",
        "usage": {"input": 10, "output": 5, "cacheRead": 3, "cacheWrite": 0, "totalTokens": 15},
        "stopReason": "toolUse",
        "timestamp": MS,
    }


def test_each_result_of_a_line_is_an_entry_and_what_follows_the_line_follows_the_last() -> None:
    lines = [answer("a", None, [call("1"), call("2")]), message("b", "a", [outcome("1"), outcome("2", "no")], "tool")]
    _, first, second = decode(*lines)
    assert (first.id, second.id, second.aliases) == ("b", "b.2", ("b",))
    assert first.fields["message"] == {
        "role": "toolResult",
        "toolCallId": "1",
        "toolName": "read",
        "content": [{"type": "text", "text": "done"}],
        "isError": False,
        "timestamp": MS,
    }


def test_results_of_the_old_form_are_the_same_and_text_next_to_them_follows() -> None:
    old = {"type": "tool_result", "id": "1", "name": "read", "input": {"file_path": "a"}, "result": "plain"}
    lines = [answer("a", None, [call("1")]), message("b", "a", [{"type": "text", "text": "and"}, old])]
    _, given, prompt = decode(*lines)
    assert given.fields["message"]["content"] == [{"type": "text", "text": "plain"}]
    assert (prompt.id, prompt.aliases, prompt.fields["message"]["role"]) == ("b.2", ("b",), "user")


def test_a_compaction_follows_the_messages_it_summarizes() -> None:
    entries = decode(
        message("a", None), answer("b", "a", "ok"), SNAPSHOT, compaction("c"), title("T"), answer("d", "c", "on")
    )
    assert [(entry.kind, entry.id) for entry in entries] == [
        ("message", "a"),
        ("message", "b"),
        ("compaction", "c"),
        ("message", "d"),
    ]
    assert entries[2].fields == {"summary": "summary", "tokensBefore": 0}


def test_a_message_with_the_mark_of_a_compaction_that_is_not_a_root_is_a_message() -> None:
    entries = decode(message("a", None), message("b", "a", "text", uiContent=COMPACTION_MARK))
    assert entries[1].kind == "message"
    assert [line.get("uiContent") for line in bodies(rewritten(entries))] == [None, COMPACTION_MARK]


def test_a_command_and_what_it_printed_are_one_entry() -> None:
    lines = [
        message("a", None, "<bash-input>ls</bash-input>"),
        message("b", "a", "<bash-stdout>one</bash-stdout>"),
        message("c", "b", "<bash-stderr>two</bash-stderr>"),
        message("d", "c", "<bash-input>pwd</bash-input>"),
        message("e", "d", "<bash-stdout>x</bash-stdout><bash-stderr>y</bash-stderr>"),
        message("f", "e", "thanks"),
    ]
    first, second, third = decode(*lines)
    assert (first.id, first.aliases) == ("a", ("b", "c"))
    assert {**first.fields["message"], "timestamp": None} == {
        "role": "bashExecution",
        "command": "ls",
        "output": "one\ntwo",
        "cancelled": False,
        "truncated": False,
        "timestamp": None,
    }
    assert second.fields["message"]["output"] == "x\ny"
    assert third.id == "f"


def test_output_without_its_command_is_a_message() -> None:
    (entry,) = decode(message("a", None, "<bash-stdout>x</bash-stdout>"))
    assert entry.fields["message"]["role"] == "user"


def test_metadata_lines_are_not_part_of_a_history() -> None:
    lines = [config(), message("a", None), SNAPSHOT, title("T"), json_line({"type": "new-kind"}), message("b", "a")]
    assert [entry.id for entry in decode(*lines)] == ["a", "b"]
    found = journal(*lines)
    assert [NEOVATE.find_history(found, node, AS_CLIENT) for node in (0, 2, 3, 4)] == [[], [], [], []]


def test_a_recovered_history_has_what_the_client_loses() -> None:
    lines = [message("a", None), answer("b", "a"), SNAPSHOT, message("c", None)]
    assert [entry.id for entry in decode(*lines)] == ["c"]
    assert [entry.id for entry in decode(*lines, read_options=ReadOptions(recovered=True))] == ["a", "b", "c"]


def test_of_a_uuid_that_occurs_twice_both_lines_are_decoded() -> None:
    entries = decode(message("a", None, "one"), message("a", None, "two"), message("b", "a"))
    assert [found["content"] for found in messages(entries)] == ["one", "two", "b"]


RICH = [
    message(UUIDS[0], None, [{"type": "text", "text": "r", "hidden": True}], uiContent="shown", hidden=True),
    answer(
        UUIDS[1],
        UUIDS[0],
        [
            {"type": "reasoning", "text": "hm", "providerMetadata": {"x": 1}},
            {**call("1"), "displayName": "Read", "description": "a"},
            call("2"),
        ],
        metadata={"agentId": "x"},
        usage={"input_tokens": 1, "output_tokens": 2},
    ),
    message(
        UUIDS[2],
        UUIDS[1],
        [
            {**outcome("1"), "input": {"file_path": "a"}, "result": {"llmContent": "x", "returnDisplay": "y"}},
            {
                **outcome("2"),
                "input": {},
                "agentId": "z",
                "result": {
                    "llmContent": [{"type": "text", "text": "x"}],
                    "metadata": {"n": 1},
                    "truncated": True,
                    "outputPath": "/o",
                },
            },
        ],
        "tool",
        uiContent="results",
        forkedFrom={"sessionId": "deadbeef", "messageUuid": UUIDS[2]},
    ),
    message(UUIDS[3], UUIDS[2], "<bash-input>ls</bash-input>", metadata={"m": 1}),
    message(UUIDS[4], UUIDS[3], "<bash-stdout>one</bash-stdout>"),
    message(UUIDS[5], UUIDS[4], "<bash-stderr>two</bash-stderr>", hidden=True),
    message(
        UUIDS[6], UUIDS[5], [{"type": "image", "data": "AAAA"}, {"type": "image", "data": "data:image/gif;base64,B"}]
    ),
    message(UUIDS[7], UUIDS[6], "be brief", "system"),
    message(UUIDS[8], UUIDS[7], "", "assistant", text="<use_tool>x</use_tool>", model="p/m"),
]


def test_fields_beyond_canonical_form_survive_as_passthrough_data() -> None:
    entries = decode(*RICH)
    assert bodies(rewritten(entries)) == bodies(b"".join(RICH))
    shown = entries[0].fields["sessiontree"]["neovate"]
    assert shown == {"lines": [{"set": {"hidden": True, "uiContent": "shown"}, "in": shown["lines"][0]["in"]}]}


def test_a_round_trip_gives_the_same_entries() -> None:
    entries = decode(*RICH)
    again = decode(rewritten(entries))
    assert [(entry.kind, entry.fields, entry.id, entry.timestamp) for entry in again] == [
        (entry.kind, entry.fields, entry.id, entry.timestamp) for entry in entries
    ]


@pytest.mark.parametrize("path", HEALTHY, ids=lambda path: path.stem)
def test_every_healthy_file_of_the_corpus_is_written_with_the_same_context(path: Path) -> None:
    entries = decode(path.read_bytes())
    again = rewritten(entries)
    stores = [MemoryStore(data, location="/p/abcd1234.jsonl") for data in (path.read_bytes(), again)]
    one, other = (open_store(store, root=NOWHERE, dialect="neovate").context() for store in stores)
    assert [_as_blocks(found) for found in other.messages] == [_as_blocks(found) for found in one.messages]
    assert other.state == one.state


@pytest.mark.parametrize("name", DROPPING)
def test_answers_that_0_28_drops_are_completed_and_decoded_as_they_were(name: str) -> None:
    entries = decode((FOLDER / f"{name}.jsonl").read_bytes())
    again = rewritten(entries)
    assert [entry.fields for entry in decode(again)] == [entry.fields for entry in entries]
    answered = {part["toolCallId"] for line in bodies(again) if line["role"] == "tool" for part in line["content"]}
    asked = {part["id"] for line in bodies(again) for part in line["content"] if part in calls_in(line)}
    assert asked == answered


def calls_in(line: dict[str, Any]) -> list[Any]:
    return [part for part in line["content"] if isinstance(part, dict) and part.get("type") == "tool_use"]


def _as_blocks(found: Message) -> Any:
    """A message without the difference between a text and one block of text."""
    return found.role, message_blocks(found)


def test_lines_decoded_in_pieces_give_the_same_entries() -> None:
    found = journal(*RICH)
    nodes = NEOVATE.find_history(found, NEOVATE.find_leaf(found, AS_CLIENT), AS_CLIENT)
    whole = list(NEOVATE.decode(found, nodes))
    pieces: list[CanonicalEntry] = []
    start = 0
    for at in range(1, len(nodes) + 1):
        if at == len(nodes) or not NEOVATE.must_decode_together(found, nodes[at - 1], nodes[at]):
            pieces += NEOVATE.decode(found, nodes[start:at])
            start = at
    assert pieces == whole


def test_a_fork_copies_lines_byte_for_byte_but_for_the_session() -> None:
    lines = [config(summary="S"), message("a", None), SNAPSHOT, answer("b", "a"), message("c", "b"), message("x", "a")]
    found = journal(*lines)
    start = SessionMeta("deadbeef", TIME, title="S", forked_from=None)
    copied = [json.loads(line) for line in NEOVATE.encode_fork(found, 4, start)]
    assert [line.get("uuid") for line in copied if line["type"] == "message"] == ["a", "b", "c"]
    assert {line["sessionId"] for line in copied if "sessionId" in line} == {"deadbeef"}
    assert copied[-1]["customTitle"] == "S (branch)"
