"""`sessiontree acp` with the clients of npm's package: the current one, and the last of the major version before."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from acceptance import programs

from tests_adapters.acp.conftest import CLAUDE, PI, REPLAYED, Setup

PACKAGE = "@agentclientprotocol/sdk"


def installed(version: str) -> Path:
    """The folder of the package, installed once."""
    try:
        return programs.npm_install(f"acp-npm-{version}", f"{PACKAGE}@{version}") / PACKAGE
    except programs.NotInstalledError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))


@pytest.mark.parametrize(("version", "entry"), [("2.4.0", "dist/v1/stable/acp.js"), ("1.9.0", "dist/acp.js")])
def test_a_client_lists_loads_prompts_approves_cancels_and_resumes(setup: Setup, version: str, entry: str) -> None:
    given = {
        "entry": entry,
        "command": setup.command,
        "arguments": setup.arguments,
        "environment": setup.environment,
        "project": str(setup.project),
        "sessions": [CLAUDE, PI],
    }
    client = Path(__file__).with_name("npm_client.mjs")
    done = subprocess.run(
        [str(programs.node()), str(client), str(installed(version)), json.dumps(given)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert (seen["version"], seen["exit"], seen["error"]) == (1, 0, -32601)
    assert {"list", "resume", "close", "delete"} <= set(seen["capabilities"])
    assert {CLAUDE, PI} <= set(seen["listed"])
    assert seen["replayed"] == REPLAYED
    assert (seen["approved"], seen["answer"]) == ("end_turn", "I write it.Done.")
    assert seen["options"] == ["allow_once", "allow_always", "reject_once"]
    assert (setup.project / "made.txt").read_text() == "made\n"
    assert seen["cancelled"] == "cancelled"
    assert (seen["resumed"], seen["continued"]) == (0, ["end_turn", "Yes."])
    assert set(seen["left"]) == set(seen["listed"])
