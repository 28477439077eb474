"""Adapters import their frameworks only when they are used. `tests_adapters` has the tests with the frameworks."""

from __future__ import annotations

import asyncio
import functools
import os
import subprocess
import sys
import threading

import anyio
import pytest

from sessiontree.adapters.worker_threads import run_read, run_write

MANY = 100
"""More calls than there are threads."""


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


def test_more_calls_than_threads_all_run() -> None:
    async def run() -> None:
        go_on = threading.Event()

        def read(number: int) -> int:
            assert go_on.wait(60)
            return number

        calls = [asyncio.create_task(run_read(functools.partial(read, number))) for number in range(MANY)]
        await asyncio.sleep(0)
        assert threading.active_count() < MANY
        go_on.set()
        assert await asyncio.gather(*calls) == [*range(MANY)]
        assert await run_write(lambda: 1) == 1

    asyncio.run(run())


def test_a_cancelled_read_that_no_thread_has_begun_never_runs() -> None:
    async def cancel() -> None:
        go_on, began = threading.Event(), list[int]()
        busy = [asyncio.create_task(run_read(lambda: go_on.wait(60))) for _ in range(MANY)]
        last = asyncio.create_task(run_read(lambda: began.append(1)))
        await asyncio.sleep(0)
        last.cancel()
        with pytest.raises(asyncio.CancelledError):
            await last
        go_on.set()
        await asyncio.gather(*busy)
        assert await run_read(lambda: 1) == 1
        assert began == []

    asyncio.run(cancel())


def test_writes_that_were_started_end_before_the_program_does() -> None:
    code = """
import asyncio, os, time
from sessiontree.adapters.worker_threads import run_write

def write(number):
    time.sleep(0.2)
    os.write(1, f"{number}\\n".encode())

async def leave():
    for number in range(50):  # more than there are threads
        loop.create_task(run_write(lambda number=number: write(number)))
    await asyncio.sleep(0)

loop = asyncio.new_event_loop()
loop.set_exception_handler(lambda *_: None)  # tasks are pending
loop.run_until_complete(leave())
loop.close()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert sorted(map(int, done.stdout.split())) == [*range(50)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_has_threads_of_its_own() -> None:
    code = """
import asyncio, os, threading
from sessiontree.adapters.worker_threads import run_read, run_write

assert asyncio.run(run_read(lambda: 1)) == 1  # an idle thread, which the child does not have
child = os.fork()
if child == 0:
    print(asyncio.run(run_write(lambda: 2)), flush=True)
else:
    os.waitpid(child, 0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["2"]
