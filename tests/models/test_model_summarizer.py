"""A model as the summarizers want it, from ordinary code, from inside a loop, and when it fails."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sessiontree.compaction.extractive import EXTRACTIVE
from sessiontree.compaction.summarizers import Request as Summarise
from sessiontree.core.messages import User
from sessiontree.errors import NotFoundError, SummaryError
from sessiontree.models import ScriptedModel, ScriptTurn, open_model
from sessiontree.models.model_summarizer import OpenedModelSummarizer, complete_with, summarizer_for
from sessiontree.models.script import ScriptCall, ScriptError
from sessiontree.settings import Compaction, Retry, Settings
from sessiontree.testing.model_server import ModelServer

ASKED = Summarise("history", [User(content="We chose SQLite.")])


def test_a_model_of_a_provider_writes_a_summary() -> None:
    with ModelServer([ScriptTurn(text="## Goal\nSQLite", repeat=True)]) as server:
        summarise = OpenedModelSummarizer(
            lambda: open_model("anthropic:claude-opus-5", environment=server.environment()), "claude"
        )
        first, second = summarise(ASKED), summarise(ASKED)
        bodies = [one.body for one in server.requests]
    assert (first.text, second.text) == ("## Goal\nSQLite", "## Goal\nSQLite")
    assert first.usage is not None
    assert "We chose SQLite." in str(bodies[0]["messages"])
    assert bodies[0]["max_tokens"] == ASKED.max_tokens
    assert bodies[0]["system"]


def test_the_settings_say_who_summarises(tmp_path: Path) -> None:
    assert summarizer_for(Settings()) is EXTRACTIVE
    script = tmp_path / "script.json"
    script.write_text('{"turns": [{"text": "by the script"}]}')
    named = summarizer_for(Settings(compaction=Compaction(summarizer=f"scripted:{script}")))
    assert named.name == f"scripted:{script}"
    assert named(ASKED).text == "by the script"
    with pytest.raises(NotFoundError, match="no summarizer named"):
        summarizer_for(Settings(compaction=Compaction(summarizer="nobody")))


def test_it_can_be_called_where_a_loop_is_running() -> None:
    async def inside() -> str:
        return OpenedModelSummarizer(lambda: ScriptedModel([ScriptTurn(text="short")]), "script")(ASKED).text

    assert asyncio.run(inside()) == "short"


@pytest.mark.parametrize(
    ("turn", "said"),
    [
        (ScriptTurn(error=ScriptError("auth")), "returned no summary"),
        (ScriptTurn(text="half", stop="length"), "is incomplete"),
        (ScriptTurn(text="no", stop="refusal"), "returned no summary"),
        (ScriptTurn(tool_calls=(ScriptCall("rm"),)), "called a tool"),
        (ScriptTurn(text="  "), "empty"),
        (ScriptTurn(text="half of it", drop_after=1), "returned no summary"),
    ],
)
def test_what_is_no_whole_summary_is_an_error(turn: ScriptTurn, said: str) -> None:
    with pytest.raises(SummaryError, match=said):
        OpenedModelSummarizer(lambda: ScriptedModel([turn]), "script", Retry(attempts=0))(ASKED)


def test_a_busy_model_is_asked_again() -> None:
    model = ScriptedModel([ScriptTurn(error=ScriptError("overloaded")), ScriptTurn(text="ok")])
    complete = complete_with(lambda: model, Retry(1, 0.0, 0.0))
    assert complete(system="s", messages=[{"role": "user", "content": "x"}], max_tokens=5).text == "ok"


def test_what_is_wrong_with_the_program_is_not_hidden_as_an_answer() -> None:
    def broken() -> ScriptedModel:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        complete_with(broken)(system="s", messages=[], max_tokens=5)
