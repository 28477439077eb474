"""Sub-agents: on a branch or in their own session, with a part of their caller's budget."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

import sessiontree
from sessiontree.agent.approval import Reply
from sessiontree.agent.events import ToolEnd, ToolUpdate, Used
from sessiontree.agent.limits import Limits
from sessiontree.agent.loop import Run, run
from sessiontree.agent.tool_calls import pending_calls
from sessiontree.agent.tools.base import ToolOutput, Tools, load_tools
from sessiontree.branches.subagent_branches import parse_subagent
from sessiontree.conversion.install import Request, carry_out, make_plan
from sessiontree.core.context import Context
from sessiontree.core.messages import ToolResult, Usage, message_text
from sessiontree.explore import Bounds, Exploration, explore
from sessiontree.explore.task_tool import MAX_TEXT, TaskTool, Unfinished, find_sub_agent, find_unfinished
from sessiontree.models import Event as ModelEvent
from sessiontree.models import Facts, ScriptedModel, ScriptTurn
from sessiontree.models import Request as ModelRequest
from sessiontree.session.session import Session
from tests.agent.builders import Workplace, child_process, is_alive, pid_in, wait_for
from tests.agent.runs import call, check_is_sound, collect_events, end_of, transcript, turn
from tests.explore.lanes import new_session

LOOK = "look at the parts"


@pytest.fixture
def place(tmp_path: Path) -> Workplace:
    return Workplace(tmp_path)


def tools(tool: TaskTool | None = None) -> Tools:
    found = load_tools()
    found.add(tool or TaskTool())
    return found


def begun(place: Workplace, *turns: ScriptTurn, at: Session | None = None, **more: Any) -> Run:
    more.setdefault("model", ScriptedModel(turns))
    more.setdefault("tools", tools())
    more.setdefault("approver", place.answers)
    return run(at or place.session, LOOK, context=place.context, **more)


def task(prompt: str, **more: Any) -> Any:
    return call("task", description=f"about {prompt}", prompt=prompt, **more)


def _model(*turns: ScriptTurn) -> ScriptedModel:
    return ScriptedModel(turns)


class CountedModel(ScriptedModel):
    """A scripted model that counts how many requests are in flight at the same time."""

    in_flight = most_in_flight = 0

    async def stream(self, request: ModelRequest, /) -> AsyncGenerator[ModelEvent, None]:
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            async for event in super().stream(request):
                yield event
        finally:
            self.in_flight -= 1


def went(place: Workplace, *turns: ScriptTurn, **more: Any) -> list[Any]:
    return asyncio.run(collect_events(begun(place, *turns, **more)))


def outputs(events: list[Any]) -> list[ToolOutput]:
    return [event.output for event in events if isinstance(event, ToolEnd)]


def where(output: ToolOutput) -> dict[str, Any]:
    place: dict[str, Any] = output.details["task"]
    return place


def texts(context: Context) -> list[str]:
    return [message_text(message) for message in context.messages]


def entries_of(session: Session, kind: str) -> list[str]:
    return [id for id in session.ids if session.type_of(id) == kind]


ONE = (
    turn("I ask.", task("count the files")),
    turn("Counting.", call("ls", path="."), when="count the files"),
    turn("There is 1.", when="readme"),
    turn("So it is one.", when="There is 1."),
)


def test_a_sub_agent_has_its_own_context_and_its_caller_sees_only_its_last_message(place: Workplace) -> None:
    (place.project / "readme").write_text("x")
    model = ScriptedModel(ONE)
    events = went(place, model=model)
    (output,) = outputs(events)
    assert output.text == "There is 1."
    assert not output.is_error
    session = place.session
    assert [role for role, _ in transcript(session)] == ["user", "assistant", "toolResult", "assistant"]
    sub = where(output)
    assert sub["session"] == session.id
    theirs = session.context(sub["leaf"])
    assert texts(theirs)[0] == "count the files"
    assert [message.role for message in theirs.messages] == ["user", "assistant", "toolResult", "assistant"]
    assert LOOK not in "".join(texts(theirs))
    assert "Counting." not in "".join(texts(session.context()))
    first_asked_of_sub = model.requests[1]
    assert [message_text(message) for message in first_asked_of_sub.messages] == ["count the files"]
    assert first_asked_of_sub.system is not None
    assert "last message" in first_asked_of_sub.system
    check_is_sound(session)


def test_the_branch_starts_with_a_record_and_is_a_child_of_the_message_with_the_call(place: Workplace) -> None:
    (place.project / "readme").write_text("x")
    (output,) = outputs(went(place, *ONE))
    session = place.session
    start = session.entry(where(output)["start"])
    record = parse_subagent(start)
    assert record is not None
    assert record.description == "about count the files"
    assert record.answer == start.parent_id
    assert start.parent_id is not None
    assert "I ask." in message_text(session.entry(start.parent_id).message)  # type: ignore[union-attr]
    assert [session.type_of(id) for id in session.path_ids(where(output)["leaf"])[2:4]] == ["custom", "reset_boundary"]


def test_the_session_is_at_the_end_of_its_caller(place: Workplace) -> None:
    (place.project / "readme").write_text("x")
    end = end_of(went(place, *ONE))
    assert place.session.leaf == end.leaf
    place.session.close()
    assert sessiontree.open(place.session.location).leaf == end.leaf


def test_a_sub_agent_has_no_task_tool_unless_depth_allows(place: Workplace) -> None:
    one = _model(
        turn(None, task("first level"), when=LOOK),
        turn("of the first", when="first level"),
        turn("all done", when="of the first"),
    )
    (output,) = outputs(went(place, model=one))
    offered = [[tool.name for tool in request.tools] for request in one.requests]
    assert "task" in offered[0]
    assert "task" not in offered[1]
    assert output.text == "of the first"


def test_with_a_depth_of_two_a_sub_agent_has_one_more_level(place: Workplace) -> None:
    model = _model(
        turn(None, task("first level"), when=LOOK),
        turn(None, task("second level"), when="first level"),
        turn("from below", when="second level"),
        turn("from the middle", when="from below"),
        turn("done", when="from the middle"),
    )
    events = went(place, model=model, tools=tools(TaskTool(depth=2)))
    assert [("task" in [tool.name for tool in request.tools]) for request in model.requests] == [
        True, True, False, True, True,
    ]  # fmt: skip
    assert end_of(events).text == "done"
    assert end_of(events).spent.turns == 5
    assert [role for role, _ in transcript(place.session)] == ["user", "assistant", "toolResult", "assistant"]


def test_several_tasks_run_in_parallel_and_are_isolated(place: Workplace) -> None:
    names = ["alpha", "beta", "gamma"]
    parts = [turn(f"found {name}", when=name, first_delay=0.5) for name in names]
    model = CountedModel([turn(None, *(task(name) for name in names), when=LOOK), *parts, turn("done")])
    events = went(place, model=model)
    assert model.most_in_flight == 3
    found = outputs(events)
    assert sorted(output.text for output in found) == [f"found {name}" for name in names]
    for output in found:
        theirs = texts(place.session.context(where(output)["leaf"]))
        assert len(theirs) == 2
        assert theirs[1] == f"found {theirs[0]}"
    answered = [message for message in place.session.context().messages if isinstance(message, ToolResult)]
    assert len(answered) == 3
    check_is_sound(place.session)


def test_a_sub_agent_has_only_the_given_tools(place: Workplace) -> None:
    model = _model(
        turn(None, task("x", tools=["read", "ls"]), task("y", tools=["task"]), when=LOOK),
        turn("ok", when="x"),
        turn("done"),
    )
    found = outputs(went(place, model=model))
    assert [tool.name for tool in model.requests[1].tools] == ["read", "ls"]
    (wrong,) = [output for output in found if output.is_error]
    assert "cannot have the tool 'task'" in wrong.text
    assert "read" in wrong.text
    assert len(entries_of(place.session, "reset_boundary")) == 1


def test_usage_of_a_sub_agent_counts_for_its_caller_immediately(place: Workplace) -> None:
    used = Usage(100, 10, total_tokens=110)
    events = went(
        place,
        turn(None, task("a"), usage=used),
        turn(None, call("ls", path="."), when="a", usage=used),
        turn("sub", usage=used),
        turn("end", usage=used),
    )
    assert end_of(events).spent.tokens == 440
    assert end_of(events).spent.turns == 4
    assert [event.spent.tokens for event in events if isinstance(event, Used)] == [110, 220, 330, 440]
    assert place.session.usage().requests == 4
    (output,) = outputs(events)
    assert where(output)["spent"]["input"] == 200


def test_a_sub_agent_ends_at_its_own_budget_and_at_the_rest_of_its_caller_s(place: Workplace) -> None:
    used = Usage(100, 0, total_tokens=100)
    again = turn(None, call("ls", path="."), usage=used, repeat=True)
    events = went(
        place, turn(None, task("a", budget={"turns": 3}), when=LOOK, usage=used), again, limits=Limits(turns=9)
    )
    (output,) = [one for one in outputs(events) if "task" in one.details]
    assert where(output)["reason"] == "limit"
    assert where(output)["spent"]["turns"] == 3
    assert output.is_error
    assert "3 turns" in output.text

    other = sessiontree.create(place.project, home=place.home)
    events = went(place, turn(None, task("a"), when=LOOK, usage=used), again, at=other, limits=Limits(tokens=450))
    (output,) = outputs(events)[-1:]
    assert where(output)["reason"] == "limit"
    assert end_of(events).reason == "limit"
    assert end_of(events).spent.tokens == 500


def test_parallel_sub_agents_exceed_their_caller_s_limit_by_at_most_one_request(place: Workplace) -> None:
    names = [f"part {number}" for number in range(6)]
    used = Usage(1_000, 0, total_tokens=1_000)
    again = turn(None, call("ls", path="."), usage=used, repeat=True, first_delay=0.02)
    facts = Facts(source="scripted/model", output=1_000)
    model = ScriptedModel([turn(None, *map(task, names), when=LOOK, usage=used), again], facts)
    events = went(place, model=model, limits=Limits(tokens=8_500))
    assert end_of(events).reason == "limit"
    assert 8_500 <= end_of(events).spent.tokens <= 9_500
    assert [where(output)["reason"] for output in outputs(events)] == ["limit"] * 6
    check_is_sound(place.session)


def test_sub_agents_of_several_lanes_exceed_the_shared_limit_by_at_most_one_request(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    used = Usage(1_000, 0, total_tokens=1_000)
    asks = turn(None, task("a"), task("b"), when="lane", usage=used, repeat=True)
    again = turn(None, call("nothing"), usage=used, repeat=True, first_delay=0.02)
    model = ScriptedModel([asks, again], Facts(source="scripted/model", output=1_000))

    async def main() -> Exploration:
        prompts = [f"lane {number}" for number in range(3)]
        bounds = Bounds(tokens=15_500)
        async with explore(
            session, prompts=prompts, models=[model], tools=Tools([TaskTool()]), bounds=bounds
        ) as exploration:
            await exploration.finish()
        return exploration

    exploration = asyncio.run(main())
    assert [lane.state for lane in exploration.lanes] == ["limit"] * 3
    assert 15_500 <= exploration.spent.tokens <= 16_500
    assert session.usage().input == exploration.spent.tokens
    for lane in exploration.lanes:
        theirs = texts(session.context(lane.leaf))
        assert len(theirs) == 2 + 1 + 1 + 2
        assert "no tool is named" not in "".join(theirs)


def test_questions_go_to_the_approver_of_the_caller_and_name_the_sub_agent(place: Workplace) -> None:
    place.answers.reply = Reply("no", "not today")
    model = _model(
        turn(None, task("remove it"), when=LOOK),
        turn(None, call("bash", command="touch made"), when="remove it"),
        turn("I may not.", when="not today"),
        turn("end"),
    )
    went(place, model=model)
    (question,) = place.answers.questions
    assert question.title == "[about remove it] touch made"
    assert "about remove it" in question.reasons[-1]
    assert not (place.project / "made").exists()


def test_another_model_needs_approval_and_is_closed_at_the_end(place: Workplace) -> None:
    other = _model(turn("from the other", repeat=True))
    named: list[str] = []

    def find(name: str) -> ScriptedModel:
        named.append(name)
        return other

    events = went(place, turn(None, task("a", model="other:one")), turn("end"), tools=tools(TaskTool(find_model=find)))
    assert outputs(events)[0].text == "from the other"
    (question,) = place.answers.questions
    assert "other:one" in question.title
    assert named == ["other:one"]

    place.answers.reply = Reply("no", "too dear")
    session = sessiontree.create(place.project, home=place.home)
    events = went(
        place, turn(None, task("a", model="other:one")), turn("end"), at=session, tools=tools(TaskTool(find_model=find))
    )
    assert "too dear" in outputs(events)[0].text
    assert named == ["other:one"]
    assert not entries_of(session, "reset_boundary")


def test_an_unavailable_model_is_reported_as_an_error(place: Workplace) -> None:
    events = went(place, turn(None, task("a", model="nobody:knows")), turn("end"))
    assert outputs(events)[0].is_error
    assert "nobody" in outputs(events)[0].text


def test_updates_of_the_call_show_the_activity_of_the_sub_agent(place: Workplace) -> None:
    model = _model(
        turn(None, task("a"), when=LOOK),
        turn("I run it.", call("bash", command="echo hello; exit 3"), when="a"),
        turn("It failed.", when="hello"),
        turn("end"),
    )
    events = went(place, model=model)
    shown = "".join(event.text for event in events if isinstance(event, ToolUpdate))
    assert "I run it.\n" in shown
    assert "bash: echo hello; exit 3\n" in shown
    assert "bash failed: hello" in shown


def test_a_long_last_message_is_truncated_with_a_note(place: Workplace) -> None:
    long = "word " * (MAX_TEXT // 2)
    events = went(place, turn(None, task("a"), when=LOOK), turn(long, when="a", piece=100_000), turn("end"))
    (output,) = outputs(events)
    assert len(output.text) < MAX_TEXT + 200
    assert "the rest is on its branch" in output.text
    assert texts(place.session.context(where(output)["leaf"]))[-1] == long


def test_interrupting_the_caller_interrupts_and_settles_the_sub_agent(place: Workplace) -> None:
    async def main() -> tuple[Run, list[Any]]:
        going = begun(
            place,
            turn(None, task("wait long"), when=LOOK),
            turn("I wait.", call("bash", command="echo $$ > pid; sleep 60"), when="wait long"),
        )
        events: list[Any] = []
        async for event in going:
            events.append(event)
            if isinstance(event, ToolUpdate) and "sleep" in event.text:
                await asyncio.to_thread(pid_in, place.project / "pid")
                going.interrupt("enough")
        return going, events

    going, _ = asyncio.run(main())
    assert going.end is not None
    assert going.end.reason == "interrupted"
    session = place.session
    assert session.leaf == going.end.leaf
    (start,) = [id for id in session.ids if parse_subagent(session.entry(id)) is not None]
    (leaf,) = [leaf for leaf in session.leaves() if start in session.path_ids(leaf)]
    theirs = session.context(leaf).messages
    assert isinstance(theirs[-1], ToolResult)
    assert "was interrupted" in message_text(theirs[-1])
    assert not is_alive(pid_in(place.project / "pid"))
    check_is_sound(session)
    assert find_unfinished(sessiontree.open(session.location)) == []


def test_a_finished_sub_agent_can_be_continued_and_branched(place: Workplace) -> None:
    (place.project / "readme").write_text("x")
    (output,) = outputs(went(place, *ONE))
    place.session.close()
    session = sessiontree.open(place.session.location)
    model = _model(turn("It is called readme."))
    branch = session.branch(where(output)["leaf"])
    asyncio.run(run(branch, "What is it called?", model=model).finish())
    asked = [message_text(message) for message in model.requests[0].messages]
    assert asked[0] == "count the files"
    assert asked[-1] == "What is it called?"
    assert LOOK not in asked


def test_a_session_of_its_own_names_its_origin(place: Workplace) -> None:
    place.approvals.set_mode("autoEdit")
    model = _model(
        turn(None, task("a", mode="session"), when=LOOK),
        turn(None, call("write", path="made", content="x"), when="a"),
        turn("sub", when="made"),
        turn("end"),
    )
    events = went(place, model=model)
    sub = where(outputs(events)[0])
    assert sub["session"] != place.session.id
    linked = sessiontree.open(sub["path"])
    assert linked.header.forked_from is not None
    assert linked.header.forked_from.session == place.session.id
    record = parse_subagent(linked.entry(sub["start"]))
    assert record is not None
    assert record.session == place.session.id
    assert record.answer in place.session
    assert texts(linked.context())[0] == "a"
    assert linked.name == "about a"
    assert not place.answers.questions
    assert (place.project / "made").exists()
    assert not entries_of(place.session, "reset_boundary")
    assert end_of(events).spent.turns == 4


@pytest.mark.parametrize("dialect", ["pi", "omp", "claude", "neovate"])
def test_sessions_of_other_agents_have_sub_agents_too(place: Workplace, tmp_path: Path, dialect: str) -> None:
    place.session.append("user", "hello")
    place.session.append(role="assistant", content="hello")
    out = str(tmp_path / f"theirs-{dialect}.jsonl")
    foreign = carry_out(place.session, make_plan(place.session, Request(dialect, at=place.session.leaf, out=out)))
    model = _model(
        turn(None, task("part one"), task("part two"), when=LOOK),
        turn("one is done", when="part one"),
        turn("two is done", when="part two"),
        turn("end"),
    )
    home = tmp_path / "other home"
    events = went(place, at=foreign, model=model, tools=tools(TaskTool(home=str(home))))
    assert end_of(events).text == "end"
    foreign.close()
    fresh = sessiontree.open(out)
    ours = texts(fresh.context())
    assert ours[0] == "hello"
    assert ours[-1] == "end"
    assert "part one" not in ours
    for output in outputs(events):
        sub = where(output)
        theirs = sessiontree.open(sub.get("path", out)).context(sub["leaf"])
        assert len(theirs.messages) == 2
        assert texts(theirs)[1] == output.text
        assert (sub["session"] == fresh.id) is (dialect == "omp")
    for request in model.requests[1:3]:
        assert len(request.messages) == 1


def test_without_a_run_there_is_no_sub_agent(place: Workplace) -> None:
    output = place.run(TaskTool(), description="a", prompt="b")
    assert output.is_error
    assert "a sub-agent needs a run" in output.text


KILLED = """
import asyncio, sys
import sessiontree
from sessiontree.agent.loop import run
from sessiontree.agent.tools.base import load_tools
from sessiontree.explore.task_tool import TaskTool
from sessiontree.models import Facts, ScriptedModel
from sessiontree.models.scripted import parse_script

session = sessiontree.create(sys.argv[1], path=sys.argv[2])
session.set_config(approval_mode="yolo")
tools = load_tools()
tools.add(TaskTool())
script = parse_script(sys.argv[3].encode())
asyncio.run(run(session, "look at the parts", model=ScriptedModel(script), tools=tools).finish())
"""

SLEEPS = """{"turns": [
  {"when": "look at", "toolCalls": [{"name": "task", "arguments": {"description": "slow", "prompt": "wait long"}}]},
  {"when": "wait long", "text": "I wait.", "toolCalls": [
    {"name": "bash", "arguments": {"command": "echo $$ > ready; exec sleep 60"}}]}
]}"""


@pytest.fixture
def killed(tmp_path: Path) -> Session:
    """A session whose process was killed while a sub-agent was running."""
    path = tmp_path / "killed.jsonl"
    command = [sys.executable, "-c", KILLED, str(tmp_path), str(path), SLEEPS]
    with child_process(command, start_new_session=True):
        sleeping = pid_in(tmp_path / "ready")
    wait_for(lambda: not is_alive(sleeping))
    return sessiontree.open(path)


def end_of_sub_agent(session: Session) -> str:
    """The last entry of the sub-agent whose call is open at a session's current entry."""
    (open_call,) = pending_calls(session)
    with find_sub_agent(session, session.leaf, open_call.call.id) as sub_agent:
        assert sub_agent is not None
        assert sub_agent.branch.leaf is not None
        return sub_agent.branch.leaf


def test_a_killed_sub_agent_can_be_switched_to_and_continued(killed: Session) -> None:
    branch = killed.branch(end_of_sub_agent(killed))
    assert texts(branch.context()) == ["wait long", "I wait."]
    model = _model(turn("I had to stop waiting."))
    end = asyncio.run(run(branch, None, model=model, pending="skip").finish())
    assert end.reason == "done"
    assert [message.role for message in model.requests[0].messages] == ["user", "assistant", "toolResult"]
    assert "not known" in message_text(model.requests[0].messages[-1])


def test_after_a_kill_the_current_entry_is_the_caller_s_open_call(killed: Session) -> None:
    assert texts(killed.context())[0] == LOOK
    assert [one.call.name for one in pending_calls(killed)] == ["task"]
    assert find_unfinished(killed) == [Unfinished("slow", end_of_sub_agent(killed))]


def test_a_call_that_is_run_again_continues_its_sub_agent(killed: Session) -> None:
    model = _model(turn("Waited.", when="lost"), turn("all done", when="Waited."))
    end = asyncio.run(run(killed, None, model=model, tools=tools(), pending="run").finish())
    assert (end.reason, end.text) == ("done", "all done")
    assert len(entries_of(killed, "reset_boundary")) == 1
    assert [message_text(message) for message in model.requests[0].messages][:2] == ["wait long", "I wait."]
    assert [role for role, _ in transcript(killed)] == ["user", "assistant", "toolResult", "assistant"]
    check_is_sound(killed)


def test_the_chat_opens_a_session_that_was_killed_at_the_caller(killed: Session, tmp_path: Path) -> None:
    sub_agent_leaf = end_of_sub_agent(killed)
    script = tmp_path / "script.json"
    script.write_text('{"turns": [{"text": "never asked"}]}')
    state = chatted(killed, script, tmp_path, "y", "s", f"/switch {sub_agent_leaf}", "n", "/session", "/quit")
    assert "Allow that again? [y/N]" in state, "the file does not grant the approvals it names"
    assert "This call has no result:\n  task slow\n" in state, "the open call is asked about"
    assert f"sub-agent 'slow' did not finish; /switch {sub_agent_leaf} shows its branch" in state
    session = sessiontree.open(killed.location)
    assert session.leaf == sub_agent_leaf
    assert find_unfinished(session) == []


def chatted(session: Session, script: Path, home: Path, *lines: str) -> str:
    command = [
        sys.executable,
        "-m",
        "sessiontree",
        "chat",
        "--session",
        session.location,
        "--model",
        f"scripted:{script}",
    ]
    ran = subprocess.run(
        command,
        input="".join(f"{line}\n" for line in lines),
        cwd=home,
        env={**os.environ, "SESSIONTREE_HOME": str(home / "home")},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return ran.stdout + ran.stderr


def test_a_user_who_switched_to_the_branch_stays_there(killed: Session) -> None:
    sub_agent_leaf = end_of_sub_agent(killed)
    killed.move(sub_agent_leaf)
    fresh = sessiontree.open(killed.location)
    assert fresh.leaf == sub_agent_leaf
    assert find_unfinished(fresh) == []


def test_a_sub_agent_whose_result_is_on_another_branch_is_not_run_again(place: Workplace) -> None:
    (place.project / "readme").write_text("x")
    (output,) = outputs(went(place, *ONE))
    session = place.session
    answer = session.entry(where(output)["start"]).parent_id
    session.move(answer)
    model = _model(turn("So it is one.", when="There is 1."))
    events = asyncio.run(collect_events(run(session, None, model=model, tools=tools(), pending="run")))
    assert (outputs(events), len(model.requests)) == ([], 1)
    assert transcript(session)[-2:] == [("toolResult", "There is 1."), ("assistant", "So it is one.")]


KILLS = 8
PARTS = 3
CHILD = """
import asyncio, sys
from pathlib import Path
import sessiontree
from sessiontree.agent.loop import run
from sessiontree.agent.tools.base import Tools
from sessiontree.explore.task_tool import TaskTool
from sessiontree.core.messages import ToolCall
from tests.explore.lanes import Note, Stepping

location, notes, parts, steps = sys.argv[1:]
session = sessiontree.open(location)

class Parts(Stepping):
    async def stream(self, request, /):
        mine = Stepping(1, calls=self.start) if request.messages[0].content == "begin" else self.parts
        async for event in mine.stream(request):
            yield event

    parts = Stepping(int(steps), delay=0.004)

    def start(self, prompt, step):
        arguments = [{"description": f"part {n}", "prompt": f"part {n}"} for n in range(int(parts))]
        return [ToolCall(f"task-{n}", "task", arguments[n]) for n in range(int(parts))]

async def main():
    print("go", flush=True)
    tools = Tools([Note(Path(notes), delay=0.004), TaskTool()])
    prompt = None if len(session.context().messages) else "begin"
    end = await run(session, prompt, model=Parts(0), tools=tools, pending="run").finish()
    print(end.reason, end.why, flush=True)

asyncio.run(main())
"""


@pytest.mark.slow
def test_sub_agents_continue_after_any_number_of_kills_and_repeat_nothing(tmp_path: Path) -> None:
    session = sessiontree.create(tmp_path, path=tmp_path / "session.jsonl", appear="now")
    session.close()
    notes, steps, draw = tmp_path / "notes", 40 * KILLS, random.Random(time.time_ns())
    command = [sys.executable, "-c", CHILD, session.location, str(notes), str(PARTS), str(steps)]
    for number in range(KILLS + 1):
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert child.stdout is not None
        assert child.stdout.readline() == "go\n", child.communicate()
        if number < KILLS:
            time.sleep(draw.uniform(0, 0.3))
            child.kill()
        out, errors = child.communicate(timeout=120)
        assert (child.returncode, out) == ((-9, "") if number < KILLS else (0, "done \n")), errors
    fresh = sessiontree.open(session.location)
    assert [message.role for message in check_is_sound(fresh)] == [
        "user",
        "assistant",
        *["toolResult"] * PARTS,
        "assistant",
    ]
    done = notes.read_text().split("\n")[:-1]
    assert len(done) == len(set(done))
    ended = [message for message in fresh.context().messages if isinstance(message, ToolResult)]
    assert sorted(map(message_text, ended)) == [f"part {part} step {steps}" for part in range(PARTS)]
    starts = [id for id in fresh.ids if parse_subagent(fresh.entry(id)) is not None]
    wholes = [
        texts(fresh.context(leaf)) for leaf in fresh.leaves() if any(one in fresh.path_ids(leaf) for one in starts)
    ]
    assert sum(len(whole) > 1 for whole in wholes) == PARTS, "each sub-agent has one branch"
    for whole in wholes:
        if len(whole) > 1:
            assert len({text[:6] for text in whole if text.startswith("part")}) == 1, "no word of another"
            lost = sum("was lost" in text for text in whole)
            assert sum(name.startswith(whole[0]) for name in done) + lost >= steps
