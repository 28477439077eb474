"""`read`, `write`, `edit`, `ls` on real files, with valid and invalid arguments."""

from __future__ import annotations

import base64
import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree.agent.text_files import decode, is_binary, render_diff
from sessiontree.agent.tools.base import ArgumentsError, Tool, Tools, load_tools
from sessiontree.agent.tools.grep_glob_ls import LS
from sessiontree.agent.tools.read import LINES, READ
from sessiontree.agent.tools.write_edit import EDIT, WRITE
from sessiontree.errors import NotFoundError, UsageError
from tests.agent.builders import Workplace
from tests.builders import examples

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


# Arguments


@pytest.mark.parametrize(
    ("tool", "arguments", "message"),
    [
        (READ, {}, "missing required field `path`"),
        (READ, {"path": 3}, "Expected `str`, got `int`"),
        (READ, {"path": "a", "offset": 0}, "Expected `int` >= 1"),
        (READ, {"path": "a", "lines": 3}, "unknown field `lines`"),
        (READ, {"path": ""}, "length >= 1"),
        (READ, {"path": "a\0b"}, "NUL"),
        (READ, {"path": "\ud83d"}, "read:"),
        (WRITE, {"path": "a"}, "missing required field `content`"),
        (EDIT, {"path": "a", "old_text": "", "new_text": "x"}, "length >= 1"),
    ],
)
def test_invalid_arguments_become_a_result_with_the_expected_schema(
    tool: Tool, arguments: dict[str, Any], message: str, place: Workplace
) -> None:
    output = place.run(tool, **arguments)
    assert output.is_error
    assert message in output.text
    with pytest.raises(ArgumentsError):
        tool.plan(arguments, place.context)


def test_the_expected_schema_includes_types() -> None:
    with pytest.raises(ArgumentsError, match=r"Expected: \{path: string, offset: integer \(optional\)"):
        READ.parse({})


def test_numbers_and_booleans_may_be_strings_and_null_means_not_given(place: Workplace) -> None:
    (place.project / "a").write_text("1\n2\n3\n")
    assert "lines 2 to 2" in place.run(READ, path="a", offset="2", limit="1").text
    assert place.run(READ, path="a", offset=None).text == "1\n2\n3"
    assert not place.run(EDIT, path="a", old_text="1", new_text="x", replace_all="true").is_error


def test_schemas_are_objects_with_described_fields() -> None:
    for tool in load_tools():
        assert tool.schema["type"] == "object"
        assert tool.schema["additionalProperties"] is False
        assert all("description" in str(about) for about in tool.schema["properties"].values())
        assert "$ref" not in str(tool.schema)


def test_built_in_tools_are_loaded_from_entry_points() -> None:
    changes = {tool.name: tool.changes for tool in load_tools()}
    ours = {"read": "nothing", "grep": "nothing", "glob": "nothing", "ls": "nothing", "write": "files", "edit": "files"}
    assert changes.items() >= {**ours, "bash": "anything"}.items()
    assert all(isinstance(tool, Tool) for tool in load_tools())


def test_duplicate_and_invalid_tool_names_are_refused() -> None:
    tools = Tools([READ])
    with pytest.raises(UsageError, match="two tools"):
        tools.add(READ)
    with pytest.raises(NotFoundError, match="available: read"):
        tools["rad"]


# read


def test_a_file_is_read_unchanged(place: Workplace) -> None:
    (place.project / "a.txt").write_text("eins\nzwei\n\ndrei")
    assert place.run(READ, path="a.txt").text == "eins\nzwei\n\ndrei"


def test_a_long_file_is_read_in_parts_with_a_note(place: Workplace) -> None:
    (place.project / "long").write_text("".join(f"{number}\n" for number in range(1, 5001)))
    first = place.run(READ, path="long")
    assert first.text.startswith("1\n2\n")
    assert f"[long: lines 1 to 2,000 of 5,000; continue with offset={LINES + 1}]" in first.text
    last = place.run(READ, path="long", offset=4001)
    assert last.text.startswith("4001\n")
    assert last.text.endswith("[long: lines 4,001 to 5,000 of 5,000]")
    beyond = place.run(READ, path="long", offset=5001)
    assert beyond.is_error
    assert "has only 5,000 lines" in beyond.text
    (place.project / "short").write_text("one\n")
    assert "has only 1 line;" in place.run(READ, path="short", offset=5).text


def test_a_very_long_line_is_cut_with_a_note(place: Workplace) -> None:
    (place.project / "min.js").write_text("x" * 1_000_000)
    output = place.run(READ, path="min.js")
    assert len(output.text) < 3_000
    assert "998,000 more characters in this line" in output.text
    assert "1 long line was cut" in output.text


def test_an_empty_file_is_reported_as_empty(place: Workplace) -> None:
    (place.project / "nothing").touch()
    assert place.run(READ, path="nothing").text == "[nothing is empty]"


def test_an_image_is_returned_as_an_image(place: Workplace) -> None:
    (place.project / "dot.png").write_bytes(PNG)
    output = place.run(READ, path="dot.png")
    (image,) = output.images
    assert image.mime_type == "image/png"
    assert base64.b64decode(image.data) == PNG


def test_an_image_that_is_too_large_is_refused(place: Workplace) -> None:
    (place.project / "huge.png").write_bytes(PNG + bytes(6_000_000))
    output = place.run(READ, path="huge.png")
    assert output.is_error
    assert "at most 5,000,000" in output.text
    assert not output.images


def test_binary_files_are_reported_and_not_shown(place: Workplace) -> None:
    (place.project / "a.out").write_bytes(b"\x7fELF\x00\x01\x02")
    output = place.run(READ, path="a.out")
    assert output.is_error
    assert "a binary file of 7 bytes" in output.text


def test_other_encodings_are_read(place: Workplace) -> None:
    (place.project / "wide").write_bytes("grüße\n".encode("utf-16"))
    (place.project / "marked").write_bytes(b"\xef\xbb\xbfabc\n")
    (place.project / "latin").write_bytes("grüße\n".encode("latin-1"))
    assert place.run(READ, path="wide").text == "grüße"
    assert place.run(READ, path="marked").text == "abc"
    assert place.run(READ, path="latin").text == "gr\ufffd\ufffde"


def test_reading_a_pipe_does_not_block(place: Workplace) -> None:
    os.mkfifo(place.project / "pipe")
    assert "named pipe" in place.run(READ, path="pipe").text
    assert "folder" in place.run(READ, path=".").text
    assert "no such file" in place.run(READ, path="none").text


# write


def test_a_new_file_gets_its_folders(place: Workplace) -> None:
    output = place.run(WRITE, path="a/b/c.txt", content="hello\n")
    assert output.text == "created a/b/c.txt (1 line, 6 bytes)"
    assert place.run(WRITE, path="b.txt", content="x").text == "created b.txt (1 line, 1 byte)"
    assert (place.project / "a/b/c.txt").read_bytes() == b"hello\n"


def test_overwriting_preserves_permissions_and_links_to_the_file(place: Workplace) -> None:
    target = place.project / "real.sh"
    target.write_text("old")
    target.chmod(0o755)
    (place.project / "link").symlink_to("real.sh")
    assert not place.run(WRITE, path="link", content="new").is_error
    assert (place.project / "link").is_symlink()
    assert target.read_text() == "new"
    assert target.stat().st_mode & 0o777 == 0o755


def test_a_folder_or_a_lone_surrogate_cannot_be_written(place: Workplace) -> None:
    (place.project / "folder").mkdir()
    assert "folder" in place.run(WRITE, path="folder", content="x").text
    assert "cannot encode" in place.run(WRITE, path="x", content="a\ud800").text
    assert not (place.project / "x").exists()


def test_exactly_the_approved_content_is_written_or_nothing(place: Workplace) -> None:
    path = place.project / "a.txt"
    path.write_text("one\n")
    place.answers.ask = _editing(path)  # type: ignore[method-assign]
    output = place.call("edit", path="a.txt", old_text="one", new_text="two")
    assert output.is_error
    assert "has changed since" in output.text
    assert path.read_text() == "one, edited by the user meanwhile\n"


def _editing(path: Path) -> Any:
    from sessiontree.agent.approval import Reply

    async def ask(question: object) -> Reply:
        path.write_text("one, edited by the user meanwhile\n")
        return Reply("once")

    return ask


# edit


def edited(place: Workplace, data: bytes, old: str, new: str, **more: Any) -> bytes:
    path = place.project / "file"
    path.write_bytes(data)
    output = place.run(EDIT, path="file", old_text=old, new_text=new, **more)
    assert not output.is_error, output.text
    return path.read_bytes()


def test_a_text_that_occurs_once_is_replaced(place: Workplace) -> None:
    assert edited(place, b"a b c", "b", "x") == b"a x c"


def test_line_endings_byte_order_marks_and_encodings_are_preserved(place: Workplace) -> None:
    assert edited(place, b"a\r\nb\r\nc\r\n", "a\nb", "a\nnew\nb") == b"a\r\nnew\r\nb\r\nc\r\n"
    assert edited(place, b"a\nb\r\nc\r\n", "b\nc", "x\ny") == b"a\nx\r\ny\r\n"
    assert edited(place, b"\xef\xbb\xbfabc", "b", "ü") == "\ufeffaüc".encode()
    assert edited(place, "aüc".encode("utf-16"), "ü", "ß") == "aßc".encode("utf-16")
    assert edited(place, b"gr\xfc\xdfe = 1\n", "= 1", "= 2") == b"gr\xfc\xdfe = 2\n"


def test_a_text_that_occurs_several_times_needs_more_context_or_replace_all(place: Workplace) -> None:
    (place.project / "f").write_text("x = 1\ny = 1\nx = 1\n")
    output = place.run(EDIT, path="f", old_text="x = 1", new_text="x = 2")
    assert output.is_error
    assert "occurs 2 times (lines 1, 3)" in output.text
    assert edited(place, b"x x x", "x", "y", replace_all=True) == b"y y y"


def test_a_missing_text_is_answered_with_the_most_similar(place: Workplace) -> None:
    (place.project / "f").write_text("def one():\n    return 1\n\n\ndef two():\n    return 2\n")
    spaces = place.run(EDIT, path="f", old_text="def two():\n  return 2", new_text="x")
    assert "Line 5 has the same text with different whitespace:\ndef two():\n    return 2" in spaces.text
    near = place.run(EDIT, path="f", old_text="def two(x):\n    return 2", new_text="x")
    assert "most similar text is in line 5:\ndef two():\n    return 2" in near.text
    nothing = place.run(EDIT, path="f", old_text="completely otherwise", new_text="x")
    assert "Nothing similar" in nothing.text
    assert (place.project / "f").read_text().count("def") == 2


def test_the_search_for_similar_text_in_a_large_file_is_fast(place: Workplace) -> None:
    (place.project / "f").write_text("".join(f"    value_{number} = compute({number})\n" for number in range(30_000)))
    output = place.run(EDIT, path="f", old_text="    value_77 = computed(78)", new_text="x")
    assert "most similar" in output.text


def test_edits_without_effect_binary_files_and_surrogates_are_refused(place: Workplace) -> None:
    (place.project / "f").write_text("x")
    (place.project / "b").write_bytes(b"x\0y")
    assert "are the same" in place.run(EDIT, path="f", old_text="x", new_text="x").text
    assert "binary" in place.run(EDIT, path="b", old_text="x", new_text="y").text
    assert "lone surrogate" in place.run(EDIT, path="f", old_text="x", new_text="\udcff").text
    assert "no such file" in place.run(EDIT, path="none", old_text="x", new_text="y").text


@given(st.binary(max_size=200))
def test_any_bytes_are_encoded_back_unchanged(data: bytes) -> None:
    found = decode(data)
    if found is None:
        assert is_binary(data)
    else:
        assert found.encode(found.text) == data


def test_a_file_that_is_too_large_is_not_changed(place: Workplace) -> None:
    with open(place.project / "huge", "wb") as file:
        file.truncate(60_000_000)
    for output in (
        place.run(WRITE, path="huge", content="x"),
        place.run(EDIT, path="huge", old_text="x", new_text="y"),
    ):
        assert output.is_error
        assert "has 60,000,000 bytes" in output.text


# ls and differences


def test_a_folder_is_listed_with_kinds_and_sizes(place: Workplace) -> None:
    (place.project / "folder").mkdir()
    (place.project / "file").write_text("12345")
    (place.project / "link").symlink_to("file")
    assert place.run(LS).text == "file  5\nfolder/\nlink -> file"
    assert place.run(LS, path="folder").text == "[folder is empty]"
    assert "not a folder" in place.run(LS, path="file").text


def test_a_diff_shows_the_changes() -> None:
    assert render_diff("a", b"one\ntwo\n", b"one\n2\n").splitlines()[-2:] == ["-two", "+2"]
    assert render_diff("a", None, b"x").splitlines()[:2] == ["--- /dev/null", "+++ b/a"]
    assert "No newline" in render_diff("a", b"x", b"x\n")
    assert "3 bytes -> 4 bytes" in render_diff("a", b"a\0b", b"a\0bc")
    assert "␍" in render_diff("a", b"x\r\n", b"x\n")
    assert render_diff("a", b"same", b"same") == ""


def test_a_very_large_diff_is_fast_and_correct(tmp_path: Path) -> None:
    old = [f"line {number}\n" for number in range(10_000)]
    new = [*old[:50], *reversed(old[50:-50]), *old[-50:]]
    (tmp_path / "f").write_text("".join(old))
    started = time.monotonic()
    diff = render_diff("f", "".join(old).encode(), "".join(new).encode())
    assert time.monotonic() - started < 5
    subprocess.run(["git", "-C", tmp_path, "apply", "-"], input=diff.encode(), check=True)
    assert (tmp_path / "f").read_text() == "".join(new)


@given(
    st.lists(st.sampled_from(["a\n", "b\n", "c\n"]), max_size=12),
    st.lists(st.sampled_from(["a\n", "b\n", "c\n"]), max_size=12),
)
@examples(20)
def test_a_diff_can_be_applied(old: list[str], new: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "f")
        path.write_text("".join(old))
        diff = render_diff("f", "".join(old).encode(), "".join(new).encode())
        if diff:
            subprocess.run(["git", "-C", folder, "apply", "--unidiff-zero", "-"], input=diff.encode(), check=True)
        assert path.read_text() == "".join(new)
