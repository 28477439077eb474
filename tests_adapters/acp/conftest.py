"""A home folder with sessions of several agents, a project, and a script for the model of the agent."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.sample_home import make_sample_home

CLAUDE = "01a1c0de-5e55-7000-8000-000000000001"
PI = "02a1c0de-5e55-7000-8000-000000000002"

SCRIPT: list[dict[str, Any]] = [
    {
        "when": "make a file",
        "thinking": "Easy.",
        "text": "I write it.",
        "toolCalls": [{"name": "write", "arguments": {"path": "made.txt", "content": "made\n"}}],
    },
    {"when": "made.txt", "text": "Done."},
    {"when": "count slowly", "text": "one two three four five six seven", "piece": 4, "delay": 0.05},
    {"when": "still there?", "text": "Yes."},
    {
        "when": "what was decided",
        "toolCalls": [{"name": "past__list_sessions", "arguments": {"limit": 5, "all_projects": True}}],
    },
    {"when": "Fix the flaky login test", "text": "You fixed a flaky test."},
]

REPLAYED = {
    CLAUDE: [
        "user",
        "agent",
        *["call Read", "call Read", "call Bash"],
        *["completed", "completed", "completed"],
        *["agent", "user"],
        *["call Edit", "completed", "call Bash", "completed"],
        "agent",
    ],
    PI: ["user", "agent", "call read", "completed", "agent", "user", "agent"],
}
"""What each session is replayed as, in order: texts, calls by name, and results by status."""


class Setup:
    def __init__(self, folder: Path, home: Path) -> None:
        self.home, self.project = home, folder / "project"
        self.project.mkdir()
        script = folder / "script.json"
        script.write_text(json.dumps({"turns": SCRIPT}), encoding="utf-8")
        self.arguments = ["-m", "sessiontree", "acp", "--unstable", "--model", f"scripted:{script}"]
        self.command = sys.executable
        self.environment = {
            **{name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ},
            "HOME": str(home),
            "XDG_CACHE_HOME": str(home / ".cache"),
        }


@pytest.fixture
def setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Setup:
    return Setup(tmp_path, make_sample_home(tmp_path / "home", monkeypatch))
