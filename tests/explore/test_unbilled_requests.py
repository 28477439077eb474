"""A process with limits is killed while requests are in flight: the next process counts what was sent."""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest

import sessiontree
from sessiontree.agent.loop import overhead_tokens
from sessiontree.agent.tools.base import Tools
from sessiontree.compaction import MEASURED
from sessiontree.compaction.token_estimate import estimated_size
from sessiontree.core.messages import ToolResult, Usage, message_text
from sessiontree.explore import Bounds, Exploration, resume
from sessiontree.explore.records import UsageRecord, iter_records
from sessiontree.explore.state import find_exploration
from sessiontree.explore.task_tool import TaskTool
from sessiontree.models import Facts, Prices, Request, ScriptedModel
from sessiontree.session.session import Session
from tests.agent.builders import child_process
from tests.agent.runs import turn
from tests.builders import THOROUGH
from tests.explore.lanes import new_session, own_messages

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("SESSIONTREE_KILLS", "12" if THOROUGH else "4"))
WORDS = "words " * 1_000
PRICED = Facts(200_000, 2_000, Prices(1_000_000, 1), source="test")
CHILD = """
import asyncio, json, sys
import sessiontree
from pathlib import Path
from sessiontree.agent.tools.base import Tools
from sessiontree.explore import Bounds, Rule, explore
from sessiontree.explore.fork_rules import ForkRules
from sessiontree.explore.task_tool import TaskTool
from sessiontree.models import ScriptedModel
from sessiontree.core.messages import ToolResult, Usage, message_text
from tests.agent.runs import call, turn
from tests.explore.test_unbilled_requests import PRICED, WORDS, request_size

location, home, kind, limit = sys.argv[1:]
slow = turn("Never.", first_delay=60)
used = Usage(10, 5)
mode = "session" if kind == "linked" else "branch"
asks = call("task", description="d", prompt="look there " + WORDS, mode=mode)
rules = [Rule("judge")] if kind == "judge" else []
turns = {
    "turn": [slow, slow],
    "sub-agent": [turn("Never.", when="look there", first_delay=60), turn("I ask.", asks, usage=used)],
    "judge": [turn("Never.", when="The agent's last message", first_delay=60), turn("done", usage=used)],
    "none": [],
}
turns["linked"] = turns["sub-agent"]
model = ScriptedModel(turns[kind], PRICED)
wanted = {"turn": 2, "sub-agent": 2, "linked": 2, "judge": 2}[kind]
bounds = {"tokens": Bounds(tokens=10**6), "cost": Bounds(cost=10.0**6), "none": Bounds()}[limit]

async def main():
    session = sessiontree.open(location)
    prompts = [f"of lane-1. {WORDS}", f"of lane-2. {WORDS}"] if kind == "turn" else [f"of lane-1. {WORDS}"]
    async with explore(
        session, prompts=prompts, models=[model], tools=Tools([TaskTool(home=home)]), bounds=bounds, rules=rules,
        hooks=[ForkRules(rules)] if rules else [],
    ) as exploration:
        exploration._channel.unblock()
        while len(model.requests) < wanted:
            await asyncio.sleep(0.01)
        print(json.dumps([request_size(request) for request in model.requests]), flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


class RequestSize(NamedTuple):
    """Estimated tokens of a request."""

    messages: int
    overhead: int


def request_size(request: Request) -> RequestSize:
    return RequestSize(estimated_size(request.messages, MEASURED), overhead_tokens(request.system, request.tools))


def died(tmp_path: Path, kind: str, limit: str = "tokens") -> tuple[Session, list[RequestSize]]:
    """A session whose process was killed while it waited for answers, and the sizes of the requests it had sent."""
    session = new_session(tmp_path)
    session.close()
    command = [sys.executable, "-c", CHILD, session.location, str(tmp_path / "home"), kind, limit]
    with child_process(command, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        sent = [RequestSize(*size) for size in json.loads(child.stdout.readline())]
    return sessiontree.open(session.location), sent


def resumed(tmp_path: Path, session: Session) -> Exploration:
    model = ScriptedModel([turn("Done now.", usage=Usage(1, 1))] * 9, PRICED)

    async def main() -> Exploration:
        tools = Tools([TaskTool(home=str(tmp_path / "home"))])
        async with resume(session, find_model=lambda _: model, tools=tools, hooks=[]) as exploration:
            await exploration.finish()
        return exploration

    return asyncio.run(main())


def said_to_be_spent(session: Session) -> float:
    return sum(lane.spent.tokens for lane in find_exploration(sessiontree.open(session.location)).lanes)


@pytest.mark.parametrize("limit", ["tokens", "cost"])
def test_each_lane_counts_its_request_in_flight(tmp_path: Path, limit: str) -> None:
    session, sent = died(tmp_path, "turn", limit)
    assert said_to_be_spent(session) == 0
    exploration = resumed(tmp_path, session)
    assert [lane.state for lane in exploration.lanes] == ["done", "done"]
    assert [lane.spent.tokens - 2 for lane in exploration.lanes] == [sum(size) for size in sent]
    for lane in exploration.lanes:
        assert lane.spent.cost == pytest.approx(lane.spent.input, abs=2)
    assert said_to_be_spent(session) == exploration.spent.tokens


def test_without_limits_nothing_is_estimated(tmp_path: Path) -> None:
    session, _ = died(tmp_path, "turn", "none")
    exploration = resumed(tmp_path, session)
    assert [lane.spent.tokens for lane in exploration.lanes] == [2, 2]


@pytest.mark.parametrize("kind", ["sub-agent", "linked"])
def test_a_sub_agent_counts_its_request_in_flight(tmp_path: Path, kind: str) -> None:
    session, (of_caller, of_sub_agent) = died(tmp_path, kind)
    exploration = resumed(tmp_path, session)
    (lane,) = exploration.lanes
    assert lane.state == "done"
    counted = lane.spent.tokens - 15 - 2 - 2  # without the caller's answered request, and one of each after the kill
    assert counted == of_sub_agent.messages + of_caller.overhead, "the sub-agent's messages, not those of its caller"
    assert counted >= sum(of_sub_agent), "its caller's tools are counted for its own"
    assert said_to_be_spent(session) == exploration.spent.tokens
    results = [one for one in own_messages(session, lane) if isinstance(one, ToolResult)]
    assert [message_text(one) for one in results] == ["Done now."], "the sub-agent continues from its last entry"


def test_a_judge_counts_its_full_reservation(tmp_path: Path) -> None:
    session, _ = died(tmp_path, "judge")
    expected = [
        record for _, record in iter_records(session) if isinstance(record, UsageRecord) and record.what == "judge"
    ]
    assert [record.is_expected for record in expected] == [True]
    assert said_to_be_spent(session) == 15 + expected[0].spent.tokens > 1_015
    exploration = resumed(tmp_path, session)
    assert exploration.spent.tokens == said_to_be_spent(session) == 15 + expected[0].spent.tokens
    assert exploration.plan.bounds == Bounds(tokens=10**6)


def test_a_released_lane_has_no_request_in_flight(tmp_path: Path) -> None:
    session, _ = died(tmp_path, "turn")
    first = resumed(tmp_path, session)
    before = first.spent.tokens
    assert resumed(tmp_path, sessiontree.open(session.location)).spent.tokens == before


BILLED = """
import asyncio, os, sys
import sessiontree
from pathlib import Path
from sessiontree.agent.tools.base import Tools
from sessiontree.errors import NotFoundError
from sessiontree.explore import Bounds, explore, resume
from sessiontree.explore.state import find_exploration
from sessiontree.core.messages import ToolResult, Usage, message_text
from tests.explore.lanes import Note, Stepping
from tests.explore.test_unbilled_requests import PRICED, WORDS, request_size

location, bill, notes, limit = sys.argv[1:]

class Billed(Stepping):
    '''Puts what a request costs into a file before it answers: whoever dies then has to pay it all the same.'''

    def stream(self, request, /):
        size = sum(request_size(request))
        file = os.open(bill, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(file, f"{size}\\n".encode())
        os.close(file)
        self._usage = lambda prompt, step: Usage(size, 0)
        return super().stream(request)

model = Billed(10**6, delay=0.1, facts=PRICED)
tools = Tools([Note(Path(notes))])

async def main():
    session = sessiontree.open(location)
    print("go", flush=True)
    try:
        find_exploration(session)
        begun = resume(session, find_model=lambda name: model, tools=tools)
    except NotFoundError:
        prompts = [f"of lane-{number}. {WORDS}" for number in range(1, 5)]
        begun = explore(session, prompts=prompts, models=[model], tools=tools, bounds=Bounds(tokens=float(limit)))
    async with begun as exploration:
        await exploration.finish()
    print("over", flush=True)

asyncio.run(main())
"""


def test_true_usage_exceeds_the_limit_by_at_most_one_request_after_any_number_of_kills(
    tmp_path: Path,
) -> None:
    session, bill = new_session(tmp_path), tmp_path / "bill"
    session.close()
    limit, draw, died = 300_000 * KILLS, random.Random(), 0
    command = [sys.executable, "-c", BILLED, session.location, str(bill), str(tmp_path / "notes"), str(limit)]
    while True:
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        assert child.stdout.readline() == "go\n"
        if died < KILLS:
            time.sleep(draw.uniform(0, 0.5))
            child.kill()
        out, _ = child.communicate(timeout=120)
        if child.returncode == 0:
            assert out == "over\n"
            break
        died += 1
    assert died > KILLS // 2, "the limit was reached too soon"
    billed = [int(line) for line in bill.read_text().split()]
    assert sum(billed) < limit + max(billed)
    state = find_exploration(sessiontree.open(session.location))
    assert {lane.state for lane in state.lanes} == {"limit"}
    assert sum(lane.spent.tokens for lane in state.lanes) >= max(limit, sum(billed)), "what was sent is what is counted"
