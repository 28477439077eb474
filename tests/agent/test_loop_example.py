"""The example is a working agent of about forty lines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import sessiontree
from tests.agent.runs import check_is_sound, transcript

EXAMPLE = Path(__file__).parents[2] / "examples" / "agent.py"


def test_the_example_works_with_a_script(tmp_path: Path) -> None:
    calls = [
        {"name": "ls", "arguments": {"path": "."}},
        {"name": "write", "arguments": {"path": "yes.txt", "content": "y"}},
    ]
    turns = [
        {"text": "I look.", "toolCalls": calls},
        {"toolCalls": [{"name": "write", "arguments": {"path": "no.txt", "content": "n"}}]},
        {"text": "One was written."},
    ]
    (tmp_path / "turns.json").write_text(json.dumps({"turns": turns}))
    ran = subprocess.run(
        [sys.executable, str(EXAMPLE), f"scripted:{tmp_path / 'turns.json'}", "Write."],
        cwd=tmp_path,
        env={**os.environ, "SESSIONTREE_HOME": str(tmp_path / "home")},
        input="y\nn\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "One was written." in ran.stdout
    assert (tmp_path / "yes.txt").read_text() == "y"
    assert not (tmp_path / "no.txt").exists()
    session = sessiontree.open(ran.stdout.split()[-1], home=tmp_path / "home")
    assert [role for role, _ in transcript(session)][:2] == ["user", "assistant"]
    check_is_sound(session)
    lines = [line for line in EXAMPLE.read_text().splitlines() if line.strip()]
    assert len(lines) <= 40
