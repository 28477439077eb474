"""Fixtures: run a command in this process, on a simulated machine."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sessiontree.cli.parser import Options, Parser
from tests.archive.machine import environment


class Ran:
    """Output and exit code of a command."""

    def __init__(self, code: int, out: bytes, err: bytes) -> None:
        self.code, self.out, self.err = code, out.decode(), err.decode()

    @property
    def json(self) -> Any:
        assert self.out.count("\n") == 1, "exactly one JSON object on one line"
        return json.loads(self.out)


Command = Callable[..., Ran]


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Command:
    for name in ("CLAUDE_CONFIG_DIR", "PI_CODING_AGENT_DIR", "PI_CODING_AGENT_SESSION_DIR", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("COLUMNS", "100")

    def command(name: str, *arguments: str) -> Ran:
        module = importlib.import_module(f"sessiontree.cli.{name}")
        assert "examples:" in module.EXAMPLES
        assert module.EXAMPLES.count(f"sessiontree {name}") >= 2
        parser = Parser(prog=f"sessiontree {name}", allow_abbrev=False)
        module.add_arguments(parser)
        parser.add_argument("--json", action="store_true")
        parser.add_argument("--home")
        capfdbinary.readouterr()
        code = module.run(parser.parse_args(arguments, Options()))
        captured = capfdbinary.readouterr()
        return Ran(code or 0, captured.out, captured.err)

    return command


@pytest.fixture(params=[pytest.param(7, id="every-7th-call"), pytest.param(1, id="every-call", marks=pytest.mark.slow)])
def stride(request: pytest.FixtureRequest) -> int:
    """Step between the calls at which a process is killed: some calls in an ordinary run, every call in a slow one."""
    return int(request.param)
