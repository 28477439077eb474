"""Benchmarks of the terminal UI: first frames and keys, in CPU time of new processes, against an empty Textual app.

Keys are typed into a pseudo-terminal, so that reading them and writing the screen are included, and nothing else is.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from benchmarks.corpus import Corpus, environment
from benchmarks.corpus import generated as generated_corpus
from benchmarks.generate import Shape, generated, scratch_folder
from benchmarks.library import FILL
from benchmarks.results import Outcome, Result, Skipped, megabytes, milliseconds
from benchmarks.timing import peak_memory, run_python

_TREE = Shape(size=50_000_000, entries=50_000, branches=1_000, compactions=12)

_RUN = """
import asyncio, json, os, sys, time

def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))

def finish(**figures):
    print(json.dumps({"seconds": time.process_time(), "peak": peak(), **figures}), file=sys.__stdout__, flush=True)
    os._exit(0)

def run(app, when_ready):
    async def main():
        async with app.run_test(size=(120, 40)) as pilot:
            await when_ready(pilot)
    asyncio.run(main())
"""

_EMPTY = (
    _RUN
    + """
from textual.app import App
from textual.widgets import Footer, Input

class Empty(App):
    def compose(self):
        yield Input()
        yield Footer()

    def on_mount(self):
        self.call_after_refresh(finish)

async def wait(pilot):
    await pilot.pause(60)

run(Empty(), wait)
"""
)

_OPEN = (
    _RUN
    + """
from sessiontree.app.workbench import Workbench
from sessiontree.library.library import Library
from sessiontree.tui.app import SessionTreeApp
"""
)

_LIST = (
    _OPEN
    + """
from sessiontree.tui.sessions import SessionsScreen
# Called after the first frame: it would start the scan.
SessionsScreen.refresh_list = lambda screen: finish(rows=len(screen.query_one("#list").rows))

async def wait(pilot):
    await pilot.pause(60)

run(SessionTreeApp(Workbench(Library(), os.getcwd()), everywhere=True), wait)
"""
)

_TREE_SCREEN = (
    _OPEN
    + """
from sessiontree.session.open import open as open_session
from sessiontree.tui.sessions import SessionsScreen
from sessiontree.tui.tree import TreeScreen
SessionsScreen.refresh_list = lambda screen: None
show = TreeScreen._loaded

async def open_tree(pilot, then=lambda screen, rows: None):
    is_loaded = asyncio.Event()

    def loaded(screen, rows):
        show(screen, rows)
        then(screen, rows)
        is_loaded.set()

    TreeScreen._loaded = loaded
    pilot.app.push_screen(TreeScreen(lambda: open_session(sys.argv[1])))
    await is_loaded.wait()
"""
)

_TREE_CODE = (
    _TREE_SCREEN
    + """
async def wait(pilot):
    await open_tree(pilot, lambda screen, rows: screen.call_after_refresh(finish, rows=len(rows)))
    await pilot.pause(60)

run(SessionTreeApp(Workbench(Library(), os.getcwd()), everywhere=True), wait)
"""
)

_KEYS_CODE = (
    _TREE_SCREEN
    + """
import pty, threading
from sessiontree.views.tree_rows import FILTERS
keys = json.loads(sys.argv[2])
VIEWS = len(FILTERS)

def take_output(terminal):
    while os.read(terminal, 1 << 16):
        pass

async def settle(app):
    # The entry beside the tree is shown after a moment.
    await asyncio.sleep(0.15)
    await app.workers.wait_for_complete()
    await asyncio.sleep(0.05)

async def measure(pilot):
    app = pilot.app
    await open_tree(pilot)
    await asyncio.sleep(1)  # other views are arranged meanwhile
    await settle(app)

    async def press(key):
        start = time.process_time()
        os.write(terminal, keys[key].encode())
        await settle(app)
        return time.process_time() - start

    # Pressed before each round, unmeasured, so that the key has something to do.
    before = {"end": "home", "home": "end", "right": "left", "left": "right"}
    costs = {}
    for key in keys:
        if key == "right":
            rows = app.screen.source.rows
            app.screen.query_one("#tree").move_to(next(at for at, row in enumerate(rows) if row.fold == "folded"))
        took = []
        for _ in range(4 * VIEWS if key == "ctrl+o" else 10):
            if key in before:
                await press(before[key])
            took.append(await press(key))
        # Each press of Ctrl+O shows another view: the one that takes longest counts.
        costs[key] = max(min(took[view::VIEWS]) for view in range(VIEWS)) if key == "ctrl+o" else min(took)
    start = time.process_time()
    for _ in range(5):
        await settle(app)
    finish(keys=costs, idle=(time.process_time() - start) / 5)

terminal, inner = pty.openpty()
os.environ.update(COLUMNS="120", LINES="40", TERM="xterm-256color", COLORTERM="truecolor")
os.dup2(inner, sys.__stdin__.fileno())
os.dup2(inner, sys.__stderr__.fileno())  # where Textual writes
threading.Thread(target=take_output, args=(terminal,), daemon=True).start()
SessionTreeApp(Workbench(Library(), os.getcwd()), everywhere=True).run(auto_pilot=measure)
"""
)

KEYS = {
    "down": "\x1b[B",
    "up": "\x1b[A",
    "pagedown": "\x1b[6~",
    "pageup": "\x1b[5~",
    "end": "\x1b[F",
    "home": "\x1b[H",
    "T": "T",
    "space": " ",
    "right": "\x1b[C",
    "left": "\x1b[D",
    "ctrl+u": "\x15",
    "ctrl+o": "\x0f",
}
"""What terminals send for a key."""


def screens(rounds: int) -> list[Result] | Outcome:
    """First frames: 0.15 s above an empty app for 10,000 sessions, 0.6 s and 80 MB for 50,000 entries; keys: 10 ms."""
    if importlib.util.find_spec("textual") is None:
        return Skipped("the terminal UI", "textual is not installed")
    folder, cache = generated_corpus(Corpus()), scratch_folder() / "tui-cache"
    shutil.rmtree(cache, ignore_errors=True)
    around = {**environment(folder), "SESSIONTREE_CACHE": str(cache)}
    run_python(FILL, "10000", environment=around)
    path = str(generated(_TREE))
    none = scratch_folder() / "tui-empty"
    nothing = {**environment(none), "SESSIONTREE_CACHE": str(none / "cache")}
    empty, listed, tree = [], [], []
    for _ in range(rounds):
        empty.append(_run(_EMPTY))
        listed.append(_run(_LIST, environment=around))
        tree.append(_run(_TREE_CODE, path, environment=nothing))
    base, first, opened = (min(runs, key=lambda run: float(run["seconds"])) for runs in (empty, listed, tree))
    keys = _run(_KEYS_CODE, path, json.dumps(KEYS), environment=nothing)
    floor = f"{milliseconds(base['seconds'])} for an empty Textual app"
    bare = peak_memory("")
    return [
        _above(f"the list of {first['rows']:,} sessions, first frame", first["seconds"], base["seconds"], floor, 150),
        _above(
            f"a tree of 50,000 entries ({opened['rows']:,} rows), first frame",
            opened["seconds"],
            base["seconds"],
            floor,
            600,
        ),
        Result(
            "a tree of 50,000 entries on the screen, peak memory",
            megabytes(opened["peak"]),
            f"{megabytes(bare)} for a bare interpreter",
            (opened["peak"] - bare) / 1e6,
            bound=80,
            unit="MB",
        ),
        *(
            Result(
                f"key {key} in a tree of 50,000 entries",
                milliseconds(max(seconds - keys["idle"], 0)),
                "CPU until the screen and the entry beside it are painted",
                1e3 * max(seconds - keys["idle"], 0),
                bound=10,
                unit="ms",
            )
            for key, seconds in keys["keys"].items()
        ),
    ]


def _above(name: str, seconds: float, base: float, floor: str, bound: float) -> Result:
    return Result(name, milliseconds(seconds), floor, 1e3 * (seconds - base), bound=bound, unit="ms")


def _run(code: str, *arguments: str, environment: Mapping[str, str] = MappingProxyType({})) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run_python(code, *arguments, environment=environment)[0])
    return found
