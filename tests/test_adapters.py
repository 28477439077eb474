"""Adapters import their frameworks only when they are used. `tests_adapters` has the tests with the frameworks."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import anyio
import pytest

from sessiontree.adapters.worker_threads import run_read, run_write


@pytest.mark.parametrize("module", ["sessiontree.adapters", "sessiontree.adapters.openai_agents"])
def test_importing_an_adapter_imports_no_framework(module: str) -> None:
    code = f"import sys, {module}; print([name for name in ('agents', 'openai', 'pydantic_ai') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_call_in_a_thread_returns_its_result_or_raises_its_error() -> None:
    async def read_and_write() -> None:
        assert await run_read(lambda: 1) == await run_write(lambda: 1) == 1
        for run in (run_read, run_write):
            with pytest.raises(ZeroDivisionError):
                await run(lambda: 1 // 0)

    asyncio.run(read_and_write())


@pytest.mark.parametrize("by_anyio", [False, True])
def test_a_write_runs_to_its_end_however_often_it_is_cancelled(by_anyio: bool) -> None:
    async def cancel() -> None:
        entered, go_on, done = threading.Event(), threading.Event(), threading.Event()

        def write() -> None:
            entered.set()
            assert go_on.wait(60)
            done.set()

        async def cancel_scope() -> None:
            with anyio.CancelScope() as scope:
                scopes.append(scope)
                await run_write(write)

        scopes: list[anyio.CancelScope] = []
        task = asyncio.create_task(cancel_scope() if by_anyio else run_write(write))
        while not entered.is_set():
            await asyncio.sleep(0)
        for _ in range(3):
            scopes[0].cancel() if by_anyio else task.cancel()
            await asyncio.sleep(0.001)
            assert not task.done()
        go_on.set()
        await asyncio.wait([task])
        assert done.is_set()
        assert task.cancelled() is not by_anyio  # a scope of anyio ends the cancellation

    asyncio.run(cancel())


def test_a_read_is_left_at_once_when_it_is_cancelled() -> None:
    async def cancel() -> None:
        go_on = threading.Event()
        task = asyncio.create_task(run_read(lambda: go_on.wait(60)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go_on.set()

    asyncio.run(cancel())
