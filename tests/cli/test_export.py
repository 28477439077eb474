"""`sessiontree export` as a process."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Ran, Run


@pytest.fixture
def export(tmp_path: Path) -> Callable[..., Ran]:
    def run(*arguments: str) -> Ran:
        environment = {**os.environ, "SESSIONTREE_HOME": str(tmp_path / "home"), "HOME": "/srv/ada"}
        command = [sys.executable, "-m", "sessiontree", "export", *arguments]
        return Ran(subprocess.run(command, capture_output=True, env=environment, timeout=60, check=False))

    return run


Export = Callable[..., Ran]


def test_without_out_markdown_goes_to_stdout(export: Export, session: str) -> None:
    done = export(session)
    assert done.code == 0
    assert done.out.startswith("# 解析器\n")
    assert "保留 argparse" in done.out
    assert "click" not in done.out
    assert done.err == ""


def test_a_dash_is_stdout_and_not_a_file(export: Export, session: str) -> None:
    assert export(session, "--out", "-").out == export(session).out
    assert not Path("-").exists()


@pytest.mark.parametrize(
    ("ending", "start"),
    [
        ("html", "<!doctype html>"),
        ("md", "# "),
        ("txt", "解析器"),
        ("json", '{"schemaVersion":1'),
        ("jsonl", '{"type"'),
    ],
)
def test_the_extension_of_the_file_selects_the_format(
    export: Export, session: str, tmp_path: Path, ending: str, start: str
) -> None:
    out = tmp_path / f"x.{ending}"
    done = export(session, "--out", str(out), "--branch", "all")
    assert done.out == f"{out}\n"
    assert out.read_text().startswith(start)
    assert "click" in out.read_text()
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir() if path.name != "home"] == [out.name]


def test_a_file_is_never_overwritten(export: Export, session: str, tmp_path: Path) -> None:
    out = tmp_path / "x.md"
    out.write_text("mine")
    done = export(session, "--out", str(out))
    assert done.code == 1
    assert "file exists; choose another name" in done.err
    assert out.read_text() == "mine"


def test_redact_masks_secrets_and_reports_how_many(export: Export, run: Run, session: str, tmp_path: Path) -> None:
    run("append", session, "user", "ada@example.com sk-ant-api03-abcDEF1234567890abcdef /srv/ada/x")
    done = export(session, "--redact")
    assert done.err.startswith("masked ")
    for count in ("1 key", "1 e-mail address", "1 home path"):
        assert count in done.err
    assert "sk-ant" not in done.out
    assert "ada@" not in done.out
    assert "/ada" not in done.out


def test_json_reports_what_was_written_and_masked(export: Export, run: Run, session: str, tmp_path: Path) -> None:
    run("append", session, "user", "ada@example.com")
    out = tmp_path / "x.html"
    facts = export(session, "--out", str(out), "--redact", "--json").json
    assert facts["path"] == str(out)
    assert facts["format"] == "html"
    assert facts["bytes"] == out.stat().st_size
    assert facts["masked"]["e-mail address"] == 1
    assert facts["maskedByRule"]["e-mail"] == 1


def test_json_without_a_file_is_the_json_document(export: Export, session: str) -> None:
    assert export(session, "--json").json["session"]["name"] == "解析器"
    refused = export(session, "--json", "--format", "html")
    assert refused.code == 2
    assert "add --out FILE" in refused.err


def test_raw_lines_open_again(export: Export, run: Run, session: str, tmp_path: Path) -> None:
    out = tmp_path / "copy.jsonl"
    export(session, "--out", str(out))
    assert run("show", str(out)).out == run("show", session).out


def test_damage_is_shown_and_reported(export: Export, session: str) -> None:
    with open(session, "ab") as file:
        file.write(b"not an entry\n")
    done = export(session, "--format", "html")
    assert done.code == 0
    assert "not an entry" in done.out
    assert "undecodable" in done.err


def test_a_closed_pipe_is_not_an_error(session: str, tmp_path: Path) -> None:
    environment = {**os.environ, "SESSIONTREE_HOME": str(tmp_path / "home")}
    writer = subprocess.Popen(
        [sys.executable, "-m", "sessiontree", "export", session, "--format", "html"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    )
    assert writer.stdout is not None
    assert writer.stderr is not None
    writer.stdout.close()
    assert writer.wait(60) == 0
    assert writer.stderr.read() == b""
    writer.stderr.close()
