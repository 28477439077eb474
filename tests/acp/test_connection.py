"""JSON-RPC over pipes: slow clients, long messages and requests that are withdrawn."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

from sessiontree.acp import connection
from sessiontree.acp.connection import Connection, ConnectionClosedError


class Echo:
    async def call(self, method: str, params: Any) -> Any:
        if method == "fail":
            raise ZeroDivisionError("a bug")
        return params

    async def notify(self, method: str, params: Any) -> None: ...


@pytest.fixture
def pipes() -> Iterator[tuple[int, int, int, int]]:
    """What the agent reads and writes, and the other ends of both."""
    reads, to_agent = os.pipe()
    from_agent, writes = os.pipe()
    yield reads, writes, to_agent, from_agent
    for pipe in (reads, writes, to_agent, from_agent):
        try:
            os.close(pipe)
        except OSError:
            continue


def test_a_sender_waits_for_a_client_that_does_not_read_and_ends_with_it(pipes: tuple[int, int, int, int]) -> None:
    reads, writes, _, from_agent = pipes
    sent = 0

    async def flood(agent: Connection) -> None:
        nonlocal sent
        while True:
            await agent.notify("session/update", {"text": "x" * 10_000})
            sent += 1

    async def main() -> None:
        agent = Connection(reads, writes, print)
        serving = asyncio.ensure_future(agent.serve(Echo()))
        flooding = asyncio.ensure_future(flood(agent))
        while sent * 10_000 < connection._MAX_WAITING // 2:
            await asyncio.sleep(0)
        before = -1
        while before != sent:  # until it waits
            before = sent
            await asyncio.sleep(0.05)
        assert sent * 10_000 < 2 * connection._MAX_WAITING
        os.close(from_agent)  # the client ends
        with pytest.raises(ConnectionClosedError):
            await asyncio.wait_for(flooding, 60)
        await asyncio.wait_for(serving, 60)
        await agent.close()

    asyncio.run(main())


def test_a_message_that_is_too_long_and_a_bug_are_errors_and_the_connection_goes_on(
    pipes: tuple[int, int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "MAX_LINE", 1_000)
    reads, writes, to_agent, from_agent = pipes
    os.write(to_agent, b'{"id": 1, "method": "x", "params": "' + b"y" * 50_000 + b'"}\n')
    os.write(to_agent, b'{"id": 2, "method": "fail"}\n{"id": 3, "method": "echo", "params": [1]}')
    os.close(to_agent)
    logged: list[str] = []

    async def main() -> None:
        agent = Connection(reads, writes, logged.append)
        await asyncio.wait_for(agent.serve(Echo()), 60)
        await agent.close()  # requests that were read before the end are answered

    asyncio.run(main())
    os.close(writes)
    with os.fdopen(os.dup(from_agent), "rb") as answers:
        found = {answer["id"]: answer for answer in map(json.loads, answers)}
    assert found[None]["error"]["code"] == -32600
    assert found[2]["error"] == {"code": -32603, "message": "internal error: ZeroDivisionError: a bug"}
    assert found[3]["result"] == [1]
    assert any("a bug" in line for line in logged)
