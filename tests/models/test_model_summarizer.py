"""A model as a summarizer: from synchronous code, inside an event loop, and when it fails."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sessiontree.compaction.extractive import EXTRACTIVE
from sessiontree.compaction.summarizers import Request as SummaryRequest
from sessiontree.core.messages import User
from sessiontree.errors import NotFoundError, SummaryError
from sessiontree.models import ScriptedModel, ScriptTurn, open_model
from sessiontree.models.model_summarizer import OpenedModelSummarizer, complete_with, summarizer_for
from sessiontree.models.scripted import ScriptCall, ScriptError
from sessiontree.settings import Compaction, Retry, Settings
from sessiontree.testing.model_server import ModelServer

REQUEST = SummaryRequest("history", [User(content="We chose SQLite.")])


def test_a_model_of_a_provider_writes_a_summary() -> None:
    with ModelServer([ScriptTurn(text="## Goal\nSQLite", repeat=True)]) as server:
        summarize = OpenedModelSummarizer(
            lambda: open_model("anthropic:claude-opus-5", environment=server.environment()), "claude"
        )
        first, second = summarize(REQUEST), summarize(REQUEST)
        bodies = [one.body for one in server.requests]
    assert (first.text, second.text) == ("## Goal\nSQLite", "## Goal\nSQLite")
    assert first.usage is not None
    assert "We chose SQLite." in str(bodies[0]["messages"])
    assert bodies[0]["max_tokens"] == REQUEST.max_tokens
    assert bodies[0]["system"]


def test_the_settings_choose_the_summarizer(tmp_path: Path) -> None:
    assert summarizer_for(Settings()) is EXTRACTIVE
    script = tmp_path / "script.json"
    script.write_text('{"turns": [{"text": "by the script"}]}')
    named = summarizer_for(Settings(compaction=Compaction(summarizer=f"scripted:{script}")))
    assert named.name == f"scripted:{script}"
    assert named(REQUEST).text == "by the script"
    with pytest.raises(NotFoundError, match="no summarizer named"):
        summarizer_for(Settings(compaction=Compaction(summarizer="nobody")))


def test_it_can_be_called_inside_a_running_event_loop() -> None:
    async def inside() -> str:
        return OpenedModelSummarizer(lambda: ScriptedModel([ScriptTurn(text="short")]), "script")(REQUEST).text

    assert asyncio.run(inside()) == "short"


@pytest.mark.parametrize(
    ("turn", "expected"),
    [
        (ScriptTurn(error=ScriptError("auth")), "returned no summary"),
        (ScriptTurn(text="half", stop="length"), "is incomplete"),
        (ScriptTurn(text="no", stop="refusal"), "returned no summary"),
        (ScriptTurn(tool_calls=(ScriptCall("rm"),)), "called a tool"),
        (ScriptTurn(text="  "), "empty"),
        (ScriptTurn(text="half of it", drop_after=1), "returned no summary"),
    ],
)
def test_an_incomplete_summary_is_an_error(turn: ScriptTurn, expected: str) -> None:
    with pytest.raises(SummaryError, match=expected):
        OpenedModelSummarizer(lambda: ScriptedModel([turn]), "script", Retry(attempts=0))(REQUEST)


def test_a_request_to_a_busy_model_is_retried() -> None:
    model = ScriptedModel([ScriptTurn(error=ScriptError("overloaded")), ScriptTurn(text="ok")])
    complete = complete_with(lambda: model, Retry(1, 0.0, 0.0))
    assert complete(system="s", messages=[{"role": "user", "content": "x"}], max_tokens=5).text == "ok"


def test_errors_of_the_program_are_not_hidden_as_answers() -> None:
    def broken() -> ScriptedModel:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        complete_with(broken)(system="s", messages=[], max_tokens=5)
