"""Pi's sessions, and the line format that native files and those of oh-my-pi share with them.

| module            | contents                                                                  |
|-------------------|---------------------------------------------------------------------------|
| `dialect`         | the shared line format, and Pi's own rules                                |
| `encoder`         | canonical entries -> lines: ids, references, current entry, passthrough   |
| `content`         | entries that Pi stores differently                                        |
| `required_fields` | fields that Pi and oh-my-pi fail without                                  |
| `locations`       | paths of Pi's sessions                                                    |
"""

from __future__ import annotations

from sessiontree.dialects.pi.dialect import PI, Pi, PiFamily

__all__ = ["PI", "Pi", "PiFamily"]
