"""Which lane is meant, in as many columns as there are: names of models shrink first, and what says nothing goes.

Where that does not do, no shape fits, and who draws takes several rows for a lane instead of cutting columns off.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from sessiontree.views.text import columns, cut, one_line, pad

BETWEEN = " · "


class Who(Struct, frozen=True):
    """What says which lane is meant. Its texts are clean."""

    number: int
    name: str
    model: str
    origin: int | None = None
    """The lane it was forked from."""

    @property
    def title(self) -> str:
        """Its number, its name, and where a fork came from."""
        return f"{self.number} {self.named(is_short=False)}".rstrip()

    def named(self, *, is_short: bool) -> str:
        """The name; for short, nothing if it only repeats the number."""
        name = "" if is_short and self.name == f"lane-{self.number}" else self.name
        return f"{name} ⑂{self.origin}".lstrip() if self.origin is not None else name


class Shape(Struct, frozen=True):
    """How much of names is shown, and how far apart columns stand."""

    is_full: bool
    """With providers, and with names that only repeat the number."""
    longest_model: int
    longest_name: int
    gap: int = 2


SHAPES = (Shape(True, 28, 20), Shape(False, 28, 20), Shape(False, 20, 16), Shape(False, 14, 12), Shape(False, 10, 8, 1))
"""From the widest to the narrowest."""


class Column(Struct, frozen=True):
    heading: str
    cells: Sequence[str]
    is_right: bool = False
    least: int = 0

    @property
    def size(self) -> int:
        return max(self.least, *map(columns, [self.heading, *self.cells]))


def who_is(number: int, name: str, model: str, origin: int | None) -> Who:
    """Texts are made clean."""
    return Who(number, one_line(name), one_line(model), origin)


def shared_model(whos: Sequence[Who]) -> str | None:
    """The model that all lanes have: it is said once."""
    models = {one.model for one in whos}
    return models.pop() if len(models) == 1 else None


def who_columns(whos: Sequence[Who], shape: Shape) -> list[Column] | None:
    """The columns that say which lane is meant; None when models could not be told apart any more."""
    names = [cut(one.named(is_short=not shape.is_full), shape.longest_name) for one in whos]
    found = [Column("", [str(one.number) for one in whos]), Column("LANE", names)]
    if shared_model(whos) is None:
        models = short_models([one.model for one in whos], shape.longest_model, with_provider=shape.is_full)
        if models is None:
            return None
        if shape.is_full or models != names:  # lanes are often named after their models
            found.append(Column("MODEL", models))
    return found


def short_models(models: Sequence[str], size: int, *, with_provider: bool = False) -> list[str] | None:
    """Models in at most `size` columns each: without the provider, then cut; None when two would look the same."""
    count = len(set(models))
    without = [one.partition(":")[2] or one for one in models]
    shown = without if not with_provider and len(set(without)) == count else list(models)
    for shorten in (cut, cut_middle):
        found = [shorten(one, size) for one in shown]
        if len(set(found)) == count:
            return found
    return None


def cut_middle(text: str, width: int) -> str:
    """A clean line in at most `width` columns, with an ellipsis in its middle: the end of a path says most."""
    if columns(text) <= width:
        return text
    tail = ""
    for character in reversed(text):
        if columns(character + tail) > (width - 1) // 2:
            break
        tail = character + tail
    return cut(text, width - columns(tail)) + tail


def table_width(table: Sequence[Column], gap: int) -> int:
    return sum(one.size for one in table) + gap * (len(table) - 1)


def table_rows(table: Sequence[Column], gap: int) -> Iterator[str]:
    """The headings, then a row for each lane."""
    sizes = [one.size for one in table]
    for row in zip(*([one.heading, *one.cells] for one in table), strict=True):
        cells = [
            " " * (size - columns(text)) + text if one.is_right else pad(text, size)
            for one, text, size in zip(table, row, sizes, strict=True)
        ]
        yield (" " * gap).join(cells).rstrip()


def without_empty(table: Sequence[Column]) -> list[Column]:
    return [one for one in table if any(one.cells)]


def packed(pieces: Sequence[str], width: int) -> Iterator[str]:
    """Pieces with dots between them, as many on a line as it has room for."""
    line = ""
    for piece in pieces:
        short = cut_middle(piece, width)
        if line and columns(line + BETWEEN + short) > width:
            yield line
            line = short
        else:
            line = line + BETWEEN + short if line else short
    if line:
        yield line
