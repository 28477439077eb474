"""The sessions of Qwen Code.

    dialect        the dialect
    records        decodes lines into envelopes and entries
    content        converts contents of the Gemini form to messages, and back
    context        the messages a model receives
    header         recognition, header and facts of a session
    locations      paths of sessions
    decode         decodes lines into canonical entries
    encoder        encodes canonical entries as lines
    kept_contents  the contents that a compaction keeps and repeats
    fork           a fork within Qwen Code
    tools          calls of Qwen Code's tools
    texts          the searchable texts of lines

Each line is a record with a uuid and that of its parent. Records of the type `system` (titles, telemetry, snapshots)
are also links of the chain. Qwen Code continues from the last record of the file. Several lines with one uuid are parts
of one record. A `chat_compression` record lists the contents that replace all before it; the chain goes on through it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sessiontree.dialects.qwen.client import CLIENT
    from sessiontree.dialects.qwen.dialect import QWEN

# Imported on first use: a search needs the client alone.
_MODULES = {"CLIENT": "client", "QWEN": "dialect"}

__all__ = ["CLIENT", "QWEN"]


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'sessiontree.dialects.qwen' has no attribute {name!r}")
    return getattr(importlib.import_module(f"sessiontree.dialects.qwen.{_MODULES[name]}"), name)
