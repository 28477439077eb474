"""A pytest plugin that runs the SDK's own tests on our store instead of its store in memory.

`SWAP_THREADS=0` does all I/O in the coroutine, `SWAP_HOME=memory` uses memory instead of files.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

import claude_agent_sdk
import claude_agent_sdk._internal.session_store as sdk_store
import pytest

from sessiontree.adapters.claude_agent_sdk import Key, SessionTreeStore

touched: set[str] = set()
_state = {"test": ""}
_folder = tempfile.mkdtemp(prefix="swapped-store")


class SwappedStore(SessionTreeStore):
    """Our store with the helpers that the SDK's tests call on the store they expect."""

    def __init__(self) -> None:
        name = uuid.uuid4().hex
        home = f"memory:{name}" if os.environ.get("SWAP_HOME") == "memory" else os.path.join(_folder, name)
        super().__init__(home, threads=os.environ.get("SWAP_THREADS") != "0")

    async def append(self, key: Mapping[str, Any], entries: Any) -> None:
        touched.add(_state["test"])
        await super().append(key, entries)

    async def load(self, key: Mapping[str, Any]) -> Any:
        touched.add(_state["test"])
        return await super().load(key)

    def get_entries(self, key: Mapping[str, Any]) -> list[dict[str, Any]]:
        return self._load(Key.parse(key)) or []

    @property
    def size(self) -> int:
        return sum(1 for project in self._projects() for _ in self._places.iter_stats(project))

    def clear(self) -> None:
        for project in self._projects():
            for session, _ in list(self._places.iter_stats(project)):
                self._delete(Key(project, session))

    @property
    def _mtimes(self) -> _Times:
        return _Times(self)

    def _projects(self) -> list[str]:
        folder = self._places._projects  # type: ignore[attr-defined]
        return sorted(os.listdir(folder)) if os.path.isdir(folder) else []


class _Times(dict[str, int]):
    """Times of files by `project/session`, in milliseconds; setting one sets the file's."""

    def __init__(self, store: SwappedStore) -> None:
        super().__init__()
        self._store = store

    def __setitem__(self, name: str, milliseconds: int) -> None:
        project, session, *sub = name.split("/")
        path = self._store._places.store(Key(project, session, "/".join(sub))).location
        os.utime(path, ns=(milliseconds * 1_000_000, milliseconds * 1_000_000))

    def __getitem__(self, name: str) -> int:
        project, session, *_ = name.split("/")
        return next(s.changed // 1_000_000 for id, s in self._store._places.iter_stats(project) if id == session)


claude_agent_sdk.InMemorySessionStore = SwappedStore  # type: ignore[misc]
sdk_store.InMemorySessionStore = SwappedStore  # type: ignore[misc]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    _state["test"] = item.nodeid
    return (yield)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    terminalreporter.write_line(f"tests that touched the swapped store: {len(touched)}")


def pytest_unconfigure() -> None:
    shutil.rmtree(_folder, ignore_errors=True)
