"""Sessions are found by what is printed, and by any unique prefix of an id."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import sessiontree
from sessiontree.errors import AmbiguousError
from sessiontree.library.library import Library
from sessiontree.views.text import short_entry_id
from tests.dialects.packed_goldens import unpack


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


def test_candidates_are_listed_in_columns(home: Path) -> None:
    unpack("opencode", "06-fork", home)
    os.rename(home / "home" / ".local", home / ".local")
    with Library(str(home / "st")) as library, pytest.raises(AmbiguousError) as error:
        library.find("ses_")
    assert all("  opencode  Title" in line for line in str(error.value).splitlines()[1:])


def test_the_short_id_of_a_session_started_in_the_same_minute_finds_it(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from sessiontree.cli import main

    folder = home / ".pi" / "agent" / "sessions" / "--p--"
    for path in sorted(folder.iterdir()):
        main(["info", str(path), "--json", "--home", str(home / "st")])
        short = json.loads(capsys.readouterr().out)["shortId"]
        assert os.path.samefile(sessiontree.open(short, home=str(home / "st")).location, path)


def test_the_short_id_tells_sessions_of_different_clients_apart(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from sessiontree.cli import main

    ours = sessiontree.create("/p", id="019c2f3a-0001-7000-8000-000000000003", home=str(home / "st"), appear="now")
    other = home / ".omp" / "agent" / "sessions" / "--p--" / "x_019c2f3a-0001-7000-8000-000000000004.jsonl"
    other.parent.mkdir(parents=True)
    pi = home / ".pi" / "agent" / "sessions" / "--p--"
    first = pi / "2026-03-01T00-00-00-000Z_019c2f3a-0001-7000-8000-000000000001.jsonl"
    other.write_text(first.read_text().replace("000000000001", "000000000004").replace('"cwd"', '"title": "t", "cwd"'))
    found = set()
    for path in (str(first), str(other), ours.location):
        main(["info", path, "--json", "--home", str(home / "st")])
        short = json.loads(capsys.readouterr().out)["shortId"]
        found.add(short)
        main(["info", short, "--json", "--home", str(home / "st")])
        assert os.path.samefile(json.loads(capsys.readouterr().out)["path"], path)
    assert len(found) == 3


def test_printed_ids_of_entries_are_enough_to_find_them(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from sessiontree.cli import main

    session = sessiontree.create("/p", home=str(home / "st"), appear="now")
    ids = ["entry-000001", "entry-000002", "019c2f3a-0001-7000-8000-000000000001"]
    parents = [None, "entry-000001", "entry-000001"]
    for id, parent in zip(ids, parents, strict=True):
        session.append_entry({"role": "user", "content": "hi"}, id=id, parent=parent)
    for command in ("tree", "branches"):
        main([command, session.location])
        shown = capsys.readouterr().out
        assert all(id in shown for id in ids[1:])
    main(["diff", session.location, ids[1], ids[2]])
    assert ids[0] in capsys.readouterr().out


def test_random_uuids_with_the_same_first_characters_are_shown_with_more_of_them(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from sessiontree.cli import main

    session = sessiontree.create("/p", home=str(home / "st"), appear="now")
    root, *leaves = (f"4d871814-12{number}4-4abc-8def-000000000001" for number in range(3))
    session.append_entry({"role": "user", "content": "hi"}, id=root)
    for leaf in leaves:
        session.append_entry({"role": "user", "content": leaf}, id=leaf, parent=root)
    session.append_entry({"role": "user", "content": "more"}, id="5e871814-1234-4abc-8def-000000000001", parent=root)
    for command, ids in (("tree", [root, *leaves]), ("branches", leaves)):
        main([command, session.location])
        shown = capsys.readouterr().out
        assert all(f"{id[:12]}  " in shown for id in ids)
        assert "5e871814  " in shown
        assert all(session.find_entry(id[:12]) == id for id in ids)
    main(["diff", session.location, *leaves])
    shown = capsys.readouterr().out
    assert f"branches diverge after {root[:12]} (" in shown
    assert all(id[:12] in shown.split() for id in leaves)


def test_random_uuids_of_entries_are_shortened() -> None:
    assert short_entry_id("4d871814-1234-4abc-8def-000000000001") == "4d871814"
    assert short_entry_id("msg_01A\x1b[31m") == "msg_01A␛[31m"
    assert len(short_entry_id("x" * 1000)) == 40


def test_info_names_copies_with_the_same_id_by_their_path(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from sessiontree.cli import main

    folder = home / ".pi" / "agent" / "sessions" / "--p--"
    first = next(folder.glob("*_fa11.jsonl"))
    copy = first.with_name("copy_fa11.jsonl")
    copy.write_bytes(first.read_bytes())
    main(["info", str(copy), "--json", "--home", str(home / "st")])
    assert json.loads(capsys.readouterr().out)["shortId"] == str(copy)
    with Library(str(home / "st")) as library, pytest.raises(AmbiguousError, match="copy_fa11"):
        library.find("fa11")
