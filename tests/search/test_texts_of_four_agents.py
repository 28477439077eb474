"""A word anywhere in a session of Codex, OpenCode, Gemini CLI or Qwen Code is found, with its kind and branch."""

from __future__ import annotations

from pathlib import Path

import pytest

from sessiontree.library import Library
from sessiontree.search import Hit
from tests.library.world import World
from tests.search.four_agents import BUILDERS, CHILD, THREAD, WORDS


@pytest.fixture(scope="module", params=BUILDERS)
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, World]:
    made = World(tmp_path_factory.mktemp(request.param))
    BUILDERS[request.param](made)
    return request.param, made


def hits_of(library: Library, word: str) -> Hit:
    hits = list(library.search(word, refresh="all"))
    assert len(hits) == 1, (word, [(hit.kind, hit.entry) for hit in hits])
    return hits[0]


def test_twenty_of_twenty_words_are_found_once_with_kind_and_branch(world: tuple[str, World]) -> None:
    agent, made = world
    with made.library() as library:
        found = {word: hits_of(library, word) for word in WORDS}
    assert {word: (hit.kind, hit.branch) for word, hit in found.items()} == WORDS
    assert len(found) == 20
    assert {hit.session.agent for hit in found.values()} == {agent}
    kinds = {word: hit.session.kind for word, hit in found.items()}
    assert [word for word, kind in kinds.items() if kind == "subagent"] == ["needlesub", "needlesubanswer"]


def test_hits_on_turns_that_were_taken_back_are_marked_and_filtered(world: tuple[str, World]) -> None:
    with world[1].library() as library:
        for word in ("needledead", "needledeadprompt"):
            assert len(list(library.search(f"{word} is:abandoned", refresh="all"))) == 1
            assert not list(library.search(f"{word} -is:abandoned"))
            assert not list(library.search(f"{word} branch:active"))
        for word in ("needleanswer", "needletitle"):
            assert not list(library.search(f"{word} is:abandoned"))
            assert len(list(library.search(f"{word} branch:active"))) == 1


def test_without_an_index_every_word_is_found_too(world: tuple[str, World], tmp_path: Path) -> None:
    elsewhere = {**world[1].environment, "SESSIONTREE_CACHE": str(tmp_path)}
    with Library(environment=elsewhere) as library:
        for word in WORDS:
            query = {"NADELOHR": "nädelöhr", "half": "getNeedleHalf"}.get(word, word)
            results = library.search(query, refresh="none")
            assert len(list(results)) == 1, word
            assert results.state == "scan"


@pytest.fixture
def renamed(tmp_path: Path) -> World:
    made = World(tmp_path)
    BUILDERS["codex"](made)
    names = [{"id": THREAD, "thread_name": "first"}, {"id": THREAD, "thread_name": "quarterly pelican " + "x" * 200}]
    made.put(".codex/session_index.jsonl", [*names, {"id": CHILD, "thread_name": "child pelican"}])
    return made


def test_a_thread_is_found_by_the_last_name_that_codex_keeps_in_another_file(renamed: World) -> None:
    with renamed.library() as library:
        assert library.find("quarterly pelican").id == THREAD
        assert hits_of(library, "quarterly pelican").session.id == THREAD
        assert hits_of(library, "x" * 200).session.id == THREAD
        assert not list(library.search("first"))
        assert hits_of(library, "pelican in:title agent:codex -child").session.id == THREAD
        assert not list(library.search("pelican in:prompt"))


def test_other_hits_of_a_thread_stay_and_pages_never_overlap(renamed: World) -> None:
    with renamed.library() as library:
        query = "pelican OR needleanswer OR needlesub"
        whole = [(hit.session.id, hit.kind) for hit in library.search(query, refresh="all")]
        pages = [hit for at in range(4) for hit in library.search(query, limit=1, offset=at)]
    assert len(whole) == 4
    assert [(hit.session.id, hit.kind) for hit in pages] == whole
