"""A fresh workplace for each test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agent.builders import Workplace


@pytest.fixture
def place(tmp_path: Path) -> Workplace:
    return Workplace(tmp_path)
