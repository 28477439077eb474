"""The dialect of Gemini CLI."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sessiontree.dialects.gemini.client import CLIENT
    from sessiontree.dialects.gemini.dialect import GEMINI

# Imported on first use: a search needs the client alone.
_MODULES = {"CLIENT": "client", "GEMINI": "dialect"}

__all__ = ["CLIENT", "GEMINI"]


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'sessiontree.dialects.gemini' has no attribute {name!r}")
    return getattr(importlib.import_module(f"sessiontree.dialects.gemini.{_MODULES[name]}"), name)
