"""Claude Code: any conversation decodes to the entries that were encoded."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sessiontree.core.messages import Assistant, Text, ToolResult, User, blocks_of, tool_calls
from sessiontree.dialects.canonical import CanonicalEntry
from sessiontree.dialects.claude.locations import generate_uuid
from sessiontree.dialects.claude.messages import NO_CONTENT
from sessiontree.repair.findings import examine
from sessiontree.session.open import open_store
from sessiontree.stores.memory import MemoryStore
from tests.builders import examples
from tests.dialects.claude_transcripts import (
    MS,
    SIGNATURE,
    TIME,
    USAGE,
    Transcript,
    assistant,
    call,
    check_round_trip,
    comparable,
    decode,
    result,
    text,
    thinking,
    transcript_of,
    user,
)

words = st.one_of(
    st.sampled_from(
        ["", " ", "hello", "你好，世界", "😀 ok", "<b>&</b>", "half \ud83d", "line\nline\u2028", "blob:sha256:x"]
    ),
    st.text(max_size=12),
)
texts = words.map(text)
images = st.just({"type": "image", "data": "aGk=", "mimeType": "image/png"})
user_contents = st.one_of(words, st.lists(st.one_of(texts, images), max_size=3))
signed = st.builds(thinking, words, st.sampled_from([None, SIGNATURE]))
redacted = st.just({"type": "redactedThinking", "data": "zz"})
odd_ids = st.sampled_from(["c", "call|1", "call_1", "toolu_01", "x y", "é", "", "call_0"])
arguments = st.dictionaries(words, st.one_of(words, st.integers(), st.none()), max_size=2)
calls = st.builds(lambda id, name, given: {**call(id, name), "arguments": given}, odd_ids, words, arguments)
providers = st.sampled_from(
    [
        {"api": "anthropic-messages", "provider": "anthropic", "model": "claude-x"},
        {"api": "openai-responses", "provider": "openai", "model": "gpt-x", "responseId": "resp_1"},
        {},
    ]
)
more_of_answers = st.sampled_from(
    [
        {"usage": USAGE, "stopReason": "stop"},
        {"usage": {**USAGE, "cost": {"total": 1.5}}, "stopReason": "toolUse", "responseId": "msg_1"},
        {"stopReason": "error", "errorMessage": "boom"},
        {"stopReason": "aborted"},
        {"stopReason": "length", "diagnostics": []},
        {},
    ]
)
bookkeeping = st.sampled_from(
    [
        ("model_change", {"provider": "p", "modelId": "m"}),
        ("custom", {"customType": "x", "data": [1]}),
        ("session_info", {"name": "Title"}),
        ("config", {"config": {"approvalMode": "yolo"}}),
        ("usage", {"kind": "title"}),
        ("strange", {"a": {"b": None}}),
        ("message", {"message": {"role": "system", "content": "sys"}}),
        ("message", {"message": {"role": "bashExecution", "command": "x", "output": "", "excludeFromContext": True}}),
    ]
)


def is_metadata(entry: CanonicalEntry) -> bool:
    """Whether an entry gets a metadata line: branches before and after it cannot be distinguished."""
    role = entry.fields.get("message", {}).get("role")
    excluded = entry.fields.get("message", {}).get("excludeFromContext") is True
    return (
        entry.kind not in ("message", "custom_message", "branch_summary", "compaction") or role == "system" or excluded
    )


def is_rooted(found: Sequence[tuple[CanonicalEntry, str | None]], id: str | None) -> bool:
    """Whether a position is after a chain line: before the first one, positions cannot be distinguished."""
    if id is None:
        return not any(parent is None and is_metadata(entry) for entry, parent in found)
    return any(entry.fields.get("message", {}).get("role") == "user" for entry in path_to(found, id))


@st.composite
def conversations(draw: st.DrawFn) -> list[tuple[CanonicalEntry, str | None]]:
    """Entries with the ids of their parents: turns, bookkeeping, compactions, and sometimes a branch."""
    found: list[tuple[CanonicalEntry, str | None]] = []
    ends: list[str | None] = [None]
    """Entries after which all calls are answered: where another branch may start."""
    at: str | None = None
    paths: dict[str | None, list[str]] = {None: []}

    def add(kind: str, fields: dict[str, Any]) -> str:
        nonlocal at
        id = f"e{len(found)}"
        paths[id] = [*paths[at], id]
        found.append((CanonicalEntry(kind, fields, id, TIME), at))
        at = id
        return id

    def message(role: str, **fields: Any) -> str:
        time = draw(st.sampled_from([{"timestamp": MS}, {"timestamp": 5}, {}]))
        return add("message", {"message": {"role": role, **fields, **time}})

    for _ in range(draw(st.integers(1, 8))):
        match draw(st.sampled_from(["turn", "turn", "turn", "metadata", "meta", "command", "compaction", "branch"])):
            case "turn":
                message("user", content=draw(user_contents))
                blocks = draw(st.lists(st.one_of(texts, signed, redacted, calls), max_size=4))
                message("assistant", content=blocks, **{**draw(providers), **draw(more_of_answers)})
                ids = list(dict.fromkeys(block["id"] for block in blocks if block["type"] == "toolCall"))
                for id in draw(st.permutations(ids)):
                    ends.append(at)
                    names = [block["name"] for block in blocks if block.get("id") == id]
                    content = draw(st.lists(st.one_of(texts, images), max_size=2))
                    error = draw(st.booleans())
                    message("toolResult", toolCallId=id, toolName=names[-1], content=content, isError=error)
                    if draw(st.integers(0, 4)) == 0:
                        add(*draw(bookkeeping))
            case "metadata":
                add(*draw(bookkeeping))
                if found:
                    target = draw(st.sampled_from([entry.id for entry, _ in found]))
                    add("label", {"targetId": target, "label": "L"})
            case "meta":
                add(
                    "custom_message",
                    {"customType": "x", "content": draw(user_contents), "display": draw(st.booleans())},
                )
                add("branch_summary", {"fromId": "e0", "summary": draw(words)})
            case "command":
                shown = draw(words)
                message(
                    "bashExecution", command=draw(words), output=shown, cancelled=False, truncated=False, exitCode=0
                )
            case "compaction" if paths[at]:
                kept = draw(st.sampled_from([None, *[id for id in ends if id in paths[at]]]))
                add("compaction", {"summary": draw(words), "firstKeptEntryId": kept, "tokensBefore": 10})
            case "branch":
                at = draw(st.sampled_from([end for end in ends if is_rooted(found, end)] or [at]))
            case _:
                continue
        ends.append(at)
    return found


def write_tree(found: Sequence[tuple[CanonicalEntry, str | None]]) -> Transcript:
    transcript = Transcript()
    for each, parent in found:
        transcript.add_at(each, None if parent is None else transcript.ids[parent])
    return transcript.end()


def path_to(found: Sequence[tuple[CanonicalEntry, str | None]], id: str | None) -> list[CanonicalEntry]:
    entries = {entry.id: (entry, parent) for entry, parent in found}
    path: list[CanonicalEntry] = []
    while id is not None:
        entry, id = entries[id]
        path.append(entry)
    return path[::-1]


@examples(300)
@given(conversations())
def test_any_conversation_decodes_to_the_same_entries(found: list[tuple[CanonicalEntry, str | None]]) -> None:
    transcript = write_tree(found)
    if transcript.at is None:
        return  # before the first entry: the client has no such position
    expected = path_to(found, found[-1][0].id if found else None)
    assert comparable(transcript.decode()) == comparable(expected)


@examples(150)
@given(conversations())
def test_every_branch_decodes_to_the_same_entries(found: list[tuple[CanonicalEntry, str | None]]) -> None:
    transcript = write_tree(found)
    journal = transcript.journal
    leaves = [transcript.ids[entry.id] for entry, _ in found]
    inner = {parent for _, parent in found}
    for entry, _ in found:
        leaf = transcript.ids[entry.id]
        if entry.id not in inner and leaf is not None and leaves.count(leaf) == 1:
            assert comparable(decode(journal, leaf)) == comparable(path_to(found, entry.id))


@examples(150)
@given(conversations())
def test_doctor_finds_nothing_wrong_in_what_was_written(found: list[tuple[CanonicalEntry, str | None]]) -> None:
    session = open_store(MemoryStore(write_tree(found).data), dialect="claude")
    rules = {finding.rule.id for finding in examine(session)}
    # A branch may start between a call and its result, which this rule does not consider.
    assert rules <= {"lone-surrogate", "unanswered-tool-call", "lost-parallel-results"}


def with_content(texts: list[list[str]]) -> list[str]:
    """The texts that have content. A message can also consist of the client's own placeholder."""
    return [text for each in texts for text in each if text.strip() and text != NO_CONTENT]


@examples(150)
@given(conversations())
def test_the_model_receives_the_same_texts_calls_and_results(found: list[tuple[CanonicalEntry, str | None]]) -> None:
    path = path_to(found, found[-1][0].id if found else None)
    transcript = write_tree(found)
    if transcript.at is None or any(entry.kind == "compaction" for entry in path):
        return
    context = transcript.messages()
    answers = [message for message in context if isinstance(message, Assistant)]
    expected = [
        [block["text"] for block in entry.fields["message"]["content"] if block.get("text")]
        for entry in path
        if entry.fields.get("message", {}).get("role") == "assistant"
    ]
    texts = [[block.text for block in blocks_of(message.content) if isinstance(block, Text)] for message in answers]
    assert with_content(texts) == with_content(expected)
    called = [call.id for message in context for call in tool_calls(message)]
    assistant_contents = {message.tool_call_id for message in context if isinstance(message, ToolResult)}
    assert assistant_contents <= set(called)
    assert len(called) == len(set(called))


# Ordinary messages: both ways of writing them

extras = st.dictionaries(
    st.sampled_from(["textSignature", "cache", "redacted", "details", "id", "timestamp", "errorMessage", "usage"]),
    st.one_of(st.none(), st.booleans(), st.integers(0, 2), words),
    max_size=2,
)


def with_more(blocks: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.builds(lambda block, more: {**more, **block}, blocks, extras)


fields_of_messages = st.fixed_dictionaries(
    {},
    optional={
        "api": st.sampled_from(["anthropic-messages", "x", None]),
        "provider": st.sampled_from(["anthropic", "x"]),
        "model": st.sampled_from(["claude-x", "", None, 1]),
        "usage": st.sampled_from(
            [USAGE, {**USAGE, "input": 5.0}, {**USAGE, "totalTokens": 1}, {"input": True}, {**USAGE, "cost": {}}, None]
        ),
        "stopReason": st.sampled_from(["stop", "toolUse", "length", "error", "aborted", "refusal", "", None]),
        "responseId": st.sampled_from(["msg_1", "msg_2", "resp_1", "msg_sessiontree_1", ""]),
        "timestamp": st.sampled_from([MS, float(MS), 1, True, None]),
        "isError": st.sampled_from([True, False, 1, None]),
        "toolName": st.sampled_from(["Read", "", None]),
        "more": words,
    },
)
passthroughs = st.sampled_from(
    [
        {},
        {"sessiontree": {"tools": {"agent": "pi"}}},
        {"sessiontree": {}},
        {"sessiontree": None},
        {"sessiontree": {"id": "x"}},
        {"sessiontree": {"claude": {"requestId": "req_1"}}},
        {"parentSession": "p", "sessiontree": {"pi": 1}},
    ]
)
contents = st.one_of(words, st.lists(st.one_of(with_more(texts), with_more(images), words), max_size=3))
prompts = st.one_of(contents, st.sampled_from(["<system-reminder>x", " <system-reminder>", "<bash-input>ls"]))
assistant_contents = st.lists(st.one_of(with_more(texts), with_more(signed), with_more(calls), redacted), max_size=4)


@st.composite
def messages_in_a_row(draw: st.DrawFn) -> list[CanonicalEntry]:
    entries: list[CanonicalEntry] = []
    for number in range(draw(st.integers(1, 6))):
        fields = draw(fields_of_messages)
        match draw(st.sampled_from(["user", "assistant", "toolResult"])):
            case "user":
                message = {"role": "user", **fields, "content": draw(prompts)}
            case "assistant":
                message = {**fields, "role": "assistant", "content": draw(assistant_contents)}
            case _:
                message = {"role": "toolResult", "toolCallId": draw(odd_ids), "content": draw(contents), **fields}
        id = draw(st.sampled_from([f"e{number}", str(uuid.UUID(int=number + 1)), ""]))
        time = draw(st.sampled_from([TIME, TIME, "2026-13-16T10:00:01.000Z", ""]))
        entries.append(CanonicalEntry("message", {"message": message, **draw(passthroughs)}, id, time))
    return entries


@examples(400)
@given(messages_in_a_row())
def test_messages_with_unusual_fields_are_decoded_as_they_were_encoded(entries: list[CanonicalEntry]) -> None:
    def without_empty_passthrough(fields: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in fields.items() if (name, value) != ("sessiontree", {})}

    def without_new_client_data(fields: dict[str, Any], entry: CanonicalEntry) -> dict[str, Any]:
        carried, wanted = fields.get("sessiontree"), entry.fields.get("sessiontree")
        if entry.id or not isinstance(carried, dict) or (isinstance(wanted, dict) and "claude" in wanted):
            return fields
        # A new entry becomes one of the client's own, so what its line has beyond canonical form is kept.
        return {**fields, "sessiontree": {name: value for name, value in carried.items() if name != "claude"}}

    decoded = transcript_of(*entries).decode()
    assert [
        without_empty_passthrough(without_new_client_data(found.fields, entry))
        for entry, found in zip(entries, decoded, strict=True)
    ] == [without_empty_passthrough(entry.fields) for entry in entries]
    assert [found.id for entry, found in zip(entries, decoded, strict=True) if entry.id] == [
        entry.id for entry in entries if entry.id
    ]


@examples(50)
@given(words)
def test_a_made_uuid_is_that_of_version_5(name: str) -> None:
    known = name.encode("utf-8", "backslashreplace").decode()
    assert generate_uuid(uuid.NAMESPACE_URL.bytes, name) == str(uuid.uuid5(uuid.NAMESPACE_URL, known))


def test_a_result_is_not_written_twice() -> None:
    transcript = check_round_trip(user("u1"), assistant("a1", call("c1")), result("r1", "c1", text("once")))
    assert transcript.data.count(b"once") == 1


@examples(100)
@given(
    st.lists(
        st.builds(
            CanonicalEntry,
            st.sampled_from(
                ["message", "compaction", "custom_message", "label", "custom", "branch_summary", "leaf", ""]
            ),
            st.recursive(
                st.one_of(st.none(), st.booleans(), st.integers(), words),
                lambda inner: st.one_of(
                    st.lists(inner, max_size=3),
                    st.dictionaries(
                        st.sampled_from(
                            [
                                "message",
                                "role",
                                "content",
                                "type",
                                "text",
                                "sessiontree",
                                "claude",
                                "data",
                                "id",
                                "summary",
                            ]
                        ),
                        inner,
                        max_size=4,
                    ),
                ),
                max_leaves=12,
            ).map(lambda value: value if isinstance(value, dict) else {"message": value}),
            words,
            words,
        ),
        max_size=4,
    )
)
def test_nothing_raises_whatever_an_entry_holds(entries: list[CanonicalEntry]) -> None:
    transcript = transcript_of(*entries)
    decode(transcript.journal)
    assert all(isinstance(message, User | Assistant | ToolResult) for message in transcript.messages())
