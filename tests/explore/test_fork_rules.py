"""Automatic forks: what triggers one, where it starts, its prompt, and its limits."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import sessiontree
from sessiontree.agent.tools.base import Tools, load_tools
from sessiontree.core.messages import Usage, message_text
from sessiontree.errors import UsageError
from sessiontree.explore import Bounds, Exploration, Lane, LaneEvent, Rule, explore, resume
from sessiontree.explore.events import ForkedByRule, LaneEnded, LaneMade, LaneRefused
from sessiontree.explore.fork_rules import ForkRules, parse_opinion, trusted
from sessiontree.explore.records import Check, iter_records
from sessiontree.explore.state import find_exploration
from sessiontree.explore.worktrees import LaneWorktrees
from sessiontree.models import Model, ScriptedModel, ScriptTurn
from sessiontree.session.session import Session
from tests.agent.builders import child_process, is_alive, pid_in, wait_for
from tests.agent.runs import call, turn
from tests.explore.lanes import new_session
from tests.explore.repos import make_repository

ALWAYS = turn("I think it is done.", repeat=True)


def ran(
    session: Session, turns: list[ScriptTurn], *rules: Rule, hook: ForkRules | None = None, **more: Any
) -> tuple[Exploration, list[Any], ScriptedModel]:
    """Run one lane with a script under rules; returns the exploration, the events of lanes, and the model."""
    model = ScriptedModel(turns)
    more.setdefault("tools", load_tools())
    more.setdefault("worktrees", False)

    async def main() -> tuple[Exploration, list[LaneEvent]]:
        async with explore(
            session, prompts=["mend it"], models=[model], rules=rules, hooks=[hook] if hook else None, **more
        ) as exploration:
            events = [event async for event in exploration]
        return exploration, events

    exploration, events = asyncio.run(main())
    state = [one.event for one in events if isinstance(one.event, ForkedByRule | LaneMade | LaneRefused)]
    return exploration, state, model


def messages_at_start(session: Session, lane: Lane) -> list[str]:
    """The messages of a lane before its own prompt."""
    parent = session.parent(lane.start)
    assert parent is not None
    return [message_text(message) for message in session.context(parent).messages]


def failing(session: Session) -> Rule:
    return Rule("check", command="echo checked >> ../checks; echo the parser is broken; exit 3")


def checks_run(session: Session) -> int:
    path = Path(session.cwd).parent / "checks"
    return path.read_text().count("checked") if path.exists() else 0


def test_without_rules_nothing_is_forked(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    exploration, _, _ = ran(session, [turn(None, call("bash", command="false")), ALWAYS])
    assert len(exploration.lanes) == 1


def test_a_failing_check_forks_from_the_lane_s_start_and_names_the_failure(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    rule = Rule("check", command="test -e mended || { echo it is still broken; exit 7; }")
    turns = [
        turn("done", when="mend it"),
        turn(None, call("bash", command="touch mended"), when="still broken"),
        ALWAYS,
    ]
    exploration, state, _ = ran(session, turns, rule)
    first, second = exploration.lanes
    assert first.check is not None
    assert (first.check.passed, first.check.exit_code) == (False, 7)
    assert second.record.rule == "check"
    assert second.record.origin == 1
    assert second.record.depth == 1
    assert second.record.reason is not None
    assert "exit code 7" in second.record.reason
    assert second.record.prompt.startswith("mend it\n\nAn earlier attempt")
    assert "it is still broken" in second.record.prompt
    assert messages_at_start(session, second) == ["Where we begin.", "Understood."]
    assert second.check is not None
    assert second.check.passed
    assert [type(event).__name__ for event in state] == ["LaneMade", "ForkedByRule", "LaneMade"]
    written = [one.passed for _, one in iter_records(session) if isinstance(one, Check)]
    assert written == [False, True]


def test_a_check_that_passes_forks_nothing(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    exploration, _, _ = ran(session, [ALWAYS], Rule("check", command="true"))
    (lane,) = exploration.lanes
    assert lane.check is not None
    assert lane.check.passed


def test_a_check_that_takes_too_long_is_stopped_and_counts_as_failed(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    rule = Rule("check", command="echo $$ > ../pid; exec sleep 60")
    exploration, _, _ = ran(session, [ALWAYS], hook=ForkRules([rule], seconds=1.0), bounds=Bounds(lanes=1))
    (lane,) = exploration.lanes
    assert lane.check is not None
    assert (lane.check.passed, lane.check.exit_code) == (False, None)
    assert not is_alive(int((tmp_path / "pid").read_text()))


def test_a_command_that_is_rule_and_check_is_run_once(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    rule = failing(session)
    exploration, _, _ = ran(session, [ALWAYS], rule, check=rule.command, bounds=Bounds(lanes=2))
    assert len(exploration.lanes) == 2
    assert checks_run(session) == 2


def test_limits_of_depth_and_number_hold_with_a_model_that_always_fails(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    exploration, state, _ = ran(session, [ALWAYS], failing(session), bounds=Bounds(depth=3))
    assert [lane.record.depth for lane in exploration.lanes] == [0, 1, 2, 3]
    assert [event.why for event in state if isinstance(event, LaneRefused)] == [
        "the limit of 3 levels of forks is reached"
    ]

    other = new_session(tmp_path)
    exploration, state, _ = ran(other, [ALWAYS], failing(session), bounds=Bounds(depth=50, lanes=5))
    assert len(exploration.lanes) == 5
    assert [event.why for event in state if isinstance(event, LaneRefused)] == ["the limit of 5 lanes is reached"]


def test_several_rules_together_stay_within_the_bounds(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    session.set_config(approval_mode="default")
    always = [
        turn('{"confidence": 0.1, "reason": "no"}', when="The agent's last message", repeat=True),
        turn("I am done.", when="was not run", repeat=True),
        turn(None, call("bash", command="exit 4"), repeat=True),
    ]
    rules = [failing(session), Rule("denied"), Rule("repeats", count=2), Rule("judge")]
    exploration, state, _ = ran(session, always, *rules, bounds=Bounds(depth=9, lanes=12))
    assert len(exploration.lanes) == 12
    assert {lane.record.rule for lane in exploration.lanes} == {None, "check", "denied", "judge"}
    wanted = sum(isinstance(event, ForkedByRule) for event in state)
    assert wanted > 24
    assert sum(isinstance(event, LaneRefused) for event in state) == wanted - 11


def test_a_denied_call_forks_from_before_the_answer_that_made_it(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    session.set_config(approval_mode="default")
    Path(session.cwd, "words.py").write_text("")
    turns = [
        turn("I look first.", call("ls", path="."), when="mend it"),
        turn("Away with it.", call("bash", command="touch made"), when="words.py"),
        turn("Then not.", when="was not run"),
        turn("I found another way.", when="Do not do that"),
    ]
    exploration, _, _ = ran(session, turns, Rule("denied"))
    first, second = exploration.lanes
    assert first.text == "Then not."
    assert second.text == "I found another way."
    assert second.record.reason is not None
    assert second.record.reason.startswith("a call was denied: bash was not run")
    before = messages_at_start(session, second)
    assert before[:4] == ["Where we begin.", "Understood.", "mend it", "I look first."]
    assert "made" not in "".join(before)
    assert len(before) == 5
    assert first.start in session.path_ids(second.start)


def test_repeated_errors_stop_the_lane_and_fork_before_the_first(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    turns = [
        turn("First this.", call("bash", command="echo other; exit 1"), when="mend it"),
        turn("Why?", when="met the same error 3 times"),
        turn("Reopened.", call("bash", command="echo no such thing; exit 2"), repeat=True),
    ]
    exploration, state, _ = ran(session, turns, Rule("repeats", count=3))
    first, second = exploration.lanes
    assert first.state == "stopped"
    assert "3 times in a row with the same error: no such thing" in first.why
    assert first.spent.turns == 4
    assert second.record.rule == "repeats"
    assert second.text == "Why?"
    assert messages_at_start(session, second)[2:] == ["mend it", "First this.", "other\n\n[exit code 1]"]
    assert [event.rule for event in state if isinstance(event, ForkedByRule)] == ["repeats"]


def test_different_or_nonconsecutive_errors_do_not_stop_a_lane(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    fails, works = call("bash", command="echo bad; exit 2"), call("bash", command="echo good")
    turns = [turn(None, one) for one in (fails, fails, works, fails, fails, call("bash", command="exit 9"), fails)]
    exploration, _, _ = ran(session, [*turns, ALWAYS], Rule("repeats", count=3))
    (lane,) = exploration.lanes
    assert lane.state == "done"


def test_errors_of_parallel_calls_count_once_each(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    fails = call("bash", command="echo bad; exit 2")
    exploration, _, _ = ran(session, [turn(None, fails, fails), ALWAYS], Rule("repeats", count=3))
    assert [lane.state for lane in exploration.lanes] == ["done"]
    exploration, _, _ = ran(new_session(tmp_path), [turn(None, fails, fails, fails), ALWAYS], Rule("repeats", count=3))
    assert [lane.state for lane in exploration.lanes] == ["stopped", "done"]


def test_a_lane_that_the_user_stopped_is_not_forked(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    model = ScriptedModel([turn("slow", first_delay=30)])
    rules = [failing(session), Rule("repeats", count=2), Rule("denied"), Rule("judge")]

    async def main() -> Exploration:
        async with explore(session, prompts=["x"], models=[model], tools=Tools(), rules=rules) as exploration:
            async for one in exploration:
                if one.event.__struct_config__.tag == "turn_start":
                    exploration.stop()
        return exploration

    (lane,) = asyncio.run(main()).lanes
    assert lane.state == "stopped"
    assert checks_run(session) == 0


def test_leaving_does_not_wait_for_a_check(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    rules = [Rule("check", command="echo $$ > ../pid; exec sleep 60")]

    async def main() -> Exploration:
        async with explore(
            session, prompts=["x"], models=[ScriptedModel([ALWAYS])], tools=Tools(), rules=rules
        ) as exploration:
            async for one in exploration:
                if isinstance(one.event, LaneEnded):
                    await asyncio.to_thread(pid_in, tmp_path / "pid")
                    break
        return exploration

    began = time.monotonic()
    exploration = asyncio.run(main())
    assert time.monotonic() - began < 20
    assert [lane.state for lane in exploration.lanes] == ["done"]
    assert not is_alive(int((tmp_path / "pid").read_text()))


def test_a_check_is_run_in_the_worktree_of_its_lane(tmp_path: Path) -> None:
    make_repository(tmp_path / "project")
    session = new_session(tmp_path)
    rule = Rule("check", command="grep mended b.txt")
    turns = [
        turn("I do nothing.", when="mend it"),
        turn(None, call("write", path="b.txt", content="mended\n"), when="An earlier attempt"),
        turn("Now it is."),
    ]
    worktrees = LaneWorktrees(str(tmp_path / "home"), session.id, session.cwd)
    exploration, _, _ = ran(session, turns, rule, worktrees=True, lane_worktrees=worktrees)
    first, second = exploration.lanes
    assert (first.check is not None and first.check.passed) is False
    assert (second.check is not None and second.check.passed) is True
    assert Path(session.cwd, "b.txt").read_text() == "b, second\n"


def test_a_fork_from_the_middle_has_the_files_of_the_lane_it_comes_from(tmp_path: Path) -> None:
    make_repository(tmp_path / "project")
    session = new_session(tmp_path)
    turns = [
        turn(None, call("write", path="half.py", content="begun already"), when="mend it"),
        turn(None, call("read", path="half.py"), when="met the same error"),
        turn("The half is here.", when="begun already"),
        turn("Reopened.", call("bash", command="exit 2"), repeat=True),
    ]
    worktrees = LaneWorktrees(str(tmp_path / "home"), session.id, session.cwd)
    exploration, _, _ = ran(session, turns, Rule("repeats", count=2), worktrees=True, lane_worktrees=worktrees)
    assert [lane.text for lane in exploration.lanes][1:] == ["The half is here."]


@pytest.mark.parametrize(
    ("opinion", "lanes"),
    [
        ('{"confidence": 0.2, "reason": "it forgot the tests"}', 2),
        ('Well: ```json\n{"confidence": 0.49}\n```', 2),
        ('{"confidence": 0.5, "reason": "fine"}', 1),
        ("I am quite unsure.", 1),
        ('{"confidence": "low"}', 1),
        ('{"confidence": 7}', 1),
        ('{"confidence": true}', 1),
    ],
)
def test_a_judge_with_low_confidence_forks_and_an_invalid_answer_does_not(
    tmp_path: Path, opinion: str, lanes: int
) -> None:
    session = new_session(tmp_path)
    turns = [turn(opinion, when="The agent's last message", repeat=True), ALWAYS]
    exploration, _, model = ran(session, turns, Rule("judge"), bounds=Bounds(depth=1, lanes=2))
    assert len(exploration.lanes) == lanes
    judged = [request for request in model.requests if request.system and "You judge" in request.system]
    assert len(judged) == lanes
    assert "mend it" in message_text(judged[0].messages[0])
    assert "I think it is done." in message_text(judged[0].messages[0])
    assert exploration.lanes[0].spent.turns == 2
    assert session.usage().requests == 2 * lanes
    if "forgot" in opinion:
        assert "it forgot the tests" in exploration.lanes[1].record.prompt
        assert exploration.lanes[1].record.reason is not None
        assert "confidence is 0.2, below 0.5" in exploration.lanes[1].record.reason


def test_a_failing_or_unavailable_judge_does_not_fork(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    turns = [turn("done", when="mend it")]
    exploration, _, _ = ran(session, turns, Rule("judge"))
    assert [lane.state for lane in exploration.lanes] == ["done"]
    exploration, _, _ = ran(new_session(tmp_path), [ALWAYS], Rule("judge", model="nobody:knows"))
    assert [lane.state for lane in exploration.lanes] == ["done"]


def test_a_separate_judge_model_is_found_by_name(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    judge = ScriptedModel([turn('{"confidence": 0}', repeat=True)])
    asked: list[str] = []

    def find(name: str) -> Model:
        asked.append(name)
        return judge

    rule = Rule("judge", model="strict:judge")
    exploration, _, model = ran(session, [ALWAYS], hook=ForkRules([rule], find_model=find), bounds=Bounds(depth=1))
    assert asked == ["strict:judge", "strict:judge"]
    assert len(exploration.lanes) == 2
    assert len(model.requests) == 2


def test_a_judge_is_not_asked_when_the_budget_is_used_up(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    used = Usage(1_000, 0, total_tokens=1_000)
    turns = [turn("done", usage=used), turn('{"confidence": 0}', usage=used)]
    exploration, _, model = ran(session, turns, Rule("judge"), bounds=Bounds(tokens=900))
    assert len(exploration.lanes) == 1
    assert len(model.requests) == 1


def test_a_verdict_of_a_judge_is_parsed_from_surrounding_text() -> None:
    assert parse_opinion('so: {"confidence": 1, "reason": "all {good}"} ok') == (1.0, "all {good}")
    for text in ("", "{", "}{", "[0.5]", '{"confidence": NaN}', '{"confidence": -0.1}', "\ud800{}", "null"):
        assert parse_opinion(text) is None


def test_commands_that_only_the_file_contains_are_never_run(tmp_path: Path) -> None:
    rules = (Rule("check", command="rm -rf ~"), Rule("check", command="pytest -q"), Rule("denied"))
    assert trusted(rules) == (Rule("denied"),)
    assert trusted(rules, ["pytest -q"]) == rules[1:]


def test_rules_apply_on_resume_to_lanes_that_ended_just_before_a_crash(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    rules = [Rule("check", command="exit 1"), Rule("judge")]
    quick, slow = ScriptedModel([turn("quick")]), ScriptedModel([turn("slow", first_delay=60)])

    async def begin() -> None:
        async with explore(
            session, prompts=["a", "b"], models=[quick, slow], tools=Tools(), rules=rules, hooks=[ForkRules([])]
        ) as exploration:
            async for one in exploration:
                if isinstance(one.event, LaneEnded):
                    return  # as if the process had ended here: no rule was asked about the first lane

    asyncio.run(begin())
    model = ScriptedModel([ALWAYS])
    hook = ForkRules(trusted(session_rules(session), ["exit 1"]), find_model=lambda _: model)

    async def go_on() -> Exploration:
        async with resume(session, find_model=lambda _: model, tools=Tools(), hooks=[hook]) as exploration:
            await exploration.finish()
        return exploration

    lanes = asyncio.run(go_on()).lanes
    assert [(lane.record.origin, lane.record.rule) for lane in lanes if lane.record.depth == 1] == [
        (2, "check"),
        (1, "check"),
    ]
    judged = [request for request in model.requests if request.system and "You judge" in request.system]
    assert len(judged) == len(lanes) - 1, "the first was not judged anew"


def session_rules(session: Session) -> tuple[Rule, ...]:
    return find_exploration(session).plan.rules


KILLED = """
import asyncio, sys
import sessiontree
from sessiontree.agent.tools.base import load_tools
from sessiontree.explore import Rule, explore
from sessiontree.explore.fork_rules import ForkRules
from sessiontree.models import ScriptedModel
from sessiontree.models.scripted import parse_script

async def main():
    session = sessiontree.open(sys.argv[1])
    session.set_config(approval_mode="yolo")  # opening a file grants nothing
    model = ScriptedModel(parse_script(sys.argv[2].encode()))
    rules = [Rule("check", command="exit 1"), Rule("repeats", count=3)]
    async with explore(session, prompts=["mend it"], models=[model], tools=load_tools(), rules=rules,
                       hooks=[ForkRules(rules)], worktrees=False) as exploration:
        await exploration.finish()

asyncio.run(main())
"""
SCRIPT = """{"turns": [
  {"when": "An earlier attempt", "toolCalls": [{"name": "bash", "arguments": {"command": "exit 5"}}]},
  {"when": "exit code 5", "toolCalls": [{"name": "bash", "arguments": {"command": "exit 5"}, "id": "second"}]},
  {"when": "exit code 5", "toolCalls": [{"name": "bash", "arguments": {"command": "echo $$ > ready; exec sleep 60"}}]},
  {"text": "done"}]}"""


def test_rules_that_fired_before_a_kill_do_not_fire_again_and_counts_continue(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    session.close()
    with child_process([sys.executable, "-c", KILLED, session.location, SCRIPT]):
        sleeping = pid_in(tmp_path / "project" / "ready")
    wait_for(lambda: not is_alive(sleeping))

    again = sessiontree.open(session.location)
    state = find_exploration(again)
    assert [(lane.record.rule, lane.state) for lane in state.lanes] == [(None, "done"), ("check", "lost")]
    model = ScriptedModel([turn("I give up.", when="lost"), ALWAYS])
    rules = trusted(state.plan.rules, ["exit 1"])
    assert [rule.kind for rule in rules] == ["check", "repeats"]

    async def main() -> Exploration:
        async with resume(
            again, find_model=lambda _: model, tools=load_tools(), hooks=[ForkRules(rules)]
        ) as exploration:
            await exploration.finish()
        return exploration

    exploration = asyncio.run(main())
    assert [(lane.record.origin, lane.record.rule, lane.record.depth) for lane in exploration.lanes] == [
        (None, None, 0),
        (1, "check", 1),
        (2, "check", 2),
    ]


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (Rule("check"), "needs a command"),
        (Rule("repeats", count=1), "at least 2 are needed"),
        (Rule("judge", threshold=7), "from 0 to 1"),
        (Rule("jugde"), "unknown kind of rule"),  # type: ignore[arg-type]
    ],
)
def test_a_rule_that_could_never_apply_is_refused_before_anything_is_written(
    tmp_path: Path, rule: Rule, message: str
) -> None:
    session = new_session(tmp_path)
    before = session.ids
    with pytest.raises(UsageError, match=message):
        explore(session, prompts=["x"], models=[ScriptedModel([ALWAYS])], rules=[rule])
    assert session.ids == before
