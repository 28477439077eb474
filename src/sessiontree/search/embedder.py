"""Embedders: texts to vectors, and how vectors are compared.

An embedder is found by the entry point `sessiontree.embedders`. Without one, WordLlama is used, whose model is part of
its package (see docs/decisions/0018-semantic.md); nothing is ever downloaded.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Sequence
from typing import Any, Protocol

from sessiontree import plugins
from sessiontree.errors import UsageError


class Embedder(Protocol):
    """Computes embeddings.

    Contract: `embed` returns one vector per text, all of the same length, a multiple of eight. The same text always has
    the same vector. The network is not used. Every model has its own name.
    """

    @property
    def name(self) -> str:
        """Name and version of the model. Vectors with another name are rebuilt, never compared."""
        ...

    @property
    def least(self) -> float:
        """Cosine similarity below which two texts are unrelated."""
        ...

    def embed(self, texts: Sequence[str]) -> list[list[float]]: ...


def find_embedder() -> Embedder:
    """The first installed embedder, else WordLlama."""
    names = plugins.names("embedders")
    found: Embedder = plugins.load("embedders", names[0]) if names else WordLlamaEmbedder()
    return found


class WordLlamaEmbedder:
    """WordLlama: the mean of static vectors of word pieces. Small, fast, good for English."""

    least = 0.2
    name = "wordllama-l2-supercat-256"

    def __init__(self) -> None:
        self._model: Any = None

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        if self._model is None:
            self._model = _load_wordllama()
        # A text without word pieces has no mean: it would be NaN.
        vectors = self._model.embed([text if text.strip() else "." for text in texts], norm=True)
        rows: list[list[float]] = vectors.tolist()
        return rows


def _load_wordllama() -> Any:
    level = logging.getLogger().level
    handlers = list(logging.getLogger().handlers)
    try:
        package = importlib.import_module("wordllama")
    except ModuleNotFoundError:
        raise UsageError("semantic search needs another package: pip install 'sessiontree[semantic]'") from None
    finally:
        # The package configures logging for the whole process when it is imported; undo that.
        logging.getLogger().handlers[:] = handlers
        logging.getLogger().setLevel(level)
    from pathlib import Path

    # The package contains the tokenizer, but by default looks for it elsewhere and then downloads it. Passing the
    # package folder as the cache makes it use its own copy.
    folder = Path(str(package.__file__)).parent
    try:
        return package.WordLlama.load(cache_dir=folder, disable_download=True)
    except FileNotFoundError as error:
        raise UsageError(
            f"the installed wordllama has no model ({error}); run pip install 'sessiontree[semantic]'"
        ) from None


def signs(vector: Sequence[float]) -> int:
    """Pack the signs of a vector, one bit each: enough to select a shortlist."""
    return int("".join("1" if number > 0 else "0" for number in vector) or "0", 2)


def similarity(first: Sequence[float], other: Sequence[float]) -> float:
    """Cosine similarity."""
    product = sum(map(float.__mul__, map(float, first), map(float, other)))
    size = sum(x * x for x in first) * sum(x * x for x in other)
    return product / size**0.5 if size > 0 else 0.0
