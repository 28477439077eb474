"""The chat on the whole screen, driven by keys, with a scripted model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from tests.chat.terminals import Place, call, turn
from tests.tui.chats import Chat, idle, screen_of, sees, sent, shown


@pytest.fixture
def chat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Chat:
    place = Place(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SESSIONTREE_HOME", str(place.home))
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


def test_a_resumed_session_shows_its_conversation_back_to_the_first_entry(chat: Chat) -> None:
    texts = [text for number in range(200) for text in (f"question {number}", f"answer {number}")]

    async def steps(pilot: Pilot[Any]) -> None:
        await sees(pilot, "answer 199")
        await pilot.press("pageup")
        assert "answer 199" not in shown(pilot)
        await pilot.press("ctrl+home")
        await sees(pilot, "question 0")
        await pilot.press("ctrl+end")
        await sees(pilot, "answer 199")

    chat.run([], steps, session=chat.session(*texts))


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
