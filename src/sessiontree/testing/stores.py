"""Contract checks for `SessionStore`, `BlobStore`, `DocumentStore` and `SessionRepository`."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable

from sessiontree.core.ids import new_session_id
from sessiontree.errors import AmbiguousError, ConflictError, ExistsError, NotFoundError, ReplacedError, UsageError
from sessiontree.stores.contract import (
    BlobStore,
    DocumentStore,
    SessionRepository,
    SessionStore,
    WatchableRepository,
    read_bytes,
)
from sessiontree.testing.contract import expect, expect_error

MakeStore = Callable[[str], SessionStore]
"""Opens a store by name. Calls with the same name return stores of the same bytes."""


def check_store(make_store: MakeStore) -> list[str]:
    """Check the contract of a store; returns the names of the checks."""
    checks = [
        _a_new_store_does_not_exist_until_created,
        _created_bytes_come_back,
        _creating_twice_is_refused,
        _appended_bytes_come_back_at_their_offsets,
        _an_append_after_another_writers_is_refused,
        _reading_past_the_end_gives_nothing,
        _racing_writers_lose_nothing,
        _exclusive_keeps_other_writers_out,
        _overwriting_changes_only_those_bytes,
        _overwriting_other_bytes_than_expected_is_refused,
        _replacing_writes_new_bytes_and_keeps_a_backup,
        _replacing_a_changed_store_is_refused,
        _syncing_and_closing_lose_nothing,
    ]
    for number, check in enumerate(checks):
        check(make_store, f"contract-{number}")
    return [check.__name__.strip("_").replace("_", " ") for check in checks]


def _all_of(store: SessionStore) -> bytes:
    return read_bytes(store, 0, store.size())


def _append(store: SessionStore, data: bytes) -> int:
    size = store.size()
    found = store.append(data, expected_size=size)
    expect(found == size + len(data), "an append without other writers returns the new size", found)
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
        expect(size == len(expected), "the size is that of all appends before", size)
        expect(read_bytes(store, size, len(line)) == line, "appended bytes are at that offset")
        expected += line
    other = make_store(name)
    for line in (b"", b"", b"last\n"):
        returned = other.append(line, expected_size=len(expected))
        expected += line
        expect(returned == len(expected), "an append, even of nothing, returns the new size", returned)
    expect(_all_of(make_store(name)) == expected, "another store of the same name reads the same bytes")


def _an_append_after_another_writers_is_refused(make_store: MakeStore, name: str) -> None:
    one = make_store(name)
    one.create([b"head\n"])
    other = make_store(name)
    expect(other.size() == 5, "another store of the same name has the same size")
    _append(one, b"from one\n")
    refused = other.append(b"from other\n", expected_size=5)
    expect(refused is None, "an append at another size than the expected one returns None", refused)
    expect(_all_of(one) == b"head\nfrom one\n", "and writes nothing", _all_of(one))
    size = other.append(b"from other\n", expected_size=len(b"head\nfrom one\n"))
    expect(size == len(b"head\nfrom one\nfrom other\n"), "with the right size it returns the new one", size)
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


def _racing_writers_lose_nothing(make_store: MakeStore, name: str) -> None:
    make_store(name).create([b""])

    def write(writer: int) -> None:
        store = make_store(name)
        for number in range(25):
            while store.append(b"%d-%d\n" % (writer, number), expected_size=store.size()) is None:
                pass

    _run_writers(write)
    _expect_all_appends(_all_of(make_store(name)))


def _exclusive_keeps_other_writers_out(make_store: MakeStore, name: str) -> None:
    make_store(name).create([b""])
    problems: list[str] = []

    def write(writer: int) -> None:
        store = make_store(name)
        for number in range(25):
            with store.exclusive() as size:
                if store.size() != size:
                    problems.append(f"writer {writer} saw {store.size()} instead of {size} bytes")
                if store.append(b"%d-%d\n" % (writer, number), expected_size=size) is None:
                    problems.append(f"writer {writer} lost a race")

    _run_writers(write)
    expect(not problems, "inside `exclusive` no other writer appends", problems)
    _expect_all_appends(_all_of(make_store(name)))


def _run_writers(write: Callable[[int], None]) -> None:
    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _expect_all_appends(found: bytes) -> None:
    lines = found.splitlines()
    expect(len(lines) == 100, "no append of several writers is lost", len(lines))
    for writer in range(4):
        mine = [line for line in lines if line.startswith(b"%d-" % writer)]
        expect(mine == [b"%d-%d" % (writer, number) for number in range(25)], "each writer's appends keep their order")


def _overwrite(store: SessionStore, offset: int, data: bytes, expected: bytes) -> None:
    with store.exclusive():
        store.overwrite(offset, data, expected)


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
    backup = store.replace([b"new ", b"bytes\n"], expected_size=len(b"old\n"))
    expect(bool(backup), "replace returns where the old bytes are")
    expect(_all_of(make_store(name)) == b"new bytes\n", "after replace the new bytes are there")
    _append(store, b"more\n")
    expect(_all_of(make_store(name)) == b"new bytes\nmore\n", "and can be appended to")


def _replacing_a_changed_store_is_refused(make_store: MakeStore, name: str) -> None:
    store = make_store(name)
    store.create([b"old\n"])
    _append(make_store(name), b"another writer\n")
    with expect_error(ConflictError, "replacing a store that changed since it was read is refused"):
        store.replace([b"new\n"], expected_size=len(b"old\n"))
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


MakeRepository = Callable[[str], SessionRepository]
"""Opens a repository by name. Calls with the same name return repositories with the same sessions."""


def check_repository(make_repository: MakeRepository) -> list[str]:
    """Check the contract of a repository with its stores, blobs and documents; returns the names of the checks."""
    checks = [
        _a_session_exists_from_its_creation_on,
        _a_session_opens_by_its_reference,
        _an_id_is_taken_once,
        _sessions_are_found_by_id_and_prefix,
        _stats_change_with_their_session,
        _a_deleted_session_is_gone,
        _a_session_that_does_not_exist_is_not_found,
        _a_forks_store_is_in_the_same_repository,
        _a_watched_session_reports_its_sizes,
    ]
    for number, check in enumerate(checks):
        check(make_repository(f"contract-{number}"))
    check_store(_stores_of(make_repository("contract-stores")))
    check_blob_store(lambda: make_repository("contract-blobs").blobs)
    check_documents(lambda: make_repository("contract-documents").documents)
    return [check.__name__.strip("_").replace("_", " ") for check in checks]


_TIME = "2026-01-01T00:00:00.000Z"


def _new(repository: SessionRepository, id: str | None = None, data: bytes = b"first\n") -> SessionStore:
    store = repository.new(id or new_session_id(), timestamp=_TIME, cwd="/")
    store.create([data])
    return store


def _stores_of(repository: SessionRepository) -> MakeStore:
    """Stores by name, for `check_store`: the first of a name is a new session, the others open it."""
    known: dict[str, SessionStore] = {}

    def make_store(name: str) -> SessionStore:
        if name not in known:
            known[name] = repository.new(name, timestamp=_TIME, cwd="/")
        return repository.open(known[name].ref) if known[name].exists() else known[name]

    return make_store


def _a_session_exists_from_its_creation_on(repository: SessionRepository) -> None:
    id = new_session_id()
    store = repository.new(id, timestamp=_TIME, cwd="/")
    expect(not list(repository.iter_stats()), "a session that was not created is not listed")
    store.create([b"first\n"])
    found = [(stat.id, stat.ref, stat.size) for stat in repository.iter_stats()]
    expect(found == [(id, store.ref, 6)], "a created session is listed with its id, reference and size", found)


def _a_session_opens_by_its_reference(repository: SessionRepository) -> None:
    store = _new(repository)
    again = repository.open(store.ref)
    expect(_all_of(again) == b"first\n", "a session opens by its reference")
    expect(again.ref == store.ref, "and has that reference", again.ref)
    _append(again, b"second\n")
    expect(_all_of(store) == b"first\nsecond\n", "both stores have the same bytes", _all_of(store))


def _an_id_is_taken_once(repository: SessionRepository) -> None:
    id = new_session_id()
    _new(repository, id)
    with expect_error(ExistsError, "creating a second session with the same id is refused"):
        _new(repository, id, b"other\n")
    expect(_all_of(repository.open(repository.find(id))) == b"first\n", "and the first one is unchanged")


def _sessions_are_found_by_id_and_prefix(repository: SessionRepository) -> None:
    one, other = _new(repository, "abcdefgh-1"), _new(repository, "abcdefgh-2")
    expect(repository.find("abcdefgh-1") == one.ref, "a session is found by its id")
    expect(repository.find("abcdefgh-2") == other.ref, "and another one by its own")
    third = _new(repository, "xyz-3")
    expect(repository.find("x") == third.ref, "a session is found by a unique prefix of any length")
    for prefix in ("abcdefgh", "a"):
        with expect_error(AmbiguousError, "a prefix of two ids is ambiguous"):
            repository.find(prefix)
    for wanted in ("abcdefgh-3", "abd", "", "..", "../abcdefgh-1"):
        with expect_error(NotFoundError, f"{wanted!r} is not found"):
            repository.find(wanted)


def _stats_change_with_their_session(repository: SessionRepository) -> None:
    store = _new(repository)
    (before,) = repository.iter_stats()
    _append(store, b"second\n")
    (after,) = repository.iter_stats()
    expect(after.size == before.size + 7, "the size in a listing follows appends", after.size)
    store.replace([b"x" * after.size], expected_size=after.size)
    (replaced,) = repository.iter_stats()
    stamps = [(stat.size, stat.changed, stat.identity) for stat in (after, replaced)]
    expect(stamps[0] != stamps[1], "replaced bytes of the same size have another stamp", stamps)


def _a_deleted_session_is_gone(repository: SessionRepository) -> None:
    store, other = _new(repository), _new(repository)
    size = store.size()
    repository.delete(store.ref)
    expect([stat.ref for stat in repository.iter_stats()] == [other.ref], "a deleted session is not listed")
    with expect_error(NotFoundError, "a deleted session does not open"):
        _all_of(repository.open(store.ref))
    with expect_error(ReplacedError, "an open store of a deleted session refuses writes"):
        store.append(b"late\n", expected_size=size)
    with expect_error(NotFoundError, "a session is deleted once"):
        repository.delete(store.ref)


def _a_session_that_does_not_exist_is_not_found(repository: SessionRepository) -> None:
    ref = repository.new(new_session_id(), timestamp=_TIME, cwd="/").ref
    with expect_error(NotFoundError, "a session that does not exist does not open"):
        _all_of(repository.open(ref))
    for id in ("", "..", "a/b", "-x", "x" * 10 + "\n"):
        with expect_error(UsageError, f"{id!r} is refused as a session id"):
            repository.new(id, timestamp=_TIME, cwd="/")


def _a_forks_store_is_in_the_same_repository(repository: SessionRepository) -> None:
    origin = _new(repository)
    fork = repository.new(new_session_id(), timestamp=_TIME, cwd="/", near=origin.ref)
    fork.create([b"fork\n"])
    expect(fork.ref.home == origin.ref.home, "a fork's reference names the same repository", fork.ref.home)
    expect(fork.ref in [stat.ref for stat in repository.iter_stats()], "and the fork is listed in it")


def _a_watched_session_reports_its_sizes(repository: SessionRepository) -> None:
    if not isinstance(repository, WatchableRepository):
        return
    store = _new(repository)
    sizes = repository.watch(store.ref, timeout=10)
    expect(next(sizes) == 6, "watching starts with the size")
    thread = threading.Thread(target=_append, args=(repository.open(store.ref), b"second\n"))
    thread.start()
    expect(next(sizes) == 13, "and continues with the size after an append")
    thread.join()
    repository.delete(store.ref)
    expect(list(sizes) == [], "and ends when the session is deleted")


def check_documents(make_documents: Callable[[], DocumentStore]) -> None:
    """Check the contract of a document store."""
    documents = make_documents()
    expect(documents.read("tags") is None, "a missing document is None")
    documents.update("tags", lambda _: b"0")
    expect(make_documents().read("tags") == b"0", "a document comes back exactly")

    def count(_: int) -> None:
        for _ in range(25):
            make_documents().update("tags", lambda old: b"%d" % (int(old or b"0") + 1))

    _run_writers(count)
    found = documents.read("tags")
    expect(found == b"100", "no update of several writers is lost", found)
    expect(documents.read("other") is None, "documents have names of their own")

    def fail(_: bytes | None) -> bytes | None:
        raise ValueError

    with expect_error(ValueError, "an update whose function fails is not carried out"):
        documents.update("tags", fail)
    expect(documents.read("tags") == found, "and the document is unchanged")
    documents.update("tags", lambda _: None)
    expect(documents.read("tags") is None, "an update that returns None removes the document")
    for bad in ("", "..", "../tags", "/tags", ".hidden", "a/b", "a\n"):
        with expect_error(UsageError, f"{bad!r} is refused as a document's name"):
            documents.read(bad)
