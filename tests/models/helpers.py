"""Helpers for tests of models: send a request, and a small image."""

from __future__ import annotations

import asyncio

from sessiontree.core.messages import Assistant, Message, User
from sessiontree.models import Event, Model, Request, Stop, Tool, open_model
from sessiontree.testing.model_server import ModelServer

PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
READ = Tool("read", "Read a file", {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]})
HELLO = Request([User(content="hello")], "be brief", [READ])

MODELS = {
    "anthropic": "anthropic:claude-opus-5",
    "responses": "openai:gpt-5.6",
    "chat": "openai-compatible:some-model",
    "gemini": "google:gemini-3.5-flash",
}
"""One for each protocol."""


async def gathered(model: Model, request: Request) -> list[Event]:
    return [event async for event in model.stream(request)]


def ask(model: Model, *requests: Request) -> list[list[Event]]:
    """Send requests one after the other on one connection, and return their events."""

    async def all_of_them() -> list[list[Event]]:
        try:
            return [await gathered(model, request) for request in requests]
        finally:
            await model.close()

    return asyncio.run(all_of_them())


def ask_server(server: ModelServer, name: str, *requests: Request) -> list[list[Event]]:
    return ask(open_model(name, environment=server.environment()), *requests)


def message(events: list[Event]) -> Assistant:
    assert isinstance(events[-1], Stop)
    assert sum(isinstance(event, Stop) for event in events) == 1
    return events[-1].message


def request(*messages: Message) -> Request:
    return Request(messages, "be brief", [READ])
