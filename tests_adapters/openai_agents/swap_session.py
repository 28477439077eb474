"""A pytest plugin for the SDK's own tests: its SQLite sessions and list sessions become sessions of this package.

    cd openai_agents-0.24.0 && PYTHONPATH=<this folder> pytest -p swap_session <files>

`SQLiteSession(":memory:")` becomes a session in memory, one with a path a session in files next to that path.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import agents
import agents.memory
import pytest

from sessiontree.adapters.openai_agents import TreeSession

sys.path.insert(0, os.getcwd())
import tests.utils.simple_session as simple_session

_numbers = itertools.count()
_touched: set[str] = set()
_current = [""]


def _home_of(db_path: str | Path) -> str:
    return f"memory:swapped{next(_numbers)}" if str(db_path) == ":memory:" else f"{db_path}.sessions"


class SwappedSQLiteSession(TreeSession):
    def __init__(
        self,
        session_id: str,
        db_path: str | Path = ":memory:",
        sessions_table: str = "agent_sessions",
        messages_table: str = "agent_messages",
        session_settings: Any = None,
    ) -> None:
        super().__init__(session_id, _home_of(db_path), session_settings=session_settings)
        self.db_path = db_path


class SwappedListSession(TreeSession):
    def __init__(self, session_id: str = "test", history: list[Any] | None = None) -> None:
        super().__init__(session_id, _home_of(":memory:"))
        self._ignore_ids_for_matching = False
        if history:
            self._write_items(history)

    @property
    def saved_items(self) -> list[Any]:
        return self._read_items(None)

    _items = saved_items

    async def _get_compaction_snapshot(self, *_: Any, **__: Any) -> None:
        """None, as the list session has no such method."""


class SwappedCountingSession(SwappedListSession):
    def __init__(self, session_id: str = "test", history: list[Any] | None = None) -> None:
        super().__init__(session_id, history)
        self.pop_calls = 0

    async def pop_item(self) -> Any:
        self.pop_calls += 1
        return await super().pop_item()


class SwappedIdStrippingSession(SwappedCountingSession):
    def __init__(self, session_id: str = "test", history: list[Any] | None = None) -> None:
        super().__init__(session_id, history)
        self._ignore_ids_for_matching = True

    async def add_items(self, items: list[Any]) -> None:
        await super().add_items(
            [{k: v for k, v in item.items() if k != "id"} if isinstance(item, dict) else item for item in items]
        )


for module in (agents, agents.memory):
    module.SQLiteSession = SwappedSQLiteSession  # type: ignore[misc, assignment]
simple_session.SimpleListSession = SwappedListSession
simple_session.CountingSession = SwappedCountingSession
simple_session.IdStrippingSession = SwappedIdStrippingSession

for _name in ("_read_items", "_write_items"):

    def _counted(method: Any) -> Any:
        def call(self: TreeSession, argument: Any) -> Any:
            _touched.add(_current[0])
            return method(self, argument)

        return call

    setattr(TreeSession, _name, _counted(getattr(TreeSession, _name)))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    _current[0] = item.nodeid
    yield


def pytest_terminal_summary(terminalreporter: Any) -> None:
    terminalreporter.write_line(f"tests that used a swapped session: {len(_touched)}")
