"""Run the tests of each adapter in an environment of its own, with the pinned and the newest version of its framework.

    python -m tests_adapters [NAME...]

A folder here with an `adapter.toml` is an adapter: `package` is its framework, `version` the pinned version, `extra`
the extra of this package (default: the folder's name with hyphens; empty for none), `requirements` what its tests need
besides pytest, `options` options of pytest, `sdist` the start of the SHA-256 of the framework's sdist, if that contains
tests to run. Environments are kept in `scratch/adapters`, so only the first run installs anything.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import venv
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SCRATCH = ROOT / "scratch" / "adapters"
FRONT_ENDS = ("tui", "web")
"""Extras that show the sessions of every adapter."""
COMMON = ["pytest", "pytest-timeout", "psycopg[binary,pool]>=3.2"]


def main(names: list[str]) -> None:
    folders = sorted(path.parent for path in Path(__file__).parent.glob("*/adapter.toml"))
    unknown = set(names) - {folder.name for folder in folders}
    if unknown:
        sys.exit(f"no adapter {', '.join(sorted(unknown))}; known: {', '.join(folder.name for folder in folders)}")
    failed: list[str] = []
    for folder in folders:
        if names and folder.name not in names:
            continue
        adapter = tomllib.loads((folder / "adapter.toml").read_text(encoding="utf-8"))
        for version in versions(adapter):
            print(f"== {folder.name} with {adapter['package']} {version}", flush=True)
            if not run_tests(folder, adapter, version):
                failed.append(f"{folder.name} with {adapter['package']} {version}")
    if failed:
        sys.exit("failed: " + ", ".join(failed))


def versions(adapter: dict[str, Any]) -> list[str]:
    """The pinned version, and the newest one if it is another."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "index", "versions", "--disable-pip-version-check", adapter["package"]],
        capture_output=True,
        text=True,
        check=True,
    )
    newest = re.search(r"\(([^)]+)\)", listed.stdout)
    if newest is None:
        sys.exit(f"cannot find the newest version of {adapter['package']}: {listed.stdout[:200]!r}")
    return list(dict.fromkeys([adapter["version"], newest[1]]))


def run_tests(folder: Path, adapter: dict[str, Any], version: str) -> bool:
    python = environment(folder, adapter, version)
    env = {name: value for name, value in os.environ.items() if name not in ("ADAPTER_SDIST", "PYTHONPATH")}
    env["ADAPTER_VERSION"] = version
    if "sdist" in adapter and version == adapter["version"]:
        env["ADAPTER_SDIST"] = str(unpacked_sdist(python, adapter))
    options = adapter.get("options", [])
    command = [python, "-m", "pytest", "-c", "tests_adapters/pytest.ini", *options, f"tests_adapters/{folder.name}"]
    return subprocess.run(command, cwd=ROOT, env=env, check=False).returncode == 0


def environment(folder: Path, adapter: dict[str, Any], version: str) -> str:
    """The Python of an environment with this package, the framework and what the tests need."""
    place = SCRATCH / f"{folder.name}-{version}"
    python = str(place / "bin" / "python")
    ready = place / ".ready"
    extras = ",".join(filter(None, (adapter.get("extra", folder.name.replace("_", "-")), *FRONT_ENDS)))
    wanted = [f"{adapter['package']}=={version}", *adapter["requirements"], *COMMON]
    dependencies = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    stamp = hashlib.sha256(repr((extras, wanted, dependencies)).encode()).hexdigest()
    if not ready.exists() or ready.read_text() != stamp:
        venv.create(place, with_pip=True, clear=True)
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "-e", f".[{extras}]", *wanted], cwd=ROOT, check=True)
        ready.write_text(stamp)
    return python


def unpacked_sdist(python: str, adapter: dict[str, Any]) -> Path:
    """The folder of the framework's sdist, downloaded and compared with the known hash."""
    name, version = adapter["package"], adapter["version"]
    place = SCRATCH / f"{name}-{version}-sdist"
    folder = place / f"{name.replace('-', '_')}-{version}"
    if not folder.exists():
        pip = [python, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        subprocess.run([*pip, "--no-binary", ":all:", "-d", str(place), f"{name}=={version}"], check=True)
        (archive,) = place.glob("*.tar.gz")
        found = hashlib.sha256(archive.read_bytes()).hexdigest()
        if not found.startswith(adapter["sdist"]):
            sys.exit(f"{archive.name} has the hash {found}, not {adapter['sdist']}...")
        with tarfile.open(archive) as tar:
            tar.extractall(place, filter="data")
    return folder


if __name__ == "__main__":
    main(sys.argv[1:])
