"""Take pictures of the terminal UI: its screens on the sample library, as SVG in docs/images.

    make pictures
    python docs/pictures/screens.py tree

A further screen is a function that walks to it, and a name in SCREENS.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from textual.pilot import Pilot

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from examples.sample_library import write_library  # noqa: E402 - the repository's root has to be on the path first

from sessiontree.app.start import StartOptions  # noqa: E402
from sessiontree.app.workbench import Workbench  # noqa: E402
from sessiontree.library.library import Library  # noqa: E402
from sessiontree.settings import Settings  # noqa: E402
from sessiontree.tui.app import SessionTreeApp  # noqa: E402
from sessiontree.tui.chat import ChatScreen  # noqa: E402
from sessiontree.tui.rendered_panel import RenderedPanel  # noqa: E402
from sessiontree.tui.requests import Chat  # noqa: E402

IMAGES = ROOT / "docs" / "images"
SIZE = (116, 26)

Steps = Callable[[Pilot[Any]], Awaitable[None]]


async def sessions(pilot: Pilot[Any]) -> None:
    await pilot.press("down", "home")


async def tree(pilot: Pilot[Any]) -> None:
    await pilot.press("down", "home", "t")
    await _until(pilot, lambda: len(pilot.app.screen.query_one("#tree").rows) > 0)  # type: ignore[attr-defined]
    await pilot.press("home", *["down"] * 5)


async def chat(pilot: Pilot[Any]) -> None:
    await pilot.press("down", "home", "c")
    await _until(pilot, lambda: isinstance(pilot.app.screen, ChatScreen) and pilot.app.screen.chat.is_open)
    await pilot.press(*"Does it also pass on a loaded machine?")


SCREENS: dict[str, Steps] = {"sessions": sessions, "tree": tree, "chat": chat}


async def _until(pilot: Pilot[Any], condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("the screen did not get ready")
        await pilot.pause(0.02)


def _is_idle(app: SessionTreeApp) -> bool:
    """Whether no worker runs; one that a newer one replaced is finished, too."""
    return all(worker.is_finished for worker in app.workers)


async def _take(name: str, home: Path) -> str:
    project = str(home / "projects" / "shop")

    def start_options(request: Chat) -> StartOptions:
        return StartOptions(
            project, str(home / ".local" / "share" / "sessiontree"), Settings(), model="demo", session=request.ref
        )

    with Library() as library:
        app = SessionTreeApp(Workbench(library, project), everywhere=True, start_options=start_options)
        async with app.run_test(size=SIZE) as pilot:
            await _until(pilot, lambda: _is_idle(app))
            await SCREENS[name](pilot)
            panels = list(pilot.app.screen.query(RenderedPanel))
            await _until(pilot, lambda: all(panel.is_done for panel in panels))
            if not isinstance(app.screen, ChatScreen):  # a chat is a worker that runs until it is closed
                await _until(pilot, lambda: _is_idle(app))
            await pilot.pause()
            return app.export_screenshot(title="sessiontree", simplify=True)


def _normalized(svg: str, name: str) -> str:
    """Without fonts from the web, and with ids that do not change from one run to the next."""
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    svg = svg.replace("Fira Code, monospace", "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace")
    svg = svg.replace("Fira Code", "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono'")
    svg = re.sub(r"terminal-\d+", f"st-{name}", svg)
    return "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="home-", dir="/tmp") as folder:
        home = Path(folder)
        write_library(home)
        os.environ.update({"HOME": folder, "XDG_CACHE_HOME": f"{folder}/.cache", "COLORFGBG": "15;0"})
        for variable in ("NO_COLOR", "SESSIONTREE_HOME", "XDG_DATA_HOME", "CLAUDE_CONFIG_DIR", "PI_CODING_AGENT_DIR"):
            os.environ.pop(variable, None)
        for name in sys.argv[1:] or SCREENS:
            svg = asyncio.run(_take(name, home))
            (IMAGES / f"{name}.svg").write_text(_normalized(svg, name), encoding="utf-8")
            print(f"docs/images/{name}.svg")


if __name__ == "__main__":
    main()
