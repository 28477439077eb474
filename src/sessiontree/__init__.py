"""The session engine for coding agents: one durable tree of messages that anyone can resume, branch and repair.

import sessiontree

session = sessiontree.create(cwd=".")
session.append("user", "hello")
print(session.context().messages)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sessiontree.context import Context, State
    from sessiontree.converting.conversion import Converted, convert
    from sessiontree.entries import Config, Entry, Fragment, Header, Problem
    from sessiontree.errors import (
        AmbiguousError,
        ConflictError,
        ConversionError,
        DamagedError,
        ExistsError,
        InvalidEntryError,
        NotASessionError,
        NotFoundError,
        ReadOnlyError,
        ReplacedError,
        SessionTreeError,
        StoreError,
        UsageError,
        WriteError,
    )
    from sessiontree.forking import Forked, fork
    from sessiontree.messages import Message
    from sessiontree.opening import create, open, open_store
    from sessiontree.session import Branch, Session
    from sessiontree.usage import UsageTotals

__version__ = "0.1.0"

# Names are imported when first used, so that `import sessiontree` costs next to nothing.
_HOME_OF = {
    "AmbiguousError": "errors",
    "Branch": "session",
    "Config": "entries",
    "ConflictError": "errors",
    "Context": "context",
    "ConversionError": "errors",
    "Converted": "converting.conversion",
    "DamagedError": "errors",
    "Entry": "entries",
    "ExistsError": "errors",
    "Forked": "forking",
    "Fragment": "entries",
    "Header": "entries",
    "InvalidEntryError": "errors",
    "Message": "messages",
    "NotASessionError": "errors",
    "NotFoundError": "errors",
    "Problem": "entries",
    "ReadOnlyError": "errors",
    "ReplacedError": "errors",
    "Session": "session",
    "SessionTreeError": "errors",
    "State": "context",
    "StoreError": "errors",
    "UsageError": "errors",
    "UsageTotals": "usage",
    "WriteError": "errors",
    "convert": "converting.conversion",
    "create": "opening",
    "fork": "forking",
    "open": "opening",
    "open_store": "opening",
}

__all__ = [
    "AmbiguousError",
    "Branch",
    "Config",
    "ConflictError",
    "Context",
    "ConversionError",
    "Converted",
    "DamagedError",
    "Entry",
    "ExistsError",
    "Forked",
    "Fragment",
    "Header",
    "InvalidEntryError",
    "Message",
    "NotASessionError",
    "NotFoundError",
    "Problem",
    "ReadOnlyError",
    "ReplacedError",
    "Session",
    "SessionTreeError",
    "State",
    "StoreError",
    "UsageError",
    "UsageTotals",
    "WriteError",
    "convert",
    "create",
    "fork",
    "open",
    "open_store",
]


def __getattr__(name: str) -> object:
    module = _HOME_OF.get(name)
    if module is None:
        raise AttributeError(f"module 'sessiontree' has no attribute {name!r}")
    found = getattr(importlib.import_module(f"sessiontree.{module}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
