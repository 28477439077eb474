"""A fresh project and home for each test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chat.terminals import Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)
