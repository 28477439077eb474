"""Options of an exploration: prompts, models, names, limits and approval."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import sessiontree
from sessiontree.agent.approval import Question, Reply
from sessiontree.agent.controller import Controller
from sessiontree.agent.tools.base import load_tools
from sessiontree.app.actions.compact import plan_undo_compaction
from sessiontree.app.actions.contract import MovePlan
from sessiontree.app.exploration import LaneApprover
from sessiontree.core.entries import ApprovalMode
from sessiontree.errors import UsageError
from sessiontree.explore import explore
from sessiontree.explore.lane import Lane
from sessiontree.explore.plan_parser import parse_bounds, parse_prompts, plan_lanes
from sessiontree.explore.records import LaneRecord, Worktree
from sessiontree.models import Model, ScriptedModel
from sessiontree.models.scripted import ScriptTurn


def model(name: str, number: int) -> Model:
    return ScriptedModel([ScriptTurn(text=f"{name} {number}")])


def test_one_prompt_makes_a_lane_for_each_model_named_after_it() -> None:
    plans = plan_lanes(["do it"], ["anthropic:opus", "openrouter:x/gpt-5"], None, model)
    assert plans.prompts == ["do it", "do it"]
    assert plans.names == ["opus", "gpt-5"]
    assert len({id(one) for one in plans.models}) == 2


def test_a_model_that_gets_a_prompt_several_times_is_asked_to_vary() -> None:
    plans = plan_lanes(["do it"], ["a:one", "a:two"], 3, model)
    assert plans.prompts[1] == "do it"
    assert plans.prompts[0].startswith("do it\n\n(This is attempt 1 of 2")
    assert plans.prompts[2].startswith("do it\n\n(This is attempt 2 of 2")
    assert plans.names == [], "names that are not one for each lane tell nothing apart"


def test_models_take_turns_over_several_prompts() -> None:
    plans = plan_lanes(["p", "q", "r"], ["a:one", "a:two"], None, model)
    assert plans.prompts == ["p", "q", "r"]


@pytest.mark.parametrize(("prompts", "count"), [(["p", "q"], 3), (["p"], 0)])
def test_an_invalid_number_of_lanes_is_refused(prompts: list[str], count: int) -> None:
    with pytest.raises(UsageError):
        plan_lanes(prompts, ["a:one"], count, model)


@pytest.mark.parametrize(("prompts", "count"), [(["p", "q"], None), (["p"], 2)])
def test_a_model_without_a_lane_is_refused_by_name(prompts: list[str], count: int | None) -> None:
    with pytest.raises(UsageError, match="3 models for 2 lanes: a:three would be unused"):
        plan_lanes(prompts, ["a:one", "a:two", "a:three"], count, model)


def test_the_api_refuses_a_model_without_a_lane(tmp_path: Path) -> None:
    session = sessiontree.create(tmp_path, home=tmp_path / "home")
    with pytest.raises(UsageError, match="3 models for 2 prompts"):
        explore(session, prompts=["p", "q"], models=[model("m", number) for number in range(3)])


@pytest.mark.parametrize(
    ("text", "prompts"),
    [
        ("one\n\n  two  \n", ["one", "two"]),
        ("one\nstill one\n---\ntwo\n-----\n\n---\n", ["one\nstill one", "two"]),
        ("a -- b\n--\n", ["a -- b", "--"]),
        ("", []),
        ("---\n", []),
        ("one\r\ntwo\rthree", ["one", "two", "three"]),
        ("one\r\nstill one\r\n---\r\ntwo\r\n", ["one\nstill one", "two"]),
        ("a\u2028b\u2029c\x0bd\x0ce\x85f\x1cg\n", ["a\u2028b\u2029c\x0bd\x0ce\x85f\x1cg"]),
    ],
)
def test_prompts_are_lines_or_blocks(text: str, prompts: list[str]) -> None:
    assert parse_prompts(text) == prompts


def test_budgets_are_tokens_cost_and_time() -> None:
    bounds = parse_bounds(["1.5M", "$2.50", "10m"], 4, 1)
    assert (bounds.tokens, bounds.cost, bounds.seconds) == (1_500_000, 2.5, 600)
    assert (bounds.lanes, bounds.depth) == (4, 1)
    assert parse_bounds(["200k"], 4, 1).tokens == 200_000
    assert parse_bounds(["90s"], 4, 1).seconds == 90
    assert parse_bounds(["2h"], 4, 1).seconds == 7_200
    assert parse_bounds(["500"], 4, 1).tokens == 500


@pytest.mark.parametrize("text", ["", "k", "-1k", "0", "$", "$2m", "10 m", "1e3", "nan", "٣k"])
def test_an_invalid_budget_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="invalid budget"):
        parse_bounds([text], 4, 1)


def test_the_controller_writes_nothing_while_its_session_is_reserved(tmp_path: Path) -> None:
    async def main() -> None:
        controller = Controller(
            tmp_path, home=tmp_path / "home", model=ScriptedModel([ScriptTurn(text="hi", repeat=True)])
        )
        async for _ in controller.send("hello"):
            pass
        session = controller.session
        leaf, count = session.leaf, len(session.ids)
        async with controller.occupied("an exploration"):
            assert controller.state.is_running
            for work in (
                lambda: controller.select(session.ids[0]),
                lambda: controller.switch(session.ids[0]),
                lambda: controller.plan(lambda: plan_undo_compaction(session)),
                lambda: controller.carry_out(MovePlan(session, None, "undo")),
                lambda: controller.fork(),
                lambda: controller.new(),
            ):
                with pytest.raises(UsageError, match="an exploration is in progress"):
                    await work()
            with pytest.raises(UsageError, match="an exploration is in progress"):
                async for _ in controller.send("hello"):
                    pass
            await controller.set_thinking("high")
            assert (session.leaf, len(session.ids)) == (leaf, count)
            session.append("user", "said elsewhere")
        assert not controller.state.is_running
        assert controller.state.leaf == session.leaf != leaf
        await controller.close()

    asyncio.run(main())


class Asked:
    """An approver that allows everything and records the questions."""

    def __init__(self) -> None:
        self.questions: list[Question] = []

    async def ask(self, question: Question) -> Reply:
        self.questions.append(question)
        return Reply("once")


COPY = Worktree("/p", "/r", "b", "h", "f")


@pytest.mark.parametrize(
    ("mode", "worktree", "tool", "each_time", "passes"),
    [
        ("default", COPY, "write", False, False),
        ("autoEdit", COPY, "write", False, True),
        ("autoEdit", None, "write", False, False),
        ("autoEdit", COPY, "write", True, False),
        ("autoEdit", COPY, "bash", False, False),
        ("autoEdit", COPY, "unknown", False, False),
        ("yolo", COPY, "bash", False, True),
        ("yolo", COPY, "bash", True, False),
        ("yolo", COPY, "write", True, False),
    ],
)
def test_a_lane_may_change_its_own_files_and_with_yolo_run_commands(
    tmp_path: Path, mode: ApprovalMode, worktree: Worktree | None, tool: str, each_time: bool, passes: bool
) -> None:
    session = sessiontree.create(tmp_path, home=tmp_path / "home")
    lane = Lane(session, LaneRecord("0123abcd", 7, "seventh", "p", "m", worktree), "start")
    question = Question(tool, "a title", "a preview", ("a reason",), may_always=not each_time)
    asked = Asked()
    reply = asyncio.run(LaneApprover(lane, mode, load_tools(), asked.ask).ask(question))
    assert reply.answer == "once"
    assert [one.title for one in asked.questions] == ([] if passes else ["lane 7 (seventh) · a title"])
    alone = asyncio.run(LaneApprover(lane, mode, load_tools(), None).ask(question))
    assert alone.answer == ("once" if passes else "no")
