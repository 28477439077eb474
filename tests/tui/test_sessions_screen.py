"""The list of sessions in the terminal UI, driven by keys."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from textual.events import Key
from textual.pilot import Pilot
from textual.widgets import Input

from sessiontree.app.workbench import Workbench
from sessiontree.dialects.pi.locations import folder_name
from sessiontree.library import Library
from sessiontree.library.threads import ThreadMember
from sessiontree.tui.dialogs import MenuDialog, PageDialog, PlanDialog
from sessiontree.tui.line_list import LineList, TextRow
from sessiontree.tui.preview_panel import PreviewPanel
from sessiontree.tui.requests import Chat, Resume
from sessiontree.tui.sessions import SessionsScreen
from sessiontree.tui.tree import TreeScreen
from tests.dialects.packed_goldens import unpack
from tests.tui.conftest import Running, settle, until

LOGIN, FLAG, QUEUE, LIMITS = "Fix the flaky login test", "Add a --json flag", "Move the queue", "Rate limits"


def screen_of(pilot: Pilot[Any]) -> SessionsScreen:
    return next(screen for screen in pilot.app.screen_stack if isinstance(screen, SessionsScreen))


def titles(pilot: Pilot[Any]) -> list[str]:
    rows = screen_of(pilot)._rows.found.rows
    return [row.summary.title for row in rows if isinstance(row, ThreadMember)]


def text_of(pilot: Pilot[Any], id: str) -> str:
    return screen_of(pilot).query_one(f"#{id}", TextRow)._text


def shown(pilot: Pilot[Any]) -> str:
    """The visible rows of the list as text."""
    line_list = screen_of(pilot).query_one("#list", LineList)
    return "\n".join(line_list.render_line(y).text for y in range(line_list.size.height))


def test_sessions_of_this_project_are_shown_and_tab_shows_all(running: Running) -> None:
    async def run() -> None:
        async with running() as pilot:
            assert len(titles(pilot)) == 3
            assert "this project (shop)" in text_of(pilot, "status")
            await pilot.press("tab")
            assert len(titles(pilot)) == 6
            assert "all projects" in text_of(pilot, "status")

    asyncio.run(run())


def test_what_was_known_is_painted_before_the_disk_is_scanned(
    running: Running, workbench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    workbench.library.refresh()
    monkeypatch.setattr(workbench.library.snapshot(), "follow", lambda: iter(()))

    async def run() -> None:
        async with running() as pilot:
            assert LOGIN in shown(pilot)

    asyncio.run(run())


def test_typing_filters_by_scattered_letters_of_title_and_project(running: Running) -> None:
    async def run() -> None:
        async with running(everywhere=True) as pilot:
            await pilot.press(*"flklog")
            assert titles(pilot) == [LOGIN]
            await pilot.press("escape")
            assert len(titles(pilot)) == 6
            await pilot.press(*"importer")
            assert titles(pilot) == ["Profile the importer"]

    asyncio.run(run())


def test_filters_of_the_query_language_work_in_the_box_and_tab_completes_them(running: Running) -> None:
    async def run() -> None:
        async with running(everywhere=True) as pilot:
            await pilot.press(*"ag", "tab", *"cl", "tab")
            box = screen_of(pilot).query_one("#box")
            assert box.value == "agent:claude "  # type: ignore[attr-defined]
            assert sorted(titles(pilot)) == sorted([LOGIN, "Rate limits for the API"])

    asyncio.run(run())


def test_text_inside_sessions_is_found_after_a_moment_and_the_hit_is_shown(running: Running) -> None:
    async def run() -> None:
        async with running((200, 40), everywhere=True) as pilot:
            await pilot.press(*"argparse")
            await until(pilot, lambda: FLAG in titles(pilot))
            assert "argparse" in shown(pilot)

    asyncio.run(run())


def test_tags_that_cannot_be_read_are_a_note_and_the_agents_own_are_shown(
    running: Running, workbench: Workbench, home: Path
) -> None:
    (transcript,) = home.glob(".claude/projects/*/01a1c0de*.jsonl")
    with transcript.open("a") as file:
        file.write('{"type":"tag","tag":"wip","sessionId":"01a1c0de-5e55-7000-8000-000000000001"}\n')
    marks = Path(workbench.home.tags.path)
    marks.parent.mkdir(parents=True, exist_ok=True)
    marks.write_text("{bad")

    async def run() -> None:
        async with running((160, 40)) as pilot:
            await until(pilot, lambda: "tags are not shown" in text_of(pilot, "status"))
            await until(pilot, lambda: "#wip" in shown(pilot))

    asyncio.run(run())


def test_converted_copies_are_below_their_origin(running: Running, workbench: Workbench, home: Path) -> None:
    (origin,) = home.glob(".claude/projects/*/01a1c0de*.jsonl")
    subprocess.run(
        [sys.executable, "-m", "sessiontree", "resume", str(origin), "--in", "pi", "--install"],
        check=True,
        capture_output=True,
    )

    async def run() -> None:
        async with running((160, 40)) as pilot:
            await until(pilot, lambda: "└ ⇄ Fix the flaky login test" in shown(pilot))

    asyncio.run(run())


def test_text_is_searched_in_the_sessions_of_the_scope_only(running: Running, workbench: Workbench) -> None:
    """Only a session of another project mentions argparse."""
    assert {hit.session.title for hit in workbench.search("argparse")} == {FLAG}

    async def run() -> None:
        async with running((200, 40)) as pilot:
            await pilot.press(*"batches")
            await until(pilot, lambda: len(titles(pilot)) == 1)
            await pilot.press("ctrl+u", *"argparse")
            await pilot.pause(1)
            await pilot.app.workers.wait_for_complete()
            assert titles(pilot) == []
            assert "0 sessions · this project (shop)" in text_of(pilot, "status")
            assert "Tab: all projects" in text_of(pilot, "status")

    asyncio.run(run())


def test_enter_on_a_session_of_an_agent_that_is_not_installed_offers_other_ways(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", os.defpath)

    async def run() -> None:
        async with running() as pilot:
            await pilot.press("down", "home", "enter")
            assert pilot.app.is_running
            (notice,) = pilot.app._notifications
            assert notice.message.startswith("claude is not installed or not on the PATH. In the list: t shows")

    asyncio.run(run())


def test_the_command_that_resumes_the_session_is_shown_and_enter_carries_it_out(
    running: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "claude").write_text("#!/bin/sh\n")
    (tmp_path / "claude").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    async def run() -> None:
        async with running() as pilot:
            await pilot.press("down", "home")
            assert text_of(pilot, "command").strip().endswith("claude --resume 01a1c0de-5e55-7000-8000-000000000001")
            await pilot.press("enter")
            assert isinstance(pilot.app.return_value, Resume)
            assert pilot.app.return_value.arguments()[0] == "resume"

    asyncio.run(run())


def test_c_continues_in_the_chat(running: Running) -> None:
    async def run() -> None:
        async with running() as pilot:
            await pilot.press("down", "c")
            assert isinstance(pilot.app.return_value, Chat)

    asyncio.run(run())


def test_another_agent_is_chosen_from_a_menu_and_losses_are_shown_first(running: Running) -> None:
    async def run() -> None:
        async with running() as pilot:
            await pilot.press("down", "home", "o")
            await until(pilot, lambda: isinstance(pilot.app.screen, MenuDialog))
            await pilot.press("down", "enter")
            await until(pilot, lambda: isinstance(pilot.app.screen, PlanDialog))
            await pilot.press("enter")
            assert isinstance(pilot.app.return_value, Resume)
            assert pilot.app.return_value.agent is not None

    asyncio.run(run())


def test_a_session_is_renamed_tagged_and_pinned_and_the_last_action_undone(
    running: Running, workbench: Workbench
) -> None:
    async def run() -> None:
        async with running((200, 40)) as pilot:
            await pilot.press("down", "home", "r")
            await pilot.pause()
            await pilot.press("end", *" twice", "enter")
            await until(pilot, lambda: f"{LOGIN} twice" in titles(pilot))
            await pilot.press("number_sign")
            await pilot.pause()
            await pilot.press(*"wip", "enter")
            await until(pilot, lambda: "#wip" in shown(pilot))
            await pilot.press("p")
            await until(pilot, lambda: bool(workbench.read_tags()[1]))
            await settle(pilot)
            await pilot.press("u")
            await until(pilot, lambda: not workbench.read_tags()[1])

    asyncio.run(run())


def test_archiving_asks_first_and_is_undone(running: Running) -> None:
    async def run() -> None:
        async with running() as pilot:
            await pilot.press("down", "end", "a")
            await until(pilot, lambda: isinstance(pilot.app.screen, PlanDialog))
            await pilot.press("escape")
            await settle(pilot)
            assert len(titles(pilot)) == 3
            await pilot.press("a")
            await until(pilot, lambda: isinstance(pilot.app.screen, PlanDialog))
            await pilot.press("y")
            await until(pilot, lambda: len(titles(pilot)) == 2)
            await settle(pilot)
            await pilot.press("u")
            await until(pilot, lambda: isinstance(pilot.app.screen, PlanDialog) or len(titles(pilot)) == 3)
            if isinstance(pilot.app.screen, PlanDialog):
                await pilot.press("y")
            await until(pilot, lambda: len(titles(pilot)) == 3)

    asyncio.run(run())


def test_findings_are_shown_with_their_repair(running: Running) -> None:
    async def run() -> None:
        async with running() as pilot:
            await pilot.press("down", "end", "h")
            await until(pilot, lambda: isinstance(pilot.app.screen, PlanDialog))
            await pilot.press("enter")
            await settle(pilot)
            await until(pilot, lambda: "! Rate" not in shown(pilot))
            await pilot.press("home", "h")
            await until(pilot, lambda: isinstance(pilot.app.screen, PageDialog))

    asyncio.run(run())


def test_a_session_is_exported(running: Running, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)

    async def run() -> None:
        async with running() as pilot:
            await pilot.press("down", "home", "e")
            await pilot.pause()
            await pilot.press("enter")
            await until(pilot, lambda: list(home.glob("*.html")))

    asyncio.run(run())


def test_groups_and_orders_are_changed_by_keys(running: Running) -> None:
    async def run() -> None:
        async with running(everywhere=True) as pilot:
            await pilot.press("down", "g", "g")
            assert "grouped by agent" in text_of(pilot, "status")
            assert "claude (2)" in shown(pilot)
            await pilot.press("g", "g", "s", "s")
            assert "by size" in text_of(pilot, "status")

    asyncio.run(run())


def test_escape_backs_out_one_level_at_a_time(running: Running) -> None:
    async def run() -> None:
        async with running() as pilot:
            await pilot.press(*"login", "down", "question_mark")
            assert isinstance(pilot.app.screen, PageDialog)
            await pilot.press("escape")
            assert isinstance(pilot.app.screen, SessionsScreen)
            await pilot.press("escape")
            assert screen_of(pilot).focused is screen_of(pilot).query_one("#box")
            await pilot.press("escape")
            assert screen_of(pilot).query_one("#box").value == ""  # type: ignore[attr-defined]
            assert pilot.app.is_running
            await pilot.press("escape")
            await until(pilot, lambda: not pilot.app.is_running)

    asyncio.run(run())


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60), (30, 8)])
def test_rows_fit_every_terminal(running: Running, size: tuple[int, int]) -> None:
    async def run() -> None:
        async with running(size, everywhere=True) as pilot:
            line_list = screen_of(pilot).query_one("#list", LineList)
            for y in range(line_list.size.height):
                assert line_list.render_line(y).cell_length == line_list.size.width

    asyncio.run(run())


def test_the_preview_draws_where_branches_start_and_end(running: Running) -> None:
    async def run() -> None:
        async with running((120, 40)) as pilot:
            await pilot.press("down", "home")
            panel = screen_of(pilot).query_one(PreviewPanel)
            await until(pilot, lambda: panel.is_done)
            text = "\n".join(panel.render_line(y).text for y in range(panel.size.height))
            assert "tests/test_login.py fails" in text
            assert "more messages" in text
            assert "●─╮ assistant" in text
            assert "○ │ assistant  Done, but" in text

    asyncio.run(run())


def test_the_command_is_copied_and_tab_changes_the_scope_from_the_list_too(running: Running) -> None:
    async def run() -> None:
        async with running((120, 40)) as pilot:
            await pilot.press("down", "home", "ctrl+y")
            assert pilot.app.clipboard.endswith("claude --resume 01a1c0de-5e55-7000-8000-000000000001")
            assert pilot.app.clipboard.startswith("cd /")
            await pilot.press("tab")
            assert len(titles(pilot)) == 6
            await pilot.press("ctrl+p")
            assert not screen_of(pilot).query_one(PreviewPanel).display

    asyncio.run(run())


def test_columns_are_under_their_headings(running: Running) -> None:
    async def run() -> None:
        async with running((120, 40), everywhere=True) as pilot:
            heading = text_of(pilot, "heading")
            row = shown(pilot).splitlines()[0]
            assert row[heading.index("agent") :].startswith("claude")
            assert row[: heading.index("age") + 3].endswith("1h")

    asyncio.run(run())


def test_a_key_pressed_right_after_an_arrow_acts_on_the_list(running: Running) -> None:
    async def run() -> None:
        async with running() as pilot:
            # Both arrive before the first is handled, as from a fast typist or a terminal multiplexer.
            pilot.app.post_message(Key("down", None))
            pilot.app.post_message(Key("t", "t"))
            await until(pilot, lambda: isinstance(pilot.app.screen, TreeScreen))
            await pilot.press("escape")
            await until(pilot, lambda: isinstance(pilot.app.screen, SessionsScreen))
            assert pilot.app.screen.query_one("#box", Input).value == ""

    asyncio.run(run())


def test_while_sessions_are_found_the_newest_of_this_project_stays_selected(
    running: Running, workbench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    workbench.library.refresh()
    known = sorted(workbench.library.snapshot().sessions, key=lambda summary: summary.active or 0)
    elsewhere = [summary for summary in known if not workbench.is_in_project(summary)]
    here = [summary for summary in known if workbench.is_in_project(summary)]
    monkeypatch.setattr(workbench.library.snapshot(), "follow", lambda: iter(()))

    async def run() -> None:
        async with running() as pilot:
            screen = screen_of(pilot)
            for found in (elsewhere[:1], elsewhere, [*elsewhere, here[0]], [*elsewhere, *here]):
                screen._update(tuple(found), True, "")
                await pilot.pause()
                assert screen.query_one("#list", LineList).cursor == screen.query_one("#list", LineList).first
            assert "this project (shop)" in text_of(pilot, "status")
            assert screen.selected == here[-1]

    asyncio.run(run())


def test_a_session_of_opencode_is_resumed_in_opencode(
    workbench: Workbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = unpack("opencode", "01-plain", tmp_path / "golden").home
    with Library(str(tmp_path / "none"), environment={"HOME": str(home)}) as library:
        monkeypatch.setattr(workbench, "library", library)
        (summary,) = library.sessions(agent="opencode")
        assert not workbench.is_native(summary)
        assert workbench.resume_command(summary).endswith(f"opencode --session {summary.id}")


@pytest.mark.parametrize("cwd", ["/p\0x", "/p\x1b[201~\x03x"])
def test_a_session_in_an_odd_folder_is_shown_and_its_command_is_copied_without_controls(
    running: Running, home: Path, cwd: str
) -> None:
    path = home / ".pi" / "agent" / "sessions" / ("--p--" if "\0" in cwd else folder_name(cwd)) / "s.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    common = {"id": "11111111-1111-4111-8111-111111111111", "timestamp": "2026-02-16T11:59:00.000Z"}
    message = {"role": "user", "content": "an odd folder"}
    rows = [
        {**common, "type": "session", "version": 3, "cwd": cwd},
        {**common, "type": "message", "id": "a", "parentId": None, "message": message},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    async def run() -> None:
        async with running(everywhere=True) as pilot:
            await pilot.press(*"odd folder")
            await settle(pilot)
            assert titles(pilot) == ["an odd folder"]
            await pilot.press("ctrl+y")
            assert pilot.app.clipboard.isprintable()
            assert pilot.app.clipboard.startswith(("sessiontree resume 11111111", "cd '/p"))
            await pilot.press("enter")
            await settle(pilot)

    asyncio.run(run())
