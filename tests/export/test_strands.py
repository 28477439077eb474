"""Strands: every entry of a session is in exactly one place of an export."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from sessiontree.export.strands import build_outline
from tests.builders import entry, examples, header, message_line, opened

START = header(sessiontree=1)


def lines_of(*messages: tuple[str, str | None]) -> bytes:
    return START + b"".join(message_line(id, parent) for id, parent in messages)


def test_the_active_path_comes_first_and_then_branches_in_the_order_they_start() -> None:
    session = opened(lines_of(("a", None), ("b", "a"), ("c", "b"), ("d", "a"), ("e", "d"), ("f", "b"), ("g", "d")))
    session.move("e")
    outline = build_outline(session)
    assert [strand.nodes for strand in outline.strands] == [[0, 3, 4, 7], [1, 2], [5], [6]], "7 is the move"
    assert [strand.fork for strand in outline.strands] == [None, 0, 1, 3]
    assert [strand.active for strand in outline.strands] == [True, False, False, False]


def test_a_setting_before_a_message_belongs_to_its_branch_and_a_label_follows_its_parent() -> None:
    lines = [message_line("a"), message_line("b", "a"), entry("model_change", "m", "a", provider="p", modelId="x")]
    lines += [message_line("c", "m"), entry("label", "l", "b", targetId="a", label="x"), entry("leaf", "v", "b")]
    outline = build_outline(opened(START + b"".join(lines)))
    assert [strand.nodes for strand in outline.strands] == [[0, 1, 4, 5], [2, 3]]
    assert outline.strands[1].fork == 0


ids = st.sampled_from("abcdefgh")
kinds = st.sampled_from(["message", "message", "label", "model_change"])
lines = st.lists(st.tuples(kinds, ids, st.none() | ids), max_size=16)


@given(lines)
@examples(300)
def test_every_entry_is_in_one_strand_or_outside(fed: list[tuple[str, str, str | None]]) -> None:
    raw = [entry(kind, id, parent, targetId="a", message={"role": "user", "content": "x"}) for kind, id, parent in fed]
    session = opened(START + b"".join(raw))
    outline = build_outline(session)
    found = Counter(node for strand in outline.strands for node in strand.nodes) + Counter(outline.outside)
    assert found == Counter(range(len(session)))
    assert set(outline.outside) == session.shadowed
