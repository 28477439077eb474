"""Parsing of entries: every type and role is read as it was written, and no input is rejected."""

from __future__ import annotations

import json
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree.core.entries import (
    CONTEXT_TYPES,
    CONVERSATION_TYPES,
    ENTRY_TYPES,
    MESSAGE_TYPES,
    PASSIVE_TYPES,
    BranchSummary,
    Compaction,
    Config,
    ConfigChange,
    ContextEdit,
    Custom,
    CustomMessage,
    Entry,
    FileSnapshot,
    Label,
    LeafMove,
    MessageEntry,
    ModeChange,
    ModelChange,
    Replacement,
    ResetBoundary,
    RuleInjection,
    SessionInfo,
    SessionInit,
    ThinkingLevelChange,
    Unknown,
    UsageRecord,
    Worktree,
    decode_entry,
    parse_entry,
    type_of,
)
from sessiontree.core.jsonio import render_json
from sessiontree.core.messages import (
    BLOCK_TYPES,
    MESSAGE_ROLES,
    Assistant,
    BashExecution,
    Block,
    BranchSummaryText,
    CompactionSummary,
    Cost,
    CustomText,
    Image,
    Message,
    OtherBlock,
    OtherMessage,
    RedactedThinking,
    System,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    User,
    message_blocks,
    message_text,
    parse_message,
    tool_calls,
)
from sessiontree.core.usage import USAGE_TYPES
from sessiontree.dialects.pi import PI
from sessiontree.views.graph import build_graph
from tests.builders import TIME, examples, header, message_line, opened

USAGE = Usage(10, 2, 3, 4, 19, Cost(0.1, 0.2, 0.3, 0.4, 1.0))
BLOCKS: list[Block] = [
    Text("hi", "signature"),
    Thinking("hm", "signature", True),
    RedactedThinking("opaque"),
    Image("AAAA", "image/jpeg"),
    ToolCall("t1", "read", {"path": "a", "deep": {"er": [1, None]}}, "signature"),
]
MESSAGES: list[Message] = [
    User(1, (Text("hello"), Image("AAAA"))),
    User(1.5, "just text"),
    Assistant(2, tuple(BLOCKS), "api", "provider", "model", USAGE, "stop", "message", "r1"),
    ToolResult(3, "t1", "read", (Text("result"),), True, USAGE),
    BashExecution(4, "ls", "out", 1, True, True, "/tmp/out", True),
    CustomText(5, "note", "text", False),
    System(6, "prompt", {"a": "text", "gone": None}, [{"name": "t"}], [{"name": "u"}]),
    CompactionSummary(7, "summary", 100),
    BranchSummaryText(8, "summary", "b"),
]
BASE = ("e1", "e0", TIME)
ENTRIES: list[Entry] = [
    *(MessageEntry(*BASE, message=message) for message in MESSAGES),
    ModelChange(*BASE, "provider", "model", "provider/model", "smol"),
    ThinkingLevelChange(*BASE, "high", "auto"),
    ModeChange(*BASE, "plan", {"file": "x"}),
    Compaction(*BASE, "S", "s", "e0", 10, 5, {"readFiles": []}, USAGE, False, System(content="prompt"), "e0", {"x": 1}),
    BranchSummary(*BASE, "b", "S", {"readFiles": []}, USAGE, True),
    Custom(*BASE, "kind", {"state": [1, 2]}),
    CustomMessage(*BASE, "kind", (Text("note"),), False, {"a": 1}),
    Label(*BASE, "e0", "name"),
    SessionInfo(*BASE, "name"),
    RuleInjection(*BASE, ("a", "b")),
    SessionInit(*BASE, "prompt", "task", ("read",), {"type": "object"}),
    UsageRecord(*BASE, "cache_warm", "provider", "model", USAGE, "note"),
    ContextEdit(*BASE, "e0", Replacement((Text("short"),))),
    ResetBoundary(*BASE),
    ConfigChange(*BASE, Config("yolo", ("bash",), "summary", {"1": "text"}, {"2": "image"})),
    LeafMove(*BASE, "e0"),
    FileSnapshot(*BASE, {"a.py": {"hash": "x"}}),
    Worktree(*BASE, "/tmp/tree", "branch", "base"),
]


def parsed(**fields: Any) -> Entry:
    return PI.parse(json.dumps(fields).encode())


def parsed_message(message: Any) -> Message:
    entry = parsed(type="message", id="1", message=message)
    assert isinstance(entry, MessageEntry)
    return entry.message


def test_there_is_an_example_of_every_type_role_and_block() -> None:
    assert {type_of(entry) for entry in ENTRIES} == set(ENTRY_TYPES)
    assert {message.role for message in MESSAGES} == set(MESSAGE_ROLES)
    assert {type(block) for block in BLOCKS} == set(BLOCK_TYPES.values())


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: type_of(entry))
def test_an_entry_is_read_as_it_was_written(entry: Entry) -> None:
    assert decode_entry(render_json(entry)) == entry


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: type_of(entry))
def test_the_tolerant_way_reads_the_same(entry: Entry) -> None:
    assert parse_entry(json.loads(render_json(entry))) == entry


@pytest.mark.parametrize("kind", sorted(ENTRY_TYPES))
def test_an_entry_with_nothing_but_its_type_is_read(kind: str) -> None:
    entry = parsed(type=kind, id="1", parentId=None, timestamp=TIME)
    assert (type_of(entry), entry.id, entry.parent_id, entry.timestamp) == (kind, "1", None, TIME)


OF_EACH_TYPE = {type_of(entry): entry for entry in reversed(ENTRIES)}
"""The first example of each type."""


@pytest.mark.parametrize("kind", sorted(ENTRY_TYPES))
def test_the_class_of_an_entry_defines_what_appending_it_does(kind: str) -> None:
    cls = ENTRY_TYPES[kind]
    parent = "e0" if cls is LeafMove else "e1"  # a move is a child of its target
    changes = {"first_kept_entry_id": None} if cls is Compaction else {}
    added = msgspec.structs.replace(OF_EACH_TYPE[kind], id="e2", parent_id=parent, **changes)
    lines = header(sessiontree=1), message_line("e0"), message_line("e1", "e0", "answer"), render_json(added) + b"\n"
    session = opened(b"".join(lines))

    assert (session.leaf != "e1") is cls.moves_leaf
    sources = session.context("e2").sources
    assert ("e2" in sources) is cls.in_context
    assert ("e0" not in sources) is cls.starts_context
    drawn = [node.entry.id for node in build_graph(session).nodes]
    assert ("e2" in drawn) is (cls.in_context or cls.starts_context)
    assert "e2" in [node.entry.id for node in build_graph(session, everything=True).nodes]


def test_every_member_of_the_union_but_the_unknown_one_is_a_type() -> None:
    assert set(get_args(Entry)) == {*ENTRY_TYPES.values(), Unknown}


def test_the_sets_of_types_follow_from_the_classes() -> None:
    assert {"message", "custom_message", "branch_summary"} == MESSAGE_TYPES
    assert {"compaction"} | MESSAGE_TYPES == CONTEXT_TYPES
    assert {"reset_boundary"} | CONTEXT_TYPES == CONVERSATION_TYPES
    assert {"config", "custom", "label", "session_info", "usage"} == PASSIVE_TYPES
    assert {"message", "compaction", "branch_summary", "usage"} == USAGE_TYPES


def test_fields_are_spelled_in_camel_case_in_the_file() -> None:
    line = json.loads(render_json(ENTRIES[len(MESSAGES) + 3]))
    assert line["type"] == "compaction"
    assert {"parentId", "firstKeptEntryId", "tokensBefore", "fromHook", "systemMessage"} <= set(line)


def test_unknown_fields_are_ignored() -> None:
    assert parsed(type="label", id="1", targetId="0", label="x", shiny={"new": [1]}) == Label("1", None, "", "0", "x")


def test_an_unknown_type_keeps_all_of_its_fields() -> None:
    fields = {"type": "hologram", "id": "1", "parentId": "0", "timestamp": TIME, "data": {"a": [1]}}
    entry = parsed(**fields)
    assert entry == Unknown("1", "0", TIME, "hologram", fields)
    assert type_of(entry) == "hologram"


@pytest.mark.parametrize("kind", [None, 5, ["message"], {"a": 1}, ""])
def test_a_type_that_is_not_a_string_is_unknown(kind: Any) -> None:
    entry = parsed(type=kind, id="1")
    assert isinstance(entry, Unknown)
    assert (entry.id, entry.fields["type"]) == ("1", kind)


def test_a_line_that_is_not_an_object_is_read_as_an_unknown_entry() -> None:
    for raw in (b"[]", b"5", b"null", b"{", b"", b"\xff"):
        assert PI.parse(raw) == Unknown()


@pytest.mark.parametrize("role", ["pythonExecution", "fileMention", ""])
def test_an_unknown_role_keeps_all_of_its_fields(role: str) -> None:
    message = parsed_message({"role": role, "content": "text", "files": [1]})
    assert message == OtherMessage(kind=role, fields={"role": role, "content": "text", "files": [1]})
    assert message.role == role
    assert message_text(message) == "text"


@pytest.mark.parametrize("role", [None, 5, ["user"], {}])
def test_a_role_that_is_not_a_string_is_unknown(role: Any) -> None:
    message = parsed_message({"role": role, "content": "text"})
    assert isinstance(message, OtherMessage)
    assert message_text(message) == "text"


@pytest.mark.parametrize("message", [None, "text", 5, ["text"]])
def test_a_message_that_is_not_an_object_is_kept(message: Any) -> None:
    assert parsed_message(message) == OtherMessage(fields={"content": message})


def test_the_old_name_of_a_role_is_accepted() -> None:
    assert parsed_message({"role": "hookMessage", "customType": "note", "content": "hi"}) == CustomText(
        None, "note", "hi"
    )


@pytest.mark.parametrize("role", ["user", "assistant", "toolResult", "custom"])
def test_null_content_is_empty(role: str) -> None:
    message = parsed_message({"role": role, "content": None})
    assert message.role == role
    assert message_blocks(message) == ()
    assert message_text(message) == ""


@pytest.mark.parametrize("role", ["user", "assistant", "toolResult", "custom", "system"])
def test_missing_content_is_empty(role: str) -> None:
    assert message_blocks(parsed_message({"role": role})) == ()


def test_an_unknown_block_is_kept_between_known_ones() -> None:
    blocks = [{"type": "text", "text": "a"}, {"type": "hologram", "data": 1}, {"type": "text", "text": "b"}]
    message = parsed_message({"role": "user", "content": blocks})
    assert message == User(content=(Text("a"), OtherBlock("hologram", blocks[1]), Text("b")))
    assert message_text(message) == "a\nb"


@pytest.mark.parametrize("block", [None, "text", 5, [], {}, {"type": None}, {"type": 5}, {"text": "no type"}])
def test_a_block_without_a_type_is_kept(block: Any) -> None:
    message = parsed_message({"role": "user", "content": [block, {"type": "text", "text": "a"}]})
    assert isinstance(message, User)
    first, second = message.content
    assert isinstance(first, OtherBlock)
    assert first.fields == block
    assert second == Text("a")


def test_a_single_block_without_a_list_is_read() -> None:
    assert parsed_message({"role": "user", "content": {"type": "text", "text": "a"}}) == User(content=(Text("a"),))


def test_a_field_of_the_wrong_type_gets_its_default_and_the_others_are_read() -> None:
    entry = parsed(type="compaction", id="1", summary=5, firstKeptEntryId="0", tokensBefore="many", fromHook="yes")
    assert entry == Compaction("1", first_kept_entry_id="0")


def test_a_wrong_field_of_a_message_does_not_affect_the_others() -> None:
    message = parsed_message({"role": "assistant", "content": "hi", "model": 5, "provider": "p", "timestamp": "late"})
    assert message == Assistant(content="hi", provider="p")


def test_a_wrong_field_of_a_block_does_not_affect_the_others() -> None:
    message = parsed_message(
        {"role": "assistant", "content": [{"type": "toolCall", "id": "t", "name": "read", "arguments": "a"}]}
    )
    assert tool_calls(message) == (ToolCall("t", "read", {}),)


def test_a_wrong_field_of_the_usage_does_not_affect_the_others() -> None:
    message = parsed_message(
        {"role": "assistant", "content": "hi", "usage": {"input": 10, "output": 2, "cost": "cheap"}}
    )
    assert isinstance(message, Assistant)
    assert message.usage == Usage(10, 2)


def test_an_unknown_setting_does_not_affect_the_others() -> None:
    entry = parsed(type="config", id="1", config={"approvalMode": "telepathic", "approvalTools": ["bash"]})
    assert entry == ConfigChange("1", config=Config(approval_tools=("bash",)))


def test_an_unknown_block_in_a_replacement_does_not_turn_it_into_an_omission() -> None:
    blocks = [{"type": "text", "text": "short"}, {"type": "hologram"}]
    entry = parsed(type="context_edit", id="1", targetId="0", replacement={"content": blocks})
    assert entry == ContextEdit(
        "1", target_id="0", replacement=Replacement((Text("short"), OtherBlock("hologram", blocks[1])))
    )


def test_an_unknown_block_in_a_checkpoint_does_not_lose_the_system_prompt() -> None:
    prompt = {"role": "system", "content": [{"type": "text", "text": "prompt"}, {"type": "hologram"}]}
    entry = parsed(type="compaction", id="1", summary="S", systemMessage=prompt)
    assert isinstance(entry, Compaction)
    assert entry.system_message is not None
    assert message_text(entry.system_message) == "prompt"


def test_ids_that_are_not_strings_get_their_defaults() -> None:
    assert parsed(type="reset_boundary", id=5, parentId=["x"], timestamp=[7]) == ResetBoundary()


def test_a_lone_surrogate_is_kept() -> None:
    raw = b'{"type":"message","id":"1","message":{"role":"user","content":"a\\ud83d b"}}'
    assert decode_entry(raw) is None
    entry = PI.parse(raw)
    assert entry == MessageEntry("1", message=User(content="a\ud83d b"))
    assert PI.parse(render_json(entry)) == entry


def test_bytes_that_are_not_utf8_are_kept() -> None:
    entry = PI.parse(b'{"type":"session_info","id":"1","name":"a\xff\xc3b"}')
    assert isinstance(entry, SessionInfo)
    assert entry.name is not None
    assert entry.name.encode("utf-8", "surrogateescape") == b"a\xff\xc3b"


@pytest.mark.parametrize(
    "number", ["12345678901234567890", "-12345678901234567890", "1e400", "1" + "0" * 400, "1.0", "-0.0"]
)
def test_a_huge_number_is_read(number: str) -> None:
    entry = PI.parse(b'{"type":"compaction","id":"1","summary":"S","tokensBefore":' + number.encode() + b"}")
    assert entry == Compaction("1", summary="S", tokens_before=json.loads(number))


def test_a_number_of_thousands_of_digits_hides_nothing_else() -> None:
    entry = PI.parse(b'{"type":"compaction","id":"1","summary":"S","tokensBefore":' + b"9" * 5000 + b"}")
    assert isinstance(entry, Compaction)
    assert (entry.id, entry.summary) == ("1", "S")


def test_control_characters_and_python_numbers_are_read() -> None:
    entry = PI.parse(b'{"type":"custom","id":"1","customType":"a\tb\x01","data":[NaN,Infinity]}')
    assert isinstance(entry, Custom)
    assert (entry.custom_type, str(entry.data)) == ("a\tb\x01", "[nan, inf]")


@pytest.mark.parametrize("depth", [100, 500, 950, 990, 1000, 5000, 100_000])
def test_nesting_of_any_depth_raises_no_error(depth: int) -> None:
    raw = b'{"type":"custom","id":"1","data":' + b"[" * depth + b"]" * depth + b"}"
    entry = PI.parse(raw)
    assert isinstance(entry, Custom if depth <= 500 else Custom | Unknown)


def test_a_model_is_named_in_either_way() -> None:
    assert ModelChange(provider="p", model_id="m").selector == "p/m"
    assert ModelChange(model="q/n").selector == "q/n"
    assert ModelChange(model_id="m").selector == "m"
    assert ModelChange().selector is None


def test_an_entry_may_hold_several_messages() -> None:
    one, two = User(content="one"), User(content="two")
    assert MessageEntry(message=one).messages == (one,)
    assert MessageEntry(message=one, more_messages=(two,)).messages == (one, two)


def test_only_assistants_call_tools() -> None:
    call = ToolCall("t", "read")
    assert tool_calls(Assistant(content=(Text("a"), call))) == (call,)
    assert tool_calls(User(content=(call,))) == ()
    assert tool_calls(Assistant(content="text")) == ()


def test_every_kind_of_message_has_a_text() -> None:
    assert message_text(BashExecution(command="ls", output="a\n")) == "ls\na\n"
    assert message_text(CompactionSummary(summary="S")) == "S"
    assert message_text(User(content=(Text("a"), Image("AAAA"), Text("b")))) == "a\nb"
    assert message_blocks(BashExecution(command="ls", output="a")) == (Text("ls\na"),)


names = sorted({field.encode_name for cls in ENTRY_TYPES.values() for field in msgspec.structs.fields(cls)})
message_names = sorted({field.encode_name for cls in MESSAGE_ROLES.values() for field in msgspec.structs.fields(cls)})
leaves = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=3)
some_blocks = st.fixed_dictionaries(
    {"type": st.sampled_from([*BLOCK_TYPES, "other"])},
    optional={"text": leaves, "data": leaves, "arguments": st.dictionaries(st.text(max_size=2), leaves, max_size=1)},
)
json_values = st.recursive(
    leaves | some_blocks,
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from([*names, *message_names, "?"]), inner, max_size=2)
        | st.fixed_dictionaries({"role": st.sampled_from([*MESSAGE_ROLES, "other"]), "content": inner})
    ),
    max_leaves=5,
)
entry_fields = st.builds(
    lambda fixed, rest: {**rest, **fixed},
    st.fixed_dictionaries({"type": st.sampled_from([*ENTRY_TYPES, "other"])}, optional={"id": st.text(max_size=2)}),
    st.dictionaries(st.sampled_from([name for name in names if name != "id"]), json_values, max_size=4),
)


@examples(500)
@given(entry_fields)
def test_any_object_is_read_without_an_error(fields: dict[str, Any]) -> None:
    entry = parse_entry(fields)
    assert type_of(entry) == fields["type"]
    assert entry.id == fields.get("id", "")


@examples(500)
@given(entry_fields)
def test_both_ways_of_reading_agree(fields: dict[str, Any]) -> None:
    quick = decode_entry(json.dumps(fields).encode())
    if quick is not None:
        assert quick == parse_entry(fields)


@examples(200)
@given(json_values)
def test_any_message_is_read_without_an_error(fields: Any) -> None:
    message = parse_message(fields)
    assert isinstance(message_text(message), str)
    assert isinstance(message_blocks(message), tuple)


def test_a_system_prompt_without_content_is_an_empty_text() -> None:
    assert parse_message({"role": "system", "content": None}) == parse_message({"role": "system"}) == System(content="")
