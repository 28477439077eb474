"""Doctor finds problems; repair fixes them so that the client finds everything, and no byte is lost."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

import sessiontree
from sessiontree.core.messages import message_text
from sessiontree.errors import ExistsError
from sessiontree.repair import Finding, carry_out, examine, plan_repair
from sessiontree.repair.rules import RULES

HEADER = '{"type":"session","version":3,"id":"s","timestamp":"2026-01-01T00:00:00.000Z","cwd":"/"}'


def message(id: str, parent: str | None, text: str, **more: Any) -> str:
    fields = {"type": "message", "id": id, "parentId": parent, "timestamp": "2026-01-01T00:00:01.000Z"}
    return json.dumps({**fields, "message": {"role": "user", "content": text}, **more}, separators=(",", ":"))


def assistant(id: str, parent: str, *calls: str) -> str:
    blocks = [{"type": "toolCall", "id": call, "name": "read", "arguments": {}} for call in calls]
    return message(id, parent, "", message={"role": "assistant", "content": blocks, "stopReason": "toolUse"})


def result(id: str, parent: str, call: str) -> str:
    content = [{"type": "text", "text": f"result of {call}"}]
    return message(id, parent, "", message={"role": "toolResult", "toolCallId": call, "content": content})


def written(tmp_path: Path, *lines: str | bytes, end: bytes = b"\n") -> Path:
    path = tmp_path / "s.jsonl"
    data = b"\n".join(line.encode() if isinstance(line, str) else line for line in (HEADER, *lines))
    path.write_bytes(data + end)
    return path


def found(path: Path) -> dict[str, Finding]:
    return {finding.rule.id: finding for finding in examine(sessiontree.open(path))}


def texts(path: Path) -> list[str]:
    return [message_text(message) for message in sessiontree.open(path).context().messages]


def repaired(path: Path) -> Path:
    session = sessiontree.open(path)
    carry_out(plan_repair(session), session)
    return path


CHAIN = (message("1", None, "one"), message("2", "1", "two"), message("3", "2", "three"))


def test_a_healthy_session_has_no_findings_and_is_not_changed(tmp_path: Path) -> None:
    path = written(tmp_path, *CHAIN)
    before = path.read_bytes(), path.stat().st_mtime_ns
    assert found(path) == {}
    assert plan_repair(sessiontree.open(path)).is_empty
    repaired(path)
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["s.jsonl"]


def test_a_lost_line_is_reported_and_the_history_before_it_is_recovered(tmp_path: Path) -> None:
    path = written(tmp_path, CHAIN[0], CHAIN[1], message("4", "3", "four"), message("5", "4", "five"))
    assert texts(path) == ["four", "five"]
    finding = found(path)["missing-parent"]
    assert (finding.count, finding.severity) == (1, "loss")
    assert finding.cost == (
        "2 entries of the active path unreachable; best parent for 4 is 2: "
        "it comes before the first child of the lost parent"
    )
    assert texts(repaired(path)) == ["one", "two", "four", "five"]
    assert found(path) == {}


def test_a_recovered_reading_shows_the_same_without_writing(tmp_path: Path) -> None:
    from sessiontree.dialects.contract import ReadOptions

    path = written(tmp_path, CHAIN[0], CHAIN[1], message("4", "3", "four"))
    before = path.read_bytes()
    session = sessiontree.open(path, read_options=ReadOptions(recovered=True))
    assert [message_text(message) for message in session.context().messages] == ["one", "two", "four"]
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("damage", "rule", "kept"),
    [
        (lambda lines: [lines[0], lines[1] + lines[2]], "fused-records", ["one", "two", "three"]),
        (lambda lines: [lines[0], lines[1], lines[1][:60] + lines[2]], "glued-stub", ["one", "two", "three"]),
        (lambda lines: [lines[0], "\x00" * 100 + lines[1], lines[2]], "nul-run", ["one", "two", "three"]),
        (lambda lines: [lines[0], lines[1], "garbage", lines[2]], "undecodable", ["one", "two", "three"]),
        (lambda lines: [lines[0], lines[1], "null", lines[2]], "not-an-object", ["one", "two", "three"]),
        (lambda lines: [lines[0], lines[1], "   ", lines[2]], "blank-line", ["one", "two", "three"]),
        (lambda lines: [message("1", "3", "one"), *lines[1:]], "cycle", ["one", "two", "three"]),
        (lambda lines: [message("1", "1", "one"), *lines[1:]], "self-parent", ["one", "two", "three"]),
    ],
)
def test_each_kind_of_damage_is_found_and_repaired(tmp_path: Path, damage: Any, rule: str, kept: list[str]) -> None:
    path = written(tmp_path, *damage(list(CHAIN)))
    assert rule in found(path)
    original = path.read_bytes()
    leaf_texts = sorted(texts(repaired(path)))
    assert leaf_texts == sorted(kept)
    assert found(path) == {}
    assert sessiontree.open(path).problems == []
    once = path.read_bytes()
    repaired(path)
    assert path.read_bytes() == once
    (backup,) = tmp_path.glob("*.bak")
    assert backup.read_bytes() == original


def test_every_removed_byte_is_in_the_sidecar_with_its_offset(tmp_path: Path) -> None:
    stub = CHAIN[1][:60]
    path = written(tmp_path, CHAIN[0], stub + CHAIN[2], CHAIN[1], b"\xff\xfe broken", CHAIN[1][:30], end=b"")
    original = path.read_bytes()
    repaired(path)
    (sidecar,) = tmp_path.glob("*.quarantine-*")
    records = [json.loads(line) for line in sidecar.read_text().splitlines()]
    for record in records:
        raw = base64.b64decode(record["bytes"])
        assert original[record["offset"] : record["offset"] + len(raw)] == raw
    taken = {base64.b64decode(record["bytes"]) for record in records}
    assert {stub.encode(), b"\xff\xfe broken", CHAIN[1][:30].encode()} <= taken


def test_both_entries_with_the_same_id_are_recovered(tmp_path: Path) -> None:
    path = written(tmp_path, message("1", None, "first"), message("1", None, "second"), message("2", "1", "answer"))
    assert found(path)["duplicate-id"].count == 1
    repaired(path)
    session = sessiontree.open(path)
    assert len(set(session.ids)) == 3
    assert texts(path) == ["second", "answer"]
    assert found(path) == {}


def test_a_session_without_a_header_gets_one_that_its_client_accepts(tmp_path: Path) -> None:
    path = tmp_path / "2026-01-01T00-00-00-000Z_my-session.jsonl"
    path.write_text("\n".join(CHAIN) + "\n")
    assert "no-header" in found(path)
    repaired(path)
    session = sessiontree.open(path)
    assert (session.id, session.problems, texts(path)) == ("my-session", [], ["one", "two", "three"])


@pytest.mark.parametrize("data", [b"", b'{"type":"session","version":3,"id":"s1","time'])
def test_a_file_with_no_entries_and_no_header_can_be_written_after_the_repair(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "2026-01-01T00-00-00-000Z_s1.jsonl"
    path.write_bytes(data)
    assert "no-header" in found(path)
    with sessiontree.open(path) as session:
        carry_out(plan_repair(session), session)
    assert found(path) == {}
    with sessiontree.open(path) as session:
        session.append("user", "hello")
        assert session.id == "s1"


def test_an_entry_without_an_id_gets_one_in_the_file(tmp_path: Path) -> None:
    nameless = (
        '{"type":"message","timestamp":"2026-01-01T00:00:02.000Z","message":{"role":"user","content":"nameless"}}'
    )
    path = written(tmp_path, CHAIN[0], nameless)
    ids = sessiontree.open(path).ids
    repaired(path)
    session = sessiontree.open(path)
    assert (session.ids, session.problems, texts(path)) == (ids, [], ["one", "nameless"])


def test_bookkeeping_of_a_killed_process_no_longer_hides_the_real_branch(tmp_path: Path) -> None:
    marker = (
        '{"type":"custom","id":"x","parentId":"1","timestamp":"2026-01-01T00:00:09.000Z","customType":"session_exit"}'
    )
    path = written(tmp_path, *CHAIN, marker)
    assert texts(path) == ["one"]
    assert found(path)["stale-leaf"].cost == "2 entries hidden"
    assert texts(repaired(path)) == ["one", "two", "three"]
    assert "stale-leaf" not in found(path)


@pytest.mark.parametrize("dialect", ["native", "omp", "pi"])
def test_a_label_after_a_switch_to_another_branch_hides_nothing(tmp_path: Path, dialect: str) -> None:
    path = written(tmp_path, *CHAIN)
    copy = tmp_path / "copy.jsonl"
    copy.write_bytes(b"".join(sessiontree.convert(sessiontree.open(path), dialect).lines))
    session = sessiontree.open(copy)
    first, *_, last = session.context().sources
    session.move(first)
    session.label(last, "the end")
    session.rename("two branches")
    session.close()
    assert texts(copy) == ["one"]
    assert found(copy) == {}


@pytest.mark.parametrize("dialect", ["native", "omp", "pi"])
@pytest.mark.parametrize("is_reset", [False, True])
def test_a_setting_and_a_label_after_a_switch_or_a_reset_hide_nothing(
    tmp_path: Path, dialect: str, is_reset: bool
) -> None:
    path = written(tmp_path, *CHAIN)
    copy = tmp_path / "copy.jsonl"
    copy.write_bytes(b"".join(sessiontree.convert(sessiontree.open(path), dialect).lines))
    session = sessiontree.open(copy)
    first, *_, last = session.context().sources
    if is_reset:
        session.reset()
    else:
        session.move(first)
    session.append_entry({"type": "model_change", "provider": "a", "modelId": "m", "model": "a/m"})
    session.label(last, "the end")
    session.close()
    assert texts(copy) == ([] if is_reset else ["one"])
    assert found(copy) == {}


def test_bookkeeping_of_a_killed_process_after_a_switch_back_hides_the_newest_messages(tmp_path: Path) -> None:
    switches = [
        f'{{"type":"leaf","id":"l{id}","parentId":"{id}","timestamp":"2026-01-01T00:00:08.000Z","targetId":"{id}"}}'
        for id in "13"
    ]
    marker = (
        '{"type":"custom","id":"x","parentId":"1","timestamp":"2026-01-01T00:00:09.000Z","customType":"session_exit"}'
    )
    path = written(tmp_path, *CHAIN, *switches, marker)
    assert texts(path) == ["one"]
    assert "stale-leaf" in found(path)


def test_unmatched_tool_calls_and_results_are_reported(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        message("1", None, "q"),
        assistant("2", "1", "a", "b", "c"),
        result("3", "2", "a"),
        result("4", "2", "b"),
        result("5", "4", "nobody asked"),
    )
    findings = found(path)
    assert findings["orphan-tool-result"].count == 1
    assert findings["unanswered-tool-call"].count == 1
    assert findings["lost-parallel-results"].count == 1


@pytest.mark.parametrize("target", ["2", "3"])
@pytest.mark.parametrize("next_calls", [(), ("d",)])
def test_results_on_a_branch_that_was_left_are_not_lost(tmp_path: Path, target: str, next_calls: tuple[str]) -> None:
    path = written(
        tmp_path,
        message("1", None, "q"),
        assistant("2", "1", "a", "b"),
        result("3", "2", "a"),
        result("4", "3", "b"),
        assistant("5", target, *next_calls),
        *(result(f"5{call}", "5", call) for call in next_calls),
    )
    assert "lost-parallel-results" not in found(path)


def test_a_compaction_that_keeps_from_an_entry_off_its_path_is_reported(tmp_path: Path) -> None:
    compaction = '{"type":"compaction","id":"c","parentId":"2","timestamp":"t",'
    compaction += '"summary":"S","firstKeptEntryId":"gone","tokensBefore":1}'
    path = written(tmp_path, CHAIN[0], CHAIN[1], compaction)
    assert found(path)["dangling-bound"].severity == "loss"


def test_repair_to_a_new_file_leaves_the_old_one_and_never_overwrites(tmp_path: Path) -> None:
    path = written(tmp_path, CHAIN[0] + CHAIN[1], CHAIN[2])
    before = path.read_bytes()
    session = sessiontree.open(path)
    plan = plan_repair(session)
    new, _, backup = carry_out(plan, session, str(tmp_path / "new.jsonl"))
    assert (path.read_bytes(), backup) == (before, None)
    assert texts(Path(new)) == ["one", "two", "three"]
    with pytest.raises(ExistsError):
        carry_out(plan, session, str(tmp_path / "new.jsonl"))


def test_other_lines_keep_every_byte(tmp_path: Path) -> None:
    odd = '{ "type" : "message", "id":"2","parentId":"1","timestamp":"t",'
    odd += '"message":{"role":"user","content":"\\u00fc \\ud83d"},"n":1.0}'
    path = written(tmp_path, CHAIN[0], odd, "garbage", message("3", "2", "three"))
    repaired(path)
    assert path.read_bytes().splitlines()[2] == odd.encode()


def test_every_kind_of_problem_has_a_rule() -> None:
    import re

    from sessiontree.core.tree import TreeProblemKind

    source = (Path(__file__).parents[1] / "src" / "sessiontree" / "session" / "journal.py").read_text()
    kinds = {
        *re.findall(r'"([a-z0-9]+(?:-[a-z0-9]+)+)"', source),
        *TreeProblemKind.__args__,
        "bom",
        "crlf",
        "undecodable",
    }
    assert kinds - {"utf-8"} <= set(RULES)


def claude_line(uuid: str, parent: str | None, content: Any, **more: Any) -> str:
    fields = {
        "parentUuid": parent,
        "isSidechain": False,
        "type": "user",
        "message": {"role": "user", "content": content},
    }
    return json.dumps({**fields, "uuid": uuid, "timestamp": "2026-01-01T00:00:00.000Z", "sessionId": "s", **more})


def claude_file(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "11111111-1111-4111-8111-111111111111.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_sub_agent_without_its_transcript_is_reported(tmp_path: Path) -> None:
    answer = [{"type": "tool_result", "tool_use_id": "t1", "content": "done"}]
    path = claude_file(
        tmp_path, claude_line("a", None, "go"), claude_line("b", "a", answer, toolUseResult={"agentId": "x1"})
    )
    assert found(path)["missing-subagent"].count == 1
    transcript = path.with_suffix("") / "subagents" / "agent-x1.jsonl"
    transcript.parent.mkdir(parents=True)
    transcript.write_text("{}\n")
    assert "missing-subagent" not in found(path)


def test_spilled_output_is_found_next_to_the_session_if_its_recorded_path_is_gone(tmp_path: Path) -> None:
    text = "Output too large. Full output saved to: /gone/tool-results/t1.txt\n\nPreview"
    path = claude_file(
        tmp_path, claude_line("a", None, [{"type": "tool_result", "tool_use_id": "t1", "content": text}])
    )
    assert found(path)["missing-output"].severity == "loss"
    spilled = path.with_suffix("") / "tool-results" / "t1.txt"
    spilled.parent.mkdir(parents=True)
    spilled.write_text("everything")
    findings = found(path)
    assert "missing-output" not in findings
    assert findings["moved-output"].severity == "note"


def test_lines_of_several_sessions_in_one_file_are_reported(tmp_path: Path) -> None:
    path = claude_file(tmp_path, claude_line("a", None, "one"), claude_line("b", "a", "two", sessionId="other"))
    assert found(path)["several-sessions"].cost == "lines of 2 sessions"


def test_a_title_where_the_client_does_not_look_is_reported(tmp_path: Path) -> None:
    filler = [claude_line(f"f{number}", None, "x" * 1000) for number in range(80)]
    title = json.dumps({"type": "custom-title", "customTitle": "T", "sessionId": "s"})
    path = claude_file(tmp_path, *filler, title, *[line.replace('"f', '"g') for line in filler])
    assert found(path)["title-out-of-sight"].count == 1
    assert sessiontree.open(path).name == "T"


@pytest.mark.parametrize(("after", "is_reported"), [("", True), (" is what the client writes", False)])
def test_content_that_its_client_truncated_is_reported(tmp_path: Path, after: str, is_reported: bool) -> None:
    notice = "\n\n[Session persistence truncated large content]"
    path = written(tmp_path, CHAIN[0], message("2", "1", "x" * 500_000 + notice + after))
    findings = {finding.rule.id for finding in examine(sessiontree.open(path, dialect="omp"))}
    assert ("cut-content" in findings) == is_reported


@pytest.mark.parametrize(
    ("folder", "dialect"),
    [(".claude/projects/x", "claude"), (".neovate/projects/x", "neovate"), (".omp/agent/sessions/x", "omp")],
)
def test_an_ambiguous_file_is_recognized_by_its_path(tmp_path: Path, folder: str, dialect: str) -> None:
    path = tmp_path / folder / "s.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"")
    assert sessiontree.open(path).dialect.name == dialect
