"""A project's settings come with a repository that anyone may have written: they decide nothing that runs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from sessiontree.cli import main
from sessiontree.settings import Settings, load_settings
from sessiontree.settings.known import iter_settings

HARMLESS = {
    "compaction.enabled",
    "compaction.policy",
    "compaction.reserveTokens",
    "compaction.keepRecentTokens",
    "compaction.ratio",
    "compaction.fallback",
    "compaction.instructions",
    "compaction.prune.enabled",
    "compaction.prune.protectTurns",
    "compaction.prune.protectTokens",
    "branchSummary.reserveTokens",
    "branchSummary.skipPrompt",
    "branchSummary.instructions",
    "retry.attempts",
    "retry.firstDelay",
    "retry.longestDelay",
}
"""Sizes, counts and texts for summaries. A new key that a project may set has to be added here on purpose."""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith("SESSIONTREE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SESSIONTREE_HOME", str(tmp_path / "home"))
    folder = tmp_path / "project"
    (folder / ".sessiontree").mkdir(parents=True)
    (folder / ".git").mkdir()
    return folder


def load(project: Path, values: dict[str, Any]) -> tuple[Settings, list[str]]:
    (project / ".sessiontree" / "settings.json").write_text(json.dumps(values))
    loaded = load_settings(str(project))
    return loaded.settings, [notice.key for notice in loaded.warnings]


def test_settings_of_a_project_do_not_choose_the_model(project: Path) -> None:
    settings, ignored = load(project, {"model": "scripted:evil.json", "models": "evil.json"})
    assert (settings.model, settings.models) == (None, None)
    assert ignored == ["model", "models"]


def test_settings_of_a_project_do_not_choose_the_summarizer(project: Path) -> None:
    settings, ignored = load(project, {"compaction": {"summarizer": "openai:evil", "reserveTokens": 5}})
    assert (settings.compaction.summarizer, settings.compaction.reserve_tokens) == ("auto", 5)
    assert ignored == ["compaction.summarizer"]


def test_settings_of_a_project_do_not_turn_off_the_sandbox(project: Path) -> None:
    settings, ignored = load(project, {"sandbox": False})
    assert settings.sandbox
    assert ignored == ["sandbox"]


def test_settings_of_a_project_set_only_sizes_counts_and_texts() -> None:
    allowed = {setting.key for setting in iter_settings() if setting.from_project}
    of_models = {key for key in allowed if key.startswith("compaction.modelOverrides.")}
    assert allowed - of_models == HARMLESS
    assert {"compaction." + key.rpartition(".")[2] for key in of_models} <= HARMLESS


@pytest.mark.parametrize(
    "values",
    [
        {"compaction": {"modelOverrides": {"a/b": {"summarizer": "openai:evil", "model": "x"}}}},
        {"compaction.summarizer": "openai:evil"},
        {"Model": "scripted:evil.json", "SANDBOX": False},
        {"approvals": {"mode": "yolo"}, "approvalMode": "yolo", "mcpServers": {"x": {"command": "touch"}}},
        {"env": {"SESSIONTREE_MODEL": "scripted:evil.json"}, "hooks": {"start": "touch made"}},
        {"model": ["scripted:evil.json"], "sandbox": "no", "compaction": "x"},
    ],
)
def test_settings_of_a_project_have_no_other_way_to_the_same_keys(values: dict[str, Any], project: Path) -> None:
    settings, ignored = load(project, values)
    assert settings == Settings() or settings.compaction.for_model("a/b").summarizer == "auto"
    assert (settings.model, settings.sandbox, settings.compaction.summarizer) == (None, True, "auto")
    assert ignored


def test_what_a_project_cannot_set_is_reported(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    load(project, {"sandbox": False})
    assert main(["config", "get", "sandbox", "--cwd", str(project)]) == 0
    printed = capsys.readouterr()
    assert printed.out.split() == ["true"]
    assert "sandbox: ignored: a project cannot set this, because its file may come with a repository" in printed.err


def test_a_settings_file_of_a_project_that_is_no_file_stops_nothing(project: Path) -> None:
    place = project / ".sessiontree" / "settings.json"
    os.mkfifo(place)
    assert load_settings(str(project)).settings == Settings()
    place.unlink()
    place.symlink_to("/dev/zero")
    assert load_settings(str(project)).settings == Settings()
    place.unlink()
    place.write_bytes(b"[" * 100_000)
    assert load_settings(str(project)).settings == Settings()
    with place.open("r+b") as file:
        file.truncate(1 << 40)
    assert load_settings(str(project)).settings == Settings()
