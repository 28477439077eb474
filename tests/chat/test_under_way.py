"""During a run: output is shown as it arrives, and typed lines are queued."""

from __future__ import annotations

import os
import re
import time

import pytest

from sessiontree.models.scripted import ScriptError, ScriptTurn
from sessiontree.views.text import columns
from tests.agent.builders import is_alive, pid_in, wait_for
from tests.chat.terminals import Place, Terminal, call, scripted, session_texts, texts, turn, wait_until

WAITING = "echo $$ > pid; until test -e go; do sleep 0.02; done"
"""A command that ends when the test lets it."""
LIVE = re.compile(r"\x1b\[(\d+)A\x1b\[J")


def waiting(place: Place, *more: ScriptTurn, before: str = "") -> str:
    """A model whose first call waits for the test."""
    return scripted(place, turn("I wait.", call("bash", command=before + WAITING)), *more)


def begun(place: Place, model: str, more: dict[str, str] | None = None) -> Terminal:
    """A terminal in which a command is running."""
    terminal = Terminal(place, ["--model", model, "--approval", "yolo"], more)
    terminal.enter("go")
    wait_until(place.project / "pid")
    return terminal


def leave(terminal: Terminal) -> None:
    terminal.enter("/quit")
    assert terminal.end() == 0


# What is printed


def test_the_last_lines_of_a_command_are_shown_only_while_it_runs(place: Place) -> None:
    model = waiting(place, turn("Done."), before="for i in $(seq 1 9); do echo row $i; done; ")
    with begun(place, model) as terminal:
        terminal.wait_for("  row 5\n  row 6\n  row 7\n  row 8\n  row 9\n")
        assert "✓" not in terminal.shown
        (place.project / "go").touch()
        shown = terminal.wait_for("Done.")
        leave(terminal)
    assert "\x1b[5A\x1b[J" in terminal.raw.partition("row 9")[2]
    assert "  row 1\n  row 2\n  row 3\n  row 4\n  row 5\n  … 4 more lines" in shown


def test_output_of_a_user_command_is_shown_while_it_runs_and_completely_at_the_end(place: Place) -> None:
    with Terminal(place, ["--model", scripted(place, turn("One."))]) as terminal:
        terminal.enter(f"!for i in $(seq 1 9); do echo row $i; done; {WAITING}")
        terminal.wait_for("  row 8\n  row 9\n")
        (place.project / "go").touch()
        terminal.wait_for("".join(f"row {number}\n" for number in range(1, 10)) + "· exit code 0 · saved")
        leave(terminal)


def test_output_of_parallel_commands_is_shown_with_the_command_title(place: Place) -> None:
    calls = [call("bash", command=f"echo from {name}; {WAITING}; : {name}") for name in ("here", "there")]
    with begun(place, scripted(place, turn("Both.", *calls), turn("Done."))) as terminal:
        terminal.wait_for("… bash echo from ")
        (place.project / "go").touch()
        terminal.wait_for("Done.")
        leave(terminal)


def test_output_of_a_command_cannot_control_the_terminal_or_exceed_its_width(place: Place) -> None:
    evil = "printf '\\033]0;owned\\007\\033[2J\\302\\233 \\342\\200\\256gnp\\n'; "
    wide = "for i in $(seq 1 200); do printf 和平; done; echo; printf '10%%\\r55%%\\r99%%'; "
    with begun(place, waiting(place, turn("Done."), before=evil + wide)) as terminal:
        terminal.wait_for("  99%")
        (place.project / "go").touch()
        terminal.wait_for("Done.")
        leave(terminal)
    for sequence in ("\x1b]0;owned", "\x1b[2J", "\x9b", "\u202e"):
        assert sequence not in terminal.raw
    live = terminal.shown.partition("✓")[0].splitlines()
    assert max(columns(line) for line in live if "和平" in line and "seq" not in line) <= 159
    assert not any(line.startswith("  10%") for line in live)  # it was written over


@pytest.mark.parametrize("kind", ["no terminal", "a dumb one"])
def test_only_the_result_is_shown_where_lines_cannot_be_erased(place: Place, kind: str) -> None:
    command = "for i in $(seq 1 3); do echo row $i; sleep 0.15; done"
    model = scripted(place, turn("I print.", call("bash", command=command)), turn("Done."))
    if kind == "no terminal":
        out = place.run("--model", model, "--approval", "yolo", typed=f"go\n!{command}\n/quit\n").out
    else:
        with Terminal(place, ["--model", model, "--approval", "yolo"], {"TERM": "dumb"}) as terminal:
            terminal.enter("go")
            terminal.wait_for("Done.")
            terminal.enter(f"!{command}")
            terminal.wait_for("exit code 0")
            leave(terminal)
        out = terminal.raw
    assert out.count("row 2") == 2
    assert not LIVE.search(out)


# What is typed


def test_a_line_typed_during_a_run_is_queued_and_sent_next(place: Place) -> None:
    with begun(place, waiting(place, turn("Waited."), turn("And that, too."))) as terminal:
        terminal.answer("and then this")
        terminal.wait_for("next> and then this")
        terminal.wait_for("· queued (Ctrl-C")
        (place.project / "go").touch()
        terminal.wait_for("Waited.")
        terminal.wait_for("> and then this")
        terminal.wait_for("And that, too.")
        leave(terminal)
    assert session_texts(place)[-3:] == ["Waited.", "and then this", "And that, too."]


STEER = "\x13"
"""Ctrl-S."""


def test_a_line_entered_with_ctrl_s_is_sent_when_the_current_calls_are_done(place: Place) -> None:
    going_on = turn("As you like.", call("bash", command="echo more"))
    with begun(place, waiting(place, going_on, turn("Done."), turn("Answered."))) as terminal:
        terminal.answer("at the end")
        terminal.wait_for("· queued")
        terminal.type(f"be brief{STEER}")
        terminal.wait_for("· will be sent when the current calls are done")
        (place.project / "go").touch()
        terminal.wait_for("Answered.")
        leave(terminal)
    assert [text for text in session_texts(place) if "more" not in text][3:] == [
        "be brief",
        "As you like.",
        "Done.",
        "at the end",
        "Answered.",
    ]


def test_after_ctrl_c_a_steering_line_returns_to_the_input_and_a_command_waits(place: Place) -> None:
    with begun(place, waiting(place, turn("Answered."))) as terminal:
        terminal.type(f"/label here{STEER}")
        terminal.wait_for("· queued (Ctrl-C")
        terminal.type(f"be brief{STEER}")
        terminal.wait_for("· will be sent when the current calls are done")
        terminal.interrupt()
        terminal.wait_for("Interrupted.")
        terminal.wait_for("> /label here")
        terminal.wait_for("be brief")
        terminal.interrupt()  # clears the input
        terminal.interrupt()
        assert terminal.end() == 0
    assert "be brief" not in session_texts(place)
    assert place.session().labels == {}


def test_queued_lines_and_commands_run_in_order(place: Place) -> None:
    with begun(place, waiting(place, turn("Waited."), turn("Answered."))) as terminal:
        for line in ("/label here", "!echo by hand", "a prompt"):
            terminal.answer(line)
            terminal.wait_for("· queued")
        (place.project / "go").touch()
        terminal.wait_for("· labeled here")
        terminal.wait_for("by hand\n· exit code 0")
        terminal.wait_for("Answered.")
        leave(terminal)
    session = place.session()
    (labelled,) = session.labels
    assert texts(session)[-4:] == ["Waited.", "echo by hand\nby hand\n", "a prompt", "Answered."]
    assert session.context(labelled).messages[-1] == session.context().messages[-4]


def test_ctrl_c_ends_the_run_and_returns_queued_lines_to_the_input(place: Place) -> None:
    with begun(place, waiting(place, turn("Answered."))) as terminal:
        terminal.answer("never mind the rest")
        terminal.wait_for("· queued")
        terminal.interrupt()
        terminal.wait_for("Interrupted.")
        terminal.wait_for("> never mind the rest")
        assert not any("never mind" in text for text in session_texts(place))
        terminal.answer(" of it")
        terminal.wait_for("Answered.")
        leave(terminal)
    assert session_texts(place)[-2:] == ["never mind the rest of it", "Answered."]


def test_esc_while_typing_ends_the_run_and_keeps_the_line(place: Place) -> None:
    with begun(place, waiting(place, turn("Answered."))) as terminal:
        terminal.answer("first")
        terminal.wait_for("· queued")
        terminal.type("half a th")
        terminal.wait_for("next> half a th")
        terminal.type("\x1b")
        terminal.wait_for("Interrupted.")
        terminal.wait_for("> first")
        terminal.wait_for("half a th")
        terminal.answer("ought")
        terminal.wait_for("Answered.")
        leave(terminal)
    assert session_texts(place)[-2] == "first\n\nhalf a thought"


def test_queued_lines_are_not_sent_after_a_failed_run(place: Place) -> None:
    with begun(place, waiting(place, ScriptTurn(error=ScriptError("auth")))) as terminal:
        terminal.answer("go on")
        terminal.wait_for("· queued")
        (place.project / "go").touch()
        terminal.wait_for("✗ ")
        terminal.wait_for("> go on")
        terminal.interrupt()  # clears the input
        terminal.answer("/quit")
        assert terminal.end() == 0
    assert not any("go on" in text for text in session_texts(place))


def test_the_run_continues_while_a_line_is_being_typed(place: Place) -> None:
    with begun(place, waiting(place, turn("Waited."), turn("Answered."))) as terminal:
        terminal.type("I am thin")
        terminal.wait_for("next> I am thin")
        (place.project / "go").touch()
        wait_for(lambda: texts(place.sessions()[-1])[-1] == "Waited.")
        assert "Waited." not in terminal.shown
        terminal.answer("king")
        terminal.wait_for("Waited.")
        terminal.wait_for("Answered.")
        leave(terminal)
    assert session_texts(place)[-2:] == ["I am thinking", "Answered."]


def test_keys_typed_before_a_question_do_not_answer_it(place: Place) -> None:
    asks = turn("I write.", call("write", path="x", content="x"))
    model = waiting(place, asks, turn("Denied."), turn("To the first."), turn("To the second."))
    with Terminal(place, ["--model", model]) as terminal:
        terminal.enter("/approve bash")
        terminal.enter("go")
        wait_until(place.project / "pid")
        terminal.answer("yes")
        terminal.wait_for("· queued")
        terminal.type("y")  # and a key just before the question comes
        terminal.wait_for("next> y")
        (place.project / "go").touch()
        terminal.type("\r")
        terminal.wait_for("a reason:")
        assert not (place.project / "x").exists()
        terminal.answer("n")
        terminal.wait_for("To the second.")
        leave(terminal)
    assert not (place.project / "x").exists()
    assert session_texts(place)[-5:] == ["Denied.", "yes", "To the first.", "y", "To the second."]


def test_a_large_paste_during_a_run_is_a_placeholder_and_complete_for_the_model(place: Place) -> None:
    pasted = "\n".join(f"line {number}" for number in range(120))
    with begun(place, waiting(place, turn("Waited."), turn("Long."))) as terminal:
        terminal.type(f"\x1b[200~{pasted}\x1b[201~")
        terminal.wait_for("next> [Pasted text #1 +120 lines]")
        terminal.type("\r")
        terminal.wait_for("· queued")
        (place.project / "go").touch()
        terminal.wait_for("Long.")
        leave(terminal)
    assert session_texts(place)[-2] == pasted
    assert "line 60" not in terminal.shown


def test_keys_that_are_not_printable_open_no_line(place: Place) -> None:
    with begun(place, waiting(place, turn("Waited."))) as terminal:
        terminal.type("\r \x1b[A\r")
        time.sleep(0.3)
        (place.project / "go").touch()
        terminal.wait_for("Waited.")
        leave(terminal)
    assert "next>" not in terminal.shown


def test_with_plain_input_the_next_line_is_read_after_the_run(place: Place) -> None:
    with begun(place, waiting(place, turn("Waited."), turn("Answered.")), {"TERM": "dumb"}) as terminal:
        terminal.answer("and then this")
        (place.project / "go").touch()
        terminal.wait_for("Waited.")
        terminal.wait_for("Answered.")
        leave(terminal)
    assert session_texts(place)[-2:] == ["and then this", "Answered."]


def test_terminal_settings_are_restored(place: Place) -> None:
    """Also when the program is terminated while a line is being typed."""
    with begun(place, waiting(place)) as terminal:
        terminal.type("half")
        terminal.wait_for("next> half")
        os.kill(terminal.process.pid, 15)
        assert terminal.end() == 128 + 15
    assert any("This call was interrupted" in text for text in session_texts(place))
    assert terminal.raw.rfind("\x1b[?2004l") > terminal.raw.rfind("\x1b[?2004h")


def test_a_program_terminated_during_a_user_command_records_it_and_exits(place: Place) -> None:
    with Terminal(place, ["--model", scripted(place, turn("One."))]) as terminal:
        terminal.enter("hello")
        terminal.wait_for("One.")
        terminal.enter(f"!echo begun; {WAITING}")
        wait_until(place.project / "pid")
        os.kill(terminal.process.pid, 15)
        assert terminal.end() == 128 + 15
    assert session_texts(place)[-1].endswith("begun\n")
    wait_for(lambda: not is_alive(pid_in(place.project / "pid")))
