"""Runs of an adapter's tests, each with one version of its framework in an environment of its own."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tarfile
import time
import tomllib
from pathlib import Path
from typing import Any

from acceptance.programs import NotInstalledError, run_installer

from tests_adapters.environments import ROOT, SCRATCH, environment

FRONT_ENDS = ("tui", "web")
"""Extras that show the sessions of every adapter."""
COMMON = ["pytest", "pytest-timeout", "psycopg[binary,pool]>=3.2"]


class Run:
    """The tests of an adapter with one version of its framework."""

    def __init__(self, folder: str, version: str | None = None) -> None:
        settings = Path(__file__).parent / folder / "adapter.toml"
        self.folder = folder
        self.adapter: dict[str, Any] = tomllib.loads(settings.read_text(encoding="utf-8"))
        self.is_pinned = version is None
        self.version = version or self.adapter["version"]
        self.name = f"{folder} with {self.adapter['package']} {self.version}"
        self.reason = ""
        """Why it could not be installed."""

    def passes(self) -> bool:
        start = time.monotonic()
        try:
            if self.reason:
                raise NotInstalledError(self.reason)
            python = self.environment()
            sdist = _unpacked_sdist(python, self.adapter) if self.is_pinned and "sdist" in self.adapter else None
        except NotInstalledError as error:
            self.reason = str(error)
            print(f"== {self.name}: cannot be installed: {error}", flush=True)
            return not self.is_pinned
        env = {name: value for name, value in os.environ.items() if name not in ("ADAPTER_SDIST", "PYTHONPATH")}
        env["ADAPTER_VERSION"] = self.version
        if sdist is not None:
            env["ADAPTER_SDIST"] = str(sdist)
        options = [*self.adapter.get("options", []), f"tests_adapters/{self.folder}"]
        command = [python, "-m", "pytest", "-c", "tests_adapters/pytest.ini", "--durations", "3", "-rs", *options]
        done = subprocess.run(
            command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        seconds = time.monotonic() - start
        print(f"== {self.name}: {seconds:.0f} s\n{done.stdout}", flush=True)
        return done.returncode == 0

    def environment(self) -> str:
        """The Python of its environment."""
        extra = self.adapter.get("extra", self.folder.replace("_", "-"))
        extras = [*([extra] if extra else []), *FRONT_ENDS]
        wanted = [f"{self.adapter['package']}=={self.version}", *self.adapter["requirements"], *COMMON]
        return environment(f"{self.folder}-{self.version}", extras, wanted)


def _unpacked_sdist(python: str, adapter: dict[str, Any]) -> Path:
    """The folder of the framework's sdist, downloaded and compared with the known hash."""
    name, version = adapter["package"], adapter["version"]
    place = SCRATCH / f"{name}-{version}-sdist"
    folder = place / f"{name.replace('-', '_')}-{version}"
    if not folder.exists():
        pip = [python, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        run_installer([*pip, "--no-binary", name, "-d", str(place), f"{name}=={version}"])
        (archive,) = place.glob("*.tar.gz")
        found = hashlib.sha256(archive.read_bytes()).hexdigest()
        if not found.startswith(adapter["sdist"]):
            raise NotInstalledError(f"{archive.name} has the hash {found}, not {adapter['sdist']}...")
        with tarfile.open(archive) as tar:
            tar.extractall(place, filter="data")
    return folder
