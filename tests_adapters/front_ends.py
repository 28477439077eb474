"""Show the sessions of an adapter in the terminal UI and on the web page."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from tests.tui.conftest import settle, until
from tests.web.conftest import Site

from sessiontree.app.workbench import Workbench
from sessiontree.library.library import Library
from sessiontree.tui.app import SessionTreeApp
from sessiontree.tui.line_list import LineList
from sessiontree.tui.tree import TreeScreen
from sessiontree.web.site import key_of


def check_front_ends(folder: Path, texts: list[str], environment: Mapping[str, str]) -> None:
    """Check that the only session of an environment is listed and shown: its tree in the terminal, its texts in pages.

    In the tree, the first and the last text are visible; results are folded into their calls.
    """
    with Library(environment={"HOME": str(folder), **environment}) as library:
        library.refresh()
        (summary,) = library.sessions()
        workbench = Workbench(library, str(folder))
        asyncio.run(_check_terminal(workbench, summary.title, [texts[0], texts[-1]]))
        site = Site(library, str(folder))
        try:
            site.login()
            assert summary.title in site.get("/").text
            page = site.get(f"/s/{key_of(summary.ref)}").text
            for text in texts:
                assert text in page
        finally:
            site.close()


async def _check_terminal(workbench: Workbench, title: str, texts: list[str]) -> None:
    app = SessionTreeApp(workbench, everywhere=True)
    async with app.run_test(size=(160, 40)) as pilot:
        await settle(pilot)
        await until(pilot, lambda: title in _shown(app, "#list"))
        await pilot.press("down", "home", "t")
        await until(pilot, lambda: any(isinstance(screen, TreeScreen) for screen in app.screen_stack))
        await settle(pilot)
        for text in texts:
            await until(pilot, lambda text=text: text in _shown(app, "#tree"))  # type: ignore[misc]


def _shown(app: SessionTreeApp, list: str) -> str:
    """The visible rows of a list as text."""
    for screen in app.screen_stack:
        for found in screen.query(list).results(LineList):
            return "\n".join(found.render_line(y).text for y in range(found.size.height))
    return ""
