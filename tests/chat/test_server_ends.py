"""Runs that do not complete: Ctrl-C during a tool, a question or an answer, and a program that is killed."""

from __future__ import annotations

import pytest

from sessiontree.testing.model_server import ModelServer
from tests.chat.serving import (
    MODELS,
    checked,
    leave,
    opened,
    results_sent,
    say,
    sent,
    wait_for_end,
    wait_for_question,
)
from tests.chat.terminals import Place, call, turn, wait_until

pytestmark = pytest.mark.slow

WAITS = "echo begun; sleep 1000 & echo $$ > {0}; wait; echo never > {0}.never"
"""A command with a child; both are in the process group whose number it writes down."""


@pytest.mark.parametrize("model", MODELS)
def test_ctrl_c_at_any_time_leaves_a_valid_session(place: Place, model: str) -> None:
    script = [
        turn("I wait.", call("bash", command=WAITS.format("group"))),
        turn("First on.", call("bash", command=WAITS.format("other")), call("write", path="x", content="x")),
        turn("The second is on.", piece=4),
        turn("one two three four five six seven eight nine ten", call("bash", command="echo > x"), piece=4, delay=0.25),
        turn("And on to the end."),
    ]
    with ModelServer(script) as server, opened(place, server, model) as terminal:
        terminal.enter("/approve bash")
        terminal.wait_for("approved for this session: bash")

        terminal.enter("wait")
        wait_until(place.project / "group")
        terminal.interrupt()
        terminal.wait_for("Interrupted. Unfinished tool calls")
        wait_for_end(place, "group")
        (result,) = [one for one in checked(place) if one.role == "toolResult"]
        assert result.is_error
        assert "This call was interrupted: the user interrupted it. It may have done part" in result.text
        assert result.text.endswith("Its last output:\nbegun\n")

        terminal.enter("wait, and ask me")
        wait_for_question(terminal, "write")
        wait_until(place.project / "other")
        terminal.interrupt()
        terminal.wait_for("Interrupted. Unfinished tool calls")
        wait_for_end(place, "other")
        began, asked = sorted(one.text for one in checked(place)[-2:])
        assert began.startswith("This call was interrupted")
        assert asked == "This call was not run: the user interrupted it. It changed nothing."
        say(terminal, "still there?", "The second is on.")
        assert all(text in sent(server.requests[-1]) for text in (result.text.partition("\n")[0], asked))

        terminal.enter("count")
        terminal.wait_for("one two three")
        terminal.interrupt()
        terminal.wait_for("Interrupted. Unfinished tool calls")
        assert server.wait_for("left") is server.requests[3]  # the request itself was dropped
        partial = checked(place)[-1]
        assert partial.role == "assistant"
        assert partial.text.startswith("one two three")
        assert not partial.text.endswith("ten")
        say(terminal, "go on", "And on to the end.")
        assert "one two three" in sent(server.requests[-1])
        leave(terminal)
    assert checked(place)[-1].text == "And on to the end."
    assert list(place.project.glob("*.never")) == []
    assert not (place.project / "x").exists()


APPENDS = "echo run >> {0}; test $(wc -l < {0}) = 1 && echo $$ > {0}.group && sleep 1000; echo {0} is done"
"""A command with a side effect that is seen each time; the first time it does not end by itself."""
NAMES = ("again", "skipped", "told")


@pytest.mark.parametrize("model", MODELS)
def test_the_user_decides_about_calls_that_a_killed_program_left_open(place: Place, model: str) -> None:
    """Killed during three tool calls: the user decides about each, and running a call again needs approval."""
    calls = [call("bash", command=APPENDS.format(name)) for name in NAMES]
    with (
        ModelServer([turn("Three at once.", *calls)]) as server,
        opened(place, server, model, "--approval", "yolo") as terminal,
    ):
        terminal.enter("append")
        for name in NAMES:
            wait_until(place.project / f"{name}.group")
        terminal.kill()
    for name in NAMES:
        wait_for_end(place, f"{name}.group")  # nothing of them outlives the program

    with (
        ModelServer([turn("All three are settled.")]) as server,
        opened(place, server, model, "-c", "--approval", "default") as terminal,
    ):
        terminal.wait_for("These calls have no result:")
        terminal.wait_for("yourself:")
        terminal.interrupt()
        terminal.wait_for("cancelled")
        terminal.enter("go on then")
        for name, answer in zip(NAMES, ("r", "s", "a it printed 7"), strict=True):
            terminal.wait_for(f"echo run >> {name}")
            terminal.wait_for("yourself:")
            terminal.answer(answer)
        wait_for_question(terminal, "bash")
        assert [_runs(place, name) for name in NAMES] == [1, 1, 1]
        assert server.requests == []
        terminal.answer("y")
        terminal.wait_for("All three are settled.")
        terminal.wait_for("tokens in")
        leave(terminal)
    assert [_runs(place, name) for name in NAMES] == [2, 1, 1]
    again, skipped, told = results_sent(server.requests[0])
    assert again.strip() == "again is done"
    assert "The result of this call was lost: none was stored." in skipped
    assert told == "it printed 7"
    messages = checked(place)
    assert [one.role for one in messages] == ["user", "assistant", *["toolResult"] * 3, "user", "assistant"]
    assert {one.is_error for one in messages if "none was stored" in one.text} == {True}
    assert len(place.sessions()) == 1


def _runs(place: Place, name: str) -> int:
    return len((place.project / name).read_text().split())
