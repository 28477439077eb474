"""The conversation in a real terminal, with a model server that speaks the providers' protocols."""

from __future__ import annotations

import os
import re
import signal

import pytest

import sessiontree
from sessiontree.cli import main
from sessiontree.entries import Compaction
from sessiontree.messages import Image, Text, User, message_text
from sessiontree.models.script import ScriptError, ScriptTurn
from sessiontree.testing.model_server import ModelServer
from sessiontree.values import render_json
from tests.chat.terminals import Place, Terminal, call, said, scripted, turn, wait_until

MODELS = ["anthropic:claude-opus-5", "openai:gpt-5"]


@pytest.mark.parametrize("model", MODELS)
def test_a_conversation_from_the_first_prompt_to_the_last(place: Place, model: str) -> None:
    """Parallel calls, approvals, rewind, tree, fork and compaction, each checked in the files it leaves."""
    (place.project / "a.txt").write_text("alpha")
    note = place.project / "note.md"
    script = [
        turn("I look at both.", call("read", path="a.txt"), call("ls", path=".")),
        turn("I write.", call("write", path="note.md", content="first\n"), call("bash", command="touch made")),
        turn("Written."),
        turn("Second answer."),
        turn("Third answer."),
        turn("Answer in the fork."),
    ]
    with ModelServer(script) as server, Terminal(place, ["--model", model], server.environment()) as terminal:
        terminal.enter("look and write")
        terminal.wait_for("→ read a.txt")
        terminal.wait_for("I write.")
        for _ in range(2):  # the two questions come in either order
            terminal.wait_for("\n? ")
            asked = terminal.wait_for(":")
            terminal.wait_for("the reason:")
            terminal.answer("y" if asked == "write:" else "n not now")
        terminal.wait_for("Written.")
        terminal.wait_for("tokens in")
        assert note.exists(), terminal.shown
        assert note.read_text() == "first\n"
        assert not (place.project / "made").exists()
        assert any("bash was not run: not now" in text for text in said(place))

        terminal.enter("a second prompt")
        terminal.wait_for("Second answer.")
        terminal.enter("/rewind")
        terminal.wait_for("1-2, or nothing")
        terminal.answer("2")
        terminal.wait_for("-first")
        terminal.wait_for("[b]oth?")
        terminal.answer("f")
        terminal.wait_for("note.md brought back")
        assert not note.exists()
        terminal.enter("/rewind undo")
        terminal.wait_for("[y/N]")
        terminal.answer("y")
        terminal.wait_for("note.md brought back")
        assert note.read_text() == "first\n"

        terminal.enter("/tree")
        shown = terminal.wait_for("or nothing to leave it:")
        row = next(line for line in shown.splitlines() if "a second prompt" in line)
        terminal.answer(row.split()[0])
        terminal.wait_for("above all:")
        terminal.answer("n")
        terminal.wait_for("stands at")
        terminal.wait_for("> a second prompt")  # back in the input, to be said otherwise
        terminal.answer(", otherwise")
        terminal.wait_for("Third answer.")
        terminal.wait_for("tokens in")
        assert said(place)[-2:] == ["a second prompt, otherwise", "Third answer."]

        terminal.enter("/fork")
        terminal.wait_for("or nothing to leave it:")
        terminal.answer("1")
        terminal.wait_for("> a second prompt, otherwise")
        terminal.answer(" again")
        terminal.wait_for("Answer in the fork.")
        terminal.enter("/doctor")
        terminal.wait_for("nothing is wrong")
        terminal.enter("/quit")
        assert terminal.end() == 0
    before, after = place.sessions()
    assert message_text(before.context().messages[-1]) == "Third answer."
    assert said(place)[-2:] == ["a second prompt, otherwise again", "Answer in the fork."]
    assert after.header.forked_from is not None


def test_ctrl_c_ends_the_turn_and_leaves_a_session_that_goes_on(place: Place) -> None:
    script = [turn("I wait.", call("bash", command="echo $$ > pid; sleep 100")), turn("And on.")]
    with (
        ModelServer(script) as server,
        Terminal(place, ["--model", MODELS[0], "--approval", "yolo"], server.environment()) as terminal,
    ):
        terminal.enter("wait")
        wait_until(place.project / "pid")
        terminal.interrupt()
        terminal.wait_for("interrupted")
        assert any("This call was interrupted" in text for text in said(place))
        with pytest.raises(ProcessLookupError):
            os.kill(int((place.project / "pid").read_text()), 0)
        terminal.enter("go on")
        terminal.wait_for("And on.")
        terminal.wait_for_prompt()
        terminal.interrupt()
        terminal.wait_for("once more")
        terminal.wait_for_prompt()
        terminal.interrupt()
        assert terminal.end() == 0
    assert said(place)[-1] == "And on."


def test_ctrl_c_at_a_question_ends_the_turn(place: Place) -> None:
    model = scripted(place, turn("I write.", call("write", path="x", content="x")), turn("Never said."))
    with Terminal(place, ["--model", model]) as terminal:
        terminal.enter("write")
        terminal.wait_for("the reason:")
        terminal.interrupt()
        terminal.wait_for("interrupted")
        terminal.wait_for_prompt()
        terminal.type("\x04")
        assert terminal.end() == 0
    assert not (place.project / "x").exists()
    assert "This call was not run" in said(place)[-1]


@pytest.mark.parametrize(
    ("answer", "runs", "told"),
    [("r", 2, "once"), ("s", 1, "The result of this call was lost"), ("a it printed 7", 1, "it printed 7")],
    ids=["run again", "skip", "answer by hand"],
)
def test_a_call_that_a_crash_left_open_is_decided_by_the_person(
    place: Place, answer: str, runs: int, told: str
) -> None:
    """Killed in the middle of a tool: the call is offered, and nothing is run twice without a yes."""
    command = "echo run >> count; echo $$ > pid; test $(wc -l < count) = 1 && sleep 100; echo once"
    first = scripted(place, turn("I count.", call("bash", command=command)))
    with Terminal(place, ["--model", first, "--approval", "yolo"]) as terminal:
        terminal.enter("count")
        wait_until(place.project / "pid")
        terminal.kill()
    os.kill(int((place.project / "pid").read_text()), signal.SIGKILL)
    with Terminal(place, ["-c", "--model", scripted(place, turn("Counted."))]) as terminal:
        terminal.wait_for("have no result")
        terminal.wait_for("by hand:")
        assert len((place.project / "count").read_text().split()) == 1
        terminal.answer(answer)
        terminal.wait_for("Counted.")
        terminal.enter("/quit")
        assert terminal.end() == 0
    assert len((place.project / "count").read_text().split()) == runs
    assert told in said(place)[-2]


def test_a_large_conversation_is_compacted_on_request_and_after_an_overflow(place: Place) -> None:
    script = [turn("word " * 30_000), turn("Short."), ScriptTurn(error=ScriptError("overflow")), turn("It fits now.")]
    with ModelServer(script) as server, Terminal(place, ["--model", MODELS[1]], server.environment()) as terminal:
        terminal.enter("say much")
        terminal.wait_for("tokens in")
        terminal.enter("say little")
        terminal.wait_for("Short.")
        terminal.enter("/compact keep the words")
        terminal.wait_for("messages are summarised")
        terminal.enter("word " * 50)
        terminal.wait_for("making room because the model's window is full")
        terminal.wait_for("tokens in")
        terminal.enter("/quit")
        assert terminal.end() == 0
    assert any(isinstance(entry, Compaction) for entry in place.session().path())


def test_large_pastes_are_marks_on_the_screen_and_whole_for_the_model(place: Place) -> None:
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
    assert said(place)[0] == f"see {pasted}"
    assert "line 60" not in terminal.shown


def test_double_escape_lists_prompts_and_keeps_what_is_typed(place: Place) -> None:
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
        shown = terminal.wait_for("or nothing to leave it:")
        newest, oldest = re.findall(r"^ +\d \d\d-\d\d \d\d:\d\d  (.*)$", shown, re.MULTILINE)
        assert newest.startswith("second prompt word")
        assert newest.endswith("word…")
        assert 70 < len(newest) <= 80
        assert oldest == "first prompt"
        terminal.answer("")
        terminal.wait_for("> half a thought")
        terminal.type("\x03")
        terminal.enter("/quit")
        assert terminal.end() == 0


def test_a_fork_from_the_list_of_double_escape_keeps_what_is_typed_behind_the_prompt(place: Place) -> None:
    with Terminal(place, ["--model", scripted(place, turn("One."), turn("Two."))]) as terminal:
        terminal.enter("first prompt")
        terminal.wait_for("One.")
        terminal.wait_for_prompt()
        terminal.type("half a thought")
        terminal.wait_for("half a thought")
        terminal.type("\x1b\x1b")
        terminal.wait_for("or nothing to leave it:")
        terminal.answer("1")
        terminal.wait_for("> first prompt")
        terminal.wait_for("half a thought")
        terminal.type("\r")
        terminal.wait_for("Two.")
        terminal.enter("/quit")
        assert terminal.end() == 0
    assert said(place) == ["first prompt\n\nhalf a thought", "Two."]
    assert len(place.sessions()) == 2


def test_earlier_prompts_come_back_with_the_arrow_and_by_search(place: Place) -> None:
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
    assert said(place) == ["an older prompt", "One.", "an older prompt", "Two."]


def test_commands_are_completed_and_unknown_ones_name_the_nearest(place: Place) -> None:
    with Terminal(place, ["--model", scripted(place, turn("One."))]) as terminal:
        terminal.wait_for_prompt()
        terminal.type("/doc\t")
        terminal.wait_for("/doctor")
        terminal.type("\r")
        terminal.wait_for("nothing is wrong")
        terminal.enter("/moddel")
        terminal.wait_for("did you mean /model?")
        terminal.enter("/quit")
        assert terminal.end() == 0


def test_what_a_model_or_a_tool_says_cannot_steer_the_terminal(place: Place) -> None:
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


def test_without_colours_no_colour_is_sent(place: Place) -> None:
    model = scripted(place, turn("Plain.", thinking="quietly"))
    with Terminal(place, ["--model", model], {"NO_COLOR": "1", "TERM": "dumb"}) as terminal:
        terminal.enter("go")
        terminal.wait_for("Plain.")
        terminal.enter("/quit")
        assert terminal.end() == 0
    assert "\x1b[" not in terminal.raw


def test_commands_of_the_user_run_and_are_kept_and_two_marks_keep_one_from_the_model(place: Place) -> None:
    typed = "!echo for you\n!!echo for me\nwhat did I run?\n/quit\n"
    with ModelServer([turn("Seen.")]) as server:
        done = place.run("--model", MODELS[0], typed=typed, more=server.environment())
    assert done.code == 0
    assert "for you\n· exit code 0 · kept\n" in done.out
    asked = render_json(server.requests[0].body).decode()
    assert "for you" in asked
    assert "for me" not in asked
    assert place.session().count("message") == 4


@pytest.mark.parametrize("dialect", ["pi", "omp", "claude", "neovate"])
def test_a_session_of_any_agent_is_gone_on_with_in_place(place: Place, dialect: str) -> None:
    begun = sessiontree.create(place.project, home=place.home)
    begun.append("user", "said elsewhere")
    begun.append(role="assistant", content=[{"type": "text", "text": "Answered elsewhere."}])
    foreign = place.project / "foreign.jsonl"
    begun.close()
    assert main(["convert", begun.location, "--to", dialect, "--out", str(foreign), "--home", str(place.home)]) == 0
    script = [turn("I look.", call("ls", path=".")), turn("Answered here.")]
    done = place.run("--session", str(foreign), "--model", scripted(place, *script), typed="go on\n/doctor\n/quit\n")
    assert (done.code, done.err) == (0, "")
    assert "nothing is wrong" in done.out
    session = sessiontree.open(foreign, home=place.home)
    assert session.dialect.name == dialect
    texts = [message_text(message) for message in session.context().messages]
    assert texts[0] == "said elsewhere"
    assert texts[-1] == "Answered here."


def test_ctrl_c_ends_the_turn_also_where_lines_are_plain(place: Place) -> None:
    model = scripted(place, turn("I wait.", call("bash", command="echo $$ > pid; sleep 100")), turn("And on."))
    with Terminal(place, ["--model", model, "--approval", "yolo"], {"TERM": "dumb"}) as terminal:
        terminal.enter("wait")
        wait_until(place.project / "pid")
        terminal.interrupt()
        terminal.wait_for("interrupted")
        terminal.wait_for_prompt()
        terminal.interrupt()  # the second one leaves
        assert terminal.end() == 0
    assert any("This call was interrupted" in text for text in said(place))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_program_that_is_told_to_end_settles_what_is_open(place: Place, number: int) -> None:
    model = scripted(place, turn("I wait.", call("bash", command="echo $$ > pid; sleep 100")))
    with Terminal(place, ["--model", model, "--approval", "yolo"]) as terminal:
        terminal.enter("wait")
        wait_until(place.project / "pid")
        os.kill(terminal.process.pid, number)
        assert terminal.end() == 128 + number
    assert any("This call was interrupted" in text for text in said(place))
    with pytest.raises(ProcessLookupError):
        os.kill(int((place.project / "pid").read_text()), 0)


def test_the_path_of_an_image_that_is_pasted_becomes_the_image(place: Place) -> None:
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


def test_always_holds_for_the_session_and_is_said_when_it_is_resumed(place: Place) -> None:
    script = [turn("One.", call("bash", command="touch one")), turn("Two.", call("bash", command="touch two"))]
    first = place.run("--model", scripted(place, *script, turn("Both.")), typed="go\na\n/quit\n")
    assert first.out.count("Do it?") == 1
    assert (place.project / "two").exists()
    again = [turn("Three.", call("bash", command="touch three")), turn("All.")]
    second = place.run("-c", "--model", scripted(place, *again), typed="go on\n/quit\n")
    assert "less is asked in this session: approved: bash" in second.out
    assert "Do it?" not in second.out
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


def test_an_added_folder_may_be_worked_in_and_another_one_is_asked_about(place: Place) -> None:
    for name in ("added", "other"):
        (place.home.parent / name).mkdir()
    added, other = place.home.parent / "added", place.home.parent / "other"
    calls = (call("write", path=str(added / "x"), content="x"), call("write", path=str(other / "x"), content="x"))
    model = scripted(place, turn("I write.", *calls), turn("Done."))
    place.run("-p", "go", "--model", model, "--approval", "autoEdit", "--add-dir", str(added))
    assert (added / "x").exists()
    assert not (other / "x").exists()


def test_without_prompt_toolkit_lines_are_plain_and_it_says_what_brings_more(place: Place) -> None:
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
    assert said(place) == ["hello", "Still here."]


def test_a_branch_that_is_left_can_be_summarised(place: Place) -> None:
    model = scripted(place, turn("The lexer is slow."), turn("Anew."))
    done = place.run("--model", model, typed="why is it slow?\n/tree\n2\n\n/tree\n1\ny\nstart anew\n/quit\n")
    assert "is summarised here" in done.out
    texts = said(place)
    assert "lexer" in texts[0]
    assert texts[1:] == ["start anew", "Anew."]


def test_a_prompt_that_would_reorder_the_line_is_shown_harmless_in_the_input(place: Place) -> None:
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
    assert said(place)[0] == "see \u202egnp \u202eabc"
