"""Endpoints: URL, API and key of a model, from "provider:name" and the environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct

from sessiontree.errors import ModelAccessError, UsageError

Api: TypeAlias = Literal["anthropic-messages", "openai-responses", "openai-completions", "google-generative-ai"]
"""Pi's names, which are recorded in messages."""


class Provider(Struct, frozen=True):
    """API, key and URL of a provider."""

    api: Api
    keys: tuple[str, ...] = ()
    """Environment variables for the key; the first one that is set counts."""
    urls: tuple[str, ...] = ()
    default_url: str | None = None
    """Default URL of a local server; None for the provider's own."""
    needs_key: bool = True
    needs_url: bool = False


PROVIDERS: dict[str, Provider] = {
    "anthropic": Provider("anthropic-messages", ("ANTHROPIC_API_KEY",), ("ANTHROPIC_BASE_URL",)),
    "openai": Provider("openai-responses", ("OPENAI_API_KEY",), ("OPENAI_BASE_URL",)),
    "openai-chat": Provider("openai-completions", ("OPENAI_API_KEY",), ("OPENAI_BASE_URL",)),
    "google": Provider(
        "google-generative-ai", ("GEMINI_API_KEY", "GOOGLE_API_KEY"), ("GOOGLE_GEMINI_BASE_URL", "GEMINI_BASE_URL")
    ),
    "ollama": Provider(
        "openai-completions",
        ("OLLAMA_API_KEY",),
        ("OLLAMA_BASE_URL", "OLLAMA_HOST"),
        "http://127.0.0.1:11434/v1",
        needs_key=False,
    ),
    "vllm": Provider(
        "openai-completions", ("VLLM_API_KEY",), ("VLLM_BASE_URL",), "http://127.0.0.1:8000/v1", needs_key=False
    ),
    "llamacpp": Provider(
        "openai-completions",
        ("LLAMACPP_API_KEY",),
        ("LLAMACPP_BASE_URL",),
        "http://127.0.0.1:8080/v1",
        needs_key=False,
    ),
    "openai-compatible": Provider(
        "openai-completions",
        ("OPENAI_COMPATIBLE_API_KEY",),
        ("OPENAI_COMPATIBLE_BASE_URL",),
        needs_key=False,
        needs_url=True,
    ),
}

ALIASES = {"gemini": "google", "openai-responses": "openai", "claude": "anthropic", "llama.cpp": "llamacpp"}


class Endpoint(Struct, frozen=True):
    """URL, API and key of one model."""

    provider: str
    model: str
    api: Api
    base_url: str | None
    key: str | None
    key_variables: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.provider}:{self.model}"

    def __repr__(self) -> str:
        """Without the key, which must not get into a log."""
        return f"Endpoint({self.name!r}, {self.api!r}, {self.base_url!r})"


def split_name(name: str) -> tuple[str, str]:
    """Split a name into provider and model."""
    provider, colon, model = name.strip().partition(":")
    if not colon or not provider or not model:
        raise UsageError(
            f"{name!r} is not a model: expected provider:name, like anthropic:claude-sonnet-5 (providers: {_listed()})"
        )
    provider = ALIASES.get(provider.lower(), provider.lower())
    if provider not in PROVIDERS:
        raise UsageError(f"{name!r}: unknown provider {provider!r} (providers: {_listed()})")
    return provider, model


def find_endpoint(name: str, environment: Mapping[str, str]) -> Endpoint:
    """Find the endpoint of a model. `ModelAccessError` names a missing environment variable."""
    name_of_provider, model = split_name(name)
    provider = PROVIDERS[name_of_provider]
    key = _first(environment, provider.keys)
    if key is None and provider.needs_key:
        raise ModelAccessError(f"{name_of_provider} needs an API key: set {' or '.join(provider.keys)}")
    url = _first(environment, provider.urls)
    if url is None and provider.needs_url:
        raise ModelAccessError(f"{name_of_provider} needs a URL: set {' or '.join(provider.urls)}")
    base_url = provider.default_url if url is None else _address(url, provider, environment)
    return Endpoint(name_of_provider, model, provider.api, base_url, key, provider.keys)


def _address(url: str, provider: Provider, environment: Mapping[str, str]) -> str:
    """The given base URL, or one made from Ollama's host variable."""
    if url == environment.get("OLLAMA_HOST") and "OLLAMA_HOST" in provider.urls:
        url = url if "://" in url else f"http://{url}"
        parts = urlsplit(url)
        # The same variable sets the address that the server listens on, which may be "all interfaces".
        host = "127.0.0.1" if parts.hostname in (None, "0.0.0.0", "::") else parts.hostname  # noqa: S104
        port = f":{parts.port or 11434}" if parts.scheme == "http" or parts.port else ""
        return f"{parts.scheme}://{host}{port}{parts.path.rstrip('/') or '/v1'}"
    if urlsplit(url).scheme not in ("http", "https"):
        raise UsageError(f"{url!r} is not a URL of a server: expected http://... or https://...")
    return url.rstrip("/")


def _first(environment: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((environment[name].strip() for name in names if environment.get(name, "").strip()), None)


def _listed() -> str:
    return ", ".join(PROVIDERS)
