"""The terms of a text."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree.core.jsonio import render_json
from sessiontree.dialects.texts import Line, Text
from sessiontree.search.matcher import Matcher, RegexFinder
from sessiontree.search.query import Phrase, Query, Regex, Word
from sessiontree.search.tokenizer import Folded, Terms, units


def terms(text: str) -> set[str]:
    return set(Terms().of(text.encode()).decode().split())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The Änderung größer", {"the", "anderung", "grosser"}),
        ("e\u0301te\u0301 ÉTÉ", {"ete"}),
        ("ＦＵＬＬ ﬁne №5", {"full", "fine", "no", "5"}),
        ("buildSessionContext", {"buildsessioncontext", "build", "session", "context"}),
        ("build_session_context", {"buildsessioncontext", "build", "session", "context"}),
        ("HTTPServer2", {"httpserver2", "http", "server", "server2", "2"}),
        ("__init__", {"init"}),
        ("src/x.py:12", {"src", "x", "py", "12"}),
        ("解析器", {"解析", "析器", "器"}),
        ("解析器test", {"解析", "析器", "器", "test"}),
        ("검색을", {"검색", "색을", "을"}),
        ("が か", {"が", "か"}),
        ("ok🌿👍🏽", {"ok", "🌿", "👍"}),
        ("“quoted”… word—dash", {"quoted", "word", "dash"}),
        ("Привет Мир", {"привет", "мир"}),
        ("10µs", {"10μs"}),
    ],
)
def test_a_text_has_these_terms(text: str, expected: set[str]) -> None:
    assert terms(text) == expected


@given(st.text(max_size=60))
def test_search_units_have_only_terms_of_the_same_text(text: str) -> None:
    found = terms(text.encode("utf-8", "replace").decode())
    for unit in units(text.encode("utf-8", "replace").decode()):
        for term in unit.terms():
            assert any(one.startswith(term[:-1]) for one in found) if term.endswith("*") else term in found


@given(st.text(max_size=80))
def test_spans_of_the_folded_form_map_to_spans_of_the_text(text: str) -> None:
    form = Folded.of(text)
    for start in range(0, len(form.text), 7):
        first, last = form.span(start, min(start + 3, len(form.text)))
        assert 0 <= first < last <= len(text)


def places(term: Word | Phrase | Regex, text: str) -> list[str]:
    line = Line("id", "", "", [Text("prompt", "user", render_json(text))])
    found = Matcher(Query(term), RegexFinder(5)).match(line)
    return [] if found is None else [found.content[start:end] for start, end in found.spans]


@pytest.mark.parametrize(
    ("term", "text", "expected"),
    [
        (Word("session"), "buildSessionContext, obsession, sessions", ["Session"]),
        (Word("session", prefix=True), "buildSessionContext, obsession, sessions", ["Session", "session"]),
        (Phrase("session context"), "buildSessionContext and session, context", ["SessionContext", "session, context"]),
        (Word("build_session"), "buildSession build_session", ["buildSession", "build_session"]),
        (Word("strasse"), "die Straße", ["Straße"]),
        (Word("STRAßE"), "die Straße", ["Straße"]),
        (Word("naive"), "so naïve", ["naïve"]),
        (Word("server2"), "HTTPServer2", ["Server2"]),
        (Word("x.py"), "in src/x.py and x2.py", ["x.py"]),
        (Word("析"), "解析器", ["析"]),
        (Word("->"), "a -> b", ["->"]),
        (Word("\u0301"), "cafe\u0301", []),
        (Regex("l.ck"), "lock LOCK", ["lock"]),
        (Regex("l.ck", "i"), "lock LOCK", ["lock", "LOCK"]),
    ],
)
def test_a_term_matches_at_these_positions(term: Word | Phrase | Regex, text: str, expected: list[str]) -> None:
    assert places(term, text) == expected


def test_a_pattern_that_exceeds_the_time_limit_is_stopped() -> None:
    finder = RegexFinder(0.1)
    assert finder.find(Regex("(?:.*?b){30}c"), "ab" * 5000) == []
    assert finder.timed_out
    assert finder.find(Regex("a"), "a") == []


def test_time_spent_on_all_texts_counts_against_one_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = count()
    monkeypatch.setattr("sessiontree.search.matcher.time.perf_counter", lambda: float(next(ticks)))  # 1 s for each find
    finder = RegexFinder(2.5)
    assert [finder.find(Regex("a"), "a") for _ in range(4)] == [[(0, 1)]] * 3 + [[]]
    assert finder.timed_out
