"""Session engine for coding agents: a durable tree of messages that any agent can resume, branch and repair.

import sessiontree

session = sessiontree.create(cwd=".")
session.append("user", "hello")
print(session.context().messages)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sessiontree.conversion.convert import Converted, convert
    from sessiontree.conversion.fork import Forked, fork
    from sessiontree.core.context import Context, State
    from sessiontree.core.entries import Config, Entry, Fragment, Header, Problem
    from sessiontree.core.messages import Message
    from sessiontree.core.usage import UsageTotals
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
    from sessiontree.session.open import create, open, open_store
    from sessiontree.session.session import Branch, Session

__version__ = "0.1.0"

# Names are imported on first use, so that `import sessiontree` costs next to nothing.
_MODULES = {
    "AmbiguousError": "errors",
    "Branch": "session.session",
    "Config": "core.entries",
    "ConflictError": "errors",
    "Context": "core.context",
    "ConversionError": "errors",
    "Converted": "conversion.convert",
    "DamagedError": "errors",
    "Entry": "core.entries",
    "ExistsError": "errors",
    "Forked": "conversion.fork",
    "Fragment": "core.entries",
    "Header": "core.entries",
    "InvalidEntryError": "errors",
    "Message": "core.messages",
    "NotASessionError": "errors",
    "NotFoundError": "errors",
    "Problem": "core.entries",
    "ReadOnlyError": "errors",
    "ReplacedError": "errors",
    "Session": "session.session",
    "SessionTreeError": "errors",
    "State": "core.context",
    "StoreError": "errors",
    "UsageError": "errors",
    "UsageTotals": "core.usage",
    "WriteError": "errors",
    "convert": "conversion.convert",
    "create": "session.open",
    "fork": "conversion.fork",
    "open": "session.open",
    "open_store": "session.open",
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
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'sessiontree' has no attribute {name!r}")
    found = getattr(importlib.import_module(f"sessiontree.{module}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
