"""oh-my-pi and xcsh: what oh-my-pi 18.3.4 rebuilt from each file of the corpus, and each rule on its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sessiontree.core.context import Context, ModelRef
from sessiontree.core.entries import UsageRecord
from sessiontree.core.messages import (
    Assistant,
    BashExecution,
    CustomText,
    Message,
    RedactedThinking,
    Text,
    Thinking,
    ToolCall,
    message_text,
    tool_calls,
)
from sessiontree.dialects.contract import AS_CLIENT, ReadOptions
from sessiontree.dialects.omp import (
    OMP,
    RetriedTurn,
    blob_folder,
    bucket_name,
    is_title_slot,
    parent_session_kind,
)
from sessiontree.dialects.pi import PI
from sessiontree.session.open import open_store
from sessiontree.session.session import Session
from sessiontree.sources.detect import detect
from sessiontree.stores.memory import MemoryStore
from sessiontree.testing.dialects import check_dialect
from tests.builders import NOWHERE, TIME, entry, header, json_line, message_line

FOLDER = Path(__file__).parents[1] / "corpus" / "pi-family"
EXPECTED: dict[str, dict[str, Any]] = json.loads((FOLDER / "expected.json").read_text())
FILES = sorted(path.stem for path in FOLDER.glob("*.jsonl"))
MADE_IDS = ["37_v1"]
"""oh-my-pi generates random ids for these, so only their number can be compared."""
OWN = {
    "03_branch_summary": 60,  # fromExtension
    "13_reset_before_compaction": 60,
    "17_models_roles": 60,
    "19_thinking": 60,  # configured
    "41_title_slot": 80,
    "43_remote_compaction_replay_through": 60,
    "47_bash_python_filemention": 60,
    "49_model_usage_credential_title": 60,
}
"""Files that only oh-my-pi can have written, and the score of each."""

RECOVERED = ReadOptions(recovered=True)


def read(name: str) -> bytes:
    return (FOLDER / f"{name}.jsonl").read_bytes()


def expectation(name: str) -> dict[str, Any]:
    found: dict[str, Any] = EXPECTED[name]["omp-18.3.4"]
    return found


def opened(*lines: bytes, read_options: ReadOptions = AS_CLIENT) -> Session:
    return open_store(MemoryStore(b"".join(lines)), root=NOWHERE, dialect="omp", read_options=read_options)


def context(*lines: bytes, read_options: ReadOptions = AS_CLIENT) -> Context:
    return opened(header(), *lines, read_options=read_options).context()


def texts(found: Context) -> list[str]:
    return [message_text(message) for message in found.messages]


def as_expected(message: Message) -> dict[str, str]:
    """A message in the form of the expectations: a command has no content, so it has no text there."""
    return {"role": message.role, "text": "" if isinstance(message, BashExecution) else message_text(message)}


def turn(id: str, parent: str | None, *content: dict[str, Any], stop: str = "stop", **fields: Any) -> bytes:
    message = {"role": "assistant", "provider": "p", "model": "m", "content": content, "stopReason": stop, **fields}
    return entry("message", id, parent, message=message)


def call(id: str) -> dict[str, Any]:
    return {"type": "toolCall", "id": id, "name": "read", "arguments": {}}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def result(id: str, parent: str, call_id: str, words: str = "result") -> bytes:
    message = {"role": "toolResult", "toolCallId": call_id, "toolName": "read", "content": [text(words)]}
    return entry("message", id, parent, message=message)


def slot(title: str, **fields: Any) -> bytes:
    return json_line({"type": "title", "v": 1, "title": title, "updatedAt": "2026-01-01", "pad": "  ", **fields})


# The corpus


def test_the_corpus_is_complete_and_oh_my_pi_reads_all_of_it() -> None:
    assert sorted(EXPECTED) == FILES
    assert all("error" not in expectation(name) for name in FILES)


@pytest.mark.parametrize("name", [name for name in FILES if name not in MADE_IDS])
def test_leaf_and_path_are_those_of_oh_my_pi(name: str) -> None:
    session = opened(read(name))
    assert session.leaf == expectation(name)["leaf"]
    assert session.path_ids() == expectation(name)["path"]
    assert list(session.context().path) == expectation(name)["path"]


@pytest.mark.parametrize("name", MADE_IDS)
def test_a_file_without_ids_gives_a_path_as_long_as_that_of_oh_my_pi(name: str) -> None:
    assert len(opened(read(name)).path_ids()) == len(expectation(name)["path"])


@pytest.mark.parametrize("name", FILES)
def test_messages_are_those_of_oh_my_pi(name: str) -> None:
    assert [as_expected(message) for message in opened(read(name)).context().messages] == expectation(name)["messages"]


@pytest.mark.parametrize("name", FILES)
def test_state_title_and_labels_are_those_of_oh_my_pi(name: str) -> None:
    session, expected = opened(read(name)), expectation(name)
    state = session.context().state
    assert state.thinking_level == expected["thinkingLevel"]
    assert state.models == expected["models"]
    assert state.mode == expected["mode"]
    assert list(state.rules) == expected["injectedTtsrRules"]
    assert session.labels == expected["labels"]
    assert session.name == expected["title"]


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_recognized_as_oh_my_pis_only_by_its_marks(name: str) -> None:
    found = detect(read(name), name)
    assert found.name == ("omp" if name in OWN else "pi")
    assert OMP.recognize(read(name)) == OWN.get(name, 40)


def test_the_contract_holds_on_the_corpus() -> None:
    check_dialect(OMP, map(read, FILES), cuts=40)


# Detection


@pytest.mark.parametrize(
    "changes",
    [
        {"titleSource": "user"},
        {"title": "A name"},
        {"additionalDirectories": ["/a"]},
        {"previousSessionFiles": []},
        {"providerPromptCacheKey": "k"},
        {"id": "0123456789abcdef"},
    ],
)
def test_a_header_with_a_mark_of_its_own_is_enough(changes: dict[str, Any]) -> None:
    assert OMP.recognize(header(**changes)) == 60 > PI.recognize(header(**changes))


@pytest.mark.parametrize(
    "line",
    [
        entry("model_change", "a", model="p/m"),
        entry("service_tier_change", "a", serviceTier=None),
        entry("mcp_tool_selection", "a", selectedToolNames=[]),
        entry("custom_message", "a", customType="x", content="y", attribution="user"),
        entry("compaction", "a", summary="s", fromExtension=True),
        entry("message", "a", message={"role": "developer", "content": "be brief"}),
    ],
)
def test_an_entry_that_only_oh_my_pi_writes_is_enough(line: bytes) -> None:
    assert OMP.recognize(header() + line) == 60 > PI.recognize(header() + line)


def test_a_model_change_of_pi_leaves_the_file_to_pi() -> None:
    head = header() + entry("model_change", "a", provider="p", modelId="m")
    assert OMP.recognize(head) < PI.recognize(head)


def test_a_native_header_wins_over_every_mark() -> None:
    head = slot("A name") + header(title="x", sessiontree=1) + entry("reset_boundary", "a")
    assert detect(head, "here").name == "native"


def test_a_title_slot_without_a_header_is_still_recognized() -> None:
    assert OMP.recognize(slot("A name") + b'{"type":"sess') == 80


# The title slot


@pytest.mark.parametrize(
    "changes", [{"v": 2}, {"title": 1}, {"pad": None}, {"updatedAt": None}, {"source": "guess"}, {"type": "titles"}]
)
def test_a_line_that_is_not_an_exact_title_slot_is_not_one(changes: dict[str, Any]) -> None:
    fields = json.loads(slot("A name", source="user"))
    assert is_title_slot(fields)
    assert not is_title_slot({**fields, **changes})


def test_the_title_slot_is_a_metadata_line_that_is_on_no_path() -> None:
    session = opened(slot("A name"), header(), message_line("a"), message_line("b", "a"))
    assert session.path_ids() == ["a", "b"]
    assert session.roots() == ["a"]
    assert session.raw(session.ids[0]) + b"\n" == slot("A name")
    assert session.fragments == []


def test_a_title_slot_alone_leaves_the_session_before_its_first_entry() -> None:
    session = opened(slot("A name"), header())
    assert session.leaf is None
    assert session.context().messages == ()


def test_the_title_of_the_slot_outranks_that_of_the_header() -> None:
    assert opened(slot("New"), header(title="Old"), message_line("a")).name == "New"


def test_numbers_of_kept_entries_do_not_count_the_title_slot() -> None:
    lines = [
        json_line({"type": "message", "timestamp": TIME, "message": {"role": "user", "content": text}})
        for text in ("q1", "q2", "q3")
    ]
    compaction = {"type": "compaction", "timestamp": TIME, "summary": "S", "firstKeptEntryIndex": 2, "tokensBefore": 9}
    session = opened(slot("A name"), header(version=None), *lines, json_line(compaction))
    assert [message_text(message) for message in session.context().messages] == ["S", "q2", "q3"]


def test_an_empty_title_in_the_slot_takes_the_title_of_the_header_away() -> None:
    compacted = entry("compaction", "b", "a", summary="s", shortSummary="In short", firstKeptEntryId="a")
    assert opened(slot(""), header(title="Old"), message_line("a")).name is None
    assert opened(slot(""), header(title="Old"), message_line("a"), compacted).name == "In short"


def test_without_a_title_the_latest_short_summary_is_it() -> None:
    first = entry("compaction", "b", "a", summary="s", shortSummary="First", firstKeptEntryId="a")
    second = entry("compaction", "c", "b", summary="s", shortSummary="Second", firstKeptEntryId="a")
    third = entry("compaction", "d", "c", summary="s", firstKeptEntryId="a")
    assert opened(header(), message_line("a"), first, second, third).name == "Second"


def test_the_header_that_is_found_has_the_title_of_the_slot() -> None:
    session = opened(slot("New"), header(title="Old"), message_line("a"))
    found = OMP.find_header(session._journal)
    assert found is not None
    assert (found.title, found.id) == ("New", session.id)


# The start of the context


def test_a_reset_after_the_last_compaction_starts_an_empty_context() -> None:
    compaction = entry("compaction", "b", "a", summary="S", firstKeptEntryId="a")
    found = context(
        message_line("a", None, "one"), compaction, entry("reset_boundary", "c", "b"), message_line("d", "c", "two")
    )
    assert texts(found) == ["two"]


def test_a_provider_that_keeps_the_history_itself_is_sent_no_kept_entries() -> None:
    remote = {"openaiRemoteCompaction": {"provider": "openai", "replacementHistory": []}}
    compaction = entry("compaction", "c", "b", summary="S", firstKeptEntryId="a", preserveData=remote)
    found = context(
        message_line("a", None, "one"), message_line("b", "a", "two"), compaction, message_line("d", "c", "three")
    )
    assert texts(found) == ["S", "three"]


def test_what_the_providers_history_does_not_cover_is_sent_even_before_the_kept_range() -> None:
    remote = {"openaiRemoteCompaction": {"provider": "openai", "replacementHistory": []}}
    fields = {"firstKeptEntryId": "c", "providerReplayThroughEntryId": "a", "preserveData": remote}
    lines = [message_line("a", None, "one"), message_line("b", "a", "two"), message_line("c", "b", "three")]
    found = context(*lines, entry("compaction", "d", "c", summary="S", **fields))
    assert texts(found) == ["S", "two", "three"]


@pytest.mark.parametrize("through", ["c", "nowhere"])
def test_a_provider_history_that_covers_everything_or_has_no_end_keeps_nothing(through: str) -> None:
    remote = {"openaiRemoteCompaction": {"provider": "openai", "replacementHistory": []}}
    fields = {"firstKeptEntryId": "a", "providerReplayThroughEntryId": through, "preserveData": remote}
    lines = [message_line("a", None, "one"), message_line("b", "a", "two"), message_line("c", "b", "three")]
    assert texts(context(*lines, entry("compaction", "d", "c", summary="S", **fields))) == ["S"]


@pytest.mark.parametrize(
    "remote", [None, {}, {"provider": "", "replacementHistory": []}, {"provider": "openai", "replacementHistory": {}}]
)
def test_an_invalid_provider_history_is_ignored(remote: Any) -> None:
    fields = {"firstKeptEntryId": "a", "preserveData": {"openaiRemoteCompaction": remote}}
    assert texts(context(message_line("a", None, "one"), entry("compaction", "b", "a", summary="S", **fields))) == [
        "S",
        "one",
    ]


def test_an_edit_of_the_context_that_only_pi_knows_changes_nothing() -> None:
    edit = entry("context_edit", "b", "a", targetId="a", replacement=None)
    assert texts(context(message_line("a", None, "one"), edit)) == ["one"]


# What is not sent


@pytest.mark.parametrize("custom_type", ["prewalk-plan", "vibe-mode-context"])
def test_transient_custom_messages_are_left_out(custom_type: str) -> None:
    assert context(entry("custom_message", "a", customType=custom_type, content="x")).messages == ()


@pytest.mark.parametrize("content", [None, 5, {"type": "text", "text": "x"}])
def test_a_custom_message_that_is_neither_text_nor_list_is_left_out(content: Any) -> None:
    assert context(entry("custom_message", "a", customType="x", content=content)).messages == ()


@pytest.mark.parametrize("content", ["", [], "words", [{"type": "text", "text": "x"}], [{"type": "odd"}]])
def test_a_custom_message_with_a_text_or_a_list_is_sent(content: Any) -> None:
    (message,) = context(entry("custom_message", "a", customType="x", content=content)).messages
    assert isinstance(message, CustomText)


def test_a_call_without_a_result_is_removed_with_the_signatures() -> None:
    thinking = {"type": "thinking", "thinking": "hm", "thinkingSignature": "s"}
    redacted = {"type": "redactedThinking", "data": "x"}
    lines = [turn("a", None, thinking, redacted, call("1"), call("2"), stop="toolUse"), result("b", "a", "1")]
    message = context(*lines).messages[0]
    assert isinstance(message, Assistant)
    assert message.content == (Thinking("hm"), ToolCall("1", "read", {}))


def test_a_message_of_which_all_calls_have_results_keeps_its_signatures() -> None:
    thinking = {"type": "thinking", "thinking": "hm", "thinkingSignature": "s"}
    redacted = {"type": "redactedThinking", "data": "x"}
    lines = [turn("a", None, thinking, redacted, call("1"), stop="toolUse"), result("b", "a", "1")]
    message = context(*lines).messages[0]
    assert isinstance(message, Assistant)
    assert message.content == (Thinking("hm", "s"), RedactedThinking("x"), ToolCall("1", "read", {}))


def test_a_message_with_only_unanswered_calls_is_left_out() -> None:
    assert texts(context(message_line("a"), turn("b", "a", call("1"), stop="toolUse"))) == ["hello"]


def test_a_result_on_another_branch_does_not_answer_a_call() -> None:
    lines = [turn("a", None, text("t"), call("1"), stop="toolUse"), result("b", "a", "1"), message_line("c", "a")]
    assert tool_calls(context(*lines).messages[0]) == ()


@pytest.mark.parametrize("stop", ["aborted", "error"])
def test_a_turn_that_failed_is_left_out_with_its_results(stop: str) -> None:
    lines = [
        message_line("a"),
        turn("b", "a", text("half"), call("1"), stop=stop),
        result("c", "b", "1"),
        message_line("d", "c", "on"),
    ]
    assert texts(context(*lines)) == ["hello", "on"]


def test_a_failed_turn_stays_if_a_note_about_its_interruption_follows() -> None:
    note = entry("custom_message", "b", "a", customType="interrupted-thinking", content="note")
    assert texts(context(turn("a", None, text("half"), stop="aborted"), note)) == ["half", "note"]


def test_a_note_is_found_after_another_failed_turn() -> None:
    note = entry("custom_message", "d", "c", customType="interrupted-thinking", content="note")
    other = [turn("b", "a", call("1"), stop="error"), result("c", "b", "1")]
    lines = [turn("a", None, text("half"), stop="aborted"), *other, note]
    assert texts(context(*lines)) == ["half", "note"]


def test_an_error_without_text_is_left_out_even_before_an_interruption() -> None:
    note = entry("custom_message", "b", "a", customType="interrupted-thinking", content="note")
    assert texts(context(turn("a", None, stop="error", errorMessage="boom"), note)) == ["note"]


def test_a_retried_turn_is_left_out_but_still_sets_the_model() -> None:
    session = opened(header(), message_line("a"), turn("b", "a", text("first try"), retryRecovery={"attempt": 1}))
    assert texts(session.context()) == ["hello"]
    assert session.context().state.model == ModelRef("p", "m")
    assert isinstance(session.entry("b"), RetriedTurn)


def test_a_text_that_only_mentions_a_retry_is_sent() -> None:
    assert texts(context(turn("a", None, text('{"retryRecovery":1}')))) == ['{"retryRecovery":1}']


def test_recovered_keeps_aborted_turns_dangling_calls_and_errors_that_oh_my_pi_loses() -> None:
    lines = [
        turn("a", None, text("tried"), retryRecovery=True),
        turn("b", "a", text("half"), call("1"), stop="aborted"),
        turn("c", "b", stop="error", errorMessage="boom"),
        turn("d", "c", call("2"), stop="toolUse"),
    ]
    found = context(*lines, read_options=RECOVERED)
    assert found.sources == ("a", "b", "c", "d")
    assert [len(tool_calls(message)) for message in found.messages] == [0, 1, 0, 1]


def test_recovered_finds_the_history_before_a_lost_line_but_never_the_title_slot() -> None:
    session = opened(slot("T"), header(), message_line("a"), message_line("c", "b"), read_options=RECOVERED)
    assert session.path_ids() == ["a", "c"]
    assert opened(slot("T"), header(), message_line("c", "b"), read_options=RECOVERED).path_ids() == ["c"]


# Notes


def notes(id: str, parent: str | None, data: Any) -> bytes:
    return entry("custom", id, parent, customType="experimental_context_notes", data=data)


def test_the_latest_valid_notes_come_before_everything_else() -> None:
    lines = [
        message_line("a"),
        notes("b", "a", {"version": 1, "text": "old"}),
        notes("c", "b", {"version": 1, "text": "new"}),
    ]
    found = context(*lines, notes("d", "c", {"version": 9, "text": "odd"}), message_line("e", "d", "on"))
    assert texts(found) == ["new", "hello", "on"]
    assert found.sources == ("c", "a", "e")


def test_notes_survive_a_compaction_and_come_before_its_summary() -> None:
    lines = [notes("a", None, {"version": 1, "text": "notes"}), message_line("b", "a")]
    assert texts(context(*lines, entry("compaction", "c", "b", summary="S"))) == ["notes", "S"]


def test_notes_before_a_reset_are_left_out() -> None:
    lines = [
        notes("a", None, {"version": 1, "text": "notes"}),
        entry("reset_boundary", "b", "a"),
        message_line("c", "b"),
    ]
    assert texts(context(*lines)) == ["hello"]


def test_cleared_notes_hide_the_older_ones_and_add_no_message() -> None:
    lines = [notes("a", None, {"version": 1, "text": "notes"}), notes("b", "a", {"version": 1, "text": ""})]
    assert context(*lines).messages == ()


@pytest.mark.parametrize("data", [None, {"version": 1}, {"version": 1, "text": "é" * 8193}, {"text": "x"}])
def test_invalid_notes_are_skipped(data: Any) -> None:
    lines = [notes("a", None, {"version": 1, "text": "kept"}), notes("b", "a", data)]
    assert texts(context(*lines)) == ["kept"]


# State


def test_an_explicit_default_model_outranks_what_later_messages_name() -> None:
    state = context(entry("model_change", "a", model="x/y/z"), turn("b", "a", text("t"))).state
    assert state.models == {"default": "x/y/z"}
    assert state.model == ModelRef("x", "y/z")


def test_a_model_change_in_the_form_of_pi_has_no_effect_in_oh_my_pi() -> None:
    state = context(entry("model_change", "a", provider="x", modelId="y"), turn("b", "a", text("t"))).state
    assert state.models == {"default": "p/m"}


def test_mode_and_rules_are_those_along_the_path() -> None:
    lines = [
        entry("mode_change", "a", mode="plan", data={"file": "p.md"}),
        entry("ttsr_injection", "b", "a", injectedRules=["one", "two"]),
        entry("ttsr_injection", "c", "b", injectedRules=["two", "three"]),
    ]
    state = context(*lines).state
    assert (state.mode, state.mode_data, state.rules) == ("plan", {"file": "p.md"}, ("one", "two", "three"))


# Usage


def test_usage_outside_of_turns_and_of_sub_agents_is_counted() -> None:
    usage = {"input": 10, "output": 2, "cacheRead": 3, "cacheWrite": 4, "cost": {"total": 0.5}}
    task = {"role": "toolResult", "toolCallId": "1", "toolName": "task", "content": [], "details": {"usage": usage}}
    lines = [
        entry("model_usage", "a", purpose="title", provider="p", model="m", usage=usage, stopReason="stop"),
        entry("message", "b", "a", message=task),
    ]
    session = opened(header(), *lines)
    record = session.entry("a")
    assert isinstance(record, UsageRecord)
    assert (record.kind, record.provider, record.model) == ("title", "p", "m")
    assert (session.usage().requests, session.usage().input, session.usage().cost) == (2, 20, 1.0)
    assert session.context().messages[0].role == "toolResult"


def test_a_long_file_with_usage_reads_the_same_in_blocks() -> None:
    lines = [entry("model_usage", f"u{at}", None, purpose="x") for at in range(20_000)]
    session = opened(header(), *lines)
    assert session.count("usage") == 20_000
    assert session.problems == []


# Locations and marks


@pytest.mark.parametrize(
    ("cwd", "bucket"),
    [
        ("/tmp/enc-home", "-"),
        ("/tmp/enc-home/proj", "-proj"),
        ("/tmp/enc-home/proj/a-b", "-proj-a-b"),
        ("/tmp/enc-home/proj/a/b", "-proj-a-b"),
        ("/tmp", "-tmp"),
        ("/tmp/foo/bar", "-tmp-foo-bar"),
        ("/tmp/enc-home/tmp/foo/bar", "-tmp-foo-bar"),
        ("/tmp/enc-home-too", "-tmp-enc-home-too"),
        ("/opt/pi", "--opt-pi--"),
        ("/usr", "--usr--"),
        ("/", "----"),
        ("/a b/日本", "--a b-日本--"),
    ],
)
def test_the_bucket_of_a_folder_has_oh_my_pis_name(cwd: str, bucket: str) -> None:
    assert bucket_name(cwd, "/tmp/enc-home", "/tmp") == bucket


@pytest.mark.parametrize(
    ("cwd", "bucket"),
    [
        ("C:\\work\\pi", "--C--work-pi--"),
        ("\\\\srv\\share\\x", "---srv-share-x--"),
        ("C:\\Users\\me\\src\\app", "-src-app"),
    ],
)
def test_buckets_of_windows_folders_follow_the_same_rule(cwd: str, bucket: str) -> None:
    assert bucket_name(cwd, "C:\\Users\\me", "C:\\Temp") == bucket


@pytest.mark.parametrize("path", ["/h/.omp/agent/sessions/-proj/s.jsonl", "/h/.omp/agent/sessions/-proj/s/agent.jsonl"])
def test_blobs_are_next_to_the_sessions_folder(path: str) -> None:
    assert blob_folder(path) == "/h/.omp/agent/blobs"


@pytest.mark.parametrize("path", ["/elsewhere/s.jsonl", "s.jsonl", "/", ""])
def test_a_file_elsewhere_has_no_folder_of_blobs(path: str) -> None:
    assert blob_folder(path) is None


@pytest.mark.parametrize(
    ("parent", "kind"),
    [
        ("019c0000-0000-7000-8000-00000000000a", "id"),
        ("0123456789abcdef", "id"),
        ("/home/u/.omp/agent/sessions/-/x.jsonl", "path"),
        ("C:\\x\\y.jsonl", "path"),
        ("x.jsonl", "path"),
    ],
)
def test_a_parent_session_is_classified_as_id_or_path(parent: str, kind: str) -> None:
    assert parent_session_kind(parent) == kind


def test_text_and_blocks_are_those_of_the_line() -> None:
    (message,) = context(turn("a", None, text("t"))).messages
    assert isinstance(message, Assistant)
    assert message.content == (Text("t"),)
