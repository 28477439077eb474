"""A chat in a real terminal, with a model server that implements the providers' protocols."""

from __future__ import annotations

import os
import re
import signal

import pytest

import sessiontree
from sessiontree.cli import main
from sessiontree.core.jsonio import render_json
from sessiontree.core.messages import Image, Text, User, message_text
from sessiontree.testing.model_server import ModelServer
from tests.agent.builders import is_alive, pid_in, wait_for
from tests.chat.terminals import Place, Terminal, call, scripted, session_texts, turn, wait_until

MODELS = ["anthropic:claude-opus-5", "openai:gpt-5"]


def test_ctrl_c_at_a_question_ends_the_turn(place: Place) -> None:
    model = scripted(place, turn("I write.", call("write", path="x", content="x")), turn("Never said."))
    with Terminal(place, ["--model", model]) as terminal:
        terminal.enter("write")
        terminal.wait_for("a reason:")
        terminal.interrupt()
        terminal.wait_for("Interrupted.")
        terminal.wait_for_prompt()
        terminal.type("\x04")
        assert terminal.end() == 0
    assert not (place.project / "x").exists()
    assert "This call was not run" in session_texts(place)[-1]


@pytest.mark.parametrize(
    ("answer", "runs", "result"),
    [("r", 2, "once"), ("s", 1, "The result of this call was lost"), ("a it printed 7", 1, "it printed 7")],
    ids=["run again", "skip", "answer by hand"],
)
def test_the_user_decides_about_a_call_that_a_crash_left_open(
    place: Place, answer: str, runs: int, result: str
) -> None:
    """Killed during a tool call: the user is asked about it, and nothing is run twice without approval."""
    command = "echo run >> count; echo $$ > pid; test $(wc -l < count) = 1 && sleep 100; echo once"
    first = scripted(place, turn("I count.", call("bash", command=command)))
    with Terminal(place, ["--model", first, "--approval", "yolo"]) as terminal:
        terminal.enter("count")
        wait_until(place.project / "pid")
        terminal.kill()
    wait_for(lambda: not is_alive(pid_in(place.project / "pid")))
    with Terminal(place, ["-c", "--model", scripted(place, turn("Counted."))]) as terminal:
        terminal.wait_for("skips approvals (mode yolo). Allow that again? [y/N]")
        terminal.answer("y")
        terminal.wait_for("This call has no result:")
        terminal.wait_for("yourself:")
        assert len((place.project / "count").read_text().split()) == 1
        terminal.answer(answer)
        terminal.wait_for("Counted.")
        terminal.enter("/quit")
        assert terminal.end() == 0
    assert len((place.project / "count").read_text().split()) == runs
    assert result in session_texts(place)[-2]


def test_large_pastes_are_placeholders_on_the_screen_and_complete_for_the_model(place: Place) -> None:
    model = scripted(place, turn("Long."))
    pasted = "\n".join(f"line {number}" for number in range(120))
    with Terminal(place, ["--model", model]) as terminal:
        terminal.wait_for_prompt()
        terminal.type(f"see \x1b[200~{pasted}\x1b[201~")
        terminal.wait_for("[Pasted text #1 +120 lines]")
        terminal.type("\r")
        terminal.wait_for("Long.")
        terminal.enter("/quit")
        assert terminal.end() == 0
    assert session_texts(place)[0] == f"see {pasted}"
    assert "line 60" not in terminal.shown


def test_double_escape_lists_prompts_and_preserves_the_input(place: Place) -> None:
    model = scripted(place, turn("One."), turn("Two."))
    with Terminal(place, ["--model", model]) as terminal:
        terminal.enter("first prompt")
        terminal.wait_for("One.")
        terminal.enter("second prompt " + "word " * 30)
        terminal.wait_for("Two.")
        terminal.wait_for_prompt()
        terminal.type("half a thought")
        terminal.wait_for("half a thought")
        terminal.type("\x1b\x1b")
        shown = terminal.wait_for("Enter to cancel]")
        newest, oldest = re.findall(r"^ +\d \d\d-\d\d \d\d:\d\d  (.*)$", shown, re.MULTILINE)
        assert newest.startswith("second prompt word")
        assert newest.endswith("word…")
        assert 70 < len(newest) <= 80
        assert oldest == "first prompt"
        terminal.answer("")
        terminal.wait_for("> half a thought")
        terminal.type("\x03")  # clears the input
        terminal.answer("/quit")
        assert terminal.end() == 0


def test_escape_cancels_a_list_and_takes_no_key_after_it(place: Place) -> None:
    with Terminal(place, ["--model", scripted(place, turn("One."), turn("Two."))]) as terminal:
        terminal.enter("first prompt")
        terminal.wait_for("One.")
        terminal.enter("/tree")
        terminal.wait_for("Jump to [1-2, Enter to cancel]")
        terminal.type("\x1b")
        terminal.enter("2 more, please")
        terminal.wait_for("Two.")
        terminal.enter("/quit")
        assert terminal.end() == 0
    assert session_texts(place) == ["first prompt", "One.", "2 more, please", "Two."]


def test_a_fork_by_double_escape_appends_the_input_to_the_prompt(place: Place) -> None:
    with Terminal(place, ["--model", scripted(place, turn("One."), turn("Two."))]) as terminal:
        terminal.enter("first prompt")
        terminal.wait_for("One.")
        terminal.wait_for_prompt()
        terminal.type("half a thought")
        terminal.wait_for("half a thought")
        terminal.type("\x1b\x1b")
        terminal.wait_for("Enter to cancel]")
        terminal.answer("1")
        terminal.wait_for("> first prompt")
        terminal.wait_for("half a thought")
        terminal.type("\r")
        terminal.wait_for("Two.")
        terminal.enter("/quit")
        assert terminal.end() == 0
    assert session_texts(place) == ["first prompt\n\nhalf a thought", "Two."]
    assert len(place.sessions()) == 2


def test_earlier_prompts_are_recalled_with_the_arrow_and_by_search(place: Place) -> None:
    model = scripted(place, turn("One."), turn("Two."), turn("Three."))
    place.run("--model", model, typed="an older prompt\n/quit\n")
    with Terminal(place, ["--model", model]) as terminal:
        terminal.wait_for_prompt()
        terminal.type("\x1b[A")
        terminal.wait_for("an older prompt")
        terminal.type("\r")
        terminal.wait_for("One.")
        terminal.wait_for_prompt()
        terminal.type("\x12older")
        terminal.wait_for("an older prompt")
        terminal.type("\r")
        terminal.type("\r")
        terminal.wait_for("Two.")
        terminal.enter("/quit")
        assert terminal.end() == 0
    assert session_texts(place) == ["an older prompt", "One.", "an older prompt", "Two."]


def test_commands_are_completed_and_unknown_ones_get_a_suggestion(place: Place) -> None:
    with Terminal(place, ["--model", scripted(place, turn("One."))]) as terminal:
        terminal.wait_for_prompt()
        terminal.type("/doc\t")
        terminal.wait_for("/doctor")
        terminal.type("\r")
        terminal.wait_for("no problems found")
        terminal.enter("/moddel")
        terminal.wait_for("did you mean /model?")
        terminal.enter("/quit")
        assert terminal.end() == 0


def test_output_of_a_model_or_tool_cannot_control_the_terminal(place: Place) -> None:
    evil = "\x1b]0;owned\x07\x1b[2Jgone \u202egnp 和平"
    (place.project / "evil.txt").write_text(evil)
    model = scripted(place, turn(evil, call("read", path="evil.txt"), piece=1), turn("Done."))
    with Terminal(place, ["--model", model]) as terminal:
        terminal.enter("go")
        terminal.wait_for("Done.")
        terminal.enter("/quit")
        assert terminal.end() == 0
    for sequence in ("\x1b]0;owned", "\x1b[2J", "\u202e"):
        assert sequence not in terminal.raw
    assert "␛]0;owned" in terminal.shown
    assert "和平" in terminal.shown


def test_no_colors_are_sent_when_they_are_turned_off(place: Place) -> None:
    model = scripted(place, turn("Plain.", thinking="quietly"))
    with Terminal(place, ["--model", model], {"NO_COLOR": "1", "TERM": "dumb"}) as terminal:
        terminal.enter("go")
        terminal.wait_for("Plain.")
        terminal.enter("/quit")
        assert terminal.end() == 0
    assert "\x1b[" not in terminal.raw


@pytest.mark.slow
def test_user_commands_are_recorded_and_a_double_bang_hides_them_from_the_model(place: Place) -> None:
    typed = "!echo for you\n!!echo for me\nwhat did I run?\n/quit\n"
    with ModelServer([turn("Seen.")]) as server:
        done = place.run("--model", MODELS[0], typed=typed, more=server.environment())
    assert done.code == 0
    assert "for you\n· exit code 0 · saved\n" in done.out
    asked = render_json(server.requests[0].body).decode()
    assert "for you" in asked
    assert "for me" not in asked
    assert place.session().count("message") == 4


@pytest.mark.parametrize("dialect", ["pi", "omp", "claude", "neovate"])
def test_a_session_of_any_agent_is_continued_in_place(place: Place, dialect: str) -> None:
    begun = sessiontree.create(place.project, home=place.home)
    begun.append("user", "said elsewhere")
    begun.append(role="assistant", content=[{"type": "text", "text": "Answered elsewhere."}])
    foreign = place.project / "foreign.jsonl"
    begun.close()
    assert main(["convert", begun.location, "--to", dialect, "--out", str(foreign), "--home", str(place.home)]) == 0
    script = [turn("I look.", call("ls", path=".")), turn("Answered here.")]
    done = place.run("--session", str(foreign), "--model", scripted(place, *script), typed="go on\n/doctor\n/quit\n")
    assert (done.code, done.err) == (0, "")
    assert "no problems found" in done.out
    session = sessiontree.open(foreign, home=place.home)
    assert session.dialect.name == dialect
    texts = [message_text(message) for message in session.context().messages]
    assert texts[0] == "said elsewhere"
    assert texts[-1] == "Answered here."


def test_ctrl_c_ends_the_turn_also_with_plain_input(place: Place) -> None:
    model = scripted(place, turn("I wait.", call("bash", command="echo $$ > pid; sleep 100")), turn("And on."))
    with Terminal(place, ["--model", model, "--approval", "yolo"], {"TERM": "dumb"}) as terminal:
        terminal.enter("wait")
        wait_until(place.project / "pid")
        terminal.interrupt()
        terminal.wait_for("Interrupted.")
        terminal.wait_for_prompt()
        terminal.interrupt()  # the second one leaves
        assert terminal.end() == 0
    assert any("This call was interrupted" in text for text in session_texts(place))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_terminated_program_settles_open_calls(place: Place, number: int) -> None:
    model = scripted(place, turn("I wait.", call("bash", command="echo $$ > pid; sleep 100")))
    with Terminal(place, ["--model", model, "--approval", "yolo"]) as terminal:
        terminal.enter("wait")
        wait_until(place.project / "pid")
        os.kill(terminal.process.pid, number)
        assert terminal.end() == 128 + number
    assert any("This call was interrupted" in text for text in session_texts(place))
    wait_for(lambda: not is_alive(pid_in(place.project / "pid")))


def test_the_pasted_path_of_an_image_becomes_the_image(place: Place) -> None:
    image = place.project / "dot.png"
    image.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(20))
    with Terminal(place, ["--model", scripted(place, turn("Seen."))]) as terminal:
        terminal.wait_for_prompt()
        terminal.type(f"look at \x1b[200~{image}\x1b[201~")
        terminal.wait_for("[Image #1]")
        terminal.type("\r")
        terminal.wait_for("Seen.")
        terminal.enter("/quit")
        assert terminal.end() == 0
    prompt = place.session().context().messages[0]
    assert isinstance(prompt, User)
    assert [type(block) for block in prompt.content] == [Text, Image]


def test_all_of_a_long_command_can_be_read_before_it_is_approved(place: Place) -> None:
    command = "\n".join([*(f"true {number}" for number in range(90)), "touch last"])
    model = scripted(place, turn("I run it.", call("bash", command=command)), turn("I did not."))
    run = place.run("--model", model, typed="go\ns\nn\n/quit\n")
    first, second = run.out.split("Allow? ")[:2]
    assert "… 11 more lines" in first
    assert "touch last" not in first
    assert second.startswith("[y]es/[a]lways in this session/[s]how all of it/[n]o")
    assert "touch last" in second
    assert not (place.project / "last").exists()


def test_always_applies_to_the_session_and_is_shown_when_it_is_resumed(place: Place) -> None:
    script = [turn("One.", call("bash", command="touch one")), turn("Two.", call("bash", command="touch two"))]
    first = place.run("--model", scripted(place, *script, turn("Both.")), typed="go\na\n/quit\n")
    assert first.out.count("Allow?") == 1
    assert (place.project / "two").exists()
    again = [turn("Three.", call("bash", command="touch three")), turn("All.")]
    second = place.run("-c", "--model", scripted(place, *again), typed="y\ngo on\n/quit\n")
    assert "approvals are skipped: approved: bash" in second.out
    assert "Allow?" not in second.out
    assert (place.project / "three").exists()
    place.session()


def test_thinking_is_dim_and_results_are_previewed(place: Place) -> None:
    (place.project / "long.txt").write_text("".join(f"row {number}\n" for number in range(40)))
    model = scripted(place, turn("I read.", call("read", path="long.txt"), thinking="Hm."), turn("Read."))
    with Terminal(place, ["--model", model]) as terminal:
        terminal.enter("go")
        terminal.wait_for("more lines")
        terminal.wait_for("Read.")
        terminal.wait_for("tokens in")
        terminal.enter("/quit")
        assert terminal.end() == 0
    assert "\x1b[2mHm.\x1b[0m" in terminal.raw
    assert "row 4\n" in terminal.shown
    assert "row 5\n" not in terminal.shown


def test_a_session_is_chosen_from_a_list(place: Place) -> None:
    place.run("--model", scripted(place, turn("One.")), "--name", "the first", typed="a\n/quit\n")
    place.run("--model", scripted(place, turn("Two.")), "--name", "the second", typed="b\n/quit\n")
    typed = "2\ngo on\n/quit\n"
    done = place.run("-r", "--model", scripted(place, turn("Three.")), typed=typed)
    assert done.out.index("the second") < done.out.index("the first")
    first, second = place.sessions()
    assert [message_text(message) for message in first.context().messages] == ["a", "One.", "go on", "Three."]
    assert second.count("message") == 2


def test_an_added_folder_may_be_used_and_another_one_needs_approval(place: Place) -> None:
    for name in ("added", "other"):
        (place.home.parent / name).mkdir()
    added, other = place.home.parent / "added", place.home.parent / "other"
    calls = (call("write", path=str(added / "x"), content="x"), call("write", path=str(other / "x"), content="x"))
    model = scripted(place, turn("I write.", *calls), turn("Done."))
    place.run("-p", "go", "--model", model, "--approval", "autoEdit", "--add-dir", str(added))
    assert (added / "x").exists()
    assert not (other / "x").exists()


def test_without_prompt_toolkit_input_is_plain_and_a_hint_names_the_extra(place: Place) -> None:
    missing = place.home.parent / "missing" / "prompt_toolkit"
    missing.mkdir(parents=True)
    (missing / "__init__.py").write_text("raise ImportError('not installed')")
    model = scripted(place, turn("Still here."))
    with Terminal(place, ["--model", model], {"PYTHONPATH": str(missing.parent)}) as terminal:
        terminal.wait_for("pip install 'sessiontree[chat]'")
        terminal.enter("hello")
        terminal.wait_for("Still here.")
        terminal.enter("/quit")
        assert terminal.end() == 0
    assert session_texts(place) == ["hello", "Still here."]


def test_a_branch_that_is_left_can_be_summarized(place: Place) -> None:
    model = scripted(place, turn("The lexer is slow."), turn("Notes about the lexer."), turn("Anew."))
    done = place.run("--model", model, typed="why is it slow?\n/tree\n2\n\n/tree\n1\ny\nstart anew\n/quit\n")
    assert "added a summary" in done.out
    texts = session_texts(place)
    assert "lexer" in texts[0]
    assert texts[1:] == ["start anew", "Anew."]


def test_bidi_characters_in_a_prompt_are_replaced_on_the_screen(place: Place) -> None:
    model = scripted(place, turn("One."))
    with Terminal(place, ["--model", model]) as terminal:
        terminal.wait_for_prompt()
        terminal.type("see \u202egnp \x1b[200~\u202eabc\x1b[201~")
        terminal.wait_for("abc")
        terminal.type("\r")
        terminal.wait_for("One.")
        terminal.enter("/quit")
        assert terminal.end() == 0
    assert "\u202e" not in terminal.raw
    assert session_texts(place)[0] == "see \u202egnp \u202eabc"


def test_ctrl_c_clears_typed_text_first_and_up_brings_it_back(place: Place) -> None:
    model = scripted(place, turn("Sent."))
    with Terminal(place, ["--model", model]) as terminal:
        terminal.wait_for_prompt()
        terminal.type("precious words")
        terminal.wait_for("precious words")
        terminal.interrupt()
        drawn = terminal.shown.count("precious words")
        while terminal.shown.count("precious words") == drawn:  # the history is loaded after the line was drawn
            terminal.type("\x1b[A")
            terminal.read_for(0.3)
        terminal.type("\r")
        terminal.wait_for("Sent.")
        terminal.enter("/quit")
        assert terminal.end() == 0
    assert session_texts(place) == ["precious words", "Sent."]


def test_esc_interrupts_a_run(place: Place) -> None:
    model = scripted(place, turn("word " * 4_000, delay=0.05, piece=5))
    with Terminal(place, ["--model", model]) as terminal:
        terminal.enter("go")
        terminal.wait_for("word word")
        terminal.type("\x1b")
        terminal.wait_for("Interrupted.")
        terminal.enter("/quit")
        assert terminal.end() == 0


def test_a_list_takes_arrows(place: Place) -> None:
    model = scripted(place, turn("One."), turn("Two."))
    with Terminal(place, ["--model", model]) as terminal:
        terminal.enter("first prompt")
        terminal.wait_for("One.")
        terminal.enter("second prompt")
        terminal.wait_for("Two.")
        terminal.enter("/fork")
        terminal.wait_for("Fork just before which prompt?")
        terminal.type("\x1b[B\x1b[B")
        terminal.wait_for("first prompt")
        terminal.type("\r")
        terminal.wait_for("> first prompt")
        terminal.interrupt()
        terminal.type("/quit\r")
        assert terminal.end() == 0
