"""Pi's sessions, and the shape that native files and those of oh-my-pi share with them.

| module   | what it does                                                                       |
|----------|------------------------------------------------------------------------------------|
| `shape`  | read lines of the shape, tell them in canonical form; Pi's own rules                 |
| `encoder` | write lines of the shape: ids, references, where the session stands in the end     |
| `words`  | what Pi says in other words than oh-my-pi and the native form, and what it does not|
| `places` | where Pi looks for a session                                                       |
"""

from __future__ import annotations

from sessiontree.dialects.pi.dialect import PI, Pi, PiShape

__all__ = ["PI", "Pi", "PiShape"]
