"""Encoder for oh-my-pi: the title slot, its own forms of entries, renaming, and locations."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sessiontree
from sessiontree.dialects.canonical import CanonicalEntry, Encoded, SessionMeta
from sessiontree.dialects.omp import OMP, is_title_slot
from sessiontree.dialects.omp.header import render_slot
from sessiontree.dialects.pi import PI
from sessiontree.session.journal import Journal
from sessiontree.stores.memory import MemoryStore
from tests.builders import TIME, entry, examples, header, message_line
from tests.dialects.sessions import META, EncodedSession, chained, context_of, decoded, message, new_entry

NAMED = msgspec.structs.replace(META, title="A name ✓")


def journal_of(data: bytes) -> Journal:
    journal = Journal(MemoryStore(data), OMP)
    journal.refresh()
    return journal


def fields_of(encoded: EncodedSession) -> list[dict[str, Any]]:
    """The entries in file order."""
    return [json.loads(line) for line in encoded.lines[encoded.head :]]


def rename(data: bytes, name: str, parent: str | None = "a") -> Encoded:
    return OMP.encoder(META, journal_of(data)).encode(CanonicalEntry("session_info", {"name": name}, "", TIME), parent)


def renamed(data: bytes, name: str) -> bytes:
    """The file after a session was renamed."""
    written = rename(data, name)
    if written.rewrite is not None:
        assert not written.lines
        return b"".join(line + b"\n" for line in written.rewrite)
    if written.overwrite is not None:
        at, put = written.overwrite
        data = data[:at] + put + data[at + len(put) :]
    return data + b"".join(line + b"\n" for line in written.lines)


# The title slot


@given(st.text(st.characters(), max_size=400), st.sampled_from([None, "user", "auto"]))
@examples(200)
def test_a_slot_has_256_bytes_whatever_the_title(title: str, source: str | None) -> None:
    line = render_slot(title, source, TIME)
    assert len(line + b"\n") == 256
    fields = json.loads(line)
    assert is_title_slot(fields)
    assert fields.get("source") == source
    assert set(fields["pad"]) <= {" "}
    assert title.encode("utf-16", "surrogatepass").startswith(fields["title"].encode("utf-16", "surrogatepass"))


def test_a_title_is_cut_between_characters_and_as_late_as_possible() -> None:
    fields = json.loads(render_slot("é" * 300, "user", TIME))
    assert len(fields["pad"]) < 2
    assert set(fields["title"]) == {"é"}
    assert json.loads(render_slot("👩" * 300, "user", TIME))["title"].strip("👩") == ""


def test_fields_of_the_slot_are_in_the_order_of_the_client() -> None:
    assert list(json.loads(render_slot("T", "user", TIME))) == ["type", "v", "title", "source", "updatedAt", "pad"]


def test_a_new_session_begins_with_slot_and_header() -> None:
    start = msgspec.structs.replace(NAMED, origin="/old/s.jsonl")
    encoded = EncodedSession("omp", [(message("a"), None)], start=start)
    slot, head = (json.loads(line) for line in encoded.lines[:2])
    assert len(encoded.lines[0]) == 255
    assert (slot["title"], slot["source"]) == ("A name ✓", "user")
    assert list(head) == ["type", "version", "id", "timestamp", "cwd", "title", "titleSource", "parentSession"]
    assert (head["title"], head["titleSource"], head["parentSession"]) == ("A name ✓", "user", "/old/s.jsonl")
    assert encoded.session().name == "A name ✓"
    assert OMP.recognize(encoded.data) == 80
    assert encoded.findings() == set()


def test_a_session_without_a_name_has_an_empty_slot() -> None:
    encoded = EncodedSession("omp", [(message("a"), None)])
    slot, head = (json.loads(line) for line in encoded.lines[:2])
    assert (slot["title"], "source" in slot, "title" in head) == ("", False, False)
    assert encoded.session().name is None


def test_every_name_is_recorded_and_the_last_one_is_in_the_slot() -> None:
    entries = [
        new_entry("session_info", "i", name="first"),
        message("a"),
        new_entry("session_info", "j", name="A name ✓"),
    ]
    encoded = EncodedSession("omp", chained(*entries), start=NAMED)
    assert [(fields["type"], fields.get("title")) for fields in fields_of(encoded)] == [
        ("title_change", "first"),
        ("message", None),
        ("title_change", "A name ✓"),
    ]
    assert encoded.closing == []
    assert [each for each, _ in encoded.decoded()] == entries


@pytest.mark.parametrize("fields", [{}, {"name": None}, {"name": "x", "title": "y"}, {"name": "x", "source": "auto"}])
def test_unusual_names_survive_a_round_trip(fields: dict[str, Any]) -> None:
    one = new_entry("session_info", "i", **fields)
    encoded = EncodedSession("omp", [(one, None)])
    assert fields_of(encoded)[0]["type"] == "title_change"
    assert isinstance(fields_of(encoded)[0]["title"], str)
    assert encoded.decoded() == [(one, None)]


# Renaming


def test_renaming_overwrites_the_slot_in_place_and_adds_an_entry() -> None:
    data = EncodedSession("omp", [(message("a"), None)], start=NAMED).data
    written = rename(data, "另一个名字")
    assert written.overwrite is not None
    assert written.overwrite[0] == 0
    assert len(written.overwrite[1]) == 256
    assert written.rewrite is None
    (line,) = written.lines
    change = json.loads(line)
    assert (change["type"], change["parentId"], change["title"]) == ("title_change", "a", "另一个名字")
    assert change["source"] == "user"
    journal = journal_of(renamed(data, "另一个名字"))
    assert OMP.facts(journal).title == "另一个名字"
    assert journal.problems() == []


def test_entries_that_are_appended_together_overwrite_the_slot_too(tmp_path: Path) -> None:
    file = tmp_path / "named.jsonl"
    before = EncodedSession("omp", [(message("a"), None)], start=NAMED).data
    file.write_bytes(before)
    with sessiontree.open(file, home=tmp_path) as session:
        ids = session.append_all([CanonicalEntry("session_info", {"name": "new"}), message("", content="more")])
        assert session.name == "new"
    after = file.read_bytes()
    slot = json.loads(after[:256])
    assert (slot["title"], slot["source"]) == ("new", "user")
    assert after[256 : len(before)] == before[256:]
    assert [json.loads(line)["type"] for line in after[len(before) :].splitlines()] == ["title_change", "message"]
    with sessiontree.open(file, home=tmp_path) as session:
        assert (session.name, session.leaf, session.problems) == ("new", ids[-1], [])


def test_removing_the_name_empties_the_slot() -> None:
    data = EncodedSession("omp", [(message("a"), None)], start=NAMED).data
    assert OMP.facts(journal_of(renamed(data, ""))).title is None


def test_a_file_without_a_slot_is_rewritten_with_only_a_new_header() -> None:
    lines = [
        header(id="0123456789abcdef", title="old", other=[1, 1.50]),
        message_line("a"),
        b"{torn\n",
        message_line("b", "a"),
    ]
    data = b"".join(lines)
    written = rename(data, "new", "b")
    assert written.overwrite is None
    assert written.rewrite is not None
    assert [line + b"\n" for line in written.rewrite[1:4]] == lines[1:]
    head = json.loads(written.rewrite[0])
    assert {**head, "title": "old"} == {**json.loads(lines[0]), "titleSource": "user"}
    assert head["title"] == "new"
    assert json.loads(written.rewrite[4])["type"] == "title_change"
    assert OMP.facts(journal_of(renamed(data, "new"))).title == "new"


def test_a_slot_of_an_unusual_size_is_never_overwritten_in_place() -> None:
    slot = b'{"type":"title","v":1,"title":"old","updatedAt":"t","pad":""}\n'
    data = slot + header() + message_line("a")
    journal = journal_of(renamed(data, "new"))
    assert OMP.facts(journal).title == "new"
    assert journal.header is not None
    assert next(each.id for each, _ in decoded(journal)) == "a"
    assert rename(data, "again").overwrite is None


def test_a_file_without_a_header_gets_the_entry_and_a_note() -> None:
    written = rename(entry("reset_boundary", "a"), "new")
    assert (written.overwrite, written.rewrite, len(written.lines)) == (None, None, 1)
    assert [note.kind for note in written.notes] == ["changed"]


def test_a_session_is_renamed_where_oh_my_pi_looks(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(EncodedSession("omp", [(message("a"), None)], start=NAMED).data)
    session = sessiontree.open(path, dialect="omp")
    session.rename("New name")
    session.append("user", "and on")
    session.close()
    again = sessiontree.open(path)
    assert (again.dialect.name, again.name, again.problems) == ("omp", "New name", [])
    assert json.loads(path.read_bytes()[:256])["title"] == "New name"
    assert [found.role for found in again.context().messages] == ["user", "user"]


def test_other_entries_are_appended_as_one_line() -> None:
    assert OMP.traits.one_line_per_entry
    assert OMP.traits.encoder_types == {"session_info"}
    assert PI.traits.encoder_types == frozenset()


# Its own entry types and roles


def test_a_model_is_named_in_one_field() -> None:
    entries = [
        new_entry("model_change", "a", provider="p", modelId="x/y"),
        new_entry("model_change", "b", provider="p/q", modelId="m", role="smol", resolvedModelIsFallback=True),
        new_entry("model_change", "c", model="nameless"),
        new_entry("model_change", "d", provider="p"),
    ]
    encoded = EncodedSession("omp", chained(*entries))
    assert [fields.get("model") for fields in fields_of(encoded)] == ["p/x/y", "p/q/m", "nameless", None]
    assert "provider" not in fields_of(encoded)[0]
    assert [each for each, _ in encoded.decoded()] == entries
    assert context_of(encoded.journal())[1].models == {"default": "nameless", "smol": "p/q/m"}


def test_usage_outside_of_turns_has_its_own_name_where_it_can_be_counted() -> None:
    entries = [
        new_entry("usage", "a", kind="cache_warm", provider="p", model="m", usage={"input": 3}, note="n"),
        new_entry("usage", "b", kind="odd"),
        new_entry("usage", "c", kind="k", purpose="p", provider="p", model="m", usage={"input": 4}),
    ]
    encoded = EncodedSession("omp", chained(*entries))
    first, second, third = fields_of(encoded)
    assert (first["type"], first["purpose"], "kind" in first) == ("model_usage", "cache_warm", False)
    assert (second["type"], second["kind"]) == ("usage", "odd")
    assert (third["kind"], third["purpose"]) == ("k", "p")
    assert [each for each, _ in encoded.decoded()] == entries
    assert encoded.session().usage().input == 7


def test_a_system_prompt_is_stored_where_oh_my_pi_ignores_it() -> None:
    entries = [message("a", "system", "be good"), message("b"), message("c", "stranger")]
    encoded = EncodedSession("omp", chained(*entries))
    assert [fields["type"] for fields in fields_of(encoded)] == ["sessiontree", "message", "sessiontree"]
    assert [note.what for note in encoded.notes] == ["system prompts", "messages of unknown roles"]
    assert [each for each, _ in encoded.decoded()] == entries


@pytest.mark.parametrize(
    ("kind", "what"),
    [("context_edit", "aside"), ("config", "aside"), ("worktree", "aside"), ("file_snapshot", "aside")],
)
def test_types_that_oh_my_pi_does_not_know_stay_as_lines_and_are_noted(kind: str, what: str) -> None:
    encoded = EncodedSession("omp", chained(message("a"), new_entry(kind, "b", targetId="a", replacement=None)))
    assert [fields["type"] for fields in fields_of(encoded)] == ["message", kind]
    assert [note.kind for note in encoded.notes] == [what]


@pytest.mark.parametrize("role", ["developer", "fileMention", "pythonExecution", "bashExecution", "custom"])
def test_its_own_roles_are_written_as_they_are(role: str) -> None:
    encoded = EncodedSession("omp", [(message("a", role), None)])
    assert fields_of(encoded)[0]["message"]["role"] == role
    assert encoded.notes == []


@pytest.mark.parametrize("kind", ["mode_change", "reset_boundary", "session_init", "ttsr_injection", "credential_pin"])
def test_its_own_types_need_no_note(kind: str) -> None:
    assert EncodedSession("omp", [(new_entry(kind, "a"), None)]).notes == []


# Decoding


def test_usage_and_titles_are_decoded_as_native_entries() -> None:
    lines = [
        entry("model_usage", "a", purpose="title", role="tiny", provider="p", model="m", usage={}),
        entry("title_change", "b", "a", title="New", previousTitle="Old", source="user"),
        entry("title_change", "c", "b", title="Auto", source="auto", trigger="t"),
    ]
    entries = [each for each, _ in decoded(journal_of(header() + b"".join(lines)))]
    assert [(each.kind, each.fields) for each in entries] == [
        ("usage", {"kind": "title", "role": "tiny", "provider": "p", "model": "m", "usage": {}}),
        ("session_info", {"name": "New", "previousTitle": "Old"}),
        ("session_info", {"name": "Auto", "source": "auto", "trigger": "t"}),
    ]


def test_the_title_slot_is_not_decoded() -> None:
    journal = journal_of(EncodedSession("omp", [(message("a"), None)], start=NAMED).data)
    assert [each.kind for each in OMP.decode(journal, range(len(journal)))] == ["message"]


def test_a_short_summary_is_shown_but_is_not_a_given_title() -> None:
    compacted = entry("compaction", "b", "a", summary="s", shortSummary="In short", firstKeptEntryId="a")
    journal = journal_of(header() + message_line("a") + compacted)
    assert OMP.facts(journal).title == "In short"
    assert OMP.facts(journal).given_title is None


def test_messages_encoded_for_pi_get_oh_my_pis_roles_back() -> None:
    entries = [
        message("a", "developer", "be brief"),
        new_entry("model_change", "b", provider="p", modelId="m", role="smol"),
    ]
    there = EncodedSession("pi", chained(*entries))
    back = EncodedSession("omp", there.decoded())
    assert [fields["type"] for fields in fields_of(back)] == ["message", "model_change"]
    assert [each for each, _ in back.decoded()] == entries


# Destinations


def destination(cwd: str, environment: dict[str, str]) -> str:
    return OMP.destination(SessionMeta("019c-s", "2026-02-16T10:20:30.000Z", cwd), environment).path


@pytest.mark.parametrize(
    ("cwd", "bucket"),
    [
        ("{home}", "-"),
        ("{home}/proj", "-proj"),
        ("{home}/proj/a-b", "-proj-a-b"),
        ("{home}/proj/a/b", "-proj-a-b"),
        ("{home}/link", "-proj"),
        ("{tmp}", "-tmp"),
        ("{tmp}/foo/bar", "-tmp-foo-bar"),
        ("{home}/tmp/foo/bar", "-tmp-foo-bar"),
        ("/work/pi", "--work-pi--"),
        ("/usr", "--usr--"),
        ("/", "----"),
    ],
)
def test_the_bucket_is_that_of_the_real_folder(tmp_path: Path, cwd: str, bucket: str) -> None:
    temporary = tmp_path / "tmp"
    home = temporary / "enc-home"
    (home / "proj").mkdir(parents=True)
    (home / "link").symlink_to(home / "proj")
    environment = {"HOME": str(home), "TMPDIR": f"{temporary}/"}
    path = destination(cwd.format(home=home, tmp=temporary), environment)
    assert path == f"{home}/.omp/agent/sessions/{bucket}/2026-02-16T10-20-30-000Z_019c-s.jsonl"


def test_a_home_that_is_a_link_is_the_real_one(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "home").symlink_to(tmp_path / "real")
    path = destination(f"{tmp_path}/real/proj", {"HOME": f"{tmp_path}/home"})
    assert os.path.basename(os.path.dirname(path)) == "-proj"


@pytest.mark.parametrize(
    ("environment", "sessions"),
    [
        ({}, "/h/.omp/agent/sessions"),
        ({"PI_CODING_AGENT_DIR": "/agent"}, "/agent/sessions"),
        ({"PI_CONFIG_DIR": ".mine"}, "/h/.mine/agent/sessions"),
        ({"OMP_PROFILE": "work"}, "/h/.omp/profiles/work/agent/sessions"),
        ({"PI_PROFILE": "old"}, "/h/.omp/profiles/old/agent/sessions"),
        ({"OMP_PROFILE": "work", "PI_PROFILE": "old"}, "/h/.omp/profiles/work/agent/sessions"),
        ({"OMP_PROFILE": "", "PI_PROFILE": "old"}, "/h/.omp/agent/sessions"),
        ({"OMP_PROFILE": "default"}, "/h/.omp/agent/sessions"),
        ({"OMP_PROFILE": "../evil"}, "/h/.omp/agent/sessions"),
        ({"XDG_DATA_HOME": "/nonexistent"}, "/h/.omp/agent/sessions"),
    ],
)
def test_the_folder_of_sessions_comes_from_the_environment(environment: dict[str, str], sessions: str) -> None:
    path = destination("/w", {"HOME": "/h", "TMPDIR": "/t", **environment})
    assert path == f"{sessions}/--w--/2026-02-16T10-20-30-000Z_019c-s.jsonl"


def test_a_folder_for_data_counts_if_oh_my_pi_was_moved_there(tmp_path: Path) -> None:
    (tmp_path / "omp" / "profiles" / "work").mkdir(parents=True)
    environment = {"HOME": "/h", "TMPDIR": "/t", "XDG_DATA_HOME": str(tmp_path)}
    assert destination("/w", environment).startswith(f"{tmp_path}/omp/sessions/--w--/")
    assert destination("/w", {**environment, "PI_CODING_AGENT_DIR": "/agent"}).startswith("/agent/sessions/")
    profile = destination("/w", {**environment, "OMP_PROFILE": "work"})
    assert profile.startswith(f"{tmp_path}/omp/profiles/work/sessions/")
    assert destination("/w", {**environment, "OMP_PROFILE": "play"}).startswith("/h/.omp/profiles/play/agent/")


def test_a_session_is_resumed_by_its_id() -> None:
    assert OMP.destination(SessionMeta("019c-s", TIME, "/w"), {"HOME": "/h"}).resume == ("omp", "--resume", "019c-s")
