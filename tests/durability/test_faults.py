"""Full disks, broken disks, short writes and power cuts: nothing written is lost, and no partial line stays."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

import sessiontree
from sessiontree.errors import WriteError
from sessiontree.session.entry_input import Durability
from sessiontree.session.open import open_store
from sessiontree.session.session import Session
from sessiontree.stores.blobs import FileBlobs
from sessiontree.stores.file import FileStore
from sessiontree.testing.faults import FailingOsCalls, LosingOsCalls


def open_with(path: Path, os_calls: FailingOsCalls | LosingOsCalls, durability: Durability = "system") -> Session:
    return open_store(FileStore(path, os_calls=os_calls), root=str(path.parent), durability=durability)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    session = sessiontree.create(cwd="/", path=tmp_path / "s.jsonl", home=tmp_path)
    session.append("user", "first")
    session.close()
    return tmp_path / "s.jsonl"


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
def test_a_failed_write_changes_no_byte_and_is_raised_until_resolved(path: Path, error: int) -> None:
    os_calls = FailingOsCalls()
    session = open_with(path, os_calls)
    before = path.read_bytes()
    os_calls.fail("write", error)
    with pytest.raises(WriteError, match="the file is unchanged"):
        session.append("user", "lost to a full disk")
    assert path.read_bytes() == before
    with pytest.raises(WriteError, match="earlier write failed"):
        session.append("user", "still refused")
    session.resolve()
    entry = session.append("user", "works again")
    assert sessiontree.open(path).path_ids()[-1] == entry.id
    assert sessiontree.open(path).problems == []


@pytest.mark.parametrize("size", [0, 1, 17, 100])
def test_a_short_write_is_cut_back(path: Path, size: int) -> None:
    os_calls = FailingOsCalls()
    session = open_with(path, os_calls)
    before = path.read_bytes()
    os_calls.shorten_write(size)
    with pytest.raises(WriteError):
        session.append("user", "x" * 500)
    assert path.read_bytes() == before
    assert len(session) == 1


def test_a_short_write_that_cannot_be_cut_back_is_closed_before_the_next_line(path: Path) -> None:
    os_calls = FailingOsCalls()
    session = open_with(path, os_calls)
    os_calls.shorten_write(30)
    os_calls.fail("truncate", errno.EIO)
    with pytest.raises(WriteError, match="incomplete line is left"):
        session.append("user", "torn")
    session.resolve()
    entry = session.append("user", "after")
    again = sessiontree.open(path)
    assert again.ids[-1] == entry.id
    assert len(again) == 2
    assert [problem.kind for problem in again.problems] == ["undecodable"]


def test_a_line_that_another_program_wrote_after_a_short_write_is_not_truncated(path: Path) -> None:
    class Racing(FailingOsCalls):
        def write(self, fd: int, data: bytes) -> int:
            written = super().write(fd, data[:10])
            with open(path, "ab") as other:  # a program that does not take the lock
                other.write(b'\n{"type":"message","id":"other000","parentId":null,"timestamp":"t","message":{}}\n')
            return written

    session = open_with(path, Racing())
    with pytest.raises(WriteError, match="another program has appended since"):
        session.append("user", "torn")
    assert "other000" in sessiontree.open(path)


def test_a_failed_fsync_is_reported_and_kept(path: Path) -> None:
    os_calls = FailingOsCalls()
    session = open_with(path, os_calls, durability="append")
    os_calls.fail("fsync", errno.EIO)
    with pytest.raises(WriteError, match="fsync failed"):
        session.append("user", "unsure")
    with pytest.raises(WriteError):
        session.append("user", "refused")


@pytest.mark.parametrize("call", ["open", "write", "fsync", "link"])
@pytest.mark.parametrize("nth", [1, 2])
def test_a_session_whose_creation_fails_leaves_nothing_and_can_be_tried_again(
    tmp_path: Path, call: str, nth: int
) -> None:
    os_calls = FailingOsCalls()
    store = FileStore(tmp_path / "s.jsonl", os_calls=os_calls)
    os_calls.fail(call, errno.ENOSPC, nth=nth)  # type: ignore[arg-type]
    failed = False
    try:
        store.create([b'{"type":"session"}\n', b"more\n"])
    except WriteError:
        failed = True
    names = os.listdir(tmp_path)
    if failed and call != "fsync" and names:
        # the sync of the folder may fail after the complete file has appeared
        assert (tmp_path / "s.jsonl").read_bytes() == b'{"type":"session"}\nmore\n'
    for name in names:
        assert name == "s.jsonl"
        assert (tmp_path / name).read_bytes() == b'{"type":"session"}\nmore\n'


def test_a_pending_session_survives_a_full_disk_in_memory_and_appears_later(tmp_path: Path) -> None:
    blocker = tmp_path / "sessions"
    blocker.write_text("a file where a folder should be")
    session = sessiontree.create(cwd="/", home=tmp_path)
    session.append({"type": "model_change", "provider": "p", "modelId": "m"})
    with pytest.raises(WriteError):
        session.append("user", "hello")
    assert session.is_pending
    blocker.unlink()
    entry = session.append("user", "hello")
    assert sessiontree.open(session.location).path_ids()[-1] == entry.id


def test_a_failed_blob_write_fails_the_append_and_leaves_the_session_as_it_was(path: Path) -> None:
    session = sessiontree.open(path, home=path.parent)
    before = path.read_bytes()
    (path.parent / "blobs").write_text("in the way")
    with pytest.raises(sessiontree.StoreError):
        session.append("user", "x" * 600_000)
    assert path.read_bytes() == before


def test_with_fsync_per_append_a_power_cut_loses_no_append_that_returned(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    sessiontree.create(cwd="/", path=path, appear="now").close()
    os_calls = LosingOsCalls()
    session = open_with(path, os_calls, durability="append")
    returned = [session.append("user", f"message {number}").id for number in range(20)]
    os_calls.cut_power(str(tmp_path))
    assert sessiontree.open(path).ids == returned


def test_with_system_durability_a_power_cut_may_lose_the_tail_but_flush_keeps_it(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    sessiontree.create(cwd="/", path=path, appear="now").close()
    os_calls = LosingOsCalls()
    session = open_with(path, os_calls, durability="system")
    kept = [session.append("user", f"kept {number}").id for number in range(5)]
    session.flush()
    session.append("user", "not synced")
    os_calls.cut_power(str(tmp_path))
    assert sessiontree.open(path).ids == kept


def test_by_default_a_finished_turn_survives_a_power_cut(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    sessiontree.create(cwd="/", path=path, appear="now").close()
    os_calls = LosingOsCalls()
    session = open_with(path, os_calls, durability="turn")
    turn = [
        session.append("user", "question").id,
        session.append(role="assistant", content=[], stopReason="toolUse").id,
        session.append(role="toolResult", toolCallId="c", toolName="t", content=[]).id,
        session.append(role="assistant", content=[{"type": "text", "text": "done"}], stopReason="stop").id,
    ]
    session.append({"type": "custom", "customType": "note"})
    os_calls.cut_power(str(tmp_path))
    assert sessiontree.open(path).ids == turn


def test_a_new_session_survives_a_power_cut_from_its_first_message_on(tmp_path: Path) -> None:
    os_calls = LosingOsCalls()
    store = FileStore(tmp_path / "folder" / "s.jsonl", os_calls=os_calls)
    store.create([b"all of it\n"])
    os_calls.cut_power(str(tmp_path))
    assert (tmp_path / "folder" / "s.jsonl").read_bytes() == b"all of it\n"


def test_a_blob_survives_a_power_cut_from_the_moment_put_returns(tmp_path: Path) -> None:
    os_calls = LosingOsCalls()
    blobs = FileBlobs(tmp_path, os_calls=os_calls)
    name = blobs.put(b"content" * 1000)
    os_calls.cut_power(str(tmp_path))
    assert blobs.get(name) == b"content" * 1000


def test_a_replaced_file_survives_a_power_cut_as_new_with_the_old_as_backup(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(b"old\n")
    os_calls = LosingOsCalls()
    backup = FileStore(path, os_calls=os_calls).replace([b"new\n"], expected_size=4)
    os_calls.cut_power(str(tmp_path))
    assert path.read_bytes() == b"new\n"
    assert Path(backup).read_bytes() == b"old\n"


def put_over(store: FileStore, data: bytes, expected: bytes) -> None:
    with store.exclusive():
        store.overwrite(0, data, expected)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_an_overwrite_that_fails_changes_no_byte_and_is_raised_until_resolved(path: Path, error: int) -> None:
    os_calls = FailingOsCalls()
    store = FileStore(path, os_calls=os_calls)
    before = path.read_bytes()
    os_calls.fail("pwrite", error)
    with pytest.raises(WriteError, match="the file is unchanged"):
        put_over(store, b"XXXX", before[:4])
    assert path.read_bytes() == before
    with pytest.raises(WriteError, match="earlier write failed"):
        put_over(store, b"XXXX", before[:4])
    store.resolve()
    put_over(store, b"XXXX", before[:4])
    assert path.read_bytes() == b"XXXX" + before[4:]


@pytest.mark.parametrize("size", [0, 1, 3])
def test_an_overwrite_that_falls_short_is_undone(path: Path, size: int) -> None:
    os_calls = FailingOsCalls()
    store = FileStore(path, os_calls=os_calls)
    before = path.read_bytes()
    os_calls.shorten_write(size, call="pwrite")
    with pytest.raises(WriteError, match="the file is unchanged"):
        put_over(store, b"XXXX", before[:4])
    assert path.read_bytes() == before


def test_an_overwrite_that_cannot_be_undone_reports_which_bytes_are_new(path: Path) -> None:
    os_calls = FailingOsCalls()
    store = FileStore(path, os_calls=os_calls)
    before = path.read_bytes()
    os_calls.shorten_write(2, call="pwrite")
    os_calls.fail("pwrite", errno.EIO, nth=2)
    with pytest.raises(WriteError, match="bytes 0 to 2 are new"):
        put_over(store, b"XXXX", before[:4])
    assert path.read_bytes() == b"XX" + before[2:]


def test_an_overwrite_of_a_file_that_was_replaced_meanwhile_is_refused(path: Path) -> None:
    store = FileStore(path)
    before = path.read_bytes()
    store.size()
    os.replace(path, path.with_suffix(".old"))
    path.write_bytes(before)
    with pytest.raises(sessiontree.StoreError, match="replaced"):
        put_over(store, b"XXXX", before[:4])
    assert path.read_bytes() == before


def test_an_overwrite_survives_a_power_cut_once_it_is_synced(path: Path) -> None:
    os_calls = LosingOsCalls()
    store = FileStore(path, os_calls=os_calls)
    before = path.read_bytes()
    put_over(store, b"XXXX", before[:4])
    store.sync()
    put_over(store, b"YYYY", b"XXXX")
    put_over(store, b"ZZZZ", b"YYYY")
    os_calls.cut_power(str(path.parent))
    assert path.read_bytes() == b"XXXX" + before[4:]
