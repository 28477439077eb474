"""The conversation store: revisions, racing writers, forks, and the commands on its sessions."""

from __future__ import annotations

import asyncio
import dataclasses
import subprocess
import sys
import threading
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import ConversationConflict, ConversationEntry, ConversationRecord
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

import sessiontree
from sessiontree.adapters.pydantic_ai import TreeConversationStore
from sessiontree.stores.repositories import open_repository
from tests_adapters.commands import check_commands
from tests_adapters.docs_page import check_section

MESSAGES: list[ModelMessage] = [
    ModelRequest([SystemPromptPart("Be brief."), UserPromptPart("What is the answer?")]),
    ModelResponse(
        [ThinkingPart("I look it up."), TextPart("Looking."), ToolCallPart("look", '{"where": "book"}', "call_1")],
        model_name="test",
    ),
    ModelRequest(
        [
            ToolReturnPart("look", {"page": 42}, "call_1"),
            UserPromptPart(["and?", BinaryContent(b"x", media_type="image/png")]),
        ]
    ),
    ModelResponse([TextPart("It is 42.")]),
]

# Reading a message changes some types, such as that of an image, also without a store.
MESSAGES = ModelMessagesTypeAdapter.validate_json(ModelMessagesTypeAdapter.dump_json(MESSAGES))


def run(coroutine: Any) -> Any:
    return asyncio.run(coroutine)


def question(text: str) -> ModelRequest:
    return ModelRequest([UserPromptPart(text)])


async def saved(store: TreeConversationStore, id: str, messages: list[ModelMessage]) -> Conversation:
    conversation = await store.load(id) or Conversation(conversation_id=id)
    conversation.messages.extend(messages)
    await store.save(conversation)
    return conversation


def test_messages_read_back_equal_and_are_ordinary_messages(home: str) -> None:
    store = TreeConversationStore(home)
    run(saved(store, "one", MESSAGES))
    loaded = run(TreeConversationStore(home).load("one"))
    assert loaded.messages == MESSAGES
    assert run(store.load("one", limit=2)).messages == MESSAGES[-2:]
    (stat,) = open_repository(home).iter_stats()
    session = sessiontree.open(stat.ref)
    roles = [message.role for message in session.context().messages]
    assert roles == ["system", "user", "assistant", "toolResult", "user", "assistant"]
    assert session.pending_calls() == []
    assert session.problems == []
    assert run(store.read_record("one")).head_id == session.leaf


def test_a_stale_revision_writes_neither_the_record_nor_its_entries(home: str) -> None:
    async def check() -> None:
        store, other = TreeConversationStore(home), TreeConversationStore(home)
        await saved(store, "one", [question("first")])
        old = await store.read_record("one")
        assert old is not None
        await saved(other, "one", [question("second")])
        entry = ConversationEntry(parent_id=old.head_id, message=question("late"))
        late = dataclasses.replace(old, head_id=entry.id, revision="late")
        for expected in (old.revision, "never", None):
            with pytest.raises(ConversationConflict):
                await store.write_record(late, new_entries=[entry], expected_revision=expected)
        with pytest.raises(LookupError):
            await store.read_entry(entry.id)
        with pytest.raises(ConversationConflict):
            await store.delete_record("one", expected_revision=old.revision)
        found = await store.load("one")
        assert found is not None
        assert len(found.messages) == 2

    run(check())


def test_a_record_whose_head_is_unknown_creates_no_session(home: str) -> None:
    store = TreeConversationStore(home)
    record = ConversationRecord(conversation_id="one", head_id="nowhere")
    with pytest.raises(ConversationConflict):
        run(store.write_record(record, expected_revision=None))
    with pytest.raises(ConversationConflict):
        run(store.write_record(dataclasses.replace(record, head_id=None), expected_revision="never"))
    assert [*open_repository(home).iter_stats()] == []


def test_of_racing_writers_one_wins_each_revision(home: str) -> None:
    """Each writer retries until it has saved ten messages; none is lost and none saved twice."""
    conflicts: list[int] = []

    def write(number: int) -> None:
        store = TreeConversationStore(home)
        for at in range(10):
            while True:
                try:
                    run(saved(store, "one", [question(f"{number}-{at}")]))
                    break
                except ConversationConflict:
                    conflicts.append(number)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    messages = run(TreeConversationStore(home).load("one")).messages
    texts = [message.parts[0].content for message in messages]
    assert sorted(texts) == sorted(f"{number}-{at}" for number in range(3) for at in range(10))
    assert run(TreeConversationStore(home).read_record("one")).branches == []


def test_processes_that_race_to_create_a_conversation_make_one_session(tmp_path: Path) -> None:
    code = (
        "import asyncio, sys\n"
        "from pydantic_ai.conversation import Conversation\n"
        "from pydantic_ai.conversation_store import ConversationConflict\n"
        "from pydantic_ai.messages import ModelRequest, UserPromptPart\n"
        "from sessiontree.adapters.pydantic_ai import TreeConversationStore\n"
        "store = TreeConversationStore(sys.argv[1])\n"
        "async def save():\n"
        "    conversation = await store.load('one') or Conversation(conversation_id='one')\n"
        "    conversation.messages.append(ModelRequest([UserPromptPart(sys.argv[2])]))\n"
        "    await store.save(conversation)\n"
        "while True:\n"
        "    try: asyncio.run(save()); break\n"
        "    except ConversationConflict: pass\n"
    )
    home = str(tmp_path / "home")
    writers = [subprocess.Popen([sys.executable, "-c", code, home, str(number)]) for number in range(3)]
    assert [writer.wait(120) for writer in writers] == [0, 0, 0]
    messages = run(TreeConversationStore(home).load("one")).messages
    assert sorted(message.parts[0].content for message in messages) == ["0", "1", "2"]
    assert len([*open_repository(home).iter_stats()]) == 1


def test_a_fork_keeps_its_entries_when_its_origin_is_deleted(home: str) -> None:
    async def check() -> None:
        store = TreeConversationStore(home)
        await saved(store, "origin", MESSAGES)
        entries = await store.load_entries("origin")
        assert entries is not None
        fork = await store.fork("origin", at=2, new_conversation_id="fork")
        assert fork.messages == MESSAGES[:2]
        await store.delete("origin")
        assert await store.load("origin") is None
        kept = await TreeConversationStore(home).load_entries("fork")
        assert kept == entries[:2]
        with pytest.raises(LookupError):
            await store.read_entry(entries[-1].id)
        assert [record.conversation_id for record in await store.list_conversations()] == ["fork"]

    run(check())


def test_a_branch_that_was_left_is_a_branch_of_the_session(home: str) -> None:
    async def check() -> None:
        store = TreeConversationStore(home)
        conversation = await saved(store, "one", MESSAGES)
        branched = await store.branch("one", at=2, expected_revision=conversation.revision or "")
        branched.messages.append(question("other"))
        await store.save(branched)
        record = await store.read_record("one")
        assert record is not None
        (left,) = record.branches
        assert [entry.message for entry in await store.read_history(left)] == MESSAGES

    run(check())
    (stat,) = open_repository(home).iter_stats()
    session = sessiontree.open(stat.ref)
    assert len(session.leaves()) >= 2
    assert session.context().messages[-1].text == "other"


def test_the_commands_work_on_a_conversation(tmp_path: Path) -> None:
    home = tmp_path / "home"
    store = TreeConversationStore(home, cwd=tmp_path)
    run(saved(store, "user-123", MESSAGES))
    run(saved(store, "user-123", [question("Another question")]))
    check_commands(home, "user-123", ["What is the answer?", "42", "It is 42.", "Another question"])


def test_the_example_of_the_documentation_runs(tmp_path: Path) -> None:
    check_section("Pydantic AI", tmp_path)


def test_a_fork_copies_the_history_line_by_line(tmp_path: Path) -> None:
    store = TreeConversationStore(tmp_path / "home")
    run(saved(store, "one", [question("word " * 2_000) for _ in range(500)]))
    (stat,) = open_repository(tmp_path / "home").iter_stats()
    record = run(store.read_record("one"))
    copy = dataclasses.replace(record, conversation_id="two", forked_from="one", forked_at=record.head_id)
    tracemalloc.start()
    try:
        run(store.write_record(copy, expected_revision=None))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < stat.size / 2
    assert len(run(store.load("two")).messages) == 500
