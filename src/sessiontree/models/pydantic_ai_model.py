"""Providers' models through Pydantic AI. The only module that sends requests.

Pydantic AI is imported with the first request. It sends each request once (`max_retries` is 0): retries are made in
`retry`, where they are visible and can be interrupted.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from sessiontree.errors import ModelError, UnreachableError, UsageError
from sessiontree.models.accumulator import AnswerAccumulator
from sessiontree.models.base import Event, Request, Stop, UsageReport
from sessiontree.models.endpoints import Api, Endpoint
from sessiontree.models.facts import Facts

if TYPE_CHECKING:
    from pydantic_ai.models import Model as LibraryModel
    from pydantic_ai.settings import ModelSettings

# Below the limits of most models, because the reserved length counts against rate limits and the context window.
LONGEST_ANSWER = 32_000

NOT_INSTALLED = "models need more packages: pip install 'sessiontree[models]'"


class PydanticAIModel:
    """A provider's model."""

    def __init__(self, endpoint: Endpoint, facts: Facts) -> None:
        self._endpoint = endpoint
        self._facts = facts
        self._opened: tuple[asyncio.AbstractEventLoop, LibraryModel] | None = None

    @property
    def name(self) -> str:
        return self._endpoint.name

    @property
    def facts(self) -> Facts:
        return self._facts

    async def stream(self, request: Request, /) -> AsyncGenerator[Event, None]:
        model = await self._model()
        from pydantic_ai.direct import model_request_stream
        from pydantic_ai.exceptions import AgentRunError

        from sessiontree.models.from_provider import ended_calls, events_of, message_of
        from sessiontree.models.pydantic_ai_errors import map_error
        from sessiontree.models.to_provider import parameters, to_provider

        endpoint = self._endpoint
        field = model.profile.get("openai_chat_thinking_field")
        sendable = to_provider(request.messages, endpoint, field if isinstance(field, str) else None)
        system = "\n\n".join(text for text in (sendable.system, request.system) if text) or None
        accumulator = AnswerAccumulator(endpoint.provider, endpoint.model, endpoint.api)
        try:
            async with model_request_stream(
                model,
                sendable.messages,
                model_settings=self._settings(request),
                model_request_parameters=parameters(request.tools, system),
            ) as response:
                async for part in response:
                    for event in events_of(part, endpoint.api):
                        accumulator.add(event)
                        yield event
                complete = response.get()
        except AgentRunError as error:
            raise map_error(error, endpoint, accumulator.message("error", str(error))) from error
        except ModelError:
            raise
        except Exception as error:  # a bug of the library, or a tool's schema that it cannot translate
            problem = f"{endpoint.name}: the request failed: {type(error).__name__}: {error}"
            raise ModelError(problem, accumulator.message("error", problem)) from error
        # A dropped connection may end the stream without an error. Then there is no finish reason.
        if complete.finish_reason is None:
            problem = f"{endpoint.name}: the answer was interrupted"
            raise UnreachableError(problem, accumulator.message("error", problem))
        for event in ended_calls(complete.parts, endpoint.api):
            yield event
        message = message_of(complete, endpoint, self._facts.prices)
        if message.usage is not None:
            yield UsageReport(message.usage)
        yield Stop(message)

    async def close(self) -> None:
        opened, self._opened = self._opened, None
        # Connections of an event loop that has ended were closed with it.
        if opened is not None and opened[0] is asyncio.get_running_loop():
            await opened[1].__aexit__(None, None, None)

    async def _model(self) -> LibraryModel:
        """The library's model for the running event loop. Its connections stay open between requests."""
        loop = asyncio.get_running_loop()
        # Importing takes a second or more, so it must not block the event loop, which may be updating a display.
        await asyncio.to_thread(import_packages, self._endpoint.api)
        if self._opened is None or self._opened[0] is not loop:
            model = build(self._endpoint)
            self._opened = (loop, model)  # before the first await, so that concurrent streams share it
            await model.__aenter__()
        return self._opened[1]

    def _settings(self, request: Request) -> ModelSettings:
        settings: ModelSettings = {
            "max_retries": 0,
            "max_tokens": request.max_tokens or min(self._facts.output, LONGEST_ANSWER),
            "cache": request.cache,
        }
        if self._endpoint.api == "openai-completions" and request.max_tokens is None:
            # A local server knows its limit better, and rejects one that does not fit its window.
            del settings["max_tokens"]
        if request.thinking is not None:
            settings["thinking"] = False if request.thinking == "off" else request.thinking
        return settings


def import_packages(api: Api) -> None:
    """Import the packages that an API needs; `UsageError` with the command to install them if one is missing."""
    try:
        for name in ("pydantic_ai.direct", *_PACKAGES[api]):
            importlib.import_module(name)
    except ImportError as error:
        raise UsageError(NOT_INSTALLED) from error


_PACKAGES: dict[Api, tuple[str, ...]] = {
    "anthropic-messages": ("pydantic_ai.models.anthropic",),
    "google-generative-ai": ("pydantic_ai.models.google",),
    "openai-responses": ("pydantic_ai.models.openai",),
    "openai-completions": ("pydantic_ai.models.openai", "pydantic_ai.models.ollama"),
}


def build(endpoint: Endpoint) -> LibraryModel:
    """Build the library's model for an endpoint."""
    key, url, name = endpoint.key, endpoint.base_url, endpoint.model
    match endpoint.api:
        case "anthropic-messages":
            from pydantic_ai.models.anthropic import AnthropicModel
            from pydantic_ai.providers.anthropic import AnthropicProvider

            return AnthropicModel(name, provider=AnthropicProvider(api_key=key or "", base_url=url))
        case "google-generative-ai":
            from pydantic_ai.models.google import GoogleModel
            from pydantic_ai.providers.google import GoogleProvider

            return GoogleModel(name, provider=GoogleProvider(api_key=key or "", base_url=url))
        case "openai-responses":
            from pydantic_ai.models.openai import OpenAIResponsesModel, OpenAIResponsesModelSettings
            from pydantic_ai.providers.openai import OpenAIProvider

            # Do not store the conversation at the provider: the session is the only copy.
            private = OpenAIResponsesModelSettings(openai_store=False)
            return OpenAIResponsesModel(
                name, provider=OpenAIProvider(base_url=url, api_key=key or ""), settings=private
            )
        case "openai-completions":
            from pydantic_ai.models.ollama import OllamaModel
            from pydantic_ai.models.openai import OpenAIChatModel
            from pydantic_ai.providers.ollama import OllamaProvider
            from pydantic_ai.providers.openai import OpenAIProvider
            from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

            if endpoint.provider == "openai-chat":
                return OpenAIChatModel(name, provider=OpenAIProvider(base_url=url, api_key=key or ""))
            if endpoint.provider == "ollama":
                return OllamaModel(name, provider=OllamaProvider(base_url=url, api_key=key))
            provider = OpenAICompatibleProvider(endpoint.provider, base_url=url or "", api_key=key)
            return OpenAIChatModel(name, provider=provider)
