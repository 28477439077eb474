"""Endpoints: URL, API and key from a model's name and the environment."""

from __future__ import annotations

import pytest

from sessiontree.errors import ModelAccessError, UsageError
from sessiontree.models.endpoints import PROVIDERS, find_endpoint

KEYS = {"ANTHROPIC_API_KEY": "a", "OPENAI_API_KEY": "o", "GEMINI_API_KEY": "g", "GOOGLE_API_KEY": "h"}


@pytest.mark.parametrize(
    ("name", "provider", "api"),
    [
        ("anthropic:claude-opus-5", "anthropic", "anthropic-messages"),
        ("openai:gpt-5", "openai", "openai-responses"),
        ("openai-chat:gpt-5", "openai-chat", "openai-completions"),
        ("gemini:gemini-3.5-flash", "google", "google-generative-ai"),
        ("Ollama:qwen3:8b", "ollama", "openai-completions"),
        ("llama.cpp:x", "llamacpp", "openai-completions"),
    ],
)
def test_a_name_consists_of_the_provider_and_the_model(name: str, provider: str, api: str) -> None:
    endpoint = find_endpoint(name, KEYS)
    assert (endpoint.provider, endpoint.api) == (provider, api)
    assert endpoint.model == name.partition(":")[2]


def test_the_first_key_that_is_set_counts_and_is_never_shown() -> None:
    assert find_endpoint("google:x", KEYS).key == "g"
    assert find_endpoint("google:x", {"GEMINI_API_KEY": " ", "GOOGLE_API_KEY": "h"}).key == "h"
    assert "topsecret" not in repr(find_endpoint("anthropic:x", {"ANTHROPIC_API_KEY": "topsecret"}))


@pytest.mark.parametrize("provider", [name for name, row in PROVIDERS.items() if row.needs_key])
def test_a_missing_key_is_named(provider: str) -> None:
    with pytest.raises(ModelAccessError, match=f"set {PROVIDERS[provider].keys[0]}"):
        find_endpoint(f"{provider}:x", {})


@pytest.mark.parametrize(
    ("host", "url"),
    [
        (None, "http://127.0.0.1:11434/v1"),
        ("0.0.0.0", "http://127.0.0.1:11434/v1"),
        ("box:1234", "http://box:1234/v1"),
        ("http://box", "http://box:11434/v1"),
        ("https://box.example", "https://box.example/v1"),
        ("https://box.example:8443/api/", "https://box.example:8443/api"),
    ],
)
def test_the_host_of_ollama_becomes_a_url(host: str | None, url: str) -> None:
    assert find_endpoint("ollama:x", {} if host is None else {"OLLAMA_HOST": host}).base_url == url


def test_a_given_url_must_be_valid() -> None:
    assert find_endpoint("vllm:x", {"VLLM_BASE_URL": "http://gpu:1/v1/"}).base_url == "http://gpu:1/v1"
    assert find_endpoint("anthropic:x", KEYS).base_url is None
    with pytest.raises(UsageError, match="not a URL of a server"):
        find_endpoint("vllm:x", {"VLLM_BASE_URL": "file:///etc/passwd"})
    with pytest.raises(ModelAccessError, match="set OPENAI_COMPATIBLE_BASE_URL"):
        find_endpoint("openai-compatible:x", {})


@pytest.mark.parametrize("name", ["", "gpt-5", ":x", "openai:", "nobody:x"])
def test_an_invalid_name_is_rejected_with_the_list_of_providers(name: str) -> None:
    with pytest.raises(UsageError, match="anthropic, openai"):
        find_endpoint(name, KEYS)
