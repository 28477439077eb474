"""Settings apply to the commands that compact and summarize."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import sessiontree
from sessiontree.cli import main


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SESSIONTREE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SESSIONTREE_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "s.jsonl"
    with sessiontree.create(cwd=str(tmp_path), path=path, home=tmp_path / "home") as session:
        for number in range(40):
            session.append("user", f"question {number} " + "word " * 200)
            session.append(role="assistant", content=[{"type": "text", "text": f"answer {number} " + "word " * 200}])
    return path


def compacted(session: Path, capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, object]:
    assert main(["compact", str(session), "--dry-run", "--json", *more]) == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_settings_define_how_much_is_kept_unless_an_option_overrides_them(
    session: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["config", "set", "compaction.keepRecentTokens", "1000"])
    capsys.readouterr()
    little = compacted(session, capsys)["kept"]
    more = compacted(session, capsys, "--keep", "8000")["kept"]
    assert isinstance(little, int)
    assert isinstance(more, int)
    assert little < more


def test_a_project_may_set_how_much_is_kept(session: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    before = compacted(session, capsys, "--keep", "3000")["kept"]
    folder = tmp_path / ".sessiontree"
    folder.mkdir()
    (folder / "settings.json").write_text('{"compaction": {"keepRecentTokens": 3000}}')
    assert compacted(session, capsys)["kept"] == before


def test_a_missing_summarizer_is_reported_and_nothing_is_written(
    session: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = session.read_bytes()
    assert main(["compact", str(session), "--summarizer", "nobody"]) != 0
    assert "nobody" in capsys.readouterr().err
    assert session.read_bytes() == before


def test_an_unknown_key_is_reported_with_a_suggestion(
    session: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "home").mkdir(exist_ok=True)
    (tmp_path / "home" / "settings.json").write_text('{"compaction": {"keepRecentToken": 3000}}')
    assert main(["compact", str(session), "--dry-run", "--keep", "1000"]) == 0
    assert "keepRecentTokens" in capsys.readouterr().err
