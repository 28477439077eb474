"""Changing one value in a JSON text with comments keeps everything else."""

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
def test_every_json_text_is_parsed_like_the_json_module_does(value: dict[str, Any], indent: Any) -> None:
    assert parse(json.dumps(value, indent=indent)).value == value


@given(objects, layouts, paths, values)
def test_setting_a_value_changes_no_other_value(value: dict[str, Any], indent: Any, path: list[str], new: Any) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    if not can_hold(value, path):
        with pytest.raises(ValueError, match="is not an object"):
            set_value(text, path, new)
        return
    assert parse(set_value(text, path, new)).value == put(value, path, new)


@given(objects, layouts, paths)
def test_setting_and_removing_a_new_value_restores_the_values(
    value: dict[str, Any], indent: Any, path: list[str]
) -> None:
    text = json.dumps(value, indent=indent)
    if len(path) == 1 and path[0] not in value:
        left = remove_value(set_value(text, path, 1), path)
        assert left is not None
        assert parse(left).value == value


@given(objects, layouts)
def test_each_member_can_be_removed_from_any_layout(value: dict[str, Any], indent: Any) -> None:
    for key in value:
        left = remove_value(json.dumps(value, indent=indent), [key])
        assert left is not None
        assert parse(left).value == {name: one for name, one in value.items() if name != key}


def test_comments_order_and_unknown_keys_stay_when_a_value_changes() -> None:
    assert set_value(WITH_COMMENTS, ["compaction", "reserveTokens"], 5) == WITH_COMMENTS.replace("16384", "5")


def test_a_new_value_is_added_after_the_last_one_and_its_comment_with_its_indentation() -> None:
    after = set_value(WITH_COMMENTS, ["compaction", "enabled"], False)
    assert '{"a": null}],   // ours\n        "enabled": false\n    },' in after
    assert parse(after).value["compaction"]["enabled"] is False


def test_a_value_is_added_after_a_trailing_comma() -> None:
    after = set_value(WITH_COMMENTS, ["retry", "attempts"], 1)
    assert parse(after).value["retry"] == {"attempts": 1}
    assert after.count(",,") == 0


def test_removing_a_value_removes_only_its_line() -> None:
    after = remove_value(WITH_COMMENTS, ["model"])
    assert after is not None
    assert "model" not in after
    assert after.replace("\n", "") in WITH_COMMENTS.replace('\n    "model": "anthropic:x",', "").replace("\n", "")
    assert remove_value(WITH_COMMENTS, ["compaction", "nothing"]) is None


def test_of_a_duplicate_key_the_last_one_counts_and_both_are_removed() -> None:
    text = '{"a": 1, "b": 2, "a": 3}'
    assert parse(set_value(text, ["a"], 9)).value == {"a": 9, "b": 2}
    left = remove_value(text, ["a"])
    assert left is not None
    assert parse(left).value == {"b": 2}


def test_an_empty_text_becomes_an_object() -> None:
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
def test_invalid_json_is_rejected_with_its_position(text: str, place: str) -> None:
    with pytest.raises(ValueError, match=place):
        parse_object(text)
