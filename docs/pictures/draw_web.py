"""Draw the pictures of the web page and of an exported page: `make pictures`. Needs Chromium."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

from acceptance.browser.chromium import Browser, Page, find_browser

from sample_library import write_library
from sessiontree.app.workbench import Workbench
from sessiontree.export import export
from sessiontree.library.library import Library
from sessiontree.web.app import build_app
from sessiontree.web.security import Access
from sessiontree.web.server import Server, bind
from sessiontree.web.site import key_of

HERE = Path(__file__).parent


def main() -> None:
    binary = find_browser()
    if binary is None:
        sys.exit("no browser: install chromium, or set BROWSER_BINARY")
    with tempfile.TemporaryDirectory(prefix="home-", dir="/tmp") as folder:
        home = Path(folder)
        write_library(home)
        for name in ("SESSIONTREE_HOME", "XDG_DATA_HOME", "CLAUDE_CONFIG_DIR", "PI_CODING_AGENT_DIR"):
            os.environ.pop(name, None)
        os.environ |= {"HOME": folder, "XDG_CACHE_HOME": str(home / ".cache")}
        with Library() as library, Browser(binary) as browser:
            library.refresh()
            _draw(library, browser, home)


def _draw(library: Library, browser: Browser, home: Path) -> None:
    listener = bind("127.0.0.1", 0)
    port = listener.getsockname()[1]
    access = Access(port)
    server = Server(build_app(Workbench(library, str(home / "projects" / "shop")), access))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    summary = library.find("Fix the flaky login test")
    page = Page(browser)
    page.open(f"http://127.0.0.1:{port}/?token={access.token}")
    page.open(f"http://127.0.0.1:{port}/s/{key_of(summary.ref)}")
    _wait(browser, page, "window.sessionPicture && sessionPicture.data.texts.some((text) => text)")
    page.ask("scrollTo(0, 0)")
    browser.settle(0.5)
    page.picture(HERE / "web-session.png")
    page.open(f"http://127.0.0.1:{port}/stats?days=all")
    page.picture(HERE / "web-statistics.png")
    server.should_exit = True
    thread.join()
    with Workbench(library, str(home)).open_session(summary) as session:
        file = home / "session.html"
        file.write_bytes(b"".join(export(session, "html", branch="all")))
    page.open(file.as_uri())
    page.picture(HERE / "export.png")


def _wait(browser: Browser, page: Page, condition: str) -> None:
    deadline = time.monotonic() + 60
    while not page.ask(condition):
        if time.monotonic() > deadline:
            sys.exit(f"this did not happen: {condition}")
        browser.settle(0.1)


if __name__ == "__main__":
    main()
