"""A home folder with the sample library of `examples`, for tests of front ends."""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

from sample_library import write_library


def make_sample_home(folder: Path, monkeypatch: pytest.MonkeyPatch, now: datetime | None = None) -> Path:
    """Write the library to `folder` and make it the home folder of this process. `now` is the library's clock."""
    write_library(folder, now)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / ".cache"))
    for name in ("SESSIONTREE_HOME", "XDG_DATA_HOME", "CLAUDE_CONFIG_DIR", "PI_CODING_AGENT_DIR"):
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.fixture
def library_clock() -> datetime | None:
    """The clock of the sample library; tests whose output contains times override it."""
    return None


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library_clock: datetime | None) -> Path:
    """A home folder with the sample library."""
    return make_sample_home(tmp_path / "home", monkeypatch, library_clock)
