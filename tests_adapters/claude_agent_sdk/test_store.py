"""The store for the Claude Agent SDK: what its own suite checks, and what it does not."""

from __future__ import annotations

import asyncio
import itertools
import json
import multiprocessing
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
import trio
from claude_agent_sdk import fold_session_summary
from claude_agent_sdk.testing import run_session_store_conformance
from tests.postgres.server import Server

import sessiontree
from sessiontree.adapters.claude_agent_sdk import Key, Recovery, SessionTreeStore
from sessiontree.library.library import Library
from sessiontree.stores.repositories import open_repository

SESSION = "11111111-1111-4111-8111-111111111111"
KEY = {"project_key": "-work-shop", "session_id": SESSION}
SUB = {**KEY, "subpath": "subagents/agent-1"}
_numbers = itertools.count()


def line(role: str, text: str, id: str, parent: str | None, second: int = 0) -> dict[str, Any]:
    message: dict[str, Any] = {"role": role, "content": text}
    if role == "assistant":
        message |= {
            "id": f"msg_{id}",
            "type": "message",
            "model": "claude-x",
            "content": [{"type": "text", "text": text}],
        }
    return {
        "type": role,
        "uuid": id,
        "parentUuid": parent,
        "isSidechain": False,
        "sessionId": SESSION,
        "cwd": "/work/shop",
        "version": "2.1.325",
        "timestamp": f"2026-11-17T10:{second // 60:02d}:{second % 60:02d}.000Z",
        "message": message,
    }


def chain(count: int) -> list[dict[str, Any]]:
    ids = [str(uuid.UUID(int=number + 1)) for number in range(count)]
    return [
        line("user" if n % 2 == 0 else "assistant", f"text {n}", id, ids[n - 1] if n else None, n * 10)
        for n, id in enumerate(ids)
    ]


def run(call: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(call)


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
@pytest.mark.parametrize("threads", [True, False])
@pytest.mark.parametrize("kind", ["folder", "memory", "postgresql"])
def test_all_contracts_of_the_sdk_hold(
    kind: str, threads: bool, loop: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    def make() -> SessionTreeStore:
        home = str(tmp_path / str(next(_numbers)))
        if kind == "memory":
            home = f"memory:{uuid.uuid4()}"
        elif kind == "postgresql":
            server: Server = request.getfixturevalue("server")
            home = server.create_database(f"contract{next(_numbers)}")
            repository = open_repository(home)
            repository.upgrade()  # type: ignore[attr-defined]
        return SessionTreeStore(home, threads=threads)

    anyio.run(run_session_store_conformance, make, backend=loop)


def test_entries_with_a_stored_uuid_are_ignored_whatever_their_type(home: str) -> None:
    store = SessionTreeStore(home)
    title = {"type": "custom-title", "uuid": "t1", "customTitle": "Shop", "sessionId": SESSION}
    first = [*chain(2), title]
    run(store.append(KEY, [*first, first[0]]))
    run(store.append(KEY, [first[1], title]))
    assert run(SessionTreeStore(home).load(KEY)) == first
    run(SessionTreeStore(home).append(KEY, [*first, {**title, "uuid": "t2"}]))
    assert run(store.load(KEY)) == [*first, {**title, "uuid": "t2"}]


def test_entries_without_a_uuid_are_never_ignored(home: str) -> None:
    store = SessionTreeStore(home)
    mode = {"type": "mode", "mode": "plan", "sessionId": SESSION}
    entries = chain(1)
    for _ in range(3):  # with known uuids in the same call, too
        run(store.append(KEY, [*entries, mode]))
    run(store.append(KEY, [mode]))
    assert run(store.load(KEY)) == [*entries, mode, mode, mode, mode]


def test_entries_come_back_deeply_equal(home: str) -> None:
    store = SessionTreeStore(home)
    odd = [
        {
            "type": "x",
            "text": "emoji \U0001f600, lone \ud800, NUL \x00, LS \u2028",
            "n": 2**70,
            "f": 0.1,
            "deep": [[{}]],
        },
        {"no type": {"type": 5}},
        {"type": "", "uuid": "u"},
        {"type": "sessiontree", "entry": {"type": "y"}},
        {"type": 7},
    ]
    run(store.append(KEY, odd[:2]))
    run(store.append(KEY, odd[2:]))
    run(store.append(KEY, [odd[2]]))
    assert run(SessionTreeStore(home).load(KEY)) == odd


def test_a_batch_is_stored_completely_or_not_at_all(home: str) -> None:
    store = SessionTreeStore(home)
    run(store.append(KEY, chain(1)))
    with pytest.raises(TypeError):
        run(store.append(KEY, [chain(2)[1], {"type": "x", "bad": object()}]))
    assert run(store.load(KEY)) == chain(1)


def test_a_session_deleted_by_another_process_starts_again(home: str) -> None:
    store, other = SessionTreeStore(home), SessionTreeStore(home)
    run(store.append(KEY, chain(2)))
    run(store.append(SUB, chain(1)))
    assert run(store.load(KEY)) == chain(2)
    run(other.delete(KEY))
    assert run(store.load(KEY)) is None
    assert run(store.load(SUB)) is None
    run(store.append(KEY, chain(1)))
    assert run(other.load(KEY)) == chain(1)
    run(store.load(KEY))
    run(other.delete(KEY))
    run(other.append(KEY, chain(3)))
    assert run(store.load(KEY)) == chain(3)
    run(other.delete(KEY))
    run(store.append(KEY, chain(2)))
    assert run(store.load(KEY)) == chain(2)


@pytest.mark.parametrize(
    "key",
    [
        {"project_key": "..", "session_id": "s"},
        {"project_key": "p", "session_id": "../../etc"},
        {"project_key": "p", "session_id": "s", "subpath": "a/../../../b"},
        {"project_key": "p", "session_id": "s", "subpath": "a\x00"},
        {"project_key": "", "session_id": "s"},
    ],
)
def test_a_key_cannot_leave_the_folder(key: dict[str, str], tmp_path: Path) -> None:
    store = SessionTreeStore(tmp_path / "agents")
    for call in (store.append(key, [{"type": "x"}]), store.load(key), store.delete(key)):
        with pytest.raises(sessiontree.UsageError):
            run(call)
    assert list(tmp_path.rglob("*")) == []


def test_keys_of_any_characters_stay_apart(home: str) -> None:
    store = SessionTreeStore(home)
    keys = [
        {"project_key": project, "session_id": session, **({"subpath": sub} if sub else {})}
        for project in ("p", "p.q")
        for session in ("s", "s.1", "-s-", "_", "ß _2e", "0__s")
        for sub in ("", "a", "a/b.c", "-")
    ]
    for number, key in enumerate(keys):
        run(store.append(key, [{"type": "x", "n": number}]))
    fresh = SessionTreeStore(home)
    assert [run(fresh.load(key)) for key in keys] == [[{"type": "x", "n": number}] for number in range(len(keys))]
    assert {found["session_id"] for found in run(fresh.list_sessions("p"))} == {key["session_id"] for key in keys}
    assert run(fresh.list_subkeys(keys[0])) == ["-", "a", "a/b.c"]


# Summaries


def test_summaries_are_the_fold_of_all_entries_however_they_were_written(home: str) -> None:
    writers = [SessionTreeStore(home) for _ in range(3)]
    entries = [*chain(4), {"type": "tag", "tag": "shop"}, {"type": "custom-title", "uuid": "t", "customTitle": "Shop"}]
    for number, entry in enumerate(entries):
        run(writers[number % 3].append(KEY, [entry]))
        run(writers[0].append(KEY, [entry]) if "uuid" in entry else writers[0].append(SUB, [entry]))
        (summary,) = run(writers[number % 2].list_session_summaries(KEY["project_key"]))
        expected = fold_session_summary(None, KEY, entries[: number + 1])  # type: ignore[arg-type]
        assert summary["data"] == expected["data"]
        (listed,) = run(writers[1].list_sessions(KEY["project_key"]))
        assert summary["mtime"] >= listed["mtime"]
    run(writers[0].delete(KEY))
    assert run(writers[1].list_session_summaries(KEY["project_key"])) == []
    run(writers[2].append(KEY, entries[:1]))
    (summary,) = run(writers[1].list_session_summaries(KEY["project_key"]))
    assert "custom_title" not in summary["data"]


def test_sessions_are_listed_in_the_order_of_their_last_append_however_quick(home: str) -> None:
    store = SessionTreeStore(home, threads=False)
    ids = [str(uuid.uuid4()) for _ in range(20)]

    async def work() -> list[list[str]]:
        for id in [*ids, *ids[:5]]:
            await store.append({"project_key": "p", "session_id": id}, [{"type": "x"}])
        listed = await store.list_sessions("p"), await store.list_session_summaries("p")
        return [[one["session_id"] for one in sorted(found, key=lambda one: -one["mtime"])] for found in listed]

    newest_first = [*reversed([*ids[5:], *ids[:5]])]
    assert run(work()) == [newest_first, newest_first]


# Recovery


def test_load_recovers_history_before_a_lost_line_only_on_request_and_reports_it(home: str) -> None:
    entries = chain(6)
    del entries[2]
    run(SessionTreeStore(home).append(KEY, entries))
    assert run(SessionTreeStore(home).load(KEY)) == entries
    found: list[Recovery] = []
    recovered = run(SessionTreeStore(home, recover=True, on_recovery=found.append).load(KEY))
    assert [(one.key, one.uuid, one.missing, one.parent) for one in found] == [
        (KEY, entries[2]["uuid"], entries[2]["parentUuid"], entries[1]["uuid"])
    ]
    assert recovered == [
        *entries[:2],
        {**entries[2], "parentUuid": entries[1]["uuid"]},
        *entries[3:],
    ]
    assert run(SessionTreeStore(home).load(KEY)) == entries


# Ordinary sessions


def test_files_have_the_names_of_the_client_with_the_metadata_of_sub_agents(tmp_path: Path) -> None:
    store = SessionTreeStore(tmp_path)
    run(store.append(KEY, chain(2)))
    run(store.append(SUB, [{"type": "agent_metadata", "agentType": "a"}, *chain(1)]))
    run(store.append(SUB, [{"type": "agent_metadata", "agentType": "b"}]))
    project = tmp_path / "projects" / "-work-shop"
    assert (project / f"{SESSION}.jsonl").read_bytes().count(b"\n") == 2
    metadata = project / SESSION / "subagents" / "agent-1.meta.json"
    assert json.loads(metadata.read_text()) == {"agentType": "b"}
    run(store.delete(SUB))
    assert not metadata.exists()


def command(home: str, *arguments: str) -> str:
    environment = {**os.environ, "SESSIONTREE_HOME": home if ":" in home else home + "-own"}
    if ":" not in home:
        environment["CLAUDE_CONFIG_DIR"] = home
    done = subprocess.run(
        [sys.executable, "-m", "sessiontree", *arguments], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


def texts(session: sessiontree.Session) -> list[str]:
    contents = [message.content for message in session.context().messages]
    return [content if isinstance(content, str) else content[0].text for content in contents]


def stored_ref(home: str) -> str:
    return str(SessionTreeStore(home)._places.store(Key.parse(KEY)).ref)


def test_commands_work_on_files_of_the_store(tmp_path: Path) -> None:
    home = str(tmp_path / "agents")
    run(SessionTreeStore(home).append(KEY, chain(4)))
    run(SessionTreeStore(home).append(SUB, chain(2)))
    assert "text 0" in command(home, "list", "--all")
    assert "text 3" in command(home, "tree", SESSION)
    assert "no problems" in command(home, "doctor", stored_ref(home)).lower()
    target = tmp_path / "pi.jsonl"
    command(home, "convert", SESSION, "--to", "pi", "--out", str(target))
    assert texts(sessiontree.open(target)) == [f"text {number}" for number in range(4)]
    from tests_adapters.front_ends import check_front_ends  # not at the top, which every child process imports

    environment = {"CLAUDE_CONFIG_DIR": home, "SESSIONTREE_HOME": f"{home}-own"}
    check_front_ends(tmp_path, [f"text {number}" for number in range(4)], environment)


def test_the_library_lists_opens_and_converts_stored_sessions(home: str, tmp_path: Path) -> None:
    run(SessionTreeStore(home).append(KEY, chain(4)))
    is_folder = ":" not in home
    chosen = {"claude": (os.path.join(home, "projects"),)} if is_folder else None
    with Library(str(tmp_path / "own") if is_folder else home, roots=chosen) as library:
        # With a home in memory or in a database, the library also has the sessions of this machine.
        (summary,) = [one for one in library.everything() if one.ref == stored_ref(home)]
        assert summary.title == "text 0"
    session = sessiontree.open(stored_ref(home))
    assert session.problems == []
    assert session.dialect.name == "claude"
    assert len(session.path_ids()) == 4
    converted = tmp_path / "pi.jsonl"
    converted.write_bytes(b"".join(line + b"\n" for line in sessiontree.convert(session, "pi").lines))
    assert texts(sessiontree.open(converted)) == [f"text {number}" for number in range(4)]


# Several writers


def append_many(home: str, writer: int, count: int) -> None:
    store = SessionTreeStore(home)

    async def work() -> None:
        for number in range(count):
            await store.append(KEY, [line("user", f"{writer} {number}", f"{writer}-{number}", None), {"type": "mode"}])

    anyio.run(work)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("home", ["folder", "postgresql"], indirect=True)
def test_eight_processes_lose_no_append(home: str) -> None:
    count = 1000
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=append_many, args=(home, writer, count)) for writer in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * 8
    entries = run(SessionTreeStore(home).load(KEY))
    assert len(entries) == 2 * 8 * count
    for writer in range(8):
        mine = [entry["uuid"] for entry in entries if entry.get("uuid", "").startswith(f"{writer}-")]
        assert mine == [f"{writer}-{number}" for number in range(count)]


def test_threads_and_tasks_share_a_store(home: str) -> None:
    store = SessionTreeStore(home)

    async def work(loop: int) -> None:
        async with anyio.create_task_group() as group:
            for number in range(10):
                group.start_soon(store.append, KEY, [{"type": "x", "uuid": f"{loop}-{number}"}])

    threads = [threading.Thread(target=asyncio.run, args=(work(0),)), threading.Thread(target=trio.run, args=(work, 1))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    uuids = [entry["uuid"] for entry in run(store.load(KEY))]
    assert sorted(uuids) == sorted(f"{loop}-{number}" for loop in range(2) for number in range(10))


class StartedStore(SessionTreeStore):
    """A store that reports when a thread has started to append, and waits until the task was cancelled."""

    def __init__(self, home: str) -> None:
        super().__init__(home)
        self.started, self.cancelled = threading.Event(), threading.Event()

    def _append(self, *arguments: Any) -> None:
        self.started.set()
        assert self.cancelled.wait(60)
        super()._append(*arguments)


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_an_append_that_has_started_survives_cancellation(home: str, loop: str) -> None:
    store = StartedStore(home)

    async def work() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(store.append, KEY, chain(2))
            assert await anyio.to_thread.run_sync(store.started.wait, 60)
            group.cancel_scope.cancel()
            store.cancelled.set()

    anyio.run(work, backend=loop)
    assert run(store.load(KEY)) == chain(2)


def test_the_sdk_is_not_imported_to_store_entries(tmp_path: Path) -> None:
    program = (
        "import asyncio, sys; from sessiontree.adapters.claude_agent_sdk import SessionTreeStore as Store; "
        "key = {'project_key': 'p', 'session_id': 's'}; store = Store(sys.argv[1]); "
        "asyncio.run(store.append(key, [{'type': 'x'}])); asyncio.run(store.load(key)); "
        "assert 'claude_agent_sdk' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True)
