"""`sessiontree config`: it shows values and sources, writes one value, and keeps the rest of the file."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from tests.cli.conftest import Run, run

__all__ = ["run"]  # the fixture of the command line


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project" / ".git").mkdir(parents=True)
    return tmp_path / "project"


def test_get_shows_each_value_and_where_it_comes_from(run: Run, project: Path) -> None:
    file = run("config", "set", "compaction.reserveTokens", "7", "--project", "--cwd", str(project)).out.strip()
    assert file == str(project / ".sessiontree" / "settings.json")
    shown = {line.split()[0]: line.split()[1:] for line in run("config", "get", "--cwd", str(project)).lines}
    assert shown["compaction.reserveTokens"] == ["7", file]
    assert shown["compaction.keepRecentTokens"] == ["20000", "default"]
    one = run("config", "get", "compaction.reserveTokens", "--cwd", str(project))
    assert (one.out, one.err) == ("7\n", f"from: {file}\n")
    printed = run("config", "get", "compaction.reserveTokens", "--json", "--cwd", str(project)).json
    assert printed["settings"] == [{"key": "compaction.reserveTokens", "value": 7, "source": "project", "where": file}]


def test_set_writes_the_users_file_privately_and_keeps_the_rest(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "home" / "settings.json"
    file.parent.mkdir()
    file.write_text('{\n  // mine\n  "future": {"x": 1}\n}\n')
    assert run("config", "set", "model", "anthropic:claude-opus-5").code == 0
    assert file.read_text() == '{\n  // mine\n  "future": {"x": 1},\n  "model": "anthropic:claude-opus-5"\n}\n'
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert os.listdir(file.parent) == ["settings.json"]
    assert run("config", "unset", "model").code == 0
    assert file.read_text() == '{\n  // mine\n  "future": {"x": 1}\n}\n'
    assert run("config", "unset", "model").code == 1


def test_a_key_of_a_model_with_dots_in_its_name_can_be_set_and_unset(run: Run, tmp_path: Path) -> None:
    key = "compaction.modelOverrides.openai/gpt-4.1.reserveTokens"
    run("config", "set", key, "5")
    assert json.loads((tmp_path / "home" / "settings.json").read_text()) == {
        "compaction": {"modelOverrides": {"openai/gpt-4.1": {"reserveTokens": 5}}}
    }
    assert run("config", "get", key).out == "5\n"
    assert run("config", "unset", 'compaction.modelOverrides."openai/gpt-4.1".reserveTokens').code == 0


def test_an_invalid_file_is_an_error_and_is_not_changed(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "home" / "settings.json"
    file.parent.mkdir()
    file.write_text('{"model": ')
    for arguments in (("set", "model", "a:b"), ("unset", "model")):
        ran = run("config", *arguments)
        assert ran.code == 3
        assert "line 1" in ran.err
        assert "fix it first" in ran.err
    assert file.read_text() == '{"model": '
    got = run("config", "get", "model")
    assert (got.code, got.out) == (3, "-\n")
    assert "the file is ignored" in got.err


def test_the_user_file_may_be_a_link_but_a_project_file_is_not_written_through_one(
    run: Run, tmp_path: Path, project: Path
) -> None:
    real = tmp_path / "dotfiles.json"
    real.write_text("{}\n")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "settings.json").symlink_to(real)
    run("config", "set", "model", "a:b")
    assert (tmp_path / "home" / "settings.json").is_symlink()
    assert json.loads(real.read_text()) == {"model": "a:b"}
    (project / ".sessiontree").mkdir()
    (project / ".sessiontree" / "settings.json").symlink_to(real)
    ran = run("config", "set", "retry.attempts", "1", "--project", "--cwd", str(project))
    assert ran.code == 2
    assert "symbolic link" in ran.err
    assert json.loads(real.read_text()) == {"model": "a:b"}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("set", "compaction.enabled", "maybe"), "expected true or false"),
        (("set", "compaction.policy", "often"), "expected one of reserve, table"),
        (("set", "compactoin.enabled", "true"), "did you mean compaction.enabled?"),
        (("set", "compaction", "{}"), "is a group of settings"),
        (("set", "model", "a:b", "--project"), "a project cannot set"),
        (("set", "model"), "VALUE is missing"),
        (("set",), "KEY is missing"),
        (("get", "nonsense"), "unknown setting"),
        (("path", "model"), "takes no key"),
        (("unset", "model", "x"), "takes no value"),
    ],
)
def test_usage_errors_are_reported_on_one_line_and_nothing_is_written(
    run: Run, tmp_path: Path, project: Path, arguments: tuple[str, ...], expected: str
) -> None:
    ran = run("config", *arguments, "--cwd", str(project))
    assert ran.code == 2
    assert expected in ran.err
    assert ran.err.count("\n") == 1
    assert not (tmp_path / "home" / "settings.json").exists()
    assert not (project / ".sessiontree").exists()


def test_control_characters_in_a_project_file_do_not_reach_the_terminal(run: Run, project: Path) -> None:
    (project / ".sessiontree").mkdir()
    (project / ".sessiontree" / "settings.json").write_text(
        '{"\\u001b[2Jkey": 1, "compaction": {"instructions": "\\u001b]0;x"}}'
    )
    ran = run("config", "get", "--cwd", str(project))
    assert "\x1b" not in ran.out + ran.err
    assert "unknown setting" in ran.err


def test_path_and_schema_are_printed_for_editors(run: Run, tmp_path: Path, project: Path) -> None:
    paths = run("config", "path", "--json", "--cwd", str(project)).json
    assert paths["user"] == {"path": str(tmp_path / "home" / "settings.json"), "exists": False}
    assert paths["project"]["path"] == str(project / ".sessiontree" / "settings.json")
    schema = json.loads(run("config", "schema").out)
    assert schema["properties"]["model"]["description"].endswith("(not from a project's file)")
    assert schema["$defs"]["Compaction"]["properties"]["reserveTokens"]["default"] == 16384
    assert run("config", "schema", "--json").json["schema"] == schema


def test_set_warns_if_another_source_overrides_the_value(run: Run, project: Path) -> None:
    run("config", "set", "retry.attempts", "1", "--project", "--cwd", str(project))
    ran = run("config", "set", "retry.attempts", "2", "--cwd", str(project))
    assert "still 1: retry.attempts is overridden by" in ran.err
