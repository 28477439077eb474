"""Changing one value of a JSON text with comments: everything else stays as it was."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree.settings.text import parse, parse_object, remove_value, set_value

WITH_COMMENTS = """{
    // why we keep so much
    "compaction": {
        "reserveTokens": 16384, /* measured */
        "unknown": [1, 2, {"a": null}]   // ours
    },
    "model": "anthropic:x",
}
"""

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)
objects = st.dictionaries(st.sampled_from(["a", "b", "c d", 'e"', "日本"]), values, max_size=4)
paths = st.lists(st.sampled_from(["a", "b", "c d", 'e"', "日本", "new"]), min_size=1, max_size=3)
layouts = st.sampled_from([None, 0, 2, 4, "\t"])


def put(value: dict[str, Any], path: list[str], new: Any) -> dict[str, Any]:
    inner = value.get(path[0])
    return {**value, path[0]: new if len(path) == 1 else put(inner if isinstance(inner, dict) else {}, path[1:], new)}


def can_hold(value: Any, path: list[str]) -> bool:
    if len(path) == 1:
        return isinstance(value, dict)
    return isinstance(value, dict) and (path[0] not in value or can_hold(value[path[0]], path[1:]))


@given(objects, layouts)
def test_every_json_text_is_read_as_json_reads_it(value: dict[str, Any], indent: Any) -> None:
    assert parse(json.dumps(value, indent=indent)).value == value


@given(objects, layouts, paths, values)
def test_a_value_that_is_set_is_there_and_no_other_has_changed(
    value: dict[str, Any], indent: Any, path: list[str], new: Any
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    if not can_hold(value, path):
        with pytest.raises(ValueError, match="is not an object"):
            set_value(text, path, new)
        return
    assert parse(set_value(text, path, new)).value == put(value, path, new)


@given(objects, layouts, paths)
def test_setting_and_removing_a_new_value_leaves_the_values_as_they_were(
    value: dict[str, Any], indent: Any, path: list[str]
) -> None:
    text = json.dumps(value, indent=indent)
    if len(path) == 1 and path[0] not in value:
        left = remove_value(set_value(text, path, 1), path)
        assert left is not None
        assert parse(left).value == value


@given(objects, layouts)
def test_each_member_can_be_taken_out_of_any_layout(value: dict[str, Any], indent: Any) -> None:
    for key in value:
        left = remove_value(json.dumps(value, indent=indent), [key])
        assert left is not None
        assert parse(left).value == {name: one for name, one in value.items() if name != key}


def test_comments_order_and_unknown_keys_stay_when_a_value_changes() -> None:
    assert set_value(WITH_COMMENTS, ["compaction", "reserveTokens"], 5) == WITH_COMMENTS.replace("16384", "5")


def test_a_new_value_goes_behind_the_last_with_its_comment_and_indentation() -> None:
    after = set_value(WITH_COMMENTS, ["compaction", "enabled"], False)
    assert '{"a": null}],   // ours\n        "enabled": false\n    },' in after
    assert parse(after).value["compaction"]["enabled"] is False


def test_a_value_goes_in_behind_a_comma_that_was_the_last() -> None:
    after = set_value(WITH_COMMENTS, ["retry", "attempts"], 1)
    assert parse(after).value["retry"] == {"attempts": 1}
    assert after.count(",,") == 0


def test_a_removed_line_takes_nothing_else_with_it() -> None:
    after = remove_value(WITH_COMMENTS, ["model"])
    assert after is not None
    assert "model" not in after
    assert after.replace("\n", "") in WITH_COMMENTS.replace('\n    "model": "anthropic:x",', "").replace("\n", "")
    assert remove_value(WITH_COMMENTS, ["compaction", "nothing"]) is None


def test_of_a_key_that_stands_twice_the_last_counts_and_both_are_removed() -> None:
    text = '{"a": 1, "b": 2, "a": 3}'
    assert parse(set_value(text, ["a"], 9)).value == {"a": 9, "b": 2}
    left = remove_value(text, ["a"])
    assert left is not None
    assert parse(left).value == {"b": 2}


def test_a_text_with_nothing_in_it_becomes_an_object() -> None:
    for nothing in ("", "  \n", "// only words\n"):
        assert parse_object(nothing).value == {}
        assert parse(set_value(nothing, ["a", "b"], 1)).value == {"a": {"b": 1}}


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{"a": 1', "line 1, column 8"),
        ('{\n "a" 1}', "line 2, column 6"),
        ('{"a": tru}', "line 1, column 7"),
        ("[1, 2]", "expected an object"),
        ('{"a": 1} x', "end of the file"),
        ('{"a": "x}', "unterminated"),
        ("[" * 2000, "nested too deeply"),
        ('{"a": ' + "9" * 5000 + "}", "too many digits"),
        ("{'a': 1}", "double quotes"),
    ],
)
def test_what_is_no_json_is_refused_with_the_place(text: str, place: str) -> None:
    with pytest.raises(ValueError, match=place):
        parse_object(text)
