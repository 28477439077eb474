"""The SDK's own tests, from its source distribution, with our store in the place of its store in memory."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

FILES = [
    "test_session_store_conformance.py",
    "test_session_helpers_store.py",
    "test_session_resume.py",
    "test_transcript_mirror.py",
    "test_session_import.py",
    "test_session_summary.py",
    "test_session_store_anyio.py",
]
COUNTING_PASSES = {
    "test_load_concurrency_is_bounded[asyncio]",
    "test_load_concurrency_is_bounded[trio]",
    "test_gap_fill_bounded_concurrency[asyncio]",
    "test_gap_fill_bounded_concurrency[trio]",
    "test_cancelled_after_mkdtemp_cleans_temp_dir[asyncio]",
    "test_cancelled_after_mkdtemp_cleans_temp_dir[trio]",
    "test_eager_flush_mode_appends_per_frame_before_result",
}
"""Tests that give the store 5, 50 and 10 passes of the event loop to answer: a thread usually takes longer.

A pass takes 10 microseconds, and the syncs of a first append alone take more than a hundred passes.
"""


@pytest.fixture(scope="module")
def sdk_tests() -> Path:
    release = version("claude-agent-sdk")
    folder = Path(__file__).parents[2] / "scratch" / "sdists"
    tests = folder / f"claude_agent_sdk-{release}" / "tests"
    if not tests.is_dir():
        arguments = ["download", "--quiet", "--no-deps", "--no-binary", "claude-agent-sdk", "--dest", str(folder)]
        subprocess.run([sys.executable, "-m", "pip", *arguments, f"claude-agent-sdk=={release}"], check=True)
        with tarfile.open(folder / f"claude_agent_sdk-{release}.tar.gz") as archive:
            archive.extractall(folder, filter="data")
    return tests


def run_suite(tests: Path, *, threads: bool) -> tuple[int, set[str], int]:
    """The number of passed tests, the names of failed ones, and how many tests used the store."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parent),
        "SWAP_THREADS": "1" if threads else "0",
    }
    files = [str(tests / name) for name in FILES]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "swap_store", "-p", "no:cacheprovider", "--tb=no", *files],
        cwd=tests.parent,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    failed = {name.rpartition("::")[2] for name in re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)}
    passed = re.search(r"(\d+) passed", done.stdout)
    touched = re.search(r"touched the swapped store: (\d+)", done.stdout)
    assert passed is not None, done.stdout[-2000:] + done.stderr[-2000:]
    assert touched is not None, done.stdout[-2000:]
    return int(passed[1]), failed, int(touched[1])


def test_all_of_its_tests_pass_with_the_work_in_the_coroutine(sdk_tests: Path) -> None:
    passed, failed, touched = run_suite(sdk_tests, threads=False)
    assert failed == set()
    assert passed >= 369
    assert touched >= 228


def test_through_threads_only_tests_fail_that_count_passes_of_the_event_loop(sdk_tests: Path) -> None:
    passed, failed, _ = run_suite(sdk_tests, threads=True)
    assert failed <= COUNTING_PASSES
    assert passed >= 369 - len(COUNTING_PASSES)
