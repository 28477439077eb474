"""A client that keeps its sessions elsewhere imports a converted file with its own command, only when asked to."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

import sessiontree
from sessiontree.cli import main
from sessiontree.conversion.install import Plan, Request, carry_out, install, make_plan
from sessiontree.dialects.canonical import Destination, SessionMeta
from sessiontree.dialects.pi.dialect import Pi
from sessiontree.errors import ConversionError, NotFoundError
from sessiontree.session.session import Session


class Importer:
    """Pi, as if it had a command that imports a session file into a database."""

    def __init__(self, folder: Path) -> None:
        self.database = folder / "database"
        self.program = folder / "bin" / "importer"
        self.file = folder / "outbox" / "session.jsonl"
        self.program.parent.mkdir()

    def write_program(self, script: str) -> None:
        self.program.write_text(f"#!/bin/sh\n{script}\n")
        self.program.chmod(0o755)

    def destination(self, _: Pi, meta: SessionMeta, environment: Mapping[str, str]) -> Destination:
        return Destination(str(self.file), ("importer", "--resume", meta.id), ("importer", "import", str(self.file)))


@pytest.fixture
def importer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Importer:
    made = Importer(tmp_path)
    made.write_program(f'test "$1" = import && cat "$2" >> {made.database}')
    monkeypatch.setattr(Pi, "destination", lambda *arguments: made.destination(*arguments))
    monkeypatch.setenv("PATH", f"{made.program.parent}{os.pathsep}{os.environ['PATH']}")
    return made


@pytest.fixture
def session(tmp_path: Path) -> Session:
    made = sessiontree.create(tmp_path, path=tmp_path / "source.jsonl")
    made.append({"role": "user", "content": "hello"})
    return made


def plan_for(session: Session) -> Plan:
    return make_plan(session, Request("pi"))


def test_installing_runs_the_command_on_the_verified_file(importer: Importer, session: Session) -> None:
    written = install(session, plan_for(session))
    assert importer.database.read_bytes() == importer.file.read_bytes()
    assert [message.content for message in written.context().messages] == ["hello"]


def test_writing_without_installing_runs_no_command(importer: Importer, session: Session) -> None:
    carry_out(session, plan_for(session))
    assert importer.file.exists()
    assert not importer.database.exists()


def test_a_missing_program_is_reported_before_anything_is_written(importer: Importer, session: Session) -> None:
    importer.program.unlink()
    with pytest.raises(NotFoundError, match="importer is not installed"):
        install(session, plan_for(session))
    assert not importer.file.parent.exists()


def test_a_command_that_fails_leaves_the_file_and_its_reason(importer: Importer, session: Session) -> None:
    importer.write_program("echo the database is locked >&2; exit 3")
    with pytest.raises(ConversionError, match="exit code 3: the database is locked; the converted"):
        install(session, plan_for(session))
    assert importer.file.exists()


def test_the_convert_command_runs_it_only_with_install(
    importer: Importer, session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    session.flush()
    assert main(["convert", session.location, "--to", "pi"]) == 0
    assert f"import   importer import {importer.file}" in capsys.readouterr().out
    assert not importer.database.exists()
    assert main(["convert", session.location, "--to", "pi", "--install"]) == 0
    assert importer.database.exists()
