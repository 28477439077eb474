"""A server that is killed at any time: what was stored stays, and what is unknown is settled by `resolve`."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator

import pytest

import sessiontree
from sessiontree.branches.merge import SummaryOptions, merge
from sessiontree.compaction import EXTRACTIVE, compact
from sessiontree.core.entries import MessageEntry
from sessiontree.errors import CompactionError, StoreError, UsageError
from sessiontree.stores.postgres import open_postgres_repository
from tests.postgres.server import Server, temporary_server

pytestmark = pytest.mark.slow


@pytest.fixture
def own_server() -> Iterator[Server]:
    with temporary_server() as server:
        yield server


class Writer(threading.Thread):
    """Appends, moves, merges and compacts until it is told to stop, and notes what returned and what raised."""

    def __init__(self, ref: str, name: str, seed: int) -> None:
        super().__init__(name=name)
        self.ref, self.random = ref, random.Random(seed)
        self.stored: list[str] = []
        self.unknown: list[str] = []
        self.entries: dict[str, str] = {}
        """Entries of merges and compactions that returned."""
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
        chosen = self.random.random()
        try:
            if chosen < 0.1 and self.stored:
                session.move(self.random.choice(session.path_ids()))
            elif chosen < 0.15:
                other = self.random.choice(session.leaves())
                found = merge(session, other, options=SummaryOptions(summarizer=EXTRACTIVE)).entry
                if found is not None:
                    self.entries[found] = "merge"
            elif chosen < 0.2:
                compacted = compact(session, keep=1, summarizer=EXTRACTIVE).entry
                assert compacted is not None
                self.entries[compacted.id] = "compaction"
            else:
                session.append("user", text)
                self.stored.append(text)
        except (UsageError, CompactionError):  # nothing to merge or to compact here
            return
        except StoreError:
            if chosen >= 0.2:
                self.unknown.append(text)
            self._resolve(session)

    def _resolve(self, session: sessiontree.Session) -> None:
        while not self.ends.is_set():
            try:
                session.resolve()
            except StoreError:
                time.sleep(0.05)
            else:
                return


Counts = Callable[[], int]
"""The number of appends that have returned."""


def wait_for(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.01)
    return False


def write_during(server: Server, disturb: Callable[[random.Random, Counts], None]) -> None:
    """Write with three writers while the server is disturbed, and check what is there in the end."""
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    chance = random.Random(seed)
    repository = open_postgres_repository(server.create_database("killed"))
    repository.upgrade()
    with sessiontree.create(home=repository.home) as session:
        session.append("user", "start")
    writers = [Writer(str(session.ref), f"w{number}", chance.randrange(1 << 30)) for number in range(3)]
    for writer in writers:
        writer.start()
    try:
        disturb(chance, lambda: sum(len(writer.stored) for writer in writers))
        counted = sum(len(writer.stored) for writer in writers)
        goes_on = wait_for(lambda: sum(len(writer.stored) for writer in writers) >= counted + 10)
        assert goes_on, "the session objects go on"
    finally:
        for writer in writers:
            writer.ends.set()
        for writer in writers:
            writer.join()
    assert [writer.failure for writer in writers] == [None] * len(writers)
    with sessiontree.open(str(session.ref)) as opened:
        own = [entry for entry in opened if isinstance(entry, MessageEntry)]
        assert opened.problems == []
        ids = opened.ids
        texts = [entry.message.text for entry in own]
    assert len(ids) == len(set(ids))
    assert len(texts) == len(set(texts)), "nothing is there twice"
    for writer in writers:
        assert set(writer.stored) <= set(texts), "everything that returned is there"
        assert writer.entries.keys() <= set(ids), "and every merge and compaction"
    known = {text for writer in writers for text in (*writer.stored, *writer.unknown)}
    assert set(texts) <= known | {"start"}, "and nothing else"
    assert repository.status().sessions == 1
    assert list(repository.verify()) == []
    print(
        f"{sum(len(writer.stored) for writer in writers)} appends, "
        f"{sum(len(writer.entries) for writer in writers)} merges and compactions, "
        f"{sum(len(writer.unknown) for writer in writers)} unknown outcomes"
    )
    repository.close()


def test_every_append_that_returned_is_there_after_any_number_of_kills(own_server: Server) -> None:
    def kill_often(chance: random.Random, counts: Counts) -> None:
        for _ in range(int(os.environ.get("SESSIONTREE_KILLS", "8"))):
            # Most kills hit writers that are at work, the others those that are still connecting.
            counted = counts()
            if chance.random() < 0.8:
                assert wait_for(lambda counted=counted: counts() > counted)  # type: ignore[misc]
            time.sleep(chance.random() * 0.2)
            own_server.kill()
            own_server.start()

    write_during(own_server, kill_often)


def test_a_standby_promoted_from_the_archive_has_everything_that_returned() -> None:
    with temporary_server("wal_level=replica", "max_wal_senders=4", "hot_standby=on") as server:
        folder = server.data.parent
        archive = server.make_folder(folder / "archive")
        standby = folder / "standby"

        def fail_over(chance: random.Random, counts: Counts) -> None:
            server.back_up(standby)
            receiver = server.archive(archive)
            target = counts() + chance.randrange(5, 50)
            assert wait_for(lambda: counts() > target)
            server.kill()
            receiver.wait(timeout=60)
            for partial in archive.glob("*.partial"):
                partial.rename(partial.with_suffix(""))
            with (standby / "postgresql.auto.conf").open("a") as file:
                file.write(f"restore_command = 'cp {archive}/%f %p'\n")
            (standby / "standby.signal").touch()
            server.data = standby
            server.start()
            server.promote()

        write_during(server, fail_over)
