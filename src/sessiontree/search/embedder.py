"""Texts as vectors that lie near each other when they mean something alike: who makes them, how they are compared.

An embedder comes in by the entry point `sessiontree.embedders`. When no package brings one, WordLlama is used, whose
model is a part of its package (see docs/decisions/0018-semantic.md); nothing is ever downloaded.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Sequence
from typing import Any, Protocol

from sessiontree import plugins
from sessiontree.errors import UsageError


class Embedder(Protocol):
    """Makes vectors.

    Contract: `embed` gives one vector for each text, all of the same length, which is a multiple of eight; the same
    text has the same vector always. It does not use the network. Another model has another name.
    """

    @property
    def name(self) -> str:
        """Of the model, with its version: vectors of another name are not compared, but made anew."""
        ...

    @property
    def least(self) -> float:
        """The cosine under which two texts have nothing to do with each other."""
        ...

    def embed(self, texts: Sequence[str]) -> list[list[float]]: ...


def find_embedder() -> Embedder:
    """The first that a package brings, else the one of WordLlama."""
    names = plugins.names("embedders")
    found: Embedder = plugins.load("embedders", names[0]) if names else WordLlamaEmbedder()
    return found


class WordLlamaEmbedder:
    """A table of word pieces with a vector each, of which the mean is taken: small, fast, good for English."""

    least = 0.2
    name = "wordllama-l2-supercat-256"

    def __init__(self) -> None:
        self._model: Any = None

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        if self._model is None:
            self._model = _load_wordllama()
        # What has no word piece has no mean, and would be no number.
        vectors = self._model.embed([text if text.strip() else "." for text in texts], norm=True)
        rows: list[list[float]] = vectors.tolist()
        return rows


def _load_wordllama() -> Any:
    level = logging.getLogger().level
    handlers = list(logging.getLogger().handlers)
    try:
        package = importlib.import_module("wordllama")
    except ModuleNotFoundError:
        raise UsageError("search by meaning needs one more package: pip install 'sessiontree[semantic]'") from None
    finally:
        # It sets up logging for the whole process when it is imported; that is not its business.
        logging.getLogger().handlers[:] = handlers
        logging.getLogger().setLevel(level)
    from pathlib import Path

    # Its own search for the tokenizer looks beside the folder it is in, and would download it; as a cache, it is found.
    folder = Path(str(package.__file__)).parent
    try:
        return package.WordLlama.load(cache_dir=folder, disable_download=True)
    except FileNotFoundError as error:
        raise UsageError(
            f"the installed wordllama has no model in it ({error}); pip install 'sessiontree[semantic]' brings one"
        ) from None


def signs(vector: Sequence[float]) -> int:
    """A vector as the signs of its numbers, one bit each: enough to tell which may be near."""
    return int("".join("1" if number > 0 else "0" for number in vector) or "0", 2)


def similarity(one: Sequence[float], other: Sequence[float]) -> float:
    """The cosine of the angle between two vectors."""
    product = sum(map(float.__mul__, map(float, one), map(float, other)))
    size = sum(x * x for x in one) * sum(x * x for x in other)
    return product / size**0.5 if size > 0 else 0.0
