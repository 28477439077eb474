"""`convert`, `fork --to` and `resume` as processes."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path

import pytest

import sessiontree
from tests.cli.conftest import Run
from tests.conversion.conversations import everything

DIALECTS = ("claude", "neovate", "omp", "pi", "native")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A native session with everything in it, in a file."""
    path = tmp_path / "source.jsonl"
    path.write_bytes(b"".join(sessiontree.convert(everything(), "native", branch="all").lines))
    return path


@pytest.fixture(autouse=True)
def agents_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Point every agent's home folder at a temporary one."""
    home = tmp_path / "user"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    for name in list(os.environ):
        if name.startswith(("CLAUDE", "PI_", "OMP_", "XDG_")):
            monkeypatch.delenv(name)
    return home


def test_convert_without_a_destination_only_shows_the_plan(run: Run, source: Path, agents_at_home: Path) -> None:
    ran = run("convert", str(source), "--to", "claude")
    assert ran.code == 0
    assert ran.lines[0].startswith("target   ")
    assert any(line.startswith("carried  ") for line in ran.lines)
    assert "nothing was written" in ran.err
    assert "--install" in ran.err
    assert list(agents_at_home.rglob("*.jsonl")) == []


@pytest.mark.parametrize("to", DIALECTS)
def test_convert_writes_a_private_file_that_opens_as_the_target(
    run: Run, source: Path, tmp_path: Path, to: str
) -> None:
    out = tmp_path / "out" / f"{to}.jsonl"
    ran = run("convert", str(source), "--to", to, "--branch", "all", "--out", str(out), "--json")
    assert ran.code == 0, ran.err
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert ran.json["size"] == out.stat().st_size
    assert sessiontree.open(out).dialect.name == to
    assert list(out.parent.iterdir()) == [out]


def test_convert_never_overwrites(run: Run, source: Path, tmp_path: Path) -> None:
    out = tmp_path / "taken.jsonl"
    out.write_text("mine")
    ran = run("convert", str(source), "--to", "pi", "--out", str(out))
    assert ran.code == 1
    assert "already exists; nothing was written" in ran.err
    assert out.read_text() == "mine"


@pytest.mark.parametrize("to", DIALECTS)
def test_install_writes_where_the_agent_looks_and_prints_how_to_resume(
    run: Run, source: Path, to: str, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    made = run("convert", str(source), "--to", to, "--install", "--cwd", str(work), "--json").json
    path = Path(made["path"])
    assert path.is_file()
    assert path.is_relative_to(tmp_path)
    assert made["cwd"] == str(work)
    assert made["resume"]
    assert abs(path.stat().st_mtime - os.stat(source).st_mtime) < 600


def test_strict_fails_if_data_would_be_dropped_and_writes_nothing(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "thinking.jsonl"
    session = sessiontree.create(cwd="/", path=path)
    session.append("user", "hello")
    session.append(
        {"role": "assistant", "provider": "openai", "content": [{"type": "thinking", "thinking": "hm"}], "model": "x"}
    )
    session.close()
    out = tmp_path / "out.jsonl"
    ran = run("convert", str(path), "--to", "claude", "--out", str(out), "--strict")
    assert ran.code == 1
    assert "thinking" in ran.err
    assert not out.exists()


def test_an_unknown_target_lists_the_known_ones(run: Run, source: Path) -> None:
    ran = run("convert", str(source), "--to", "emacs")
    assert ran.code == 2
    assert "claude" in ran.err
    assert ran.out == ""


def test_forking_at_a_prompt_prints_its_text(run: Run, source: Path) -> None:
    session = sessiontree.open(source)
    prompt = next(
        id for id in session.path_ids() if session.fields(id).get("message", {}).get("content") == "Fix it, please."
    )
    made = run("fork", str(source), "--at", prompt, "--json").json
    assert made["prompt"] == "Fix it, please."
    assert prompt not in sessiontree.open(made["path"]).ids


def test_forking_at_the_first_prompt_gives_an_empty_session(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    session = sessiontree.create(cwd="/", path=path)
    first = session.append("user", "hello")
    session.append("assistant", "hi")
    session.close()
    made = run("fork", str(path), "--at", first.id, "--json").json
    assert (made["prompt"], made["entries"], made["forkedFrom"]["entry"]) == ("hello", 0, None)


@pytest.mark.parametrize("to", DIALECTS)
def test_a_fork_in_another_dialect_records_its_origin(run: Run, source: Path, to: str, tmp_path: Path) -> None:
    ran = run("fork", str(source), "--to", to, "--cwd", str(tmp_path), "--json")
    assert ran.code == 0, ran.err
    forked = sessiontree.open(ran.json["path"])
    origin = sessiontree.open(source)
    assert origin.id in json.dumps([forked.header.parent_session, str(forked.header.forked_from)]) or (
        forked.header.parent_session == str(source)
    )


def test_resume_prints_the_command_and_installs_a_copy(run: Run, source: Path, tmp_path: Path) -> None:
    ran = run("resume", str(source), "--in", "claude", "--cwd", str(tmp_path), "--print")
    assert ran.code == 0, ran.err
    assert ran.out.startswith(f"cd {tmp_path} && claude --resume ")


def test_resume_reports_an_agent_that_is_not_installed(
    run: Run, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, agents_at_home: Path
) -> None:
    monkeypatch.setenv("PATH", os.path.dirname(sys.executable))
    ran = run("resume", str(source), "--in", "omp", "--cwd", str(tmp_path))
    assert ran.code == 1
    assert "omp is not installed" in ran.err
    assert list(agents_at_home.rglob("*.jsonl")) == []


def test_resume_starts_the_agent_in_the_folder_of_the_session(
    run: Run, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "pi").write_text('#!/bin/sh\necho "$PWD" "$@"\n')
    (tools / "pi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    ran = run("resume", str(source), "--in", "pi", "--cwd", str(tmp_path))
    assert ran.code == 0, ran.err
    assert ran.out.startswith(f"{tmp_path} --session ")
