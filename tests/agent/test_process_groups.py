"""Commands do not outlive a program that is killed; processes that left their group do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sessiontree.agent.process_groups import ProcessGroups
from tests.agent.builders import is_alive, pid_in, wait_for

PROGRAM = """
import asyncio, os, sys
from sessiontree.agent.process import run_command
from sessiontree.secrets.environment import Mask

async def run(command):
    await run_command(command, cwd=sys.argv[1], environment={"PATH": os.defpath}, mask=Mask({}))

async def main():
    await run("true")
    await asyncio.gather(*map(run, sys.argv[2:]))

asyncio.run(main())
"""


@pytest.fixture
def groups() -> Iterator[ProcessGroups]:
    groups = ProcessGroups()
    yield groups
    groups.close()


def sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sleep", "1000"], start_new_session=True)


def watcher_of(groups: ProcessGroups) -> subprocess.Popen[bytes]:
    watcher = groups._watcher
    assert watcher is not None
    return watcher


def test_commands_of_a_killed_program_end_with_it_unless_they_left_their_group(tmp_path: Path) -> None:
    children = "sleep 1000 & echo $! > child; echo $$ > shell; wait"
    stubborn = "trap '' TERM; echo $$ > stubborn; while :; do sleep 0.1; done"
    leaving = "setsid sh -c 'echo $$ > away; exec sleep 1000' & sleep 1000"
    program = subprocess.Popen([sys.executable, "-c", PROGRAM, tmp_path, children, stubborn, leaving])
    pids = {name: pid_in(tmp_path / name) for name in ("child", "shell", "stubborn", "away")}
    try:
        program.kill()
        program.wait()
        for name in ("child", "shell", "stubborn"):
            wait_for(lambda name=name: not is_alive(pids[name]))
        assert is_alive(pids["away"])
    finally:
        os.kill(pids["away"], signal.SIGKILL)


def test_a_group_that_has_ended_is_left_alone(groups: ProcessGroups) -> None:
    with sleeper() as ended, sleeper() as running, sleeper() as last:
        for one in (ended, running, last):
            groups.begin(one.pid)
        groups.end(ended.pid)
        groups.end(last.pid)
        groups.end(last.pid)
        groups.close()
        assert running.wait(5) == -signal.SIGTERM
        assert [ended.poll(), last.poll()] == [None, None]
        ended.kill()
        last.kill()


def test_a_killed_watcher_is_replaced_by_one_that_has_all_groups(groups: ProcessGroups) -> None:
    with sleeper() as first, sleeper() as second:
        groups.begin(first.pid)
        lost = watcher_of(groups)
        lost.kill()
        lost.wait()
        groups.begin(second.pid)
        assert watcher_of(groups).pid != lost.pid
        groups.close()
        assert [first.wait(5), second.wait(5)] == [-signal.SIGTERM] * 2


def test_a_watcher_without_groups_ends_at_once(groups: ProcessGroups) -> None:
    with sleeper() as only:
        groups.begin(only.pid)
        groups.end(only.pid)
        watcher = watcher_of(groups)
        groups.close()
        assert (watcher.returncode, only.poll()) == (0, None)
        only.kill()
