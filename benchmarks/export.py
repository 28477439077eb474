"""Benchmarks of HTML export."""

from __future__ import annotations

import os
import time
from pathlib import Path

from acceptance.browser.chromium import Browser, Page, find_browser

import sessiontree
from benchmarks.corpus import Corpus, generated
from benchmarks.generate import scratch_folder
from benchmarks.results import Outcome, Result, Skipped, megabytes, milliseconds
from benchmarks.timing import run_python
from benchmarks.transcripts import TranscriptShape, transcript
from sessiontree.export import export

_EXPORT = """
import gc, sys, time
import sessiontree
from sessiontree.export import export
gc.disable()
for path in sys.argv[1:]:
    session = sessiontree.open(path)
    for piece in export(session, "html", branch="all"):
        pass
    session.close()
with open("/proc/self/status") as status:
    peak = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
print(time.process_time(), peak)
"""


def _best(rounds: int, *paths: Path) -> tuple[float, float]:
    """CPU seconds and peak bytes of a new process that exports all branches of some sessions."""
    runs = [tuple(map(float, run_python(_EXPORT, *paths)[0].split())) for _ in range(rounds)]
    return min(seconds for seconds, _ in runs), min(peak for _, peak in runs)


def export_one(rounds: int) -> list[Result]:
    """A page of a Claude Code session of 6 MB takes at most 0.45 s, including the start of Python."""
    path = transcript(TranscriptShape(size=6_000_000))
    seconds, _ = _best(2 * rounds, path)
    with sessiontree.open(path) as session:
        size = sum(map(len, export(session, "html", branch="all")))
        text = sum(map(len, export(session, "text", branch="all")))
    name = "a Claude Code session of 6 MB as a page"
    return [
        Result(name, milliseconds(seconds), "", seconds * 1000, bound=450, unit="ms"),
        Result(f"{name}, size", megabytes(size), f"its text: {megabytes(text)}", size / text, bound=3, unit="x"),
    ]


def export_in_browser(rounds: int) -> Outcome | list[Result]:
    """The page of a session of 20 MB can be used within 3 s: it is loaded, and its picture of branches is drawn."""
    name = "a Claude Code session of 20 MB, its page in a browser"
    binary = find_browser()
    if binary is None:
        return Skipped(name, "no browser is installed")
    file = scratch_folder() / "page-20mb.html"
    with sessiontree.open(transcript(TranscriptShape(size=20_000_000))) as session, file.open("wb") as out:
        out.writelines(export(session, "html", branch="all"))
    with Browser(binary) as browser:
        best = min(_seconds_until_usable(browser, file.as_uri()) for _ in range(max(2, rounds // 2)))
    return [Result(name, milliseconds(best), "", best * 1000, bound=3_000, unit="ms")]


def _seconds_until_usable(browser: Browser, address: str) -> float:
    page = Page(browser)
    started = time.perf_counter()
    page.call("Page.navigate", url=address)
    drawn = "document.readyState === 'complete' && document.getElementById('graph-canvas').width > 0 && innerHeight > 0"
    while not page.ask(f"Boolean({drawn})"):
        browser.settle(0.01)
    return time.perf_counter() - started


def export_corpus(rounds: int) -> list[Result]:
    """Pages of 200 sessions (155 MB) take at most 12 s and 90 MB."""
    folder = generated(Corpus())
    found = (Path(at, name) for at, _, names in os.walk(folder) for name in names if name.endswith(".jsonl"))
    seconds, peak = _best(max(1, rounds // 2), *sorted(found))
    name = "200 sessions, 155 MB, as pages"
    return [
        Result(name, milliseconds(seconds), "", seconds * 1000, bound=12_000, unit="ms"),
        Result(f"{name}, memory", megabytes(int(peak)), "", peak / 1e6, bound=90, unit="MB"),
    ]
