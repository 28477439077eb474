"""A session that was converted to Claude Code has the entries of its source, each at its place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from acceptance import trees

import sessiontree
from sessiontree import Session
from sessiontree.conversion.convert import BranchChoice
from sessiontree.conversion.install import Request, carry_out, make_plan
from sessiontree.conversion.walk import iter_entries
from sessiontree.core.jsonio import render_json
from sessiontree.dialects.contract import AS_CLIENT
from sessiontree.providers import render
from sessiontree.repair import examine
from sessiontree.session.open import open_store
from sessiontree.stores.memory import MemoryStore

USAGE = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 0}
HEADER = {"type": "session", "version": 3, "id": "019c0000-0000-7000-8000-000000000001", "cwd": "/tmp"}


def pi_session(path: Path, entries: Sequence[dict[str, Any]]) -> Session:
    lines = [{**HEADER, "timestamp": "2026-02-16T10:00:00.000Z"}]
    lines += [{"timestamp": f"2026-02-16T10:00:{at:02}.000Z", **entry} for at, entry in enumerate(entries)]
    path.write_bytes(b"".join(render_json(line) + b"\n" for line in lines))
    return sessiontree.open(path, dialect="pi")


def entry(id: str, parent: str | None, **message: Any) -> dict[str, Any]:
    return {"type": "message", "id": id, "parentId": parent, "message": message}


def user(id: str, parent: str | None, text: str) -> dict[str, Any]:
    return entry(id, parent, role="user", content=text)


def system(id: str, parent: str | None, text: str) -> dict[str, Any]:
    return entry(id, parent, role="system", content=text)


def answer(id: str, parent: str | None, *blocks: dict[str, Any]) -> dict[str, Any]:
    return entry(
        id, parent, role="assistant", provider="p", model="m", usage=USAGE, stopReason="toolUse", content=list(blocks)
    )


def call(id: str) -> dict[str, Any]:
    return {"type": "toolCall", "id": id, "name": "read", "arguments": {"path": "a"}}


def result(id: str, parent: str, of: str) -> dict[str, Any]:
    block = {"type": "text", "text": f"result of {of}"}
    return entry(id, parent, role="toolResult", toolCallId=of, toolName="read", content=[block], isError=False)


def compaction(id: str, parent: str, first: str) -> dict[str, Any]:
    fields = {"summary": "so far", "tokensBefore": 1, "firstKeptEntryId": first}
    return {"type": "compaction", "id": id, "parentId": parent, **fields}


# System messages have no line type in Claude Code, which puts results next to their calls.
LATE_RESULT = [
    user("aaaaaaa1", None, "read it"),
    answer("aaaaaaa2", "aaaaaaa1", call("call_1")),
    user("aaaaaaa3", "aaaaaaa2", "in the meantime"),
    compaction("aaaaaaa8", "aaaaaaa3", "aaaaaaa3"),
    system("aaaaaaa4", "aaaaaaa8", "before the result"),
    result("aaaaaaa5", "aaaaaaa4", "call_1"),
    system("aaaaaaa6", "aaaaaaa5", "after the result"),
    user("aaaaaaa7", "aaaaaaa6", "go on"),
]


def converted(session: Session, folder: Path, branch: BranchChoice = "all") -> Session:
    return carry_out(session, make_plan(session, Request("claude", branch=branch, out=str(folder / "copy.jsonl"))))


def links(session: Session, *, all_branches: bool = True) -> list[tuple[str, str | None]]:
    entries = iter_entries(session, session.leaf, all_branches=all_branches)
    return sorted((found.id, parent) for found, parent in entries)


def sent(session: Session, end: str | None) -> list[dict[str, Any]]:
    return list(render(session.context(end).messages, "anthropic").messages)


def test_entries_around_a_late_result_stay_where_they_are(tmp_path: Path) -> None:
    session = pi_session(tmp_path / "pi.jsonl", LATE_RESULT)
    copy = converted(session, tmp_path)
    assert links(copy) == links(session)
    back = carry_out(copy, make_plan(copy, Request("pi", out=str(tmp_path / "back.jsonl"))))
    assert sent(back, back.leaf) == sent(session, session.leaf)


def test_a_late_result_on_one_branch_is_not_on_another(tmp_path: Path) -> None:
    other = [user("bbbbbbb1", "aaaaaaa3", "another branch"), user("bbbbbbb2", "bbbbbbb1", "its end")]
    session = pi_session(tmp_path / "pi.jsonl", [*LATE_RESULT[:3], *other, *LATE_RESULT[3:]])
    copy = converted(session, tmp_path)
    assert links(copy) == links(session)
    back = carry_out(copy, make_plan(copy, Request("pi", branch="all", out=str(tmp_path / "back.jsonl"))))
    assert sent(back, "bbbbbbb2") == sent(session, "bbbbbbb2")


def test_roots_follow_only_their_own_entries(tmp_path: Path) -> None:
    entries = [
        system("aaaaaaa1", None, "of the first root"),
        user("aaaaaaa2", "aaaaaaa1", "first"),
        system("bbbbbbb1", None, "of the second root"),
        user("bbbbbbb2", "bbbbbbb1", "second"),
        user("ccccccc1", None, "third"),
    ]
    session = pi_session(tmp_path / "pi.jsonl", entries)
    assert links(converted(session, tmp_path)) == links(session)


def test_the_tool_of_a_late_result_is_known_on_every_branch(tmp_path: Path) -> None:
    other = [user("bbbbbbb1", "aaaaaaa3", "another branch")]
    session = pi_session(tmp_path / "pi.jsonl", [*LATE_RESULT[:3], *other, *LATE_RESULT[3:]])
    copy = converted(session, tmp_path)
    found = {each.id: each.fields.get("message") for each, _ in iter_entries(copy, copy.leaf, all_branches=True)}
    message = found["aaaaaaa5"]
    assert isinstance(message, dict)
    assert message["toolName"]


def test_a_converted_session_can_be_continued(tmp_path: Path) -> None:
    session = pi_session(tmp_path / "pi.jsonl", LATE_RESULT)
    copy = converted(session, tmp_path)
    copy.append("user", "one more")
    *before, last = [found for found, _ in iter_entries(copy, copy.leaf, all_branches=False)]
    assert [found.id for found in before] == [each["id"] for each in LATE_RESULT]
    assert last.fields["message"]["content"] == "one more"


def test_a_fork_of_one_branch_has_its_entries_and_its_context(tmp_path: Path) -> None:
    entries = [
        *LATE_RESULT[:2],
        user("bbbbbbb1", "aaaaaaa2", "another branch"),
        user("bbbbbbb2", "bbbbbbb1", "its end"),
        result("ccccccc1", "aaaaaaa2", "call_1"),
        system("ccccccc2", "ccccccc1", "after the result"),
        user("ccccccc3", "ccccccc2", "go on"),
    ]
    session = pi_session(tmp_path / "pi.jsonl", entries)
    copy = converted(session, tmp_path)
    ends = [id for id in copy.leaves() if "its end" in str(copy.entry(id))]
    for end in (copy.leaf, *ends):
        fork = copy.fork(end)
        assert not fork.problems
        assert fork.context().messages == copy.context(end).messages
        expected = [found.id for found, _ in iter_entries(copy, end, all_branches=False)]
        assert [found.id for found, _ in iter_entries(fork, fork.leaf, all_branches=False)] == expected


@pytest.mark.parametrize("seed", [1063, 1145])
def test_a_fork_takes_along_late_results_of_other_branches(tmp_path: Path, seed: int) -> None:
    (tmp_path / "pi.jsonl").write_bytes(trees.generate(seed))
    copy = converted(sessiontree.open(tmp_path / "pi.jsonl", dialect="pi"), tmp_path)
    for end in copy.leaves():
        fork = copy.fork(end)
        assert not fork.problems
        assert fork.context().messages == copy.context(end).messages


@pytest.mark.parametrize("generate", trees.GENERATORS.values(), ids=trees.GENERATORS)
def test_histories_of_conversions_by_links_are_those_by_walks(generate: Callable[[int], bytes]) -> None:
    linked = 0
    for seed in range(60):
        session = open_store(MemoryStore(generate(seed)))
        lines = b"".join(sessiontree.convert(session, "claude", branch="all").lines)
        copy = open_store(MemoryStore(lines), dialect="claude")
        for _ in range(2):
            links = copy.dialect.find_history_links(copy.journal, AS_CLIENT)
            linked += links is not None
            for node in copy.journal.tree.leaves() if links is not None else ():
                history = copy.dialect.find_history(copy.journal, node, AS_CLIENT)
                assert not history or links.history(node) == history, (seed, node)
            copy.append("user", "one more")
    assert linked > 10


def test_entries_after_a_message_that_an_edit_removed_are_kept_at_the_end(tmp_path: Path) -> None:
    thinking = {"type": "thinking", "thinking": "of another model"}
    edit = {"type": "context_edit", "id": "00000004", "parentId": "00000003", "targetId": "00000002"}
    session = pi_session(
        tmp_path / "pi.jsonl",
        [
            user("00000001", None, "First."),
            user("00000002", "00000001", "Removed."),
            answer("00000003", "00000002", thinking),
            {**edit, "replacement": None},
        ],
    )
    copy = converted(session, tmp_path, "active")
    assert links(copy, all_branches=False) == links(session, all_branches=False)


NOT_CONVERTED = (
    {"type": "leaf", "id": "2", "parentId": "1", "targetId": "1"},
    {"type": "custom", "id": "2", "parentId": "1", "customType": "sessiontree.conversion", "data": {}},
)


@pytest.mark.parametrize("target", ["pi", "omp", "native"])
@pytest.mark.parametrize("first", NOT_CONVERTED, ids=lambda line: line["type"])
def test_a_compaction_that_keeps_from_an_entry_that_is_not_converted_keeps_from_the_next_one(
    tmp_path: Path, first: dict[str, Any], target: str
) -> None:
    compaction = {"type": "compaction", "id": "5", "parentId": "4", "summary": "S", "tokensBefore": 1}
    lines = [user("1", None, "one"), first, user("3", "2", "two"), user("4", "3", "three")]
    source = pi_session(tmp_path / "source.jsonl", [*lines, {**compaction, "firstKeptEntryId": "2"}])
    copy = carry_out(source, make_plan(source, Request(target, out=str(tmp_path / "copy.jsonl"))))
    assert copy.context().sources == source.context().sources == ("5", "3", "4")
    assert copy.fields("5")["firstKeptEntryId"] == "3"
    assert examine(copy) == []


@pytest.mark.parametrize("target", ["pi", "omp", "native"])
@pytest.mark.parametrize("kept", ["nowhere", "6", ["1"]], ids=str)
def test_a_compaction_that_keeps_from_an_entry_off_its_path_keeps_nothing_in_a_copy(
    tmp_path: Path, kept: object, target: str
) -> None:
    compaction = {"type": "compaction", "id": "5", "parentId": "1", "summary": "S", "tokensBefore": 1}
    lines = [user("1", None, "one"), user("6", None, "other"), {**compaction, "firstKeptEntryId": kept}]
    source = pi_session(tmp_path / "source.jsonl", [*lines, user("7", "5", "two")])
    plan = make_plan(source, Request(target, branch="all", out=str(tmp_path / "copy.jsonl")))
    copy = carry_out(source, plan)
    assert copy.context().sources == source.context().sources == ("5", "7")
    assert "dangling-bound" not in {finding.rule.id for finding in examine(copy)}
