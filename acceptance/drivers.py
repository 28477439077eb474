"""How each real program is started or resumed with a prompt in a private home, and what it needs there.

`sessiontree chat` is one of them: it resumes native sessions.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias, assert_never

from acceptance import network
from acceptance.programs import Name, Program

Agent: TypeAlias = Name | Literal["native"]

BASE = f"http://127.0.0.1:{network.PORT}"
MODEL = "scripted"
CLAUDE_MODEL = "claude-sonnet-4-5"
_KEY = "dummy"

_CODEX_PROVIDER = "fake"
"""The provider in Codex's settings, as the goldens name it: Codex refuses to resume a session of another one."""
_QWEN_MODEL = "qwen3-vl-plus"
"""A model that takes images: for others, Qwen Code sends a text in the place of each."""


def environment(agent: Agent, home: Path) -> dict[str, str]:
    """The environment variables of a program; also those by which we find its sessions."""
    given = {"HOME": str(home), "SESSIONTREE_HOME": str(home / "sessiontree"), "NO_COLOR": "1", "TERM": "dumb"}
    match agent:
        case "claude":
            return {
                **given,
                **_anthropic(),
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                "DISABLE_TELEMETRY": "1",
                "DISABLE_AUTOUPDATER": "1",
                "DISABLE_ERROR_REPORTING": "1",
                "IS_SANDBOX": "1",
            }
        case "pi" | "omp":
            return {**given, **_anthropic(), "PI_OFFLINE": "1", "PI_CODING_AGENT_DIR": str(home / "agent")}
        case "codex":
            return {**given, "SCRIPTED_KEY": _KEY, "RUST_LOG": "error", "CODEX_HOME": str(home / ".codex")}
        case "qwen":
            named = {"OPENAI_API_KEY": _KEY, "OPENAI_BASE_URL": f"{BASE}/v1", "OPENAI_MODEL": _QWEN_MODEL}
            return {**given, **named, "QWEN_CODE_NO_RELAUNCH": "1"}
        case "opencode":
            off = ("AUTOUPDATE", "MODELS_FETCH", "DEFAULT_PLUGINS", "LSP_DOWNLOAD", "SHARE")
            return {**given, **dict.fromkeys((f"OPENCODE_DISABLE_{name}" for name in off), "1")}
        case "gemini":
            return {
                **given,
                "GEMINI_API_KEY": _KEY,
                "GOOGLE_GEMINI_BASE_URL": BASE,
                "GEMINI_CLI_TRUST_WORKSPACE": "true",
                "GEMINI_CLI_NO_RELAUNCH": "1",
                "NO_BROWSER": "1",
            }
        case "native":
            return {**given, **_anthropic()}
        case _:
            assert_never(agent)


def command(agent: Agent, installed: Program, prompt: str, session: str | None = None) -> list[str]:
    """The command that sends a prompt, in a new session or in `session`: its id, or its path for Pi."""
    program = [str(installed.binary), *([str(installed.module)] if installed.module else [])]
    resume = ["--resume", session] if session else []
    match agent:
        case "claude":
            options = ["--output-format", "json", "--dangerously-skip-permissions", "--model", CLAUDE_MODEL]
            return [*program, *resume, *options, "--print", prompt]
        case "pi":
            assert installed.module is not None
            at = ["--session", session] if session else []
            cli = str(installed.module.with_name("cli.js"))
            return [str(installed.binary), cli, *at, "--model", f"anthropic/{CLAUDE_MODEL}", "--print", prompt]
        case "omp":
            assert installed.module is not None
            cli = str(installed.module.parents[1] / "cli.ts")
            return [str(installed.binary), cli, *resume, "--model", f"anthropic/{CLAUDE_MODEL}", "--print", prompt]
        case "codex":
            at = ["resume", "--json", "--skip-git-repo-check", session] if session else ["--json"]
            return [*program, "exec", *at, *([] if session else ["--skip-git-repo-check"]), prompt]
        case "qwen":
            return [*program, "--auth-type", "openai", "--approval-mode", "yolo", "-o", "json", *resume, "-p", prompt]
        case "opencode":
            at = ["--session", session] if session else []
            return [*program, "run", *at, "--model", f"{MODEL}/{MODEL}", "--format", "json", prompt]
        case "gemini":
            options = ["-m", "gemini-2.5-flash", "--approval-mode", "yolo", "-o", "json"]
            return [*program, *options, *resume, "-p", prompt]
        case "native":
            at = ["--session", session] if session else []
            options = ["--approval", "yolo", "--model", f"anthropic:{CLAUDE_MODEL}"]
            return [*program, "-m", "sessiontree", "chat", *options, *at, "--print", prompt]
        case _:
            assert_never(agent)


def settings(agent: Agent, home: Path) -> dict[Path, str]:
    """The files that direct a program to the model server."""
    updates = {"enableAutoUpdate": False, "disableAutoUpdate": True}
    match agent:
        case "pi" | "omp":
            provider = {"providers": {"anthropic": {"baseUrl": BASE}}}
            return {home / "agent" / "models.json": json.dumps(provider)}
        case "codex":
            return {home / ".codex" / "config.toml": _codex_settings()}
        case "qwen" | "gemini":
            auth = {"selectedType": "openai" if agent == "qwen" else "gemini-api-key"}
            values = {"security": {"auth": auth}, "privacy": {"usageStatisticsEnabled": False}, "general": updates}
            return {home / f".{agent}" / "settings.json": json.dumps(values)}
        case "opencode":
            return {home / ".config" / "opencode" / "opencode.json": json.dumps(_opencode_settings())}
        case "claude" | "native":
            return {}
        case _:
            assert_never(agent)


def send(
    agent: Agent, installed: Program, prompt: str, home: Path, project: Path, seconds: float, session: str | None = None
) -> network.RunResult:
    """Send a prompt in a project folder, in a new session or in `session`."""
    return run(agent, command(agent, installed, prompt, session), home, project, seconds)


def run(agent: Agent, arguments: Sequence[str], home: Path, project: Path, seconds: float) -> network.RunResult:
    """Run a command of a program in a project folder. Some programs take the folder from $PWD."""
    variables = {**environment(agent, home), "PWD": str(project)}
    home.mkdir(parents=True, exist_ok=True)
    return network.run(arguments, variables, project, seconds, settings(agent, home))


def sessiontree_itself() -> Program:
    return Program("sessiontree", Path(sys.executable))


def _anthropic() -> dict[str, str]:
    return {"ANTHROPIC_BASE_URL": BASE, "ANTHROPIC_API_KEY": _KEY}


def _codex_settings() -> str:
    lines = [f'model = "{MODEL}"', f'model_provider = "{_CODEX_PROVIDER}"']
    lines += ['approval_policy = "never"', 'sandbox_mode = "danger-full-access"']
    lines += [f"[model_providers.{_CODEX_PROVIDER}]", f'name = "{_CODEX_PROVIDER}"', f'base_url = "{BASE}/v1"']
    lines += ['env_key = "SCRIPTED_KEY"', 'wire_api = "responses"']
    return "\n".join(lines) + "\n"


def _opencode_settings() -> dict[str, Any]:
    model = {
        "name": MODEL,
        "attachment": True,
        "modalities": {"input": ["text", "image"], "output": ["text"]},
        "limit": {"context": 1_000_000, "output": 4096},
    }
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": MODEL,
        "options": {"baseURL": f"{BASE}/v1", "apiKey": _KEY},
        "models": {MODEL: model},
    }
    name = f"{MODEL}/{MODEL}"
    chosen = {"autoupdate": False, "share": "disabled", "model": name, "small_model": name}
    return {**chosen, "provider": {MODEL: provider}}
