"""References to sessions: files, sessions inside a file, sessions in a repository."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sessiontree.errors import UsageError
from sessiontree.stores.contract import SessionRef, parse_ref

SCHEMES = ("file", "memory", "postgresql")


def test_a_path_is_a_reference_to_a_file(tmp_path: Path) -> None:
    ref = parse_ref(os.path.relpath(tmp_path / "a.jsonl"), SCHEMES)
    assert ref == SessionRef(str(tmp_path / "a.jsonl"))
    assert (ref.scheme, ref.path, str(ref)) == ("file", str(tmp_path / "a.jsonl"), str(tmp_path / "a.jsonl"))


@pytest.mark.parametrize("prefix", ["file:", "file://"])
def test_the_scheme_of_a_file_may_be_written(prefix: str) -> None:
    assert parse_ref(prefix + "/work/a.jsonl", SCHEMES) == SessionRef("/work/a.jsonl")


def test_a_session_inside_a_file_is_named_after_a_number_sign(tmp_path: Path) -> None:
    database = tmp_path / "open.db"
    database.write_bytes(b"x")
    ref = parse_ref(f"{database}#ses_1", SCHEMES)
    assert ref == SessionRef(str(database), "", "ses_1")
    assert str(ref) == f"{database}#ses_1"
    with pytest.raises(UsageError, match="only for sessions in separate files"):
        _ = ref.path


def test_a_file_whose_name_has_a_number_sign_is_that_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    file = tmp_path / "a#b"
    file.write_bytes(b"x")
    assert parse_ref(str(file), SCHEMES) == SessionRef(str(file))


@pytest.mark.parametrize(
    ("text", "home", "scheme"),
    [
        ("memory:team/0192", "memory:team", "memory"),
        ("postgresql://host/db/0192", "postgresql://host/db", "postgresql"),
    ],
)
def test_a_known_scheme_names_a_repository(text: str, home: str, scheme: str) -> None:
    ref = parse_ref(text, SCHEMES)
    assert (ref.home, ref.name, ref.scheme, str(ref)) == (home, "0192", scheme, text)
    with pytest.raises(UsageError, match="only for sessions in separate files"):
        _ = ref.path


@pytest.mark.parametrize("text", ["memory:", "memory:team", "memory:/0192", "memory:team/", "postgresql://host"])
def test_a_reference_without_a_session_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a session reference"):
        parse_ref(text, SCHEMES)


def test_an_unknown_scheme_is_part_of_a_path() -> None:
    assert parse_ref("notes:today.jsonl", SCHEMES) == SessionRef(os.path.abspath("notes:today.jsonl"))
