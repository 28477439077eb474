"""The terminal UI in a real terminal, from the list of sessions to a resumed chat."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

import sessiontree
from tests.chat.terminals import Place, Terminal, call, scripted, session_texts, turn
from tests.tui.tmux import Tmux, require_tmux


@pytest.fixture
def place(tmp_path: Path) -> Place:
    require_tmux()
    place = Place(tmp_path)
    for fruit in ("apples", "pears"):
        session = sessiontree.create(place.project, home=place.home)
        session.append("user", f"tell me about {fruit}")
        session.append("assistant", [{"type": "text", "text": f"All about {fruit}."}])
        session.append("user", "and now the rest")
        session.append("assistant", [{"type": "text", "text": f"The rest of {fruit}."}])
        session.close()
    return place


def program(*arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "sessiontree", *arguments)


@pytest.mark.slow
def test_a_user_finds_a_session_walks_its_tree_chats_forks_approves_interrupts_and_resumes(
    place: Place, tmp_path: Path
) -> None:
    write = turn("", call("write", path="x.txt", content="one\n"))
    slow = turn("word " * 4_000, delay=0.05, piece=5)
    environment = {**place.environment, "SESSIONTREE_MODEL": scripted(place, write, turn("Written."), slow)}
    with Tmux(tmp_path / "tmux", place.project, environment) as terminal:
        # The list: filter and preview.
        terminal.command(*program())
        terminal.wait_for("about pears")
        terminal.type("apples")
        terminal.wait_until_gone("pears")
        terminal.wait_for(r"The rest of apples\.")
        # The tree: go to the first answer.
        terminal.press("Down")
        terminal.wait_for("c Chat")  # the list has the focus
        terminal.press("t")
        terminal.wait_for("view: default")
        terminal.press("Home")
        terminal.press("Down")
        terminal.press("Enter")
        terminal.wait_for("Summarize the branch")
        terminal.press("Enter")
        terminal.wait_for("Done: switch|assistant +All about apples.*here")
        terminal.press("Escape")
        terminal.wait_for("1 session")
        # The chat, in the same app.
        terminal.press("c")
        terminal.wait_for("asks first")
        assert "The rest of apples" not in terminal.shown
        # Fork with Esc Esc: the first prompt returns to the input.
        terminal.press("Escape", "Escape")
        terminal.wait_for("Go to just before which prompt")
        terminal.press("Enter")
        terminal.wait_for(r"│ tell me about apples")
        terminal.type(", in a file")
        terminal.press("Enter")
        # Approval, interrupt, leave.
        terminal.wait_for(r"Yes, once")
        terminal.wait_for(r"\+one")
        while "Yes, once" in terminal.shown:
            terminal.press("y")  # keys of the first moment belong to the input
        terminal.wait_for(r"Written\.")
        terminal.press("C-c")
        terminal.type("slowly")
        terminal.press("Enter")
        terminal.wait_for("word word")
        terminal.press("Escape")
        terminal.wait_for("Interrupted")
        terminal.press("C-c", "C-c")
        line = terminal.wait_for(r"Resume with: (sessiontree chat --session \S+)")[1]
        # Resume.
        terminal.command("clear")
        terminal.command(*program(*shlex.split(line)[1:]))
        terminal.wait_for("Written|word word")
        terminal.press("C-c", "C-c")
        terminal.wait_for("Resume with")
    assert (place.project / "x.txt").read_text() == "one\n"
    apples = next(session for session in place.sessions() if "apples" in (session.name or str(session.path())))
    assert len(apples.leaves()) == 2


def test_a_terminal_that_answers_no_query_shows_the_chat_at_once(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with Terminal(place, ["--model", scripted(place)], plain=False) as terminal:
        terminal.wait_for("asks first")
        terminal.type("\x03\x03")
        assert terminal.end() == 0


def test_a_dumb_terminal_chats_line_by_line(tmp_path: Path) -> None:
    place = Place(tmp_path)
    model = scripted(place, turn("Hello."))
    with Terminal(place, ["--model", model], {"TERM": "dumb"}, plain=False) as terminal:
        terminal.enter("hi")
        terminal.wait_for("Hello.")
        terminal.enter("/quit")
        assert terminal.end() == 0
        assert "\x1b[?1049h" not in terminal.raw


@pytest.mark.parametrize(
    "seconds", [pytest.param(1.5, id="a moment"), pytest.param(60, id="a minute", marks=pytest.mark.slow)]
)
def test_no_key_is_lost_at_200_keys_a_second_while_the_window_changes(tmp_path: Path, seconds: float) -> None:
    place = Place(tmp_path)
    sizes = ((160, 50), (40, 10), (100, 30), (20, 5), (200, 60))
    model = scripted(place, turn("Finished.", when="the end"), turn("Read.", repeat=True))
    with Terminal(place, ["--model", model], plain=False) as terminal:
        terminal.wait_for("asks first")
        prompts = [""]
        for number in range(int(seconds * 20)):
            keys = f"{number:09d}" + ("\n" if number % 6 == 5 else " ")
            terminal.type(keys)
            prompts[-1] += keys
            if number % 4 == 0:
                terminal.resize(*sizes[number // 4 % len(sizes)])
            if number % 20 == 19:
                terminal.type(".\r")  # a prompt: queued, if the answer before it is still arriving
                prompts[-1] += "."
                prompts.append("")
            terminal.read_for(len(keys) / 200)
        terminal.resize(160, 50)
        terminal.type("the end")
        terminal.type("\r")
        terminal.wait_for("Finished.")
        terminal.type("\x03\x03")
        assert terminal.end() == 0
    assert session_texts(place)[::2] == [*prompts[:-1], f"{prompts[-1]}the end"]


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [("-r",), ("chat", "-r")])
def test_resuming_without_a_name_opens_the_list_and_continues_the_chosen_session(
    place: Place, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    environment = {**place.environment, "SESSIONTREE_MODEL": scripted(place, turn("More pears."))}
    with Tmux(tmp_path / "tmux", place.project, environment) as terminal:
        terminal.command(*program(*arguments))
        terminal.wait_for("about pears")
        terminal.type("pears")
        terminal.wait_until_gone("apples")
        terminal.press("Enter")
        terminal.wait_for(r"The rest of pears\.")
        terminal.wait_for("asks first")  # the chat is open
        terminal.type("go on")
        terminal.press("Enter")
        terminal.wait_for(r"More pears\.")
