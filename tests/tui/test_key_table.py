"""The tables that bindings and help are made of."""

from __future__ import annotations

from typing import Any

import pytest
from textual.binding import Binding
from textual.dom import DOMNode

from sessiontree.tui import chat, explore_board, sessions, tree
from sessiontree.tui.key_table import KeyRow, Shortcut, make_bindings, make_help


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
    assert make_help(*rows) == "Enter       send\nn  N        next, previous"


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
