"""Images of a chat as pictures, on terminals that can show them."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import pytest
from textual.drivers.headless_driver import HeadlessDriver
from textual.events import Paste
from textual.notifications import Notification
from textual.pilot import Pilot
from textual.widgets._toast import Toast

from sessiontree.session.session import Session
from sessiontree.settings import Settings
from sessiontree.tui import pictures
from tests.chat.terminals import Place, Terminal, scripted, turn
from tests.tui.chats import Chat, screen_of, sees, sent, shown
from tests.tui.conftest import until
from tests.tui.images import image, png

PLACEHOLDER = "\U0010eeee"
EVIL = b"\x1b]0;owned\x07\x1b\\\x1b[2J" * 400
"""Inside of an image: must never reach the terminal as it is."""
PICTURE = png(160, 96, more=EVIL)


@pytest.fixture
def chat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Chat:
    place = Place(tmp_path)
    for name in ("TMUX", "STY", "NO_COLOR", "TERM_PROGRAM", "KITTY_WINDOW_ID", "LC_TERMINAL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("COLORTERM", "truecolor")
    monkeypatch.setenv("TERM", "xterm-256color")
    return Chat(place)


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is written to the terminal beside the screen."""
    found: list[str] = []
    monkeypatch.setattr(HeadlessDriver, "write", lambda _, data: found.append(data))
    return found


def with_image(chat: Chat, data: bytes = PICTURE, *texts: str) -> Session:
    """A session whose first prompt has an image."""
    session = chat.session()
    block = image(data)
    session.append(
        "user",
        [{"type": "text", "text": "look"}, {"type": "image", "data": block.data, "mimeType": block.mime_type}],
    )
    for text in texts:
        session.append("assistant", [{"type": "text", "text": text}])
    return session


def placeholder_rows(pilot: Pilot[Any]) -> int:
    return sum(PLACEHOLDER in line for line in shown(pilot).split("\n"))


def test_without_a_capable_terminal_an_image_is_a_line(chat: Chat, written: list[str]) -> None:
    async def steps(pilot: Pilot[Any]) -> None:
        await sees(pilot, "▣ image image/png · 160 × 96 pixels · 7 kB")
        assert placeholder_rows(pilot) == 0

    chat.run([], steps, session=with_image(chat))
    assert not any("\x1b_G" in each or "1337" in each or "\x1bP" in each for each in written)


def test_kitty_gets_an_image_once_and_shows_it_by_text_that_scrolls(
    chat: Chat, written: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm-kitty")
    session = with_image(chat, PICTURE, *(f"answer {number}" for number in range(60)))

    def graphics() -> str:
        return "".join(re.findall(r"\x1b_G.*?\x1b\\", "".join(written)))

    async def steps(pilot: Pilot[Any]) -> None:
        await sees(pilot, "answer 59")
        assert graphics() == ""
        await pilot.press("ctrl+home")
        await until(pilot, lambda: "a=p,U=1" in graphics())
        await sees(pilot, "160 × 96")
        assert placeholder_rows(pilot) == 6
        style = next(
            segment.style
            for y in range(10)
            for segment in screen_of(pilot).transcript.render_line(y)
            if PLACEHOLDER in segment.text
        )
        assert style is not None
        assert style.color is not None
        color = style.color.triplet
        assert color is not None
        assert f"i={color.red << 16 | color.green << 8 | color.blue}," in graphics()
        assert "c=20,r=6" in graphics()
        before = graphics()
        await pilot.press("ctrl+end", "ctrl+home")
        assert placeholder_rows(pilot) == 6
        assert graphics() == before
        await pilot.resize_terminal(14, 30)
        await until(pilot, lambda: "c=12,r=4" in graphics())
        assert graphics().count("a=t") == 1

    chat.run([], steps, session=session)
    data = "".join(re.findall(r"(?:a=t[^;]*|m=\d,q=2);([A-Za-z0-9+/=]*)", graphics()))
    assert base64.b64decode(data) == PICTURE
    assert "a=d,d=I" in graphics()  # removed at the end


@pytest.mark.parametrize("variables", [{"NO_COLOR": "1"}, {"TMUX": "x"}])
def test_kitty_shows_a_line_where_a_picture_would_not_be_right(
    chat: Chat, written: list[str], monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    for name, value in {"TERM": "xterm-kitty", **variables}.items():
        monkeypatch.setenv(name, value)

    async def steps(pilot: Pilot[Any]) -> None:
        await sees(pilot, "160 × 96")
        assert placeholder_rows(pilot) == 0

    chat.run([], steps, session=with_image(chat))
    assert not any("\x1b_G" in each for each in written)


def test_a_drawn_picture_waits_until_nothing_covers_it(
    chat: Chat, written: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM_PROGRAM", "iTerm.app")

    def drawn() -> int:
        return sum("1337;File=inline=1" in each for each in written)

    async def steps(pilot: Pilot[Any]) -> None:
        await sees(pilot, "160 × 96")
        await until(pilot, drawn)
        found = next(each for each in written if "1337" in each)
        match = re.fullmatch(
            r"\x1b7\x1b\[(\d+);2H\x1b\]1337;File=[A-Za-z0-9=;]*width=20;height=6;[A-Za-z0-9=]*:([A-Za-z0-9+/=]*)\x07\x1b8",
            found,
        )
        assert match is not None
        assert base64.b64decode(match[2]) == PICTURE
        row = int(match[1]) - 1
        lines = shown(pilot).split("\n")
        assert "160 × 96" in lines[row - 1]
        assert not any(line.strip() for line in lines[row : row + 6])
        await pilot.press("f1")
        await until(pilot, lambda: pilot.app.screen is not screen_of(pilot))
        before = drawn()
        screen_of(pilot).transcript.redraw()
        screen_of(pilot).transcript._draw_pictures()
        assert drawn() == before
        await pilot.press("escape")
        await until(pilot, lambda: drawn() > before)
        await pilot.app.screen.mount(Toast(Notification("over it", timeout=60)))
        before = drawn()
        screen_of(pilot).transcript._draw_pictures()
        assert drawn() == before

    chat.run([], steps, session=with_image(chat))


def test_a_picture_that_is_partly_outside_is_not_drawn(
    chat: Chat, written: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM_PROGRAM", "iTerm.app")

    async def steps(pilot: Pilot[Any]) -> None:
        transcript = screen_of(pilot).transcript
        await sees(pilot, "answer 59")
        await pilot.press("ctrl+home")
        await until(pilot, lambda: len(transcript._drawn) == 1)
        transcript.scroll_rows(3)
        await sees(pilot, "answer 5")
        assert transcript._drawn == []

    chat.run([], steps, session=with_image(chat, PICTURE, *(f"answer {number}" for number in range(60))))


def test_sixels_are_made_in_the_background_and_an_image_that_cannot_be_decoded_is_a_line(
    chat: Chat, written: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pictures, "terminal_cell_size", lambda: (8, 16))
    session = with_image(chat, png(80, 32, more=EVIL))
    damaged = image(PICTURE[:-300])
    session.append("user", [{"type": "image", "data": damaged.data, "mimeType": damaged.mime_type}])

    async def steps(pilot: Pilot[Any]) -> None:
        transcript = screen_of(pilot).transcript
        await sees(pilot, "80 × 32")
        await until(pilot, lambda: any('\x1bP0;1q"1;1;80;32' in each for each in written))
        await until(pilot, lambda: transcript.pictures is not None and transcript.pictures._broken)
        await until(pilot, lambda: len(transcript._drawn) == 1)

    chat.run([], steps, session=session, settings=Settings(images="sixel"))
    drawn = [each for each in written if "\x1bP" in each]
    assert all(re.fullmatch(r'\x1b7\x1b\[\d+;\d+H\x1bP0;1q[0-9;#!"$?-~-]*\x1b\\\x1b8', each) for each in drawn)


def test_a_pasted_image_is_shown_above_the_input(
    chat: Chat, monkeypatch: pytest.MonkeyPatch, written: list[str]
) -> None:
    monkeypatch.setenv("TERM", "xterm-kitty")
    path = chat.place.project / "shot.png"
    path.write_bytes(PICTURE)

    async def steps(pilot: Pilot[Any]) -> None:
        screen = screen_of(pilot)
        assert not screen.pasted.display
        screen.editor.post_message(Paste(str(path)))
        await until(pilot, lambda: screen.editor.text == "[Image #1]")
        await until(pilot, lambda: "160 × 96" in screen.pasted.visible_text())
        assert screen.pasted.visible_text().count("\n") == 5  # the line, and five rows
        assert PLACEHOLDER in screen.pasted.visible_text()
        await until(pilot, lambda: any("a=p,U=1" in each for each in written))
        await sent(pilot, "see [Image #1]")
        await sees(pilot, "Seen.")
        await until(pilot, lambda: not screen.pasted.display)
        assert "160 × 96" in shown(pilot)

    chat.run([turn("Seen.")], steps)


@pytest.mark.parametrize("variables", [{"TERM": "xterm-kitty"}, {"TERM_PROGRAM": "iTerm.app"}])
def test_nothing_of_an_image_reaches_a_terminal_unencoded(chat: Chat, variables: dict[str, str]) -> None:
    place = chat.place
    session = with_image(chat, PICTURE, "Done.")
    more = {"COLORTERM": "truecolor", **variables}
    arguments = ["--model", scripted(place), "--session", session.location]
    with Terminal(place, arguments, more, plain=False) as terminal:
        while "a=p,U=1" not in terminal.raw and "\x1b8" not in terminal.raw:
            assert terminal._read()
        terminal.type("\x03\x03")
        assert terminal.end() == 0
        raw = terminal.raw
    encoded = base64.b64encode(PICTURE).decode()
    if "TERM" in variables:
        graphics = re.findall(r"\x1b_G(.*?)\x1b\\", raw)
        assert all(re.fullmatch(r"[a-zA-Z0-9=,]*(;[A-Za-z0-9+/=]*)?", each) for each in graphics)
        assert all("q=2" in each for each in graphics)  # no answer is asked for
        assert "".join(each.partition(";")[2] for each in graphics) == encoded
        assert raw.index("a=d,d=I") > raw.index("a=p,U=1")
        assert PLACEHOLDER in raw
    else:
        assert f":{encoded}\x07\x1b8" in raw
    assert "owned" not in raw
    assert "\x1b[2J\x1b]0" not in raw
