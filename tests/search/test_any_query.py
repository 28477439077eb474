"""Any text is a query: it may find nothing, but is never an error."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st

from sessiontree.library import Library
from sessiontree.search import Results
from tests.builders import examples
from tests.library.world import IDS, World
from tests.search.builders import MIXED, claude_session, shape_session

PIECES = [
    *('"', "'", "*", "(", ")", "-", ":", "^", "{", "}", "+", ",", ".", "\\", "\0", "\x02", "\x02k", "\ud800"),
    *("OR", "AND", "NOT", "NEAR", "NEAR(a b, 2)", "text:a", "terms", "rowid", "tool:", "re:/(/", "re:/a/", "file:a/b"),
    *(
        "is:error",
        "branch:active",
        "in:title",
        "since:1d",
        "role:user",
        "model:x*",
        "project:/",
        "析",
        "🌿",
        "needle",
        " ",
    ),
]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Library]:
    world = World(tmp_path_factory.mktemp("queries"))
    claude_session(world)
    shape_session(world, "omp")
    with world.library() as opened:
        opened.search("needle", refresh="all")
        yield opened


@examples(300, HealthCheck.function_scoped_fixture)
@given(st.one_of(st.text(max_size=40), st.lists(st.sampled_from(PIECES), max_size=8).map(" ".join)))
@example('"')
@example('a" OR "b')
@example("a* *")
@example("NOT NOT")
@example("-" * 50)
@example("x" * 5000)
def test_any_text_gives_results_and_no_error(library: Library, text: str) -> None:
    results = library.search(text)
    assert isinstance(results, Results)
    assert results.state == "index"
    assert not any("the index cannot be" in note for note in results.notes)
    list(results)


def test_a_query_that_was_not_read_as_typed_has_notes(library: Library) -> None:
    assert library.search("re:/(/").notes


def test_pages_follow_each_other_without_gaps(tmp_path: Path) -> None:
    world = World(tmp_path)
    for number in range(30):
        world.claude(IDS[number], "/work", [f"shared word number{number}"], minute=number)
    with world.library() as library:
        whole = [hit.session.id for hit in library.search("shared word", limit=100)]
        pages, offset = [], 0
        while offset is not None:
            results = library.search("shared word", limit=7, offset=offset)
            pages += [hit.session.id for hit in results]
            offset = results.next_offset
    assert len(whole) == 30
    assert pages == whole
    assert whole == sorted(whole, reverse=True), "equal matches are sorted by recency"


def test_python_callers_narrow_by_agent_project_and_time(tmp_path: Path) -> None:
    world = World(tmp_path)
    work, play = tmp_path / "work", tmp_path / "play"
    work.mkdir()
    play.mkdir()
    world.claude(IDS[0], work, ["shared one"], minute=0)
    world.pi(IDS[1], play, ["shared two"], minute=30)
    with world.library() as library:
        assert {hit.session.agent for hit in library.search("shared", agent="pi")} == {"pi"}
        assert {hit.session.id for hit in library.search("shared", project=work)} == {IDS[0]}
        assert {hit.session.id for hit in library.search("shared", since=1_771_237_500_000)} == {IDS[1]}
        assert {hit.session.id for hit in library.search("shared project:play")} == {IDS[1]}


def test_a_snippet_is_one_line_around_the_hit(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.claude(IDS[0], "/work", ["first line\n\x1b[31m" + "filler " * 200 + "\ntarget\tword\n" + "rest " * 200])
    with world.library() as library:
        (hit,) = library.search('"target word"')
    shown = "".join(part.text for part in hit.snippet)
    assert [part.text for part in hit.snippet if part.is_hit] == ["target word"]
    assert shown.startswith("…")
    assert shown.endswith("…")
    assert len(shown) <= 170
    assert "\n" not in shown
    assert "\x1b" not in shown
    assert MIXED not in shown
