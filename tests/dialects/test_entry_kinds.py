"""What entries are in a conversation, told without decoding them: the same as after decoding."""

from __future__ import annotations

from pathlib import Path

import pytest

from sessiontree.core.entries import MessageEntry
from sessiontree.core.messages import message_blocks
from sessiontree.dialects.defaults import message_kind
from sessiontree.errors import SessionTreeError
from sessiontree.session.open import open as open_path

CORPUS = sorted((Path(__file__).parents[1] / "corpus").rglob("*.jsonl"))


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_kinds_are_those_of_the_decoded_entries(path: Path) -> None:
    try:
        session = open_path(path)
    except SessionTreeError:
        return  # not a session: other tests are about that
    kinds = session.dialect.entry_kinds(session.journal)
    assert len(kinds) == len(session)
    raw = session.journal.iter_raw(range(len(session)))
    for kind, entry, line in zip(kinds, session, raw, strict=True):
        if b'"isCompactSummary":true' in line.replace(b": ", b":"):
            assert kind == "summary"  # a user message, but not one that the user wrote
        elif isinstance(entry, MessageEntry) and not entry.more_messages and message_blocks(entry.message):
            assert kind == message_kind(entry.message)
