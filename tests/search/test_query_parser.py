"""The query language: the meaning of queries. Every string is a valid query."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from sessiontree.search.query import (
    And,
    Choice,
    Expression,
    Filters,
    Not,
    Or,
    Phrase,
    Query,
    Regex,
    Word,
    compile_regex,
    terms,
    to_text,
)
from sessiontree.search.query_parser import MAX_DEPTH, MAX_TERMS, parse

NOW = datetime(2026, 11, 5, 12, 30, tzinfo=UTC)


def milliseconds(*parts: int) -> int:
    return round(1000 * datetime(*parts, tzinfo=UTC).timestamp())  # type: ignore[arg-type]


def words(*texts: str) -> Expression:
    return And(tuple(Word(text) for text in texts)) if len(texts) > 1 else Word(texts[0])


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("", None),
        ("  \t\u3000", None),
        ("parser", Word("parser")),
        ("Parser ÉTÉ", words("Parser", "ÉTÉ")),
        ("潮位\u3000計算", words("潮位", "計算")),
        ('"build the index"', Phrase("build the index")),
        ("“smart quotes” x", And((Phrase("smart quotes"), Word("x")))),
        ('“a "b" c”', Phrase('a "b" c')),
        ('"one"two', And((Phrase("one"), Word("two")))),
        ('print("x y")', words('print("x', 'y")')),
        ("-draft", Not(Word("draft"))),
        ("NOT draft", Not(Word("draft"))),
        ("NOT -draft", Word("draft")),
        ("NOT NOT draft", Word("draft")),
        ('-"two words"', Not(Phrase("two words"))),
        ("-(a b)", Not(words("a", "b"))),
        ("-(-a)", Word("a")),
        ("--json", Word("--json")),
        ("NOT --json", Not(Word("--json"))),
        ("-> int", words("->", "int")),
        ("pars*", Word("pars", prefix=True)),
        ("-pars*", Not(Word("pars", prefix=True))),
        ("**bold**", Word("**bold", prefix=True)),
        ("a*b", Word("a*b")),
        ("a OR b", Or((Word("a"), Word("b")))),
        ("a | b", Or((Word("a"), Word("b")))),
        ("a|b", Word("a|b")),
        ("a or b", words("a", "or", "b")),
        ("a AND b", words("a", "b")),
        ("a OR b OR c", Or((Word("a"), Word("b"), Word("c")))),
        ("parser error OR warning", And((Word("parser"), Or((Word("error"), Word("warning")))))),
        ("a (b c) OR d", And((Word("a"), Or((words("b", "c"), Word("d")))))),
        ("a (b c)", words("a", "b", "c")),
        ("(a OR b) OR (c OR d)", Or((Word("a"), Word("b"), Word("c"), Word("d")))),
        ("a OR -b", Or((Word("a"), Not(Word("b"))))),
        ("f(x) main()", words("f(x)", "main()")),
        ("(f(x) y)", words("f(x)", "y")),
        ("(a OR f(x))", Or((Word("a"), Word("f(x)")))),
        ("re:/a.*b/", Regex("a.*b")),
        ("re:/a b/i c", And((Regex("a b", "i"), Word("c")))),
        (r"re:/a\/b\d/si", Regex(r"a/b\d", "is")),
        ("-re:/x/", Not(Regex("x"))),
        ("(re:/x/)", Regex("x")),
        ("http://x.org/a:b", Word("http://x.org/a:b")),
        ("std::vector", Word("std::vector")),
        (r"C:\x", Word(r"C:\x")),
        ("foo:bar", Word("foo:bar")),
        ("12:30", Word("12:30")),
        ("🌊 é:x", words("🌊", "é:x")),
    ],
)
def test_expressions(text: str, where: Expression | None) -> None:
    query = parse(text, now=NOW)
    assert query == Query(where)  # not filters, and nothing to note


@pytest.mark.parametrize(
    ("text", "filters"),
    [
        ("role:user", Filters(role=Choice(("user",)))),
        ("Role:User", Filters(role=Choice(("user",)))),
        ("tool:bash tool:Edit", Filters(tool=Choice(("bash", "Edit")))),
        ("tool:bash OR tool:Edit", Filters(tool=Choice(("bash", "Edit")))),
        ("tool:bash tool:bash", Filters(tool=Choice(("bash",)))),
        ("file:src/x.py", Filters(file=Choice(("src/x.py",)))),
        ("file:a(1).py", Filters(file=Choice(("a(1).py",)))),
        (r"file:C:\x", Filters(file=Choice((r"C:\x",)))),
        ("agent:claude -agent:pi", Filters(agent=Choice(("claude",), ("pi",)))),
        ("NOT agent:pi", Filters(agent=Choice((), ("pi",)))),
        ('project:"my project"', Filters(project=Choice(("my project",)))),
        ("project:“my project”", Filters(project=Choice(("my project",)))),
        ('-project:"my project"', Filters(project=Choice((), ("my project",)))),
        ("model:swift-4", Filters(model=Choice(("swift-4",)))),
        ("in:thinking -in:output", Filters(kinds=Choice(("thinking",), ("output",)))),
        ("is:error", Filters(error=True)),
        ("-is:error is:abandoned", Filters(error=False, abandoned=True)),
        ("branch:active", Filters(branch="active")),
        ("branch:active branch:all", Filters()),
        ("(role:user)", Filters(role=Choice(("user",)))),
        ("since:7d", Filters(since=milliseconds(2026, 10, 29, 12, 30))),
        ("since:2w", Filters(since=milliseconds(2026, 10, 22, 12, 30))),
        ("since:3mo", Filters(since=milliseconds(2026, 8, 7, 12, 30))),
        ("since:1y", Filters(since=milliseconds(2025, 11, 5, 12, 30))),
        ("since:90m before:1h", Filters(since=milliseconds(2026, 11, 5, 11), before=milliseconds(2026, 11, 5, 11, 30))),
        ("since:999999y", Filters(since=0)),
        ("since:today", Filters(since=milliseconds(2026, 11, 5))),
        ("before:Yesterday", Filters(before=milliseconds(2026, 11, 4))),
        ("since:2026", Filters(since=milliseconds(2026, 1, 1))),
        ("since:2026-03", Filters(since=milliseconds(2026, 3, 1))),
        ("since:2026-03-09", Filters(since=milliseconds(2026, 3, 9))),
        ("since:2026-03-09T10:20:30+02:00", Filters(since=milliseconds(2026, 3, 9, 8, 20, 30))),
        ('since:"2026-03-09 10:20"', Filters(since=milliseconds(2026, 3, 9, 10, 20))),
        ("-since:2026-03-09", Filters(before=milliseconds(2026, 3, 9))),
        ("-before:2026-03-09", Filters(since=milliseconds(2026, 3, 9))),
    ],
)
def test_filters(text: str, filters: Filters) -> None:
    assert parse(text, now=NOW) == Query(None, filters)


def test_filters_may_be_anywhere_among_words() -> None:
    query = parse("parser role:user -draft agent:pi OR agent:omp", now=NOW)
    assert query.where == And((Word("parser"), Not(Word("draft"))))
    assert query.filters == Filters(role=Choice(("user",)), agent=Choice(("pi", "omp")))
    assert not query.notes


@pytest.mark.parametrize(
    ("text", "where", "note"),
    [
        ('"not closed', Phrase("not closed"), "unclosed quote of a phrase"),
        ("re:/not closed", Regex("not closed"), "unclosed pattern"),
        ("re:/a(/", Regex(r"a\("), "searched for literally"),
        ("re:/a/gi", Regex("a", "i"), "unknown flags 'g'"),
        ("re:abc", Word("re:abc"), "between slashes"),
        ("re://", None, "empty pattern"),
        ('""', None, "empty phrase"),
        ("a *", Word("a"), "alone is not a search term"),
        ("a - b", words("a", "b"), "alone is not a search term"),
        ("OR a", Word("a"), "OR has no left side"),
        ("a OR", Word("a"), "OR has no right side"),
        ("a OR OR b", Or((Word("a"), Word("b"))), "OR has no left side"),
        ("a NOT", Word("a"), "NOT has no right side"),
        ("(a b", words("a", "b"), "unclosed parenthesis"),
        ("a ) b", words("a", "b"), "unmatched closing parenthesis"),
        ("a ()", Word("a"), "empty parentheses"),
        ("a OR role:user", Word("a"), "OR cannot join a filter"),
        ("role:user OR a", Word("a"), "OR cannot join a filter"),
        ("role:user OR tool:x", None, "OR cannot join a filter"),
        ("-(a role:user)", Not(Word("a")), "applies to the whole query"),
        ("since:banana", Word("since:banana"), "since: expects an age"),
        ("since:2026-02-31", Word("since:2026-02-31"), "since: expects an age"),
        ("is:nice", Word("is:nice"), "is: expects one of error, abandoned, pinned"),
        ("in:body", Word("in:body"), "in: expects one of prompt"),
        ("branch:main", Word("branch:main"), "branch: expects all or active"),
        ("-branch:active", Not(Word("branch:active")), "is:abandoned"),
        ("role: user", words("role:", "user"), "role: has no value"),
        ('role:""', Word('role:""'), "role: has no value"),
        ('is:"x y', words("is:", "x", "y"), "is: expects"),
        ("rolle:user", Word("rolle:user"), "did you mean role:?"),
        ("sinse:7d", Word("sinse:7d"), "did you mean since:?"),
        ("after:7d", Word("after:7d"), "did you mean since:?"),
        ("tools:bash", Word("tools:bash"), "did you mean tool:?"),
        ("-OR", Not(Phrase("OR")), ""),
    ],
)
def test_text_that_is_not_read_as_typed_is_noted(text: str, where: Expression | None, note: str) -> None:
    query = parse(text, now=NOW)
    assert query.where == where
    assert len(query.notes) == bool(note)
    assert note in "".join(query.notes)
    assert all(found.startswith("at character ") for found in query.notes)


def test_a_note_names_the_position() -> None:
    assert parse("one two since:banana").notes[0].startswith("at character 9: since: expects an age")


def test_a_page_pasted_by_mistake_is_truncated() -> None:
    query = parse("word " * 5000)
    assert isinstance(query.where, And)
    assert len(query.where.parts) == MAX_TERMS
    assert len(query.notes) == 1


def test_unclosed_parentheses_do_not_nest_without_limit() -> None:
    query = parse("(" * 100_000 + "a" + ")" * 100_000)
    assert query.where == Word("a")
    assert f"more than {MAX_DEPTH}" in query.notes[0]
    nested = parse("-(a " * 200 + "b" + ")" * 200)
    assert parse(to_text(nested)).where == nested.where


def test_dates_are_in_the_time_zone_of_now() -> None:
    east = timezone(timedelta(hours=9))
    query = parse("since:2026-03-09 before:today", now=datetime(2026, 11, 5, 1, tzinfo=east))
    assert query.filters.since == milliseconds(2026, 3, 8, 15)
    assert query.filters.before == milliseconds(2026, 11, 4, 15)


def test_without_now_ages_count_from_this_moment() -> None:
    since = parse("since:1h").filters.since
    assert since is not None
    assert abs(since / 1000 + 3600 - datetime.now(UTC).timestamp()) < 60
    today = parse("since:today").filters.since
    assert today is not None
    local = datetime.fromtimestamp(today / 1000)
    assert (local.hour, local.minute) == (0, 0)


def test_terms_lists_only_terms_that_are_not_negated() -> None:
    query = parse('a -b "c d" OR (e* -f) re:/g/')
    assert terms(query.where) == [Word("a"), Phrase("c d"), Word("e", prefix=True), Regex("g")]
    assert terms(None) == []


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("a | b  AND c", "a OR b c"),
        ("(role:user) a -agent:pi", "a role:user -agent:pi"),
        ("NOT (a OR b)", "-(a OR b)"),
        ("a OR (b f(x )", "a OR (b f(x )"),
        ("since:7d is:error", "since:2026-10-29T12:30:00.000Z is:error"),
        ('project:"x"', "project:x"),
        (r"re:/a\/b\\/i", r"re:/a\/b\\/i"),
    ],
)
def test_a_query_has_one_canonical_text(text: str, written: str) -> None:
    assert to_text(parse(text, now=NOW)) == written


_pieces = st.sampled_from(
    [
        *"abé潮🌊-*|()\"“”/\\: \u3000\0.'",
        *(
            " OR ",
            " AND ",
            " NOT ",
            "role:",
            "-file:",
            "since:",
            "before:",
            "is:error",
            "in:title",
            "re:/",
            "/i",
            "\\/",
        ),
        *("7d", "2026", "2026-11-01", "today", "branch:", "active", "user", "project:“", 'tool:"', "--x", "->", "f(x"),
    ]
)
_queries = st.one_of(st.text(max_size=80), st.lists(_pieces, max_size=25).map("".join))


@example('TOOL:"0"PROJECT:“')
@example('-(a project:"')
@example('SINCE:" -')
@given(_queries)
def test_any_text_parses_and_its_canonical_text_parses_to_the_same_query(text: str) -> None:
    query = parse(text, now=NOW)
    again = parse(to_text(query), now=NOW)
    assert replace(again, notes=(), refused=()) == replace(query, notes=(), refused=())
    assert to_text(again) == to_text(query)
    for term in terms(query.where):
        if isinstance(term, Regex):
            compile_regex(term)
        else:
            assert term.text
            term.text.encode()


@given(st.text(st.characters(), max_size=40))
def test_lone_surrogates_are_replaced(text: str) -> None:
    to_text(parse(f"{text}\ud83d")).encode()
