"""The history that a real program rebuilds from a session file. Each function works on a copy of the file.

If a program rebuilds nothing, `NoHistoryError` has its output.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from acceptance import drivers, network
from acceptance.programs import Name, Program, install
from acceptance.requests import conversation, find_history

JsonObject: TypeAlias = dict[str, Any]

CHECK_PROMPT = "ACCEPTANCE-CHECK-PROMPT"
SECONDS = 60.0
LOADING_SECONDS = 20.0
SECONDS_PER_FILE = 0.5

MODEL = {"ANTHROPIC_BASE_URL": f"http://127.0.0.1:{network.PORT}", "ANTHROPIC_API_KEY": "dummy"}


class NoHistoryError(Exception):
    """A program rebuilt no history; the message describes what it did."""


def claude_history(transcript: Path, scratch: Path | None = None) -> list[JsonObject]:
    """The messages that Claude Code sends when it resumes a transcript with one more prompt."""
    with _folder(scratch) as folder:
        copy = claude_place(folder, _session_id(transcript))
        _copy(transcript, copy)
        return send_prompt("claude", copy, CHECK_PROMPT, folder)


def sent_history(agent: drivers.Agent, installed: Program, session: str, home: Path, project: Path) -> list[JsonObject]:
    """The history that a program sends when it resumes a session of its home with one more prompt."""
    result = drivers.send(agent, installed, CHECK_PROMPT, home, project, 2 * SECONDS, session)
    (home / "requests.json").write_text(json.dumps(result.requests, indent=1))
    found = find_history(result.requests, CHECK_PROMPT)
    if found is None:
        raise NoHistoryError(f"not resumed: {_describe_run(result)}")
    return found


def place_original(program: Name, session: Path, home: Path, project: Path) -> str:
    """Copy a session of Codex or Qwen Code, and those next to it, to where the program finds them; returns its id."""
    if program == "codex":
        folder = home / ".codex" / "sessions" / "2026" / "01" / "01"
        id = _named_id(session, '"id"')
        name = f"rollout-2026-01-01T00-00-00-{id}.jsonl"
    else:
        folder = home / ".qwen" / "projects" / re.sub(r"[^a-zA-Z0-9]", "-", str(project)) / "chats"
        id = _named_id(session, '"sessionId"')
        name = f"{id}.jsonl"
    folder.mkdir(parents=True, exist_ok=True)
    for other in session.parent.glob("*.jsonl"):
        if other != session:
            shutil.copyfile(other, folder / other.name)
    data = session.read_text("utf-8", "surrogateescape")
    if program == "qwen":  # the program looks for sessions of its working folder
        data = re.sub(r'"cwd":\s*"[^"]*"', lambda _: f'"cwd":{json.dumps(str(project))}', data)
    (folder / name).write_text(data, "utf-8", "surrogateescape")
    return id


def claude_place(folder: Path, session: str) -> Path:
    """Where Claude Code finds a session if a folder is its home."""
    return folder / "config" / "projects" / "acceptance" / f"{session}.jsonl"


def send_prompt(program: Name, session: Path, prompt: str, folder: Path) -> list[JsonObject]:
    """Let a program continue a session file in place with a prompt; returns the history that it sends before it."""
    installed = install(program)
    files: dict[Path, str] = {}
    if program == "claude":
        model = _last_model(session)
        command = ["--resume", session.stem, "--print", prompt, "--output-format", "json"]
        command += ["--model", model] if model else []
        environment = {
            "CLAUDE_CONFIG_DIR": str(folder / "config"),
            **MODEL,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_TELEMETRY": "1",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_ERROR_REPORTING": "1",
            "IS_SANDBOX": "1",
        }
    else:
        assert installed.module is not None
        if program == "pi":
            command = [str(installed.module.with_name("cli.js")), "--session", str(session)]
        else:
            command = [str(installed.module.parents[1] / "cli.ts"), "--resume", str(session)]
        command += ["--model", "anthropic/claude-sonnet-4-5", "--print", prompt]
        environment = {"PI_OFFLINE": "1", "PI_CODING_AGENT_DIR": str(folder / "agent"), **MODEL}
        provider = {"anthropic": {"baseUrl": MODEL["ANTHROPIC_BASE_URL"]}}
        files = {folder / "agent" / "models.json": json.dumps({"providers": provider})}
    result = network.run([str(installed.binary), *command], environment, folder, SECONDS, files)
    (folder / "requests.json").write_text(json.dumps(result.requests, indent=1))
    for request in result.requests:
        if request["path"] == "/v1/messages" and prompt in json.dumps(request["body"]["messages"]):
            if program != "claude" and result.exit_code != 0:
                break
            return conversation(request["body"]["messages"], prompt)
    raise NoHistoryError(f"not resumed: {_describe_run(result)}")


def pi_history(session: Path, scratch: Path | None = None) -> JsonObject:
    """`{leaf, messages, thinkingLevel, model}` as Pi rebuilds them."""
    return _only(histories("pi", [Request(session)], scratch))


def omp_history(session: Path, scratch: Path | None = None) -> JsonObject:
    """`{leaf, messages, thinkingLevel, models, mode, ...}` as oh-my-pi rebuilds them."""
    return _only(histories("omp", [Request(session)], scratch))


@dataclass(frozen=True, slots=True)
class Request:
    """A session file, and the entries to select in turn after its own current entry."""

    session: Path
    leaves: Sequence[str] = ()


def histories(
    program: Literal["pi", "omp"], requests: Sequence[Request], scratch: Path | None = None
) -> list[JsonObject | NoHistoryError]:
    """The histories that Pi or oh-my-pi rebuilds from many files, in one process as far as it survives them.

    Each has `branches` in addition: for each requested leaf, the history after selecting it, or `error`.
    """
    found: list[JsonObject | NoHistoryError] = []
    with _folder(scratch) as folder:
        while len(found) < len(requests):
            rest = requests[len(found) :]
            results, run = _run_driver(program, rest, folder / f"from-{len(found)}")
            found += [NoHistoryError(f"no history: {each['error']}") if "error" in each else each for each in results]
            if len(results) < len(rest):  # the process ended at this file, or did not end
                found.append(NoHistoryError(f"no history: {_describe_run(run)}"))
    return found


# Opens each file with the program's own session manager and writes one line for each.
_DRIVER = """
    const [, , module, folder, jobs, results] = process.argv;
    const { SessionManager } = await import(module);
    const fs = await import("node:fs");
    const open = async (file) => OPEN;
    for (const { session, leaves } of JSON.parse(fs.readFileSync(jobs, "utf8"))) {
        let history;
        try {
            const manager = await open(session);
            history = { leaf: manager.getLeafId() ?? null, ...manager.buildSessionContext(), branches: {} };
            for (const leaf of leaves) {
                try {
                    manager.branch(leaf);
                    history.branches[leaf] = { leaf: manager.getLeafId(), ...manager.buildSessionContext() };
                } catch (error) {
                    history.branches[leaf] = { error: String(error) };
                }
            }
        } catch (error) {
            history = { error: String(error) };
        }
        fs.appendFileSync(results, JSON.stringify(history) + String.fromCharCode(10));
    }
    process.exit(0);
"""
_OPEN = {
    "pi": "SessionManager.open(file)",
    "omp": "SessionManager.open(file, folder, undefined, { initialCwd: folder, suppressBreadcrumb: true })",
}


def _run_driver(
    program: Literal["pi", "omp"], requests: Sequence[Request], folder: Path
) -> tuple[list[JsonObject], network.RunResult]:
    """Run our driver inside the program's own modules; returns the results until its end, and the run."""
    folder.mkdir(parents=True)
    installed = install(program)
    jobs, output, script = folder / "jobs.json", folder / "results.jsonl", folder / "driver.mjs"
    described = []
    for number, request in enumerate(requests):
        copy = folder / "sessions" / str(number) / request.session.name
        _copy(request.session, copy)
        described.append({"session": str(copy), "leaves": list(request.leaves)})
    jobs.write_text(json.dumps(described))
    script.write_text(_DRIVER.replace("OPEN", _OPEN[program]))
    run = network.run(
        [str(installed.binary), str(script), str(installed.module), str(folder), str(jobs), str(output)],
        {"PI_OFFLINE": "1", "PI_CODING_AGENT_DIR": str(folder / "agent")},
        folder,
        LOADING_SECONDS + len(requests) * SECONDS_PER_FILE,
    )
    lines = output.read_bytes().splitlines() if output.exists() else []
    return [json.loads(line) for line in lines], run


def _only(found: Sequence[JsonObject | NoHistoryError]) -> JsonObject:
    (history,) = found
    if isinstance(history, NoHistoryError):
        raise history
    return history


def check_resumes(program: Literal["pi", "omp"], session: Path, scratch: Path) -> None:
    """Let Pi or oh-my-pi resume a session with one more prompt, because rebuilding a history is not sending it.

    For example, both rebuild a tool result whose content is a string, and fail when they send it.
    """
    copy = scratch / "session" / session.name
    _copy(session, copy)
    send_prompt(program, copy, CHECK_PROMPT, scratch)


@contextmanager
def _folder(scratch: Path | None) -> Iterator[Path]:
    """A folder for one run: the given one, or a temporary one."""
    if scratch is not None:
        scratch.mkdir(parents=True, exist_ok=True)
        yield scratch
    else:
        with tempfile.TemporaryDirectory(prefix="sessiontree-acceptance-") as made:
            yield Path(made)


def _copy(session: Path, to: Path) -> None:
    to.parent.mkdir(parents=True)
    shutil.copyfile(session, to)
    if session.with_suffix("").is_dir():
        shutil.copytree(session.with_suffix(""), to.with_suffix(""))


def _session_id(transcript: Path) -> str:
    """The session id in the lines, because the client looks for a file of that name; a fixed one if there is none."""
    return _named_id(transcript, '"sessionId"') or str(uuid.uuid4())


def _named_id(session: Path, name: str) -> str:
    found = re.search(rf'{name}:\s*"([0-9a-fA-F-]{{36}})"', session.read_text("utf-8", "replace"))
    return found[1] if found else ""


def _last_model(transcript: Path) -> str | None:
    """The model of the last answer: the client sends thinking blocks only to their own model."""
    models: list[bytes] = re.findall(rb'"model":\s*"(claude-[\w.-]+)"', transcript.read_bytes())
    return models[-1].decode() if models else None


def _describe_run(result: network.RunResult) -> str:
    if result.exit_code is None:
        return "did not end in time"
    output = result.stderr.strip() or result.stdout.strip()
    named = re.search(r"\w*[Ee]rror: .*", output)
    return f"exited with {result.exit_code}: {named[0] if named else ' '.join(output.split())[-200:]}"
