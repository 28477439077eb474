"""The tree of a session: walk it with the arrows, go to any entry, compare, merge, pick, label, prune and fork."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache
from itertools import islice
from typing import Any, ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import on, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.events import Resize
from textual.widgets import Input
from textual.worker import get_current_worker

from sessiontree.app.actions.contract import ActionPlan, Done
from sessiontree.branches.tips import count_tips
from sessiontree.core.entries import MessageEntry
from sessiontree.core.messages import User, message_text
from sessiontree.errors import SessionTreeError, UsageError
from sessiontree.explore.branch_labels import find_marks
from sessiontree.session.session import Session
from sessiontree.tui.action_flow import ActionScreen
from sessiontree.tui.dialogs import MenuDialog, PageDialog, TextDialog
from sessiontree.tui.entry_panel import EntryPanel, plain_text
from sessiontree.tui.key_table import KeyFooter, KeyRow, Shortcut, make_bindings, make_help
from sessiontree.tui.line_list import LineList, TextRow
from sessiontree.views.text import clean, one_line, plural
from sessiontree.views.tree_drawing import PartKind, RowFacts, RowFormat, draw_row, lane_color, read_facts
from sessiontree.views.tree_rows import FILTERS, TreeFilter, TreeRows, entry_text

_WIDE = 110
_DELAY = 0.15
"""Seconds without a key before the tree is searched."""
_KEPT = 2_048
_MAX_TEXT = 512
"""Columns of a row's text that are kept."""
_STEP = 64
_LARGE = 5_000
"""From this number of entries on, rows are arranged in the background."""
_AHEAD = 0.5
"""Seconds after which the other views of a large tree are arranged, so that no key has to."""
_DIM = Style(dim=True)
_MATCH = Style(bold=True, reverse=True)
_LABEL = Style(color="yellow")
_STYLES: dict[PartKind, Style | None] = {
    "mark": _LABEL,
    "fold": _DIM,
    "text": None,
    "other text": _DIM,
    "label": _LABEL,
    "here": Style(color="green", bold=True),
    "time": _DIM,
}
_NAMES = {"user": Style(color="cyan", bold=True), "assistant": Style(color="green"), "merge": Style(color="magenta")}

_BACK = KeyRow("Esc", "go back one level", Shortcut("escape", "back", "Back"))
_HELP = KeyRow("?", "this help", Shortcut("question_mark,f1", "help", "Help", "?"))
_KEYS = (
    KeyRow("Ctrl+U", "only your own messages", Shortcut("ctrl+u", "filter('user')", "Prompts")),
    KeyRow("Ctrl+O", "next view: default, no tools, user, labeled, all", Shortcut("ctrl+o", "next_filter", "View")),
    KeyRow(
        "/  n  N",
        "find, including in folded rows; next and previous match",
        Shortcut("slash", "find", "Find", "/"),
        Shortcut("n", "next_match(1)"),
        Shortcut("N", "next_match(-1)"),
    ),
    KeyRow(
        "→ ←",
        "unfold or fold a run of tool calls or a compaction",
        Shortcut("right", "fold(False)"),
        Shortcut("left", "fold(True)"),
    ),
    KeyRow("L", "label the entry", Shortcut("L", "label", "Label")),
    KeyRow("T", "show or hide times", Shortcut("T", "times")),
    KeyRow("Space", "mark an entry: two to compare, any number to copy", Shortcut("space", "mark", "Mark")),
    KeyRow("d", "compare the two marked branches, or this one with the current one", Shortcut("d", "diff", "Diff")),
    KeyRow("m", "merge this branch into the current one", Shortcut("m", "merge", "Merge")),
    KeyRow("P", "copy the marked entries to the current branch", Shortcut("P", "pick", "Pick")),
    KeyRow("x", "move the branch, from this entry on, to the archive", Shortcut("x", "prune", "Prune")),
    KeyRow("f", "start a new session with the history up to this entry", Shortcut("f", "fork", "Fork")),
    KeyRow("e", "exclude the entry from the context, or include it again", Shortcut("e", "leave_out")),
    KeyRow("u", "go back to before the selected compaction, or the last one", Shortcut("u", "undo_compaction")),
    KeyRow("U", "undo the last action", Shortcut("U", "undo")),
    KeyRow("y", "copy the text of the entry", Shortcut("y", "copy")),
    KeyRow(
        "Ctrl+P  [ ]",
        "show or hide the detail pane; scroll it",
        Shortcut("ctrl+p", "toggle_panel"),
        Shortcut("left_square_bracket", "scroll_panel(-1)"),
        Shortcut("right_square_bracket", "scroll_panel(1)"),
    ),
)
_LIST_KEYS = (
    KeyRow("↑ ↓", "move; also PgUp, PgDn, Home and End"),
    KeyRow("Enter", "go to the entry; for a prompt, go to just before it and copy its text"),
)
_LEGEND = "● on the active path  ○ other branches  ◆ merge  ▸ folded  ⊘ left out of the context"


class TreeSource:
    """The rows of the list."""

    def __init__(self, rows: TreeRows) -> None:
        self.rows = rows
        self.format = RowFormat()
        self.marked: list[str] = []
        self.match = ""
        self._facts: OrderedDict[tuple[int, bool], RowFacts] = OrderedDict()

    def __len__(self) -> int:
        return len(self.rows)

    def is_selectable(self, row: int) -> bool:
        return 0 <= row < len(self.rows)

    def prepare(self, rows: range) -> None:
        """Decode the entries of some rows, all in one read."""
        found = [(row, self.rows[row]) for row in rows if self._key(row) not in self._facts]
        needed = [self.rows.needed(shown) for _, shown in found]
        try:
            entries = iter(self.rows.journal.entries([node for nodes in needed for node in nodes]))
        except (SessionTreeError, OSError):
            return  # an action has rewritten the file; the new rows are being read, and replace these at once
        for (row, shown), nodes in zip(found, needed, strict=True):
            self._facts[self._key(row)] = read_facts(
                self.rows, row, shown, list(islice(entries, len(nodes))), _MAX_TEXT
            )
        while len(self._facts) > _KEPT:
            self._facts.popitem(last=False)

    def _key(self, row: int) -> tuple[int, bool]:
        return self.rows.nodes[row], self.rows.is_folded(row)

    def render(self, row: int, width: int) -> list[Segment]:
        rows, shown = self.rows, self.rows[row]
        facts = self._facts.get(self._key(row))
        if facts is None:
            self.prepare(range(row, row + 1))
            facts = self._facts.get(self._key(row))
            if facts is None:
                return [Segment("…", _DIM)]
        segments: list[Segment] = []
        for text, kind in draw_row(rows, row, shown, facts, width, self.format, self.marked):
            if not text:
                continue
            match kind:
                case "rails" | "other rails":
                    segments.append(Segment(text, _rail_style(lane_color(rows.lane(row)), kind == "rails")))
                case "name":
                    segments.append(Segment(text, _NAMES.get(facts.name, _DIM)))
                case "text" | "other text":
                    segments += self._with_match(text, _STYLES[kind])
                case _:
                    segments.append(Segment(text, _STYLES.get(kind)))
        return segments

    def _with_match(self, text: str, style: Style | None) -> list[Segment]:
        lowered = text.lower()
        at = lowered.find(self.match) if self.match and len(lowered) == len(text) else -1
        if at < 0:
            return [Segment(text, style)]
        end = at + len(self.match)
        return [Segment(text[:at], style), Segment(text[at:end], _MATCH), Segment(text[end:], style)]


@lru_cache(64)
def _rail_style(color: int, is_active: bool) -> Style:
    return Style(color=f"color({color})", dim=not is_active)


class TreeScreen(ActionScreen[None]):
    """One session as a tree."""

    undo_key = "U"
    DEFAULT_CSS = """
    TreeScreen #find { display: none; border: none; height: 1; padding: 0 1; }
    TreeScreen.finding #find { display: block; }
    TreeScreen #tree { width: 1fr; }
    TreeScreen EntryPanel { width: 45%; display: none; }
    TreeScreen.panel EntryPanel { display: block; }
    """
    BINDINGS: ClassVar[list[BindingType]] = make_bindings(_BACK, _HELP, *_KEYS)

    def __init__(
        self,
        session: Session | Callable[[], Session],
        title: str = "",
    ) -> None:
        """`session` may be a function that opens it: it runs in the background, and the screen closes the session."""
        super().__init__()
        self._opened = session if isinstance(session, Session) else None
        self._open = None if isinstance(session, Session) else session
        self._title = title
        self._source: TreeSource | None = None
        self._wanted: TreeRows | None = None
        """The rows that were asked for; they are shown when they are arranged."""
        self._anchor: int | None = None
        """The node that views are arranged around, as long as the user does not move: a view may not show it."""
        self._anchor_row: int | None = None
        """The row that the cursor was put on for it."""

    def compose(self) -> ComposeResult:
        yield TextRow(id="title")
        yield Input(placeholder="Find in this session", id="find", select_on_focus=False)
        with Horizontal():
            yield LineList(id="tree")
            yield EntryPanel(id="panel")
        yield TextRow(id="status")
        yield KeyFooter()

    def on_mount(self) -> None:
        self.query_one("#title", TextRow).show(f" {one_line(self._title)}  reading…")
        self.query_one("#tree").focus()
        self._load()

    def on_unmount(self) -> None:
        if self._open is not None and self._opened is not None:
            self._opened.close()

    def on_resize(self, event: Resize) -> None:
        self.set_class(event.size.width >= _WIDE, "panel")

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002 - Textual's
        """Only leaving and help work while the session is being read."""
        return self._source is not None or action in ("back", "help")

    @work(thread=True, exclusive=True, group="load")
    def _load(self) -> None:
        worker = get_current_worker()
        try:
            if self._opened is None:
                assert self._open is not None
                self._opened = self._open()
            rows = TreeRows(self._opened, find_marks(self._opened))
        except (SessionTreeError, OSError) as error:
            self.app.call_from_thread(self._fail, error)
            return
        if not worker.is_cancelled:
            self.app.call_from_thread(self._loaded, rows)

    def _fail(self, error: Exception) -> None:
        self.report(error)
        if self._source is None and self.is_current:
            self.dismiss()

    def _loaded(self, rows: TreeRows) -> None:
        if not self.is_attached:
            return
        source = TreeSource(rows)
        keep = None
        if self._source is not None:
            before = self._source
            if before.rows.leaf == rows.leaf:
                keep = self.selected
            if (self.wanted.filter, self.wanted.unfolded) != (rows.filter, rows.unfolded):
                rows.filter, rows.unfolded = self.wanted.filter, self.wanted.unfolded
                rows.rearrange()
            source.format, source.marked, source.match = before.format, before.marked, before.match
        self._source, self._wanted, self._anchor = source, rows, None
        kept = rows.row_of(rows.session.node_of(keep)) if keep is not None and keep in rows.session else None
        self._show(rows.here if kept is None else kept)
        self._show_title()
        self.refresh_bindings()
        if len(self.session) >= _LARGE:
            self.set_timer(_AHEAD, lambda: self._arrange_ahead(rows))

    @work(thread=True, exclusive=True, group="ahead")
    def _arrange_ahead(self, rows: TreeRows) -> None:
        rows.arrange_views(FILTERS)

    # Rows

    @property
    def session(self) -> Session:
        assert self._opened is not None, "the session is still being read"
        return self._opened

    @property
    def source(self) -> TreeSource:
        assert self._source is not None, "the tree is still being read"
        return self._source

    @property
    def wanted(self) -> TreeRows:
        assert self._wanted is not None, "the tree is still being read"
        return self._wanted

    def _show(self, row: int | None) -> None:
        self.query_one("#tree", LineList).show_rows(self.source, row)
        self._show_status()

    def _show_title(self) -> None:
        entries = plural(len(self.session), "entry", "entries")
        branches = plural(count_tips(self.session), "branch", "branches")
        title = one_line(self.session.name or self._title or self.session.id)
        self.query_one("#title", TextRow).show(f" {title} · {self.session.dialect.name} · {entries} · {branches}")

    def _show_status(self) -> None:
        rows = self.source.rows
        marked = f" · {len(self.source.marked)} marked" if self.source.marked else ""
        match = f" · /{one_line(self.source.match)}" if self.source.match else ""
        self.query_one("#status", TextRow).show(f" view: {rows.filter} · {plural(len(rows), 'row')}{marked}{match}")

    @property
    def selected(self) -> str | None:
        """The id of the entry under the cursor."""
        row = self.query_one("#tree", LineList).cursor
        return None if row is None or self._source is None else self.source.rows.id_of(row)

    @on(LineList.Highlighted)
    def _show_entry(self, event: LineList.Highlighted) -> None:
        if event.row is not None and self._source is not None and event.row < len(self.source):
            rows = self.source.rows
            self.query_one(EntryPanel).show(self.session, rows[event.row].nodes)

    def _arrange(self, rows: TreeRows, keep: int | None) -> None:
        """Arrange rows and show them with the cursor at a node; those of large trees in the background."""
        self._wanted = rows
        if len(self.session) < _LARGE or rows.is_arranged:
            rows.rearrange()
            self._show_arranged(rows, keep)
        else:
            self._arrange_large(rows, keep)

    @work(thread=True, exclusive=True, group="arrange")
    def _arrange_large(self, rows: TreeRows, keep: int | None) -> None:
        rows.rearrange()
        self.app.call_from_thread(self._show_arranged, rows, keep)

    def _show_arranged(self, rows: TreeRows, keep: int | None) -> None:
        if rows is self._wanted and self.is_attached:  # else another view was chosen meanwhile
            self.source.rows = rows
            self._show(rows.row_of(keep))
            self._anchor, self._anchor_row = keep, self.query_one("#tree", LineList).cursor

    @property
    def _selected_node(self) -> int | None:
        return self.session.node_of(self.selected)

    @property
    def _place(self) -> int | None:
        """The node that another view is arranged around: `_anchor` until the user moves, then the selected one."""
        is_unmoved = self.query_one("#tree", LineList).cursor == self._anchor_row and self._anchor is not None
        return self._anchor if is_unmoved else self._selected_node

    # Views

    def action_back(self) -> None:
        """Esc: from the box to the tree, then forget the match, the marks and the filter, then leave."""
        find = self.query_one("#find", Input)
        if self.focused is find:
            self.remove_class("finding")
            self.query_one("#tree").focus()
        elif self._source is not None and (self.source.match or self.source.marked):
            self.source.match, self.source.marked = "", []
            self.query_one("#tree", LineList).repaint()
            self._show_status()
        elif self._source is not None and self.source.rows.filter != "default":
            self.action_filter("default")
        else:
            self.dismiss()

    def action_filter(self, name: TreeFilter) -> None:
        rows = self.wanted.copy()
        rows.filter = "default" if rows.filter == name else name
        self._arrange(rows, self._place)

    def action_next_filter(self) -> None:
        self.action_filter(FILTERS[(FILTERS.index(self.wanted.filter) + 1) % len(FILTERS)])

    def action_fold(self, is_folded: bool) -> None:
        row = self.query_one("#tree", LineList).cursor
        if row is None or self.wanted is not self.source.rows:
            return
        rows = self.wanted.copy()
        node = rows.set_fold(row, is_folded=is_folded)
        if node is None:
            return
        if rows.splice_fold(node):
            self._wanted = rows
            self._show_arranged(rows, node)
        else:
            self._arrange(rows, node)

    def action_times(self) -> None:
        self.source.format = RowFormat(with_times=not self.source.format.with_times)
        self.query_one("#tree", LineList).repaint()

    def action_toggle_panel(self) -> None:
        self.toggle_class("panel")

    def action_scroll_panel(self, pages: int) -> None:
        self.query_one(EntryPanel).scroll_pages(pages)

    def action_help(self) -> None:
        self.app.push_screen(PageDialog("Keys", make_help(*_LIST_KEYS, *_KEYS, _BACK, after=_LEGEND)))

    def action_find(self) -> None:
        self.add_class("finding")
        self.query_one("#find").focus()

    @on(Input.Changed, "#find")
    def _set_match(self, event: Input.Changed) -> None:
        self.source.match = event.value.lower()
        self.query_one("#tree", LineList).repaint()
        self._show_status()
        if event.value:
            self.set_timer(_DELAY, lambda: self._find_typed(event.value.lower()))

    def _find_typed(self, match: str) -> None:
        if self.query_one("#find").has_focus and match == self.source.match:
            self._start_find(match, 1, from_here=True)

    @on(Input.Submitted, "#find")
    def _find_first(self) -> None:
        self.remove_class("finding")
        self.query_one("#tree").focus()
        if self.source.match:
            self._start_find(self.source.match, 1, from_here=True)

    def action_next_match(self, step: int) -> None:
        if not self.source.match:
            self.notify("Press / to find text in this session.")
            return
        self._start_find(self.source.match, step, from_here=False)

    def _start_find(self, match: str, step: int, *, from_here: bool) -> None:
        cursor = self.query_one("#tree", LineList).cursor
        if cursor is not None:
            self._find(match, self.source.rows, cursor if from_here else cursor + step, step)

    @work(thread=True, exclusive=True, group="find")
    def _find(self, match: str, rows: TreeRows, first: int, step: int) -> None:
        """Go to the next entry with a text, even if it is folded. Entries are decoded in the background."""
        worker, count = get_current_worker(), len(rows)
        order = (rows[(first + step * distance) % count].nodes for distance in range(count))
        nodes = [node for of_row in order for node in (of_row if step > 0 else reversed(of_row))]
        for start in range(0, len(nodes), _STEP):
            part = nodes[start : start + _STEP]
            for node, entry in zip(part, rows.journal.iter_entries(part), strict=True):
                if worker.is_cancelled:
                    return
                if match in entry_text(entry).lower():
                    self.app.call_from_thread(self._found, rows, match, node)
                    return
        self.app.call_from_thread(self.notify, f"No match for {clean(match)}", markup=False)

    def _found(self, rows: TreeRows, match: str, node: int) -> None:
        if self._source is None or rows is not self.source.rows or match != self.source.match:
            return  # the tree or the text has changed
        row = rows.row_of(node)
        if row is None or rows.nodes[row] != node:
            revealed = self.wanted.copy()
            revealed.reveal(node)
            self._arrange(revealed, node)
        else:
            self.query_one("#tree", LineList).move_to(row)

    def action_mark(self) -> None:
        if self.selected is None:
            return
        marked = self.source.marked
        if self.selected in marked:
            marked.remove(self.selected)
        else:
            marked.append(self.selected)
        self.query_one("#tree", LineList).repaint()
        self._show_status()

    def action_copy(self) -> None:
        if self.selected is not None:
            self.app.copy_to_clipboard(plain_text(self.session.entry(self.selected)))
            self.notify("Copied the entry's text.")

    # Actions

    @on(LineList.Chosen)
    def _go(self) -> None:
        """Go to the selected entry; a prompt: to just before it."""
        if self.selected is None:
            return
        entry = self.session.entry(self.selected)
        is_prompt = isinstance(entry, MessageEntry) and isinstance(entry.message, User)
        target = self.session.parent(entry.id) if is_prompt else entry.id
        if target == self.session.leaf:
            self.notify("This is the current entry.")
            return
        prompt = message_text(entry.message) if is_prompt and isinstance(entry, MessageEntry) else ""

        def switch(**how: Any) -> None:
            self.go_to(entry.id, target, prompt, **how)

        options = (("no", "No summary"), ("yes", "Summarize the branch you are leaving"), ("focus", "… with a focus"))

        def answered(answer: str | None) -> None:
            match answer:
                case "no":
                    switch()
                case "yes":
                    switch(summarize=True, confirm=True)
                case "focus":
                    self.app.push_screen(TextDialog("What should the summary focus on?"), focused)

        def focused(text: str | None) -> None:
            if text is not None:
                switch(summarize=True, instructions=text, confirm=True)

        self.app.push_screen(MenuDialog("Summarize the branch you are leaving?", options), answered)

    def go_to(self, chosen: str, target: str | None, prompt: str, **how: Any) -> None:  # noqa: ARG002
        """Switch to `target`: the chosen entry, or just before it if it is a prompt, whose text is copied then."""

        def went() -> None:
            if prompt:
                self.app.copy_to_clipboard(prompt)
                self.app.notify("Copied the prompt's text.")

        self.do("switch", self.session, entry=target, then=went, **how)

    def action_label(self) -> None:
        id = self.selected
        if id is None:
            return

        def label(text: str | None) -> None:
            if text is not None:
                self.do("label", self.session, entry=id, text=text or None)

        self.app.push_screen(TextDialog("Label (empty removes it)", self.source.rows.labels.get(id, "")), label)

    def action_diff(self) -> None:
        marked = self.source.marked
        if len(marked) > 2:
            self.notify(f"{len(marked)} entries are marked; mark two to compare them.", severity="warning")
        elif len(marked) == 2:
            self._compare(marked[0], marked[1])
        elif self.selected is not None and self.session.leaf is not None:
            self._compare(marked[0] if marked else self.session.leaf, self.selected)

    def action_merge(self) -> None:
        self._with_selected(lambda id: self.do("merge", self.session, entry=id, confirm=True))

    def action_pick(self) -> None:
        entries = self.source.marked or ([self.selected] if self.selected else [])
        if entries:
            self.do("pick", self.session, entries=entries, confirm=True)

    def action_prune(self) -> None:
        self._with_selected(lambda id: self.do("prune", self.session, entry=id, confirm=True))

    def action_fork(self) -> None:
        self._with_selected(lambda id: self.do("fork", self.session, entry=id))

    def action_leave_out(self) -> None:
        """Leave an entry out of the context or, if it is left out already, take it in again."""
        id = self.selected
        if id is None:
            return
        session, workbench = self.session, self.app.workbench

        def plan() -> ActionPlan[Any]:
            try:
                return workbench.plan("leave-out", session, entries=[id])
            except UsageError as error:
                try:
                    return workbench.plan("take-in", session, entries=[id])
                except UsageError:
                    raise error from None  # it was not left out, so the first reason is the one to show

        self.in_background(plan, self.carry_out)

    def action_undo_compaction(self) -> None:
        """Undo the selected compaction, or else the last one. One that the agent itself wrote has to be selected."""
        node = self._selected_node
        is_named = node is not None and self.source.rows.is_compaction(node)
        self.do("undo-compaction", self.session, entry=self.selected if is_named else None, confirm=True)

    def _with_selected(self, act: Callable[[str], object]) -> None:
        if self.selected is not None:
            act(self.selected)

    def _compare(self, one: str, other: str) -> None:
        session, width = self.session, PageDialog.text_width(self.app.size.width)

        def compare() -> list[str]:
            from sessiontree.app.actions.diff import plan_diff  # not needed for the first frame
            from sessiontree.views.diff import draw_diff

            return list(draw_diff(plan_diff(session, one, other).found, width, str, str))

        def show(lines: list[str]) -> None:
            title, *text = lines
            self.app.push_screen(PageDialog(title, "\n".join(text), is_wide=True))

        self.in_background(compare, show)

    def after_action(self, done: Done[Any]) -> None:
        self._opened = done.session or self.session
        self.source.marked = []
        self._load()
