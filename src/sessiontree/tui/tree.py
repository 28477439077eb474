"""The tree of a session: walk it with the arrows, go to any entry, compare, merge, pick, label, prune and fork."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.events import Resize
from textual.screen import Screen
from textual.widgets import Footer, Input

from sessiontree.app.actions.contract import ActionPlan
from sessiontree.branches.tips import count_tips
from sessiontree.core.entries import MessageEntry
from sessiontree.core.messages import User
from sessiontree.errors import SessionTreeError
from sessiontree.explore.branch_labels import find_marks
from sessiontree.session.session import Session
from sessiontree.tui.dialogs import MenuDialog, PageDialog, PlanDialog, TextDialog
from sessiontree.tui.entry_panel import EntryPanel
from sessiontree.tui.line_list import LineList, TextRow
from sessiontree.views.graph import clock
from sessiontree.views.text import clean, columns, fitted, one_line, plural
from sessiontree.views.tree_rows import FILTERS, TreeFilter, TreeRows

if TYPE_CHECKING:
    from sessiontree.tui.app import SessionTreeApp

_WIDE = 110
_SPEAKER = 9
_LANE_COLORS = ("cyan", "magenta", "green", "yellow", "blue", "bright_red", "bright_cyan", "bright_magenta")
_DIM = Style(dim=True)
_MATCH = Style(bold=True, reverse=True)
_LABEL = Style(color="yellow")
_HERE = Style(color="green", bold=True)
_SPEAKERS = {"user": Style(color="cyan", bold=True), "assistant": Style(color="green"), "merge": Style(color="magenta")}

HELP = """↑ ↓ PgUp PgDn Home End   move
→ ←         unfold or fold a run of tool calls
Enter       go to the entry; to a prompt: to just before it
Ctrl+U      only your own messages
Ctrl+O      next view: default, no tools, user, labeled, all
/           find; n and N go to the next and the previous match
L           label the entry
T           show or hide times
Space       mark an entry; two marks are compared and picked
d           compare: the two marked branches, or the current one with this one
m           merge this branch into the current one
P           copy the marked entries to the current branch
x           move the branch from here on to the archive
f           start a new session with the history of this entry
e           leave the entry out of the context, or take it in again
u           go back to before the last compaction
U           undo the last action
y           copy the text of the entry
Esc         back out one level"""


class TreeSource:
    """The rows of the list."""

    def __init__(self, rows: TreeRows) -> None:
        self.rows = rows
        self.with_times = False
        self.marked: list[str] = []
        self.match = ""

    def __len__(self) -> int:
        return len(self.rows)

    def is_selectable(self, row: int) -> bool:
        return 0 <= row < len(self.rows)

    def render(self, row: int, width: int) -> list[Segment]:
        rows = self.rows
        shown = rows.rows[row]
        node, id = shown.node, rows.id_of(row)
        is_active = node in rows.active
        is_here = rows.current in shown.nodes
        rails = shown.rails.text(self._dot(row, is_active=is_active))
        lane = Style(color=_LANE_COLORS[rows.lane(row) % len(_LANE_COLORS)], dim=not is_active)
        mark = "✓ " if id in self.marked else ""
        fold = "▸ " if shown.is_folded else ""
        speaker = rows.speaker(row)
        label = rows.labels.get(id)
        right = f"  [{one_line(label)}]" if label else ""
        branch = rows.marks.get(id)
        if branch is not None:
            right += f"  [{branch.texts[-1]}]"
        time = f"  {clock(rows.entry(node).timestamp)}" if self.with_times else ""
        here = "  ◀ here" if is_here else ""
        left = f"{rails} "
        room = width - columns(left) - _SPEAKER - 1 - columns(mark + fold + right + here + time)
        text = fitted(rows.text(row), max(room, 1))
        return [
            Segment(left, lane),
            Segment(mark, _LABEL),
            Segment(fitted(speaker, _SPEAKER) + " ", _SPEAKERS.get(speaker, _DIM)),
            Segment(fold, _DIM),
            *self._with_match(text, None if is_active else _DIM),
            Segment(right, _LABEL),
            Segment(here, _HERE),
            Segment(time, _DIM),
        ]

    def _dot(self, row: int, *, is_active: bool) -> str:
        is_merge = self.rows.id_of(row) in self.rows.merges
        return ("◆" if is_active else "◇") if is_merge else ("●" if is_active else "○")

    def _with_match(self, text: str, style: Style | None) -> list[Segment]:
        lowered = text.lower()
        at = lowered.find(self.match) if self.match and len(lowered) == len(text) else -1
        if at < 0:
            return [Segment(text, style)]
        end = at + len(self.match)
        return [Segment(text[:at], style), Segment(text[at:end], _MATCH), Segment(text[end:], style)]


class TreeScreen(Screen[None]):
    """One session as a tree."""

    app: SessionTreeApp
    DEFAULT_CSS = """
    TreeScreen #find { display: none; border: none; height: 1; padding: 0 1; }
    TreeScreen.finding #find { display: block; }
    TreeScreen #tree { width: 1fr; }
    TreeScreen EntryPanel { width: 45%; border-left: solid $surface-lighten-2; padding: 0 1; display: none; }
    TreeScreen.panel EntryPanel { display: block; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "Back"),
        Binding("ctrl+u", "filter('user')", "Prompts"),
        Binding("ctrl+o", "next_filter", "View"),
        Binding("slash", "find", "Find", key_display="/"),
        Binding("n", "next_match(1)", "Next match", show=False),
        Binding("N", "next_match(-1)", "Previous match", show=False),
        Binding("right", "fold(False)", "Unfold", show=False),
        Binding("left", "fold(True)", "Fold", show=False),
        Binding("L", "label", "Label"),
        Binding("T", "times", "Times", show=False),
        Binding("space", "mark", "Mark"),
        Binding("d", "diff", "Diff"),
        Binding("m", "merge", "Merge"),
        Binding("P", "pick", "Pick"),
        Binding("x", "prune", "Prune"),
        Binding("f", "fork", "Fork"),
        Binding("e", "leave_out", "Leave out", show=False),
        Binding("u", "undo_compaction", "Undo compaction", show=False),
        Binding("U", "undo", "Undo", show=False),
        Binding("y", "copy", "Copy", show=False),
        Binding("question_mark", "help", "Help", key_display="?"),
    ]

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.session = session
        self._source: TreeSource | None = None
        self._undo: ActionPlan[Any] | None = None

    def compose(self) -> ComposeResult:
        yield TextRow(id="title")
        yield Input(placeholder="Find in this session", id="find")
        with Horizontal():
            yield LineList(id="tree")
            yield EntryPanel(id="panel")
        yield TextRow(id="status")
        yield Footer()

    def on_mount(self) -> None:
        self.query_one("#title", TextRow).show(f" {one_line(self.session.name or self.session.id)}  reading…")
        self.query_one("#tree").focus()
        self._load()

    def on_resize(self, event: Resize) -> None:
        self.set_class(event.size.width >= _WIDE, "panel")

    @work(thread=True, exclusive=True, group="load")
    def _load(self) -> None:
        try:
            rows = TreeRows(self.session, find_marks(self.session))
        except (SessionTreeError, OSError) as error:
            self.app.call_from_thread(self._report, error)
            return
        self.app.call_from_thread(self._loaded, rows)

    def _loaded(self, rows: TreeRows) -> None:
        source = TreeSource(rows)
        if self._source is not None:
            before = self._source
            rows.filter, rows.unfolded = before.rows.filter, before.rows.unfolded
            rows.rearrange()
            source.with_times, source.marked, source.match = before.with_times, before.marked, before.match
        self._source = source
        self._show(rows.row_of(rows.current))

    # Rows

    @property
    def source(self) -> TreeSource:
        assert self._source is not None, "the tree is still being read"
        return self._source

    def _show(self, row: int | None) -> None:
        rows = self.source.rows
        self.query_one("#tree", LineList).show_rows(self.source, row)
        entries = plural(len(self.session), "entry", "entries")
        branches = plural(count_tips(self.session), "branch", "branches")
        title = one_line(self.session.name or self.session.id)
        self.query_one("#title", TextRow).show(f" {title} · {self.session.dialect.name} · {entries} · {branches}")
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
        panel = self.query_one(EntryPanel)
        if event.row is not None and self._source is not None and panel.display:
            rows = self.source.rows
            panel.show([rows.entry(node) for node in rows.rows[event.row].nodes[:50]])

    def _rearrange(self, keep: str | None) -> None:
        rows = self.source.rows
        rows.rearrange()
        self._show(rows.row_of(self.session.node_of(keep)))

    # Views

    def action_back(self) -> None:
        """Esc: from the box to the tree, then forget the match, the marks and the filter, then leave."""
        find = self.query_one("#find", Input)
        if self.focused is find:
            self.remove_class("finding")
            self.query_one("#tree").focus()
        elif self._source is not None and (self.source.match or self.source.marked):
            self.source.match, self.source.marked = "", []
            self._rearrange(self.selected)
        elif self._source is not None and self.source.rows.filter != "default":
            self.action_filter("default")
        else:
            self.dismiss()

    def action_filter(self, name: TreeFilter) -> None:
        keep = self.selected
        rows = self.source.rows
        rows.filter = "default" if rows.filter == name else name
        self._rearrange(keep)

    def action_next_filter(self) -> None:
        keep, rows = self.selected, self.source.rows
        rows.filter = FILTERS[(FILTERS.index(rows.filter) + 1) % len(FILTERS)]
        self._rearrange(keep)

    def action_fold(self, is_folded: bool) -> None:
        row = self.query_one("#tree", LineList).cursor
        if row is None:
            return
        rows = self.source.rows
        node, keep = rows.rows[row].node, rows.id_of(row)
        if not is_folded and rows.rows[row].is_folded:
            rows.unfolded.add(node)
        elif is_folded:
            start = self._start_of_run(row)
            if start is None:
                return
            rows.unfolded.discard(start)
        else:
            return
        self._rearrange(keep)

    def _start_of_run(self, row: int) -> int | None:
        """The unfolded run that a row belongs to."""
        rows = self.source.rows
        while row >= 0 and rows.kinds[rows.rows[row].node] in ("calls", "result"):
            if rows.rows[row].node in rows.unfolded:
                return rows.rows[row].node
            row -= 1
        return None

    def action_times(self) -> None:
        self.source.with_times = not self.source.with_times
        self.query_one("#tree", LineList).refresh_rows()

    def action_help(self) -> None:
        self.app.push_screen(PageDialog("Keys", HELP))

    def action_find(self) -> None:
        self.add_class("finding")
        self.query_one("#find").focus()

    @on(Input.Changed, "#find")
    def _set_match(self, event: Input.Changed) -> None:
        self.source.match = event.value.lower()
        self.query_one("#tree", LineList).refresh_rows()

    @on(Input.Submitted, "#find")
    def _find_first(self) -> None:
        self.remove_class("finding")
        self.query_one("#tree").focus()
        self.action_next_match(1)

    def action_next_match(self, step: int) -> None:
        line_list, source = self.query_one("#tree", LineList), self.source
        if not source.match or line_list.cursor is None:
            self.notify("Press / to find a text in this session.")
            return
        count = len(source)
        for distance in range(1, count + 1):
            row = (line_list.cursor + step * distance) % count
            if source.match in source.rows.text(row).lower():
                line_list.move_to(row, step=step)
                return
        self.notify(f"No match for {clean(source.match)}", markup=False)

    def action_mark(self) -> None:
        if self.selected is None:
            return
        marked = self.source.marked
        if self.selected in marked:
            marked.remove(self.selected)
        else:
            marked.append(self.selected)
        self._show(self.query_one("#tree", LineList).cursor)

    def action_copy(self) -> None:
        if self.selected is not None:
            entry = self.session.entry(self.selected)
            self.app.copy_to_clipboard(self.query_one(EntryPanel).text_of([entry]))
            self.notify("Copied the text of the entry.")

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
        options = (("no", "No summary"), ("yes", "Summarize the branch you are leaving"), ("focus", "… with a focus"))

        def answered(answer: str | None) -> None:
            match answer:
                case "no":
                    self._do("switch", entry=target)
                case "yes":
                    self._do("switch", entry=target, summarize=True, confirm=True)
                case "focus":
                    self.app.push_screen(TextDialog("What should the summary focus on?"), focused)

        def focused(text: str | None) -> None:
            if text is not None:
                self._do("switch", entry=target, summarize=True, instructions=text, confirm=True)

        self.app.push_screen(MenuDialog("Summarize the branch you are leaving?", options), answered)

    def action_label(self) -> None:
        id = self.selected
        if id is None:
            return

        def label(text: str | None) -> None:
            if text is not None:
                self._do("label", entry=id, text=text or None)

        self.app.push_screen(TextDialog("Label (empty removes it)", self.source.rows.labels.get(id, "")), label)

    def action_diff(self) -> None:
        marked = self.source.marked
        if len(marked) == 2:
            self._compare(marked[1], marked[0])
        elif self.selected is not None:
            self._compare(self.selected, None)

    def action_merge(self) -> None:
        self._with_selected(lambda id: self._do("merge", entry=id, confirm=True))

    def action_pick(self) -> None:
        entries = self.source.marked or ([self.selected] if self.selected else [])
        if entries:
            self._do("pick", entries=entries, confirm=True)

    def action_prune(self) -> None:
        self._with_selected(lambda id: self._do("prune", entry=id, confirm=True))

    def action_fork(self) -> None:
        self._with_selected(lambda id: self._do("fork", entry=id))

    def action_leave_out(self) -> None:
        def change(id: str) -> None:
            self._leave_out_or_take_in(id)

        self._with_selected(change)

    def action_undo_compaction(self) -> None:
        self._do("undo-compaction", confirm=True)

    def action_undo(self) -> None:
        if self._undo is None:
            self.notify("There is nothing to undo.")
            return
        plan, self._undo = self._undo, None
        self._carry_out(plan)

    def _with_selected(self, act: Callable[[str], object]) -> None:
        if self.selected is not None:
            act(self.selected)

    def _report(self, error: Exception) -> None:
        self.notify(clean(str(error)), severity="error", timeout=10, markup=False)

    @work(thread=True, exclusive=True, group="action")
    def _leave_out_or_take_in(self, id: str) -> None:
        """Leave an entry out of the context or, if it is left out already, take it in again."""
        for action in ("leave-out", "take-in"):
            try:
                plan = self.app.workbench.plan(action, self.session, entries=[id])
            except (SessionTreeError, OSError) as error:
                failure: Exception = error
                continue
            self.app.call_from_thread(self._carry_out, plan)
            return
        self.app.call_from_thread(self._report, failure)

    @work(thread=True, exclusive=True, group="action")
    def _compare(self, entry: str, other: str | None) -> None:
        try:
            found = self.app.workbench.plan("diff", self.session, entry=entry, other=other).describe()
        except (SessionTreeError, OSError) as error:
            self.app.call_from_thread(self._report, error)
            return
        self.app.call_from_thread(self.app.push_screen, PageDialog(found.title, "\n".join(found.lines)))

    @work(thread=True, exclusive=True, group="action")
    def _do(self, action: str, /, *, confirm: bool = False, **arguments: Any) -> None:
        try:
            plan = self.app.workbench.plan(action, self.session, **arguments)
            description = plan.describe()
        except (SessionTreeError, OSError) as error:
            self.app.call_from_thread(self._report, error)
            return
        if confirm or description.warnings:
            self.app.call_from_thread(self._confirm, plan)
        else:
            self.app.call_from_thread(self._carry_out, plan)

    def _confirm(self, plan: ActionPlan[Any]) -> None:
        def answered(is_confirmed: bool | None) -> None:
            if is_confirmed:
                self._carry_out(plan)

        self.app.push_screen(PlanDialog(plan.describe()), answered)

    @work(thread=True, exclusive=True, group="action")
    def _carry_out(self, plan: ActionPlan[Any]) -> None:
        try:
            done = plan.do()
        except (SessionTreeError, OSError) as error:
            self.app.call_from_thread(self._report, error)
            return
        self.app.call_from_thread(self._finish, plan, done.session, done.undo)

    def _finish(self, plan: ActionPlan[Any], session: Session | None, undo: ActionPlan[Any] | None) -> None:
        self.session = session or self.session
        self._undo = undo
        self.source.marked = []
        hint = " Press U to undo." if undo is not None else ""
        self.notify(f"Done: {clean(plan.describe().title)}.{hint}", markup=False)
        self._load()
