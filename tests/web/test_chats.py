"""Chats on the page, over a real socket, with the demo model."""

from __future__ import annotations

import pytest

from tests.web.conftest import Site


@pytest.mark.parametrize("model", [None, "nope", "nope:nope"])
def test_a_chat_that_cannot_start_is_refused_with_the_reason(
    model: str | None, known: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    answer = known.post("/chat", {"model": model} if model else {}, accept="application/json")
    assert answer.status == 400
    assert "model" in answer.text or "provider" in answer.text


def test_a_chat_answers_and_is_closed(known: Site) -> None:
    chat = known.post("/chat", {"model": "demo"}).json()["chat"]
    assert known.post(f"/chat/{chat}/prompt", {"text": "hello"}).json() == {"sent": True}
    kinds = []
    for name, fields in known.events(f"/chat/{chat}/events"):
        assert name == "chat"
        kinds.append(fields["type"])
        if fields["type"] == "idle":
            break
    assert "prompt" in kinds
    assert known.post(f"/chat/{chat}/prompt", {"text": " "}).status == 400
    assert known.post(f"/chat/{chat}/close", {}).json() == {"closed": True}
