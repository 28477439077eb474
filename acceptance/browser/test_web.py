"""The web page in a real browser: browse, search, branches, live growth, actions, chat, export, hostile content."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.explore.repos import make_repository

from acceptance.browser.chromium import Browser, Page
from acceptance.browser.hostile import session as hostile_session
from acceptance.browser.test_page import browser, pictures
from sessiontree.app.workbench import Workbench
from sessiontree.library.library import Library
from sessiontree.session.open import create
from sessiontree.session.open import open as open_session
from sessiontree.web.app import build_app
from sessiontree.web.security import Access
from sessiontree.web.server import Server, bind

__all__ = ["browser"]


class Served:
    """A server on a sample library."""

    def __init__(self, home: Path, *, read_only: bool = False) -> None:
        self.home = home
        self.project = home / "projects" / "shop"
        self.library = Library()
        listener = bind("127.0.0.1", 0)
        self.port = listener.getsockname()[1]
        self.access = Access(self.port)
        app = build_app(Workbench(self.library, str(self.project)), self.access, read_only=read_only)
        self._server = Server(app)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [listener]}, daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def link(self, path: str = "/") -> str:
        return f"{self.address}{path}?token={self.access.token}"

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join(30)
        self.library.close()


@pytest.fixture
def served(home: Path) -> Iterator[Served]:
    server = Served(home)
    yield server
    server.close()


def until(browser: Browser, condition: Callable[[], Any]) -> Any:
    """Wait for a condition, however slow the machine is."""
    deadline = time.monotonic() + 60
    while not (found := condition()):
        assert time.monotonic() < deadline, "this did not happen"
        browser.settle(0.05)
    return found


def opened(browser: Browser, served: Served, **options: Any) -> Page:
    """The list, with all sessions."""
    page = Page(browser, **options)
    page.open(served.link())
    until(browser, lambda: page.ask("document.querySelectorAll('a.session').length") >= 5)
    return page


def go(browser: Browser, page: Page, address: str) -> None:
    page.open(address)
    until(browser, lambda: page.ask("document.readyState") == "complete")


def text(page: Page, id: str) -> str:
    """The text of an element; empty while the page loads."""
    found = page.ask(f"(document.getElementById({json.dumps(id)}) || {{textContent: ''}}).textContent")
    assert isinstance(found, str)
    return found


def picture(page: Page, name: str) -> None:
    folder = pictures()
    if folder is not None:
        page.picture(folder / f"{name}.png")


def own_home(home: Path) -> Path:
    return home / ".local" / "share" / "sessiontree"


def own_session(home: Path, *, count: int = 3) -> Any:
    """A native session with two branches."""
    session = create(str(home / "projects" / "shop"), home=str(own_home(home)))
    session.rename("Two ways to sort")
    for at in range(count):
        session.append("user", f"question {at}: how are items sorted?")
        session.append("assistant", f"**answer {at}**: by `key`.\n\n```python\nitems.sort(key=lambda x: x.name)\n```")
    fork = session.leaf
    session.append("user", "try bubble sort")
    session.append("assistant", "done with bubble sort")
    session.move(fork)
    session.append("user", "try merge sort")
    session.append("assistant", "done with merge sort")
    session.flush()
    return session


def address_of(browser: Browser, page: Page, title: str) -> str:
    """The address of a session by its title, from the list."""
    expression = (
        "[...document.querySelectorAll('a.session')].filter((a) => a.textContent.includes("
        + json.dumps(title)
        + ")).map((a) => a.href.split('?')[0])[0]"
    )
    found = until(browser, lambda: page.ask(expression))
    assert isinstance(found, str)
    return found


@pytest.fixture(scope="module")
def axe() -> str:
    """The script of axe-core, which checks accessibility. It is installed for the tests and not part of the project."""
    folder = Path(os.environ.get("AXE_FOLDER") or Path(__file__).parents[2] / "scratch" / "axe")
    script = folder / "node_modules" / "axe-core" / "axe.min.js"
    if not script.exists():
        import subprocess

        npm = shutil.which("npm")
        if npm is None:
            pytest.fail("npm is missing: it installs axe-core for this test")
        folder.mkdir(parents=True, exist_ok=True)
        command = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(folder), "axe-core@4"]
        subprocess.run(command, check=True, timeout=300, capture_output=True)
    return script.read_text(encoding="utf-8")


def violations(page: Page, axe: str) -> Any:
    """What axe-core finds that is serious."""
    page.ask(f"{axe}; true")
    return page.ask(
        "axe.run().then((r) => r.violations.filter((v) => ['serious', 'critical'].includes(v.impact))"
        ".map((v) => v.id + ': ' + v.nodes.map((n) => n.html.slice(0, 120)).slice(0, 3).join(' | ')))"
    )


def test_the_list_filters_while_typing_and_leads_to_a_session(browser: Browser, served: Served) -> None:
    page = opened(browser, served)
    picture(page, "web-list")
    total = page.ask("document.querySelectorAll('a.session').length")
    page.ask("document.getElementById('box').focus()")
    for key in "agent:pi":
        page.press(key)
    until(browser, lambda: 0 < page.ask("document.querySelectorAll('a.session').length") < total)
    page.press("Enter")
    until(browser, lambda: page.ask("document.activeElement.className") == "session")
    until(browser, lambda: page.ask("document.querySelectorAll('#preview .said').length") > 0)
    page.press("Enter")
    until(browser, lambda: page.ask("location.pathname").startswith("/s/"))
    until(browser, lambda: page.ask("document.querySelectorAll('#cards article').length") > 0)
    assert page.complaints() == []


def test_tags_and_pins_are_set_in_the_list_and_group_it(browser: Browser, served: Served) -> None:
    page = opened(browser, served)
    row = "document.querySelector('li[data-key]')"
    title = page.ask(f"{row}.querySelector('.title').textContent")
    page.click("li[data-key] [data-row=tag]")
    page.ask("document.querySelector('#dialog [name=add]').value = 'urgent'")
    page.click("#dialog-confirm")
    until(browser, lambda: page.ask("document.getElementById('dialog-confirm').textContent") == "Do it")
    page.click("#dialog-confirm")
    until(browser, lambda: page.ask(f"({row} || document.body).querySelector('.label') !== null"))
    page.click("li[data-key] [data-row=pin]")
    until(browser, lambda: page.ask("document.getElementById('dialog-confirm').textContent") == "Do it")
    page.click("#dialog-confirm")
    pinned = "document.querySelector('[data-row=pin][aria-pressed=true]')"
    until(browser, lambda: page.ask(f"{pinned} !== null"))
    assert page.ask(f"{pinned}.closest('li').querySelector('.title').textContent").endswith(title)
    until(browser, lambda: page.ask("document.querySelector('#notice button') !== null"))
    page.click("#notice button")
    until(browser, lambda: page.ask(f"document.readyState === 'complete' && {pinned} === null"))
    page.ask("document.querySelector('[name=group]').value = 'tag'")
    page.ask("document.querySelector('[name=group]').dispatchEvent(new Event('change', {bubbles: true}))")
    headings = "[...document.querySelectorAll('.group h2')].map((one) => one.firstChild.textContent.trim())"
    until(browser, lambda: page.ask(headings) == ["urgent", "no tag"])
    assert page.complaints() == []


def test_the_picture_of_branches_zooms_folds_and_leads_to_entries(browser: Browser, home: Path) -> None:
    own_session(home, count=30)
    served = Served(home)
    try:
        page = opened(browser, served)
        go(browser, page, address_of(browser, page, "Two ways to sort"))
        until(browser, lambda: page.ask("window.sessionPicture && sessionPicture.data.texts.some((text) => text)"))
        picture(page, "web-session")
        rows = page.ask("sessionPicture.rows.nodes.length")
        assert rows == 64
        page.ask("document.getElementById('graph-canvas').focus()")
        before = page.ask("sessionPicture.scale")
        page.press("-")
        assert page.ask("sessionPicture.scale") < before
        page.press("f")
        assert page.ask("sessionPicture.rows.nodes.length") < rows
        page.press("f")
        page.ask("sessionPicture.select(sessionPicture.data.ids.length - 3)")
        page.press("ArrowDown")
        assert page.ask("document.getElementById('graph-selected').textContent") != ""
        page.ask("sessionPicture.select(0)")
        page.press("Enter")
        until(browser, lambda: page.ask("document.querySelector('.chosen') !== null"))
        row = page.ask("sessionPicture.data.active.lastIndexOf('0')")
        page.ask(f"sessionPicture.reveal({row})")
        browser.settle()
        x, y = page.ask(
            "(() => { const g = sessionPicture, r = g.canvas.getBoundingClientRect();"
            f" return [r.left + 10, r.top + ({row} + 0.5) * g.rowHeight() - g.top]; }})()"
        )
        page.click_at(x, y)
        until(browser, lambda: page.ask("document.querySelector('article.abandoned') !== null"))
        assert "bubble sort" in page.ask("document.querySelector('#cards').textContent")
    finally:
        served.close()


def test_a_session_that_another_program_writes_grows_on_the_page(browser: Browser, home: Path) -> None:
    session = own_session(home)
    served = Served(home)
    try:
        page = opened(browser, served)
        go(browser, page, address_of(browser, page, "Two ways to sort"))
        count = page.ask("document.querySelectorAll('#cards article').length")
        for at in range(3):
            session.append("user", f"another question {at}")
        session.flush()
        until(browser, lambda: page.ask("document.querySelectorAll('#cards article').length") == count + 3)
        texts = page.ask("[...document.querySelectorAll('#cards article.user')].slice(-3).map((a) => a.textContent)")
        assert [f"another question {at}" in text for at, text in enumerate(texts)] == [True] * 3
        until(browser, lambda: page.ask("window.sessionPicture && sessionPicture.data.nodes.length") == count + 3 + 2)
    finally:
        served.close()


def test_a_fork_is_planned_confirmed_and_undone(browser: Browser, home: Path) -> None:
    own_session(home)
    served = Served(home)
    try:
        page = opened(browser, served)
        go(browser, page, address_of(browser, page, "Two ways to sort"))
        folder = own_home(home)
        before = len(list(folder.rglob("*.jsonl")))
        open_fork = (
            "[...document.querySelectorAll('#actions [data-action]')]"
            ".find((b) => JSON.parse(b.dataset.action).name === 'fork').click()"
        )
        page.ask(open_fork)
        page.ask("document.getElementById('dialog-confirm').click()")
        until(browser, lambda: page.ask("document.getElementById('dialog-confirm').textContent") == "Do it")
        picture(page, "web-plan")
        assert len(list(folder.rglob("*.jsonl"))) == before, "a plan writes nothing"
        page.ask("document.getElementById('dialog-confirm').click()")
        until(browser, lambda: page.ask("document.querySelector('#notice button') !== null"))
        assert len(list(folder.rglob("*.jsonl"))) == before + 1
        page.ask("document.querySelector('#notice button').click()")
        until(browser, lambda: len(list(folder.rglob("*.jsonl"))) == before)
    finally:
        served.close()


def test_branches_context_health_and_statistics_have_pages(browser: Browser, home: Path) -> None:
    own_session(home)
    served = Served(home)
    try:
        page = opened(browser, served)
        session = address_of(browser, page, "Two ways to sort")
        go(browser, page, f"{session}/compare")
        shown = page.ask("document.body.textContent")
        assert "done with merge sort" in shown
        assert "done with bubble sort" in shown
        picture(page, "web-compare")
        for form in ("messages", "anthropic", "openai", "openai-chat"):
            go(browser, page, f"{session}/context?form={form}")
            assert "merge sort" in page.ask("document.body.textContent"), form
            assert "bubble" not in page.ask("document.body.textContent"), form
        go(browser, page, f"{session}/health")
        assert "No problems found" in page.ask("document.body.textContent")
        go(browser, page, f"{served.address}/stats?days=all")
        until(browser, lambda: page.ask("document.querySelectorAll('figure svg').length") > 3)
        picture(page, "web-stats")
        assert page.complaints() == []
    finally:
        served.close()


def test_a_chat_asks_before_it_writes_and_can_be_watched(browser: Browser, home: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    turns = [
        {"text": "I write it.", "toolCalls": [{"name": "write", "arguments": {"path": "x.txt", "content": "hello"}}]},
        {"text": "It is written."},
    ]
    script.write_text(json.dumps({"turns": turns}))
    served = Served(home)
    try:
        page = opened(browser, served)
        go(browser, page, f"{served.address}/chat/new")
        page.ask(f"document.getElementById('model').value = {json.dumps(f'scripted:{script}')}")
        page.ask("document.getElementById('start-form').requestSubmit()")
        ready = "document.readyState === 'complete' && document.getElementById('prompt') !== null"
        until(browser, lambda: page.ask(ready))
        page.ask("document.getElementById('prompt').value = 'write x'")
        page.ask("document.getElementById('prompt-form').requestSubmit()")
        until(browser, lambda: page.ask("document.querySelector('.question [data-answer=once]') !== null"))
        picture(page, "web-chat")
        assert not (served.project / "x.txt").exists()
        page.click(".question [data-answer=once]")
        until(browser, lambda: (served.project / "x.txt").exists())
        until(browser, lambda: "It is written." in page.ask("document.getElementById('talk').textContent"))
        until(browser, lambda: page.ask("!document.getElementById('session-link').hidden"))
        assert page.complaints() == []
    finally:
        served.close()


def lanes_page(browser: Browser, served: Served, turns: list[dict[str, Any]], folder: Path) -> Page:
    """The page of an exploration of two lanes with a scripted model, in a project with git."""
    project = make_repository(served.home / "projects" / "lanes")
    session = create(str(project), home=str(own_home(served.home)))
    session.rename("Lanes on a page")
    session.append("user", "question")
    session.append("assistant", "answer")
    session.flush()
    script = folder / "script.json"
    script.write_text(json.dumps({"turns": turns}))
    page = opened(browser, served)
    go(browser, page, f"{address_of(browser, page, 'Lanes on a page')}/explore")
    for name, value in (("prompts", "write x"), ("count", "2"), ("models", f"scripted:{script}")):
        page.ask(f"document.getElementById('{name}').value = {json.dumps(value)}")
    page.ask("document.getElementById('start-lanes').requestSubmit()")
    until(browser, lambda: page.ask("document.querySelectorAll('.lane').length") == 2)
    return page


def test_running_lanes_are_shown_live_without_disturbing_the_user_and_stopped(
    browser: Browser, served: Served, tmp_path: Path, axe: str
) -> None:
    endless = {"text": "A word. " * 20_000, "delay": 0.05, "piece": 8}
    page = lanes_page(browser, served, [endless], tmp_path)
    until(browser, lambda: page.ask("document.querySelectorAll('.lane.running .lane-answer').length") == 2)
    picture(page, "web-lanes-running")
    assert violations(page, axe) == []
    page.ask("document.getElementById('steer-1').value = 'half typed'; document.getElementById('steer-1').focus()")
    length = page.ask("document.querySelector('#lane-1 .lane-answer').textContent.length")
    until(browser, lambda: page.ask("document.querySelector('#lane-1 .lane-answer').textContent.length") > length)
    assert page.ask("document.getElementById('steer-1').value") == "half typed"
    assert page.ask("document.activeElement.id") == "steer-1"
    page.click("#stop-2")
    until(browser, lambda: page.ask("document.querySelectorAll('#lane-2.stopped').length") == 1)
    page.click("#stop-all")
    until(browser, lambda: page.ask("document.querySelectorAll('.lane.stopped').length") == 2)
    assert page.complaints() == []


def test_lanes_are_compared_opened_kept_and_the_decision_undone(
    browser: Browser, served: Served, tmp_path: Path, axe: str
) -> None:
    call = {"name": "write", "arguments": {"path": "x.txt", "content": "hello"}}
    last = {"text": "It is **written**.\n\n" + "And more.\n\n" * 40}
    page = lanes_page(browser, served, [{"text": "", "toolCalls": [call]}, last], tmp_path)
    written = served.home / "projects" / "lanes" / "x.txt"
    address = page.ask("location.href")
    until(browser, lambda: page.ask("document.querySelectorAll('.lane.done [data-keep]').length") == 2)
    assert "1 file +1 -0" in text(page, "lane-2")
    page.click("#files-2 > summary")
    until(browser, lambda: "+hello" in text(page, "lane-2"))
    picture(page, "web-lanes")
    assert violations(page, axe) == []
    page.click("#open-2")
    until(browser, lambda: page.ask("location.search").endswith("lane=2"))
    until(browser, lambda: page.ask("document.querySelectorAll('#cards strong').length") == 1)
    go(browser, page, address)
    page.click("#keep-2")
    until(browser, lambda: text(page, "dialog-confirm") == "Do it")
    assert "x.txt" in text(page, "dialog-body")
    assert not written.exists(), "a plan writes nothing"
    page.click("#dialog-confirm")
    until(browser, written.exists)
    until(browser, lambda: page.ask("document.querySelector('#notice button') !== null"))
    until(browser, lambda: "(kept)" in text(page, "lane-2"))
    page.click("#notice button")
    until(browser, lambda: not written.exists())
    until(browser, lambda: "(left)" in text(page, "lane-2"))
    assert page.complaints() == []


def test_a_lane_that_is_open_grows(browser: Browser, home: Path) -> None:
    session = own_session(home)
    other = next(id for id in session.leaves() if id != session.leaf)
    served = Served(home)
    try:
        page = opened(browser, served)
        go(browser, page, f"{address_of(browser, page, 'Two ways to sort')}?leaf={other}")
        count = page.ask("document.querySelectorAll('#cards article').length")
        session.append("user", "said on the current branch")
        here = session.leaf
        session.move(other)
        session.append("user", "said on the other branch")
        session.move(here)
        session.flush()
        until(browser, lambda: page.ask("document.querySelectorAll('#cards article').length") == count + 1)
        shown = page.ask("document.getElementById('cards').textContent")
        assert "said on the other branch" in shown
        assert "said on the current branch" not in shown
    finally:
        served.close()


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (390, False)])
def test_hostile_content_does_nothing(browser: Browser, home: Path, width: int, dark: bool) -> None:
    folder = own_home(home) / "sessions" / "hostile"
    folder.mkdir(parents=True)
    (folder / "hostile.jsonl").write_bytes(hostile_session())
    served = Served(home)
    try:
        page = opened(browser, served, width=width, dark=dark)
        address = address_of(browser, page, "Hostile")
        for path in ("", "/compare", "/context", "/health", "/find?q=script"):
            go(browser, page, address + path)
            page.ask("document.querySelectorAll('main details').forEach((one) => { one.open = true; })")
            browser.settle()
            assert page.ask("typeof window.pwned") == "undefined"
            assert page.ask("document.querySelectorAll('iframe, object, base, math, main svg').length") == 0
            assert page.ask("document.querySelectorAll('[style], style').length") == 0
            assert page.ask("document.scrollingElement.scrollWidth <= innerWidth"), f"{path}: sticks out"
        assert page.complaints() == []
        assert [one for one in page.requests() if not one.startswith((served.address, "data:"))] == []
        go(browser, page, address)
        picture(page, f"web-hostile-{width}-{'dark' if dark else 'light'}")
    finally:
        served.close()


def test_the_exported_file_of_a_session_has_the_same_picture(browser: Browser, home: Path, tmp_path: Path) -> None:
    from sessiontree.export import export

    session = own_session(home, count=30)
    path = tmp_path / "page.html"
    path.write_bytes(b"".join(export(open_session(session.location), "html", branch="all")))
    page = Page(browser)
    page.open(path.as_uri())
    assert page.ask("document.getElementById('graph').hidden") is False
    assert page.ask("document.getElementById('graph-canvas').width") > 100
    page.ask("document.getElementById('graph-canvas').focus()")
    page.press("Home")
    page.press("Enter")
    assert page.ask("location.hash").startswith("#entry-")
    assert "bubble sort" in page.ask("document.querySelector('main').textContent")
    picture(page, "web-export")
    assert page.complaints() == []


@pytest.mark.parametrize("dark", [False, True])
def test_every_page_fits_on_a_phone(browser: Browser, home: Path, dark: bool) -> None:
    own_session(home)
    served = Served(home)
    try:
        page = opened(browser, served, width=390, dark=dark)
        session = address_of(browser, page, "Two ways to sort")
        background = "getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0] < 128"
        for path in ("/", "/stats?days=all", "/archive", "/chat/new"):
            go(browser, page, served.address + path)
            assert page.ask("document.scrollingElement.scrollWidth <= innerWidth"), path
            assert page.ask(background) is dark, path
        for path in ("", "/compare", "/context", "/explore", "/health"):
            go(browser, page, session + path)
            assert page.ask("document.scrollingElement.scrollWidth <= innerWidth"), path
            assert page.ask(background) is dark, path
        go(browser, page, f"{served.address}/")
        picture(page, f"web-phone-{'dark' if dark else 'light'}")
        assert page.complaints() == []
    finally:
        served.close()


@pytest.mark.parametrize("dark", [False, True])
def test_nothing_serious_is_wrong_with_accessibility(browser: Browser, home: Path, axe: str, dark: bool) -> None:
    own_session(home)
    served = Served(home)
    try:
        page = opened(browser, served, dark=dark)
        session = address_of(browser, page, "Two ways to sort")
        for address in (
            f"{served.address}/",
            session,
            f"{session}/compare",
            f"{session}/context",
            f"{session}/health",
            f"{session}/explore",
            f"{served.address}/stats?days=all",
            f"{served.address}/archive",
            f"{served.address}/chat/new",
        ):
            go(browser, page, address)
            browser.settle()
            assert violations(page, axe) == [], address
    finally:
        served.close()
