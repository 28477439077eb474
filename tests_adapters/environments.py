"""Environments with a framework each, in `scratch/adapters`. They are kept, so only the first run installs anything."""

from __future__ import annotations

import hashlib
import re
import sys
import tomllib
import venv
from collections.abc import Sequence
from pathlib import Path

from acceptance.programs import NotInstalledError, run_installer

__all__ = ["NotInstalledError", "environment", "newest_version", "version_in"]

ROOT = Path(__file__).parents[1]
SCRATCH = ROOT / "scratch" / "adapters"


def environment(name: str, extras: Sequence[str], requirements: Sequence[str]) -> str:
    """The Python of an environment with this package, its extras and other packages.

    If they cannot be installed, `NotInstalledError` has the reason.
    """
    place = SCRATCH / name
    python = str(place / "bin" / "python")
    ready = place / ".ready"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    dependencies = project["dependencies"], project["optional-dependencies"]
    stamp = hashlib.sha256(repr((extras, requirements, dependencies, sys.version)).encode()).hexdigest()
    if not ready.exists() or ready.read_text() != stamp:
        venv.create(place, with_pip=True, clear=True)
        pip_install(python, "-e", f"{ROOT}[{','.join(extras)}]" if extras else str(ROOT), *requirements)
        ready.write_text(stamp)
    return python


def pip_install(python: str, *arguments: str) -> None:
    """Run `pip install` of an environment, with the machine's settings and its cache."""
    run_installer([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments])


def newest_version(package: str) -> str:
    """The newest version of a package in the registry that is for this Python."""
    options = ["--disable-pip-version-check"]
    listed = run_installer([sys.executable, "-m", "pip", "index", "versions", *options, package])
    newest = re.search(r"\(([^)]+)\)", listed)
    if newest is None:
        raise NotInstalledError(f"cannot find the newest version of {package}: {listed[:200]!r}")
    return newest[1]


def version_in(python: str, package: str) -> str:
    """The version of a package that is installed in an environment."""
    code = f"import importlib.metadata; print(importlib.metadata.version({package!r}))"
    return run_installer([python, "-c", code]).strip()
