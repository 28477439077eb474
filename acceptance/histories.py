"""What a real program rebuilds from a session file. Each function works on a copy of the file and what lies beside it.

A program that gives no history raises `NoHistoryError` with what it said or did instead.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeAlias

from acceptance import network
from acceptance.programs import Program, install

JsonObject: TypeAlias = dict[str, Any]

CHECK_PROMPT = "ACCEPTANCE-CHECK-PROMPT"
SECONDS = 60.0
LOADING_SECONDS = 20.0

MODEL = {"ANTHROPIC_BASE_URL": f"http://127.0.0.1:{network.PORT}", "ANTHROPIC_API_KEY": "dummy"}

# The client's own words around a history, none of them part of it.
REMINDER = "<system-reminder>"
NO_RESPONSE = "No response requested."


class NoHistoryError(Exception):
    """A program rebuilt nothing; the message says what it did instead."""


def claude_history(transcript: Path, scratch: Path | None = None) -> list[JsonObject]:
    """The messages that Claude Code sends to the model when it resumes a transcript and is asked one thing more."""
    program = install("claude")
    with _folder(scratch) as folder:
        session = _session_id(transcript)
        _copy(transcript, folder / "config" / "projects" / "acceptance" / f"{session}.jsonl")
        model = _last_model(transcript)
        ended = network.run(
            [
                str(program.binary),
                *("--resume", session),
                *("--print", CHECK_PROMPT),
                *("--output-format", "json"),
                *(("--model", model) if model else ()),
            ],
            {
                "CLAUDE_CONFIG_DIR": str(folder / "config"),
                **MODEL,
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                "DISABLE_TELEMETRY": "1",
                "DISABLE_AUTOUPDATER": "1",
                "DISABLE_ERROR_REPORTING": "1",
                "IS_SANDBOX": "1",
            },
            folder,
            SECONDS,
        )
        (folder / "requests.json").write_text(json.dumps(ended.requests, indent=1))
    for request in ended.requests:
        if request["path"] == "/v1/messages" and CHECK_PROMPT in json.dumps(request["body"]["messages"]):
            return _spoken(request["body"]["messages"])
    raise NoHistoryError(f"no history: {_what_happened(ended)}")


def pi_history(session: Path, scratch: Path | None = None) -> JsonObject:
    """`{leaf, messages, thinkingLevel, model}` as Pi rebuilds them."""
    script = """
        const [, , module, session, , result] = process.argv;
        const { SessionManager } = await import(module);
        const manager = SessionManager.open(session);
        const told = { leaf: manager.getLeafId(), ...manager.buildSessionContext() };
        (await import("node:fs")).writeFileSync(result, JSON.stringify(told));
        process.exit(0);
    """
    with _folder(scratch) as folder:
        environment = {"PI_OFFLINE": "1", "PI_CODING_AGENT_DIR": str(folder / "agent")}
        return _asked(install("pi"), script, session, environment, folder)


def omp_history(session: Path, scratch: Path | None = None) -> JsonObject:
    """`{leaf, messages, thinkingLevel, models, mode, ...}` as oh-my-pi rebuilds them."""
    script = """
        const [, , module, session, folder, result] = process.argv;
        const { SessionManager } = await import(module);
        const options = { initialCwd: folder, suppressBreadcrumb: true };
        const manager = await SessionManager.open(session, folder, undefined, options);
        const told = { leaf: manager.getLeafId(), ...manager.buildSessionContext() };
        (await import("node:fs")).writeFileSync(result, JSON.stringify(told));
        process.exit(0);
    """
    with _folder(scratch) as folder:
        return _asked(install("omp"), script, session, {"PI_CODING_AGENT_DIR": str(folder / "agent")}, folder)


def check_resumes(program: Literal["pi", "omp"], session: Path, scratch: Path) -> None:
    """Let Pi or oh-my-pi resume a session and ask the model one thing more: to rebuild a history is not to send it.

    For instance, both rebuild a tool result whose content is a string, and fail when they send it.
    """
    installed = install(program)
    assert installed.module is not None
    agent, copy = scratch / "agent", scratch / "session" / session.name
    _copy(session, copy)
    if program == "pi":
        command = [str(installed.module.with_name("cli.js")), "--session", str(copy)]
    else:
        command = [str(installed.module.parents[1] / "cli.ts"), "--resume", str(copy)]
    ended = network.run(
        [str(installed.binary), *command, "--model", "anthropic/claude-sonnet-4-5", "--print", CHECK_PROMPT],
        {"PI_OFFLINE": "1", "PI_CODING_AGENT_DIR": str(agent), **MODEL},
        scratch,
        SECONDS,
        {agent / "models.json": json.dumps({"providers": {"anthropic": {"baseUrl": MODEL["ANTHROPIC_BASE_URL"]}}})},
    )
    if ended.exit_code != 0 or not any(CHECK_PROMPT in json.dumps(request["body"]) for request in ended.requests):
        raise NoHistoryError(f"rebuilt, but not resumed: {_what_happened(ended)}")


def _asked(program: Program, script: str, session: Path, environment: Mapping[str, str], folder: Path) -> JsonObject:
    """What a script of ours finds out inside the program's own modules."""
    copy, result, asking = folder / "session" / session.name, folder / "result.json", folder / "asking.mjs"
    _copy(session, copy)
    asking.write_text(script)
    arguments = [str(program.module), str(copy), str(folder), str(result)]
    ended = network.run([str(program.binary), str(asking), *arguments], environment, folder, LOADING_SECONDS)
    if not result.exists():
        raise NoHistoryError(f"no history: {_what_happened(ended)}")
    told: JsonObject = json.loads(result.read_text())
    return told


@contextmanager
def _folder(scratch: Path | None) -> Iterator[Path]:
    """A folder for one run: the given one, which stays, or one that goes."""
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
    """The id that the lines name, since the client looks for a file of that name; any other where they name none."""
    named = re.search(rb'"sessionId":\s*"([0-9a-fA-F-]{36})"', transcript.read_bytes())
    return named[1].decode() if named else str(uuid.uuid4())


def _last_model(transcript: Path) -> str | None:
    """The model that answered last: the client sends thinking only to the model it is from."""
    models: list[bytes] = re.findall(rb'"model":\s*"(claude-[\w.-]+)"', transcript.read_bytes())
    return models[-1].decode() if models else None


def _spoken(messages: list[JsonObject]) -> list[JsonObject]:
    """Messages without the prompt of the check and what the client adds on its own."""
    spoken = []
    for message in messages:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        kept = [block for block in blocks if not _is_the_clients(block)]
        if kept and message["role"] != "system":
            spoken.append({"role": message["role"], "content": kept})
    if spoken and spoken[-1]["content"] == [{"type": "text", "text": NO_RESPONSE}]:
        spoken.pop()
    return spoken


def _is_the_clients(block: JsonObject) -> bool:
    text = block["text"].strip() if block["type"] == "text" else ""
    return text == CHECK_PROMPT or text.startswith(REMINDER)


def _what_happened(ended: network.Ended) -> str:
    if ended.exit_code is None:
        return "did not end in time"
    said = ended.stderr.strip() or ended.stdout.strip()
    named = re.search(r"\w*[Ee]rror: .*", said)
    return f"ended with {ended.exit_code}: {named[0] if named else ' '.join(said.split())[-200:]}"
