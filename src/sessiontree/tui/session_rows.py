"""Rows of the list of sessions: a title, and the columns that fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

from msgspec import Struct
from rich.segment import Segment
from rich.style import Style

from sessiontree.app.session_list import Heading, SessionList
from sessiontree.library.summary import Summary
from sessiontree.library.threads import ThreadMember
from sessiontree.views.listing import MARKS, age, amount, session_cost
from sessiontree.views.text import columns, fitted, one_line

_MIN_TITLE = 32
_GAP = 2
_DIM = Style(dim=True)
_BOLD = Style(bold=True)
_MATCH = Style(bold=True, underline=True)
_DAMAGED = Style(color="red", bold=True)
_PINNED = Style(color="yellow")


class _Column(Struct, frozen=True):
    heading: str
    width: int
    show: Callable[[Summary], str]
    drop_order: int
    """The column with the highest number is dropped first."""
    right: bool = True


class SessionRows:
    """The rows of a `SessionList` for one width after the other."""

    def __init__(
        self,
        found: SessionList,
        words: Sequence[str] = (),
        snippets: Mapping[str, str] = {},
        tags: Mapping[str, Sequence[str]] = {},
        pinned: frozenset[str] = frozenset(),
        *,
        with_project: bool = True,
        now: float = 0.0,
    ) -> None:
        """Ages count from `now`. `snippets` are hits in the text of sessions, by reference."""
        self.found = found
        self._words = [word.lower() for word in words if word]
        self._snippets = snippets
        self._tags = tags
        self._pinned = pinned
        self._with_project = with_project
        self._now = now
        self._fitted: tuple[int, list[_Column]] | None = None

    def __len__(self) -> int:
        return len(self.found.rows)

    def prepare(self, rows: range) -> None:
        """Nothing to do: summaries are in memory."""

    def is_selectable(self, row: int) -> bool:
        return isinstance(self.found.rows[row], ThreadMember)

    def summary(self, row: int | None) -> Summary | None:
        """The session of a row; None for a heading."""
        member = None if row is None or row >= len(self) else self.found.rows[row]
        return member.summary if isinstance(member, ThreadMember) else None

    def row_of(self, ref: str) -> int | None:
        """The first row of a session."""
        rows = enumerate(self.found.rows)
        return next((at for at, row in rows if isinstance(row, ThreadMember) and row.summary.ref == ref), None)

    def heading(self, width: int) -> str:
        """The names of the columns."""
        kept = self._fitting(width)
        cells = "".join(" " * _GAP + _aligned(column.heading, column) for column in kept)
        return fitted("  title", width - columns(cells)) + cells

    def render(self, row: int, width: int) -> list[Segment]:
        item = self.found.rows[row]
        if isinstance(item, Heading):
            text = f"{one_line(item.text)} ({item.sessions})"
            return [Segment(fitted(text, width), _BOLD)]
        summary = item.summary
        kept = self._fitting(width)
        cells = "".join(" " * _GAP + _aligned(column.show(summary), column) for column in kept)
        room = width - columns(cells)
        mark = self._mark(summary)
        quiet = summary.kind == "subagent" or summary.health in ("empty", "draft")
        title = fitted(self._title(item), room - 2)
        return [mark, *self._with_matches(title, _DIM if quiet else None), Segment(cells, _DIM)]

    def _mark(self, summary: Summary) -> Segment:
        if summary.health == "damaged":
            return Segment("! ", _DAMAGED)
        if summary.ref in self._pinned:
            return Segment("▪ ", _PINNED)
        return Segment(f"{MARKS[summary.health]} ", _DIM)

    def _title(self, member: ThreadMember) -> str:
        summary = member.summary
        title = one_line(summary.title) or {"empty": "(empty)", "draft": "(draft)"}.get(summary.health, "(no title)")
        branch = "  " * (member.depth - 1) + ("└ " if member.depth else "")
        kind = "⚙ " if summary.kind == "subagent" else "⇄ " if member.relation == "copy" else ""
        folded = self.found.folded.get(summary.ref, 0)
        agents = f"  +{folded} ⚙" if folded else ""
        tags = "".join(f"  #{one_line(tag)}" for tag in self._tags.get(summary.ref, ()))
        snippet = self._snippets.get(summary.ref)
        hit = f"  ⟨{one_line(snippet)}⟩" if snippet else ""
        return f"{branch}{kind}{title}{agents}{tags}{hit}"

    def _with_matches(self, text: str, style: Style | None) -> list[Segment]:
        """A text with the words of the query highlighted."""
        lowered = text.lower()
        if not self._words or len(lowered) != len(text):
            return [Segment(text, style)]
        marks = [False] * len(text)
        for word in self._words:
            at = lowered.find(word)
            while at >= 0:
                marks[at : at + len(word)] = [True] * len(word)
                at = lowered.find(word, at + len(word))
        segments: list[Segment] = []
        start = 0
        for at in range(1, len(text) + 1):
            if at == len(text) or marks[at] != marks[start]:
                segments.append(Segment(text[start:at], _MATCH if marks[start] else style))
                start = at
        return segments

    def _fitting(self, width: int) -> list[_Column]:
        """The columns that leave enough width for the title."""
        if self._fitted is not None and self._fitted[0] == width:
            return self._fitted[1]
        kept: list[_Column] = []
        free = width - _MIN_TITLE
        for column in sorted(self._columns, key=lambda column: column.drop_order):
            free -= column.width + _GAP
            if free < 0:
                break
            kept.append(column)
        found = [column for column in self._columns if column in kept]
        self._fitted = width, found
        return found

    @cached_property
    def _columns(self) -> tuple[_Column, ...]:
        def counted(summary: Summary, number: float) -> str:
            return amount(number) if summary.exact or not number else f"~{amount(number)}"

        def cost_text(summary: Summary) -> str:
            return session_cost(summary).text() if summary.cost or summary.unpriced else ""

        now = self._now
        found = (
            _Column("project", 12, lambda summary: one_line(summary.cwd.rpartition("/")[2]) or "?", 2, right=False),
            _Column("age", 4, lambda summary: age(summary.recency, now), 0),
            _Column("msgs", 5, lambda summary: counted(summary, summary.messages), 3),
            _Column("br", 4, lambda summary: counted(summary, summary.branches) if summary.branches > 1 else "", 4),
            _Column("cost", 7, cost_text, 5),
            _Column("agent", 8, lambda summary: one_line(summary.agent), 1, right=False),
        )
        return found if self._with_project else found[1:]


def _aligned(text: str, column: _Column) -> str:
    cell = fitted(text, column.width)
    return " " * (column.width - columns(cell.rstrip())) + cell.rstrip() if column.right else cell
