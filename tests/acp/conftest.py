from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from sessiontree.core.jsonio import render_json
from sessiontree.models.scripted import Script, ScriptTurn
from tests.sample_home import make_sample_home


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder with sessions of several agents."""
    return make_sample_home(tmp_path / "home", monkeypatch)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def scripted(folder: Path, *turns: ScriptTurn) -> str:
    """The name of a model that plays these turns."""
    path = folder / "script.json"
    path.write_bytes(render_json(msgspec.to_builtins(Script(turns))))
    return f"scripted:{path}"
