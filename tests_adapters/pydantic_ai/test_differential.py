"""The store behaves like Pydantic AI's own store in memory, for random sequences of operations."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import ConversationRecord, ConversationStore, InMemoryConversationStore
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from sessiontree.adapters.pydantic_ai import TreeConversationStore

OPERATIONS = ["append"] * 3 + ["branch", "back", "fork", "delete", "load", "stale", "late", "reopen", "list", "rewrite"]

FIRST = ModelRequest([UserPromptPart("first")])


def new_messages(rnd: random.Random, number: int) -> list[ModelMessage]:
    found: list[ModelMessage] = []
    for at in range(rnd.randint(1, 3)):
        if at % 2 == 0:
            found.append(ModelRequest([UserPromptPart(f"question {number}-{at}")]))
        elif rnd.random() < 0.3:
            call = f"call{number}-{at}"
            found.append(ModelResponse([TextPart("looking"), ToolCallPart("look", {"at": at}, call)]))
            found.append(ModelRequest([ToolReturnPart("look", "seen", call), UserPromptPart("and then?")]))
        else:
            found.append(ModelResponse([TextPart(f"answer {number}-{at}")]))
    return found


def shown(record: ConversationRecord) -> tuple[Any, ...]:
    """What has to be equal in two stores, whose entry ids and revisions differ."""
    return (record.conversation_id, record.scope, record.forked_from, len(record.branches), record.head_id is None)


async def outcome(call: Awaitable[Any]) -> tuple[str, Any]:
    try:
        return "ok", await call
    except (UserError, LookupError) as error:
        return "error", type(error).__name__


async def compare(seed: int, home: str, steps: int = 120) -> None:
    rnd = random.Random(seed)
    oracle, store = InMemoryConversationStore(), TreeConversationStore(home)
    known = ["one", "two / ü"]
    for step in range(steps):
        operation, id, draw = rnd.choice(OPERATIONS), rnd.choice(known), rnd.random()
        messages, scope, limit = new_messages(rnd, step), rnd.choice([None, None, "ada"]), rnd.choice([None, 0, 1, 5])
        if operation == "reopen":
            if not home.startswith("memory:") or rnd.random() < 0.5:
                store = TreeConversationStore(home)
            continue
        if operation == "fork":
            known.append(f"fork{step}")
        call = _operation(operation, id, draw, messages, scope, limit, f"fork{step}")
        expected, found = await outcome(call(oracle)), await outcome(call(store))
        assert expected == found, (seed, step, operation, id)
    for id in known:
        assert await outcome(_load(oracle, id, None)) == await outcome(_load(store, id, None)), (seed, id)
        one, other = await oracle.read_record(id), await store.read_record(id)
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            assert shown(one) == shown(other)
            for left, right in zip(one.branches, other.branches, strict=True):
                lines = [[entry.message for entry in await side] for side in _histories(oracle, left, store, right)]
                assert lines[0] == lines[1], (seed, id)


def _histories(oracle: ConversationStore, left: str, store: ConversationStore, right: str) -> list[Awaitable[Any]]:
    return [oracle.read_history(left), store.read_history(right)]


async def _load(store: ConversationStore, id: str, limit: int | None) -> Any:
    found = await store.load(id, limit=limit)
    return None if found is None else (found.messages, found.usage)


def _operation(
    name: str,
    id: str,
    draw: float,
    messages: list[ModelMessage],
    scope: str | None,
    limit: int | None,
    fork_id: str,
) -> Callable[[ConversationStore], Awaitable[Any]]:
    async def save(store: ConversationStore) -> Any:
        conversation = await store.load(id, limit=limit or None) or Conversation(conversation_id=id)
        if name == "rewrite" and len(conversation.messages) > 1:
            conversation = Conversation(
                conversation_id=id, messages=[*conversation.messages[:-1], *messages], revision=conversation.revision
            )
        else:
            conversation.messages.extend(messages)
        if name == "stale":
            conversation.revision = "stale"
        if name == "late":
            other = await store.load(id)
            if other is not None:
                other.messages.append(FIRST)
                await store.save(other)
        entries = await store.save(conversation, scope=scope)
        return [entry.message for entry in entries]

    async def branch(store: ConversationStore) -> Any:
        found = await store.load(id)
        if found is None:
            return None
        at = int(draw * (len(found.messages) + 1))
        branched = await store.branch(id, at=at, expected_revision=found.revision or "")
        return branched.messages

    async def back(store: ConversationStore) -> Any:
        record = await store.read_record(id)
        if record is None or not record.branches:
            return None
        tip = record.branches[int(draw * len(record.branches))]
        return (await store.branch(id, from_entry=tip, expected_revision=record.revision)).messages

    async def fork(store: ConversationStore) -> Any:
        found = await store.load(id)
        if found is None:
            return None
        at = int(draw * (len(found.messages) + 1))
        return (await store.fork(id, at=at, new_conversation_id=fork_id, scope=scope)).messages

    async def listed(store: ConversationStore) -> Any:
        return sorted(shown(record) for record in await store.list_conversations(scope=scope))

    async def delete(store: ConversationStore) -> Any:
        return await store.delete(id, scope=scope)

    async def load(store: ConversationStore) -> Any:
        return await _load(store, id, limit)

    return {"branch": branch, "back": back, "fork": fork, "list": listed, "delete": delete, "load": load}.get(
        name, save
    )


@pytest.mark.parametrize("first", range(0, 200, 20))
def test_200_random_histories_in_memory_equal_those_of_the_store_of_the_framework(first: int) -> None:
    for seed in range(first, first + 20):
        asyncio.run(compare(seed, f"memory:differential{seed}"))


def test_random_histories_are_equal_on_every_kind_of_repository(home: str) -> None:
    asyncio.run(compare(1000, home))
