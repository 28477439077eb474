"""`clean`, `restore` and `keep`: nothing moves without --yes, nothing is deleted without --purge."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from sessiontree.core.durations import parse_age
from sessiontree.errors import ExistsError, NotFoundError, UsageError
from sessiontree.library import Library
from tests.archive.conftest import Command
from tests.archive.machine import CLAUDE_ID, NATIVE_ID, contents, home_of, native_lines, write_claude, write_native
from tests.builders import entry, header

NEW_TIME = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime())


def test_a_dry_run_lists_the_sessions_and_touches_nothing(tmp_path: Path, command: Command) -> None:
    native, claude = write_native(tmp_path), write_claude(tmp_path)
    before = contents(tmp_path)
    ran = command("clean", "--older-than", "30d")
    assert contents(tmp_path) == before
    assert ran.out.splitlines()[-1].startswith("2 sessions, ")
    assert "add --yes to archive them" in ran.err
    rows = command("clean", "--json").json
    assert {row["path"] for row in rows["sessions"]} == {str(native), str(claude)}
    assert rows["done"] is False
    assert rows["size"] == sum(row["size"] for row in rows["sessions"])
    assert contents(tmp_path) == before


def test_the_ids_that_a_dry_run_prints_find_the_sessions(tmp_path: Path, command: Command) -> None:
    alike = [f"{NATIVE_ID[:8]}-{number:04}-7000-8000-000000000000" for number in (1, 2)]
    for id in alike:
        write_native(tmp_path, [header(id=id, cwd="/work/a"), *native_lines()[1:]], name=f"2026_{id}")
    rows = command("clean").out.splitlines()[:-1]
    printed = [next(word for word in row.split() if word.startswith(NATIVE_ID[:8])) for row in rows]
    assert sorted(printed) == [id[:13] for id in alike]
    with Library(str(tmp_path / "home")) as library:
        assert sorted(library.find(id).id for id in printed) == alike


def test_with_yes_sessions_move_into_the_archive_and_restore_brings_them_back(tmp_path: Path, command: Command) -> None:
    write_native(tmp_path)
    write_claude(tmp_path)
    before = contents(tmp_path)
    assert command("clean", "--yes").code == 0
    assert contents(tmp_path / "user", tmp_path / "home" / "sessions") == {}
    listed = command("restore", "--list")
    assert NATIVE_ID in listed.out or "first" in listed.out
    assert "2 items in the archive" in listed.err
    command("restore", NATIVE_ID[:8] + NATIVE_ID[8:14])
    for item in command("restore", "--list", "--json").json["items"]:
        assert command("restore", item["path"], "--json").json["written"]
    after = contents(tmp_path / "user", tmp_path / "home" / "sessions")
    assert after == before


def test_age_counts_from_the_last_message_and_not_from_the_date_of_the_file(tmp_path: Path, command: Command) -> None:
    old_file_new_talk = write_native(tmp_path, native_lines(NEW_TIME), name=f"x_{NATIVE_ID}")
    os.utime(old_file_new_talk, (1_000_000_000, 1_000_000_000))
    new_file_old_talk = write_claude(tmp_path)
    rows = command("clean", "--json").json
    assert [row["path"] for row in rows["sessions"]] == [str(new_file_old_talk)]


def test_named_labeled_pinned_and_other_agents_sessions_stay_on_request(tmp_path: Path, command: Command) -> None:
    named = write_native(tmp_path, [*native_lines(), entry("session_info", "i1", "n3", name="mine")], name="2026_named")
    labeled = write_native(
        tmp_path, [*native_lines(), entry("label", "l1", "n3", targetId="m0", label="here")], name="2026_labelled"
    )
    write_claude(tmp_path)

    def chosen(*arguments: str) -> set[str]:
        return {row["path"] for row in command("clean", "--json", *arguments).json["sessions"]}

    assert len(chosen()) == 3
    assert str(named) not in chosen("--keep-named")
    assert str(labeled) not in chosen("--keep-labeled")
    assert chosen("--agent", "native") == {str(named), str(labeled)}
    home_of(tmp_path).tags.change(NATIVE_ID, str(named), lambda mark: type(mark)(mark.session, mark.path, pinned=True))
    assert str(named) not in chosen()
    assert "kept although old enough: 1 (pinned)" in command("clean").err
    with pytest.raises(UsageError, match="unknown agent"):
        command("clean", "--agent", "nobody")


def test_purge_deletes_permanently_only_with_yes(tmp_path: Path, command: Command) -> None:
    write_native(tmp_path)
    before = contents(tmp_path)
    assert "permanently" in command("clean", "--purge").err
    assert contents(tmp_path) == before
    command("clean", "--purge", "--yes")
    assert contents(tmp_path / "home" / "sessions") == {}
    assert home_of(tmp_path).archive.items() == []


def test_purge_also_deletes_what_was_archived_long_enough_ago(tmp_path: Path, command: Command) -> None:
    write_native(tmp_path)
    command("clean", "--yes")
    assert command("clean", "--purge", "--json").json["fromArchive"] == []
    assert len(command("clean", "--older-than", "0d", "--purge", "--json").json["fromArchive"]) == 1
    command("clean", "--older-than", "0d", "--purge", "--yes")
    assert home_of(tmp_path).archive.items() == []
    assert not any((tmp_path / "home" / "archive" / "objects").rglob("*.zst"))


def test_a_session_that_cannot_be_archived_is_reported_and_the_others_are_archived(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_native(tmp_path)
    claude = write_claude(tmp_path)
    from sessiontree.archive.object_store import ArchivedFile, ObjectStore

    put_file = ObjectStore.put_file

    def put_and_grow(self: ObjectStore, path: str) -> ArchivedFile:
        stored = put_file(self, path)
        if path == str(claude):
            claude.write_bytes(claude.read_bytes() + b"{}\n")
        return stored

    monkeypatch.setattr(ObjectStore, "put_file", put_and_grow)
    ran = command("clean", "--yes")
    assert ran.code == 1
    assert "changed while it was being archived" in ran.err
    assert [item.agent for item in home_of(tmp_path).archive.items() if not os.path.exists(item.path)] == ["native"]
    assert claude.exists()


def test_a_warning_about_deletion_by_claude_code_is_shown_until_there_is_a_copy(
    tmp_path: Path, command: Command
) -> None:
    path = write_claude(tmp_path)
    old = time.time() - 28 * 86400
    os.utime(path, (old, old))
    assert "Claude Code will delete 1 session within" in command("clean", "--older-than", "9y").err
    assert "1 copied" in command("keep", "--all").err
    assert "Claude Code deletes" not in command("clean", "--older-than", "9y").err
    (tmp_path / "user" / ".claude" / "settings.json").write_text('{"cleanupPeriodDays": 99999}')
    assert command("clean", "--older-than", "9y", "--json").json["deletedSoonByTheirAgent"] == []


def test_keep_copies_one_or_all_sessions_and_later_runs_refresh_the_copies(tmp_path: Path, command: Command) -> None:
    path = write_claude(tmp_path)
    write_native(tmp_path)
    assert command("keep", CLAUDE_ID[:8], "--json").json["kept"][0]["path"] == str(path)
    both = command("keep", "--all", "--json").json
    assert (len(both["kept"]), len(both["current"])) == (1, 1)
    before = contents(tmp_path / "user")
    for file in before:
        os.unlink(file)
    command("restore", CLAUDE_ID)
    assert contents(tmp_path / "user") == before
    with pytest.raises(UsageError, match="--all"):
        command("keep")
    with pytest.raises(NotFoundError):
        command("keep", "nothing-like-it")


def test_restore_writes_elsewhere_on_request_and_overwrites_nothing(tmp_path: Path, command: Command) -> None:
    path = write_native(tmp_path)
    data = path.read_bytes()
    command("clean", "--yes")
    out = tmp_path / "out.jsonl"
    command("restore", str(path), "--out", str(out))
    assert out.read_bytes() == data
    with pytest.raises(ExistsError):
        command("restore", str(path), "--out", str(out))
    path.write_bytes(b"another\n")
    with pytest.raises(ExistsError):
        command("restore", str(path))
    assert path.read_bytes() == b"another\n"
    with pytest.raises(UsageError, match="--list"):
        command("restore")


def test_escape_sequences_in_titles_are_made_harmless(tmp_path: Path, command: Command) -> None:
    write_native(tmp_path, [*native_lines(), entry("session_info", "i1", "n3", name="red \x1b[31m\u202e title")])
    for shown in (command("clean").out, command("clean", "--yes").out, command("restore", "--list").out):
        assert "\x1b" not in shown
        assert "\u202e" not in shown
        assert "red" in shown


@pytest.mark.parametrize("text", ["", "30", "d", "-3d", "30x", "6M", "99999999d"])
def test_an_invalid_duration_is_rejected(text: str) -> None:
    with pytest.raises(UsageError, match="30d"):
        parse_age(text)


def test_minutes_are_refused_as_an_age_and_months_are_shown_in_words(command: Command) -> None:
    with pytest.raises(UsageError, match="'6m' means 6 minutes; for months write 6mo"):
        command("clean", "--older-than", "6m")
    assert "without a message for 6 months" in command("clean", "--older-than", "6mo").err
