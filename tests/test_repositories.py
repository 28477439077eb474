"""Sessions in repositories other than a folder of files: nothing of them appears on the file system."""

from __future__ import annotations

import os
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

import sessiontree
from sessiontree.archive.tags import TagFile, tagged_path
from sessiontree.branches.merge import merge
from sessiontree.branches.subagent_branches import SubagentRecord, subagent_entry
from sessiontree.branches.subagent_sessions import find_subagent_session
from sessiontree.compaction import EXTRACTIVE, compact
from sessiontree.conversion.fork import fork
from sessiontree.conversion.verify import first_difference
from sessiontree.errors import AmbiguousError, ExistsError, NotFoundError, UsageError
from sessiontree.explore.new_subagent_session import create_subagent_session
from sessiontree.export import FORMATS, export
from sessiontree.session.session import Session
from sessiontree.stores.contract import SessionRef
from sessiontree.stores.memory import MemoryRepository, MemoryStore
from sessiontree.stores.repositories import FileRepository, open_repository


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that is every home, cache and temporary folder at once. Nothing may appear in it."""
    for name in ("HOME", "SESSIONTREE_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "TMPDIR"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    yield tmp_path
    assert sorted(tmp_path.rglob("*")) == before


def conversation(session: Session, turns: int) -> None:
    for number in range(turns):
        session.append("user", f"question {number} " + "word " * 200)
        text = [{"type": "text", "text": f"answer {number} " + "word " * 200}]
        session.append(role="assistant", content=text, provider="p", model="m", stopReason="stop")


def test_a_session_in_memory_passes_through_everything_without_a_file(watched: Path) -> None:
    home = f"memory:{watched.name}"
    created = sessiontree.create(cwd="/", home=home)
    conversation(created, 3)
    session = sessiontree.open(str(created.ref))
    assert session.location == f"{home}/{created.id}"

    # Eight threads, each on its own branch.
    def write(number: int) -> None:
        branch = session.branch()
        for step in range(50):
            branch.append("user", f"thread {number} step {step}")

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(session) == 6 + 8 * 50
    assert created.refresh() == session.ids[6:]

    # Branch, merge, compact.
    main = session.leaf
    other = session.branch(session.path_ids()[1])
    other.append("user", "another way")
    side = other.append(role="assistant", content=[{"type": "text", "text": "it works"}], provider="p", model="m")
    merge(session, side.id, how="append")
    assert main in session.path_ids()
    assert "it works" in str(session.context().messages)
    conversation(session, 10)
    compact(session, keep=500, summarizer=EXTRACTIVE)
    assert session.count("compaction") == 1

    # Large content.
    text = "x" * 600_000
    session.append("user", text)
    assert sessiontree.open(session.ref).context().messages[-1].content == text
    assert len(session.raw(str(session.leaf))) < 1000

    # Forks, in the same format and in another one.
    forked = session.fork()
    assert forked.ref.home == home
    assert first_difference(session, session.leaf, forked, all_branches=False) is None
    for dialect in ("pi", "claude"):
        converted = fork(session, to=dialect).session
        assert (converted.ref.home, converted.dialect.name) == (home, dialect)
        assert first_difference(session, session.leaf, sessiontree.open(str(converted.ref)), all_branches=False) is None
        again = converted.fork()
        assert (again.ref.home, again.dialect.name) == (home, dialect)
    assert len(list(session.repository.iter_stats())) == 6

    # Export.
    for format in FORMATS:
        assert b"it works" in b"".join(export(session, format))

    # Tags are in the repository, too.
    tags = TagFile(session.repository.documents)
    tags.change(session.id, tagged_path(session), lambda found: type(found)(found.session, found.path, ("work",)))
    assert TagFile(open_repository(home).documents).find(session.id, str(session.ref)).tags == ("work",)
    assert session.problems == []


def test_sub_agents_are_in_the_repository_of_their_caller(watched: Path) -> None:
    for dialect in (None, "claude"):
        caller = sessiontree.create(cwd="/", home=f"memory:{watched.name}")
        conversation(caller, 1)
        if dialect is not None:
            caller = fork(caller, to=dialect).session
        answer = str(caller.leaf)
        created = create_subagent_session(caller, "look around")
        created.append(subagent_entry(SubagentRecord("call_1", "look around", "m", answer, caller.id)))
        created.append("user", "look around")
        assert created.ref.home == f"memory:{watched.name}"
        found = find_subagent_session(caller, answer, "call_1")
        assert found is not None
        assert found[0].ref == created.ref
        assert find_subagent_session(caller, answer, "call_2") is None


def test_a_session_in_memory_alone_has_forks_in_memory(watched: Path) -> None:
    session = sessiontree.create(cwd="/", in_memory=True)
    session.append("user", "x" * 600_000)
    forked = session.fork()
    assert forked.repository is session.repository
    assert forked.context().messages[-1].content == "x" * 600_000
    assert not os.path.isabs(forked.location)


def test_a_repository_in_memory_is_the_same_for_all_of_the_process() -> None:
    one = sessiontree.create(cwd="/", home="memory:shared", appear="now")
    assert open_repository("memory:shared") is one.repository
    assert open_repository("memory:other") is not one.repository
    with pytest.raises(NotFoundError, match="no such session"):
        sessiontree.open(f"memory:other/{one.id}")


def test_a_session_opens_by_reference_id_and_prefix() -> None:
    one = sessiontree.create(cwd="/", home="memory:ids", id="abcdefgh-1", appear="now")
    sessiontree.create(cwd="/", home="memory:ids", id="abcdefgh-2", appear="now")
    for text in ("memory:ids/abcdefgh-1", SessionRef("abcdefgh-1", "memory:ids"), one.ref):
        assert sessiontree.open(text).id == "abcdefgh-1"
    assert sessiontree.open("abcdefgh-1", home="memory:ids").id == "abcdefgh-1"
    with pytest.raises(AmbiguousError):
        sessiontree.open("abcdefgh", home="memory:ids")
    with pytest.raises(NotFoundError):
        sessiontree.open("abcdefgh-3", home="memory:ids")
    with pytest.raises(ExistsError):
        sessiontree.create(cwd="/", home="memory:ids", id="abcdefgh-1", appear="now")
    with pytest.raises(UsageError, match="not a session reference"):
        sessiontree.open("memory:ids/")


def test_a_deleted_session_cannot_be_written() -> None:
    session = sessiontree.create(cwd="/", home="memory:deleted", appear="now")
    session.append("user", "hello")
    session.repository.delete(session.ref)
    with pytest.raises(sessiontree.StoreError, match="does not exist"):
        session.append("user", "late")
    assert list(session.repository.iter_stats()) == []


def test_a_session_is_created_in_a_store_of_the_caller() -> None:
    store = MemoryStore()
    session = sessiontree.create(cwd="/", store=store)
    assert not store.exists()
    session.append("user", "hello")
    assert sessiontree.open_store(store).ids == session.ids
    repository = MemoryRepository("memory:mine")
    placed = repository.new("mine", timestamp="2026-01-01T00:00:00.000Z", cwd="/")
    sessiontree.create(cwd="/", store=placed, id="mine", appear="now")
    assert repository.find("mine") == SessionRef("mine", "memory:mine")


def test_sessions_of_other_clients_open_by_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SESSIONTREE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("PI_CODING_AGENT_DIR", "PI_CODING_AGENT_SESSION_DIR", "CLAUDE_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    session = sessiontree.create(cwd=tmp_path)
    conversation(session, 1)
    for dialect in ("pi", "claude"):
        made = fork(session, to=dialect).session
        assert made.ref.is_file
        for wanted in (made.id, made.id[:-1]):
            found = sessiontree.open(wanted)
            assert (found.dialect.name, found.id) == (dialect, made.id)
            assert os.path.realpath(found.location) == os.path.realpath(made.location)
    assert sessiontree.open(session.id).location == session.location
    with pytest.raises(NotFoundError, match="no session id in"):
        sessiontree.open("ffffffff")


def test_a_file_is_read_and_appended_to_without_opening_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.jsonl"
    sessiontree.create(path=path, appear="now").close()
    monkeypatch.setenv("SESSIONTREE_HOME", "nosuchscheme://host/db")
    session = sessiontree.open(path)
    session.append("user", "hello")
    assert [message.role for message in session.context().messages] == ["user"]
    with pytest.raises(NotFoundError, match="nosuchscheme"):
        session.fork()


def test_a_home_folder_lists_its_sessions(tmp_path: Path) -> None:
    session = sessiontree.create(cwd="/", home=tmp_path, appear="now")
    session.append("user", "hello")
    for address in (str(tmp_path), f"file:{tmp_path}"):
        repository = open_repository(address)
        assert isinstance(repository, FileRepository)
        (stat,) = repository.iter_stats()
        assert (stat.ref, stat.id, stat.size) == (session.ref, session.id, os.path.getsize(session.location))
    repository.delete(session.ref)
    assert list(repository.iter_stats()) == []


def test_creating_a_session_in_memory_takes_little_more_than_its_bytes() -> None:
    store = MemoryRepository("memory:large").new("large", timestamp="", cwd="/")
    count = 8_000
    tracemalloc.start()
    try:
        store.create(b"%999d\n" % number for number in range(count))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert store.size() == count * 1_000
    assert peak < 1.5 * store.size()
