"""Statistics: each response once, in every dialect, with forks, sub-agents, damage and a cache."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from wcwidth import wcswidth

import sessiontree
from sessiontree.conversion.tool_mapping import find_file
from sessiontree.library.aggregate import By, FileCount, Group, Statistics, build_statistics, select_sessions
from sessiontree.library.session_stats import Numbers
from sessiontree.views.statistics import bar, csv_rows, draw_statistics
from tests.library.test_commands import Ran, environment, on_terminal
from tests.library.world import IDS, World, append, clock, json_lines, touch

LONG_REQUEST = "req_011CSHooBGyxyzzyplugh0001"
LONG_MESSAGE = "msg_01XFDUDYJgAACzvnptvVoY01"


@pytest.fixture(autouse=True)
def inside(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep forks inside the test's folders, and use a fixed time zone."""
    for name, value in {**world.environment, "TZ": "UTC"}.items():
        monkeypatch.setenv(name, value)
    for name in ("CLAUDE_CONFIG_DIR", "PI_CODING_AGENT_DIR", "PI_CODING_AGENT_SESSION_DIR", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    _use_zone(monkeypatch, "UTC")


def _use_zone(monkeypatch: pytest.MonkeyPatch, zone: str) -> None:
    """The cache of days has to be cleared when a test changes the time zone."""
    from sessiontree.library import session_stats

    monkeypatch.setenv("TZ", zone)
    time.tzset()
    session_stats._days.clear()


@pytest.fixture(autouse=True)
def zone_afterwards() -> Iterator[None]:
    yield
    from sessiontree.library import session_stats

    time.tzset()
    session_stats._days.clear()


def stats(world: World, by: By = "day", since: int | None = None, **asked: Any) -> Statistics:
    with world.library() as library:
        return build_statistics(library, select_sessions(library, since=since, **asked), by=by, since=since)


def counts(numbers: Numbers) -> tuple[float, ...]:
    """requests, in, out, cached, calls, results, errors"""
    return (
        numbers.requests,
        numbers.input,
        numbers.output,
        numbers.cached,
        numbers.calls,
        numbers.results,
        numbers.errors,
    )


# The same conversation in every dialect: a prompt; a response that reads a file; its result; a response that edits the
# file and runs something; two results, the second an error; a last response. Three requests, three calls, three
# results.
COUNTED = (3, 60, 30, 300, 3, 3, 1)


def shape_story(id: str, cwd: str = "/x", **header: Any) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = [
        {"type": "session", "version": 3, "id": id, "timestamp": clock(0), "cwd": cwd, **header}
    ]

    def say(name: str, message: dict[str, Any]) -> None:
        parent = lines[-1]["id"] if len(lines) > 1 else None
        outside = {"type": "message", "id": name, "parentId": parent, "timestamp": clock(len(lines))}
        lines.append({**outside, "message": message})

    def answer(name: str, blocks: list[dict[str, Any]]) -> None:
        usage = {"input": 15, "output": 10, "cacheRead": 100, "cacheWrite": 5, "cost": {"total": 0.25}}
        about = {"provider": "anvil", "model": "granite-2", "usage": usage, "stopReason": "stop"}
        say(name, {"role": "assistant", "content": blocks, **about})

    def call(id: str, name: str, **arguments: Any) -> dict[str, Any]:
        return {"type": "toolCall", "id": id, "name": name, "arguments": arguments}

    def result(name: str, call: str, *, is_error: bool = False) -> None:
        text = [{"type": "text", "text": 'it says "usage"'}]
        about = {"toolCallId": call, "toolName": "t", "isError": is_error}
        say(name, {"role": "toolResult", "content": text, **about})

    say("00000001", {"role": "user", "content": "mend it"})
    answer("00000002", [call("c1", "read", path="src/a.py")])
    result("00000003", "c1")
    edits = [{"oldText": "a", "newText": "b"}]
    answer("00000004", [call("c2", "edit", path="/x/src/a.py", edits=edits), call("c3", "bash", command="make")])
    result("00000005", "c2")
    result("00000006", "c3", is_error=True)
    answer("00000007", [{"type": "text", "text": "done"}])
    return lines


def claude_story(id: str, cwd: str = "/x", *, agent: str | None = None) -> list[dict[str, Any]]:
    """Each block of a response is its own line; the lines before the last have partial usage."""
    lines: list[dict[str, Any]] = []
    place = int(id[:8], 16) + (7 if agent else 0)

    def say(kind: str, message: dict[str, Any], **more: Any) -> None:
        parent = lines[-1]["uuid"] if lines else None
        uuid = f"{place:08x}-1111-4111-8111-{len(lines):012x}"
        around = {"isSidechain": agent is not None, "cwd": cwd, "sessionId": id, "version": "2.1.325"}
        if agent:
            around["agentId"] = agent
        line = {"parentUuid": parent, **around, "type": kind, "message": message, "uuid": uuid}
        lines.append({**line, "timestamp": clock(len(lines)), **more})

    def answer(number: int, *blocks: dict[str, Any]) -> None:
        for at, block in enumerate(blocks):
            output = 10 if at == len(blocks) - 1 else 1
            usage = {"input_tokens": 15, "output_tokens": output, "cache_read_input_tokens": 100}
            usage["cache_creation_input_tokens"] = 5
            about = {"id": f"msg_{number}_{place}", "model": "swift-4", "usage": usage, "type": "message"}
            message = {**about, "role": "assistant", "content": [block], "stop_reason": "tool_use"}
            say("assistant", message, requestId=f"req_{number}_{place}")

    def call(id: str, name: str, **arguments: Any) -> dict[str, Any]:
        return {"type": "tool_use", "id": id, "name": name, "input": arguments}

    def result(call: str, **more: Any) -> None:
        block = {"type": "tool_result", "tool_use_id": call, "content": "ok", **more}
        say("user", {"role": "user", "content": [block]}, toolUseResult={"stdout": "ok"})

    say("user", {"role": "user", "content": "mend it"})
    answer(1, {"type": "thinking", "thinking": "…", "signature": "c2ln"}, call("t1", "Read", file_path="/x/src/a.py"))
    result("t1")
    edit = call("t2", "Edit", file_path="/x/src/a.py", old_string="a", new_string="b")
    answer(2, {"type": "text", "text": "both"}, edit, call("t3", "Bash", command="make"))
    result("t2")
    result("t3", is_error=True)
    answer(3, {"type": "text", "text": "done"})
    return lines


def neovate_story(id: str) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = [{"type": "config", "config": {"approvalMode": "default"}}]

    def say(role: str, content: Any, **more: Any) -> None:
        parent = lines[-1]["uuid"] if len(lines) > 1 else None
        uuid = f"{id}-2222-4222-8222-{len(lines):012x}"
        line = {"parentUuid": parent, "uuid": uuid, "role": role, "content": content, **more}
        lines.append({**line, "type": "message", "timestamp": clock(len(lines)), "sessionId": id})

    def answer(*blocks: dict[str, Any]) -> None:
        usage = {"input_tokens": 15, "output_tokens": 10, "cache_read_input_tokens": 100}
        usage["cache_creation_input_tokens"] = 5
        say("assistant", list(blocks), text="", model="anvil/granite-2", usage=usage)

    def call(id: str, name: str, **arguments: Any) -> dict[str, Any]:
        return {"type": "tool_use", "id": id, "name": name, "input": arguments}

    def result(call: str, *, is_error: bool = False) -> dict[str, Any]:
        answer = {"llmContent": "ok", "isError": is_error}
        return {"type": "tool-result", "toolCallId": call, "toolName": "t", "result": answer}

    say("user", "mend it")
    answer(call("n1", "read", file_path="/x/src/a.py"))
    say("tool", [result("n1")])
    edit = call("n2", "edit", file_path="/x/src/a.py", old_string="a", new_string="b")
    answer(edit, call("n3", "bash", command="make"))
    say("tool", [result("n2"), result("n3", is_error=True)])
    answer({"type": "text", "text": "done"})
    return lines


PLACES = {
    "native": f"st/sessions/x-0123456789/2026-02-16T10-00-00-000Z_{IDS[0]}.jsonl",
    "pi": f".pi/agent/sessions/--x--/2026-02-16T10-00-00-000Z_{IDS[0]}.jsonl",
    "omp": f".omp/agent/sessions/--x--/2026-02-16T10-00-00-000Z_{IDS[0]}.jsonl",
    "claude": f".claude/projects/-x/{IDS[0]}.jsonl",
    "neovate": ".neovate/projects/x/0a000000.jsonl",
}


def story(agent: str) -> list[dict[str, Any]]:
    match agent:
        case "claude":
            return claude_story(IDS[0])
        case "neovate":
            return neovate_story("0a000000")
        case "native":
            return shape_story(IDS[0], sessiontree=1)
        case _:
            return shape_story(IDS[0])


each_agent = pytest.mark.parametrize("agent", list(PLACES))
TARGETS = ("claude", "codex", "gemini", "native", "neovate", "omp", "pi", "qwen")


@each_agent
def test_counts_of_every_dialect_equal_those_made_by_hand(agent: str, world: World) -> None:
    world.put(PLACES[agent], story(agent))
    found = stats(world)
    assert counts(found.total.numbers) == COUNTED
    assert [(group.key, group.sessions) for group in found.groups] == [("2026-02-16", 1)]
    priced = agent in ("native", "pi", "omp")
    assert (found.total.numbers.priced, found.total.numbers.cost) == ((3, 0.75) if priced else (0, 0))
    assert found.total.numbers.error_rate == pytest.approx(1 / 3)
    assert found.files == [FileCount("/x/src/a.py", read=1, written=0, edited=1)]
    assert found.gaps == []


@each_agent
def test_totals_agree_with_the_usage_of_the_session(agent: str, world: World) -> None:
    path = world.put(PLACES[agent], story(agent))
    used = sessiontree.open(path).usage()
    numbers = stats(world).total.numbers
    assert (numbers.requests, numbers.output, numbers.cached) == (used.requests, used.output, used.cached)
    assert numbers.input == used.input + used.cache_written


@each_agent
@pytest.mark.parametrize("at_end", [True, False])
def test_responses_shared_by_a_fork_count_once(agent: str, at_end: bool, world: World) -> None:
    path = world.put(PLACES[agent], story(agent))
    origin = sessiontree.open(path)
    first_result = 3 if agent == "claude" else 2
    at = origin.path_ids()[-1 if at_end else first_result]
    first = sessiontree.fork(origin, at, before=False).session
    first.append("user", "and now?")
    first.append(
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "more"}],
            "model": "granite-2",
            "provider": "anvil",
            "usage": {"input": 1, "output": 2, "cacheRead": 3, "cacheWrite": 0},
        }
    )
    again = sessiontree.fork(sessiontree.open(first.location)).session
    assert len({str(path), first.location, again.location}) == 3
    found = stats(world, by="session")
    assert counts(found.total.numbers) == (4, 61, 32, 303, 3, 3, 1)
    assert found.repeated > 0
    rows = {group.key: counts(group.numbers) for group in found.groups}
    assert rows == {str(path): COUNTED, first.location: (1, 1, 2, 3, 0, 0, 0)}
    path.unlink()
    alone = stats(world)
    copied = sessiontree.open(first.location).usage()
    assert alone.total.numbers.requests == copied.requests, "two forks of a session that is gone share its lines too"


@each_agent
@pytest.mark.parametrize("target", TARGETS)
def test_a_fork_in_another_dialect_counts_once_too(agent: str, target: str, world: World) -> None:
    path = world.put(PLACES[agent], story(agent))
    copy = sessiontree.fork(sessiontree.open(path), to=target).session
    assert len(_sessions(world)) == 2, copy.location
    assert counts(stats(world).total.numbers) == COUNTED
    again = sessiontree.fork(copy, to="pi").session
    assert len(_sessions(world)) == 3, again.location
    assert counts(stats(world).total.numbers) == COUNTED


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", ["01-plain", "03-parallel", "05-compaction"])
def test_a_copy_of_a_session_of_codex_counts_once(case: str, target: str, world: World) -> None:
    (golden,) = Path(__file__).parents[1].joinpath("goldens/codex", case).glob("rollout-*.jsonl")
    path = world.put(Path(".codex/sessions/2026/11/16", golden.name), golden.read_bytes())
    before = counts(stats(world).total.numbers)
    assert before[0] >= 2
    sessiontree.fork(sessiontree.open(path), to=target)
    assert len(_sessions(world)) == 2
    assert counts(stats(world).total.numbers) == before


def test_an_answer_that_no_model_gave_is_not_a_request(world: World) -> None:
    lines = claude_story(IDS[0])
    refused = json.loads(json.dumps(lines[-1]))
    refused["uuid"] = refused["uuid"].replace("1111", "4444")
    refused["message"] |= {"id": "x", "model": "<synthetic>", "usage": {"input_tokens": 0, "output_tokens": 0}}
    world.put(PLACES["claude"], [*lines, refused])
    assert counts(stats(world).total.numbers) == COUNTED


def _sessions(world: World) -> Sequence[Any]:
    with world.library() as library:
        return select_sessions(library)


def test_a_response_that_was_forked_in_the_middle_counts_in_full(world: World) -> None:
    lines = claude_story(IDS[0])
    world.put(PLACES["claude"], lines)
    copied = [{**line, "sessionId": IDS[1], "forkedFrom": {"sessionId": IDS[0], "messageUuid": line["uuid"]}}
              for line in lines[:2]]  # fmt: skip
    world.put(f".claude/projects/-x/{IDS[1]}.jsonl", copied)
    assert counts(stats(world).total.numbers) == COUNTED
    world.put(PLACES["claude"], lines[:2])
    world.put(f".claude/projects/-x/{IDS[1]}.jsonl", lines)
    assert counts(stats(world).total.numbers) == COUNTED, "also if the copy is the more complete one"


def test_a_copied_response_with_new_line_ids_is_recognized_by_its_request(world: World) -> None:
    lines = claude_story(IDS[0])
    for line in lines:
        if line["type"] == "assistant":
            line["message"]["id"], line["requestId"] = f"{LONG_MESSAGE}{line['message']['id']}", LONG_REQUEST
    world.put(PLACES["claude"], lines)
    copied = [
        {**line, "sessionId": IDS[1], "uuid": line["uuid"].replace("1111", "3333"), "timestamp": clock(90)}
        for line in lines
    ]
    world.put(f".claude/projects/-x/{IDS[1]}.jsonl", copied)
    assert stats(world).total.numbers.requests == 3


def test_short_ids_that_repeat_in_another_session_are_not_copies(world: World) -> None:
    world.put(PLACES["pi"], shape_story(IDS[0]))
    other = shape_story(IDS[1])
    for line in other:
        line["timestamp"] = line["timestamp"].replace("2026-02-16", "2026-02-17")
    world.put(PLACES["pi"].replace(IDS[0], IDS[1]), other)
    found = stats(world)
    assert [group.key for group in found.groups] == ["2026-02-16", "2026-02-17"]
    assert counts(found.total.numbers) == tuple(2 * number for number in COUNTED)


def test_subagents_count(world: World) -> None:
    main = world.put(PLACES["claude"], claude_story(IDS[0]))
    side = claude_story(IDS[0], agent="abc")
    world.put(main.parent / IDS[0] / "subagents" / "agent-abc.jsonl", side)
    found = stats(world, by="project", project="/x")
    assert counts(found.total.numbers) == tuple(2 * number for number in COUNTED)
    assert [(group.key, group.sessions) for group in found.groups] == [("/x", 2)]


def test_of_a_repeated_id_the_last_entry_counts(world: World) -> None:
    lines = shape_story(IDS[0])
    again = json.loads(json.dumps(lines[-1]))
    again["message"]["usage"]["output"] = 50
    again["timestamp"] = clock(30)
    twice = json.loads(json.dumps(lines[4]))
    twice["timestamp"] = clock(31)
    path = world.put(PLACES["pi"], [*lines, again, twice])
    numbers = stats(world).total.numbers
    assert numbers.output == sessiontree.open(path).usage().output == 70
    assert (numbers.requests, numbers.calls) == (3, 3)


def test_a_damaged_session_is_counted_as_far_as_it_can_be_read_and_reported(world: World) -> None:
    lines = shape_story(IDS[0])
    whole = [json_lines([line]) for line in lines]
    whole[4] = whole[4][:40] + b"\n"
    path = world.put(PLACES["pi"], b"".join(whole) + b'{"type":"mess')
    found = stats(world)
    assert counts(found.total.numbers) == (2, 40, 20, 200, 1, 3, 1)
    (gap,) = found.gaps
    assert gap.path == str(path)
    assert gap.damage is not None
    assert (gap.damage.pieces, gap.damage.line, gap.damage.kind) == (2, 5, "undecodable")
    assert [one.path for one in stats(world).gaps] == [str(path)], "also when it comes from the cache"


def test_groups_by_model_agent_and_project(world: World) -> None:
    for agent in ("pi", "claude"):
        world.put(PLACES[agent], story(agent))
    assert {group.key: group.numbers.requests for group in stats(world, by="model").groups} == {
        "granite-2": 3,
        "swift-4": 3,
    }
    assert {group.key: group.numbers.errors for group in stats(world, by="model").groups} == {
        "granite-2": 1,
        "swift-4": 1,
    }
    assert {group.key: group.sessions for group in stats(world, by="agent").groups} == {"pi": 1, "claude": 1}
    assert [(group.key, group.sessions) for group in stats(world, by="project").groups] == [("/x", 2)]
    assert stats(world, agent="pi").total.numbers.requests == 3
    assert stats(world, project="/elsewhere").total.numbers.requests == 0


def test_days_are_local_days_even_after_a_change_of_time_zone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = shape_story(IDS[0])
    for line, hour in zip(lines, (0, 1, 2, 3, 21, 22, 23, 23), strict=True):
        line["timestamp"] = f"2026-02-16T{hour:02d}:30:00.000Z"
    world.put(PLACES["pi"], lines)
    assert {group.key: group.numbers.requests for group in stats(world).groups} == {"2026-02-16": 3}
    _use_zone(monkeypatch, "Asia/Tokyo")
    moved = stats(world)
    assert {group.key: group.numbers.requests for group in moved.groups} == {"2026-02-16": 1, "2026-02-17": 2}
    assert moved.read == 0


def test_entries_without_a_time_count_for_the_day_of_the_session(world: World) -> None:
    lines = shape_story(IDS[0])
    for line in lines[1:]:
        del line["timestamp"]
    world.put(PLACES["pi"], lines)
    found = stats(world)
    assert [group.key for group in found.groups] == ["2026-02-16"]
    assert counts(found.total.numbers) == COUNTED


def test_since_excludes_older_parts_of_a_session(world: World) -> None:
    world.put(PLACES["pi"], shape_story(IDS[0]))
    at = 1_771_236_000_000  # 2026-02-16T10:00:00Z
    minute = 60_000
    assert counts(stats(world, since=at).total.numbers) == COUNTED
    assert counts(stats(world, since=at + 4 * minute).total.numbers) == (2, 40, 20, 200, 2, 2, 1)
    assert counts(stats(world, since=at + 7 * minute).total.numbers) == (1, 20, 10, 100, 0, 0, 0)
    assert stats(world, since=at + 8 * minute).groups == []


def test_the_second_time_no_session_is_read_and_a_changed_one_is_read_again(world: World) -> None:
    for agent in PLACES:
        world.put(PLACES[agent], story(agent))
    first = stats(world)
    sizes = sum((world.home / place).stat().st_size for place in PLACES.values())
    assert (first.read, first.bytes_read) == (5, sizes)
    second = stats(world)
    assert (second.read, second.bytes_read) == (0, 0)
    assert second.groups == first.groups
    assert second.files == first.files
    pi = world.home / PLACES["pi"]
    more = {**shape_story(IDS[0])[-1], "id": "00000008", "parentId": "00000007"}
    append(pi, [more])
    third = stats(world)
    assert (third.read, third.bytes_read) == (1, pi.stat().st_size)
    assert third.total.numbers.requests == first.total.numbers.requests + 1
    touch(pi)
    assert stats(world).read == 1


def test_no_file_is_opened_when_nothing_changed(world: World) -> None:
    path = world.put(PLACES["pi"], story("pi"))
    before = stats(world)
    path.chmod(0)
    opened: list[str] = []

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and watching and str(arguments[0]).endswith(".jsonl"):
            opened.append(str(arguments[0]))

    watching = True
    sys.addaudithook(watch)
    after = stats(world)
    assert str(path) not in opened
    assert after.groups == before.groups
    path.chmod(0o600)
    touch(path)
    stats(world)
    watching = False
    assert str(path) in opened


def test_a_deleted_or_invalid_cache_is_rebuilt(world: World) -> None:
    world.put(PLACES["claude"], story("claude"))
    first = stats(world)
    database = world.folder / "cache" / "library.sqlite"
    for beside in database.parent.iterdir():
        beside.unlink()
    assert stats(world).read == 1
    for beside in database.parent.iterdir():
        beside.write_bytes(b"no database at all" * 500)
    again = stats(world)
    assert (again.read, again.groups) == (1, first.groups)
    assert stats(world).read == 0


def test_damaged_statistics_in_the_cache_are_read_again(world: World) -> None:
    import sqlite3

    world.put(PLACES["pi"], story("pi"))
    first = stats(world)
    with sqlite3.connect(world.folder / "cache" / "library.sqlite") as database:
        database.execute("UPDATE facts SET facts = x'c1c1'")
    assert stats(world).groups == first.groups


def test_a_listing_shows_exact_numbers_after_statistics(world: World) -> None:
    lines = shape_story(IDS[0])
    for number in range(600):
        more = {**lines[-1], "id": f"{number + 16:08x}", "parentId": lines[-1]["id"]}
        lines.append({**more, "message": {**more["message"], "content": [{"type": "text", "text": "x" * 300}]}})
    world.put(PLACES["pi"], lines)
    with world.library() as library:
        assert [one.exact for one in library.sessions()] == [False]
    found = stats(world)
    with world.library() as library:
        (one,) = library.sessions()
    assert one.exact
    assert (one.messages, one.tokens_out) == (607, found.total.numbers.output)
    assert found.total.numbers.requests == 603


def test_info_makes_the_listing_exact_too(world: World) -> None:
    path = world.put(PLACES["pi"], [*shape_story(IDS[0]), *_padding(900)])
    with world.library() as library:
        assert [one.exact for one in library.sessions()] == [False]
    assert run(world, "info", str(path)).code == 0
    with world.library() as library:
        assert [one.exact for one in library.sessions()] == [True]


def _padding(number: int) -> list[dict[str, Any]]:
    lines = []
    parent = "00000007"
    for at in range(number):
        id = f"{at + 16:08x}"
        message = {"role": "user", "content": "x" * 200}
        lines.append({"type": "message", "id": id, "parentId": parent, "timestamp": clock(20), "message": message})
        parent = id
    return lines


def test_numbers_too_large_to_add_up_do_no_harm(world: World) -> None:
    lines = shape_story(IDS[0])
    lines[2]["message"]["usage"] |= {"input": 10**30, "output": -5}
    lines[2]["message"]["model"] = "half \ud83d of it"
    world.put(PLACES["pi"], lines)
    numbers = stats(world).total.numbers
    assert (numbers.requests, numbers.input, numbers.output) == (3, 45, 20)
    assert stats(world).read == 0


@pytest.mark.parametrize(
    ("agent", "name", "arguments", "found"),
    [
        ("claude", "Read", {"file_path": "/a.py", "pages": "1-2"}, ("read", "/a.py")),
        ("claude", "MultiEdit", {"file_path": "/a.py", "edits": "?"}, ("edit", "/a.py")),
        ("claude", "Grep", {"pattern": "x", "path": "/a.py"}, None),
        ("neovate", "write", {"file_path": "a.py", "content": ""}, ("write", "a.py")),
        ("pi", "read", {"path": "a.py:1-5"}, ("read", "a.py:1-5")),
        ("omp", "read", {"path": "a.py:1-5"}, ("read", "a.py")),
        ("omp", "read", {"path": "a.py:raw"}, ("read", "a.py")),
        ("omp", "read", {"path": "a.py:10+3"}, ("read", "a.py")),
        ("omp", "read", {"path": "c:name.py"}, ("read", "c:name.py")),
        ("native", "edit", {"path": 7}, None),
        ("native", "read", {"path": ""}, None),
        ("another", "read", {"path": "a.py"}, None),
    ],
)
def test_the_file_of_a_call_is_found_among_other_arguments(
    agent: str, name: str, arguments: dict[str, Any], found: tuple[str, str] | None
) -> None:
    assert find_file(name, arguments, agent) == found


# The command


def run(world: World, *arguments: str, **more: str) -> Ran:
    command = [sys.executable, "-m", "sessiontree", *arguments]
    here = world.folder / "here"
    here.mkdir(exist_ok=True)
    around = {**environment(world, **more), "TZ": "UTC"}
    return Ran(subprocess.run(command, cwd=here, env=around, capture_output=True, timeout=60, check=False))


def test_the_command_prints_a_table_with_a_total_and_the_busiest_files(world: World) -> None:
    world.put(PLACES["pi"], story("pi"))
    ran = run(world, "stats", "--all", COLUMNS="120")
    assert (ran.code, ran.err) == (0, "")
    headings = "day tokens requests in out cached cost calls errors sessions"
    assert ran.lines[0].split() == headings.split()
    assert ran.lines[1].split() == ["2026-02-16", "█" * 30, "390", "3", "60", "30", "300", "0.75", "3", "33.3%", "1"]
    assert ran.lines[2].split() == ["total", "390", "3", "60", "30", "300", "0.75", "3", "33.3%", "1"]
    assert ran.lines[4].split() == ["busiest", "files", "uses", "read", "written", "edited"]
    assert ran.lines[5].split() == ["/x/src/a.py", "█" * 30, "2", "1", "0", "1"]
    assert "\x1b" not in ran.out
    assert run(world, "stats", "--project", "/x").lines[5].split()[0] == "src/a.py"


def test_the_command_covers_this_project_by_default(world: World) -> None:
    world.put(PLACES["pi"], story("pi"))
    ran = run(world, "stats")
    assert (ran.code, ran.out) == (0, "")
    assert "1 session in other projects (use --all)" in ran.err
    assert run(world, "stats", "--all", "--agent", "claude", "--json").json["groups"] == []
    assert run(world, "stats", "--all", "--since", "2026-02-16T10:07:00Z", "--json").json["totals"]["requests"] == 1
    assert run(world, "stats", "--since", "someday").code == 2
    assert run(world, "stats", "--csv", "--json").code == 2
    assert run(world, "stats", "--by", "moon").code == 2


def test_the_json_is_one_object(world: World) -> None:
    path = world.put(PLACES["claude"], story("claude"))
    found = run(world, "stats", "--all", "--by", "session", "--json").json
    (row,) = found["groups"]
    assert (row["session"], row["title"], row["agent"], row["requests"]) == (str(path), "mend it", "claude", 3)
    assert row["tokens"] == {"input": 60, "output": 30, "cached": 300}
    assert (row["cost"], row["toolCalls"], row["toolResults"], row["toolErrors"]) == (None, 3, 3, 1)
    assert found["files"] == [{"path": "/x/src/a.py", "uses": 2, "read": 1, "written": 0, "edited": 1}]
    assert found["scan"] == {"files": 1, "bytesRead": path.stat().st_size}
    assert run(world, "stats", "--all", "--json").json["scan"] == {"files": 0, "bytesRead": 0}


def test_damage_is_reported_on_stderr(world: World) -> None:
    path = world.put(PLACES["pi"], json_lines(shape_story(IDS[0])) + b'{"type":"mess')
    ran = run(world, "stats", "--all")
    assert ran.code == 0
    assert f"{path}:9 byte" in ran.err
    assert "only the readable part is counted" in ran.err
    assert run(world, "stats", "--all", "--json").json["gaps"][0]["first"]["kind"] == "torn-tail"


NASTY = [
    "=1+1",
    "@SUM(A1)",
    '+cmd|"/c calc"!A0',
    "-2+3",
    'say "hi", twice',
    "two\nlines",
    "\x1b]0;owned\x07 red",
    "\u202etfel",
]


@pytest.mark.parametrize("by", ["session", "model", "project", "day"])
def test_csv_can_be_parsed_and_no_cell_is_a_formula(by: str, world: World) -> None:
    for number, text in enumerate(NASTY):
        lines = shape_story(IDS[number], cwd=f"/x/{text}")
        for line in lines[1:]:
            line["id"] = f"{number:04x}{line['id'][4:]}"
            line["parentId"] = f"{number:04x}{line['parentId'][4:]}" if line["parentId"] else None
        lines.append({"type": "session_info", "id": f"{number:04x}ffff", "parentId": None, "name": text})
        for line in lines[1:-1]:
            if "model" in line["message"]:
                line["message"]["model"] = text
        world.put(PLACES["pi"].replace(IDS[0], IDS[number]), lines)
    ran = run(world, "stats", "--all", "--csv", "--by", by)
    assert (ran.code, ran.err) == (0, "")
    rows = list(csv.DictReader(io.StringIO(ran.out, newline="")))
    assert len(rows) == (1 if by == "day" else len(NASTY))
    assert sum(int(row["requests"]) for row in rows) == 3 * len(NASTY)
    assert sum(float(row["cost"]) for row in rows) == 0.75 * len(NASTY)
    assert {row["error_rate"] for row in rows} == {"0.3333"}
    cells = [cell for row in rows for cell in row.values()]
    assert not [cell for cell in cells if cell[:1] in ("=", "+", "-", "@")]
    assert not set("\x1b\x07\u202e") & set(ran.out)
    if by == "model":
        assert {"'=1+1", "'@SUM(A1)", 'say "hi", twice', "two\nlines"} <= {row["model"] for row in rows}
    if by == "session":
        assert {"'=1+1", "'-2+3", 'say "hi", twice', "two lines"} <= {row["title"] for row in rows}
    shown = run(world, "stats", "--all", "--by", by).out
    assert not set("\x1b\x07\u202e") & set(shown)
    files = len(NASTY) + 1  # one in each project, and the one that all of them edit
    assert len(shown.splitlines()) == len(rows) + 4 + files


def without_progress(shown: str) -> str:
    """Output without the progress line, which a loaded machine shows."""
    return re.sub(r"\r\x1b\[K(reading sessions: \d+ of \d+)?", "", shown)


def test_control_characters_in_file_names_never_reach_a_terminal(world: World) -> None:
    lines = shape_story(IDS[0])
    lines[2]["message"]["content"][0]["arguments"]["path"] = "a\x1b[2J\n\x07b.py"
    world.put(PLACES["pi"], lines)
    shown = without_progress(on_terminal(world, world.folder, "stats", "--all", NO_COLOR="1"))
    assert "a␛[2J" in shown
    assert not set("\x1b\x07") & set(shown)


def test_on_a_terminal_bars_have_a_color_unless_it_is_disabled(world: World) -> None:
    world.put(PLACES["pi"], story("pi"))
    shown = on_terminal(world, world.folder, "stats", "--all")
    assert "\x1b[36m█" in shown
    assert "\x1b[2mday" in shown
    assert "\x1b" not in without_progress(on_terminal(world, world.folder, "stats", "--all", NO_COLOR="1"))


def test_without_unicode_bars_are_ascii(world: World) -> None:
    world.put(PLACES["pi"], story("pi"))
    ran = run(world, "stats", "--all", PYTHONIOENCODING="ascii")
    assert "#" * 30 in ran.out
    assert "?" not in ran.out


def groups_of(labels: Sequence[str]) -> Statistics:
    groups = [Group(label, Numbers(at + 1, 10 * at, 5, 100, 0.5, 1, 3, 2, 1), 1) for at, label in enumerate(labels, 1)]
    total = Group("", Numbers(9, 100, 50, 900, 4.5, 9, 27, 18, 9), 9)
    return Statistics("model", groups, total, [FileCount("/x/a", 1)], [], 0, 0, 0)


@pytest.mark.parametrize("width", [20, 30, 40, 60, 80, 120, 200])
def test_rows_fit_the_width_and_are_aligned_with_wide_characters(width: int) -> None:
    labels = ["解析器の名前", "swift-4", "a rather long name of a model that goes on and on and on " * 2, "木"]
    rows = list(draw_statistics(groups_of(labels), width))
    assert max(map(wcswidth, rows)) <= width
    assert len({wcswidth(row) for row in rows}) == 1
    assert ("█" in "".join(rows)) == (width > 40)


def test_a_bar_is_as_long_as_its_share() -> None:
    assert bar(1, 10) == "█" * 10
    assert bar(0.5, 10) == "█" * 5
    assert bar(0.56, 10) == "█" * 5 + "▋"
    assert bar(0, 10) == ""
    assert bar(0.0001, 10) == "▏"
    assert bar(0.0001, 10, with_blocks=False) == "#"


def test_csv_without_groups_has_only_headings() -> None:
    nothing = Statistics("day", [], Group("", Numbers()), [], [], 0, 0, 0)
    assert csv_rows(nothing) == ("day,sessions,requests,input,output,cached,cost,calls,results,errors,error_rate\n")
