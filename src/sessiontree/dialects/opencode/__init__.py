"""The dialect of OpenCode."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sessiontree.dialects.opencode.client import CLIENT
    from sessiontree.dialects.opencode.dialect import OPENCODE

# Imported on first use: a search needs the client alone.
_MODULES = {"CLIENT": "client", "OPENCODE": "dialect"}

__all__ = ["CLIENT", "OPENCODE"]


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'sessiontree.dialects.opencode' has no attribute {name!r}")
    return getattr(importlib.import_module(f"sessiontree.dialects.opencode.{_MODULES[name]}"), name)
