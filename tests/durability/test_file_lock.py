"""File locks exclude other holders, time out, and are released whatever happens."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from sessiontree.errors import StoreError
from sessiontree.stores.file_lock import file_lock, lock_descriptor


def test_a_missing_lock_file_is_created_for_its_user_only(tmp_path: Path) -> None:
    with file_lock(str(tmp_path / "lock")) as held:
        assert held
    assert stat.S_IMODE((tmp_path / "lock").stat().st_mode) == 0o600


def test_a_second_holder_in_the_same_process_is_excluded(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    with file_lock(path), file_lock(path, blocking=False) as held:
        assert not held
    with file_lock(path, blocking=False) as held:
        assert held


def test_waiting_ends_with_an_error_after_the_timeout(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    with file_lock(path), pytest.raises(StoreError, match="locked by another process"), file_lock(path, timeout=0.01):
        raise AssertionError("two holders")


@pytest.mark.parametrize("timeout", [None, 30.0])
def test_a_waiter_gets_the_lock_when_it_is_released(tmp_path: Path, timeout: float | None) -> None:
    path = str(tmp_path / "lock")
    order: list[str] = []

    def wait() -> None:
        with file_lock(path, timeout=timeout):
            order.append("waiter")

    thread = threading.Thread(target=wait)
    with file_lock(path):
        thread.start()
        order.append("holder")
    thread.join()
    assert order == ["holder", "waiter"]


def test_an_exception_inside_releases_the_lock(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    with pytest.raises(KeyError), file_lock(path):
        raise KeyError("inside")
    with file_lock(path, blocking=False) as held:
        assert held


def test_a_release_never_fails_even_when_the_descriptor_is_closed_already(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[int] = []
    monkeypatch.setattr(
        "sessiontree.stores.file_lock.lock_descriptor",
        lambda fd, location, **options: opened.append(fd) or lock_descriptor(fd, location, **options),
    )
    with file_lock(str(tmp_path / "lock")):
        os.close(opened[0])


def test_a_copy_of_the_descriptor_does_not_keep_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A forked child has such a copy until it ends."""
    copies: list[int] = []
    path = str(tmp_path / "lock")

    def lock_and_copy(fd: int, location: str, **options: object) -> bool:
        copies.append(os.dup(fd))
        return lock_descriptor(fd, location)

    with monkeypatch.context() as patch:
        patch.setattr("sessiontree.stores.file_lock.lock_descriptor", lock_and_copy)
        with file_lock(path):
            pass
    with file_lock(path, blocking=False) as held:
        assert held
    os.close(copies[0])


def test_a_link_in_place_of_the_lock_file_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"), file_lock(str(tmp_path / "lock")):
        pass
    assert not (tmp_path / "elsewhere").exists()
