"""Compiled templates are stored like Python's bytecode."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import jinja2.environment
compiled = []
generate = jinja2.environment.Environment._generate
jinja2.environment.Environment._generate = lambda *given, **more: compiled.append(1) or generate(*given, **more)
from sessiontree.export.html.environment import environment
environment().get_template("card.html").module
print(len(compiled))
"""


def compiled(prefix: Path, *options: str) -> int:
    """How many templates a new process compiles."""
    command = [sys.executable, "-X", f"pycache_prefix={prefix}", *options, "-c", PROGRAM]
    environment = {"PATH": "", "HOME": str(prefix)}
    return int(subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout)


def test_a_template_is_compiled_once_and_again_when_the_stored_one_is_damaged(tmp_path: Path) -> None:
    assert compiled(tmp_path) == 1
    assert compiled(tmp_path) == 0
    (stored,) = tmp_path.rglob("template_*_*.pyc")
    stored.write_bytes(b"not bytecode")
    assert compiled(tmp_path) == 1
    assert compiled(tmp_path) == 0


def test_nothing_is_stored_where_python_stores_no_bytecode(tmp_path: Path) -> None:
    assert compiled(tmp_path, "-B") == 1
    assert list(tmp_path.rglob("*")) == []
