"""Run the examples of `docs/adapters.md`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "adapters.md"


def check_section(title: str, home: Path) -> None:
    """Check that a section starts with the line to change, and that its example runs."""
    section = PAGE.read_text(encoding="utf-8").partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    assert section.lstrip().startswith("```diff")
    codes = re.findall(r"```py\n(.*?)```", section, re.DOTALL)
    assert codes
    for code in codes:
        env = {**os.environ, "SESSIONTREE_HOME": str(home), "HOME": str(home)}
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
