"""A word anywhere in a session of any agent is found, at the right entry."""

from __future__ import annotations

from pathlib import Path

import pytest

import sessiontree
from sessiontree.library.roots import parse_roots
from sessiontree.search import Hit, Index
from tests.library.world import World
from tests.search.builders import NEEDLES, QUERIES, SESSIONS, WITHOUT

KINDS = {
    "first prompt": "prompt",
    "answer": "answer",
    "thinking": "thinking",
    "tool input": "input",
    "tool output": "output",
    "summary": "summary",
    "title": "title",
    "sub-agent": "prompt",
}
TABLE = [(dialect, place) for dialect in SESSIONS for place in NEEDLES if (dialect, place) not in WITHOUT]


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, World]:
    made = {}
    for dialect, build in SESSIONS.items():
        made[dialect] = World(tmp_path_factory.mktemp(dialect))
        build(made[dialect])
    return made


def found(world: World, query: str, **arguments: object) -> list[Hit]:
    with world.library() as library:
        return list(library.search(query, **arguments))


@pytest.mark.parametrize(("dialect", "place"), TABLE)
def test_the_index_finds_a_word_in_every_kind_of_text(worlds: dict[str, World], dialect: str, place: str) -> None:
    hits = found(worlds[dialect], QUERIES[place], refresh="all")
    assert len(hits) == 1, [(hit.kind, hit.entry) for hit in hits]
    (hit,) = hits
    assert hit.session.agent == dialect
    assert hit.kind == KINDS.get(place, hit.kind)
    shown = "".join(part.text for part in hit.snippet if part.is_hit)
    assert shown.lower() in NEEDLES[place].lower()


@pytest.mark.parametrize(("dialect", "place"), TABLE)
def test_without_an_index_a_scan_finds_the_word_too(
    worlds: dict[str, World], dialect: str, place: str, tmp_path: Path
) -> None:
    world = worlds[dialect]
    elsewhere = {**world.environment, "SESSIONTREE_CACHE": str(tmp_path)}
    from sessiontree.library import Library

    query = NEEDLES[place] if place == "escaped" else QUERIES[place]
    with Library(environment=elsewhere) as library:
        results = library.search(query, refresh="none")
        hits = list(results)
    assert results.state == "scan"
    assert len(hits) == 1


@pytest.mark.parametrize("dialect", SESSIONS)
def test_a_hit_has_its_branch_state(worlds: dict[str, World], dialect: str) -> None:
    states = {place: found(worlds[dialect], QUERIES[place])[0].branch for place in ("dead branch", "answer", "title")}
    assert states == {"dead branch": "abandoned", "answer": "active", "title": "active"}
    assert found(worlds[dialect], "needlebefore")[0].branch == "compacted"
    assert not found(worlds[dialect], "needledead branch:active")
    assert not found(worlds[dialect], "needledead -is:abandoned")
    assert found(worlds[dialect], "needledead is:abandoned")
    assert found(worlds[dialect], "needleanswer branch:active")


@pytest.mark.parametrize("dialect", SESSIONS)
def test_filters_distinguish_texts(worlds: dict[str, World], dialect: str) -> None:
    world = worlds[dialect]
    tool = "bash" if dialect == "claude" else "read"
    assert found(world, f"needleoutput tool:{tool} is:error")
    assert found(world, f"needleinput tool:{tool}")
    assert not found(world, "needleoutput tool:grep")
    assert not found(world, "needleanswer is:error")
    assert found(world, "needleprompt role:user in:prompt")
    assert not found(world, "needleprompt role:assistant")
    assert found(world, f"needleanswer agent:{dialect}")
    assert not found(world, f"needleanswer -agent:{dialect}")
    assert found(world, "needleanswer model:" + ("swift" if dialect == "claude" else "granite"))
    assert not found(world, "needleanswer model:quartz")
    assert found(world, "needleanswer since:2026-02-16T09:00Z before:2026-02-17")
    assert not found(world, "needleanswer before:2026-02-16T09:00Z")
    if dialect != "claude":
        assert found(world, "file:src/needleinput.py")
        assert found(world, "file:needleinput")
        assert not found(world, "file:inp")


def test_text_that_claude_code_stores_twice_is_found_once(worlds: dict[str, World]) -> None:
    assert len(found(worlds["claude"], "needleoutput")) == 1


@pytest.mark.parametrize("word", ["needlequeued", "needleattached"])
def test_attachments_are_found_as_the_model_saw_them(worlds: dict[str, World], word: str) -> None:
    assert len(found(worlds["claude"], word)) == 1


def test_all_words_are_required(worlds: dict[str, World]) -> None:
    world = worlds["pi"]
    assert [hit.entry for hit in found(world, "say needleprompt")] == ["a0000001"]
    assert not found(world, "say -needleprompt")
    assert found(world, '"go on"')
    assert not found(world, '"on go"')
    assert len(found(world, "needleanswer OR needlebefore")) == 2
    assert found(world, "needleansw*")
    assert not found(world, "needleansw")
    assert found(world, "re:/needle[ab]n/")
    assert not found(world, "re:/needle[xy]n/")
    assert found(world, "觀測 OR 観測")
    assert found(world, "GETNEEDLEHALF")
    assert found(world, "needle_half")


def test_words_on_different_lines_of_a_session_find_it_too(worlds: dict[str, World]) -> None:
    hits = found(worlds["pi"], "needleprompt needleanswer")
    assert hits
    assert all(hit.is_partial for hit in hits)


def test_a_hit_has_the_command_that_shows_it(worlds: dict[str, World]) -> None:
    (hit,) = found(worlds["pi"], "needledead")
    assert hit.command == ("sessiontree", "show", hit.session.path, "--leaf", "a0000002")


def test_titles_given_by_different_lines_are_all_found(worlds: dict[str, World]) -> None:
    assert found(worlds["neovate"], "old name")[0].kind == "title"


def test_nothing_is_written_to_a_session(worlds: dict[str, World]) -> None:
    world = worlds["omp"]
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in world.home.rglob("*.jsonl")}
    with world.library() as library, Index(world.environment) as index:
        index.update(library.everything())
        list(library.search("needle*"))
    assert before == {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in world.home.rglob("*.jsonl")}


def test_a_title_is_on_no_branch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sessiontree.library import Library

    monkeypatch.setenv("SESSIONTREE_CACHE", str(tmp_path / "cache"))
    with sessiontree.create(tmp_path, home=tmp_path / "home") as session:
        first = session.append("user", "hello")
        session.rename("about otters")
        session.append("assistant", [{"type": "text", "text": "Hello."}])
        session.move(first.id)
        session.append("assistant", [{"type": "text", "text": "Hi."}])
    path = tmp_path / "pi" / "--x--" / "copy.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"".join(sessiontree.convert(sessiontree.open(session.location), "pi", branch="all").lines))
    with Library(tmp_path / "home", parse_roots([f"pi={tmp_path / 'pi'}"])) as library:
        hits = [hit for hit in library.search("otters") if hit.session.agent == "pi"]
        assert {hit.branch for hit in hits} == {"active"}
