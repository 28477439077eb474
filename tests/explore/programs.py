"""`sessiontree explore` as a user runs it: the real program, a repository with a session, and a model server."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import sessiontree
from sessiontree.cli import main
from sessiontree.explore.state import explorations
from sessiontree.models.scripted import ScriptTurn
from sessiontree.session.session import Session
from tests.chat.terminals import SECONDS, Place, Terminal, call, turn
from tests.explore.repos import make_repository, work_in

MODELS = ("anthropic:claude-opus-5", "openai:gpt-5", "anthropic:claude-sonnet-5", "openai-chat:gpt-5-mini")
SUBCOMMANDS = ("start", "resume", "list", "compare", "keep", "merge", "drop", "diff")
READERS = {"doctor", "tree", "explore compare", "explore list"}
"""Commands that only read."""
WORDS = ("alpha", "beta", "gamma", "delta")


def turns(words: Sequence[str] = WORDS) -> list[ScriptTurn]:
    """The turns of each lane, matched by its word: write a file, read it, answer."""
    return [
        one
        for word in words
        for one in (
            turn(f"I write {word}.", call("write", path=f"{word}.txt", content=f"{word}\n"), when=f"Write {word}"),
            turn("I look.", call("read", path=f"{word}.txt"), when=f"created {word}.txt"),
            turn(f"There is {word} now.", when=word),
        )
    ]


class Repository(Place):
    """A project with uncommitted files, and a session whose current entry is an answer."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.project.rmdir()
        make_repository(self.project)
        work_in(self.project)
        session = sessiontree.create(self.project, home=self.home)
        session.append("user", "What shall we do?")
        session.append("assistant", [{"type": "text", "text": "Try several ways."}], stopReason="stop")
        session.close()
        self.location = session.location

    def opened(self) -> Session:
        return sessiontree.open(self.location, home=self.home)

    def prompts(self, words: Sequence[str] = WORDS) -> str:
        path = self.home / "prompts.txt"
        path.write_text("".join(f"Write {word}.\n" for word in words))
        return str(path)

    def sessiontree(self, *arguments: str, more: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        if READERS & {arguments[0], " ".join(arguments[:2])}:
            return self._in_process(arguments, {**self.environment, **(more or {})})
        return subprocess.run(
            [sys.executable, "-m", "sessiontree", *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            cwd=self.project,
            env={**self.environment, **(more or {})},
            timeout=SECONDS * 2,
            check=False,
        )

    def _in_process(self, arguments: Sequence[str], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        """Run a command in this process: it starts nothing and leaves nothing, so a separate process is only slow."""
        out, err = io.TextIOWrapper(io.BytesIO(), "utf-8", newline=""), io.StringIO()
        with (
            mock.patch.dict(os.environ, environment, clear=True),
            contextlib.chdir(self.project),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            code = main(arguments)
            out.flush()
        printed = out.buffer.getvalue().decode()
        return subprocess.CompletedProcess(list(arguments), code, printed, err.getvalue())

    def explore(self, *arguments: str, more: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        return self.sessiontree("explore", *explore_words(self.location, arguments), more=more)

    def run_json(self, *arguments: str, more: Mapping[str, str] | None = None) -> dict[str, Any]:
        """The last object that the command prints with --json; it must not fail."""
        done = self.explore(*arguments, "--json", more=more)
        assert done.returncode == 0, done.stderr
        last: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return last

    def terminal(self, *arguments: str, more: Mapping[str, str] | None = None) -> Terminal:
        return Terminal(self, explore_words(self.location, arguments), more, command="explore")


def explore_words(session: str, arguments: Sequence[str]) -> list[str]:
    """Arguments of `explore` with the session inserted: after a subcommand, or first in the short form."""
    is_subcommand = bool(arguments) and arguments[0] in SUBCOMMANDS
    models = recorded_models(session) if arguments and arguments[0] == "resume" else []
    words = [arguments[0], session, *arguments[1:]] if is_subcommand else [session, *arguments]
    return [*words, *model_arguments(models)]


def recorded_models(session: str) -> list[str]:
    """The models that a session names. A user who resumes has to allow them, except the demonstration."""
    if not os.path.isfile(session):
        return []
    found = explorations(sessiontree.open(session))
    planned = {lane.model for state in found for lane in state.plan.planned}
    lanes = {lane.record.model for state in found for lane in state.lanes}
    return sorted((planned | lanes) - {"demo"})


def model_arguments(models: Sequence[str] = MODELS) -> list[str]:
    return [part for model in models for part in ("--model", model)]
