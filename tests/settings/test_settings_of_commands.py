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


# Who writes the summary


def scripted(tmp_path: Path, name: str, text: str) -> str:
    path = tmp_path / f"{name}.json"
    path.write_text(json.dumps({"turns": [{"text": text, "repeat": True}]}))
    return f"scripted:{path}"


def test_the_model_of_the_users_settings_writes_summaries(
    session: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    model = scripted(tmp_path, "mine", "## Goal\n\n- by my model")
    main(["config", "set", "model", model])
    capsys.readouterr()
    found = compacted(session, capsys, "--keep", "1000")
    assert found["summarizer"] == model
    assert "by my model" in str(found["summary"])


@pytest.mark.parametrize("command", ["compact", "branch", "merge"])
def test_a_model_option_chooses_who_writes_the_summary(
    session: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str
) -> None:
    main(["config", "set", "model", scripted(tmp_path, "mine", "by my model")])
    main(["config", "set", "compaction.summarizer", "extractive"])
    option = ["--model", scripted(tmp_path, "other", "## Goal\n\n- by the other model"), "--json"]
    with sessiontree.open(session) as opened:
        first, left = opened.path_ids()[1], opened.leaf
        assert left is not None
    capsys.readouterr()
    match command:
        case "compact":
            assert main(["compact", str(session), "--keep", "1000", *option]) == 0
        case "branch":
            assert main(["branch", str(session), first, "--summarize", *option]) == 0
        case _:
            main(["branch", str(session), first])
            main(["append", str(session), "user", "another way"])
            capsys.readouterr()
            assert main(["merge", str(session), left, *option]) == 0
    assert "by the other model" in json.loads(capsys.readouterr().out)["summary"]


def test_a_model_that_only_the_session_names_is_not_contacted(
    session: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    provider, _, name = scripted(tmp_path, "theirs", "by their model").partition(":")
    with sessiontree.open(session) as opened:
        opened.append({"type": "model_change", "provider": provider, "modelId": name})
    assert compacted(session, capsys, "--keep", "1000")["summarizer"] == "extractive"


def test_a_summary_that_fails_leaves_the_file_as_it_was_unless_a_fallback_is_set(
    session: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    option = ("--keep", "1000", "--model", scripted(tmp_path, "empty", " "))
    before = session.read_bytes()
    assert main(["compact", str(session), *option]) == 1
    assert "returned an empty summary" in capsys.readouterr().err
    assert session.read_bytes() == before
    main(["config", "set", "compaction.fallback", "extractive"])
    capsys.readouterr()
    assert compacted(session, capsys, *option)["summarizer"] == "extractive"
