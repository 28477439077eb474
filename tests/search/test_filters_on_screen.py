"""Filters that the terminal UI, the web page and the documentation suggest are filters of the query language."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sessiontree.app.workbench import Workbench
from sessiontree.library import Library
from sessiontree.search.query_parser import FILTERS, parse

ROOT = Path(__file__).parents[2]
TEXTS = (
    "docs/terminal-ui.md",
    "docs/web.md",
    "src/sessiontree/tui/sessions.py",
    "src/sessiontree/web/templates/list.html",
)


@pytest.mark.parametrize("path", TEXTS)
def test_suggested_filters_are_known(path: str) -> None:
    text = (ROOT / path).read_text()
    start = text.index("agent:claude")
    suggested = re.findall(r"\b[a-z]+:[a-z0-9]+\b", text[start : start + 100])
    assert len(suggested) >= 3
    assert [parse(one).notes for one in suggested] == [()] * len(suggested)


def test_completed_filters_are_known(tmp_path: Path) -> None:
    with Library(tmp_path, environment={"HOME": str(tmp_path)}) as library:
        assert set(Workbench(library, str(tmp_path)).filter_values([], {})) <= set(FILTERS)
