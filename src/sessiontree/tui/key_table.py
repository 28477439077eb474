"""The keys of a screen in one table, the source of Textual's bindings, the footer and the help."""

from __future__ import annotations

from typing import NamedTuple

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Footer

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


def make_help(*rows: KeyRow, before: str = "", after: str = "") -> RenderableType:
    """The keys as a table; a long description continues below itself."""
    from rich.table import Table  # not needed for the first frame

    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(width=_WIDTH, no_wrap=True)
    table.add_column()
    for row in rows:
        table.add_row(Text(row.names), Text(row.description))
    return Group(*([Text(before), Text()] if before else []), table, *([Text(), Text(after)] if after else []))


class KeyFooter(Footer):
    """A footer with the keys that fit; the help has all of them. Textual's own would cut a label in the middle."""

    def __init__(self) -> None:
        super().__init__(compact=True)

    def compose(self) -> ComposeResult:
        room = self.app.size.width
        for key in super().compose():
            room -= sum(
                cell_len(text) + 1 for text in (getattr(key, "key_display", ""), getattr(key, "description", ""))
            )
            if room < -1:  # the last label needs no space after it
                return
            yield key

    async def on_resize(self) -> None:
        await self.recompose()
