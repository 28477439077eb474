"""Encoder for Pi's line format: lines decode to the same entries, and the current entry is kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given

from sessiontree.core.entries import Config, ForkOrigin
from sessiontree.dialects.canonical import CanonicalEntry, SessionMeta
from sessiontree.dialects.contract import AS_CLIENT
from sessiontree.dialects.pi import PI
from sessiontree.errors import UsageError
from sessiontree.session.journal import Journal
from sessiontree.sources.detect import detect
from sessiontree.stores.memory import MemoryStore
from tests.builders import TIME, entry, examples, header, json_line, message_line
from tests.dialects.sessions import (
    DIALECTS,
    META,
    EncodedSession,
    EntryWithParent,
    chained,
    context_at,
    context_of,
    conversations,
    decoded,
    message,
    new_entry,
)

FOLDER = Path(__file__).parents[1] / "corpus" / "pi-family"
DAMAGED = {
    "29_self_parent",
    "31_dup_ids",
    "33_malformed_middle",
    "35_no_final_newline",
    "39_version_99",
    "45_parent_empty_string",
}
HEALTHY = sorted(path.stem for path in FOLDER.glob("*.jsonl") if path.stem not in DAMAGED)


def journal_of(data: bytes, dialect: Any = PI) -> Journal:
    journal = Journal(MemoryStore(data), dialect)
    journal.refresh()
    return journal


def parsed(lines: list[bytes]) -> list[Any]:
    return [json.loads(line) for line in lines]


def kinds(encoded: EncodedSession) -> list[str]:
    return [fields["type"] for fields in parsed(encoded.lines[encoded.head :])]


def noted(encoded: EncodedSession) -> list[tuple[str, str]]:
    return [(note.kind, note.what) for note in encoded.notes]


# Any conversation


@pytest.mark.parametrize("dialect", DIALECTS)
@given(conversations())
@examples(120)
def test_what_is_decoded_is_what_was_encoded(
    dialect: str, conversation: tuple[list[EntryWithParent], str | None]
) -> None:
    entries, leaf = conversation
    encoded = EncodedSession(dialect, entries, leaf, is_current=False)
    found = encoded.decoded()
    assert found[: len(entries)] == entries
    assert [each.kind for each, _ in found[len(entries) :]] in ([], ["leaf"])
    journal = encoded.journal()
    assert {problem.kind for problem in journal.problems()} <= {"lone-surrogate"}
    assert context_of(journal) == context_at(journal, encoded.leaf)
    assert encoded.findings() == set()


@pytest.mark.parametrize("dialect", DIALECTS)
@given(conversations())
@examples(30)
def test_the_same_entries_make_the_same_bytes(
    dialect: str, conversation: tuple[list[EntryWithParent], str | None]
) -> None:
    entries, leaf = conversation
    unnamed = [
        (msgspec.structs.replace(each, id="" if at % 3 else each.id), None) for at, (each, _) in enumerate(entries)
    ]
    assert EncodedSession(dialect, entries, leaf).data == EncodedSession(dialect, entries, leaf).data
    assert EncodedSession(dialect, unnamed).data == EncodedSession(dialect, unnamed).data


# The corpus


WITH_REDACTED_THINKING = {"21_dangling_toolcall_leaf", "25_error_toolcall_turn"}
"""Pi cannot send such blocks in oh-my-pi's form, so they are written in Pi's own."""


@pytest.mark.parametrize("name", HEALTHY)
def test_a_file_written_again_in_its_own_dialect_gives_the_same_context_and_state(name: str) -> None:
    data = (FOLDER / f"{name}.jsonl").read_bytes()
    dialect = detect(data, name)
    journal = journal_of(data, dialect)
    leaf = dialect.find_leaf(journal, AS_CLIENT)
    start = SessionMeta(META.id, META.timestamp, "/tmp", title=dialect.facts(journal).given_title)
    encoded = EncodedSession(dialect.name, decoded(journal), None if leaf is None else journal.tree.ids[leaf], start)
    again = encoded.journal()
    if name not in WITH_REDACTED_THINKING:
        assert context_of(again) == context_of(journal)
    assert dialect.facts(again).title == dialect.facts(journal).title
    assert encoded.decoded()[: len(journal)] == decoded(journal)


@pytest.mark.parametrize("target", DIALECTS)
@pytest.mark.parametrize("name", HEALTHY)
def test_a_file_written_for_another_client_decodes_to_the_same(name: str, target: str) -> None:
    data = (FOLDER / f"{name}.jsonl").read_bytes()
    journal = journal_of(data, detect(data, name))
    entries = decoded(journal)
    assert EncodedSession(target, entries).decoded()[: len(entries)] == entries


# Ids


@pytest.mark.parametrize("dialect", DIALECTS)
def test_any_id_is_kept_and_an_empty_or_used_one_is_replaced(dialect: str) -> None:
    first, second, third = message("a b/ü"), message(""), message("a b/ü", content="again")
    encoded = EncodedSession(dialect, [(first, None), (second, "a b/ü"), (third, "a b/ü")])
    ids = [each.id for each, _ in encoded.decoded()[:3]]
    assert ids[0] == "a b/ü"
    assert all(len(id) == 8 and int(id, 16) >= 0 for id in ids[1:])
    assert len(set(ids)) == 3
    assert encoded.findings() == set()


def test_generated_ids_depend_on_the_session() -> None:
    other = msgspec.structs.replace(META, id="another")
    assert (
        EncodedSession("pi", [(message(""), None)]).ids != EncodedSession("pi", [(message(""), None)], start=other).ids
    )


def test_a_reference_to_an_entry_that_got_another_id_follows_it() -> None:
    twice = [message("a"), message("b"), message("a"), new_entry("label", "l", targetId="a", label="x")]
    encoded = EncodedSession("pi", chained(*twice))
    renamed = encoded.decoded()[2][0].id
    assert renamed != "a"
    assert encoded.decoded()[3][0].fields["targetId"] == renamed
    sharded = [message("x"), new_entry("message", "y", aliases=("z",), message={"role": "user", "content": "hi"})]
    kept = new_entry("compaction", "c", summary="s", firstKeptEntryId="z")
    assert EncodedSession("pi", chained(*sharded, kept)).decoded()[2][0].fields["firstKeptEntryId"] == "y"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_file_that_is_continued_gets_lines_with_ids_it_does_not_have(dialect: str) -> None:
    journal = journal_of(header() + message_line("a"), DIALECTS[dialect])
    encoder = DIALECTS[dialect].encoder(META, journal)
    one, two = encoder.encode(message("a"), "a"), encoder.encode(message(""), "a")
    assert len({one.id, two.id, "a"}) == 3
    assert json.loads(one.lines[0])["parentId"] == "a"
    assert encoder.encode(message("free"), "a").id == "free"


def test_an_entry_without_a_time_gets_that_of_the_line_before_it() -> None:
    encoded = EncodedSession("pi", chained(message("a"), CanonicalEntry("message", message("b").fields, "b")))
    assert parsed(encoded.lines)[-1]["timestamp"] == TIME


# Fields that clients require


def needy(**message: Any) -> CanonicalEntry:
    return new_entry("message", "a", message={"role": "assistant", **message})


@pytest.mark.parametrize("dialect", ["pi", "omp"])
def test_answers_have_blocks_and_a_cost_where_tokens_were_counted(dialect: str) -> None:
    given = needy(content="hello", usage={"input": 1, "output": 2})
    encoded = EncodedSession(dialect, [(given, None)])
    message = parsed(encoded.lines)[-1]["message"]
    assert message["content"] == [{"type": "text", "text": "hello"}]
    assert message["usage"]["cost"]["total"] == 0
    assert encoded.decoded()[0][0].fields == given.fields


def test_redacted_thinking_is_in_pis_own_form_and_survives_a_round_trip() -> None:
    given = needy(content=[{"type": "redactedThinking", "data": "xx"}])
    encoded = EncodedSession("pi", [(given, None)])
    (block,) = parsed(encoded.lines)[-1]["message"]["content"]
    assert block == {"type": "thinking", "thinking": "", "thinkingSignature": "xx", "redacted": True}
    assert encoded.decoded()[0][0].fields == given.fields


# Lines in the client's form


def test_the_header_is_that_of_pi() -> None:
    start = SessionMeta("s1", "2026-02-16T10:00:00.000Z", "/src", title="T", origin="/old/s.jsonl")
    head = EncodedSession("pi", [], start=start).lines[0]
    assert head == (
        b'{"type":"session","version":3,"id":"s1","timestamp":"2026-02-16T10:00:00.000Z","cwd":"/src",'
        b'"parentSession":"/old/s.jsonl","sessiontreeFor":"pi"}'
    )


def test_the_header_of_a_native_session_records_where_it_was_forked() -> None:
    start = SessionMeta("s1", "t", "/src", forked_from=ForkOrigin("s0", "e"), origin="/old.jsonl")
    fields = json.loads(EncodedSession("native", [], start=start).lines[0])
    assert fields["forkedFrom"] == {"session": "s0", "entry": "e"}
    assert fields["parentSession"] == "/old.jsonl"
    assert fields["sessiontree"] == 1


def test_keys_are_in_the_order_of_pi() -> None:
    entries = [
        message("a"),
        new_entry("custom", "b", customType="t", data=1),
        new_entry("custom_message", "c", customType="t"),
    ]
    lines = EncodedSession("pi", chained(*entries)).lines[1:]
    assert [list(fields) for fields in parsed(lines)] == [
        ["type", "id", "parentId", "timestamp", "message"],
        ["type", "customType", "data", "id", "parentId", "timestamp"],
        ["type", "customType", "id", "parentId", "timestamp"],
    ]
    native = EncodedSession("native", chained(*entries)).lines[2]
    assert list(json.loads(native)) == ["type", "id", "parentId", "timestamp", "customType", "data"]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_carried_data_stays_on_the_line(dialect: str) -> None:
    riding = {"tools": {"agent": "claude", "name": "Read"}}
    one = new_entry("message", "a", message={"role": "user", "content": "x"}, sessiontree=riding)
    two = new_entry("message", "b", message={"role": "developer", "content": "x"}, sessiontree=riding)
    encoded = EncodedSession(dialect, chained(one, two))
    assert [fields["sessiontree"]["tools"] for fields in parsed(encoded.lines[encoded.head :])] == [riding["tools"]] * 2
    assert [each for each, _ in encoded.decoded()] == [one, two]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    "odd",
    [
        CanonicalEntry("message", {"message": None}, "x", TIME),
        CanonicalEntry("message", {}, "x", TIME),
        CanonicalEntry("message", {"message": {"role": ["user"], "content": {}}}, "x", TIME),
        CanonicalEntry("custom_message", {"customType": {}, "content": 5}, "x", TIME),
        CanonicalEntry("model_change", {"provider": [], "modelId": {}, "role": {}, "model": []}, "x", TIME),
        CanonicalEntry("usage", {"kind": [], "provider": {}, "usage": 1}, "x", TIME),
        CanonicalEntry("session_info", {"name": []}, "x", TIME),
        CanonicalEntry("config", {"config": []}, "x", TIME),
        CanonicalEntry("label", {"targetId": [], "label": {}}, "x", TIME),
        CanonicalEntry("compaction", {"firstKeptEntryId": {}, "preserveData": []}, "x", TIME),
        CanonicalEntry("session", {"version": 3}, "x", TIME),
        CanonicalEntry("", {"a": 1}, "x", TIME),
        CanonicalEntry("thing", {"type": "message", "id": "a", "parentId": "q", "other": 1}, "x", TIME),
        CanonicalEntry("title", {"v": 1, "title": "T", "updatedAt": "", "pad": ""}, "x", TIME),
    ],
)
def test_an_entry_that_would_be_misread_survives_a_round_trip(dialect: str, odd: CanonicalEntry) -> None:
    encoded = EncodedSession(dialect, chained(message("a"), odd))
    assert [each for each, _ in encoded.decoded()][:2] == [message("a"), odd]
    assert encoded.findings() == set()


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_entry_nested_too_deeply_is_dropped_and_noted_and_the_chain_stays_connected(dialect: str) -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    encoded = EncodedSession(
        dialect, chained(message("a"), new_entry("custom", "b", customType="t", data=deep), message("c"))
    )
    assert noted(encoded) == [("dropped", "entries nested too deeply")]
    assert [parent for _, parent in encoded.decoded()] == [None, "a", "b"]
    assert encoded.findings() == set()


# Entries that Pi stores differently


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        ("config", "aside"),
        ("mode_change", "aside"),
        ("session_init", "aside"),
        ("file_snapshot", "aside"),
        ("worktree", "aside"),
    ],
)
def test_types_that_pi_does_not_know_stay_as_lines_and_are_noted(kind: str, what: str) -> None:
    encoded = EncodedSession("pi", chained(message("a"), new_entry(kind, "b"), message("c")))
    assert kinds(encoded) == ["message", kind, "message"]
    assert [note.kind for note in encoded.notes] == [what]


def test_a_reset_is_a_compaction_without_a_summary_to_pi() -> None:
    entries = chained(message("a"), new_entry("reset_boundary", "b"), message("c", content="after"))
    encoded = EncodedSession("pi", entries)
    assert kinds(encoded) == ["message", "compaction", "context_edit", "message"]
    messages, _ = context_of(encoded.journal())
    assert [each.text for each in messages] == ["after"]
    assert encoded.decoded() == entries
    assert noted(encoded) == [("mapped", "resets")]


def test_a_model_of_another_role_is_stored_where_pi_ignores_it() -> None:
    smol = new_entry("model_change", "b", provider="p", modelId="m", role="smol")
    encoded = EncodedSession("pi", chained(new_entry("model_change", "a", provider="x", modelId="y"), smol))
    assert kinds(encoded) == ["model_change", "sessiontree"]
    assert noted(encoded) == [("aside", "models of other roles")]
    assert encoded.decoded()[1][0] == smol


def test_a_model_in_one_field_becomes_pis_pair() -> None:
    encoded = EncodedSession("pi", [(new_entry("model_change", "a", model="x/y/z", role="default"), None)])
    fields = parsed(encoded.lines)[1]
    assert (fields["provider"], fields["modelId"], "model" in fields) == ("x", "y/z", False)


@pytest.mark.parametrize("fields", [{"model": "nameless"}, {"provider": "p"}, {}])
def test_a_model_without_a_provider_is_stored_where_pi_ignores_it(fields: dict[str, Any]) -> None:
    one = new_entry("model_change", "a", **fields)
    encoded = EncodedSession("pi", [(one, None)])
    assert kinds(encoded) == ["sessiontree"]
    assert encoded.decoded() == [(one, None)]


@pytest.mark.parametrize("fields", [{"thinkingLevel": None, "configured": "auto"}, {}])
def test_no_thinking_level_is_off_to_pi(fields: dict[str, Any]) -> None:
    one = new_entry("thinking_level_change", "a", **fields)
    encoded = EncodedSession("pi", [(one, None)])
    assert parsed(encoded.lines)[1]["thinkingLevel"] == "off"
    assert encoded.decoded() == [(one, None)]


def test_roles_of_oh_my_pi_are_messages_of_an_extension_to_pi() -> None:
    files = [
        {"path": "a.md", "content": "text"},
        {"path": "i.png", "image": {"type": "image", "data": "", "mimeType": ""}},
    ]
    entries = [
        message("a", "developer", "be brief"),
        new_entry("message", "b", message={"role": "fileMention", "files": files}),
        new_entry("message", "c", message={"role": "pythonExecution", "code": "1/0", "output": "boom", "exitCode": 1}),
        new_entry("message", "d", message={"role": "pythonExecution", "code": "2", "excludeFromContext": True}),
        message("e", "stranger"),
    ]
    encoded = EncodedSession("pi", chained(*entries))
    assert kinds(encoded) == ["custom_message"] * 3 + ["sessiontree"] * 2
    developer, mention, python = (fields["content"] for fields in parsed(encoded.lines)[1:4])
    assert developer == "be brief"
    assert mention == [{"type": "text", "text": '<file path="a.md">\ntext\n</file>'}, files[1]["image"]]
    assert "1/0" in python
    assert "boom" in python
    assert [each for each, _ in encoded.decoded()] == entries
    assert {note.kind for note in encoded.notes} == {"mapped", "aside"}


@pytest.mark.parametrize("dialect", ["pi", "native"])
@pytest.mark.parametrize(
    "unsent",
    [
        message("b", "assistant", [{"type": "text", "text": "first try"}], retryRecovery={"attempt": 1}),
        new_entry("custom_message", "b", customType="prewalk-plan", content="plan"),
    ],
)
def test_what_oh_my_pi_never_sends_is_left_out_of_the_context(dialect: str, unsent: CanonicalEntry) -> None:
    encoded = EncodedSession(dialect, [(message("a"), None), (unsent, "a"), (message("c", content="on"), "b")])
    journal = encoded.journal()
    assert [found.content for found in context_of(journal)[0]] == ["hello", "on"]
    assert journal.tree.ids[:2] == ["a", "b"]
    assert encoded.ids["b"] == journal.tree.ids[2]


# The current entry


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_session_at_its_last_line_needs_nothing_else(dialect: str) -> None:
    assert EncodedSession(dialect, chained(message("a"), message("b"))).closing == []
    assert EncodedSession(dialect, []).closing == []


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_session_whose_leaf_is_not_last_ends_with_a_move(dialect: str) -> None:
    branches = [(message("a"), None), (message("b"), "a"), (message("c"), "a")]
    encoded = EncodedSession(dialect, branches, "b")
    (line,) = parsed(encoded.closing)
    assert (line["type"], line["parentId"], line["targetId"]) == ("leaf", "b", "b")
    assert context_of(encoded.journal()) == context_at(encoded.journal(), "b")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_session_may_be_before_its_first_entry(dialect: str) -> None:
    encoded = EncodedSession(dialect, [(message("a"), None)], None, is_current=False)
    (line,) = parsed(encoded.closing)
    assert (line["parentId"], line["targetId"]) == (None, None)
    assert context_of(encoded.journal())[0] == ()


@pytest.mark.parametrize("dialect", DIALECTS)
def test_labels_below_the_leaf_may_be_last(dialect: str) -> None:
    label = new_entry("label", "l", targetId="a", label="x")
    assert EncodedSession(dialect, [(message("a"), None), (message("b"), "a"), (label, "b")], "b").closing == []


@pytest.mark.parametrize(("dialect", "closing"), [("pi", ["leaf"]), ("omp", ["leaf"]), ("native", [])])
def test_a_label_on_another_branch_is_not_last_where_the_last_line_counts(dialect: str, closing: list[str]) -> None:
    label = new_entry("label", "l", targetId="a", label="x")
    encoded = EncodedSession(dialect, [(message("a"), None), (message("b"), "a"), (label, "a")], "b")
    assert [fields["type"] for fields in parsed(encoded.closing)] == closing
    assert [found.role for found in context_of(encoded.journal())[0]] == ["user", "user"]


def test_bookkeeping_that_doctor_would_report_is_not_last_in_pi() -> None:
    label = new_entry("label", "l", targetId="a", label="x")
    encoded = EncodedSession("pi", [(message("a"), None), (message("b"), "a"), (message("c"), "a"), (label, "b")], "b")
    assert [fields["type"] for fields in parsed(encoded.closing)] == ["leaf"]
    assert encoded.findings() == set()


def test_a_native_session_at_bookkeeping_is_at_its_parent() -> None:
    label = new_entry("label", "l", targetId="a", label="x")
    assert EncodedSession("native", chained(message("a"), label), "l").closing == []


# Names and settings


@pytest.mark.parametrize("dialect", ["pi", "native"])
def test_a_title_that_no_entry_has_is_written_at_the_end(dialect: str) -> None:
    start = msgspec.structs.replace(META, title="A name")
    encoded = EncodedSession(dialect, chained(new_entry("session_info", "i", name="old"), message("a")), start=start)
    assert encoded.session().name == "A name"
    assert context_of(encoded.journal())[0] == context_at(encoded.journal(), "a")[0]
    told_last = EncodedSession(
        dialect, chained(message("a"), new_entry("session_info", "i", name="A  name")), start=start
    )
    assert told_last.closing == []


@pytest.mark.parametrize("dialect", DIALECTS)
def test_settings_that_no_entry_has_are_kept(dialect: str) -> None:
    config = Config(approval_mode="yolo")
    start = msgspec.structs.replace(META, config=config)
    assert EncodedSession(dialect, [(message("a"), None)], start=start).session().config == config
    told_already = new_entry("config", "c", config=msgspec.to_builtins(config))
    assert EncodedSession(dialect, chained(message("a"), told_already), start=start).closing == []
    assert EncodedSession(dialect, [], start=msgspec.structs.replace(META, config=Config())).closing == []


# Decoding


def test_version_1_is_decoded_with_generated_ids_and_bounds_by_id() -> None:
    lines = [
        {"type": "message", "timestamp": TIME, "message": {"role": "user", "content": "one"}},
        {"type": "message", "timestamp": TIME, "message": {"role": "hookMessage", "customType": "t", "content": "h"}},
        {"type": "compaction", "timestamp": TIME, "summary": "s", "firstKeptEntryIndex": 2, "tokensBefore": 1},
    ]
    journal = journal_of(header(version=None) + b"".join(map(json_line, lines)))
    (one, _), (hook, parent), (compaction, _) = decoded(journal)
    assert one.id == journal.tree.ids[0] == parent
    assert hook.fields["message"]["role"] == "custom"
    assert compaction.fields == {"summary": "s", "tokensBefore": 1, "firstKeptEntryId": hook.id}


@pytest.mark.parametrize("number", [0, 99, "1", None])
def test_a_bound_of_version_1_that_names_nothing_is_not_decoded(number: Any) -> None:
    line = {"type": "compaction", "timestamp": TIME, "summary": "s", "firstKeptEntryIndex": number}
    ((compaction, _),) = decoded(journal_of(header(version=None) + json_line(line)))
    assert compaction.fields == {"summary": "s"}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_moves_of_the_leaf_are_decoded(dialect: str) -> None:
    data = header(sessiontree=1) + message_line("a") + entry("leaf", "b", "a", targetId="a")
    moves = [each for each, _ in decoded(journal_of(data, DIALECTS[dialect]))]
    assert [(each.kind, each.fields) for each in moves][1] == ("leaf", {"targetId": "a"})


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_model_change_is_decoded_with_provider_and_id_in_two_fields(dialect: str) -> None:
    lines = [
        entry("model_change", "a", model="x/y/z", role="smol"),
        entry("model_change", "b", provider="p", modelId="m"),
        entry("model_change", "c", model="nameless"),
    ]
    entries = [
        each.fields for each, _ in decoded(journal_of(header(sessiontree=1) + b"".join(lines), DIALECTS[dialect]))
    ]
    assert entries == [
        {"provider": "x", "modelId": "y/z", "role": "smol"},
        {"provider": "p", "modelId": "m"},
        {"model": "nameless"},
    ]


# Destinations


@pytest.mark.parametrize(
    ("cwd", "folder"),
    [
        ("/home/u/my-proj", "--home-u-my-proj--"),
        ("/home/u/my/proj", "--home-u-my-proj--"),
        ("/", "----"),
        ("/a b/日本", "--a b-日本--"),
        ("/x/./y/../z/", "--x-z--"),
        ("/c:/x", "--c--x--"),
    ],
)
def test_pi_finds_a_session_in_the_folder_of_its_working_directory(cwd: str, folder: str) -> None:
    start = SessionMeta("019c-s", "2026-11-15T06:44:51.316Z", cwd)
    found = PI.destination(start, {"HOME": "/h"})
    assert found.path == f"/h/.pi/agent/sessions/{folder}/2026-11-15T06-44-51-316Z_019c-s.jsonl"
    assert found.resume == ("pi", "--session", found.path)


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({"PI_CODING_AGENT_DIR": "/agent"}, "/agent/sessions/--w--"),
        ({"PI_CODING_AGENT_DIR": "~/agent"}, "/h/agent/sessions/--w--"),
        ({"PI_CODING_AGENT_SESSION_DIR": "/flat"}, "/flat"),
        ({"PI_CODING_AGENT_SESSION_DIR": "/flat", "PI_CODING_AGENT_DIR": "/agent"}, "/flat"),
    ],
)
def test_pi_takes_its_folders_from_the_environment(environment: dict[str, str], folder: str) -> None:
    found = PI.destination(SessionMeta("s", "t", "/w"), {"HOME": "/h", **environment})
    assert found.path == f"{folder}/t_s.jsonl"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_no_session_is_written_outside_the_folder(dialect: str) -> None:
    with pytest.raises(UsageError):
        DIALECTS[dialect].destination(SessionMeta("../x", "t", "/w"), {"HOME": "/h"})
    odd = DIALECTS[dialect].destination(SessionMeta("s", "../../t", "/w"), {"HOME": "/h"})
    assert ".." not in odd.path.split("/")


def test_a_native_session_goes_to_the_home_that_the_environment_names(tmp_path: Path) -> None:
    start = SessionMeta("019c-s", "2026-11-15T06:44:51.316Z", str(tmp_path))
    found = DIALECTS["native"].destination(start, {"SESSIONTREE_HOME": str(tmp_path / "home")})
    assert found.path.startswith(f"{tmp_path}/home/sessions/")
    assert found.path.endswith("/2026-11-15T06-44-51-316Z_019c-s.jsonl")
    assert found.resume == ("sessiontree", "chat", "--session", "019c-s")
    linux = DIALECTS["native"].destination(start, {"HOME": "/h", "XDG_DATA_HOME": "/data"})
    assert linux.path.startswith(("/data/sessiontree/sessions/", "/h/Library/"))
