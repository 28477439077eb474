"""A session that `sessiontree explore` writes: four lanes in a repository, two merged, one dropped, one kept.

Each branch of it is given to the programs: the file as it was left, and for each other leaf, a copy in which that leaf
is current.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import sessiontree
from sessiontree.models.scripted import ScriptCall, ScriptTurn
from sessiontree.testing.model_server import ModelServer

MODELS = ("anthropic:claude-sonnet-4-5", "openai:gpt-5", "anthropic:claude-opus-4-5", "openai-chat:gpt-5-mini")
WORDS = ("alpha", "beta", "gamma", "delta")
SECONDS = 120.0


def _turns() -> Iterator[ScriptTurn]:
    """For each word: a call that writes a file, one that reads it, and an answer. A lane matches by its word."""
    yield ScriptTurn(text="Try several ways.", when="What shall we do?")
    for word in WORDS:
        path = f"{word}.txt"
        write = ScriptCall("write", {"path": path, "content": f"{word}\n"}, f"toolu_{word}_1")
        look = ScriptCall("bash", {"command": f"cat {path}"}, f"toolu_{word}_2")
        yield ScriptTurn(thinking="A file.", text=f"I write {word}.", tool_calls=(write,), when=f"Write {word}")
        yield ScriptTurn(text="And I look.", tool_calls=(look,), when=f"created {path}")
        yield ScriptTurn(text=f"There is {word} now: 会话树 🌲", when=word)


def write_explorations(folder: Path) -> Iterator[Path]:
    """The final session, and a copy for each other leaf."""
    folder.mkdir(parents=True)
    project, home = folder / "project", folder / "home"
    project.mkdir()
    (project / "a.txt").write_text("a\n")
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "first"]):
        _run(["git", "-C", str(project), "-c", "user.name=a", "-c", "user.email=a@example.org", *words], {})
    prompts = folder / "prompts.txt"
    prompts.write_text("".join(f"Write {word}.\n" for word in WORDS))
    with ModelServer(list(_turns())) as server:
        around = {"SESSIONTREE_HOME": str(home), **server.environment()}
        words = ["-p", "What shall we do?", "--model", MODELS[0]]
        _run([sys.executable, "-m", "sessiontree", "chat", *words], around, project)
        (location,) = map(str, (home / "sessions").rglob("*.jsonl"))
        models = [part for model in MODELS for part in ("--model", model)]
        for words in (
            ["start", location, "--prompts", str(prompts), *models, "--check", "ls *.txt"],
            ["merge", location, "1", "2"],
            ["drop", location, "3"],
            ["keep", location, "4"],
        ):
            _run([sys.executable, "-m", "sessiontree", "explore", *words], around)
    yield _copied(location, folder / "explored.jsonl")
    session = sessiontree.open(location, home=home)
    for number, leaf in enumerate((leaf for leaf in session.leaves() if leaf != session.leaf), 1):
        path = _copied(location, folder / f"explored-leaf-{number}.jsonl")
        with sessiontree.open(path, home=home) as copy:
            copy.move(leaf)
        yield path


def _run(command: list[str], more: dict[str, str], folder: Path | None = None) -> None:
    given = {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8"}
    done = subprocess.run(
        command, cwd=folder, env={**given, **more}, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} did not go as planned\n{done.stdout}\n{done.stderr}")


def _copied(location: str, to: Path) -> Path:
    shutil.copyfile(location, to)
    return to
