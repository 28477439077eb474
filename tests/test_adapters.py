"""Adapters import their frameworks only when they are used. `tests_adapters` has the tests with the frameworks."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["sessiontree.adapters", "sessiontree.adapters.openai_agents"])
def test_importing_an_adapter_imports_no_framework(module: str) -> None:
    code = f"import sys, {module}; print([name for name in ('agents', 'openai', 'pydantic_ai') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
