"""The native dialect: Pi's version 3 with a few entry types of our own."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sessiontree.dialects.native.client import CLIENT
    from sessiontree.dialects.native.dialect import NATIVE

# Imported on first use: a search needs the client alone.
_MODULES = {"CLIENT": "client", "NATIVE": "dialect"}

__all__ = ["CLIENT", "NATIVE"]


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'sessiontree.dialects.native' has no attribute {name!r}")
    return getattr(importlib.import_module(f"sessiontree.dialects.native.{_MODULES[name]}"), name)
