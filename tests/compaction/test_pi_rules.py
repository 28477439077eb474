"""Cut points and token counts equal those of Pi 1.5.0: its answers case by case, and the assertions of its tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sessiontree.compaction import prepare
from sessiontree.compaction.context_units import Unit, build_units
from sessiontree.compaction.cut_point import find_cut, parts_at
from sessiontree.compaction.prompts import conversation_text
from sessiontree.compaction.strategies import RECENT
from sessiontree.core.entries import BranchSummary
from sessiontree.core.messages import (
    Assistant,
    BashExecution,
    CustomText,
    Message,
    Text,
    ToolCall,
    ToolResult,
    User,
    message_text,
)
from tests.compaction.pi_cases import ANSWERS, all_cases, checksum
from tests.compaction.sessions import pi_session

_FILE = json.loads(Path(__file__).with_name(ANSWERS).read_text())
_CASES = all_cases()
_BOTH = list(zip(_CASES, _FILE["answers"], strict=True))


def seconds(messages: Any) -> list[int]:
    return [(message.timestamp - 1_700_000_000_000) // 1000 for message in messages]


def test_the_answers_belong_to_these_cases() -> None:
    assert checksum(_CASES) == _FILE["checksum"]
    assert sum(answer is not None for answer in _FILE["answers"]) > 200


@pytest.mark.parametrize("number", range(0, len(_BOTH), 20))
def test_cuts_candidates_split_turns_and_sums_equal_pis(number: int) -> None:
    for case, wanted in _BOTH[number : number + 20]:
        session = pi_session(case.entries)
        plan = prepare(session, session.leaf, keep=case.keep, strategy=RECENT)
        if wanted is None:
            assert plan is None
            continue
        assert plan is not None
        assert plan.first_kept == wanted["firstKept"]
        assert plan.is_split_turn == wanted["split"]
        assert plan.tokens_before == wanted["before"]
        assert plan.previous_summary == wanted["previous"]
        assert seconds(plan.summarized) == wanted["summarised"]
        assert seconds(plan.turn_prefix) == wanted["prefix"]
        if not any(isinstance(entry, BranchSummary) for entry in session.path()):
            assert [list(plan.files.read), list(plan.files.modified)] == wanted["files"]


# The assertions of Pi's own tests


def units(*messages: Message | None) -> list[Unit]:
    """Units with these messages; None is an entry without messages."""
    return [
        Unit(str(at), "message" if message else "label", () if message is None else (message,))
        for at, message in enumerate(messages)
    ]


def user(length: int = 40) -> User:
    return User(content="x" * length)


def answer(length: int = 40, *calls: str) -> Assistant:
    return Assistant(content=(Text("x" * length), *(ToolCall(id, "bash") for id in calls)))


def result(id: str, length: int = 40) -> ToolResult:
    return ToolResult(tool_call_id=id, content="x" * length)


@pytest.mark.parametrize(
    ("name", "made", "keep", "at", "turn_start"),
    [
        ("a single answer is kept", units(answer()), 1, 0, None),
        ("all of it fits", units(user(), answer(), user(), answer()), 20_000, 0, None),
        ("at a user message", units(user(), answer(), user(), answer()), 20, 2, None),
        ("at an answer, inside a turn", units(user(), answer(), user(), answer(4000)), 1000, 3, 2),
        ("never at a result", units(user(), answer(8, "a"), result("a", 4000)), 10, 1, 0),
        ("behind a result too large", units(user(), answer(8, "a"), result("a", 400), user()), 60, 3, None),
        ("a message of an extension starts a turn", units(user(), answer(), CustomText(content="x" * 80)), 20, 2, None),
        ("a command of the user starts a turn", units(user(), answer(), BashExecution(command="x" * 80)), 20, 2, None),
        ("labels before the cut stay with it", units(user(), answer(), None, None, user(80)), 20, 2, 0),
        ("entries of no tokens do not count", units(user(), answer(), user(), User(content="")), 10, 2, None),
        ("nothing one may cut at", units(result("a"), result("b")), 1, 0, None),
    ],
)
def test_the_cut(name: str, made: list[Unit], keep: int, at: int, turn_start: int | None) -> None:
    cut = find_cut(made, keep)
    assert cut is not None, name
    assert (cut.at, cut.turn_start) == (at, turn_start), name


def test_no_units_have_no_cut() -> None:
    assert find_cut([], 10) is None


def test_a_cut_never_separates_a_call_from_its_result() -> None:
    made = units(user(), answer(8, "a"), CustomText(content="x" * 400), result("a"), user(8))
    cut = find_cut(made, 50)
    assert cut is not None
    assert cut.at == 1


def test_a_reused_call_id_does_not_move_the_cut_back() -> None:
    made = units(user(), answer(8, "same"), result("same"), user(), answer(8, "same"), result("same"))
    cut = find_cut(made, 13)
    assert cut is not None
    assert cut.at == 4


def test_messages_that_the_first_compaction_kept_are_candidates_for_the_second() -> None:
    lines: list[dict[str, Any]] = []

    def add(kind: str, **fields: Any) -> None:
        parent = lines[-1]["id"] if lines else None
        stamp = f"2026-01-01T00:00:{len(lines):02}.000Z"
        lines.append({"type": kind, "id": f"e{len(lines)}", "parentId": parent, "timestamp": stamp, **fields})

    def say(role: str, content: str) -> None:
        add("message", message={"role": role, "content": content, "timestamp": len(lines)})

    say("user", "one " * 100)
    say("user", "two " * 100)
    add("compaction", summary="first summary", firstKeptEntryId="e1", tokensBefore=9, fromHook=False)
    session = pi_session(lines)
    assert prepare(session, session.leaf, keep=10, strategy=RECENT) is None  # already compacted
    say("user", "three")
    session = pi_session(lines)
    assert prepare(session, session.leaf, keep=1000, strategy=RECENT) is None  # the kept messages still fit
    plan = prepare(session, session.leaf, keep=1, strategy=RECENT)
    assert plan is not None
    assert plan.previous_summary == "first summary"
    assert [message_text(message)[:3] for message in plan.summarized] == ["two"]
    assert plan.first_kept == "e3"


def test_complete_turns_are_kept_and_the_last_one_at_any_size() -> None:
    made = units(user(), answer(), user(400), answer(8, "a"), result("a", 4000), answer())
    for keep, at in ((1, 2), (2000, 0), (1155, 0), (1129, 2)):
        cut = find_cut(made, keep, "turns")
        assert cut is not None
        assert (cut.at, cut.turn_start) == (at, None), keep


def test_nothing_is_kept_but_calls_that_wait_for_their_results() -> None:
    closed = units(user(), answer(8, "a"), result("a"), answer())
    waiting = units(user(), answer(8, "a", "b"), result("a"))
    gone_on = units(user(), answer(8, "a"), user())
    for made, at in ((closed, 4), (waiting, 1), (gone_on, 3)):
        cut = find_cut(made, 0, "nothing")
        assert cut is not None
        assert cut.at == at
        assert len(parts_at(made, cut).kept) == len(made) - at


def test_results_are_truncated_to_2000_characters_with_a_note_and_messages_never() -> None:
    long = "y" * 5000
    text = conversation_text([result("a", 5000), result("b", 10), User(content=long), Assistant(content=long)])
    assert "x" * 2000 + "\n[3000 more characters are not shown]" in text
    assert "x" * 2001 not in text
    assert text.count(long) == 2


def test_usage_counts_only_if_the_context_did_not_change_since() -> None:
    usage = {"input": 5000, "output": 100, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 0}
    assistant_message = {
        "role": "assistant",
        "content": [{"type": "text", "text": "x" * 40}],
        "usage": usage,
        "stopReason": "stop",
    }
    user_message = {"role": "user", "content": "x" * 40}

    def line(id: str, parent: str | None, kind: str, **fields: Any) -> dict[str, Any]:
        return {"type": kind, "id": id, "parentId": parent, "timestamp": "2026-01-01T00:00:00.000Z", **fields}

    conversation = [
        line("a", None, "message", message=user_message),
        line("b", "a", "message", message=assistant_message),
    ]
    more = line("c", "b", "message", message=user_message)
    edit = line("c", "b", "context_edit", targetId="a", replacement=None)
    for lines, tokens in ((conversation, 5100), ([*conversation, more], 5110), ([*conversation, edit], 10)):
        assert build_units(pi_session(lines), lines[-1]["id"]).size().tokens == tokens
    for change in ({"stopReason": "aborted"}, {"stopReason": "error"}, {"usage": None}, {"usage": {}}):
        lines = [conversation[0], line("b", "a", "message", message={**assistant_message, **change})]
        assert build_units(pi_session(lines), "b").size().tokens == 20
