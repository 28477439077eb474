"""Run the commands that have to work on the sessions of every adapter."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import pytest

from sessiontree.cli import main


def run(*arguments: str) -> str:
    """The output of a command that succeeds."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([*arguments])
    assert code == 0, (arguments, code, out.getvalue(), err.getvalue())
    return out.getvalue()


def check_commands(home: Path, ref: str, texts: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that list, tree, doctor, context and convert work on a session, and that they show its texts."""
    monkeypatch.setenv("SESSIONTREE_HOME", str(home))
    monkeypatch.setenv("HOME", str(home.parent))
    listed: list[dict[str, Any]] = json.loads(run("list", "--all", "--json"))
    assert any(ref in json.dumps(session) for session in listed)
    assert run("tree", ref)
    run("doctor", ref)
    shown = run("context", ref)
    target = home.parent / "converted.jsonl"
    run("convert", ref, "--to", "claude", "--output", str(target))
    converted = target.read_text(encoding="utf-8")
    for text in texts:
        assert text in shown
        assert text in converted
