"""A server that is killed at any time: what was stored stays, and what is unknown is settled by `resolve`."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator

import pytest

import sessiontree
from sessiontree.core.entries import MessageEntry
from sessiontree.errors import StoreError
from sessiontree.stores.postgres import open_postgres_repository
from tests.postgres.server import Server, temporary_server

pytestmark = pytest.mark.slow


@pytest.fixture
def own_server() -> Iterator[Server]:
    with temporary_server() as server:
        yield server


class Writer(threading.Thread):
    """Appends, moves and merges until it is told to stop, and notes what returned and what raised."""

    def __init__(self, ref: str, name: str, seed: int) -> None:
        super().__init__(name=name)
        self.ref, self.random = ref, random.Random(seed)
        self.stored: list[str] = []
        self.unknown: list[str] = []
        self.failure: BaseException | None = None
        self.ends = threading.Event()

    def run(self) -> None:
        try:
            session = self._open()
            while not self.ends.is_set():
                self._step(session)
            session.close()
        except BaseException as error:  # noqa: BLE001 - the test raises it
            self.failure = error

    def _open(self) -> sessiontree.Session:
        while True:
            try:
                return sessiontree.open(self.ref)
            except StoreError:
                time.sleep(0.05)

    def _step(self, session: sessiontree.Session) -> None:
        text = f"{self.name}-{len(self.stored) + len(self.unknown)}"
        try:
            if self.random.random() < 0.1 and self.stored:
                session.move(session.path()[0].id)
                return
            session.append("user", text)
            self.stored.append(text)
        except StoreError:
            self.unknown.append(text)
            while not self.ends.is_set():
                try:
                    session.resolve()
                except StoreError:
                    time.sleep(0.05)
                else:
                    return


def test_every_append_that_returned_is_there_once_after_any_number_of_kills(own_server: Server) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    chance = random.Random(seed)
    repository = open_postgres_repository(own_server.create_database("killed"))
    repository.upgrade()
    with sessiontree.create(home=repository.home) as session:
        session.append("user", "start")
    writers = [Writer(str(session.ref), f"w{number}", chance.randrange(1 << 30)) for number in range(3)]
    for writer in writers:
        writer.start()
    for _ in range(int(os.environ.get("SESSIONTREE_KILLS", "8"))):
        time.sleep(chance.random() * 0.5)
        own_server.kill()
        own_server.start()
    time.sleep(0.5)
    for writer in writers:
        writer.ends.set()
    for writer in writers:
        writer.join()
        assert writer.failure is None, writer.failure
    with sessiontree.open(str(session.ref)) as opened:
        texts = [entry.message.text for entry in opened if isinstance(entry, MessageEntry)]
        assert opened.problems == []
    assert len(texts) == len(set(texts)), "nothing is there twice"
    for writer in writers:
        assert set(writer.stored) <= set(texts), "everything that returned is there"
    known = {text for writer in writers for text in (*writer.stored, *writer.unknown)}
    assert set(texts) <= known | {"start"}, "and nothing else"
    assert sum(len(writer.stored) for writer in writers) > 20
    repository.close()
