"""Pi's sessions, and the line format that native files and those of oh-my-pi share with them.

| module      | contents                                                                                |
|-------------|-----------------------------------------------------------------------------------------|
| `dialect`   | the shared line format, and Pi's own rules                                              |
| `encoder`   | canonical entries -> lines: ids, references, current entry, required fields, passthrough |
| `content`   | entries that Pi stores differently                                                      |
| `locations` | paths of Pi's sessions                                                                  |
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sessiontree.dialects.pi.client import CLIENT
    from sessiontree.dialects.pi.dialect import PI, Pi, PiFamily

# Imported on first use: a search needs the client alone.
_MODULES = {"CLIENT": "client", "PI": "dialect", "Pi": "dialect", "PiFamily": "dialect"}

__all__ = ["CLIENT", "PI", "Pi", "PiFamily"]


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'sessiontree.dialects.pi' has no attribute {name!r}")
    return getattr(importlib.import_module(f"sessiontree.dialects.pi.{_MODULES[name]}"), name)
