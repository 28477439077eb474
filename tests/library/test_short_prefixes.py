"""Sessions are found by what is printed, and by any unique prefix of an id."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import sessiontree
from sessiontree.errors import AmbiguousError
from sessiontree.library.library import Library


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / ".pi" / "agent" / "sessions" / "--p--"
    folder.mkdir(parents=True)
    for id in ("019c2f3a-0001-7000-8000-000000000001", "019c2f3a-0002-7000-8000-000000000002", "fa11"):
        header = {"type": "session", "version": 3, "id": id, "timestamp": "2026-03-01T00:00:00.000Z", "cwd": "/p"}
        message = {"role": "user", "content": f"prompt of {id[-4:]}", "timestamp": 1}
        line = {"type": "message", "id": "00000001", "parentId": None, "timestamp": header["timestamp"]}
        text = json.dumps(header) + "\n" + json.dumps({**line, "message": message}) + "\n"
        (folder / f"2026-03-01T00-00-00-000Z_{id}.jsonl").write_text(text)
    return tmp_path


def test_a_unique_prefix_of_any_length_finds_a_session(home: Path) -> None:
    with Library(str(home / "st")) as library:
        assert library.find("f").id == "fa11"
        with pytest.raises(AmbiguousError):
            library.find("019")
        assert library.find("019c2f3a-0002").id.endswith("2")
    assert sessiontree.open("fa", home=str(home / "st")).id == "fa11"


def test_the_short_id_of_a_session_started_in_the_same_minute_finds_it(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from sessiontree.cli import main

    folder = home / ".pi" / "agent" / "sessions" / "--p--"
    for path in sorted(folder.iterdir()):
        main(["info", str(path), "--json", "--home", str(home / "st")])
        short = json.loads(capsys.readouterr().out)["shortId"]
        assert os.path.samefile(sessiontree.open(short, home=str(home / "st")).location, path)
