"""The real Claude Code, started by the SDK without network, on a store."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from acceptance import network
from claude_agent_sdk import project_key_for_directory

from sessiontree.adapters.claude_agent_sdk import SessionTreeStore
from tests_adapters.claude_agent_sdk.mirror_and_resume import PROMPTS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def prompts_in(request: dict[str, Any]) -> list[str]:
    """The texts of the user in a request that are prompts of this test, in order."""
    texts = [
        block["text"] if isinstance(block, dict) else block
        for message in request.get("messages", [])
        if message["role"] == "user"
        for block in (message["content"] if isinstance(message["content"], list) else [message["content"]])
        if not isinstance(block, dict) or block.get("type") == "text"
    ]
    return [text for text in texts if text in PROMPTS]


@pytest.mark.parametrize("home", ["folder", "postgresql"], indirect=True)
def test_a_conversation_is_resumed_from_the_store_alone_with_the_exact_history(home: str, tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
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
    done = network.run([sys.executable, str(program), home, str(folder)], environment, folder, 600)
    assert done.exit_code == 0, done.stderr[-3000:]
    session = done.stdout.split()[-1]
    sent = [prompts_in(request.get("body", request)) for request in done.requests]
    assert [*PROMPTS] in sent
    assert [*PROMPTS[:2]] in sent
    project = project_key_for_directory(str(folder))
    entries = asyncio.run(SessionTreeStore(home).load({"project_key": project, "session_id": session}))
    assert entries is not None
    stored = [entry["message"]["content"] for entry in entries if entry["type"] == "user"]
    assert [text for text in stored if text in PROMPTS] == [*PROMPTS]
    assert len({entry["uuid"] for entry in entries if "uuid" in entry}) == sum("uuid" in entry for entry in entries)
