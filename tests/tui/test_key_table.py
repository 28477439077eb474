"""The tables that bindings and help are made of."""

from __future__ import annotations

import asyncio
from io import StringIO
from typing import Any

import pytest
from rich.console import Console
from textual.binding import Binding
from textual.dom import DOMNode
from textual.widgets._footer import FooterKey

from sessiontree.tui import chat, explore_board, sessions, tree
from sessiontree.tui.key_table import KeyFooter, KeyRow, Shortcut, make_bindings, make_help
from tests.tui.conftest import Running, until


def test_a_table_makes_bindings_and_help() -> None:
    rows = (
        KeyRow("Enter", "send"),
        KeyRow("n  N", "next, previous", Shortcut("n", "go(1)", "Next"), Shortcut("N", "go(-1)")),
    )
    first, second = make_bindings(*rows, target="screen.")
    assert isinstance(first, Binding)
    assert isinstance(second, Binding)
    assert (first.key, first.action, first.description, first.show) == ("n", "screen.go(1)", "Next", True)
    assert (second.description, second.show) == ("next, previous", False)
    console = Console(width=24, file=StringIO(), color_system=None)
    with console.capture() as printed:
        console.print(make_help(*rows, after="The end"))
    lines = [line.rstrip() for line in printed.get().split("\n")]
    assert lines[:5] == ["Enter       send", "n  N        next,", "            previous", "", "The end"]


@pytest.mark.parametrize("width", [40, 80, 120])
def test_the_footer_cuts_no_label(running: Running, width: int) -> None:
    async def run() -> None:
        async with running((width, 24)) as pilot:
            await pilot.press("down")
            await pilot.pause()
            footer = pilot.app.screen.query_one(KeyFooter)
            shown = list(footer.query(FooterKey))
            assert len(shown) >= 3
            assert all(key.region.right <= width for key in shown)
            await pilot.resize_terminal(200, 24)
            await until(pilot, lambda: any(key.description == "Export" for key in footer.query(FooterKey)))

    asyncio.run(run())


@pytest.mark.parametrize(
    ("bound", "screen"),
    [
        (sessions.SessionsScreen, sessions.SessionsScreen),
        (sessions.SessionLineList, sessions.SessionsScreen),
        (tree.TreeScreen, tree.TreeScreen),
        (chat.ChatScreen, chat.ChatScreen),
        (explore_board.ExploreScreen, explore_board.ExploreScreen),
    ],
)
def test_every_key_has_an_action(bound: type[DOMNode], screen: type[Any]) -> None:
    assert bound.BINDINGS
    for binding in bound.BINDINGS:
        assert isinstance(binding, Binding)
        name = binding.action.partition("(")[0].removeprefix("screen.")
        assert hasattr(screen, f"action_{name}"), binding
