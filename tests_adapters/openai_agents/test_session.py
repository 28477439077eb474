"""The session of the OpenAI Agents SDK: items, pop, clear, cancellation, several writers, and the commands."""

from __future__ import annotations

import asyncio
import base64
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from agents.memory import Session

import sessiontree
from sessiontree.adapters.openai_agents import TreeSession
from tests_adapters.commands import check_commands
from tests_adapters.docs_page import check_section

ITEMS: list[Any] = [
    {"role": "user", "content": "What is the answer?"},
    {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "I look it up."}]},
    {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "look", "arguments": '{"where": "book"}'},
    {"type": "function_call_output", "call_id": "call_1", "output": "page 42"},
    {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "It is 42.", "annotations": []}],
    },
    {"role": "developer", "content": "Be brief."},
    {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "42"}},
    {"role": "user", "content": [{"type": "input_text", "text": "Sure? ü"}, {"type": "input_file", "file_id": "f1"}]},
]


def run(coroutine: Any) -> Any:
    return asyncio.run(coroutine)


def test_items_read_back_equal_and_are_ordinary_messages(home: str) -> None:
    session = TreeSession("user / 1", home)
    assert isinstance(session, Session)
    run(session.add_items(ITEMS))
    assert run(session.get_items()) == ITEMS
    assert run(TreeSession("user / 1", home).get_items(3)) == ITEMS[-3:]
    with session._named.reading() as stored:
        assert stored is not None
        messages = stored.context().messages
        roles = [message.role for message in messages]
        assert roles == [
            *("user", "assistant", "assistant", "toolResult", "assistant", "custom", "custom", "user"),
        ]
        assert messages[3].tool_name == "look"
        assert stored.pending_calls() == []
        assert stored.problems == []


def test_images_and_very_long_texts_read_back_equal(home: str) -> None:
    data = base64.b64encode(bytes(range(256)) * 20).decode()
    items: list[Any] = [
        {"role": "user", "content": [{"type": "input_image", "image_url": f"data:image/png;base64,{data}"}]},
        {"role": "user", "content": "long " * 200_000},
        {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": data},
        {"type": "function_call", "call_id": "c", "name": "draw", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "image", "data": data}]},
        {"role": "user", "content": "blob:sha256:" + "0" * 64},
        {"role": "user", "content": [{"type": "input_text", "text": "a", "texts": True}, "b", {"text": 1}]},
    ]
    run(TreeSession("one", home).add_items(items))
    for item in items:
        run(TreeSession("two", home).add_items([item]))
    assert run(TreeSession("one", home).get_items()) == items
    assert run(TreeSession("two", home).get_items()) == items


def test_pop_is_a_durable_move_and_clear_a_reset(home: str) -> None:
    session = TreeSession("one", home)
    run(session.add_items(ITEMS))
    assert run(session.pop_item()) == ITEMS[-1]
    assert run(TreeSession("one", home).pop_item()) == ITEMS[-2]
    assert run(session.get_items()) == ITEMS[:-2]
    run(session.add_items(ITEMS[:1]))
    assert run(session.get_items(2)) == [ITEMS[-3], ITEMS[0]]
    run(session.clear_session())
    assert run(TreeSession("one", home).get_items()) == []
    assert run(session.pop_item()) is None
    with session._named.reading() as stored:
        assert stored is not None
        assert stored.count("message") == len(ITEMS) + 1, "nothing is deleted"


def test_reading_and_clearing_create_no_session(home: str) -> None:
    session = TreeSession("none", home)
    assert run(session.get_items()) == []
    assert run(session.pop_item()) is None
    run(session.clear_session())
    run(session.add_items([]))
    assert [*session._named.repository.iter_stats()] == []


def test_an_item_that_is_not_json_leaves_the_session_unchanged(home: str) -> None:
    session = TreeSession("one", home)
    run(session.add_items(ITEMS[:1]))
    with pytest.raises(TypeError):
        run(session.add_items([ITEMS[1], {"role": "user", "content": object()}]))
    assert run(session.get_items()) == ITEMS[:1]


def test_a_name_that_another_one_starts_with_is_another_session(home: str) -> None:
    run(TreeSession("session-12", home).add_items(ITEMS[:1]))
    run(TreeSession("session-13", home).add_items(ITEMS[:1]))
    assert run(TreeSession("session-1", home).get_items()) == []
    run(TreeSession("session-1", home).add_items(ITEMS[:2]))
    assert run(TreeSession("session-1", home).get_items()) == ITEMS[:2]


def test_a_write_that_started_is_finished_before_the_cancellation_is_raised(home: str) -> None:
    async def cancel_repeatedly() -> None:
        session = TreeSession("one", home)
        started, release = threading.Event(), threading.Event()
        write = session._write_items

        def slow(items: Any) -> None:
            started.set()
            assert release.wait(60)
            write(items)

        session._write_items = slow  # type: ignore[method-assign]
        task = asyncio.create_task(session.add_items(ITEMS[:2]))
        while not started.is_set():
            await asyncio.sleep(0.01)
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0)
            assert not task.done()
        release.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await TreeSession("one", home).get_items() == ITEMS[:2]

    run(cancel_repeatedly())


def test_threads_with_event_loops_of_their_own_lose_no_item(home: str) -> None:
    shared = TreeSession("one", home)

    def write(number: int) -> None:
        session = shared if number % 2 else TreeSession("one", home)
        for at in range(10):
            run(session.add_items([{"role": "user", "content": f"{number}-{at}"}, {"role": "user", "content": "x"}]))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    texts = [item["content"] for item in run(shared.get_items())]
    assert len(texts) == 80
    assert set(texts[1::2]) == {"x"}, "the two items of a call stay together"
    for number in range(4):
        own = [text for text in texts if text.startswith(f"{number}-")]
        assert own == [f"{number}-{at}" for at in range(10)]


def test_processes_that_start_at_once_share_one_session(tmp_path: Path) -> None:
    code = (
        "import asyncio, sys\n"
        "from sessiontree.adapters.openai_agents import TreeSession\n"
        "session = TreeSession('one', sys.argv[1])\n"
        "for at in range(20): asyncio.run(session.add_items([{'role': 'user', 'content': f'{sys.argv[2]}-{at}'}]))\n"
    )
    home = str(tmp_path / "home")
    writers = [subprocess.Popen([sys.executable, "-c", code, home, str(number)]) for number in range(3)]
    assert [writer.wait(120) for writer in writers] == [0, 0, 0]
    texts = [item["content"] for item in run(TreeSession("one", home).get_items())]
    assert sorted(texts) == sorted(f"{number}-{at}" for number in range(3) for at in range(20))


def test_messages_of_other_programs_and_compactions_are_read_as_items(home: str) -> None:
    session = TreeSession("one", home)
    run(session.add_items(ITEMS[:1]))
    with session._named.writing() as stored:
        call = {"type": "toolCall", "id": "c", "name": "ls", "arguments": {"path": "."}}
        stored.append("assistant", [{"type": "text", "text": "I look."}, call])
    items = run(session.get_items())
    assert items[0] == ITEMS[0]
    assert items[1]["content"] == [{"type": "output_text", "text": "I look."}]
    assert items[2] == {"type": "function_call", "call_id": "c", "name": "ls", "arguments": '{"path": "."}'}
    assert run(session.pop_item()) == items[2]
    assert run(session.get_items()) == items[:2]
    with session._named.writing() as stored:
        kept = stored.leaf
        stored.append({"type": "compaction", "summary": "The answer was asked.", "firstKeptEntryId": kept})
    compacted = run(session.get_items())
    assert "The answer was asked." in str(compacted[0])
    assert compacted[-1] == items[1]


def test_the_commands_work_on_a_session(tmp_path: Path) -> None:
    home = tmp_path / "home"
    session = TreeSession("user-123", home, cwd=tmp_path)
    run(session.add_items(ITEMS))
    run(session.pop_item())
    run(session.add_items([{"role": "user", "content": "Another question"}]))
    session.close()
    with pytest.raises(sessiontree.UsageError, match="was closed"):
        run(session.get_items())
    check_commands(home, "user-123", ["What is the answer?", "page 42", "It is 42.", "Another question"])


def test_the_example_of_the_documentation_runs(tmp_path: Path) -> None:
    check_section("OpenAI Agents SDK", tmp_path)
