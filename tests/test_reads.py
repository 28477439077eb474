"""How often a long session is read: each read of a remote store is a round trip."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sessiontree.session.open import open_store
from sessiontree.session.session import Session
from sessiontree.stores.memory import MemoryStore
from tests.builders import header

ENTRIES = 47_000
TEXT = "word " * 100


class CountingStore(MemoryStore):
    reads = 0

    def readinto(self, offset: int, buffer: memoryview) -> int:
        self.reads += 1
        return super().readinto(offset, buffer)


def native_lines() -> Iterator[bytes]:
    """Messages with a change of the model every 500 entries, branches, and a compaction near the end."""
    yield header()
    parent = b"null"
    for number in range(ENTRIES):
        if number % 500 == 0:
            body = b'"type":"model_change","provider":"p","modelId":"m%d"' % number
        elif number == ENTRIES - 2000:
            body = b'"type":"compaction","summary":"s","firstKeptEntryId":"%08x","tokensBefore":9' % (number - 100)
        elif number % 2:
            body = b'"type":"message","message":{"role":"user","content":"%b"}' % TEXT.encode()
        else:
            body = b'"type":"message","message":{"role":"assistant","content":[{"type":"text","text":"%b"}]}' % (
                TEXT.encode()
            )
        yield b'{"id":"%08x","parentId":%b,"timestamp":"2026-01-01T00:00:00.000Z",%b}\n' % (number, parent, body)
        if number % 40 != 39:  # every 40th entry ends a branch
            parent = b'"%08x"' % number


def claude_lines() -> Iterator[bytes]:
    parent = b"null"
    for number in range(ENTRIES):
        uuid = b"00000000-0000-4000-8000-%012x" % number
        if number % 2:
            message = b'{"role":"user","content":"%b"}' % TEXT.encode()
        else:
            message = (
                b'{"role":"assistant","id":"msg_%d","type":"message","model":"m","content":[{"type":"text","text":"%b"}]}'
                % (number, TEXT.encode())
            )
        yield (
            b'{"parentUuid":%b,"isSidechain":false,"type":"%b","message":%b,"uuid":"%b","sessionId":"s","cwd":"/",'
            b'"version":"2.1.0","userType":"external","timestamp":"2026-01-01T00:00:00.000Z"}\n'
        ) % (parent, b"user" if number % 2 else b"assistant", message, uuid)
        parent = b'"%b"' % uuid


@pytest.fixture(scope="module", params=["native", "claude"])
def data(request: pytest.FixtureRequest) -> tuple[str, bytes]:
    return request.param, b"".join(native_lines() if request.param == "native" else claude_lines())


def opened(data: tuple[str, bytes]) -> tuple[CountingStore, Session]:
    store = CountingStore(data[1])
    session = open_store(store, dialect=data[0])
    assert len(session) == ENTRIES
    assert session.leaf is not None
    store.reads = 0
    return store, session


def test_the_path_of_a_long_session_takes_at_most_60_reads(data: tuple[str, bytes]) -> None:
    store, session = opened(data)
    path = session.path()
    assert len(path) > ENTRIES * 0.97
    assert store.reads <= 60
    assert [entry.id for entry in path] == session.path_ids()


def test_the_context_of_a_long_session_takes_at_most_40_reads(data: tuple[str, bytes]) -> None:
    store, session = opened(data)
    context = session.context()
    texts = [message.content for message in context.messages]
    assert len(texts) > 2000
    assert store.reads <= 40
    if data[0] == "native":
        assert context.state.model is not None
        assert context.state.model.model_id == f"m{(ENTRIES - 1) // 500 * 500}"


def test_scattered_entries_are_read_exactly(data: tuple[str, bytes]) -> None:
    _, session = opened(data)
    lines = data[1].splitlines()[-ENTRIES:]
    ids = session.ids
    nodes = [0, 46_999, 5, 4, 3, *range(20_000, 20_100), 46_998, 1, 1, 30_000]
    assert [session.raw(ids[node]) for node in nodes] == [lines[node] for node in nodes]
    assert list(session.journal.iter_raw(nodes)) == [lines[node] for node in nodes]
    assert list(session.journal.iter_raw(range(0, ENTRIES, 500))) == lines[::500]
    for some in (nodes, range(45_000, ENTRIES), [46_999, 46_998, 46_997], [7, 7], []):
        assert session.journal.read_joined(some) == b"\n".join([lines[node] for node in some])
