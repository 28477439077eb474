"""Power cuts and failing disks lose no line, even if all unsynced data is lost."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

import sessiontree
from sessiontree.archive.archive_home import Home, session_info
from sessiontree.archive.move import move, plan_move
from sessiontree.archive.prune_branch import plan_prune, prune
from sessiontree.archive.restore import restore
from sessiontree.errors import StoreError
from sessiontree.testing.faults import Call, FailingOsCalls, LosingOsCalls
from tests.archive.machine import archived_lines, current_lines, home_of, native_lines, write_native


class PowerCut(BaseException):
    """Not caught by any handler."""


class PowerCutOsCalls(LosingOsCalls):
    """Stops at the n-th call; `cut_power` then brings the files to the worst state that the disk may have."""

    def __init__(self, nth: int) -> None:
        super().__init__()
        self._left = nth

    def _step(self) -> None:
        self._left -= 1
        if self._left == 0:
            raise PowerCut

    def fsync(self, fd: int, *, data_only: bool = False) -> None:
        self._step()
        super().fsync(fd, data_only=data_only)

    def link(self, source: str, target: str) -> None:
        self._step()
        super().link(source, target)

    def rename(self, source: str, target: str) -> None:
        self._step()
        super().rename(source, target)

    def unlink(self, path: str) -> None:
        self._step()
        super().unlink(path)


def session_of(home: Home) -> Path:
    return next(Path(home.folder).glob("sessions/*/*.jsonl"))


def archive_it(home: Home) -> None:
    home.archive.archive(session_info(sessiontree.open(session_of(home))))


def restore_it(home: Home) -> None:
    restore(home.archive, home.archive.items()[-1])


def prune_it(home: Home) -> None:
    session = sessiontree.open(session_of(home))
    prune(home.archive, session, plan_prune(session, "m2"))


def move_it(home: Home) -> None:
    session = sessiontree.open(session_of(home))
    move(home.archive, session, plan_move(session, "/work/b", home.allowed_paths, home.environment))


def nothing(home: Home) -> None:
    pass


WAYS = [
    pytest.param(nothing, archive_it, id="archive"),
    pytest.param(archive_it, restore_it, id="restore"),
    pytest.param(nothing, prune_it, id="prune"),
    pytest.param(prune_it, restore_it, id="undo a pruning"),
    pytest.param(nothing, move_it, id="mv"),
    pytest.param(move_it, restore_it, id="undo a move"),
]


@pytest.mark.parametrize(("before", "act"), WAYS)
def test_a_power_cut_at_any_call_loses_no_line(
    tmp_path: Path, before: Callable[[Home], None], act: Callable[[Home], None]
) -> None:
    for nth in range(1, 100):
        here = tmp_path / str(nth)
        write_native(here)
        before(home_of(here))
        os_calls = PowerCutOsCalls(nth)
        try:
            act(home_of(here, os_calls))
            is_done = True
        except PowerCut:
            is_done = False
        os_calls.cut_power(str(here))
        home = home_of(here)
        assert {line.rstrip(b"\n") for line in native_lines()} <= current_lines(home) | archived_lines(home)
        if is_done:
            return
    raise AssertionError("it never came to an end")


@pytest.mark.parametrize("call", ["open", "write", "fsync", "link", "rename"])
@pytest.mark.parametrize(("before", "act"), WAYS)
def test_a_disk_that_fails_at_any_call_loses_no_line_and_is_reported(
    tmp_path: Path, before: Callable[[Home], None], act: Callable[[Home], None], call: Call
) -> None:
    for nth in range(1, 40):
        here = tmp_path / str(nth)
        write_native(here)
        before(home_of(here))
        os_calls = FailingOsCalls()
        os_calls.fail(call, errno.ENOSPC, nth=nth)
        try:
            act(home_of(here, os_calls))
            failed = False
        except StoreError:
            failed = True
        home = home_of(here)
        assert {line.rstrip(b"\n") for line in native_lines()} <= current_lines(home) | archived_lines(home)
        if not failed:
            return
        for item in reversed(home.archive.items()):
            restore(home.archive, item)
        (path,) = Path(home.folder).glob("sessions/*/*.jsonl")
        assert path.read_bytes() == b"".join(native_lines())
    raise AssertionError("it never came to an end")
