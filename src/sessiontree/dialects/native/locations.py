"""Where native sessions are found: `<home>/sessions/<project>/<time>_<id>.jsonl`. Names only; nothing is looked at."""

from __future__ import annotations

import os

from sessiontree.dialects.contract import SessionFile, is_session_name


def roots(home: str) -> tuple[str, ...]:
    return (os.path.join(home, "sessions"),)


def kind_of(relative: str) -> SessionFile | None:
    return SessionFile() if is_session_name(relative) and relative.count("/") == 1 else None
