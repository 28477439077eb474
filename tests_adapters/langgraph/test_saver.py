"""The checkpoint saver for LangGraph: its conformance suite, and graphs compared with LangGraph's own saver."""

from __future__ import annotations

import asyncio
import datetime
import decimal
import multiprocessing
import operator
import os
import random
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, RemoveMessage, SystemMessage, ToolMessage
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, Send, interrupt

import sessiontree
from sessiontree.adapters.langgraph import SessionTreeSaver
from sessiontree.library.library import Library

CONFIG: Any = {"configurable": {"thread_id": "thread-1"}}
BASE = {"put", "put_writes", "get_tuple", "list", "delete_thread"}


def thread(name: str) -> Any:
    return {"configurable": {"thread_id": name}}


# The suite for third parties


def test_all_eight_capabilities_conform(home: str) -> None:
    @checkpointer_test(name="sessiontree")
    async def make() -> AsyncIterator[BaseCheckpointSaver]:
        yield SessionTreeSaver(home)

    report = asyncio.run(validate(make))
    assert {name: found.failures for name, found in report.results.items() if found.failures} == {}
    assert report.passed_all()
    counts = {name: found.tests_passed for name, found in report.results.items()}
    assert len(counts) == 8
    assert sum(count for name, count in counts.items() if name in BASE) == 58
    assert sum(count for name, count in counts.items() if name not in BASE) == 23


class Reversed(SessionTreeSaver):
    def list(self, *arguments: Any, **options: Any) -> Iterator[Any]:
        return reversed([*super().list(*arguments, **options)])  # type: ignore[return-value]


class WithoutParents(SessionTreeSaver):
    def get_tuple(self, config: Any) -> Any:
        found = super().get_tuple(config)
        return found and found._replace(parent_config=None)


class WithoutDeletion(SessionTreeSaver):
    def delete_thread(self, thread_id: str) -> None:
        pass


@pytest.mark.parametrize("broken", [Reversed, WithoutParents, WithoutDeletion])
def test_the_suite_rejects_broken_savers(broken: type[SessionTreeSaver]) -> None:
    @checkpointer_test(name=broken.__name__)
    async def make() -> AsyncIterator[BaseCheckpointSaver]:
        yield broken(f"memory:{uuid.uuid4()}")

    assert not asyncio.run(validate(make)).passed_all_base()


# Graphs, compared with LangGraph's own saver


class State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    log: Annotated[list[str], operator.add]
    numbers: dict[str, Any]


def build(saver: BaseCheckpointSaver) -> Any:
    def model(state: State) -> dict[str, Any]:
        last = state["messages"][-1]
        if isinstance(last, HumanMessage) and "tool" in str(last.content):
            call = {"name": "add", "args": {"a": 1, "b": [2, {"c": None}]}, "id": f"call-{len(state['messages'])}"}
            return {"messages": [AIMessage("", tool_calls=[call])], "log": ["call"]}
        answer = AIMessage(f"answer {len(state['messages'])}", response_metadata={"model_name": "m"})
        return {"messages": [answer], "log": ["answer"], "numbers": {"n": len(state["messages"]), "at": (1, 2)}}

    def tools(state: State) -> dict[str, Any]:
        call = state["messages"][-1].tool_calls[0]  # type: ignore[union-attr]
        if call["id"] == "call-5":
            interrupt({"allow": call["id"]})
        return {
            "messages": [ToolMessage("3", tool_call_id=call["id"], name="add", artifact={"raw": 3})],
            "log": ["tool"],
        }

    def left(state: State) -> dict[str, Any]:
        return {"log": ["left"], "messages": [AIMessage(f"left {len(state['messages'])}")]}

    def right(state: State) -> dict[str, Any]:
        return {"log": ["right"], "messages": [AIMessage(f"right {len(state['messages'])}")]}

    inner = StateGraph(State)
    inner.add_node("left", left)
    inner.add_edge(START, "left")
    graph = StateGraph(State)
    graph.add_node("model", model)
    graph.add_node("tools", tools)
    graph.add_node("inner", inner.compile())
    graph.add_node("right", right)
    graph.add_edge(START, "model")
    graph.add_conditional_edges(
        "model", lambda s: "tools" if s["messages"][-1].tool_calls else "end", {"tools": "tools", "end": "inner"}
    )
    graph.add_conditional_edges(
        "tools", lambda _: [Send("inner", {"messages": [], "log": []}), "right"], ["inner", "right"]
    )
    graph.add_edge("inner", END)
    graph.add_edge("right", END)
    return graph.compile(checkpointer=saver)


def plain(value: Any) -> Any:
    """A value without ids and times, which differ in each run."""
    if isinstance(value, HumanMessage | AIMessage | ToolMessage | SystemMessage):
        return (type(value).__name__, plain(value.model_dump(exclude={"id"})))
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list) else value


def history(graph: Any, config: Any) -> list[Any]:
    return [
        (
            plain(state.values),
            state.next,
            state.metadata["source"],
            state.metadata["step"],
            [(task.name, [one.value for one in task.interrupts], plain(task.result)) for task in state.tasks],
        )
        for state in graph.get_state_history(config)
    ]


def drive(graph: Any, name: str) -> list[Any]:
    """Use a graph: messages, tools, an interruption, edits, removals and a fork. Returns what can be seen of it."""
    config = thread(name)
    seen: list[Any] = []
    graph.invoke({"messages": [HumanMessage("hello")], "log": ["in"], "numbers": {}}, config)
    graph.invoke({"messages": [HumanMessage("use a tool")]}, config)
    seen.append(history(graph, config))
    stopped = graph.invoke({"messages": [HumanMessage([{"type": "text", "text": "hello"}])]}, config)
    graph.update_state(config, {"messages": [SystemMessage("be brief"), HumanMessage("yes"), HumanMessage("yes")]})
    state = graph.get_state(config)
    first = state.values["messages"][0]
    graph.update_state(
        config, {"messages": [RemoveMessage(first.id), HumanMessage("edited", id=stopped["messages"][1].id)]}
    )
    seen.append(history(graph, config))
    states = [*graph.get_state_history(config)]
    fork = graph.update_state(
        states[-3].config, {"messages": [HumanMessage("another way with a tool")]}, as_node="__start__"
    )
    graph.invoke(None, fork)
    seen.append(history(graph, config))
    graph.invoke(Command(resume="go"), config)
    seen.append(history(graph, config))
    return seen


def test_graphs_behave_as_with_the_saver_of_langgraph(home: str) -> None:
    expected = drive(build(InMemorySaver()), "t")
    assert drive(build(SessionTreeSaver(home)), "t") == expected
    # What another process reads is the same.
    assert history(build(SessionTreeSaver(home)), thread("t")) == expected[-1]


def test_graphs_behave_the_same_in_coroutines(home: str) -> None:
    async def work(saver: BaseCheckpointSaver) -> list[Any]:
        graph = build(saver)
        for text in ("hello", "use a tool", "more"):
            await graph.ainvoke({"messages": [HumanMessage(text)], "log": [], "numbers": {}}, CONFIG)
        return [plain(state.values) async for state in graph.aget_state_history(CONFIG)]

    assert asyncio.run(work(SessionTreeSaver(home))) == asyncio.run(work(InMemorySaver()))


# Values


class Opaque(TypedDict, total=False):
    value: Any


VALUES = [
    None,
    True,
    0,
    -(2**63),
    1.5,
    float("inf"),
    "text \x00 \u2028 \U0001f600",
    b"bytes",
    (1, [2]),
    {1: "number as key"},
    {"a": {"b": [None, {"c": ()}]}},
    [],
    [[]],
    {},
    {"message": [HumanMessage("in a dict", id="x"), {"deep": AIMessage("deeper")}]},
    [HumanMessage("same"), HumanMessage("same"), HumanMessage("same", id="1"), HumanMessage("same", id="2")],
    HumanMessage("named", name="Ada", additional_kwargs={"k": (1,)}),
    AIMessage([{"type": "text", "text": "block"}, {"type": "image", "data": "x" * 2000}]),
    AIMessage("used", usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}),
    ToolMessage("", tool_call_id="c", status="error"),
    datetime.datetime(2026, 11, 17, tzinfo=datetime.UTC),
    decimal.Decimal("1.10"),
    uuid.UUID(int=5),
    {"set"},
    "long " * 1000,
    {"json": "looks like ours"},
    {"message": "0123abcd"},
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_values_come_back_exactly_in_channels_writes_and_metadata(value: Any, home: str) -> None:
    saver, checkpoint = SessionTreeSaver(home), empty_checkpoint()
    checkpoint["channel_values"] = {"value": value, "list": [value, 1, value]}
    checkpoint["channel_versions"] = {"value": 1, "list": 1}
    config = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    stored = saver.put(config, checkpoint, {"source": "loop", "extra": value}, checkpoint["channel_versions"])  # type: ignore[typeddict-unknown-key]
    saver.put_writes(stored, [("value", value)], "task")
    found = SessionTreeSaver(home).get_tuple(stored)
    memory = InMemorySaver()
    expected = memory.get_tuple(memory.put(config, checkpoint, {"source": "loop"}, checkpoint["channel_versions"]))
    assert found is not None
    assert expected is not None
    assert found.checkpoint == expected.checkpoint
    assert [type(one) for one in found.checkpoint["channel_values"]["list"]] == [
        type(one) for one in expected.checkpoint["channel_values"]["list"]
    ]
    expected_value = expected.checkpoint["channel_values"]["value"]
    assert found.pending_writes == [("task", "value", expected_value)]
    assert found.metadata["extra"] == expected_value or isinstance(value, str)


def _answer() -> AIMessage:
    call = {"name": "read", "args": {"lines": [1, 2]}, "id": "c", "type": "tool_call"}
    return AIMessage("answer", id="1", tool_calls=[call], response_metadata={"a": 1, "b": 2}, extra={"deep": [0]})


CHANGES: dict[str, Callable[[AIMessage], object]] = {
    "text": lambda message: setattr(message, "content", "other"),
    "blocks": lambda message: setattr(message, "content", [{"type": "text", "text": "answer"}]),
    "name": lambda message: setattr(message, "name", "Ada"),
    "id": lambda message: setattr(message, "id", "2"),
    "new key": lambda message: message.additional_kwargs.update(k="v"),
    "True for 1": lambda message: message.response_metadata.update(a=True),
    "float for 1": lambda message: message.response_metadata.update(a=1.0),
    "other order": lambda message: message.response_metadata.update(a=message.response_metadata.pop("a")),
    "argument of a call": lambda message: message.tool_calls[0]["args"]["lines"].append(3),
    "fewer calls": lambda message: message.tool_calls.clear(),
    "extra field": lambda message: message.extra["deep"].append(1),  # type: ignore[attr-defined]
    "tuple": lambda message: message.additional_kwargs.update(k=(1,)),
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("kept_bytes", [0, 2 << 20])
def test_a_message_that_is_changed_in_place_changes_only_the_next_checkpoint(
    name: str, kept_bytes: int, home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sessiontree.adapters.langgraph.values._KEPT_BYTES", kept_bytes)
    saver, checkpoint = SessionTreeSaver(home), empty_checkpoint()

    def serialized(saver: Any, config: Any) -> list[Any]:
        found = saver.get_tuple(config)
        assert found is not None
        return [saver.serde.dumps_typed(one) for one in found.checkpoint["channel_values"]["messages"]]

    original = [HumanMessage("question", id="0"), _answer()]
    checkpoint["channel_values"], checkpoint["channel_versions"] = {"messages": original}, {"messages": 1}
    first = saver.put({"configurable": {"thread_id": "t", "checkpoint_ns": ""}}, checkpoint, {}, {"messages": 1})
    found = saver.get_tuple(first)
    assert found is not None
    messages = found.checkpoint["channel_values"]["messages"]
    CHANGES[name](messages[1])
    assert serialized(saver, first) == [saver.serde.dumps_typed(one) for one in original]

    following = empty_checkpoint()
    following["channel_values"], following["channel_versions"] = {"messages": messages}, {"messages": 2}
    second = saver.put(first, following, {}, {"messages": 2})
    changed = [saver.serde.dumps_typed(one) for one in messages]
    for reader in (saver, SessionTreeSaver(home)):
        assert serialized(reader, second) == changed
        assert serialized(reader, first) == [saver.serde.dumps_typed(one) for one in original]
    assert changed != [saver.serde.dumps_typed(one) for one in original]


def test_pending_writes_are_in_the_order_in_which_a_step_applies_them(home: str) -> None:
    saver = SessionTreeSaver(home)
    config = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    stored = saver.put(config, empty_checkpoint(), {}, {})
    saver.put_writes(stored, [("a", 1), ("a", 2)], "task-1", "~b")
    saver.put_writes(stored, [("a", 3)], "task-2", "~a")
    saver.put_writes(stored, [("a", 4)], "task-0")
    found = saver.get_tuple(stored)
    assert found is not None
    assert [value for _, _, value in found.pending_writes or []] == [4, 3, 1, 2]


def test_writes_may_be_stored_before_their_checkpoint(home: str) -> None:
    saver, checkpoint = SessionTreeSaver(home), empty_checkpoint()
    config = {"configurable": {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": checkpoint["id"]}}
    saver.put_writes(config, [("messages", [HumanMessage("early")])], "task")
    saver.put({"configurable": {"thread_id": "t", "checkpoint_ns": ""}}, checkpoint, {}, {})
    found = SessionTreeSaver(home).get_tuple(config)
    assert found is not None
    assert plain([value for _, _, value in found.pending_writes or []]) == plain([[HumanMessage("early")]])


def test_a_large_value_is_stored_once_in_a_blob(tmp_path: Path) -> None:
    saver = SessionTreeSaver(tmp_path)
    graph = StateGraph(Opaque)
    graph.add_node("n", lambda state: state)
    graph.add_edge(START, "n")
    compiled = graph.compile(checkpointer=saver)
    text = "".join(random.Random(1).choices("abc", k=50_000))
    for _ in range(5):
        compiled.invoke({"value": text}, CONFIG)
    assert compiled.get_state(CONFIG).values == {"value": text}
    size = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    assert size < 3 * len(text)  # the input and the state, which are two values


def test_encrypted_values_are_not_readable_in_the_session(tmp_path: Path) -> None:
    pytest.importorskip("Crypto")
    from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

    serde = EncryptedSerializer.from_pycryptodome_aes(key=b"0" * 32)
    graph = build(SessionTreeSaver(tmp_path, serde=serde))
    graph.invoke({"messages": [HumanMessage("a secret")], "log": ["secret"], "numbers": {}}, CONFIG)
    assert graph.get_state(CONFIG).values["messages"][0].content == "a secret"
    assert all(b"secret" not in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


def test_delta_channels_survive_pruning(home: str) -> None:
    class Delta(TypedDict):
        items: Annotated[list[str], DeltaChannel(lambda state, writes: state + [one for w in writes for one in w])]

    graph = StateGraph(Delta)
    graph.add_node("n", lambda _: {"items": ["out"]})
    graph.add_edge(START, "n")
    saver = SessionTreeSaver(home)
    compiled = graph.compile(checkpointer=saver)
    for number in range(4):
        compiled.invoke({"items": [str(number)]}, CONFIG)
    before = compiled.get_state(CONFIG).values
    assert before == {"items": ["0", "out", "1", "out", "2", "out", "3", "out"]}
    saver.prune(["thread-1"])
    assert len([*saver.list(CONFIG)]) == 1
    assert graph.compile(checkpointer=SessionTreeSaver(home)).get_state(CONFIG).values == before


# Size


@pytest.mark.slow
def test_a_thousand_steps_take_at_most_three_times_the_bytes_of_the_messages(tmp_path: Path) -> None:
    graph = StateGraph(MessagesState)
    graph.add_node("n", lambda _: {})
    graph.add_edge(START, "n")
    compiled = graph.compile(checkpointer=SessionTreeSaver(tmp_path))
    choose = random.Random(1)
    texts = ["".join(choose.choices("abcdefgh ", k=choose.randint(200, 1000))) for _ in range(1000)]
    for number, text in enumerate(texts):
        message = (AIMessage if number % 2 else HumanMessage)(content=text, id=str(number))
        compiled.update_state(CONFIG, {"messages": [message]}, as_node="n")
    fresh = graph.compile(checkpointer=SessionTreeSaver(tmp_path))
    assert [message.content for message in fresh.get_state(CONFIG).values["messages"]] == texts
    size = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    assert size <= 3 * sum(map(len, texts))


# Ordinary sessions


def ref_of(home: str, name: str = "thread-1") -> str:
    opened = SessionTreeSaver(home)._find(name)
    assert opened is not None
    return str(opened.session.ref)


def talk(home: str) -> None:
    graph = build(SessionTreeSaver(home))
    for text in ("hello there", "use a tool"):
        graph.invoke({"messages": [HumanMessage(text)], "log": [], "numbers": {}}, CONFIG)


def texts(session: sessiontree.Session) -> list[str]:
    contents = [message.content for message in session.context().messages]
    flat = [
        content if isinstance(content, str) else "".join(getattr(one, "text", "") for one in content)
        for content in contents
    ]
    return [text for text in flat if text]


def test_a_thread_is_a_session_with_its_conversation(home: str, tmp_path: Path) -> None:
    talk(home)
    with Library(home) as library:
        (summary,) = [one for one in library.everything() if one.agent == "native"]
        assert (summary.id, summary.title) == ("thread-1", "hello there")
    session = sessiontree.open(ref_of(home))
    assert session.problems == []
    expected = ["hello there", "answer 1", "left 2", "use a tool", "3"]
    assert texts(session)[:5] == expected
    converted = tmp_path / "claude.jsonl"
    converted.write_bytes(b"".join(line + b"\n" for line in sessiontree.convert(session, "claude").lines))
    assert texts(sessiontree.open(converted))[:5] == expected


def test_a_fork_of_the_graph_is_a_branch_of_the_session(home: str) -> None:
    graph = build(SessionTreeSaver(home))
    for text in ("one", "two"):
        graph.invoke({"messages": [HumanMessage(text)], "log": [], "numbers": {}}, CONFIG)
    states = [*graph.get_state_history(CONFIG)]
    start = next(state for state in states if not state.next and len(state.values["messages"]) == 3)
    graph.invoke({"messages": [HumanMessage("another two")], "log": [], "numbers": {}}, start.config)
    assert texts(sessiontree.open(ref_of(home))) == ["one", "answer 1", "left 2", "another two", "answer 4", "left 5"]
    assert len(sessiontree.open(ref_of(home)).leaves()) >= 2


def test_commands_work_on_threads(tmp_path: Path) -> None:
    home = str(tmp_path / "home")
    talk(home)

    def command(*arguments: str) -> str:
        environment = {**os.environ, "SESSIONTREE_HOME": home}
        done = subprocess.run(
            [sys.executable, "-m", "sessiontree", *arguments],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    assert "hello there" in command("list", "--all")
    assert "use a tool" in command("tree", ref_of(home))
    assert "no problems" in command("doctor", ref_of(home)).lower()
    command("convert", ref_of(home), "--to", "pi", "--out", str(tmp_path / "pi.jsonl"))
    assert texts(sessiontree.open(tmp_path / "pi.jsonl"))[:2] == ["hello there", "answer 1"]
    from tests_adapters.front_ends import check_front_ends  # not at the top, which every child process imports

    check_front_ends(tmp_path, ["hello there", "answer 1", "use a tool"], {"SESSIONTREE_HOME": home})


def test_threads_of_any_name_are_found_listed_and_kept_apart(home: str) -> None:
    saver = SessionTreeSaver(home)
    names = ["12345678", "12345678-long", "user/7: chat", "..", "Ünïcode", "a" * 300]
    for name in names:
        config = {"configurable": {"thread_id": name, "checkpoint_ns": ""}}
        saver.put(config, empty_checkpoint(), {"source": "input", "name": name}, {})  # type: ignore[typeddict-unknown-key]
    fresh = SessionTreeSaver(home)
    for name in names:
        found = fresh.get_tuple(thread(name))
        assert found is not None
        assert found.metadata["name"] == name  # type: ignore[typeddict-item]
    assert {one.config["configurable"]["thread_id"] for one in fresh.list(None)} == {*names}
    fresh.delete_thread("12345678")
    assert saver.get_tuple(thread("12345678")) is None
    assert saver.get_tuple(thread("12345678-long")) is not None


# Damage


def test_a_lost_line_is_reported_and_the_rest_of_the_thread_is_readable(tmp_path: Path) -> None:
    graph = build(SessionTreeSaver(tmp_path))
    for text in ("one", "two", "three"):
        graph.invoke({"messages": [HumanMessage(text)], "log": [], "numbers": {}}, CONFIG)
    states = [*graph.get_state_history(CONFIG)]
    file = Path(ref_of(str(tmp_path)))
    lines = file.read_bytes().splitlines(keepends=True)
    lost = next(at for at, line in enumerate(lines) if b'"content":"two"' in line)
    file.write_bytes(
        b"".join([*lines[:lost], b'{"type":"langgraph_writes","id":"0badf00d","parentId":null}\n', *lines[lost + 1 :]])
    )
    damaged = build(SessionTreeSaver(tmp_path))
    with pytest.raises(sessiontree.DamagedError, match=r"is missing.*doctor"):
        damaged.get_state(CONFIG)
    intact = next(state for state in states if len(state.values.get("messages", [])) == 3 and not state.next)
    assert plain(damaged.get_state(intact.config).values) == plain(intact.values)


# Several writers


def put_many(home: str, writer: int, count: int) -> None:
    saver = SessionTreeSaver(home)
    config: Any = {"configurable": {"thread_id": "shared", "checkpoint_ns": f"writer-{writer}"}}
    for number in range(count):
        checkpoint = empty_checkpoint()
        checkpoint["channel_values"] = {"items": list(range(number + 1))}
        checkpoint["channel_versions"] = {"items": number + 1}
        config = saver.put(config, checkpoint, {"step": number}, {"items": number + 1})
        saver.put_writes(config, [("x", [HumanMessage(f"{writer} {number}")])], "task")


@pytest.mark.parametrize("home", ["folder", "postgresql"], indirect=True)
def test_processes_that_share_a_thread_lose_nothing(home: str) -> None:
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=put_many, args=(home, writer, 20)) for writer in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * 4
    saver = SessionTreeSaver(home)
    for writer in range(4):
        found = [*saver.list({"configurable": {"thread_id": "shared", "checkpoint_ns": f"writer-{writer}"}})]
        assert [one.metadata["step"] for one in found] == [*reversed(range(20))]
        assert [one.checkpoint["channel_values"]["items"] for one in found] == [
            list(range(number + 1)) for number in reversed(range(20))
        ]
        assert all(len(one.pending_writes or []) == 1 for one in found)


def test_sessiontree_does_not_import_langgraph_by_itself() -> None:
    program = "import sys, sessiontree.adapters, sessiontree.session.open; assert 'langgraph' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)
