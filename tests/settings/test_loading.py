"""Precedence of settings: defaults, the user's file, the project's, the environment, the caller; and notices."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sessiontree.errors import UsageError
from sessiontree.settings import Loaded, Settings, load_settings


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    (folder / "src").mkdir()
    return folder


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def load(
    tmp_path: Path, cwd: Path | None = None, environment: dict[str, str] | None = None, **overrides: object
) -> Loaded:
    given = {key.replace("__", "."): value for key, value in overrides.items()}
    return load_settings(str(cwd or tmp_path), str(tmp_path / "home"), environment or {}, given)


def test_without_any_file_the_defaults_apply(tmp_path: Path) -> None:
    loaded = load(tmp_path)
    assert loaded.settings == Settings()
    assert (loaded.settings.compaction.reserve_tokens, loaded.settings.compaction.keep_recent_tokens) == (16384, 20000)
    assert (loaded.sources, loaded.warnings) == ({}, ())


def test_project_overrides_user_environment_overrides_project_and_caller_overrides_all(
    tmp_path: Path, project: Path
) -> None:
    user = write(tmp_path / "home" / "settings.json", '{"compaction": {"reserveTokens": 1, "keepRecentTokens": 1}}')
    own = write(project / ".sessiontree" / "settings.json", '{"compaction": {"reserveTokens": 2}}')
    key = "compaction.reserveTokens"
    both = load(tmp_path, project / "src")
    assert (both.settings.compaction.reserve_tokens, both.source(key).where) == (2, str(own))
    assert both.source("compaction.keepRecentTokens").where == str(user)
    variable = {"SESSIONTREE_COMPACTION_RESERVE_TOKENS": "3"}
    environment = load(tmp_path, project, variable)
    assert (environment.settings.compaction.reserve_tokens, environment.source(key).layer) == (3, "environment")
    overridden = load(tmp_path, project, variable, compaction__reserveTokens=4)
    assert (overridden.settings.compaction.reserve_tokens, overridden.source(key).layer) == (4, "override")


def test_a_project_file_is_searched_up_to_the_root_of_the_repository(tmp_path: Path, project: Path) -> None:
    write(tmp_path / ".sessiontree" / "settings.json", '{"retry": {"attempts": 9}}')
    assert load(tmp_path, project / "src").settings.retry.attempts == 4
    write(project / ".sessiontree" / "settings.json", '{"retry": {"attempts": 8}}')
    assert load(tmp_path, project / "src").settings.retry.attempts == 8
    outside = tmp_path / "loose" / "deeper"
    outside.mkdir(parents=True)
    write(tmp_path / "loose" / ".sessiontree" / "settings.json", '{"retry": {"attempts": 7}}')
    assert load(tmp_path, outside).settings.retry.attempts == 4
    assert load(tmp_path, tmp_path / "loose").settings.retry.attempts == 7


def test_a_project_cannot_choose_who_receives_the_conversation(tmp_path: Path, project: Path) -> None:
    text = (
        '{"model": "openai:evil", "models": "/etc/passwd", "compaction": {"summarizer": "openai:evil", "ratio": 0.5}}'
    )
    write(project / ".sessiontree" / "settings.json", text)
    loaded = load(tmp_path, project)
    assert (loaded.settings.model, loaded.settings.models) == (None, None)
    assert loaded.settings.compaction.summarizer == "auto"
    assert loaded.settings.compaction.ratio == 0.5
    assert [notice.key for notice in loaded.warnings] == ["model", "models", "compaction.summarizer"]
    write(tmp_path / "home" / "settings.json", text)
    assert load(tmp_path, tmp_path).settings.model == "openai:evil"


def test_the_users_file_is_never_used_as_a_project_file(tmp_path: Path, project: Path) -> None:
    home = project / ".sessiontree"
    write(home / "settings.json", '{"model": "anthropic:x"}')
    loaded = load_settings(str(project), str(home), {})
    assert (loaded.settings.model, loaded.warnings) == ("anthropic:x", ())


def test_an_unknown_key_gives_a_warning_with_a_suggestion_and_the_rest_is_used(tmp_path: Path) -> None:
    file = write(
        tmp_path / "home" / "settings.json",
        '{"compaction": {"reserveToken": 1, "keepRecentTokens": 7}, "zzz": {}, "reserveTokens": 2, "$schema": "x"}',
    )
    loaded = load(tmp_path)
    assert loaded.settings.compaction.keep_recent_tokens == 7
    assert [str(notice) for notice in loaded.warnings] == [
        f"{file}: compaction.reserveToken: unknown setting; did you mean compaction.reserveTokens?",
        f"{file}: zzz: unknown setting",
        f"{file}: reserveTokens: unknown setting; did you mean compaction.reserveTokens?",
    ]
    assert not any(notice.is_error for notice in loaded.warnings)


def test_a_wrong_type_is_reported_with_file_key_and_expected_type_and_the_rest_is_used(tmp_path: Path) -> None:
    file = write(
        tmp_path / "home" / "settings.json",
        '{"compaction": {"enabled": "yes", "reserveTokens": -1, "policy": "never", "ratio": 0.5}, "retry": 5}',
    )
    loaded = load(tmp_path)
    assert loaded.settings.compaction.ratio == 0.5
    assert [str(notice) for notice in loaded.warnings] == [
        f'{file}: compaction.enabled: expected true or false, got "yes"',
        f"{file}: compaction.reserveTokens: expected a whole number from 0 to 1,000,000,000, got -1",
        f'{file}: compaction.policy: expected one of reserve, table, share, ratio, manual, got "never"',
        f"{file}: retry: expected an object",
    ]
    assert all(notice.is_error for notice in loaded.warnings)


@pytest.mark.parametrize("content", [b"{", b"[1]", b"\xff\xfe", b"x" * 2_000_000])
def test_an_invalid_file_is_an_error_and_the_others_are_used(tmp_path: Path, project: Path, content: bytes) -> None:
    write(tmp_path / "home" / "settings.json", "{}").write_bytes(content)
    write(project / ".sessiontree" / "settings.json", '{"retry": {"attempts": 3}}')
    loaded = load(tmp_path, project)
    assert loaded.settings.retry.attempts == 3
    (notice,) = loaded.warnings
    assert notice.is_error
    assert "the file is ignored" in notice.text


def test_a_fifo_in_place_of_the_file_does_not_block(tmp_path: Path, project: Path) -> None:
    (project / ".sessiontree").mkdir()
    os.mkfifo(project / ".sessiontree" / "settings.json")
    (notice,) = load(tmp_path, project).warnings
    assert "not a regular file" in notice.text


def test_the_environment_sets_values_of_every_type_and_errors_are_reported(tmp_path: Path) -> None:
    loaded = load(
        tmp_path,
        environment={
            "SESSIONTREE_MODEL": "ollama:qwen3",
            "SESSIONTREE_COMPACTION_ENABLED": "off",
            "SESSIONTREE_COMPACTION_RATIO": "0.25",
            "SESSIONTREE_COMPACTION_PRUNE_PROTECT_TURNS": "many",
            "SESSIONTREE_BRANCH_SUMMARY_SKIP_PROMPT": "1",
            "SESSIONTREE_COMPACTION_POLICY": "",
            "SESSIONTREE_COMPACTION_RESERVE_TOKEN": "1",
            "SESSIONTREE_HOME": "/x",
        },
    )
    settings = loaded.settings
    assert (settings.model, settings.compaction.enabled, settings.compaction.ratio) == ("ollama:qwen3", False, 0.25)
    assert settings.branch_summary.skip_prompt is True
    assert [(notice.where, notice.is_error) for notice in loaded.warnings] == [
        ("$SESSIONTREE_COMPACTION_PRUNE_PROTECT_TURNS", True),
        ("$SESSIONTREE_COMPACTION_RESERVE_TOKEN", False),
    ]
    assert "SESSIONTREE_COMPACTION_RESERVE_TOKENS" in loaded.warnings[1].text


def test_a_model_override_replaces_only_the_values_it_sets(tmp_path: Path) -> None:
    write(
        tmp_path / "home" / "settings.json",
        '{"compaction": {"reserveTokens": 5,'
        ' "modelOverrides": {"openai/gpt-4.1": {"reserveTokens": 9, "enabled": false}}}}',
    )
    compaction = load(tmp_path).settings.compaction
    for name in ("openai/gpt-4.1", "openai:gpt-4.1"):
        own = compaction.for_model(name)
        assert (own.reserve_tokens, own.enabled, own.keep_recent_tokens) == (9, False, 20000)
    assert compaction.for_model("openai/gpt-4") == compaction
    assert compaction.for_model(None) == compaction


def test_an_invalid_override_of_the_caller_raises_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"did you mean retry\.attempts"):
        load(tmp_path, retry__atempts=1)
    with pytest.raises(UsageError, match="expected a whole number"):
        load(tmp_path, retry__attempts="1")
