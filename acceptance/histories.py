"""The history that a real program rebuilds from a session file. Each function works on a copy of the file.

If a program rebuilds nothing, `NoHistoryError` has its output.
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

# Texts that the client adds around a history.
REMINDER = "<system-reminder>"
NO_RESPONSE = "No response requested."
REMINDERS_IN_RESULT = f"\n\n{REMINDER}\n# Environment\n"
"""The start of the reminders that the client appends to the last result, where it is the end of the history."""


class NoHistoryError(Exception):
    """A program rebuilt no history; the message describes what it did."""


def claude_history(transcript: Path, scratch: Path | None = None) -> list[JsonObject]:
    """The messages that Claude Code sends when it resumes a transcript with one more prompt."""
    program = install("claude")
    with _folder(scratch) as folder:
        session = _session_id(transcript)
        _copy(transcript, folder / "config" / "projects" / "acceptance" / f"{session}.jsonl")
        model = _last_model(transcript)
        result = network.run(
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
        (folder / "requests.json").write_text(json.dumps(result.requests, indent=1))
    for request in result.requests:
        if request["path"] == "/v1/messages" and CHECK_PROMPT in json.dumps(request["body"]["messages"]):
            return _conversation(request["body"]["messages"])
    raise NoHistoryError(f"no history: {_describe_run(result)}")


def pi_history(session: Path, scratch: Path | None = None) -> JsonObject:
    """`{leaf, messages, thinkingLevel, model}` as Pi rebuilds them."""
    script = """
        const [, , module, session, , result] = process.argv;
        const { SessionManager } = await import(module);
        const manager = SessionManager.open(session);
        const history = { leaf: manager.getLeafId(), ...manager.buildSessionContext() };
        (await import("node:fs")).writeFileSync(result, JSON.stringify(history));
        process.exit(0);
    """
    with _folder(scratch) as folder:
        environment = {"PI_OFFLINE": "1", "PI_CODING_AGENT_DIR": str(folder / "agent")}
        return _run_script(install("pi"), script, session, environment, folder)


def omp_history(session: Path, scratch: Path | None = None) -> JsonObject:
    """`{leaf, messages, thinkingLevel, models, mode, ...}` as oh-my-pi rebuilds them."""
    script = """
        const [, , module, session, folder, result] = process.argv;
        const { SessionManager } = await import(module);
        const options = { initialCwd: folder, suppressBreadcrumb: true };
        const manager = await SessionManager.open(session, folder, undefined, options);
        const history = { leaf: manager.getLeafId(), ...manager.buildSessionContext() };
        (await import("node:fs")).writeFileSync(result, JSON.stringify(history));
        process.exit(0);
    """
    with _folder(scratch) as folder:
        return _run_script(install("omp"), script, session, {"PI_CODING_AGENT_DIR": str(folder / "agent")}, folder)


def check_resumes(program: Literal["pi", "omp"], session: Path, scratch: Path) -> None:
    """Let Pi or oh-my-pi resume a session with one more prompt, because rebuilding a history is not sending it.

    For example, both rebuild a tool result whose content is a string, and fail when they send it.
    """
    installed = install(program)
    assert installed.module is not None
    agent, copy = scratch / "agent", scratch / "session" / session.name
    _copy(session, copy)
    if program == "pi":
        command = [str(installed.module.with_name("cli.js")), "--session", str(copy)]
    else:
        command = [str(installed.module.parents[1] / "cli.ts"), "--resume", str(copy)]
    result = network.run(
        [str(installed.binary), *command, "--model", "anthropic/claude-sonnet-4-5", "--print", CHECK_PROMPT],
        {"PI_OFFLINE": "1", "PI_CODING_AGENT_DIR": str(agent), **MODEL},
        scratch,
        SECONDS,
        {agent / "models.json": json.dumps({"providers": {"anthropic": {"baseUrl": MODEL["ANTHROPIC_BASE_URL"]}}})},
    )
    if result.exit_code != 0 or not any(CHECK_PROMPT in json.dumps(request["body"]) for request in result.requests):
        raise NoHistoryError(f"rebuilt, but not resumed: {_describe_run(result)}")


def _run_script(
    program: Program, script: str, session: Path, environment: Mapping[str, str], folder: Path
) -> JsonObject:
    """Run a script of ours inside the program's own modules."""
    copy, output, script_path = folder / "session" / session.name, folder / "result.json", folder / "script.mjs"
    _copy(session, copy)
    script_path.write_text(script)
    arguments = [str(program.module), str(copy), str(folder), str(output)]
    result = network.run([str(program.binary), str(script_path), *arguments], environment, folder, LOADING_SECONDS)
    if not output.exists():
        raise NoHistoryError(f"no history: {_describe_run(result)}")
    history: JsonObject = json.loads(output.read_text())
    return history


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
    named = re.search(rb'"sessionId":\s*"([0-9a-fA-F-]{36})"', transcript.read_bytes())
    return named[1].decode() if named else str(uuid.uuid4())


def _last_model(transcript: Path) -> str | None:
    """The model of the last answer: the client sends thinking blocks only to their own model."""
    models: list[bytes] = re.findall(rb'"model":\s*"(claude-[\w.-]+)"', transcript.read_bytes())
    return models[-1].decode() if models else None


def _conversation(messages: list[JsonObject]) -> list[JsonObject]:
    """Messages without our extra prompt and the client's additions."""
    conversation = []
    for message in messages:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        kept = [_without_reminders(block) for block in blocks if not _is_the_clients(block)]
        if kept and message["role"] != "system":
            conversation.append({"role": message["role"], "content": kept})
    if conversation and conversation[-1]["content"] == [{"type": "text", "text": NO_RESPONSE}]:
        conversation.pop()
    return conversation


def _is_the_clients(block: JsonObject) -> bool:
    text = block["text"].strip() if block["type"] == "text" else ""
    return text == CHECK_PROMPT or text.startswith(REMINDER)


def _without_reminders(block: JsonObject) -> JsonObject:
    content = block.get("content")
    if block["type"] != "tool_result" or not isinstance(content, str):
        return block
    return {**block, "content": content.partition(REMINDERS_IN_RESULT)[0]}


def _describe_run(result: network.RunResult) -> str:
    if result.exit_code is None:
        return "did not end in time"
    output = result.stderr.strip() or result.stdout.strip()
    named = re.search(r"\w*[Ee]rror: .*", output)
    return f"exited with {result.exit_code}: {named[0] if named else ' '.join(output.split())[-200:]}"
