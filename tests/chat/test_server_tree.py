"""The tree, forks and rewinds, with a model that answers over its real protocol."""

from __future__ import annotations

from pathlib import Path

import pytest

from sessiontree.testing.model_server import ModelServer
from tests.chat.serving import MODELS, checked, leave, newest, opened, say, sent, texts
from tests.chat.terminals import Place, Terminal, call, turn

pytestmark = pytest.mark.slow

FIRST = ["first prompt", "First answer."]
SECOND = ["second prompt", "Second answer."]


@pytest.mark.parametrize("model", MODELS)
def test_every_entry_of_the_tree_can_be_selected_and_forked_from(place: Place, model: str) -> None:
    script = [
        turn(text)
        for text in ("First answer.", "Second answer.", "Otherwise.", "Behind.", "Anew.", "Forked.", "Apart.")
    ]
    with ModelServer(script) as server, opened(place, server, model) as terminal:
        say(terminal, *FIRST)
        say(terminal, *SECOND)

        _go_to(terminal, "second prompt")  # a prompt: before it, and its text is back in the input
        terminal.wait_for("> second prompt")
        terminal.answer(", said otherwise")
        terminal.wait_for("Otherwise.")
        terminal.wait_for("tokens in")
        assert texts(place) == [*FIRST, "second prompt, said otherwise", "Otherwise."]
        assert "Second answer." not in sent(server.requests[-1])

        _go_to(terminal, "Second answer.")  # anything else: there
        say(terminal, "more of it", "Behind.")
        assert texts(place) == [*FIRST, *SECOND, "more of it", "Behind."]
        assert "Otherwise." not in sent(server.requests[-1])

        _go_to(terminal, "first prompt")  # the first prompt: anew
        terminal.wait_for("> first prompt")
        terminal.answer(" anew")
        terminal.wait_for("Anew.")
        terminal.wait_for("tokens in")
        assert texts(place) == ["first prompt anew", "Anew."]
        assert "First answer." not in sent(server.requests[-1])

        terminal.enter("/fork")
        terminal.wait_for("Enter to cancel]")
        terminal.answer("1")
        terminal.wait_for("> first prompt anew")
        terminal.answer(", forked")
        terminal.wait_for("Forked.")
        terminal.wait_for("tokens in")
        leave(terminal)
    whole, fork = _paths(place)
    assert texts(place, whole) == ["first prompt anew", "Anew."]
    assert texts(place, fork) == ["first prompt anew, forked", "Forked."]
    sessions = place.sessions()
    assert sessions[1].header.forked_from is not None
    assert len(sessions[0].leaves()) == 3
    before = whole.read_bytes()

    with ModelServer([turn("Apart.")]) as server, opened(place, server, model, "--fork", sessions[0].id) as terminal:
        say(terminal, "on its own", "Apart.")
        leave(terminal)
    assert whole.read_bytes() == before
    assert texts(place) == ["first prompt anew", "Anew.", "on its own", "Apart."]
    assert newest(place) not in (whole, fork)


def _go_to(terminal: Terminal, text: str) -> None:
    """Choose a row of the tree by its text."""
    terminal.enter("/tree")
    rows = terminal.wait_for("Enter to cancel]").splitlines()
    terminal.answer(next(row for row in rows if f" {text} " in row).split()[0])
    terminal.wait_for("what to focus on]")
    terminal.answer("n")
    terminal.wait_for("· now ")


def _paths(place: Place) -> list[Path]:
    return sorted((place.home / "sessions").rglob("*.jsonl"), key=lambda path: path.name)


@pytest.mark.parametrize("model", MODELS)
def test_files_the_conversation_or_both_are_rewound_and_that_can_be_undone(place: Place, model: str) -> None:
    note, script_file = place.project / "note.md", place.project / "run.sh"
    note.write_text("old\n")
    script_file.write_text("echo run\n")
    script_file.chmod(0o755)
    script = [
        turn(
            "I change both.",
            call("write", path="note.md", content="new\n"),
            call("write", path="sub/made", content="x"),
        ),
        turn("Changed."),
        turn("I edit.", call("edit", path="run.sh", old_text="run", new_text="walk")),
        turn("Edited."),
        turn("Said otherwise."),
    ]
    made = place.project / "sub" / "made"

    def standing() -> tuple[str, bool, str]:
        assert script_file.stat().st_mode & 0o777 == 0o755
        return note.read_text(), made.exists(), script_file.read_text()

    both, changed, untouched = (
        ("new\n", True, "echo walk\n"),
        ("new\n", True, "echo run\n"),
        ("old\n", False, "echo run\n"),
    )
    with ModelServer(script) as server, opened(place, server, model, "--approval", "autoEdit") as terminal:
        say(terminal, "change both", "Changed.")
        say(terminal, "edit", "Edited.")
        assert standing() == both
        whole = texts(place)

        _rewind(terminal, "2", "f", shows="-new")
        assert standing() == untouched
        assert not made.parent.exists()
        assert texts(place) == whole
        _undo(terminal)
        assert standing() == both

        _rewind(terminal, "1", "c", shows="-echo walk")
        terminal.wait_for("> edit")
        terminal.type("\x15")  # take the text out of the input
        terminal.answer("/rewind undo")
        _confirm(terminal)
        assert texts(place) == whole
        assert standing() == both

        _rewind(terminal, "1", "b", shows="-echo walk")
        terminal.wait_for("> edit")
        assert standing() == changed
        assert texts(place) == whole[: whole.index("edit")]
        terminal.answer(" something else")
        terminal.wait_for("Said otherwise.")
        terminal.wait_for("tokens in")
        assert "Edited." not in sent(server.requests[-1])

        note.write_text("mine\n")  # a change of the person's own is never overwritten without a yes
        _rewind(terminal, "2", "f", shows="note.md", overwrite="n")
        assert standing() == ("mine\n", False, "echo run\n")
        leave(terminal)
    assert [one.text for one in checked(place)][-2:] == ["edit something else", "Said otherwise."]


def _rewind(terminal: Terminal, prompt: str, what: str, *, shows: str, overwrite: str | None = None) -> None:
    terminal.enter("/rewind")
    terminal.wait_for("Enter to cancel]")
    terminal.answer(prompt)
    terminal.wait_for(shows)
    terminal.wait_for("[b]oth?")
    terminal.answer(what)
    if overwrite is not None:
        terminal.wait_for("Overwrite it? [y/N]")
        terminal.answer(overwrite)
    terminal.wait_for("; now at")


def _undo(terminal: Terminal) -> None:
    terminal.enter("/rewind undo")
    _confirm(terminal)


def _confirm(terminal: Terminal) -> None:
    terminal.wait_for("Undo the last rewind? [y/N]")
    terminal.answer("y")
    terminal.wait_for("; now at")
