"""Gemini CLI: files of records, documents of older versions, and checkpoints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import sessiontree
from sessiontree.conversion.install import Request, carry_out, make_plan
from sessiontree.conversion.launch import plan_resumption
from sessiontree.core.entries import MessageEntry
from sessiontree.core.messages import Thinking, blocks_of, message_text
from sessiontree.dialects.gemini import GEMINI
from sessiontree.errors import UsageError
from sessiontree.library import Library
from sessiontree.repair import carry_out as carry_out_repair
from sessiontree.repair import examine, plan_repair
from sessiontree.sources import open_source
from sessiontree.stores.contract import SessionRef, read_bytes
from sessiontree.testing import check_dialect, check_source
from tests import builders
from tests.dialects.packed_goldens import cases_of, flat, flat_context, once, snapshot, unpack

BETTER = {"D4-two-records-fused", "D10-fused-02", "D12-legacy-document-truncated"}
"""Cases in which Gemini CLI loses messages that can be read."""
CASES = [case for case in cases_of("gemini-cli") if case not in BETTER]
META = {
    "sessionId": "11111111-1111-4111-8111-111111111111",
    "projectHash": "aa",
    "startTime": "2026-01-01T00:00:00.000Z",
}

UUIDS = ("22222222-2222-4222-8222-222222222222", "33333333-3333-4333-8333-333333333333")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("GEMINI_CLI_HOME", raising=False)
    monkeypatch.setenv("SESSIONTREE_HOME", str(tmp_path / "ours"))
    monkeypatch.setenv("SESSIONTREE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "home"


def opened(tmp_path: Path, case: str) -> tuple[sessiontree.Session, list[Any], Path]:
    golden = unpack("gemini-cli", case, tmp_path)
    files = sorted(golden.home.glob(".gemini/tmp/*/chats/*.json*"), key=lambda path: -path.stat().st_size)
    return sessiontree.open(files[0]), golden.sent, files[0]


def text(id: str, words: str, kind: str = "user") -> dict[str, Any]:
    return {
        "id": id,
        "timestamp": f"2026-01-01T00:00:{len(words):02d}.000Z",
        "type": kind,
        "content": [{"text": words}],
    }


def written(tmp_path: Path, *records: Any, name: str = "session-2026-01-01T00-00-11111111.jsonl") -> Path:
    path = tmp_path / "home" / ".gemini" / "tmp" / "proj" / "chats" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join((one if isinstance(one, bytes) else json.dumps(one).encode()) + b"\n" for one in records))
    return path


def texts_of(session: sessiontree.Session) -> list[str]:
    return [message_text(message) for message in session.context().messages]


@pytest.mark.parametrize("case", CASES)
def test_the_context_is_what_gemini_cli_sends_on_resume_with_each_result_once(tmp_path: Path, case: str) -> None:
    session, sent, _ = opened(tmp_path, case)
    assert flat_context(list(session.context().messages)) == once(flat(sent))


@pytest.mark.parametrize("case", sorted(BETTER))
def test_messages_that_gemini_cli_loses_are_read_and_the_damage_is_reported(tmp_path: Path, case: str) -> None:
    session, sent, _ = opened(tmp_path, case)
    found = flat_context(list(session.context().messages))
    assert len(found) > len(once(flat(sent)))
    assert [block for block in once(flat(sent)) if block not in found] == []
    assert "undecodable" in {finding.rule.id for finding in examine(session)}


def test_doctor_reports_that_records_on_one_line_were_read(tmp_path: Path) -> None:
    session, _, _ = opened(tmp_path, "D4-two-records-fused")
    (finding,) = [found for found in examine(session) if found.rule.id == "undecodable"]
    assert finding.cost == "damaged: 2 records on one line, which are read"


def test_the_dialect_and_its_sources_keep_the_contract(tmp_path: Path) -> None:
    samples = []
    for case in ("01-plain", "03-parallel", "05-compression", "D2-line-deleted"):
        _, _, path = opened(tmp_path / case, case)
        store = open_source(SessionRef(str(path)), GEMINI)
        samples.append(read_bytes(store, 0, store.size()))
    check_dialect(GEMINI, samples, cuts=20)
    check_source(GEMINI, path)


def test_reading_changes_no_file(tmp_path: Path) -> None:
    _, _, path = opened(tmp_path, "03-parallel")
    before = snapshot(tmp_path / "home")
    with Library() as library:
        (found,) = library.everything()
        assert [hit.session.id for hit in library.search("gamma")] == [found.id]
    examine(sessiontree.open(path))
    assert snapshot(tmp_path / "home") == before


def test_a_rewind_leaves_a_branch(tmp_path: Path) -> None:
    path = written(
        tmp_path, META, text("u1", "one"), text("g1", "1", "gemini"), text("u2", "two"), text("g2", "2", "gemini"),
        {"$rewindTo": "u2"}, text("u3", "three"), text("g3", "3", "gemini"),
    )  # fmt: skip
    session = sessiontree.open(path)
    assert texts_of(session) == ["one", "1", "three", "3"]
    assert session.entry("u3").parent_id == session.entry("u2").parent_id == "g1"
    written(tmp_path, META, text("u1", "one"), text("g1", "1", "gemini"), text("u2", "two"), {"$rewindTo": "u2"})
    assert texts_of(sessiontree.open(path)) == ["one", "1"]
    written(tmp_path, META, text("u1", "one"), {"$rewindTo": "nowhere"}, text("u2", "two"))
    assert texts_of(sessiontree.open(path)) == ["two"]


def test_a_repeated_record_replaces_the_content_at_its_place_and_keeps_what_it_does_not_have(tmp_path: Path) -> None:
    usage = {"tokens": {"input": 5, "output": 2, "cached": 0, "total": 7}, "model": "gemini-x", "thoughts": [
        {"subject": "Plan", "description": "think"}]}  # fmt: skip
    path = written(
        tmp_path, META, text("u1", "one"), {**text("g1", "draft", "gemini"), **usage}, text("u2", "two"),
        text("g1", "final", "gemini"), {"$set": {"messages": [text("u1", "one"), text("g1", "last", "gemini")]}},
        {"$set": {"summary": "A title"}},
    )  # fmt: skip
    session = sessiontree.open(path)
    assert texts_of(session) == ["one", "last"]
    assert (session.usage().output, session.name) == (2, "A title")
    answer = session.entry("g1")
    assert isinstance(answer, MessageEntry)
    assert Thinking("**Plan** think") in blocks_of(answer.message.content)  # type: ignore[union-attr]


def test_a_compression_keeps_the_messages_before_it_in_the_history(tmp_path: Path) -> None:
    summary = text("s", "<state_snapshot>short</state_snapshot>")
    kept = [text("u2", "two"), text("g2", "2", "gemini")]
    path = written(
        tmp_path, META, text("u1", "one"), text("g1", "1", "gemini"), *kept,
        {"$set": {"messages": [summary, text("a", "Got it.", "gemini"), *kept]}}, text("u3", "three"),
    )  # fmt: skip
    session = sessiontree.open(path)
    assert texts_of(session) == ["<state_snapshot>short</state_snapshot>", "Got it.", "two", "2", "three"]
    assert session.path_ids() == ["u1", "g1", "u2", "g2", "s", "u3"]


def test_commands_and_notices_are_not_sent(tmp_path: Path) -> None:
    path = written(
        tmp_path, META, text("u1", "/help"), text("n", "Update!", "info"), text("u2", "hello"), text("u3", "?")
    )
    assert texts_of(sessiontree.open(path)) == ["hello"]


def test_documents_checkpoints_and_sub_agents_are_listed_with_their_folder(tmp_path: Path, home: Path) -> None:
    folder = written(tmp_path, META, text("u1", "parent"), name="session-2026-01-01T00-00-11111111.jsonl").parent
    sub = folder / META["sessionId"] / "22222222-2222-4222-8222-222222222222.jsonl"
    sub.parent.mkdir()
    sub.write_text(
        "\n".join(map(json.dumps, [{**META, "sessionId": sub.stem, "kind": "subagent"}, text("x", "child")]))
    )
    document = {**META, "sessionId": "33333333-3333-4333-8333-333333333333", "messages": [text("d", "document")]}
    (folder / "session-2025-01-01T00-00-33333333.json").write_text(json.dumps(document, indent=2))
    history = {
        "history": [{"role": "user", "parts": [{"text": "saved"}]}, {"role": "model", "parts": [{"text": "yes"}]}]
    }
    (folder.parent / "checkpoint-my%20tag.json").write_text(json.dumps(history))
    (home / ".gemini" / "projects.json").write_text(json.dumps({"projects": {"/work/proj": "proj"}}))
    with Library() as library:
        found = {one.first_prompt: one for one in library.everything()}
    assert {name: (one.kind, one.agent) for name, one in found.items()} == {
        "parent": ("session", "gemini"),
        "child": ("subagent", "gemini"),
        "document": ("session", "gemini"),
        "saved": ("session", "gemini"),
    }
    assert {found[name].cwd for name in ("parent", "document", "saved")} == {"/work/proj"}
    assert found["saved"].id == "checkpoint-my%20tag"
    assert texts_of(sessiontree.open(found["saved"].ref)) == ["saved", "yes"]


def test_a_damaged_file_is_repaired_in_place_and_gemini_cli_gets_the_same_list(tmp_path: Path) -> None:
    torn = json.dumps(text("g3", "lost", "gemini")).encode()[:40]
    path = written(
        tmp_path, META, text("u1", "one"), text("u2", "left"), {"$rewindTo": "u2"},
        json.dumps(text("g1", "1", "gemini")).encode() + json.dumps(text("u3", "three")).encode(), torn,
    )  # fmt: skip
    session = sessiontree.open(path)
    assert texts_of(session) == ["one", "1", "three"]
    _, sidecar, backup = carry_out_repair(plan_repair(session), session)
    assert sidecar is not None
    assert backup is not None
    assert Path(backup).read_bytes().endswith(torn + b"\n")
    records = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert [record.get("id") or record.get("$rewindTo") for record in records[1:]] == ["u1", "u2", "u2", "g1", "u3"]
    repaired = sessiontree.open(path)
    assert texts_of(repaired) == ["one", "1", "three"]
    assert examine(repaired) == []


# Writing


def test_a_new_session_goes_to_the_folder_of_its_project(tmp_path: Path, home: Path) -> None:
    session, _, _ = opened(tmp_path, "01-plain")
    (home / ".gemini" / "tmp" / "other").mkdir()
    (home / ".gemini" / "tmp" / "other" / ".project_root").write_text("/elsewhere/other")
    folders = {}
    for cwd in ("/tmp/g/proj", "/new/Some Project!", "/mine/other"):
        plan = make_plan(session, Request("gemini", cwd=cwd))
        folders[cwd] = Path(plan.path).parent.parent.name
        assert plan.resume[:2] == ("gemini", "--resume")
    assert folders == {"/tmp/g/proj": "proj", "/new/Some Project!": "some-project", "/mine/other": "other-1"}


def test_a_session_in_its_place_is_resumed_there(tmp_path: Path) -> None:
    session, _, _ = opened(tmp_path, "01-plain")
    resumption = plan_resumption(session)
    assert (resumption.command, resumption.cwd) == (("gemini", "--resume", session.id), "/tmp/g/proj")


def test_prompts_that_look_like_commands_are_written_so_that_they_are_sent(tmp_path: Path) -> None:
    source = sessiontree.create(cwd=str(tmp_path), home=str(tmp_path / "ours"))
    source.append("user", "/etc/hosts: what is it?")
    source.append("assistant", "A file.")
    plan = make_plan(source, Request("gemini"))
    made = carry_out(source, plan)
    assert len(made.context().messages) == 2
    assert [line.what for line in plan.report.notes if line.kind == "changed"] == ["prompts that begin with / or ?"]


def test_separators_at_which_gemini_cli_would_end_a_line_are_escaped(tmp_path: Path) -> None:
    source = sessiontree.create(cwd=str(tmp_path), home=str(tmp_path / "ours"))
    source.append("user", "one\u2028two\u2029three")
    made = carry_out(source, make_plan(source, Request("gemini")))
    data = Path(made.location).read_text("utf-8")
    assert not {"\u2028", "\u2029"} & set(data)
    assert texts_of(made) == ["one\u2028two\u2029three"]


def test_messages_that_have_the_same_id_become_records_of_their_own(tmp_path: Path) -> None:
    answer = {"role": "assistant", "content": [{"type": "text", "text": "hi"}], "parentUuid": UUIDS[0]}
    lines = [
        {"role": "user", "content": "hello", "uuid": UUIDS[0], "parentUuid": None},
        {"role": "user", "content": "hello", "uuid": UUIDS[0], "parentUuid": None},
        {**answer, "uuid": UUIDS[1]},
        {**answer, "uuid": UUIDS[1], "content": [{"type": "text", "text": "hi again"}]},
    ]
    path = tmp_path / "0a1b2c3d.jsonl"
    path.write_text("".join(json.dumps({"type": "message", **line}) + "\n" for line in lines))
    source = sessiontree.open(path)
    made = carry_out(source, make_plan(source, Request("gemini", cwd=str(tmp_path))))
    assert texts_of(made) == ["hello", "hello", "hi", "hi again"]
    assert texts_of(made) == texts_of(source)


@pytest.mark.parametrize("dialect", ["gemini", "opencode"])
def test_a_system_prompt_is_refused_and_not_sent_as_a_prompt(dialect: str) -> None:
    source = sessiontree.create(in_memory=True)
    source.append("user", "hello")
    session = builders.opened(b"".join(sessiontree.convert(source, dialect).lines), dialect)
    with pytest.raises(UsageError, match=r"cannot hold this entry \(system\); nothing was written"):
        session.append("system", "be brief")
    assert texts_of(session) == ["hello"]


def test_a_call_without_a_result_gets_a_response_for_the_api_and_is_read_without_one(tmp_path: Path) -> None:
    source = sessiontree.create(cwd=str(tmp_path), home=str(tmp_path / "ours"))
    source.append("user", "Start it.")
    call = {"type": "toolCall", "id": "c1", "name": "bash", "arguments": {"command": "sleep 9"}}
    source.append("assistant", [call])
    made = carry_out(source, make_plan(source, Request("gemini")))
    records = [json.loads(line) for line in Path(made.location).read_text("utf-8").splitlines()]
    (stored,) = next(record["toolCalls"] for record in records if "toolCalls" in record)
    assert stored["result"][0]["functionResponse"]["id"] == "c1"
    assert [message.role for message in made.context().messages] == ["user", "assistant"]


def test_each_of_parallel_calls_has_its_own_result_although_a_resume_stores_all_of_them_with_each(
    tmp_path: Path,
) -> None:
    responses = [
        {"functionResponse": {"id": f"read_file__c{at}", "name": "read_file", "response": {"output": f"file {at}"}}}
        for at in (1, 2)
    ]
    calls = [
        {"id": f"read_file__c{at}", "name": "read_file", "args": {}, "result": responses, "status": "success"}
        for at in (1, 2)
    ]
    answer = {**text("b", "", "gemini"), "toolCalls": calls}
    session = sessiontree.open(written(tmp_path, text("a", "Read both."), answer))
    assert [found for found in texts_of(session) if found.startswith("file")] == ["file 1", "file 2"]
