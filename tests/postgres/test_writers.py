"""Many writers of one session: none is lost, none is fused, every branch is whole.

How long they wait is measured by `python -m benchmarks --large --only postgres`.
"""

from __future__ import annotations

import threading

import pytest

import sessiontree
from sessiontree.core.entries import MessageEntry
from sessiontree.stores.postgres.repository import PostgresRepository

WRITERS, APPENDS = 64, 5


@pytest.mark.slow
def test_64_writers_of_one_session_lose_nothing(repository: PostgresRepository) -> None:
    with sessiontree.create(home=repository.home) as session:
        start = session.append("user", "start")
    failures: list[BaseException] = []
    ready = threading.Barrier(WRITERS)

    def write(number: int) -> None:
        try:
            with sessiontree.open(str(session.ref)) as mine:
                branch = mine.branch(at=start.id)
                ready.wait()
                for step in range(APPENDS):
                    branch.append("user", f"{number}-{step}")
        except BaseException as error:  # noqa: BLE001 - the test raises it
            failures.append(error)
            ready.abort()

    threads = [threading.Thread(target=write, args=[number]) for number in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    with sessiontree.open(str(session.ref)) as opened:
        assert opened.problems == []
        texts = [entry.message.text for entry in opened if isinstance(entry, MessageEntry)]
        assert sorted(texts) == sorted(["start", *(f"{n}-{s}" for n in range(WRITERS) for s in range(APPENDS))])
        assert len(opened.leaves()) == WRITERS
        for leaf in opened.leaves():
            path = [entry.message.text for entry in opened.path(leaf) if isinstance(entry, MessageEntry)]
            number = path[-1].split("-")[0]
            assert path == ["start", *(f"{number}-{step}" for step in range(APPENDS))], "every branch is whole"
