"""The keys of a screen in one table: Textual's bindings, the footer and the help are made of it."""

from __future__ import annotations

from typing import NamedTuple

from textual.binding import Binding, BindingType

_WIDTH = 11


class Shortcut(NamedTuple):
    """A key and its action."""

    key: str
    """Textual's name, or several with commas."""
    action: str
    label: str = ""
    """In the footer; a key without one is not shown there."""
    display: str | None = None
    """How the footer shows the key."""
    priority: bool = False
    """Whether it is handled before the focused widget gets it."""


class KeyRow:
    """A row of the help: the names of keys for users, what they do, and the keys. Some are handled by widgets."""

    def __init__(self, names: str, description: str, *keys: Shortcut) -> None:
        self.names, self.description, self.keys = names, description, keys


def make_bindings(*rows: KeyRow, target: str = "") -> list[BindingType]:
    """`target` is a prefix of actions, such as `screen.` for those of a widget's screen."""
    return [
        Binding(
            key.key,
            f"{target}{key.action}",
            key.label or row.description,
            show=bool(key.label),
            key_display=key.display,
            priority=key.priority,
        )
        for row in rows
        for key in row.keys
    ]


def make_help(*rows: KeyRow) -> str:
    return "\n".join(f"{row.names:<{_WIDTH}} {row.description}" for row in rows)
