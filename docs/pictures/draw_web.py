"""Draw the pictures of the web page (docs/images) and of an exported page: `make pictures`. Needs Chromium."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

from acceptance.browser.chromium import Browser, Page, find_browser

from sample_library import write_library
from sessiontree.app.workbench import Workbench
from sessiontree.export import export
from sessiontree.library.library import Library
from sessiontree.library.summary import Summary
from sessiontree.web.app import build_app
from sessiontree.web.security import Access
from sessiontree.web.server import Server, bind
from sessiontree.web.site import key_of

HERE = Path(__file__).parent
IMAGES = HERE.parent / "images"
TITLE = "Fix the flaky login test"


def main() -> None:
    binary = find_browser()
    if binary is None:
        sys.exit("no browser: install chromium, or set BROWSER_BINARY")
    with tempfile.TemporaryDirectory(prefix="home-", dir="/tmp") as folder:
        home = Path(folder)
        write_library(home)
        _make_repository(home / "projects" / "importer")
        for name in ("SESSIONTREE_HOME", "XDG_DATA_HOME", "CLAUDE_CONFIG_DIR", "PI_CODING_AGENT_DIR"):
            os.environ.pop(name, None)
        os.environ |= {"HOME": folder, "XDG_CACHE_HOME": str(home / ".cache")}
        with Library() as library, Browser(binary) as browser:
            library.refresh()
            for summary in list(library.sessions()):
                if not summary.title.isascii():  # a browser without fonts for it would draw boxes
                    Path(summary.ref).unlink()
            library.refresh()
            _draw_export(library, browser, home)
            _draw_pages(library, browser, home)


def _make_repository(project: Path) -> None:
    """Lanes of an exploration have files of their own if the project is a git repository."""
    (project / "README.md").write_text("# importer\n\nReads files.\n")
    identity = ["-c", "user.name=sample", "-c", "user.email=sample@example.com"]
    for command in (["init", "-q"], ["add", "."], [*identity, "commit", "-qm", "start"]):
        subprocess.run(["git", *command], cwd=project, check=True)


@contextmanager
def _served(library: Library, home: Path) -> Iterator[tuple[str, Access]]:
    listener = bind("127.0.0.1", 0)
    port = listener.getsockname()[1]
    access = Access(port)
    server = Server(build_app(Workbench(library, str(home / "projects" / "shop")), access))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{port}", access
    finally:
        server.should_exit = True
        thread.join()


def _draw_pages(library: Library, browser: Browser, home: Path) -> None:
    summary = library.find(TITLE)
    with _served(library, home) as (address, access):
        page = Page(browser)
        page.open(f"{address}/?token={access.token}")
        _wait(browser, page, "document.querySelectorAll('a.session').length > 3")
        page.ask("document.querySelector('a.session').focus()")
        _wait(browser, page, "document.querySelectorAll('#preview .said').length > 0")
        page.ask("document.activeElement.blur(); document.querySelector('.facets').open = true")
        _save(browser, page, "web-list", height=760)
        session = f"{address}/s/{key_of(summary.ref)}"
        page.open(session)
        _wait(browser, page, "window.sessionPicture && sessionPicture.data.texts.some((text) => text)")
        page.ask("scrollTo(0, 0)")
        _save(browser, page, "web-session", height=715)
        page.click("[data-graph=wide]")
        _save(browser, page, "web-graph", height=620)
        page.open(f"{session}/compare")
        _save(browser, page, "web-compare")
        page.open(f"{address}/stats?days=all")
        _save(browser, page, "web-statistics")
        _draw_lanes(browser, page, address, library)


def _draw_lanes(browser: Browser, page: Page, address: str, library: Library) -> None:
    """Three lanes of the demonstration, with their ends compared."""
    summary = library.find("Profile the importer")
    page.open(f"{address}/s/{key_of(summary.ref)}/explore")
    values = {"prompts": "Count the words of the README with a script", "count": "3", "models": "demo"}
    for name, value in values.items():
        page.ask(f"document.getElementById('{name}').value = '{value}'")
    page.ask("document.getElementById('start-lanes').requestSubmit()")
    _wait(browser, page, "document.querySelectorAll('.lane [data-keep]').length === 3")
    page.click("#files-2 > summary")
    _wait(browser, page, "document.querySelector('#files-2 .diff') !== null")
    _save(browser, page, "web-lanes", height=820)


def _draw_export(library: Library, browser: Browser, home: Path) -> None:
    summary: Summary = library.find(TITLE)
    with Workbench(library, str(home)).open_session(summary) as session:
        file = home / "session.html"
        file.write_bytes(b"".join(export(session, "html", branch="all")))
    page = Page(browser)
    page.open(file.as_uri())
    page.picture(HERE / "export.png")


def _save(browser: Browser, page: Page, name: str, height: int = 900) -> None:
    page.resize(1280, height)
    browser.settle(0.5)
    page.picture(IMAGES / f"{name}.png")
    print(f"docs/images/{name}.png")


def _wait(browser: Browser, page: Page, condition: str) -> None:
    deadline = time.monotonic() + 60
    while not page.ask(condition):
        if time.monotonic() > deadline:
            sys.exit(f"this did not happen: {condition}")
        browser.settle(0.1)


if __name__ == "__main__":
    main()
