"""The tree in the terminal UI, driven by keys."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from rich.text import Text
from textual.pilot import Pilot
from textual.widgets import Input

from sessiontree.app.workbench import Workbench
from sessiontree.session.session import Session
from sessiontree.tui.dialogs import MenuDialog, PageDialog, PlanDialog, TextDialog
from sessiontree.tui.entry_panel import EntryPanel
from sessiontree.tui.line_list import LineList
from sessiontree.tui.sessions import SessionsScreen
from sessiontree.tui.tree import TreeScreen
from sessiontree.views.tree_rows import FILTERS
from tests.tui.conftest import Running, settle, until

Steps = Callable[[Pilot[Any]], Awaitable[None]]


def tree_of(pilot: Pilot[Any]) -> TreeScreen:
    return next(screen for screen in pilot.app.screen_stack if isinstance(screen, TreeScreen))


def rows(pilot: Pilot[Any]) -> list[str]:
    """The visible rows as text, without trailing spaces."""
    line_list = tree_of(pilot).query_one("#tree", LineList)
    shown = [line_list.render_line(y).text.rstrip() for y in range(line_list.size.height)]
    return [row for row in shown if row]


def row_with(pilot: Pilot[Any], text: str) -> int:
    return next(at for at, row in enumerate(rows(pilot)) if text in row)


def cursor_row(pilot: Pilot[Any]) -> str:
    """The text of the row under the cursor."""
    line_list = tree_of(pilot).query_one("#tree", LineList)
    return "" if line_list.cursor is None else line_list.render_line(line_list.cursor - line_list.top).text.rstrip()


async def go_to(pilot: Pilot[Any], text: str) -> None:
    """Move the cursor to the row with a text."""
    await pilot.press("home", *["down"] * row_with(pilot, text))


def walk(running: Running, steps: Steps, size: tuple[int, int] = (160, 40)) -> None:
    """Open the tree of the first session, and carry the steps out."""

    async def run() -> None:
        async with running(size) as pilot:
            await pilot.press("down", "home", "t")
            await until(pilot, lambda: any(isinstance(screen, TreeScreen) for screen in pilot.app.screen_stack))
            await settle(pilot)
            await steps(pilot)

    asyncio.run(run())


def test_branches_have_columns_and_runs_of_calls_are_one_row(running: Running) -> None:
    async def steps(pilot: Pilot[Any]) -> None:
        shown = rows(pilot)
        assert len(shown) == 10
        assert "▸ 3 calls · Read ×2, Bash" in shown[2]
        assert shown[3].startswith("●─╮")
        assert "[root cause]" in shown[3]
        assert shown[4].startswith("○ │")
        assert "Edit tests/test_login.py" in shown[5]
        assert shown[-1].startswith("  ●")
        assert "◀ here" in shown[-1]

    walk(running, steps)


def test_arrows_move_the_cursor_line_by_line(running: Running) -> None:
    async def steps(pilot: Pilot[Any]) -> None:
        line_list = tree_of(pilot).query_one("#tree", LineList)
        await pilot.press("home", "down", "down")
        assert line_list.cursor == 2
        await pilot.press("up")
        assert line_list.cursor == 1

    walk(running, steps)


def test_arrows_unfold_and_fold_a_run(running: Running) -> None:
    async def steps(pilot: Pilot[Any]) -> None:
        await go_to(pilot, "3 calls")
        await pilot.press("right")
        assert len(rows(pilot)) == 15
        assert "→ Read tests/test_login.py" in "\n".join(rows(pilot))
        await pilot.press("down", "left")
        assert len(rows(pilot)) == 10

    walk(running, steps)


def test_views_are_filtered_and_the_cursor_stays_near(running: Running) -> None:
    async def steps(pilot: Pilot[Any]) -> None:
        await pilot.press("ctrl+u")
        assert [row.split("user")[1].strip()[:12] for row in rows(pilot)] == [
            "tests/test_l",
            "Just sleep l",
            "Inject the c",
        ]
        await pilot.press("escape")
        assert len(rows(pilot)) == 10
        await pilot.press("ctrl+o")
        assert "tools" not in "\n".join(rows(pilot))
        await pilot.press("ctrl+o", "ctrl+o")
        assert len(rows(pilot)) == 1
        assert "[root cause]" in rows(pilot)[0]

    walk(running, steps)


def test_cycling_through_all_views_returns_to_the_selected_entry(running: Running) -> None:
    async def steps(pilot: Pilot[Any]) -> None:
        await go_to(pilot, "3 calls")
        before = cursor_row(pilot)
        await pilot.press(*["ctrl+o"] * 4)
        assert cursor_row(pilot) != before
        await pilot.press("ctrl+o")
        assert cursor_row(pilot) == before
        await pilot.press("ctrl+o", "end", *["ctrl+o"] * 4)
        assert "◀ here" in cursor_row(pilot)

    walk(running, steps)


def test_another_view_with_the_same_entry_does_not_render_it_again(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents: list[object] = []
    monkeypatch.setattr(EntryPanel, "show_content", lambda _panel, build, **_how: contents.append(build))

    async def steps(pilot: Pilot[Any]) -> None:
        await go_to(pilot, "Inject the clock")
        rendered = len(contents)
        await pilot.press("ctrl+o", "ctrl+o")
        assert "Inject the clock" in cursor_row(pilot)
        assert len(contents) == rendered
        await pilot.press("up")
        assert len(contents) == rendered + 1

    walk(running, steps)


def test_enter_on_a_prompt_goes_to_just_before_it_and_can_be_undone(running: Running) -> None:
    async def steps(pilot: Pilot[Any]) -> None:
        before = tree_of(pilot).session.leaf
        await go_to(pilot, "Inject the clock")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, MenuDialog))
        await pilot.press("enter")
        await until(pilot, lambda: tree_of(pilot).session.leaf != before)
        await settle(pilot)
        assert "◀ here" in rows(pilot)[row_with(pilot, "The test sleeps")]
        await pilot.press("U")
        await until(pilot, lambda: tree_of(pilot).session.leaf == before)

    walk(running, steps)


@pytest.mark.slow
def test_leaving_a_branch_with_a_summary_shows_it_first(running: Running) -> None:
    async def steps(pilot: Pilot[Any]) -> None:
        await go_to(pilot, "Just sleep longer")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, MenuDialog))
        await pilot.press("down", "down", "enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, TextDialog))
        await pilot.press(*"the clock", "enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, PlanDialog))
        await pilot.press("y")
        await settle(pilot)
        session = tree_of(pilot).session
        await until(pilot, lambda: "Inject the clock" in str(session.context().messages[-1]))

    walk(running, steps)


def test_an_entry_is_labeled(running: Running) -> None:
    async def steps(pilot: Pilot[Any]) -> None:
        await go_to(pilot, "Just sleep longer")
        await pilot.press("L")
        await until(pilot, lambda: isinstance(pilot.app.screen, TextDialog))
        await pilot.press(*"bad idea", "enter")
        await until(pilot, lambda: "[bad idea]" in "\n".join(rows(pilot)))

    walk(running, steps)


def test_two_marked_branches_are_compared(running: Running) -> None:
    async def steps(pilot: Pilot[Any]) -> None:
        await go_to(pilot, "Done, but")
        await pilot.press("space", "end", "space", "d")
        await until(pilot, lambda: isinstance(pilot.app.screen, PageDialog))
        await pilot.press("escape", "escape")
        assert "✓" not in "\n".join(rows(pilot))

    walk(running, steps)


def test_a_branch_is_merged_after_a_look_at_the_plan(running: Running) -> None:
    async def steps(pilot: Pilot[Any]) -> None:
        await go_to(pilot, "Done, but")
        await pilot.press("m")
        await until(pilot, lambda: isinstance(pilot.app.screen, PlanDialog))
        await pilot.press("enter")
        await until(pilot, lambda: "merge" in "\n".join(rows(pilot)))
        assert "◆" in "\n".join(rows(pilot))

    walk(running, steps)


def test_an_entry_is_picked_onto_the_current_branch(running: Running) -> None:
    async def steps(pilot: Pilot[Any]) -> None:
        before = len(tree_of(pilot).session)
        await go_to(pilot, "Just sleep longer")
        await pilot.press("P")
        await until(pilot, lambda: isinstance(pilot.app.screen, PlanDialog))
        await pilot.press("y")
        await until(pilot, lambda: len(tree_of(pilot).session) > before)

    walk(running, steps)


def test_a_branch_is_pruned_into_the_archive_and_comes_back(running: Running) -> None:
    async def steps(pilot: Pilot[Any]) -> None:
        await go_to(pilot, "Just sleep longer")
        await pilot.press("x")
        await until(pilot, lambda: isinstance(pilot.app.screen, PlanDialog))
        await pilot.press("y")
        await until(pilot, lambda: "Just sleep longer" not in "\n".join(rows(pilot)))
        await settle(pilot)
        await pilot.press("U")
        await until(pilot, lambda: "Just sleep longer" in "\n".join(rows(pilot)))

    walk(running, steps)


def test_a_fork_is_a_new_session(running: Running) -> None:
    async def steps(pilot: Pilot[Any]) -> None:
        folder = tree_of(pilot).session.location.rpartition("/")[0]
        await go_to(pilot, "The test sleeps")
        await pilot.press("f")
        await settle(pilot)
        from pathlib import Path

        await until(pilot, lambda: len(list(Path(folder).glob("*.jsonl"))) == 3)

    walk(running, steps)


def test_text_is_found_also_in_folded_rows_and_n_goes_on(running: Running) -> None:
    async def steps(pilot: Pilot[Any]) -> None:
        await pilot.press("home", "slash", *"read app/session.py")
        await until(pilot, lambda: "→ Read app/session.py" in cursor_row(pilot))  # it was folded
        await pilot.press("enter")
        await until(pilot, lambda: tree_of(pilot).focused is tree_of(pilot).query_one("#tree"))
        await pilot.press("escape", "end", "slash")
        tree_of(pilot).query_one("#find", Input).value = "clock"
        await pilot.press("enter")
        await until(pilot, lambda: "The test sleeps" in cursor_row(pilot))
        await pilot.press("n")
        await until(pilot, lambda: "Inject the clock" in cursor_row(pilot))
        await pilot.press("N")
        await until(pilot, lambda: "The test sleeps" in cursor_row(pilot))
        await pilot.press("slash", *"zzz", "enter")
        await until(pilot, lambda: any("No match" in note.message for note in pilot.app._notifications))

    walk(running, steps)


def test_times_are_shown_on_request(running: Running) -> None:
    async def steps(pilot: Pilot[Any]) -> None:
        before = rows(pilot)[0]
        await pilot.press("T")
        assert rows(pilot)[0] != before

    walk(running, steps)


def test_escape_returns_to_the_list(running: Running) -> None:
    async def steps(pilot: Pilot[Any]) -> None:
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(pilot.app.screen, SessionsScreen))

    walk(running, steps)


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60), (30, 8)])
def test_rows_fit_every_terminal(running: Running, size: tuple[int, int]) -> None:
    async def steps(pilot: Pilot[Any]) -> None:
        line_list = tree_of(pilot).query_one("#tree", LineList)
        for y in range(line_list.size.height):
            assert line_list.render_line(y).cell_length == line_list.size.width

    walk(running, steps, size)


def walk_native(running: Running, steps: Steps, title: str = "Profile") -> None:
    """Like `walk`, with a session that is found by its title."""

    async def run() -> None:
        async with running((160, 40), everywhere=True) as pilot:
            await pilot.press(*title, "down", "t")
            await until(pilot, lambda: isinstance(pilot.app.screen, TreeScreen) and pilot.app.screen._source)
            await settle(pilot)
            await steps(pilot)

    asyncio.run(run())


def test_a_compaction_unfolds_to_what_it_replaced(running: Running) -> None:
    async def steps(pilot: Pilot[Any]) -> None:
        assert "▸ 3 entries replaced · Goal: move" in rows(pilot)[row_with(pilot, "compaction")]
        assert "We outgrew Redis" not in "\n".join(rows(pilot))
        await go_to(pilot, "compaction")
        await pilot.press("right")
        assert "We outgrew Redis" in rows(pilot)[0]
        assert "▾ Goal: move" in cursor_row(pilot)
        await pilot.press("home", "left")
        assert "▸ 3 entries replaced" in cursor_row(pilot)
        assert "We outgrew Redis" not in "\n".join(rows(pilot))
        await pilot.press("slash", *"outgrew redis", "enter")
        await until(pilot, lambda: "We outgrew Redis" in cursor_row(pilot))

    walk_native(running, steps, "queue")


def test_a_compaction_is_undone_by_u(running: Running) -> None:
    async def steps(pilot: Pilot[Any]) -> None:
        await go_to(pilot, "compaction")
        await pilot.press("u")
        await until(pilot, lambda: isinstance(pilot.app.screen, PlanDialog))
        await pilot.press("y")
        await until(pilot, lambda: "◀ here" in rows(pilot)[row_with(pilot, "The table is in place")])

    walk_native(running, steps, "queue")


def test_an_entry_is_left_out_of_the_context_and_taken_in_again(running: Running) -> None:
    async def steps(pilot: Pilot[Any]) -> None:
        await go_to(pilot, "The importer takes")
        await pilot.press("e")
        await until(pilot, lambda: "⊘ user" in rows(pilot)[0])
        assert "The importer takes" not in str(tree_of(pilot).session.context().messages)
        await settle(pilot)
        await pilot.press("home", "e")
        await until(pilot, lambda: "⊘" not in rows(pilot)[0])
        assert "The importer takes" in str(tree_of(pilot).session.context().messages)

    walk_native(running, steps)


def test_the_text_of_an_entry_is_copied_and_that_of_a_prompt_one_goes_to(running: Running) -> None:
    async def steps(pilot: Pilot[Any]) -> None:
        await go_to(pilot, "The test sleeps")
        await pilot.press("y")
        assert pilot.app.clipboard.startswith("The test sleeps exactly")
        await go_to(pilot, "Just sleep longer")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, MenuDialog))
        await pilot.press("enter")
        await until(pilot, lambda: pilot.app.clipboard == "Just sleep longer.")

    walk(running, steps)


def test_the_entry_is_shown_beside_the_tree_with_edits_as_diffs(running: Running) -> None:
    async def steps(pilot: Pilot[Any]) -> None:
        await go_to(pilot, "Edit tests/test_login.py")
        panel = tree_of(pilot).query_one(EntryPanel)
        await until(pilot, lambda: panel.is_done)
        text = "\n".join(panel.render_line(y).text for y in range(panel.size.height))
        assert "-sleep(1.0)" in text
        assert "+sleep(1.2)" in text
        await pilot.press("ctrl+p")
        assert not panel.display

    walk(running, steps)


def test_keys_before_the_session_is_read_do_nothing(running: Running, workbench: Workbench) -> None:
    may_open = threading.Event()

    async def run() -> None:
        async with running((100, 30)) as pilot:
            summary = workbench.library.snapshot().sessions[0]

            def open_late() -> Session:
                assert may_open.wait(60)
                return workbench.open_session(summary)

            pilot.app.push_screen(TreeScreen(open_late, "a title"))
            await pilot.press("ctrl+o", "d", "x", "space", "enter", "slash")
            may_open.set()
            await until(pilot, lambda: isinstance(pilot.app.screen, TreeScreen) and pilot.app.screen._source)
            assert tree_of(pilot).source.rows.filter == "default"

    asyncio.run(run())


def test_a_long_entry_is_scrolled_beside_the_tree(running: Running) -> None:
    async def steps(pilot: Pilot[Any]) -> None:
        await go_to(pilot, "Edit tests/test_login.py")
        panel = tree_of(pilot).query_one(EntryPanel)
        lines = [f"line {number}" for number in range(100)]
        panel.show_now(*map(Text, lines))

        def shown() -> list[str]:
            return [panel.render_line(y).text.strip("│▐ ") for y in range(panel.size.height)]

        height = panel.size.height
        assert shown() == lines[:height]
        await pilot.press("right_square_bracket")
        assert shown() == lines[height - 2 : 2 * height - 2]
        await pilot.press("left_square_bracket", "left_square_bracket")
        assert shown() == lines[:height]
        assert panel.render_line(0).text.endswith("▐")

    walk(running, steps)


def test_without_colors_those_of_the_terminal_are_used(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    async def steps(pilot: Pilot[Any]) -> None:
        strips = pilot.app.screen._compositor.render_strips(pilot.app.size)
        styles = [style for strip in strips for _, style, _ in strip if style is not None]
        assert {color.name for style in styles for color in (style.color, style.bgcolor) if color} == {"default"}
        assert any(style.reverse for style in styles), "the cursor is visible"

    walk(running, steps)


def test_the_rest_of_a_long_entry_is_rendered_when_it_is_scrolled(running: Running) -> None:
    async def steps(pilot: Pilot[Any]) -> None:
        panel = tree_of(pilot).query_one(EntryPanel)
        taken: list[int] = []

        def build() -> Iterator[Text]:
            for number in range(200):
                taken.append(number)
                yield Text(f"line {number}")

        panel.show_content(build, delay=0)
        await until(pilot, lambda: panel.is_done)
        height = panel.size.height
        assert len(taken) == height + 1
        assert panel.render_line(0).text.endswith("▐")
        await pilot.press("right_square_bracket", "right_square_bracket")
        await until(pilot, lambda: f"line {2 * height - 4}" in panel.render_line(0).text)
        assert len(taken) >= 200

    walk(running, steps)


def test_views_of_a_large_tree_are_arranged_before_they_are_asked_for(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sessiontree.tui.tree._LARGE", 1)
    monkeypatch.setattr("sessiontree.tui.tree._AHEAD", 0.01)

    async def steps(pilot: Pilot[Any]) -> None:
        rows = tree_of(pilot).source.rows
        for name in FILTERS:
            view = rows.copy()
            view.filter = name
            await until(pilot, lambda view=view: view.is_arranged)  # type: ignore[misc]
        shown = [rows.id_of(row) for row in range(len(rows))]
        await pilot.press("ctrl+u")
        prompts = tree_of(pilot).source.rows
        assert prompts.filter == "user", "nothing had to be arranged in the background"
        assert 0 < len(prompts) < len(rows)
        await pilot.press("ctrl+u")
        again = tree_of(pilot).source.rows
        assert [again.id_of(row) for row in range(len(again))] == shown

    walk(running, steps)
