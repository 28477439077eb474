"""SECURITY.md names a test for each promise."""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).parent
ROOT = FOLDER.parent.parent
PAGE = ROOT / "SECURITY.md"
FOLDERS = (
    FOLDER,
    FOLDER.parent / "acp",
    FOLDER.parent / "dialects",
    FOLDER.parent / "web",
    FOLDER.parent / "postgres",
    FOLDER.parent / "search",
    FOLDER.parent / "tui",
    ROOT / "acceptance" / "browser",
)


def test_every_test_that_the_security_page_names_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", PAGE.read_text()))
    defined = {
        name
        for folder in FOLDERS
        for file in folder.glob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", file.read_text(), re.M)
    }
    assert named
    assert named <= defined, sorted(named - defined)


def test_every_promise_of_the_security_page_names_a_test() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("|") and not line.startswith("|---")]
    assert all(re.search(r"\| (test|`test_\w+`) \|$", row) for row in rows)
