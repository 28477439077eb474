"""Contract checks for `Store` and `BlobStore`."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable

from sessiontree.errors import ConflictError, ExistsError, NotFoundError
from sessiontree.stores.contract import BlobStore, Store, read_bytes
from sessiontree.testing.contract import expect, expect_error

MakeStore = Callable[[str], Store]
"""Opens a store by name. Calls with the same name return stores of the same bytes."""


def check_store(make_store: MakeStore) -> list[str]:
    """Check the contract of a store; returns the names of the checks."""
    checks = [
        _a_new_store_does_not_exist_until_created,
        _created_bytes_come_back,
        _creating_twice_is_refused,
        _appended_bytes_come_back_at_their_offsets,
        _lock_gives_the_size_after_other_writers,
        _reading_past_the_end_gives_nothing,
        _only_one_writer_holds_the_lock,
        _overwriting_changes_only_those_bytes,
        _overwriting_other_bytes_than_expected_is_refused,
        _replacing_writes_new_bytes_and_keeps_a_backup,
        _replacing_a_changed_store_is_refused,
        _syncing_and_closing_lose_nothing,
    ]
    for number, check in enumerate(checks):
        check(make_store, f"contract-{number}")
    return [check.__name__.strip("_").replace("_", " ") for check in checks]


def _all_of(store: Store) -> bytes:
    return read_bytes(store, 0, store.size())


def _append(store: Store, data: bytes) -> int:
    size = store.lock()
    try:
        store.append(data)
    finally:
        store.unlock()
    return size


def _a_new_store_does_not_exist_until_created(make_store: MakeStore, name: str) -> None:
    store = make_store(name)
    expect(not store.exists(), "a store that was not created does not exist")
    store.create([b"first\n"])
    expect(store.exists(), "a created store exists")
    store.close()


def _created_bytes_come_back(make_store: MakeStore, name: str) -> None:
    store = make_store(name)
    data = [b"one\n", b"", bytes(range(256)) + b"\n"]
    store.create(data)
    found = _all_of(make_store(name))
    expect(found == b"".join(data), "created bytes come back exactly", found)
    store.close()


def _creating_twice_is_refused(make_store: MakeStore, name: str) -> None:
    make_store(name).create([b"mine\n"])
    other = make_store(name)
    with expect_error(ExistsError, "creating an existing store is refused"):
        other.create([b"other\n"])
    expect(_all_of(other) == b"mine\n", "and its bytes are unchanged", _all_of(other))


def _appended_bytes_come_back_at_their_offsets(make_store: MakeStore, name: str) -> None:
    store = make_store(name)
    store.create([b"head\n"])
    expected = b"head\n"
    for number in range(50):
        line = b"%d %s\n" % (number, b"x" * (number * 37 % 211))
        size = _append(store, line)
        expect(size == len(expected), "lock gives the size before the append", size)
        expect(read_bytes(store, size, len(line)) == line, "appended bytes are at that offset")
        expected += line
    expect(_all_of(make_store(name)) == expected, "another store of the same name reads the same bytes")


def _lock_gives_the_size_after_other_writers(make_store: MakeStore, name: str) -> None:
    one = make_store(name)
    one.create([b"head\n"])
    other = make_store(name)
    _append(one, b"from one\n")
    expect(_append(other, b"from other\n") == len(b"head\nfrom one\n"), "lock sees what another writer appended")
    found = _all_of(one)
    expect(found == b"head\nfrom one\nfrom other\n", "both appends are complete", found)


def _reading_past_the_end_gives_nothing(make_store: MakeStore, name: str) -> None:
    store = make_store(name)
    store.create([b"12345"])
    buffer = bytearray(10)
    with memoryview(buffer) as view:
        expect(store.readinto(5, view) == 0, "reading at the end gives 0 bytes")
        expect(store.readinto(500, view) == 0, "reading beyond the end gives 0 bytes")
        expect(store.readinto(3, view) == 2, "reading across the end gives the bytes before it")
    expect(bytes(buffer[:2]) == b"45", "and those bytes", bytes(buffer[:2]))


def _only_one_writer_holds_the_lock(make_store: MakeStore, name: str) -> None:
    make_store(name).create([b""])
    problems: list[str] = []

    def write(writer: int) -> None:
        store = make_store(name)
        for number in range(25):
            size = store.lock()
            try:
                if store.size() != size:
                    problems.append(f"writer {writer} saw {store.size()} instead of {size} bytes inside its lock")
                store.append(b"%d-%d\n" % (writer, number))
            finally:
                store.unlock()

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expect(not problems, "between lock and unlock no other writer appends", problems)
    lines = _all_of(make_store(name)).splitlines()
    expect(len(lines) == 100, "no append of several writers is lost", len(lines))
    for writer in range(4):
        mine = [line for line in lines if line.startswith(b"%d-" % writer)]
        expect(mine == [b"%d-%d" % (writer, number) for number in range(25)], "each writer's appends keep their order")


def _overwrite(store: Store, offset: int, data: bytes, expected: bytes) -> None:
    store.lock()
    try:
        store.overwrite(offset, data, expected)
    finally:
        store.unlock()


def _overwriting_changes_only_those_bytes(make_store: MakeStore, name: str) -> None:
    store = make_store(name)
    store.create([b"title: old\nhead\n"])
    _append(store, b"line\n")
    _overwrite(store, 7, b"new", b"old")
    expect(_all_of(make_store(name)) == b"title: new\nhead\nline\n", "overwritten bytes are at their offset")
    size = _append(store, b"more\n")
    expect(size == len(b"title: new\nhead\nline\n"), "overwriting does not change the size", size)
    _overwrite(make_store(name), 0, b"T", b"t")
    store.sync()
    found = _all_of(store)
    expect(found == b"Title: new\nhead\nline\nmore\n", "and appending continues at the end", found)


def _overwriting_other_bytes_than_expected_is_refused(make_store: MakeStore, name: str) -> None:
    store = make_store(name)
    store.create([b"title: old\n"])
    for offset, data, expected in (
        (7, b"new", b"odd"),
        (7, b"newer", b"old"),
        (7, b"new", b"older"),
        (8, b"new\n", b"ld\n\n"),
        (500, b"new", b"old"),
    ):
        with expect_error(ConflictError, f"overwriting other bytes than {expected!r} with {data!r} is refused"):
            _overwrite(store, offset, data, expected)
    found = _all_of(make_store(name))
    expect(found == b"title: old\n", "and nothing is changed", found)
    _append(store, b"line\n")
    expect(_all_of(store) == b"title: old\nline\n", "a refusal is not a failure: the store stays writable")


def _replacing_writes_new_bytes_and_keeps_a_backup(make_store: MakeStore, name: str) -> None:
    store = make_store(name)
    store.create([b"old\n"])
    backup = store.replace([b"new ", b"bytes\n"], len(b"old\n"))
    expect(bool(backup), "replace returns where the old bytes are")
    expect(_all_of(make_store(name)) == b"new bytes\n", "after replace the new bytes are there")
    _append(store, b"more\n")
    expect(_all_of(make_store(name)) == b"new bytes\nmore\n", "and can be appended to")


def _replacing_a_changed_store_is_refused(make_store: MakeStore, name: str) -> None:
    store = make_store(name)
    store.create([b"old\n"])
    _append(make_store(name), b"another writer\n")
    with expect_error(ConflictError, "replacing a store that changed since it was read is refused"):
        store.replace([b"new\n"], len(b"old\n"))
    found = _all_of(make_store(name))
    expect(found == b"old\nanother writer\n", "and nothing is changed", found)


def _syncing_and_closing_lose_nothing(make_store: MakeStore, name: str) -> None:
    store = make_store(name)
    store.create([b"head\n"])
    _append(store, b"line\n")
    store.start_sync()
    store.sync()
    store.close()
    expect(_all_of(make_store(name)) == b"head\nline\n", "appended bytes are there after sync and close")
    _append(store, b"again\n")
    expect(_all_of(store) == b"head\nline\nagain\n", "a closed store opens again by itself")


def check_blob_store(make_blobs: Callable[[], BlobStore]) -> None:
    """Check the contract of a blob store."""
    blobs = make_blobs()
    for data in (b"", b"small", bytes(range(256)) * 5000):
        name = blobs.put(data)
        expect(name == hashlib.sha256(data).hexdigest(), "a blob's name is the SHA-256 of its content", name)
        expect(blobs.put(data) == name, "putting the same content again gives the same name")
        expect(blobs.get(name) == data, "a blob comes back exactly")
    expect(blobs.get("0" * 64) is None, "a missing blob is None")
    for bad in (
        "",
        "..",
        "../../etc/passwd",
        "/etc/passwd",
        "A" * 64,
        "0" * 63,
        "0" * 64 + "\n",
        "0" * 32 + "\x00" * 32,
    ):
        with expect_error(NotFoundError, f"{bad!r} is refused as a blob's name"):
            blobs.get(bad)
