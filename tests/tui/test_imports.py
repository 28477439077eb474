"""The terminal UI is loaded when it starts, not before."""

from __future__ import annotations

import subprocess
import sys

CHECK = """
import importlib, pkgutil, sys
import sessiontree.cli
for module in pkgutil.iter_modules(sessiontree.cli.__path__):
    importlib.import_module(f"sessiontree.cli.{module.name}")
import sessiontree.chat.conversation
loaded = [name for name in sys.modules if name == "textual" or name == "rich" or name.startswith("sessiontree.tui")]
assert not loaded, loaded
"""


def test_no_command_loads_textual_before_the_ui_starts() -> None:
    subprocess.run([sys.executable, "-c", CHECK], check=True, timeout=120)
