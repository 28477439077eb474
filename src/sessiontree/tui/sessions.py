"""The list of sessions: type to filter, Enter resumes, letters act on the selected session."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec.structs import replace
from textual import on, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.events import Key, Resize
from textual.widgets import Input
from textual.worker import Worker, get_current_worker

from sessiontree.app.actions.contract import ActionPlan, Description, Done
from sessiontree.app.session_list import (
    GROUPS,
    SORTS,
    ListOptions,
    complete_filter,
    list_sessions,
    searched_words,
    with_hits,
)
from sessiontree.errors import SessionTreeError
from sessiontree.library.summary import Summary
from sessiontree.search.query_parser import FILTERS, parse
from sessiontree.tui.action_flow import ActionScreen
from sessiontree.tui.dialogs import MenuDialog, PageDialog, PlanDialog, TextDialog
from sessiontree.tui.key_table import KeyFooter, KeyRow, Shortcut, make_bindings, make_help
from sessiontree.tui.line_list import LineList, TextRow
from sessiontree.tui.preview_panel import PreviewPanel
from sessiontree.tui.requests import Chat, Resume
from sessiontree.tui.session_rows import SessionRows
from sessiontree.views.text import clean, one_line, plural

if TYPE_CHECKING:
    from sessiontree.search.results import Hit

_SEARCH_DELAY = 0.25
"""Seconds without a key before the text of sessions is searched."""
_MAX_HITS = 60
_BEFORE_MATCH = 6
_WIDE = 110
_INSTEAD = "In the list: t shows the tree, c continues in a chat here, o in another agent."

_LIST_KEYS = (
    KeyRow("Enter", "resume in the session's own agent", Shortcut("enter", "resume", "Resume")),
    KeyRow("?", "this help", Shortcut("question_mark", "help", "Help", "?")),
    KeyRow("c", "continue in sessiontree's own chat", Shortcut("c", "chat", "Chat")),
    KeyRow("o", "resume in another agent (shows what is lost first)", Shortcut("o", "other_agent", "In agent")),
    KeyRow("t", "show the tree", Shortcut("t", "tree", "Tree")),
    KeyRow(
        "r  #  p",
        "rename, change tags, pin",
        Shortcut("r", "rename", "Rename"),
        Shortcut("number_sign", "tag", "Tags", "#"),
        Shortcut("p", "pin", "Pin"),
    ),
    KeyRow(
        "a", "move to the archive; u undoes the last action", Shortcut("a", "archive", "Archive"), Shortcut("u", "undo")
    ),
    KeyRow("h", "check for problems, repair", Shortcut("h", "health", "Health")),
    KeyRow("e", "export", Shortcut("e", "export", "Export")),
    KeyRow(
        "s  g",
        "change the order, group by project, agent or tag",
        Shortcut("s", "next_sort"),
        Shortcut("g", "next_group"),
    ),
    KeyRow(
        "→ ←",
        "show or hide a session's sub-agents",
        Shortcut("right", "unfold(True)"),
        Shortcut("left", "unfold(False)"),
    ),
    KeyRow("/", "back to the box", Shortcut("slash", "focus_box")),
)
"""Keys of the list, which act on the selected session."""
_SCREEN_KEYS = (
    KeyRow("Ctrl+Y", "copy the command that resumes the session", Shortcut("ctrl+y", "copy", "Copy")),
    KeyRow("Ctrl+P", "show or hide the preview", Shortcut("ctrl+p", "toggle_preview")),
    KeyRow("Tab", "this project or all (if the box is empty)"),
    KeyRow("Esc", "go back one level", Shortcut("escape", "back")),
    KeyRow("F1", "this help, even while you type", Shortcut("f1", "help")),
)
_ABOUT = """Type to filter by title, project and git branch. Matching is fuzzy: flklog finds "flaky login".
Filters: agent:claude project:api since:2d tag:wip is:error; Tab completes them.
After a short pause, their text is searched as well; the hit is shown after the title."""


_MOVES = {"down": 1, "pagedown": 10, "up": -1, "pageup": -10}


_BOX_KEYS = (
    KeyRow("Enter", "resume", Shortcut("enter", "submit", "Resume")),
    KeyRow("Down", "move to the list", Shortcut("down", "screen.enter_list", "List")),
    KeyRow("Tab", "complete; this project, or all", Shortcut("tab", "screen.complete", "This project or all")),
    KeyRow("F1", "this help", Shortcut("f1", "screen.help", "Help")),
)
"""Keys of the box, for the footer."""


class FilterBox(Input):
    """The search box. Keys that move a cursor move the focus to the list."""

    BINDINGS: ClassVar[list[BindingType]] = make_bindings(*_BOX_KEYS)

    def __init__(self, leave: Callable[[str], object]) -> None:
        super().__init__(placeholder="Type to find a session", id="box", select_on_focus=False)
        self._leave = leave

    async def _on_key(self, event: Key) -> None:
        focused = self.screen.focused
        if event.key in _MOVES and focused is self:
            event.stop()
            event.prevent_default()
            self._leave(event.key)
        elif focused is not None and focused is not self:
            # Pressed right after a key that led to the list, and delivered here before the focus had moved.
            event.stop()
            event.prevent_default()
            focused.post_message(Key(event.key, event.character))
        else:
            await super()._on_key(event)


class SessionsScreen(ActionScreen[None]):
    """All sessions of all agents: the cached ones at once, refreshed in the background."""

    DEFAULT_CSS = """
    SessionsScreen #box { border: none; height: 1; padding: 0 1; background: $surface; }
    SessionsScreen #list { width: 1fr; }
    SessionsScreen PreviewPanel { width: 42%; display: none; }
    SessionsScreen.preview PreviewPanel { display: block; }
    """
    BINDINGS: ClassVar[list[BindingType]] = make_bindings(*_SCREEN_KEYS)

    def __init__(self, *, everywhere: bool = False) -> None:
        super().__init__()
        self._options = ListOptions()
        self._is_everywhere = everywhere
        self._chose_scope = everywhere
        """Whether the user chose to see all projects or one; else it follows from what was found so far."""
        self._rows = SessionRows(list_sessions(()))
        self._known: tuple[Summary, ...] = ()
        self._tags: Mapping[str, Sequence[str]] = {}
        self._pinned: frozenset[str] = frozenset()
        self._copies: Mapping[str, str] = {}
        self._hits: list[Hit] = []
        self._search_timer: Any = None
        self._is_scanning = True
        self._error = ""

    def compose(self) -> ComposeResult:
        yield FilterBox(self._enter_list)
        yield TextRow(id="status")
        yield TextRow(id="heading")
        with Horizontal():
            yield SessionLineList(id="list")
            yield PreviewPanel(id="preview")
        yield TextRow(id="command")
        yield KeyFooter()

    def on_mount(self) -> None:
        self._known = self.app.workbench.library.snapshot().sessions
        self._choose_scope()
        self._show()
        self.query_one("#box").focus()
        self.call_after_refresh(self.refresh_list)

    def on_resize(self, event: Resize) -> None:
        self.set_class(event.size.width >= _WIDE, "preview")

    # Rows

    def _is_in_project(self, summary: Summary) -> bool:
        return self.app.workbench.is_in_project(summary)

    def _show(self, keep: str | None = None, *, from_scan: bool = False) -> None:
        """Arrange the rows again; the cursor stays on its session. After a scan, one on the first row stays there."""
        line_list = self.query_one("#list", LineList)
        is_first = from_scan and line_list.cursor == line_list.first
        selected = keep or (self.selected.ref if self.selected is not None and not is_first else None)
        in_scope = None if self._is_everywhere else self._is_in_project
        found = list_sessions(
            self._known,
            self._options,
            is_in_scope=in_scope,
            tags=self._tags,
            copies=self._copies,
            problem=self.app.workbench.problem,
        )
        snippets = {hit.session.ref: _snippet_text(hit) for hit in reversed(self._hits)}
        if self._hits:
            found = with_hits(found, [hit.session for hit in self._hits])
        words = searched_words(self._options.query)
        self._rows = SessionRows(
            found,
            words,
            snippets,
            self._tags,
            self._pinned,
            with_project=self._is_everywhere,
            now=self.app.workbench.now(),
        )
        row = None if selected is None or self._options.query else self._rows.row_of(selected)
        line_list.show_rows(self._rows, row)
        self._show_heading()
        self._show_status()

    @on(LineList.Resized)
    def _show_heading(self) -> None:
        width = self.query_one("#list", LineList).line_width
        if width > 0:
            self.query_one("#heading", TextRow).show(self._rows.heading(width))

    def _show_status(self) -> None:
        scope = "all projects" if self._is_everywhere else f"this project ({os.path.basename(self.app.workbench.cwd)})"
        order = "" if self._options.sort == "recent" else f" · by {self._options.sort}"
        group = "" if self._options.group == "none" else f" · grouped by {self._options.group}"
        scanning = " · refreshing…" if self._is_scanning else ""
        notes = "".join(f" · {note}" for note in self._rows.found.notes)
        error = f" · {self._error}" if self._error else ""
        shown = plural(self._rows.found.sessions, "session")
        is_elsewhere = not self._rows.found.sessions and not self._is_everywhere and not self._is_scanning
        hint = " · Tab: all projects" if is_elsewhere else ""
        text = f"{shown} · {scope}{hint}{order}{group}{scanning}{error}{notes}"
        self.query_one("#status", TextRow).show(f" {one_line(text)}")

    @property
    def selected(self) -> Summary | None:
        """The session under the cursor."""
        return self._rows.summary(self.query_one("#list", LineList).cursor)

    @on(LineList.Highlighted)
    def _show_selected(self) -> None:
        summary = self.selected
        self.query_one(PreviewPanel).show(summary)
        command = self.app.workbench.resume_command(summary) if summary is not None else ""
        self.query_one("#command", TextRow).show(f" {one_line(self.app.workbench.with_short_paths(command))}")

    # Background work

    @work(thread=True, exclusive=True, group="scan")
    def _scan(self) -> None:
        """Scan the disk, and show what has changed from time to time."""
        worker = get_current_worker()
        snapshot = self.app.workbench.library.snapshot()
        changed, error = 0, ""
        try:
            for _ in snapshot.follow():
                changed += 1
                if worker.is_cancelled:
                    return
                if changed in (1, 10) or changed % 500 == 0:
                    self.app.call_from_thread(self._update, snapshot.sessions, True, "")
        except (SessionTreeError, OSError) as failure:
            error = str(failure)
        self.app.call_from_thread(self._update, snapshot.sessions, False, error)

    def _update(self, sessions: tuple[Summary, ...], is_scanning: bool, error: str) -> None:
        self._known, self._is_scanning, self._error = sessions, is_scanning, error
        self._choose_scope()
        if not is_scanning:
            self._load_tags()  # sessions that were found meanwhile may have some
        self._show(from_scan=True)

    def _choose_scope(self) -> None:
        """Show all projects as long as this one has no sessions, unless the user chose."""
        if not self._chose_scope and self._known:
            self._is_everywhere = not any(map(self._is_in_project, self._known))

    @work(thread=True, exclusive=True, group="tags")
    def _load_tags(self) -> None:
        tags, pinned = self.app.workbench.read_tags()
        self.app.call_from_thread(self._set_tags, tags, pinned, self.app.workbench.library.read_copies())

    def _set_tags(self, tags: Mapping[str, Sequence[str]], pinned: frozenset[str], copies: Mapping[str, str]) -> None:
        self._tags, self._pinned, self._copies = tags, pinned, copies
        self._show()

    @on(Input.Changed, "#box")
    def _filter(self, event: Input.Changed) -> None:
        self._options = replace(self._options, query=event.value)
        self._hits = []
        self._show()
        if self._search_timer is not None:
            self._search_timer.stop()
        query = parse(event.value)
        if query.where is not None:
            self._search_timer = self.set_timer(_SEARCH_DELAY, lambda: self._search(event.value))

    @work(thread=True, exclusive=True, group="search")
    def _search(self, text: str) -> None:
        worker: Worker[None] = get_current_worker()
        hits = self.app.workbench.search(text, limit=_MAX_HITS, in_project=not self._is_everywhere)
        if not worker.is_cancelled:
            self.app.call_from_thread(self._set_hits, text, hits)

    def _set_hits(self, text: str, hits: list[Hit]) -> None:
        if text == self._options.query:  # else the user has typed something else meanwhile
            self._hits = hits
            self._show()

    # Keys

    def _enter_list(self, key: str) -> None:
        """Go from the box to the list with a key that moves the cursor."""
        line_list = self.query_one("#list", LineList)
        self.set_focus(line_list)
        if key != "down" or line_list.cursor != 0 or not self.query_one("#box", Input).value:
            line_list.action_move(_MOVES[key])

    def action_enter_list(self) -> None:
        self._enter_list("down")

    def action_complete(self) -> None:
        self._complete(self.query_one("#box", Input))

    def on_key(self, event: Key) -> None:
        box = self.query_one("#box", Input)
        if event.key == "tab" and (self.focused is box or not box.value):
            event.stop()
            event.prevent_default()
            self._complete(box)

    @on(Input.Submitted, "#box")
    def _submit(self) -> None:
        self.action_resume()

    @on(LineList.Chosen)
    def _choose(self) -> None:
        self.action_resume()

    def _complete(self, box: Input) -> None:
        if not box.value:
            self._is_everywhere, self._chose_scope = not self._is_everywhere, True
            self._show()
            return
        completed = complete_filter(box.value, self.app.workbench.filter_values(self._known, self._tags), FILTERS)
        if completed is not None:
            box.value = completed
            box.cursor_position = len(completed)

    def action_back(self) -> None:
        """Esc: from the list to the box, then clear the box, then leave."""
        box = self.query_one("#box", Input)
        if self.focused is not box:
            box.focus()
        elif box.value:
            box.value = ""
        else:
            self.app.exit()

    def action_focus_box(self) -> None:
        self.query_one("#box").focus()

    def action_toggle_preview(self) -> None:
        self.toggle_class("preview")
        self.call_after_refresh(self._show_selected)

    def action_help(self) -> None:
        self.app.push_screen(PageDialog("Keys", make_help(*_LIST_KEYS, *_SCREEN_KEYS, before=_ABOUT)))

    def action_next_sort(self) -> None:
        sort = SORTS[(SORTS.index(self._options.sort) + 1) % len(SORTS)]
        self._options = replace(self._options, sort=sort)
        self._show()

    def action_next_group(self) -> None:
        group = GROUPS[(GROUPS.index(self._options.group) + 1) % len(GROUPS)]
        self._options = replace(self._options, group=group)
        self._show()

    def action_unfold(self, is_unfolded: bool) -> None:
        summary = self.selected
        if summary is not None:
            ref = summary.parent if summary.kind == "subagent" and summary.parent else summary.ref
            change = self._options.unfolded | {ref} if is_unfolded else self._options.unfolded - {ref}
            self._options = replace(self._options, unfolded=change)
            self._show(keep=ref)

    def action_resume(self) -> None:
        def resume(summary: Summary) -> None:
            # A native session belongs to no other agent.
            if self.app.workbench.is_native(summary):
                self.app.leave(Chat(summary.ref))
            elif program := self.app.workbench.find_missing_program(summary):
                self.notify(
                    f"{program} is not installed or not on the PATH. {_INSTEAD}", severity="warning", timeout=10
                )
            else:
                self.app.leave(Resume(summary.ref))

        self._with_selected(resume)

    def action_chat(self) -> None:
        self._with_selected(lambda summary: self.app.leave(Chat(summary.ref)))

    def action_copy(self) -> None:
        def copy(summary: Summary) -> None:
            command = self.app.workbench.resume_command(summary)
            self.app.copy_to_clipboard(command)
            self.notify(clean(command), title="Copied")

        self._with_selected(copy)

    def action_tree(self) -> None:
        from sessiontree.tui.tree import TreeScreen  # not needed for the first frame

        def show(summary: Summary) -> None:
            tree = TreeScreen(lambda: self.app.workbench.open_session(summary), summary.title)
            # A fork or a new name made there is shown here.
            self.app.push_screen(tree, lambda _: self.refresh_list())

        self._with_selected(show)

    def action_rename(self) -> None:
        def ask(summary: Summary) -> None:
            def rename(name: str | None) -> None:
                if name is not None:
                    self.do("rename", summary, name=name)

            self.app.push_screen(TextDialog("Rename the session", summary.title), rename)

        self._with_selected(ask)

    def action_tag(self) -> None:
        def ask(summary: Summary) -> None:
            before = tuple(tag for tag in self._tags.get(summary.ref, ()) if tag not in summary.tags)

            def change(text: str | None) -> None:
                if text is not None:
                    after = tuple(text.replace(",", " ").split())
                    add = [tag for tag in after if tag not in before]
                    remove = [tag for tag in before if tag not in after]
                    self.do("tag", summary, add=add, remove=remove)

            self.app.push_screen(TextDialog("Tags, separated by spaces", " ".join(before)), change)

        self._with_selected(ask)

    def action_pin(self) -> None:
        self._with_selected(lambda summary: self.do("pin", summary, pinned=summary.ref not in self._pinned))

    def action_archive(self) -> None:
        self._with_selected(lambda summary: self.do("archive", summary, confirm=True))

    def action_export(self) -> None:
        def ask(summary: Summary) -> None:
            def export(path: str | None) -> None:
                if path:
                    self.do("export", summary, path=os.path.abspath(os.path.expanduser(path)))

            name = f"{summary.id[:8]}.html"
            self.app.push_screen(TextDialog("Export to (.html, .md, .txt, .json or .jsonl)", name), export)

        self._with_selected(ask)

    def action_health(self) -> None:
        self._with_selected(lambda summary: self._examine(summary))

    def action_other_agent(self) -> None:
        def choose(summary: Summary) -> None:
            options = [(name, name) for name in self.app.workbench.agents() if name != summary.agent]

            def plan(agent: str | None) -> None:
                if agent is not None:
                    self._plan_other_agent(summary, agent)

            self.app.push_screen(MenuDialog("Resume in", options), plan)

        self._with_selected(choose)

    # Actions

    def _with_selected(self, act: Callable[[Summary], object]) -> None:
        summary = self.selected
        if summary is None:
            self.notify("No session is selected.")
            return
        try:
            act(summary)
        except (SessionTreeError, OSError) as error:
            self.report(error)

    def after_action(self, done: Done[Any]) -> None:  # noqa: ARG002 - the list shows what is on disk
        self.refresh_list()

    def refresh_list(self) -> None:
        """Read tags and scan the disk again."""
        self._load_tags()
        self._scan()

    def _examine(self, summary: Summary) -> None:
        def show(found: tuple[list[str], ActionPlan[Any] | None]) -> None:
            lines, plan = found
            if plan is None:
                self.app.push_screen(PageDialog("Health", "\n".join(lines)))
            else:
                self.confirm(plan, replace(plan.describe(), lines=tuple(lines)))

        self.in_background(lambda: self.app.workbench.examine(summary), show)

    def _plan_other_agent(self, summary: Summary, agent: str) -> None:
        def answered(is_confirmed: bool | None) -> None:
            if is_confirmed:
                self.app.leave(Resume(summary.ref, agent))

        def show(description: Description) -> None:
            self.app.push_screen(PlanDialog(description), answered)

        self.in_background(lambda: self.app.workbench.describe_conversion(summary, agent), show)


class SessionLineList(LineList):
    """The list of sessions with the keys that act on the selected one."""

    BINDINGS: ClassVar[list[BindingType]] = make_bindings(*_LIST_KEYS, target="screen.")


def _snippet_text(hit: Hit) -> str:
    """The text of a hit from just before the first match, because rows are short."""
    before = ""
    for at, part in enumerate(hit.snippet):
        if part.is_hit:
            start = f"…{before[-_BEFORE_MATCH:]}" if len(before) > _BEFORE_MATCH else before
            return start + "".join(rest.text for rest in hit.snippet[at:])
        before += part.text
    return before
