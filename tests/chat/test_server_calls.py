"""Tool calls over the providers' protocols: parallel runs, results written as they arrive, approval of changes."""

from __future__ import annotations

import pytest

from sessiontree.testing.model_server import ModelServer
from tests.chat.serving import MODELS, checked, leave, opened, results_sent, wait_for, wait_for_question
from tests.chat.terminals import Place, call, turn, wait_until

pytestmark = pytest.mark.slow

FIRST = "echo > one; until [ -e two ]; do sleep 0.02; done; echo first is done"
SECOND = "echo > two; until [ -e one ] && [ -e go ]; do sleep 0.02; done; echo second is done"
"""Each command waits for what the other one does, and the second one for a file besides."""


@pytest.mark.parametrize("model", MODELS)
def test_calls_run_in_parallel_and_changes_need_approval(place: Place, model: str) -> None:
    """Allowed once, allowed for the session (also after it is resumed), and denied with a reason."""
    script = [
        turn("Both.", call("bash", command=FIRST, timeout=25), call("bash", command=SECOND, timeout=25), piece=5),
        turn("Three.", call("bash", command="echo 3 > three")),
        turn("Four.", call("bash", command="echo 4 > four")),
        turn("I write.", call("write", path="five", content="5\n")),
        turn("Not that one, then."),
    ]
    with ModelServer(script) as server, opened(place, server, model) as terminal:
        terminal.enter("make files")
        wait_for_question(terminal, "bash")
        assert not (place.project / "one").exists()
        terminal.answer("y")
        wait_for_question(terminal, "bash")
        assert not ((place.project / "one").exists() and (place.project / "two").exists())
        terminal.answer("y")
        wait_for(lambda: kept(place) == ["first is done"], "the first result in the file")
        assert len(server.requests) == 1
        (place.project / "go").touch()
        terminal.wait_for("Three.")
        assert kept(place) == ["first is done", "second is done"]
        assert [text.strip() for text in results_sent(server.requests[1])] == kept(place)

        wait_for_question(terminal, "bash")  # once was once
        assert not (place.project / "three").exists()
        terminal.answer("a")
        terminal.wait_for("I write.")
        assert (place.project / "four").exists()
        wait_for_question(terminal, "write")  # for the session was for that tool
        terminal.answer("n five is a bad name")
        terminal.wait_for("Not that one, then.")
        terminal.wait_for("tokens in")
        leave(terminal)
        assert terminal.shown.count("\n? ") == 4
    denied = "write was not run: five is a bad name. Nothing was changed."
    assert not (place.project / "five").exists()
    messages = checked(place)
    assert [one.calls for one in messages if one.calls] == [("bash", "bash"), ("bash",), ("bash",), ("write",)]
    assert [(one.text, one.is_error) for one in messages if one.role == "toolResult"][-1] == (denied, True)
    assert denied in results_sent(server.requests[-1])[-1]
    assert place.session().config.approval_tools == ("bash",)

    calls = call("bash", command="echo 6 > six"), call("write", path="seven", content="7\n")
    with ModelServer([turn("Both.", *calls), turn("Done.")]) as server, opened(place, server, model, "-c") as terminal:
        terminal.wait_for("skips approvals (approved: bash). Allow that again? [y/N]")
        terminal.answer("y")
        terminal.wait_for("approvals are skipped: approved: bash")
        terminal.enter("go on")
        wait_for_question(terminal, "write")
        wait_until(place.project / "six")
        terminal.answer("y")
        terminal.wait_for("Done.")
        terminal.wait_for("tokens in")
        terminal.enter("/approve none")
        terminal.wait_for("approved for this session: nothing")
        leave(terminal)
        assert terminal.shown.count("\n? ") == 1
    assert checked(place)[-1].text == "Done."
    assert (place.project / "seven").read_text() == "7\n"
    assert len(place.sessions()) == 1
    assert place.session().config.approval_tools == ()


def kept(place: Place) -> list[str]:
    """The results of the two commands that the file contains so far, in file order."""
    lines = [line for path in (place.home / "sessions").rglob("*.jsonl") for line in path.read_text().splitlines()]
    return [text for line in lines for text in ("first is done", "second is done") if f'"text":"{text}' in line]
