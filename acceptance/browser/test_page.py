"""The exported page in a real browser: no requests, no code from the session, and it can be used."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import sessiontree
from acceptance.browser.chromium import NAMES, Browser, Page, find_browser
from acceptance.browser.hostile import ATTACKS, LONG_LINE, session
from sessiontree.export import export

WIDTHS = (1280, 820, 420)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    binary = find_browser()
    if binary is None:
        pytest.fail(f"no browser: install one of {', '.join(NAMES)}, or set BROWSER_BINARY")
    with Browser(binary) as browser:
        yield browser


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("page")
    source = folder / "session.jsonl"
    source.write_bytes(session())
    page = folder / "page.html"
    page.write_bytes(b"".join(export(sessiontree.open(source), "html", branch="all")))
    return page.as_uri()


def pictures() -> Path | None:
    """The folder for screenshots, if any are wanted."""
    wanted = os.environ.get("PICTURES")
    return Path(wanted) if wanted else None


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_of_a_session_runs_nothing_is_asked_for_and_nothing_sticks_out(
    browser: Browser, address: str, width: int, dark: bool
) -> None:
    page = Page(browser, width, dark=dark)
    page.open(address)
    page.ask("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    page.ask("document.querySelectorAll('main a').forEach((one) => { one.click(); })")
    page.ask("location.hash = ''; scrollTo(0, 0)")
    browser.settle()
    assert page.ask("typeof window.pwned") == "undefined"
    assert page.ask("document.scripts.length") == 2, "the picture's data, and our script"
    assert page.ask("document.querySelectorAll('iframe, svg, math, object, link, base, form').length") == 0
    assert page.ask("document.querySelectorAll('[style], body style').length") == 0
    assert [one for one in page.requests() if not one.startswith((address, "data:image/"))] == []
    assert page.complaints() == []
    assert page.ask("document.scrollingElement.scrollWidth <= innerWidth"), "no text sticks out to the right"
    wide = "[...document.querySelectorAll('main *, nav *')].filter((e) => e.scrollWidth > e.clientWidth + 1 && "
    assert (
        page.ask(wide + "getComputedStyle(e).display !== 'inline' && e.clientWidth > 0).map((e) => e.outerHTML)") == []
    )
    folder = pictures()
    if folder is not None:
        page.picture(folder / f"page-{width}-{'dark' if dark else 'light'}.png")


def test_every_attack_is_there_as_text(browser: Browser, address: str) -> None:
    page = Page(browser)
    page.open(address)
    shown = page.ask("document.querySelector('main').textContent")
    for attack in (*ATTACKS[:10], *ATTACKS[12:14], LONG_LINE):
        assert attack in shown
    assert "\x1b" not in shown
    assert "\\u202egnp.exe\\u202c" in shown, "characters that would reverse the text are shown instead"


def test_the_tree_leads_to_branches_and_entries(browser: Browser, address: str) -> None:
    page = Page(browser)
    page.open(address)
    assert page.ask("document.querySelectorAll('nav a').length") > 15
    for link in ("#branch-1", "#entry-n1", "#entry-q28"):
        page.click(f'nav a[href="{link}"]')
        assert page.ask("location.hash") == link
        inside = "(() => { const r = document.querySelector(':target').getBoundingClientRect();"
        assert page.ask(f"{inside} return r.top >= -1 && r.top < innerHeight; }})()"), link
    assert page.ask("document.querySelector('nav').getBoundingClientRect().top") == 0, "the tree stays in sight"


def test_the_address_of_an_entry_opens_the_page_there(browser: Browser, address: str) -> None:
    page = Page(browser)
    page.open(f"{address}#entry-q28")
    top = page.ask("document.getElementById('entry-q28').getBoundingClientRect().top")
    assert -1 <= top < 900


def test_the_keyboard_finds_folds_and_skips(browser: Browser, address: str) -> None:
    page = Page(browser)
    page.open(address)
    page.press("Tab")
    assert page.ask("document.activeElement.className") == "skip"
    page.press("Enter")
    assert page.ask("location.hash") == "#tree"
    page.press("/")
    assert page.ask("document.activeElement.id") == "find"
    for key in "turn 7":
        page.press(key)
    shown = "[...document.querySelectorAll('main article')].filter((one) => one.offsetParent !== null).length"
    assert page.ask(shown) == 1
    assert page.ask("document.getElementById('found').textContent").startswith("1 of ")
    page.press("Escape")
    assert page.ask(shown) > 30
    page.click("#unfold")
    assert page.ask("document.querySelectorAll('main details:not([open])').length") == 0
    page.click("#fold")
    assert page.ask("document.querySelectorAll('main details[open]').length") == 0
    page.click("main details > summary")
    assert page.ask("document.querySelectorAll('main details[open]').length") == 1


def test_without_scripts_everything_can_be_read(browser: Browser, address: str) -> None:
    page = Page(browser, scripts=False)
    page.open(address)
    tree = page.call("DOM.getDocument", depth=-1)["root"]
    found = page.call("DOM.querySelectorAll", nodeId=tree["nodeId"], selector="main article")["nodeIds"]
    assert len(found) > 30
    assert page.complaints() == []
