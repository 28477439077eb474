"""Passthrough data: entries are restored from it, and lines of older versions decode to the same entries as before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree import plugins
from sessiontree.dialects.canonical import CanonicalEntry
from sessiontree.dialects.contract import AS_CLIENT, Dialect
from sessiontree.dialects.passthrough import (
    apply_delta,
    build_passthrough,
    carried_data,
    json_delta,
    restore_entry,
    with_carried_data,
)
from sessiontree.session.journal import Journal
from sessiontree.stores.memory import MemoryStore
from tests.builders import examples

OLDER: dict[str, Any] = json.loads((Path(__file__).parent / "older_passthrough.json").read_text())
"""By dialect: the lines that the version before `blocks` and `text` wrote, and the entries it decoded them to."""

values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(0, 2), st.floats(0, 2), st.sampled_from(["", "a", "b"])),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("abc"), inner, max_size=3)),
    max_leaves=8,
)
blocks = st.one_of(
    st.fixed_dictionaries({"type": st.sampled_from(["text", "toolCall"])}, optional={"text": values, "id": values}),
    values,
)
contents = st.one_of(st.sampled_from(["", "a"]), st.lists(blocks, max_size=4))
messages = st.fixed_dictionaries(
    {"role": st.just("user")}, optional={"content": contents, "usage": values, "more": values}
)
carried = st.sampled_from([None, {}, {"tools": {"agent": "pi"}}, {"pi": 1, "claude": [2]}, {"id": "x"}, "not ours", 0])


@st.composite
def entries(draw: st.DrawFn) -> CanonicalEntry:
    fields: dict[str, Any] = {"message": draw(messages)} if draw(st.booleans()) else {}
    fields |= draw(st.dictionaries(st.sampled_from(["label", "data"]), values, max_size=2))
    passthrough = draw(carried)
    if passthrough is not None:
        fields["sessiontree"] = passthrough
    return CanonicalEntry(draw(st.sampled_from(["message", "custom"])), fields, draw(st.sampled_from(["", "x", "y"])))


def comparable(entry: CanonicalEntry) -> tuple[str, dict[str, Any]]:
    fields = {name: value for name, value in entry.fields.items() if (name, value) != ("sessiontree", {})}
    return entry.kind, fields


@examples(400)
@given(entries(), entries())
def test_an_entry_is_restored_from_any_other_one(entry: CanonicalEntry, decoded: CanonicalEntry) -> None:
    if decoded.fields.get("sessiontree") in ("not ours", 0, {"id": "x"}):  # no decoder returns such entries
        decoded = CanonicalEntry(decoded.kind, {}, decoded.id)
    restored = restore_entry(decoded, json.loads(json.dumps(build_passthrough(entry, decoded))))
    assert comparable(restored) == comparable(entry)
    assert restored.id == (entry.id or decoded.id)


@given(values, values)
def test_a_delta_turns_one_value_into_the_other(old: Any, new: Any) -> None:
    delta = json_delta(old, new)
    assert apply_delta(old, delta) == new
    assert (delta is None) <= (old == new)


def test_nothing_is_stored_for_an_entry_that_decodes_to_itself() -> None:
    entry = CanonicalEntry("message", {"message": {"role": "user", "content": [{"type": "text", "text": "a"}]}}, "x")
    assert build_passthrough(entry, entry) == {}
    assert restore_entry(entry, {}) is entry


def test_content_is_not_stored_twice() -> None:
    def message(content: Any) -> CanonicalEntry:
        return CanonicalEntry("message", {"message": {"role": "assistant", "content": content}}, "x")

    long = "x" * 1000
    text, call = {"type": "text", "text": long}, {"type": "toolCall", "arguments": {"text": long}}
    wanted = message([text, {**call, "signature": "s"}, {"type": "odd"}])
    found = build_passthrough(wanted, message([call, text]), left_out=[2], order=[1, 0])
    assert long not in json.dumps(found)
    assert restore_entry(message([call, text]), found) == wanted
    assert build_passthrough(message(long), message([text])) == {"text": True}
    assert restore_entry(message([text]), {"text": True}) == message(long)


def test_carried_data_is_kept_next_to_the_parts() -> None:
    entry = CanonicalEntry("label", {"label": "a", "sessiontree": {"tools": {"agent": "pi"}, "pi": 1}}, "x")
    found = build_passthrough(entry, CanonicalEntry("label", {"label": "b", "sessiontree": {"claude": 1}}, "y"))
    assert found == {
        "tools": {"agent": "pi"},
        "pi": 1,
        "id": "x",
        "fields": {"label": "a"},
        "without": {"rider": ["claude"]},
    }
    assert carried_data(entry, "pi") == 1
    assert with_carried_data(with_carried_data(entry, "pi", None), "tools", {}).fields == {"label": "a"}


@pytest.mark.parametrize("name", sorted(OLDER))
def test_lines_of_older_versions_decode_to_the_same_entries(name: str) -> None:
    dialect: Dialect = plugins.load("dialects", name)
    data = b"".join(json.dumps(line, ensure_ascii=False).encode() + b"\n" for line in OLDER[name]["lines"])
    journal = Journal(MemoryStore(data), dialect)
    journal.refresh()
    history = dialect.find_history(journal, dialect.find_leaf(journal, AS_CLIENT), AS_CLIENT)
    decoded = [
        [entry.kind, entry.id, entry.timestamp, list(entry.aliases), entry.fields]
        for entry in dialect.decode(journal, history)
    ]
    assert decoded == OLDER[name]["entries"]


@pytest.mark.parametrize("part", [1, "x", None, [], {}, [[1]], [["a", 1]], [[-1, {}]], [[9, {}]], [[0, None]]])
def test_malformed_passthrough_data_raises_no_error(part: Any) -> None:
    entry = CanonicalEntry("message", {"message": {"role": "user", "content": [{"type": "text", "text": "a"}]}}, "x")
    for names in (
        ["id"],
        ["entry"],
        ["fields"],
        ["message"],
        ["without"],
        ["blocks"],
        ["order"],
        ["insert"],
        ["merge"],
    ):
        restored = restore_entry(entry, dict.fromkeys(names, part) | {"replace": part, "text": part})
        assert isinstance(restored, CanonicalEntry)
