"""Searches find the conversation of a converted session, not our own record of the conversion."""

from __future__ import annotations

import pytest

import sessiontree
from sessiontree import plugins
from sessiontree.search.text_extractor import read_line


@pytest.mark.parametrize("target", plugins.names("dialects"))
def test_the_report_of_a_conversion_is_not_searched(target: str) -> None:
    session = sessiontree.create(cwd="/srv/tides", in_memory=True)
    session.append("user", "Why is the parser slow?")
    session.append("assistant", [{"type": "text", "text": "It reads each line twice."}])
    converted = sessiontree.convert(session, target)
    texts = [text.text for raw in converted.lines for line in read_line(raw, converted.dialect) for text in line.texts]
    assert any("parser slow" in text for text in texts)
    assert not [text for text in texts if session.id in text or "(memory)" in text]
