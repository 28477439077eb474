"""The chat on the whole screen, driven by keys, with a scripted model."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any, TypeVar

import pytest
from textual.events import Paste
from textual.pilot import Pilot
from textual.screen import Screen
from textual.widgets import OptionList, Static

from sessiontree.tui.app import SessionTreeApp
from sessiontree.tui.chat_dialogs import ApprovalDialog, ChoiceDialog
from sessiontree.tui.chat_screens import BranchScreen, SessionChooser
from sessiontree.tui.dialogs import MenuDialog, PlanDialog
from sessiontree.tui.line_list import TextRow
from sessiontree.tui.rendered_panel import RenderedPanel
from sessiontree.tui.rewind_screen import RewindScreen
from tests.chat.terminals import Place, call, session_texts, turn
from tests.tui.chats import Chat, idle, screen_of, sees, sent, shown
from tests.tui.conftest import until

ScreenT = TypeVar("ScreenT", bound=Screen[Any])


@pytest.fixture
def chat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Chat:
    place = Place(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SESSIONTREE_HOME", str(place.home))
    monkeypatch.setattr("sessiontree.tui.chat._TWICE", 60.0)  # a busy machine takes long for two keys
    return Chat(place)


def test_an_answer_is_streamed_and_stored(chat: Chat) -> None:
    async def steps(pilot: Pilot[Any]) -> None:
        await sent(pilot, "hello")
        await sees(pilot, "▌ hello")
        await sees(pilot, "It is a lexer.")
        await idle(pilot)
        assert screen_of(pilot).editor.text == ""

    app = chat.run([turn("# Answer\n\nIt is a *lexer*.")], steps)
    assert app.last_words[0].startswith("Resume with: sessiontree chat --session ")


def test_a_screen_is_drawn_after_its_session_was_closed(chat: Chat) -> None:
    async def steps(pilot: Pilot[Any]) -> None:
        await sees(pilot, "an answer")
        transcript = screen_of(pilot).transcript
        assert transcript._session is not None
        transcript._session.close()
        transcript.redraw()
        assert transcript.render_line(0).text.strip() == ""

    chat.run([], steps, session=chat.session("a prompt", "an answer"))


def test_a_resumed_session_shows_its_first_entry_without_building_what_is_between(chat: Chat) -> None:
    texts = [text for number in range(140) for text in (f"question {number}", f"answer {number}")]

    def numbers(pilot: Pilot[Any]) -> list[int]:
        return [int(line.split()[-1]) for line in shown(pilot).split("\n") if line.strip()]

    async def steps(pilot: Pilot[Any]) -> None:
        await sees(pilot, "answer 139")
        await pilot.press("pageup")
        assert "answer 139" not in shown(pilot)
        transcript = screen_of(pilot).transcript
        await pilot.press("ctrl+home")
        await sees(pilot, "question 0")
        built = len(transcript.blocks)
        assert built <= 200
        while len(transcript.blocks) == built:  # down to what was built at the start, and further
            last = numbers(pilot)[-1]
            await pilot.press("pagedown")
            assert numbers(pilot) == sorted(numbers(pilot))
            assert numbers(pilot)[0] <= last
        assert numbers(pilot)[-1] < 60
        await pilot.press("ctrl+end")
        await sees(pilot, "answer 139")

    chat.run([], steps, session=chat.session(*texts))


def test_scrolling_back_from_the_end_meets_what_was_read_at_the_start(chat: Chat) -> None:
    session = chat.session()
    for number in range(120):
        block = {"type": "toolCall", "id": f"c{number}", "name": "read", "arguments": {"path": f"{number}.txt"}}
        session.append("assistant", [block])
        session.append("toolResult", [{"type": "text", "text": "a"}], toolCallId=f"c{number}", toolName="read")

    async def steps(pilot: Pilot[Any]) -> None:
        await sees(pilot, "✓ read 119.txt")
        transcript = screen_of(pilot).transcript
        await pilot.press("ctrl+home")
        await sees(pilot, "✓ read 0.txt")
        transcript.go_to_end()
        seen: list[str] = []
        while "read 0.txt" not in shown(pilot):
            await pilot.press("pageup")
            seen += [line.strip() for line in shown(pilot).split("\n")]
        assert set(seen) >= {f"✓ read {number}.txt  1 line" for number in range(90)}
        assert len(transcript.blocks) == 120

    chat.run([], steps, session=session, size=(100, 60))


@pytest.mark.slow
def test_a_long_session_is_read_as_far_as_it_is_visible_and_scrolls_back_to_its_first_entry(chat: Chat) -> None:
    session = chat.session()
    for number in range(400):
        session.append("user", f"question {number}")
        call = {"type": "toolCall", "id": f"c{number}", "name": "read", "arguments": {"path": f"{number}.txt"}}
        session.append("assistant", [call])
        session.append("toolResult", [{"type": "text", "text": "a"}], toolCallId=f"c{number}", toolName="read")

    async def steps(pilot: Pilot[Any]) -> None:
        await sees(pilot, "✓ read 399.txt")
        transcript = screen_of(pilot).transcript
        assert len(transcript.blocks) < 400
        seen: list[str] = []
        while not seen or "question 0" not in seen[-1]:
            before = shown(pilot)
            await pilot.press("pageup")
            seen.append(shown(pilot))
            assert seen[-1] != before
        everything = {line.strip() for page in seen for line in page.split("\n")}
        assert everything >= {f"▌ question {number}" for number in range(385)}
        assert everything >= {f"✓ read {number}.txt  1 line" for number in range(385)}
        await pilot.press("ctrl+end")
        await sees(pilot, "question 399")

    chat.run([], steps, session=session)


def test_calls_are_folded_with_their_status_and_unfold_with_ctrl_o(chat: Chat) -> None:
    (chat.place.project / "notes.txt").write_text("alpha\nbeta\n")

    async def steps(pilot: Pilot[Any]) -> None:
        await sent(pilot, "look")
        await sees(pilot, "✓ read notes.txt")
        await sees(pilot, "Seen.")
        await idle(pilot)
        assert "beta" not in shown(pilot)
        await pilot.press("ctrl+o")
        await sees(pilot, "beta")

    chat.run([turn("", call("read", path="notes.txt")), turn("Seen.")], steps)


def test_results_of_parallel_calls_are_shown_with_their_calls(chat: Chat) -> None:
    """Claude Code writes each call of an answer as a separate entry, and then the results."""
    session = chat.session("look")
    for number in range(3):
        block = {"type": "toolCall", "id": f"c{number}", "name": "read", "arguments": {"path": f"{number}.txt"}}
        session.append("assistant", [block])
    for number in range(3):
        session.append("toolResult", [{"type": "text", "text": "alpha"}], toolCallId=f"c{number}", toolName="read")

    async def steps(pilot: Pilot[Any]) -> None:
        for number in range(3):
            await sees(pilot, f"✓ read {number}.txt")

    chat.run([], steps, session=session)


# Approvals


async def asked(pilot: Pilot[Any]) -> ApprovalDialog:
    """Wait until a question is shown that keys answer."""
    await until(pilot, lambda: isinstance(pilot.app.screen, ApprovalDialog) and pilot.app.screen.is_ready)
    dialog = pilot.app.screen
    assert isinstance(dialog, ApprovalDialog)
    return dialog


async def opens(pilot: Pilot[Any], kind: type[ScreenT]) -> ScreenT:
    """Wait until a screen or dialog is on top."""
    await until(pilot, lambda: isinstance(pilot.app.screen, kind))
    screen = pilot.app.screen
    assert isinstance(screen, kind)
    return screen


async def written(pilot: Pilot[Any]) -> None:
    """Let the agent write a file: `WRITES`."""
    await sent(pilot, "write it")
    await asked(pilot)
    await pilot.press("y")
    await sees(pilot, "Done.")
    await idle(pilot)


WRITES = (turn("", call("write", path="x.txt", content="one\ntwo\n")), turn("Done."))


def test_an_approval_shows_the_diff_in_full_and_y_allows_it_once(chat: Chat) -> None:
    content = "".join(f"line {number}\n" for number in range(120))

    async def steps(pilot: Pilot[Any]) -> None:
        await sent(pilot, "write it")
        dialog = await asked(pilot)
        assert "+line 119" in dialog.question.preview
        text = str(dialog.query("#preview Static").first(Static).content)
        assert "+line 0" in text
        assert "+line 119" in text
        await pilot.press("y")
        await sees(pilot, "Done.")
        assert (chat.place.project / "x.txt").read_text() == content
        assert screen_of(pilot).chat.controller.state.approved == ()

    chat.run([turn("", call("write", path="x.txt", content=content)), turn("Done.")], steps)


def test_a_allows_a_tool_for_the_session(chat: Chat) -> None:
    async def steps(pilot: Pilot[Any]) -> None:
        await sent(pilot, "write it")
        await asked(pilot)
        await pilot.press("a")
        await sees(pilot, "Done.")
        assert screen_of(pilot).chat.controller.state.approved == ("write",)

    chat.run(WRITES, steps)


def test_n_refuses_with_a_reason_for_the_model(chat: Chat) -> None:
    async def steps(pilot: Pilot[Any]) -> None:
        await sent(pilot, "write it")
        await asked(pilot)
        await pilot.press("n", *"later", "enter")
        await sees(pilot, "Done.")
        assert not (chat.place.project / "x.txt").exists()

    chat.run(WRITES, steps)
    assert any("later" in text for text in session_texts(chat.place))


def test_keys_right_after_n_belong_to_the_reason_and_enter_never_approves(chat: Chat) -> None:
    async def steps(pilot: Pilot[Any]) -> None:
        await sent(pilot, "write it")
        dialog = await asked(pilot)
        dialog.add_class("reason")  # as after n, before the focus has moved
        assert isinstance(dialog.focused, OptionList)
        await pilot.press(*"nay", "enter")
        await sees(pilot, "Done.")
        assert not (chat.place.project / "x.txt").exists()

    chat.run(WRITES, steps)
    assert any("nay" in text for text in session_texts(chat.place))


def test_the_arrows_choose_in_an_approval_and_esc_interrupts_the_run(chat: Chat) -> None:
    async def steps(pilot: Pilot[Any]) -> None:
        await sent(pilot, "write it")
        await asked(pilot)
        await pilot.press("down", "enter")
        await sees(pilot, "Done.")
        assert screen_of(pilot).chat.controller.state.approved == ("write",)
        await sent(pilot, "run it")
        await asked(pilot)
        await pilot.press("escape")
        await sees(pilot, "Interrupted.")
        await idle(pilot)

    chat.run([*WRITES, turn("", call("bash", command="touch y"))], steps)
    assert not (chat.place.project / "y").exists()


def test_keys_typed_when_a_question_appears_go_to_the_input(chat: Chat) -> None:
    async def steps(pilot: Pilot[Any]) -> None:
        await sent(pilot, "write it")
        dialog = await opens(pilot, ApprovalDialog)
        await until(pilot, lambda: isinstance(dialog.focused, OptionList))
        dialog._shown_at = time.monotonic() + 60  # the question has just appeared
        await pilot.press("y", "a")
        assert pilot.app.screen is dialog
        assert screen_of(pilot).editor.text == "ya"
        dialog._shown_at = 0.0
        await pilot.press("y")
        await sees(pilot, "Done.")
        assert screen_of(pilot).editor.text == "ya"

    chat.run(WRITES, steps)


# Esc and Ctrl+C


SLOW = turn("word " * 4_000, delay=0.02, piece=5)


def test_esc_interrupts_a_run_and_queued_lines_return_to_the_input(chat: Chat) -> None:
    async def steps(pilot: Pilot[Any]) -> None:
        await sent(pilot, "go")
        await sees(pilot, "word word")
        await sent(pilot, "and then this")
        assert screen_of(pilot).chat.queue == ["and then this"]
        await pilot.press("escape")
        await sees(pilot, "Interrupted.")
        await idle(pilot)
        assert screen_of(pilot).editor.text == "and then this"

    chat.run([SLOW], steps)


def test_esc_twice_lists_prompts_and_the_next_prompt_is_a_sibling(chat: Chat) -> None:
    session = chat.session("first", "One.", "second", "Two.")

    async def steps(pilot: Pilot[Any]) -> None:
        await pilot.press("escape", "escape")
        await opens(pilot, ChoiceDialog)
        await pilot.press("enter")
        await until(pilot, lambda: screen_of(pilot).editor.text == "second")
        await idle(pilot)
        assert "One." in shown(pilot)
        assert "Two." not in shown(pilot)
        await sent(pilot, "another")
        await sees(pilot, "Three.")
        await idle(pilot)

    chat.run([turn("Three.")], steps, session=session)
    session.refresh()
    assert len(session.leaves()) == 2
    assert len(chat.place.sessions()) == 1


def test_f_in_the_list_of_prompts_makes_a_new_session_and_typed_text_is_preserved(chat: Chat) -> None:
    session = chat.session("first", "One.", "second", "Two.")

    async def steps(pilot: Pilot[Any]) -> None:
        await pilot.press(*"mine", "escape", "escape")
        await opens(pilot, ChoiceDialog)
        await pilot.press("f")
        await until(pilot, lambda: screen_of(pilot).editor.text == "second\n\nmine")
        await idle(pilot)
        await sent(pilot, "go on")
        await sees(pilot, "Three.")
        await idle(pilot)

    chat.run([turn("Three.")], steps, session=session)
    assert len(chat.place.sessions()) == 2


def test_ctrl_c_clears_text_which_up_brings_back_and_twice_leaves(chat: Chat) -> None:
    async def steps(pilot: Pilot[Any]) -> None:
        screen = screen_of(pilot)
        await pilot.press(*"precious", "ctrl+c")
        assert screen.editor.text == ""
        assert not screen.chat.is_over
        await pilot.press("up")
        assert screen.editor.text == "precious"
        screen._cleared_at = -1_000.0
        await pilot.press("ctrl+c", "ctrl+c")
        await until(pilot, lambda: pilot.app._exit)

    app = chat.run([], steps, session=chat.session("first", "One."))
    assert app.last_words[0].startswith("Resume with: sessiontree chat --session ")
    assert app.last_words[1] == "Not sent: precious"


# The input


def test_slash_opens_a_menu_with_descriptions(chat: Chat) -> None:
    async def steps(pilot: Pilot[Any]) -> None:
        editor = screen_of(pilot).editor
        await pilot.press("slash", *"usa")
        await until(pilot, lambda: editor.menu.is_open)
        assert editor.menu.items == [("/usage", "show tokens and cost")]
        await pilot.press("tab")
        assert editor.text == "/usage "
        await pilot.press("enter")
        await sees(pilot, "requests")

    chat.run([], steps)


def test_enter_sends_a_complete_command_although_arguments_could_follow(chat: Chat) -> None:
    async def steps(pilot: Pilot[Any]) -> None:
        editor = screen_of(pilot).editor
        await pilot.press("slash", *"rew", "enter")
        assert editor.text == "/rewind "
        await until(pilot, lambda: editor.menu.is_open)  # "undo" could follow
        await pilot.press("enter")
        await opens(pilot, RewindScreen)
        await pilot.press("escape")
        await idle(pilot)
        await pilot.press("slash", *"rewind", "space", "down", "enter")
        assert editor.text == "/rewind undo "

    chat.run([], steps, session=chat.session("first", "One."))


def test_the_status_line_does_not_count_time_while_a_question_waits(chat: Chat) -> None:
    async def steps(pilot: Pilot[Any]) -> None:
        status = screen_of(pilot).query_one("#status", TextRow)
        await pilot.press("escape", "escape")
        await opens(pilot, ChoiceDialog)
        assert status._text.startswith("? waiting for your answer")
        await pilot.press("escape")
        await until(pilot, lambda: "waiting" not in status._text)

    chat.run([], steps, session=chat.session("first", "One."))


def test_at_completes_files_of_the_project(chat: Chat) -> None:
    (chat.place.project / "src").mkdir()
    (chat.place.project / "src" / "lexer.py").write_text("")

    async def steps(pilot: Pilot[Any]) -> None:
        screen = screen_of(pilot)
        await until(pilot, lambda: screen._files.complete("lexer"))
        await pilot.press(*"see", "space", "at", *"lex")
        await until(pilot, lambda: screen.editor.menu.is_open)
        await pilot.press("tab")
        assert screen.editor.text == "see @src/lexer.py "

    chat.run([], steps)


def test_the_input_has_several_lines_and_large_pastes_are_placeholders(chat: Chat) -> None:
    pasted = "".join(f"row {number}\n" for number in range(40))

    async def steps(pilot: Pilot[Any]) -> None:
        editor = screen_of(pilot).editor
        await pilot.press("a", "ctrl+j", "b")
        assert editor.text == "a\nb"
        editor.post_message(Paste(pasted))
        await until(pilot, lambda: "[Pasted text #1" in editor.text)
        await pilot.press("enter")
        await sees(pilot, "Read.")
        await idle(pilot)

    chat.run([turn("Read.")], steps)
    assert "row 39" in session_texts(chat.place)[0]


def test_earlier_prompts_are_recalled_with_up_and_searched_with_ctrl_r(chat: Chat) -> None:
    async def steps(pilot: Pilot[Any]) -> None:
        editor = screen_of(pilot).editor
        for prompt in ("apples", "pears"):
            await sent(pilot, prompt)
            await idle(pilot)
        await until(pilot, lambda: list(editor.earlier[:2]) == ["pears", "apples"])
        await pilot.press(*"draft", "up", "up")
        assert editor.text == "apples"
        await pilot.press("down", "down")
        assert editor.text == "draft"
        await pilot.press("ctrl+r", *"app")
        await opens(pilot, ChoiceDialog)
        await pilot.press("enter")
        await until(pilot, lambda: editor.text == "apples")

    chat.run([turn("1"), turn("2")], steps)


def test_enter_queues_and_ctrl_s_steers_while_the_agent_works(chat: Chat) -> None:
    async def steps(pilot: Pilot[Any]) -> None:
        screen = screen_of(pilot)
        await sent(pilot, "go")
        await sees(pilot, "● bash")
        screen.editor.set_text("steered")
        await pilot.press("ctrl+s")
        await sent(pilot, "queued")
        assert screen.chat.controller.state.queued == 1
        assert screen.chat.queue == ["queued"]
        (chat.place.project / "go").write_text("")
        await sees(pilot, "Last.")
        await idle(pilot)

    waits = call("bash", command="while [ ! -e go ]; do sleep 0.05; done")
    chat.run([turn("", waits), turn("Middle."), turn("Last.")], steps, approval="yolo")
    texts = session_texts(chat.place)
    assert texts.index("steered") < texts.index("Middle.") < texts.index("queued") < texts.index("Last.")


def test_ctrl_g_edits_the_input_in_the_external_editor(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    script = chat.place.project / "editor.sh"
    script.write_text('#!/bin/sh\nprintf "%s, edited" "$(cat "$1")" > "$1"\n')
    script.chmod(0o755)
    monkeypatch.setenv("VISUAL", str(script))
    monkeypatch.setattr(SessionTreeApp, "suspend", lambda self: contextlib.nullcontext())

    async def steps(pilot: Pilot[Any]) -> None:
        await pilot.press(*"text", "ctrl+g")
        assert screen_of(pilot).editor.text == "text, edited"

    chat.run([], steps)


def test_a_bang_runs_a_command_and_records_it(chat: Chat) -> None:
    async def steps(pilot: Pilot[Any]) -> None:
        await sent(pilot, "!echo seven")
        await sees(pilot, "seven")
        await sees(pilot, "exit code 0 · saved")

    chat.run([], steps)


# Modes and screens


def test_plan_mode_only_reads_until_the_plan_is_approved(chat: Chat) -> None:
    async def steps(pilot: Pilot[Any]) -> None:
        await sent(pilot, "/mode plan")
        await sees(pilot, "approval: plan")
        await sent(pilot, "plan it")
        await sees(pilot, "✗ write x.txt")
        await opens(pilot, ChoiceDialog)
        assert not (chat.place.project / "x.txt").exists()
        await pilot.press("down", "enter")
        await sees(pilot, "Written.")
        await idle(pilot)
        assert screen_of(pilot).chat.controller.state.approval == "autoEdit"

    write = call("write", path="x.txt", content="one\n")
    chat.run([turn("", write), turn("My plan."), turn("", write), turn("Written.")], steps)
    assert (chat.place.project / "x.txt").read_text() == "one\n"


def test_the_status_line_has_model_mode_tokens_and_cost(chat: Chat) -> None:
    async def steps(pilot: Pilot[Any]) -> None:
        status = screen_of(pilot).query_one("#status", TextRow)
        await sent(pilot, "hello")
        await sees(pilot, "Hi.")
        await idle(pilot)
        await pilot.press("shift+tab")
        await until(pilot, lambda: "edits freely" in status._text)
        await until(pilot, lambda: "▱" in status._text)
        assert "scripted:" in status._text
        assert "tokens" in status._text

    chat.run([turn("Hi.")], steps, size=(200, 30))


def test_slash_tree_opens_the_tree_and_a_prompt_returns_to_the_input(chat: Chat) -> None:
    session = chat.session("first", "One.", "second", "Two.")

    async def steps(pilot: Pilot[Any]) -> None:
        await sent(pilot, "/tree")
        await until(pilot, lambda: isinstance(pilot.app.screen, BranchScreen) and pilot.app.screen._source is not None)
        await pilot.press("home", "down", "down", "enter")
        await opens(pilot, MenuDialog)
        await pilot.press("enter")
        await until(pilot, lambda: screen_of(pilot).editor.text == "second")
        await idle(pilot)
        assert "Two." not in shown(pilot)

    chat.run([], steps, session=session)


def test_slash_resume_opens_the_list_and_continues_the_chosen_session(chat: Chat) -> None:
    chat.session("about apples", "Yes.").close()

    async def steps(pilot: Pilot[Any]) -> None:
        await sent(pilot, "/resume")
        await until(pilot, lambda: isinstance(pilot.app.screen, SessionChooser) and pilot.app.screen.selected)
        await pilot.press("enter")
        await sees(pilot, "about apples")

    chat.run([], steps)


def test_slash_mode_and_slash_model_open_menus(chat: Chat) -> None:
    async def steps(pilot: Pilot[Any]) -> None:
        for command in ("/mode", "/model", "/thinking"):
            await sent(pilot, command)
            await opens(pilot, ChoiceDialog)
            await pilot.press("escape")
            await idle(pilot)
        await sent(pilot, "/mode")
        await opens(pilot, ChoiceDialog)
        await pilot.press(*"auto", "enter")
        await sees(pilot, "approval: autoEdit")

    chat.run([], steps)


def test_thinking_is_shown_or_hidden_with_ctrl_t(chat: Chat) -> None:
    async def steps(pilot: Pilot[Any]) -> None:
        await sent(pilot, "think")
        await sees(pilot, "Hmm, a lexer.")
        await sees(pilot, "Done.")
        await idle(pilot)
        await pilot.press("ctrl+t")
        assert "Hmm" not in shown(pilot)
        await pilot.press("ctrl+t")
        assert "Hmm" in shown(pilot)

    chat.run([turn("Done.", thinking="Hmm, a lexer.")], steps)


def test_content_of_a_session_cannot_break_the_screen(chat: Chat) -> None:
    bad = "\x1b[2J\x1b]0;owned\x07 \u202eevil\u202c 漢字漢字 👩‍👩‍👧 [bold]x[/bold] " + "long" * 250_000
    session = chat.session("\x1b[31mred\u2066", bad, bad, "The end.")

    async def steps(pilot: Pilot[Any]) -> None:
        await sees(pilot, "The end.")
        await pilot.press("ctrl+home")
        await sees(pilot, "red")
        screen = screen_of(pilot)
        for _ in range(3):
            for y in range(screen.transcript.size.height):
                strip = screen.transcript.render_line(y)
                assert strip.cell_length == screen.transcript.size.width
                assert not any(mark in strip.text for mark in "\x1b\x07\u202e\u2066")
            await pilot.press("pagedown")

    chat.run([], steps, session=session)


# Rewinding


async def confirmed(pilot: Pilot[Any], text: str) -> None:
    """Wait for a plan that contains a text, and confirm it."""
    await opens(pilot, PlanDialog)
    await until(pilot, lambda: text in "\n".join(str(line.content) for line in pilot.app.screen.query(Static)))
    await pilot.press("y")


def test_rewind_shows_what_would_change_and_rewinds_both_and_is_undone(chat: Chat) -> None:
    path = chat.place.project / "x.txt"

    async def steps(pilot: Pilot[Any]) -> None:
        await written(pilot)
        await sent(pilot, "/rewind")
        screen = await opens(pilot, RewindScreen)
        panel = screen.query_one(RenderedPanel)
        await until(pilot, lambda: panel.is_done)
        changes = "\n".join(panel.render_line(y).text for y in range(panel.size.height))
        assert "1 file would change" in changes
        assert "delete  x.txt" in changes
        assert "-one" in changes
        await pilot.press("enter")
        await confirmed(pilot, "-one")
        await sees(pilot, "restored x.txt")
        await idle(pilot)
        assert not path.exists()
        assert screen_of(pilot).editor.text == "write it"
        screen_of(pilot).editor.set_text("")
        await sent(pilot, "/rewind")
        await opens(pilot, RewindScreen)
        await pilot.press("u")
        await confirmed(pilot, "undo the last rewind")
        await sees(pilot, "Done.")
        await idle(pilot)
        assert path.read_text() == "one\ntwo\n"

    chat.run(WRITES, steps, size=(120, 40))


@pytest.mark.parametrize(("key", "is_kept", "input"), [("c", True, "write it"), ("f", False, "")])
def test_rewind_takes_back_the_conversation_or_the_files(chat: Chat, key: str, is_kept: bool, input: str) -> None:
    async def steps(pilot: Pilot[Any]) -> None:
        await written(pilot)
        await sent(pilot, "/rewind")
        await opens(pilot, RewindScreen)
        await pilot.press("escape")
        await idle(pilot)
        await sent(pilot, "/rewind")
        await opens(pilot, RewindScreen)
        await pilot.press(key)
        await confirmed(pilot, "rewind to")
        await sees(pilot, "restored")
        await idle(pilot)
        assert (chat.place.project / "x.txt").exists() is is_kept
        assert screen_of(pilot).editor.text == input

    chat.run(WRITES, steps)
