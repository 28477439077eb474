"""Blob references: large content is restored unchanged, and a lost blob is only a problem."""

from __future__ import annotations

import base64
import copy
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sessiontree
from sessiontree.core.entries import Custom, MessageEntry
from sessiontree.core.messages import Image, Text, User
from sessiontree.session.blob_refs import (
    BLOB_POINTERS,
    IMAGE_CHARACTERS,
    PREFIX,
    STRING_CHARACTERS,
    externalize,
    may_hold_large_content,
    restore,
    truncate,
)
from sessiontree.session.session import Session
from sessiontree.stores.memory import MemoryBlobs
from tests.builders import entry, examples, header, json_line, message_line, opened, places

LONG = "long text " * 50_001
IMAGE = base64.b64encode(bytes(range(256)) * 3).decode()
NAME = "ab" * 32


def image(data: str, **fields: Any) -> dict[str, Any]:
    return {"type": "image", "data": data, "mimeType": "image/png", **fields}


def there_and_back(fields: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The stored entry, and the restored one."""
    blobs = MemoryBlobs()
    stored = externalize(fields, blobs.put)
    assert json.loads(json.dumps(stored)) == stored
    return stored, restore(copy.deepcopy(stored), blobs.get)


def test_the_examples_are_as_large_as_they_should_be() -> None:
    assert len(IMAGE) == IMAGE_CHARACTERS == 1024
    assert len(LONG) > STRING_CHARACTERS == 500_000


# Externalize and restore


def test_a_large_image_goes_to_a_blob_as_bytes() -> None:
    put: list[bytes] = []

    def remember(content: bytes) -> str:
        put.append(content)
        return NAME

    stored = externalize({"content": [image(IMAGE)]}, remember)
    assert stored == {"content": [image(PREFIX + NAME)]}
    assert put == [base64.b64decode(IMAGE)]


def test_a_large_image_comes_back() -> None:
    fields = {"message": {"content": [{"type": "text", "text": "see"}, image(IMAGE)]}}
    stored, restored = there_and_back(fields)
    assert stored["message"]["content"][1]["data"].startswith(PREFIX)
    assert restored == fields


def test_a_small_image_stays_where_it_is() -> None:
    fields = {"content": [image(IMAGE[:-4])]}
    assert there_and_back(fields) == (fields, fields)


@pytest.mark.parametrize("data", ["!" * 2000, "A" * 1025, IMAGE[:-1] + "\n", IMAGE + "=", "é" * 2000, "AB==" * 300])
def test_image_data_that_is_not_exact_base64_stays_where_it_is(data: str) -> None:
    fields = {"content": [image(data)]}
    assert there_and_back(fields) == (fields, fields)


def test_very_long_image_data_that_is_not_base64_comes_back() -> None:
    fields = {"content": [image("!" * 500_001)]}
    stored, restored = there_and_back(fields)
    assert len(json.dumps(stored)) < 1000
    assert restored == fields


def test_a_very_large_image_is_stored_as_bytes() -> None:
    fields = {"content": [image(IMAGE * 1000)]}
    stored, restored = there_and_back(fields)
    assert BLOB_POINTERS not in stored
    assert len(json.dumps(stored)) < 1000
    assert restored == fields


def test_a_long_string_goes_to_a_blob_and_the_entry_has_its_pointer() -> None:
    fields = {"message": {"content": [{"type": "text", "text": LONG}]}}
    stored, restored = there_and_back(fields)
    assert stored[BLOB_POINTERS] == ["/message/content/0/text"]
    assert stored["message"]["content"][0]["text"].startswith(PREFIX)
    assert restored == fields


def test_a_string_of_exactly_the_limit_stays_where_it_is() -> None:
    fields = {"data": "x" * STRING_CHARACTERS}
    assert there_and_back(fields) == (fields, fields)


def test_characters_are_counted_not_bytes() -> None:
    fields = {"data": "木" * STRING_CHARACTERS}
    assert there_and_back(fields) == (fields, fields)


def test_long_strings_anywhere_come_back() -> None:
    fields = {"a": [[{"b": LONG}], LONG], "c": LONG + "!", "d": None, "e": {"f": 1.5}}
    stored, restored = there_and_back(fields)
    assert sorted(stored[BLOB_POINTERS]) == ["/a/0/0/b", "/a/1", "/c"]
    assert restored == fields


@pytest.mark.parametrize("key", ["a/b", "a~b", "~1", "~0/", "", "/", "0", "木", 'a"b'])
def test_keys_of_any_kind_are_found_again(key: str) -> None:
    fields = {"data": {key: LONG, "other": "x"}}
    assert there_and_back(fields)[1] == fields


def test_keys_that_look_alike_when_escaped_stay_different() -> None:
    fields = {"a/b": LONG, "a~1b": "blob:sha256:" + NAME, "a": {"b": "text"}}
    stored, restored = there_and_back(fields)
    assert stored[BLOB_POINTERS] == ["/a~1b"]
    assert restored == fields


def test_a_lone_surrogate_in_a_long_string_comes_back() -> None:
    fields = {"data": LONG + "\ud83d"}
    assert there_and_back(fields)[1] == fields


def test_text_that_looks_like_a_reference_stays_text() -> None:
    blobs = MemoryBlobs()
    name = blobs.put(b"something else")
    fields = {"content": [{"type": "text", "text": PREFIX + name}], "data": PREFIX + name}
    assert restore(externalize(fields, blobs.put), blobs.get) == fields


def test_text_that_looks_like_a_reference_next_to_a_long_string_stays_text() -> None:
    blobs = MemoryBlobs()
    fields = {"one": LONG, "two": PREFIX + blobs.put(b"something else")}
    assert restore(externalize(fields, blobs.put), blobs.get) == fields


@pytest.mark.parametrize("data", [PREFIX, PREFIX + "ab", PREFIX + NAME.upper(), PREFIX + NAME + "0", "blob:" + NAME])
def test_image_data_that_is_not_a_complete_reference_is_unchanged(data: str) -> None:
    fields = {"content": [image(data)]}
    assert restore(fields, lambda _: b"wrong") == fields


@pytest.mark.parametrize("own", [["mine"], ["/data"], "text", 5, None, {"a": 1}, []])
def test_a_field_of_the_same_name_as_ours_survives(own: Any) -> None:
    """A tool or an extension may well have a field called `blobs` of its own."""
    fields = {"data": LONG, "blobs": own}
    assert there_and_back(fields)[1] == fields
    small = {"data": PREFIX, "blobs": own}
    assert there_and_back(small)[1] == small


def test_an_entry_that_needs_no_blob_is_unchanged() -> None:
    fields = {"a": [1, 2.5, None, True, "x"], "b": {"c": {}}}
    assert externalize(fields, MemoryBlobs().put) == fields
    assert restore(fields, MemoryBlobs().get) == fields
    assert truncate(fields) == fields


def test_the_same_content_is_one_blob() -> None:
    stored, _ = there_and_back({"a": LONG, "b": LONG})
    assert stored["a"] == stored["b"]


def test_the_cheap_test_never_misses_large_content() -> None:
    assert may_hold_large_content(json_line({"content": [image(IMAGE)]}))
    assert may_hold_large_content(json_line({"data": LONG}))
    assert not may_hold_large_content(json_line({"data": "x" * 2000}))


# Truncation


def test_truncation_adds_a_notice_within_the_limit() -> None:
    cut = truncate({"a": {"b": [LONG]}, "c": "short"})
    text = cut["a"]["b"][0]
    assert len(text) <= STRING_CHARACTERS
    assert text.startswith(LONG[:499_000])
    assert "left out" in text[-100:]
    assert cut["c"] == "short"


def test_the_notice_counts_at_least_what_is_missing() -> None:
    text = "x" * 700_000
    cut: str = truncate({"a": text})["a"]
    count = int("".join(character for character in cut[cut.index("[") :] if character.isdigit()))
    assert 0 <= (700_000 - cut.count("x")) - count < 200


# Lost and damaged blobs


def test_where_a_blob_is_missing_the_reference_stays() -> None:
    fields = {"content": [image(PREFIX + NAME)], "data": PREFIX + NAME, BLOB_POINTERS: ["/data"]}
    restored = restore(fields, lambda _: None)
    assert restored["content"] == fields["content"]
    assert restored["data"] == PREFIX + NAME


def test_a_text_blob_that_is_not_text_raises_no_error() -> None:
    restored = restore({"data": PREFIX + NAME, BLOB_POINTERS: ["/data"]}, lambda _: b"\xff\xfe\x00")
    assert isinstance(restored["data"], str)


@pytest.mark.parametrize("listed", [[5, None, {}], "/data", {"/data": 1}, [["/data"]]])
def test_a_malformed_list_of_pointers_raises_no_error(listed: Any) -> None:
    fields = {"data": PREFIX + NAME, BLOB_POINTERS: listed}
    assert restore(fields, lambda _: b"wrong")["data"] == PREFIX + NAME


LINE = entry(
    "message", "m1", "m0", message={"role": "user", "content": [image(PREFIX + NAME), {"type": "text", "text": "t"}]}
)


def blob_path(home: Path, name: str) -> Path:
    return home / "blobs" / name[:2] / name


def session_in(home: Path, line: bytes) -> Session:
    path = home / "s.jsonl"
    path.write_bytes(header() + message_line("m0") + line + message_line("m2", "m1"))
    return sessiontree.open(path, home=home)


def test_a_missing_blob_is_a_problem_and_not_an_exception(tmp_path: Path) -> None:
    session = session_in(tmp_path, LINE)
    assert session.problems == []
    message = session.context().messages[1]
    assert message == User(content=(Image(PREFIX + NAME), Text("t")))
    start = len(header() + message_line("m0"))
    assert places(session.problems) == [(3, start, start + len(LINE) - 1, "missing-blob")]
    session.context()
    list(session)
    assert len(session.problems) == 1
    assert len(session.context().messages) == 3


def test_a_damaged_blob_is_a_problem_and_not_an_exception(tmp_path: Path) -> None:
    path = blob_path(tmp_path, NAME)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"not what the name says")
    session = session_in(tmp_path, LINE)
    assert session.context().messages[1] == User(content=(Image(PREFIX + NAME), Text("t")))
    assert [problem.kind for problem in session.problems] == ["damaged-blob"]


@pytest.mark.parametrize("what", ["link", "folder"])
def test_a_blob_that_is_not_a_file_is_a_problem_and_not_an_exception(what: str, tmp_path: Path) -> None:
    path = blob_path(tmp_path, NAME)
    path.parent.mkdir(parents=True)
    if what == "link":
        secret = tmp_path / "secret"
        secret.write_bytes(b"secret")
        path.symlink_to(secret)
    else:
        path.mkdir()
    session = session_in(tmp_path, LINE)
    assert session.context().messages[1] == User(content=(Image(PREFIX + NAME), Text("t")))
    assert len(session.problems) == 1


def test_a_text_blob_that_is_not_text_is_a_problem_and_not_an_exception(tmp_path: Path) -> None:
    with sessiontree.create(home=tmp_path, cwd=tmp_path) as session:
        session.append("user", [image(IMAGE)])
    (name,) = [name for _, _, names in os.walk(tmp_path / "blobs") for name in names]
    line = entry("custom", "m1", "m0", data=PREFIX + name, blobs=["/data"])
    assert session_in(tmp_path, line).entry("m1").id == "m1"


def test_deep_nesting_next_to_a_reference_raises_no_error() -> None:
    for depth in (100, 400, 600, 900):
        line = entry("custom", "m1", "m0", customType=PREFIX, data="HERE").replace(
            b'"HERE"', b"[" * depth + b"]" * depth
        )
        found = opened(header() + message_line("m0") + line).entry("m1")
        assert isinstance(found, Custom)
        assert found.custom_type == PREFIX


# In a session


def test_large_content_of_a_session_goes_to_blobs_and_comes_back(tmp_path: Path) -> None:
    with sessiontree.create(home=tmp_path, cwd=tmp_path) as session:
        appended = session.append("user", [image(IMAGE), {"type": "text", "text": LONG}])
        location = session.location
    expected = (Image(IMAGE), Text(LONG))
    assert isinstance(appended, MessageEntry)
    assert isinstance(appended.message, User)
    assert appended.message.content == expected
    assert os.path.getsize(location) < 2000
    reopened = sessiontree.open(location)
    (message,) = reopened.context().messages
    assert isinstance(message, User)
    assert message.content == expected
    assert reopened.problems == []


def test_a_session_that_truncates_writes_no_blobs(tmp_path: Path) -> None:
    with sessiontree.create(home=tmp_path, cwd=tmp_path, large_content="truncate") as session:
        session.append("user", LONG)
        assert STRING_CHARACTERS < os.path.getsize(session.location) < STRING_CHARACTERS + 1000
        (message,) = session.context().messages
    assert isinstance(message, User)
    assert len(message.content) <= STRING_CHARACTERS
    assert not (tmp_path / "blobs").exists()


def test_a_session_that_keeps_everything_inline_writes_no_blobs(tmp_path: Path) -> None:
    with sessiontree.create(home=tmp_path, cwd=tmp_path, large_content="inline") as session:
        session.append("user", LONG)
        assert os.path.getsize(session.location) > len(LONG)
    assert not (tmp_path / "blobs").exists()


def test_the_setting_in_a_header_applies_to_every_writer_and_to_forks(tmp_path: Path) -> None:
    with sessiontree.create(home=tmp_path, cwd=tmp_path, large_content="inline") as session:
        session.append("user", [image(IMAGE)])
    with sessiontree.open(session.location) as later:
        later.append("user", [image(IMAGE)])
        forked = later.fork()
    with sessiontree.open(forked.location) as copy:
        copy.append("user", [image(IMAGE), {"type": "text", "text": LONG}])
        assert copy.header.large_content == "inline"
        assert [len(message.content) for message in copy.context().messages if isinstance(message, User)] == [1, 1, 2]
    assert not (tmp_path / "blobs").exists()
    with sessiontree.open(forked.location, large_content="blobs") as other:
        other.append("user", [image(IMAGE)])
    assert (tmp_path / "blobs").exists()


def test_settings_go_to_blobs_even_where_everything_else_stays_on_its_line(tmp_path: Path) -> None:
    url = f"data:image/png;base64,{IMAGE}"
    with sessiontree.create(home=tmp_path, cwd=tmp_path, large_content="inline") as session:
        session.append("user", "hello")
        for mode in ("autoEdit", "default"):
            session.set_config(approval_mode=mode, pasted_image_map={"#1": url})
        assert session.config.pasted_image_map == {"#1": url}
    assert IMAGE not in Path(session.location).read_text()
    assert sessiontree.open(session.location).config.pasted_image_map == {"#1": url}


@pytest.mark.parametrize("asked", ["truncate", "nonsense", 7, None, ["inline"]])
def test_a_header_cannot_request_truncation(tmp_path: Path, asked: Any) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(header(sessiontree=1, largeContent=asked))
    with sessiontree.open(path, home=tmp_path) as session:
        session.append("user", LONG)
        (message,) = session.context().messages
    assert isinstance(message, User)
    assert message.content == LONG
    assert os.path.getsize(path) < 2000
    with sessiontree.create(home=tmp_path, cwd=tmp_path, large_content="truncate") as cutting:
        cutting.append("user", "hello")
    assert sessiontree.open(cutting.location).large_content == "blobs"


# Any entry

SHORT_FOR = {
    "LONG": LONG,
    "LONGER": LONG + "x",
    "IMAGE": IMAGE,
    "SMALL": IMAGE[:-4],
    "GIANT": IMAGE * 600,
    "MARKS": "!" * 500_001,
    "REFERENCE": PREFIX + NAME,
}
"""Placeholders for large strings while examples are drawn."""

keys = st.sampled_from(["a", "b", "data", "type", "content", "text", "~", "/", "0", "~1", ""])
leaves = st.none() | st.integers() | st.text(max_size=3) | st.sampled_from([*SHORT_FOR, "image"])
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(keys, inner, max_size=3)
        | st.builds(image, st.sampled_from([*SHORT_FOR, "x"]))
    ),
    max_leaves=5,
)


def spelled_out(value: Any) -> Any:
    """The value with placeholders replaced by large strings.

    A reference as image data is left out: base64 has no colon, so it is always meant as a reference.
    """
    if isinstance(value, str):
        return SHORT_FOR.get(value, value)
    if isinstance(value, list):
        return [spelled_out(item) for item in value]
    if not isinstance(value, dict):
        return value
    is_reference = value.get("type") == "image" and value.get("data") == "REFERENCE"
    return {key: "x" if is_reference and key == "data" else spelled_out(item) for key, item in value.items()}


@examples(100)
@given(st.dictionaries(keys, values, max_size=3))
def test_any_entry_comes_back_unchanged_and_is_small_in_between(short: dict[str, Any]) -> None:
    fields = spelled_out(short)
    stored, restored = there_and_back(fields)
    assert len(json.dumps(stored)) < 20_000
    same = restored == fields  # not in the assertion: its message would be a megabyte long
    assert same
