"""The real Claude Code, started by the SDK without network, on a store."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from acceptance import network
from acceptance.directives import make_call
from claude_agent_sdk import project_key_for_directory

from sessiontree.adapters.claude_agent_sdk import SessionTreeStore

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ANSWERS = ["The note is about apples.", "One is missing.", "Two.", "Apples, as I said."]


def prompts_for(folder: Path) -> list[str]:
    """Prompts for the scripted model: thinking, calls that succeed and one that fails, and texts."""
    note, missing = str(folder / "note.txt"), str(folder / "missing.txt")
    read, fail = make_call("Read", file_path=note), make_call("Read", file_path=missing)
    asked = [
        f"Read the note. {read}",
        f"Read both. {read} {fail}",
        f"Count. [[THINK Three of them.]] {make_call('Bash', command='echo apple pear', description='Print')}",
        "What was in the note?",
    ]
    return [f"{prompt} [[SAY {answer}]]" for prompt, answer in zip(asked, ANSWERS, strict=True)]


def blocks_of(messages: Sequence[dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    """Role and block of everything in a history, in order. Only the marks for the provider's cache are left out."""
    return [
        (message["role"], {name: value for name, value in block.items() if name != "cache_control"})
        for message in messages
        for content in [message["content"]]
        for block in ([text_block(content)] if isinstance(content, str) else content)
    ]


def text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def histories(requests: Sequence[dict[str, Any]], prompts: Sequence[str]) -> list[list[list[tuple[str, Any]]]]:
    """By prompt: the histories of the requests in which it is the last one."""
    found: list[list[list[tuple[str, Any]]]] = [[] for _ in prompts]
    for request in requests:
        if request["path"] == "/v1/messages" and request["body"].get("tools"):
            blocks = blocks_of(request["body"]["messages"])
            last = max(at for at, prompt in enumerate(prompts) if ("user", text_block(prompt)) in blocks)
            found[last].append(blocks)
    return found


@pytest.mark.parametrize("home", ["folder", "postgresql"], indirect=True)
def test_a_conversation_is_resumed_from_the_store_alone_with_the_exact_history(home: str, tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "note.txt").write_text("apples\nare red\n", encoding="utf-8")
    prompts = prompts_for(folder)
    environment = {
        "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{network.PORT}",
        "ANTHROPIC_API_KEY": "dummy",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "IS_SANDBOX": "1",
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    program = Path(__file__).with_name("mirror_and_resume.py")
    done = network.run([sys.executable, str(program), home, str(folder), *prompts], environment, folder, 600)
    assert done.exit_code == 0, done.stderr[-3000:]
    session = done.stdout.split()[-1]
    sent = histories(done.requests, prompts)
    assert [len(requests) for requests in sent] == [2, 2, 2, 1], "a request for the calls, and one for the answer"
    for number, prompt in enumerate(prompts[1:], 1):
        before = [*sent[number - 1][-1], ("assistant", text_block(ANSWERS[number - 1]))]
        assert sent[number][0] == [*before, ("user", text_block(prompt))]
    kinds = [block["type"] for _, block in sent[-1][0]]
    assert [kinds.count(kind) for kind in ("tool_use", "tool_result", "thinking")] == [4, 4, 1]

    project = project_key_for_directory(str(folder))
    entries = asyncio.run(SessionTreeStore(home).load({"project_key": project, "session_id": session}))
    assert entries is not None
    stored = blocks_of([entry["message"] for entry in entries if entry["type"] in ("user", "assistant")])
    said = [*sent[-1][0], ("assistant", text_block(ANSWERS[-1]))]
    assert stored == [(role, block) for role, block in said if not is_of_the_client(role, block)]
    assert len({entry["uuid"] for entry in entries if "uuid" in entry}) == sum("uuid" in entry for entry in entries)


def is_of_the_client(role: str, block: dict[str, Any]) -> bool:
    """Whether the client adds a block to its requests by itself."""
    return role == "system" or block.get("text", "").startswith("<system-reminder>")
