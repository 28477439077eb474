"""The sessions of Codex CLI: rollouts, legacy and paginated.

    dialect        the dialect
    records        decodes lines into envelopes and entries
    items          converts response items to messages, and back
    rollbacks      the entries that survive rollbacks
    context        the messages a model receives
    header         recognition, header and facts of a session
    ordinals       problems that Codex has with a file: ordinals, and headers it refuses
    locations      paths of rollouts
    decode         decodes lines into canonical entries
    encoder        encodes canonical entries as lines
    kept_items     the items that a compaction keeps and repeats
    fork           a fork within Codex
    tools          calls of Codex's tools
    texts          the searchable texts of lines

A rollout starts with a line of the type `session_meta`. Only lines of the type `response_item` are part of the
conversation, in file order, and `compacted` lines, which replace all items before them. Everything else is a metadata
line: events for the user interface, settings, usage. There are no branches, but an event may roll back the last turns.

A paginated rollout numbers its lines, and others may refer to its bytes by offset: it is never changed. A fork of one
continues the file of its origin (`history_base`), and both are read as one session.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sessiontree.dialects.codex.client import CLIENT
    from sessiontree.dialects.codex.dialect import CODEX

# Imported on first use: a search needs the client alone.
_MODULES = {"CLIENT": "client", "CODEX": "dialect"}

__all__ = ["CLIENT", "CODEX"]


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'sessiontree.dialects.codex' has no attribute {name!r}")
    return getattr(importlib.import_module(f"sessiontree.dialects.codex.{_MODULES[name]}"), name)
