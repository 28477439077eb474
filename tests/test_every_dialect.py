"""Invariants for every file of every dialect in the corpus."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import sessiontree
from sessiontree.core.lines import iter_lines
from sessiontree.repair import examine, plan_repair

CORPUS = [path for path in sorted((Path(__file__).parent / "corpus").rglob("*.jsonl")) if path.stat().st_size]
FILES = [pytest.param(path, id=f"{path.parent.name}-{path.stem}") for path in CORPUS]

FACTS: dict[str, tuple[str, str, int, tuple[str, ...], tuple[str, ...]]] = {
    "claude-01_plain": ("1b88aea4-8489-48a5-8c8b-b8076b936dfe", "2026-11-15T06:30:17.526Z", 1, (), ()),
    "claude-02_one_tool": ("574648dc-39a1-41d9-9dca-089959f57c83", "2026-11-15T06:30:19.391Z", 2, (), ()),
    "claude-03_parallel": ("549a0d89-931f-4f33-9c5e-e0dc90c0e1ac", "2026-11-15T06:30:23.164Z", 2, (), ()),
    "claude-05_parallel_then_resume": ("818bba66-63a0-41c9-8984-4c53fa1ec5d1", "2026-11-15T06:30:29.947Z", 4, (), ()),
    "claude-08_subagent": ("84e0b8b5-4c81-474f-91d3-0166a982170b", "2026-11-15T06:30:37.063Z", 2, (), ()),
    "claude-10_big_output": ("2f6561bb-e8a1-40f0-9440-b537cc249040", "2026-11-15T06:30:42.169Z", 2, (), ()),
    "claude-12_compacted": ("95bbefa1-e010-48e5-b7bd-29f50598cfb9", "2026-11-15T06:31:41.355Z", 4, (), ()),
    "claude-15_interactive_rewind_rename_bash": (
        "4cec2d42-5a0a-4808-bcbd-03862fbd8474",
        "2026-11-15T06:57:00.174Z",
        10,
        (),
        (),
    ),
    "claude-17_interactive_summarize_from_here": (
        "d4c53004-0867-49e9-960f-6e2a9fb17f50",
        "2026-11-15T06:59:49.357Z",
        8,
        (),
        (),
    ),
    "claude-20_interactive_branch_copy": (
        "51326e13-3a61-4503-947e-464890337cdc",
        "2026-11-15T07:01:48.896Z",
        6,
        (),
        (),
    ),
    "claude-22_interactive_interrupted": (
        "e6c5f362-21bc-466e-b6e6-cb4d6e3811b7",
        "2026-11-15T07:02:55.552Z",
        2,
        (),
        (),
    ),
    "claude-24_sdk_fork_session": ("c2408f10-83bf-4bd8-a085-eae18f46a538", "2026-11-15T07:03:48.130462Z", 5, (), ()),
    "claude-26_pi_converted": ("be4d8a02-0d7a-5f9c-9504-aa21a1f88425", "2026-01-02T03:00:09.000Z", 0, (), ()),
    "claude-rules-A1-kept-stretch-summary-is-last": (
        "180f7898-eaa8-5511-8cd3-e49e5b14738c",
        "2026-10-01T00:00:04.200Z",
        2,
        (),
        (),
    ),
    "claude-rules-A4b-duplicate-line-dead-end": (
        "180f7898-eaa8-5511-8cd3-e49e5b14738c",
        "2026-10-01T00:00:02.100Z",
        3,
        (),
        (),
    ),
    "claude-rules-A5-parallel-calls-open-at-the-end": (
        "aa569953-e4dc-5dc4-9351-71c2c9b07c11",
        "2026-10-01T00:00:02.800Z",
        1,
        ("toolu_t2",),
        (),
    ),
    "claude-rules-A6-pin-before-boundary": (
        "b0276ced-2bf4-5fb2-b4af-0e340d79f912",
        "2026-10-01T00:00:05.600Z",
        3,
        (),
        (),
    ),
    "claude-rules-A6-real-2.1.150-auto-compacted-then-killed": (
        "f4487848-64a8-4060-b417-ca0e2e745590",
        "2026-11-16T06:49:48.993Z",
        8,
        ("toolu_01f4fd5eaddee645b4be9b39",),
        (),
    ),
    "claude-rules-A8-earlier-boundary-kept": (
        "5da89ce1-999d-560f-b06f-e22ab55d1047",
        "2026-10-01T00:00:08.400Z",
        4,
        (),
        (),
    ),
    "claude-rules-C3-real-compacted-then-sessiontree-branch-append": (
        "2feb84a3-bb07-44d8-899f-54fc4705f453",
        "2026-11-16T07:40:47.346Z",
        4,
        (),
        (),
    ),
    "neovate-blank_lines": ("b", "2026-01-01T00:00:00.000Z", 0, (), ()),
    "neovate-branch_fork_lines": ("b", "2026-01-01T00:00:00.000Z", 1, (), ()),
    "neovate-child_before_parent": ("c", "2026-01-01T00:00:00.000Z", 1, (), ()),
    "neovate-config_first": ("b", "2026-01-01T00:00:00.000Z", 1, (), ()),
    "neovate-cycle": ("b", "2026-01-01T00:00:00.000Z", 0, (), ()),
    "neovate-fork": ("f", "2026-01-01T00:00:00.000Z", 3, (), ()),
    "neovate-images": ("c", "2026-01-01T00:00:00.000Z", 1, (), ()),
    "neovate-missing_parent": ("e", "2026-01-01T00:00:00.000Z", 0, (), ("d",)),
    "neovate-old_tool_result": ("d", "2026-01-01T00:00:00.000Z", 2, (), ()),
    "neovate-partial_two_tools": ("d", "2026-01-01T00:00:00.000Z", 1, (), ()),
    "neovate-spaces_line": ("b", "2026-01-01T00:00:00.000Z", 0, (), ()),
    "neovate-two_roots": ("d", "2026-01-01T00:00:00.000Z", 0, (), ()),
    "neovate-unmatched_middle": ("d", "2026-01-01T00:00:00.000Z", 2, (), ()),
    "pi-family-01_linear": ("4", "2026-02-16T10:00:04.000Z", 2, (), ()),
    "pi-family-03_branch_summary": ("6", "2026-02-16T10:00:06.000Z", 2, (), ()),
    "pi-family-05_branch_summary_root": ("6", "2026-02-16T10:00:04.000Z", 1, (), ()),
    "pi-family-07_compaction_multi": ("7", "2026-02-16T10:00:07.000Z", 2, (), ()),
    "pi-family-09_compaction_kept_is_self": ("4", "2026-02-16T10:00:04.000Z", 1, (), ()),
    "pi-family-11_compaction_on_other_branch": ("5", "2026-02-16T10:00:05.000Z", 2, (), ()),
    "pi-family-13_reset_before_compaction": ("5", "2026-02-16T10:00:06.000Z", 1, (), ()),
    "pi-family-15_bare_custom_message": ("3", "2026-02-16T10:00:03.000Z", 1, (), ()),
    "pi-family-17_models_roles": ("5", "2026-02-16T10:00:04.000Z", 1, (), ()),
    "pi-family-19_thinking": ("3", "2026-02-16T10:00:03.000Z", 1, (), ()),
    "pi-family-21_dangling_toolcall_leaf": ("2", "2026-02-16T10:00:02.000Z", 1, ("c1",), ()),
    "pi-family-23_aborted_turn": ("4", "2026-02-16T10:00:04.000Z", 2, (), ()),
    "pi-family-25_error_toolcall_turn": ("4", "2026-02-16T10:00:04.000Z", 1, (), ()),
    "pi-family-27_interrupted_thinking": ("4", "2026-02-16T10:00:04.000Z", 1, (), ()),
    "pi-family-29_self_parent": ("2", "2026-02-16T10:00:02.000Z", 1, (), ()),
    "pi-family-31_dup_ids": ("2", "2026-02-16T10:00:03.000Z", 1, (), ()),
    "pi-family-33_malformed_middle": ("4", "2026-02-16T10:00:03.000Z", 1, (), ()),
    "pi-family-35_no_final_newline": ("2", "2026-02-16T10:00:02.000Z", 1, (), ()),
    "pi-family-37_v1": ("93da5b01", "2026-02-16T10:00:05.000Z", 1, (), ()),
    "pi-family-39_version_99": ("2", "2026-02-16T10:00:02.000Z", 1, (), ()),
    "pi-family-41_title_slot": ("2", "2026-02-16T10:00:02.000Z", 1, (), ()),
    "pi-family-43_remote_compaction_replay_through": ("4", "2026-02-16T10:00:05.000Z", 1, (), ()),
    "pi-family-45_parent_empty_string": ("2", "2026-02-16T10:00:02.000Z", 1, (), ()),
    "pi-family-47_bash_python_filemention": ("6", "2026-02-16T10:00:06.000Z", 1, (), ()),
    "pi-family-49_model_usage_credential_title": ("si", "2026-02-16T10:00:03.000Z", 2, (), ()),
}
"""By file: current entry, last activity, number of requests, calls without a result, entries with a missing parent."""


@pytest.mark.parametrize("path", FILES)
def test_every_line_is_an_entry_the_header_or_a_fragment_byte_for_byte(path: Path) -> None:
    session = sessiontree.open(path)
    journal = session.journal
    data = path.read_bytes()
    kept = {raw.strip() for raw in journal.iter_raw(range(len(journal)))}
    kept |= {fragment.raw.strip() for fragment in session.fragments}
    if journal.header_span is not None:
        kept.add(data[journal.header_span.start : journal.header_span.end].strip())
    assert [line for _, line in iter_lines(data) if line.strip() and line.strip() not in kept] == []


@pytest.mark.parametrize("path", FILES)
def test_reading_a_file_in_every_way_changes_neither_its_bytes_nor_its_time(path: Path) -> None:
    before = path.read_bytes(), path.stat().st_mtime_ns, sorted(os.listdir(path.parent))
    session = sessiontree.open(path)
    session.context()
    list(session)
    examine(session)
    plan_repair(session)
    session.close()
    assert (path.read_bytes(), path.stat().st_mtime_ns, sorted(os.listdir(path.parent))) == before


@pytest.mark.parametrize("path", FILES)
def test_the_facts_needed_to_resume_a_session(path: Path) -> None:
    session = sessiontree.open(path)
    leaf, last_activity, requests, pending, orphans = FACTS[f"{path.parent.name}-{path.stem}"]
    assert session.leaf == leaf == session.path_ids()[-1]
    assert session.usage().requests == requests
    assert tuple(call.id for call in session.pending_calls()) == pending
    assert tuple(session.orphans()) == orphans
    assert session.last_activity == last_activity


def test_a_claude_transcript_has_folder_model_and_the_usage_of_each_response_once() -> None:
    session = sessiontree.open(next(path for path in CORPUS if path.stem == "03_parallel"))
    shards = [entry for entry in session if getattr(getattr(entry, "message", None), "response_id", None)]
    responses = {entry.message.response_id for entry in shards}  # type: ignore[union-attr]
    assert len(shards) > len(responses)
    assert session.usage().requests == len(responses)
    assert session.cwd
    assert session.context().state.model is not None
