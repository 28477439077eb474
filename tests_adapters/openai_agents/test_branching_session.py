"""The session with named branches: branches, turns, tools and usage, as with the SDK's AdvancedSQLiteSession."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from agents.extensions.memory.advanced_sqlite_session import AdvancedSQLiteSession
from agents.usage import Usage

from sessiontree.adapters.openai_agents import BranchingTreeSession, TreeSession
from tests_adapters.commands import check_commands


def run(coroutine: Any) -> Any:
    return asyncio.run(coroutine)


def turn(number: int) -> list[Any]:
    return [
        {"role": "user", "content": f"Question {number}"},
        {"type": "function_call", "call_id": f"c{number}", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": f"c{number}", "output": "seen"},
        {"role": "assistant", "content": f"Answer {number}"},
    ]


def run_result(tokens: int) -> Any:
    usage = Usage(requests=1, input_tokens=tokens, output_tokens=1, total_tokens=tokens + 1)
    return SimpleNamespace(context_wrapper=SimpleNamespace(usage=usage))


def test_a_branch_shares_the_history_before_its_turn(home: str) -> None:
    async def check() -> None:
        session = BranchingTreeSession("one", home)
        await session.add_items(turn(1) + turn(2) + turn(3))
        name = await session.create_branch_from_turn(2, "other")
        assert name == "other"
        assert await session.get_items() == turn(1)
        await session.add_items(turn(4))
        assert await session.get_items() == turn(1) + turn(4)
        assert await session.get_items(branch_id="main") == turn(1) + turn(2) + turn(3)
        again = BranchingTreeSession("one", home)
        assert await again.get_items() == turn(1) + turn(2) + turn(3)
        await again.switch_to_branch("other")
        assert await again.get_items(1) == turn(4)[-1:]
        assert await TreeSession("one", home).get_items(1) == turn(4)[-1:], "the current entry is on the branch"
        branches = {branch["branch_id"]: branch for branch in await again.list_branches()}
        assert branches["main"]["message_count"] == 12
        assert branches["other"]["user_turns"] == 2
        assert branches["other"]["is_current"]

    run(check())


def test_two_objects_write_two_branches_at_once(home: str) -> None:
    async def check() -> None:
        one, two = BranchingTreeSession("one", home), BranchingTreeSession("one", home)
        await one.add_items(turn(1) + turn(2))
        await two.create_branch_from_turn(2, "other")
        for number in range(3, 6):
            await one.add_items(turn(number))
            await two.add_items(turn(-number))
        assert await one.get_items() == [item for number in range(1, 6) for item in turn(number)]
        assert await two.get_items() == turn(1) + [item for number in range(3, 6) for item in turn(-number)]

    run(check())


def test_items_popped_from_a_branch_stay_on_the_others(home: str) -> None:
    async def check() -> None:
        session = BranchingTreeSession("one", home)
        await session.add_items(turn(1) + turn(2))
        await session.create_branch_from_turn(2, "other")
        await session.add_items(turn(3)[:1])
        popped = [await session.pop_item() for _ in range(6)]
        assert popped == [turn(3)[0], *reversed(turn(1)), None]
        await session.add_items(turn(5))
        assert await session.get_items() == turn(5)
        await session.switch_to_branch("main")
        assert await session.get_items() == turn(1) + turn(2)

    run(check())


def test_deleted_and_cleared_branches_are_gone_and_their_names_stay_used(home: str) -> None:
    async def check() -> None:
        session, other = BranchingTreeSession("one", home), BranchingTreeSession("one", home)
        await session.add_items(turn(1))
        await session.create_branch_from_turn(1, "a")
        await other.switch_to_branch("a")
        with pytest.raises(ValueError, match="Cannot delete current branch"):
            await session.delete_branch("a")
        await session.delete_branch("a", force=True)
        assert await session.get_items() == turn(1)
        assert await other.get_items() == turn(1), "another object on the branch falls back to main"
        for call in (session.switch_to_branch("a"), session.delete_branch("a"), session.delete_branch("main")):
            with pytest.raises(ValueError, match=r"does not exist|Cannot delete the 'main'"):
                await call
        with pytest.raises(ValueError, match="already been used"):
            await session.create_branch_from_turn(1, "a")
        with pytest.raises(ValueError, match="does not contain a user message"):
            await session.create_branch_from_turn(2)
        await session.create_branch_from_turn(1, "b")
        await session.clear_session()
        assert await session.list_branches() == []
        await other.add_items(turn(7))
        assert await session.get_items() == turn(7)

    run(check())


def test_usage_belongs_to_a_turn_of_a_branch(home: str) -> None:
    async def check() -> None:
        session = BranchingTreeSession("one", home)
        await session.store_run_usage(run_result(5))
        assert await session.get_session_usage() is None
        await session.add_items(turn(1))
        await session.store_run_usage(run_result(10))
        await session.add_items(turn(2))
        await session.store_run_usage(run_result(20))
        await session.create_branch_from_turn(2, "other")
        await session.add_items(turn(3))
        await session.store_run_usage(run_result(40))
        assert await session.get_session_usage("main") == {
            "requests": 2,
            "input_tokens": 30,
            "output_tokens": 2,
            "total_tokens": 32,
            "total_turns": 2,
        }
        whole = await session.get_session_usage()
        assert whole is not None
        assert whole["input_tokens"] == 70
        assert [row["user_turn_number"] for row in await session.get_turn_usage()] == [2]
        one = await session.get_turn_usage(1, "main")
        assert isinstance(one, dict)
        assert one["input_tokens"] == 10
        for _ in range(4):
            await session.pop_item()
        assert await session.get_turn_usage() == [], "the turn is gone"
        with session._named.reading() as stored:
            assert stored is not None
            assert stored.usage().input == 70

    run(check())


def test_random_operations_give_what_advanced_sqlite_session_gives(tmp_path: Path) -> None:
    async def check(seed: int) -> None:
        rnd = random.Random(seed)
        theirs = AdvancedSQLiteSession(session_id="one", create_tables=True)
        ours = BranchingTreeSession("one", f"memory:branching{seed}")
        for step in range(40):
            operation = rnd.choice(
                ["add", "add", "add", "pop", "branch", "switch", "turns", "tools", "by turns", "list"]
            )
            number, known = rnd.randint(1, 6), [branch["branch_id"] for branch in await theirs.list_branches()]
            name = rnd.choice(known or ["main"])
            found: list[Any] = []
            for session in (theirs, ours):
                try:
                    match operation:
                        case "add":
                            found.append(await session.add_items(turn(step)[: number + 1]))
                        case "pop":
                            found.append(await session.pop_item())
                        case "branch":
                            # A branch without items does not exist for theirs.
                            found.append(await session.create_branch_from_turn(number, f"b{step}"))
                            await session.add_items(turn(step))
                        case "switch":
                            found.append(await session.switch_to_branch(name))
                        case "turns":
                            rows = await session.get_conversation_turns()
                            found.append([(row["turn"], row["full_content"]) for row in rows])
                        case "tools":
                            found.append(sorted(await session.get_tool_usage()))
                        case "by turns":
                            found.append(await session.get_conversation_by_turns())
                        case "list":
                            rows = await session.list_branches()
                            keys = ("branch_id", "message_count", "user_turns", "is_current")
                            found.append(
                                sorted(tuple(row[key] for key in keys) for row in rows if row["message_count"])
                            )
                except ValueError as error:
                    found.append(str(error))
            assert found[0] == found[1], (seed, step, operation)
            assert await theirs.get_items() == await ours.get_items(), (seed, step, operation)
            assert await theirs.get_items(3) == await ours.get_items(3), (seed, step, operation)
        theirs.close()

    for seed in range(15):
        run(check(seed))


def test_the_commands_work_on_a_session_with_branches(tmp_path: Path) -> None:
    async def write() -> None:
        session = BranchingTreeSession("user-123", tmp_path / "home", cwd=tmp_path)
        await session.add_items(turn(1) + turn(2))
        await session.store_run_usage(run_result(10))
        await session.create_branch_from_turn(2, "other")
        await session.add_items(turn(3))
        session.close()

    run(write())
    check_commands(tmp_path / "home", "user-123", ["Question 1", "Answer 1", "Question 3", "Answer 3"])
