"""A run over HTTP: the provider's own package, with a local server that plays a script."""

from __future__ import annotations

import asyncio

import pytest

from sessiontree.agent.events import Event, Persisted, Retry, ToolEnd
from sessiontree.agent.loop import run
from sessiontree.agent.tools.base import load_tools
from sessiontree.core.messages import Assistant, message_text
from sessiontree.models import ScriptTurn, open_model
from sessiontree.models.scripted import ScriptError
from sessiontree.settings import Retry as RetrySettings
from sessiontree.settings import Settings
from sessiontree.testing.model_server import ModelServer
from tests.agent.builders import Workplace
from tests.agent.runs import call, check_is_sound, collect_events, end_of, names, results, turn


@pytest.mark.parametrize(
    "provider",
    [
        "anthropic:any",
        pytest.param("openai:any", marks=pytest.mark.slow),
        pytest.param("openai-chat:any", marks=pytest.mark.slow),
    ],
)
def test_a_run_with_tools_over_the_real_protocol(place: Workplace, provider: str) -> None:
    (place.project / "a.txt").write_text("alpha\n")
    place.session.set_config(approval_mode="yolo")
    script = [
        turn("I look.", call("read", path="a.txt"), call("bash", command="echo beta; sleep 0.1"), piece=3),
        ScriptTurn(error=ScriptError("rate_limit", retry_after=0.05)),
        turn(None, call("write", path="b.txt", content="gamma\n")),
        turn("Read alpha, printed beta, wrote gamma."),
    ]

    async def scene() -> list[Event]:
        with ModelServer(script) as server:
            model = open_model(provider, environment=server.environment())
            try:
                one = run(
                    place.session,
                    "Do it.",
                    model=model,
                    tools=load_tools(),
                    context=place.context,
                    checkpoints=place.checkpoints,
                    settings=Settings(retry=RetrySettings(first_delay=0.01)),
                    system="Be brief.",
                )
                return await collect_events(one)
            finally:
                await model.close()

    events = asyncio.run(scene())
    end = end_of(events)
    assert (end.reason, end.text) == ("done", "Read alpha, printed beta, wrote gamma.")
    assert end.spent.turns == 3
    assert end.spent.input > 0
    assert [event.call.name for event in events if isinstance(event, ToolEnd)] == ["read", "bash", "write"]
    assert len([event for event in events if isinstance(event, Retry)]) == 1
    assert names(events).count("text_delta") > 3
    assert (place.project / "b.txt").read_text() == "gamma\n"
    messages = check_is_sound(place.session)
    assert {message_text(result).split("\n")[0] for result in results(messages).values()} >= {"alpha", "beta"}
    answers = [message for message in messages if isinstance(message, Assistant)]
    assert {answer.model for answer in answers} == {"any"}
    assert len([event for event in events if isinstance(event, Persisted)]) == len(place.session.path())
