"""Codex: rollbacks, compactions, compressed and paginated files, problems and repairs, as measured with 0.166."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import zstandard

import sessiontree
from sessiontree.errors import ReadOnlyError, UsageError
from sessiontree.library.aggregate import build_statistics, select_sessions
from sessiontree.repair import carry_out, examine, plan_repair
from sessiontree.views.listing import describe_summary
from tests.dialects.goldens import copied, outline, sent_by_program
from tests.library.world import World

TIME = "2026-11-16T07:18:13.000Z"
THREAD = "019c0001-0000-7000-8000-000000000001"
Lines = list[dict[str, Any]]


def line(kind: str, payload: dict[str, Any]) -> dict[str, Any]:
    return {"timestamp": TIME, "type": kind, "payload": payload}


def item(role: str, text: str) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def said(*texts: str) -> Lines:
    """Prompts and answers in turns."""
    return [line("response_item", item("assistant" if at % 2 else "user", text)) for at, text in enumerate(texts)]


def turn(*lines: dict[str, Any]) -> Lines:
    return [line("event_msg", {"type": "task_started", "turn_id": "t"}), *lines]


def compacted(*texts: str) -> dict[str, Any]:
    return line("compacted", {"message": texts[-1], "replacement_history": [item("user", text) for text in texts]})


def rollback(turns: int) -> dict[str, Any]:
    return line("event_msg", {"type": "thread_rolled_back", "num_turns": turns})


def header(**fields: Any) -> dict[str, Any]:
    base = {"id": THREAD, "timestamp": TIME, "cwd": "/work", "originator": "x", "cli_version": "0.166.0"}
    return line("session_meta", {**base, "source": "cli", **fields})


def rollout(lines: Lines, **fields: Any) -> bytes:
    return b"".join(json.dumps(each).encode() + b"\n" for each in [header(**fields), *lines])


def numbered(lines: Lines) -> bytes:
    made = [header(history_mode="paginated"), *lines]
    return b"".join(
        json.dumps({"timestamp": TIME, "ordinal": at, **each}).encode() + b"\n" for at, each in enumerate(made)
    )


def written(folder: Path, data: bytes) -> Path:
    path = folder / f"rollout-2026-11-16T07-18-13-{THREAD}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def texts(session: sessiontree.Session) -> list[str]:
    return [found[2] for found in outline(session) if found[1] == "text"]


CASES: dict[str, tuple[Lines, list[str]]] = {
    "the last turn is removed": ([*said("1", "a1", "2", "a2"), rollback(1), *said("3")], ["1", "a1", "3"]),
    "what precedes the first turn stays": (
        [line("response_item", item("user", "<turn_aborted>x")), *said("1", "a1"), rollback(9)],
        ["<turn_aborted>x"],
    ),
    "a compaction in a removed turn is removed": (
        [*turn(*said("1", "a1")), *turn(compacted("1", "S"), *said("2", "a2")), rollback(1)],
        ["1", "a1"],
    ),
    "a rollback may go back beyond a compaction": (
        [
            *turn(*said("1", "a1")),
            *turn(*said("2", "a2")),
            *turn(compacted("1", "2", "S"), *said("3", "a3")),
            rollback(2),
            *turn(*said("4", "a4")),
        ],
        ["1", "a1", "4", "a4"],
    ),
    "each prompt of a turn counts": (
        [*turn(*said("1", "a1")), *turn(*said("2", "a2", "steer", "a3")), rollback(1), *said("3")],
        ["1", "a1", "2", "a2", "3"],
    ),
    "a text inserted before a removed turn is removed": (
        [*said("1", "a1"), line("response_item", item("user", "<turn_aborted>x")), *said("2", "a2"), rollback(1)],
        ["1", "a1"],
    ),
    "an old compaction keeps the prompts and the summary": (
        [*said("1", "a1", "2", "a2"), line("compacted", {"message": "S"}), *said("3", "a3")],
        ["1", "2", "S", "3", "a3"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_rollbacks_and_compactions_are_applied_as_codex_does(case: str, tmp_path: Path) -> None:
    lines, expected = CASES[case]
    assert texts(sessiontree.open(written(tmp_path, rollout(lines)))) == expected


def test_removed_turns_are_a_branch_of_their_own(tmp_path: Path) -> None:
    lines = [*said("1", "a1", "2", "a2"), rollback(1), *said("3", "a3")]
    session = sessiontree.open(written(tmp_path, rollout(lines)))
    removed = session.ids[3]
    assert [message.text for message in session.context(removed).messages] == ["1", "a1", "2", "a2"]
    parents = session.dialect.layout_columns(session.journal).parents
    assert parents[5] == 1


def test_calls_without_an_output_get_one_and_outputs_without_a_call_are_left_out(tmp_path: Path) -> None:
    call = {"type": "function_call", "name": "f", "arguments": "{}", "call_id": "c1"}
    stray = {"type": "function_call_output", "call_id": "c9", "output": "lost"}
    lines = [*said("1"), line("response_item", call), line("response_item", stray), *said("2")]
    session = sessiontree.open(written(tmp_path, rollout(lines)))
    assert outline(session)[1:3] == [("assistant", "call", "c1", "f", {}), ("tool", "result", "c1", "aborted")]
    assert "orphan-tool-result" in {finding.rule.id for finding in examine(session)}


def test_a_call_and_its_output_belong_together_if_their_id_has_a_space(tmp_path: Path) -> None:
    call = {"type": "function_call", "name": "f", "arguments": "{}", "call_id": "call 1"}
    output = {"type": "function_call_output", "call_id": "call 1", "output": "done"}
    lines = [*said("1"), line("response_item", call), line("response_item", output), *said("2")]
    session = sessiontree.open(written(tmp_path, rollout(lines)))
    assert outline(session)[1:3] == [("assistant", "call", "call 1", "f", {}), ("tool", "result", "call 1", "done")]
    assert len(outline(session)) == 4


def test_the_clients_preamble_is_neither_sent_nor_a_prompt(tmp_path: Path) -> None:
    context = line("response_item", item("user", "<environment_context>\n<cwd>/x</cwd>"))
    lines = [line("response_item", item("developer", "<permissions instructions>")), context, *said("1", "a1")]
    session = sessiontree.open(written(tmp_path, rollout(lines)))
    assert texts(session) == ["1", "a1"]


def test_usage_that_two_lines_report_counts_once(tmp_path: Path) -> None:
    tokens = {"input_tokens": 100, "cached_input_tokens": 40, "output_tokens": 20, "total_tokens": 120}
    total = {**tokens, "total_tokens": 500}
    record = line("token_usage_record", {"usage": tokens, "thread_token_usage": total})
    event = line("event_msg", {"type": "token_count", "info": {"last_token_usage": tokens, "total_token_usage": total}})
    session = sessiontree.open(written(tmp_path, rollout([*said("1", "a1"), record, event, event])))
    usage = session.usage()
    assert (usage.requests, usage.input, usage.cached, usage.output) == (1, 60, 40, 20)


def test_usage_belongs_to_the_model_of_its_turn(tmp_path: Path) -> None:
    def used(total: int) -> dict[str, Any]:
        info = {
            "last_token_usage": {"input_tokens": 10, "output_tokens": 5},
            "total_token_usage": {"total_tokens": total},
        }
        return line("event_msg", {"type": "token_count", "info": info})

    def settings(model: str) -> dict[str, Any]:
        return line("turn_context", {"model": model})

    first = [settings("model-a"), *said("1", "a1"), used(15), used(30)]
    world = World(tmp_path)
    path = world.put(f".codex/sessions/2026/01/01/rollout-2026-01-01T00-00-00-{THREAD}.jsonl", rollout(first))
    with world.library() as library:
        (summary,) = library.everything()
        assert summary.model == "model-a"
    with path.open("ab") as file:  # the counts of what was there are extended
        for added in [*said("2", "a2"), used(45), settings("model-b"), *said("3", "a3"), used(60)]:
            file.write(json.dumps(added).encode() + b"\n")
    with world.library() as library:
        (summary,) = library.everything()
        found = {one.model: (one.input, one.output) for one in summary.unpriced}
        assert (summary.model, found) == ("model-b", {"model-a": (30, 15), "model-b": (10, 5)})
        statistics = build_statistics(library, select_sessions(library), by="model")
        assert {group.key: group.numbers.requests for group in statistics.groups} == {"model-a": 3, "model-b": 1}
    usage = sessiontree.open(path).usage()
    assert {one.model: one.input for one in usage.unpriced} == {"model-a": 30, "model-b": 10}


# Storage


def test_a_compressed_rollout_is_read_without_writing_beside_it(tmp_path: Path) -> None:
    data = rollout(said("1", "a1"))
    path = written(tmp_path, data).with_suffix(".jsonl.zst")
    path.with_suffix("").unlink()
    path.write_bytes(zstandard.compress(data))
    session = sessiontree.open(path)
    assert (session.dialect.name, session.id, texts(session)) == ("codex", THREAD, ["1", "a1"])
    assert list(tmp_path.iterdir()) == [path]


def test_a_compressed_origin_of_a_fork_is_found(tmp_path: Path) -> None:
    path = copied("codex", "06-fork", tmp_path)
    (origin,) = (other for other in tmp_path.glob("*.jsonl") if other != path)
    origin.with_suffix(".jsonl.zst").write_bytes(zstandard.compress(origin.read_bytes()))
    origin.unlink()
    assert outline(sessiontree.open(path)) == sent_by_program("codex", "06-fork")


def test_a_header_longer_than_the_beginning_of_the_file_is_read(tmp_path: Path) -> None:
    long = {"base_instructions": {"text": "x" * 200_000}}
    assert sessiontree.open(written(tmp_path, rollout(said("1", "a1"), **long))).id == THREAD


def test_the_headers_of_a_legacy_fork_are_no_problem(tmp_path: Path) -> None:
    other = header(id="019c0001-0000-7000-8000-000000000002")
    session = sessiontree.open(written(tmp_path, rollout([other, *said("1", "a1")], forked_from_id="x")))
    assert (session.id, session.problems) == (THREAD, [])


# Writing


def test_a_legacy_rollout_can_be_continued(tmp_path: Path) -> None:
    path = written(tmp_path, rollout(said("1", "a1")))
    before = path.read_bytes()
    session = sessiontree.open(path)
    session.append("user", "2")
    assert path.read_bytes().startswith(before)
    assert texts(sessiontree.open(path)) == ["1", "a1", "2"]
    assert b'"user_message"' in path.read_bytes()


def test_a_paginated_rollout_is_never_changed_and_the_refusal_offers_a_copy(tmp_path: Path) -> None:
    path = copied("codex", "01-plain", tmp_path)
    before = path.read_bytes()
    session = sessiontree.open(path)
    with pytest.raises(ReadOnlyError, match="sessiontree fork"):
        session.append("user", "2")
    forked = session.fork()
    forked.append("user", "after the fork")
    assert path.read_bytes() == before
    assert texts(sessiontree.open(forked.location))[-1] == "after the fork"
    assert b'"ordinal"' not in Path(forked.location).read_bytes()
    assert outline(forked)[:-1] == outline(session)


def test_branches_are_refused(tmp_path: Path) -> None:
    session = sessiontree.open(written(tmp_path, rollout(said("1", "a1"))))
    with pytest.raises(UsageError, match="no branches"):
        session.move(session.ids[0])


# Problems


def findings(path: Path) -> dict[str, str]:
    return {finding.rule.id: finding.cost for finding in examine(sessiontree.open(path))}


def test_doctor_names_duplicate_and_missing_ordinals_and_their_effect(tmp_path: Path) -> None:
    lines = numbered(said("1", "a1", "2", "a2")).splitlines(keepends=True)
    path = written(tmp_path, b"".join([*lines[:3], lines[2], lines[4]]))
    found = findings(path)
    assert found["duplicate-ordinal"] == "ordinal 2 after 2: its message is sent twice"
    assert found["missing-ordinal"] == "ordinal 3 missing: what was there is not sent"


def test_doctor_names_a_last_line_without_an_ordinal_and_a_header_that_codex_refuses(tmp_path: Path) -> None:
    data = numbered(said("1", "a1")) + json.dumps(said("2")[0]).encode() + b"\n"
    assert "cannot be resumed" in findings(written(tmp_path, data))["no-ordinal"]
    path = written(tmp_path, rollout(said("1", "a1"), originator=None))
    assert findings(path)["refused-header"] == "the header lacks originator"


def test_doctor_accepts_a_converted_session_whose_folder_is_unknown(tmp_path: Path) -> None:
    source = sessiontree.create(cwd="/src", in_memory=True)
    source.append("user", "hello")
    path = written(tmp_path, b"".join(sessiontree.convert(source, "codex", cwd="").lines))
    assert sessiontree.open(path).cwd == ""
    assert findings(path) == {}


def test_a_repair_writes_a_new_thread_and_leaves_the_file_unchanged(tmp_path: Path) -> None:
    lines = numbered(said("1", "a1", "2", "a2")).splitlines(keepends=True)
    damaged = b"".join([*lines[:3], lines[2], lines[3][:-1], lines[4], b'{"torn'])
    path = written(tmp_path / "sessions", damaged)
    session = sessiontree.open(path)
    plan = plan_repair(session)
    assert {change.rule for change in plan.changes} >= {"duplicate-ordinal", "fused-records", "torn-tail"}
    made, _, backup = carry_out(plan, session, str(tmp_path / "repaired.jsonl"))
    repaired = sessiontree.open(made)
    assert (path.read_bytes(), backup) == (damaged, None)
    assert texts(repaired) == ["1", "a1", "2", "a2"]
    assert repaired.id != THREAD
    assert [finding.rule.id for finding in examine(repaired) if finding.severity != "note"] == []


def test_a_healthy_rollout_needs_no_repair(tmp_path: Path) -> None:
    assert plan_repair(sessiontree.open(copied("codex", "05-compaction", tmp_path))).is_empty


# The library


def test_threads_have_their_names_and_sub_agents_are_below_their_parent(tmp_path: Path) -> None:
    world = World(tmp_path)
    folder = Path(".codex/sessions/2026/11/16")
    child = "019c0001-0000-7000-8000-000000000002"
    spawned = {"subagent": {"thread_spawn": {"parent_thread_id": THREAD, "depth": 1}}}
    world.put(folder / f"rollout-2026-11-16T07-18-13-{THREAD}.jsonl", rollout(said("1", "a1")))
    world.put(folder / f"rollout-2026-11-16T07-19-13-{child}.jsonl", rollout(said("s", "t"), id=child, source=spawned))
    names = [{"id": THREAD, "thread_name": "old"}, {"id": THREAD, "thread_name": "The name"}]
    world.put(".codex/session_index.jsonl", names)
    with world.library() as library:
        library.refresh()
        found = {summary.id: summary for summary in library.everything()}
    assert (found[THREAD].title, found[THREAD].named, found[THREAD].model) == ("The name", True, found[THREAD].model)
    assert (found[child].kind, found[child].parent) == ("subagent", found[THREAD].ref)


def test_after_a_revert_the_id_means_the_newest_file(tmp_path: Path) -> None:
    world = World(tmp_path)
    folder = Path(".codex/sessions/2026/11/16")
    world.put(folder / f"rollout-2026-11-16T07-18-13-{THREAD}.jsonl", rollout(said("1", "a1")))
    newest = world.put(
        folder / f"rollout-2026-11-16T08-18-13-{THREAD}_019c0001-0000-7000-8000-00000000000f.jsonl",
        rollout(said("2", "a2")),
    )
    with world.library() as library:
        library.refresh()
        assert [summary.ref for summary in library.everything() if summary.id == THREAD] == [str(newest)]


def test_the_history_of_prompts_is_imported(tmp_path: Path) -> None:
    from sessiontree.dialects.codex.client import parse_prompts

    (found,) = parse_prompts(json.dumps({"session_id": THREAD, "ts": 1763000000, "text": "hello"}).encode())
    assert (found.text, found.session, found.time) == ("hello", THREAD, 1763000000000)


def test_a_fork_of_an_archived_thread_is_among_the_threads_that_codex_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "elsewhere"))
    path = written(tmp_path / ".codex" / "archived_sessions", rollout(turn(*said("one", "two"))))
    before = path.read_bytes()
    forked = sessiontree.open(path).fork()
    place = Path(forked.location).relative_to(tmp_path / ".codex" / "sessions")
    assert len(place.parts) == 4  # year, month, day and name
    assert outline(forked) == outline(sessiontree.open(path))
    assert path.read_bytes() == before
    assert [*path.parent.iterdir()] == [path]
    again = forked.fork()
    assert Path(again.location).parent == Path(forked.location).parent


def test_the_cost_of_a_thread_is_unknown_and_never_zero(tmp_path: Path) -> None:
    used = {"input_tokens": 1000, "cached_input_tokens": 0, "output_tokens": 20, "total_tokens": 1020}
    count = line("event_msg", {"type": "token_count", "info": {"last_token_usage": used, "total_token_usage": used}})
    world = World(tmp_path)
    world.put(
        f".codex/sessions/2026/11/16/rollout-2026-11-16T07-18-13-{THREAD}.jsonl",
        rollout([*turn(*said("one", "two")), count]),
    )
    with world.library() as library:
        (found,) = library.sessions()
    assert found.tokens_in == 1000
    described = describe_summary(found)
    assert (described["cost"], described["estimatedCost"], described["costKind"]) == (None, None, "unknown")
