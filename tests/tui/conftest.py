"""A library of sample sessions, and a function that runs the terminal UI on it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.worker import Worker, WorkerCancelled

from sessiontree.app.workbench import Workbench
from sessiontree.library.library import Library
from sessiontree.tui.app import SessionTreeApp
from sessiontree.tui.requests import Request
from tests.sample_home import home

NOW = datetime(2026, 2, 16, 12, tzinfo=UTC)
"""The clock of the sample library."""

Running = Callable[..., contextlib.AbstractAsyncContextManager[Pilot[Request | None]]]


__all__ = ["home"]


@pytest.fixture
def library_clock() -> datetime:
    return NOW


@pytest.fixture
def workbench(home: Path) -> Iterator[Workbench]:
    with Library() as library:
        found = Workbench(library, str(home / "projects" / "shop"))
        found.now = NOW.timestamp
        yield found


@pytest.fixture
def running(workbench: Workbench) -> Running:
    """Run the UI: `async with running() as pilot`. The first scan is over when the block starts."""

    @contextlib.asynccontextmanager
    async def run(
        size: tuple[int, int] = (120, 40), *, everywhere: bool = False
    ) -> AsyncIterator[Pilot[Request | None]]:
        app = SessionTreeApp(workbench, everywhere=everywhere)
        async with app.run_test(size=size) as pilot:
            await settle(pilot)
            yield pilot

    return run


async def settle(pilot: Pilot[Request | None]) -> None:
    """Wait until background work and everything that follows from it is done."""
    await pilot.pause()
    for _ in range(2):
        await asyncio.gather(*(_finished(worker) for worker in list(pilot.app.workers)))
        await pilot.pause()


async def _finished(worker: Worker[Any]) -> None:
    # A newer request cancels an older one of its group: a worker that was replaced counts as finished.
    with contextlib.suppress(WorkerCancelled):
        await worker.wait()


async def until(pilot: Pilot[Any], condition: Callable[[], Any]) -> None:
    """Wait for something to happen, however slow the machine is."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "this did not happen"
        await pilot.pause(0.02)
