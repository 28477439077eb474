"""Semantic search: with an embedder of known meanings, and with the real model if it is installed."""

from __future__ import annotations

import importlib.util
import os
import random
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from sessiontree.search import Hit, Part
from sessiontree.search.embedder import Embedder, WordLlamaEmbedder, find_embedder, signs, similarity
from sessiontree.search.semantic import fuse_rankings, search_by_meaning
from sessiontree.search.vector_db import Vectors
from tests.library.world import IDS, World, append, pi_lines
from tests.search.builders import SESSIONS

ALIKE = [
    {"login", "sign", "in", "password", "credentials", "authentication"},
    {"slow", "fast", "speed", "performance", "latency", "takes", "long"},
    {"bread", "flour", "bake", "oven", "rye"},
]
IS_INSTALLED = importlib.util.find_spec("wordllama") is not None


class Meanings:
    """Words of one set mean the same; any other word only itself. Vectors are random but fixed."""

    least = 0.3

    def __init__(self, name: str = "meanings-1") -> None:
        self.name = name
        self.texts: list[str] = []

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        self.texts += texts
        return [self._of(text) for text in texts]

    def _of(self, text: str) -> list[float]:
        total = [0.0] * 128
        for word in text.lower().split():
            meaning = next((str(at) for at, words in enumerate(ALIKE) if word in words), word)
            source = random.Random(f"{self.name}{meaning}")
            total = [one + source.gauss(0, 1) for one in total]
        return total


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.pi(IDS[1], "/work/site", ["users cannot sign in with valid credentials"])
    world.pi(IDS[2], "/work/kitchen", ["bake rye bread"])
    world.pi(IDS[3], "/work/site", ["the password field"])
    return world


def ids(world: World, query: str, embedder: Embedder, **arguments: object) -> list[str]:
    with world.library() as library:
        found = search_by_meaning(library, query, embedder=embedder, **arguments)  # type: ignore[arg-type]
        return list(dict.fromkeys(hit.session.id for hit in found))


def test_the_same_meaning_in_other_words_is_found(world: World) -> None:
    found = ids(world, "authentication login", Meanings())
    assert set(found) == {IDS[1], IDS[3]}
    with world.library() as library:
        assert list(library.search("authentication login")) == []
        (hit, *_) = search_by_meaning(library, "authentication", embedder=Meanings())
    assert (hit.kind, hit.branch) == ("prompt", "active")
    assert not any(part.is_hit for part in hit.snippet)
    assert hit.command[:2] == ("sessiontree", "show")


def test_sessions_found_by_words_and_meaning_come_first(world: World) -> None:
    assert ids(world, "password", Meanings())[0] == IDS[3]
    assert ids(world, "credentials", Meanings())[0] == IDS[1]


def test_filters_and_negated_words_apply_to_semantic_hits(world: World) -> None:
    assert ids(world, "login -password", Meanings()) == [IDS[1]]
    assert ids(world, "login agent:claude", Meanings()) == []
    assert ids(world, "login project:kitchen", Meanings()) == []
    assert ids(world, "login since:2026-02-17", Meanings()) == []
    assert ids(world, "login role:assistant", Meanings()) != []
    assert ids(world, "login in:title", Meanings()) == []
    with world.library() as library:
        only = search_by_meaning(library, "role:user", embedder=Meanings())
    assert len(list(only)) == 3
    assert any("no words to compare" in note for note in only.notes)


@pytest.mark.parametrize("dialect", SESSIONS)
def test_semantic_hits_have_a_branch_state(dialect: str, tmp_path: Path) -> None:
    world = World(tmp_path)
    SESSIONS[dialect](world)
    with world.library() as library:
        (hit,) = search_by_meaning(library, "needledead", embedder=Meanings())
        assert hit.branch == "abandoned"
        assert list(search_by_meaning(library, "needledead branch:active", embedder=Meanings())) == []
        assert [one.branch for one in search_by_meaning(library, "needledead is:abandoned", embedder=Meanings())] == [
            "abandoned"
        ]


def test_pages_by_meaning_follow_each_other(tmp_path: Path) -> None:
    world = World(tmp_path)
    for number in range(15):
        world.pi(IDS[number], "/work", [f"login {number}"])
    whole = ids(world, "password role:user", Meanings(), limit=50)
    assert sorted(whole) == IDS[:15]
    paged: list[str] = []
    offset: int | None = 0
    with world.library() as library:
        while offset is not None:
            page = search_by_meaning(library, "password role:user", embedder=Meanings(), limit=4, offset=offset)
            paged += [hit.session.id for hit in page]
            offset = page.next_offset
    assert paged == whole


def embedded(world: World) -> list[str]:
    """The texts that an update embeds."""
    model = Meanings()
    with world.library() as library, Vectors(library.environment, model) as vectors:
        vectors.update(library.everything())
    return model.texts


def test_of_a_file_that_grew_only_new_lines_are_embedded(world: World) -> None:
    assert "bake rye bread" in embedded(world)
    assert embedded(world) == []
    path = next(world.home.rglob(f"*{IDS[2]}.jsonl"))
    added = pi_lines(IDS[2], "/work/kitchen", ["one", "the oven is slow"])[3]
    append(path, [{**added, "id": "newentry", "parentId": "a0000000"}])
    assert embedded(world) == ["the oven is slow"]
    assert ids(world, "performance", Meanings()) == [IDS[2]]


def test_a_file_that_was_replaced_or_is_gone_leaves_no_hits(world: World) -> None:
    assert IDS[2] in ids(world, "flour", Meanings())
    path = next(world.home.rglob(f"*{IDS[2]}.jsonl"))
    world.pi(IDS[2], "/work/kitchen", ["another thing entirely"])
    os.utime(path, ns=(1, 10**18))
    assert ids(world, "flour", Meanings()) == []
    os.unlink(path)
    with world.library() as library, Vectors(library.environment, Meanings()) as vectors:
        vectors.update(library.everything())
        rows = sqlite3.connect(vectors.path).execute("SELECT path FROM passages").fetchall()
    assert str(path) not in {row for (row,) in rows}
    assert len(rows) == 2


def test_vectors_of_another_model_and_damaged_files_are_rebuilt(world: World) -> None:
    assert IDS[2] in ids(world, "flour", Meanings())
    other = Meanings("meanings-2")
    assert IDS[2] in ids(world, "flour", other)
    assert "bake rye bread" in other.texts
    path = Path(world.environment["SESSIONTREE_CACHE"]) / "meaning.sqlite"
    assert path.stat().st_mode & 0o077 == 0
    path.write_bytes(b"no database" * 1000)
    assert IDS[2] in ids(world, "flour", other)


def test_without_refresh_only_indexed_text_is_found(world: World) -> None:
    assert ids(world, "authentication", Meanings(), refresh="none") == []
    ids(world, "authentication", Meanings())
    assert set(ids(world, "authentication", Meanings(), refresh="none")) == {IDS[1], IDS[3]}


def hit_of(world: World, id: str, offset: int, score: float) -> Hit:
    with world.library() as library:
        one = library.find(id)
    return Hit(one, "e", offset, "prompt", "user", "", "", None, False, "active", (Part("x"),), score, ("sessiontree",))


def test_fusion_ranks_sessions_of_both_rankings_first(world: World) -> None:
    one, two, three = (hit_of(world, id, 7, 9.0) for id in IDS[1:4])
    assert [hit.session.id for hit in fuse_rankings([one, two], [three, two], 3)] == [IDS[2], IDS[1], IDS[3]]
    same = msgspec.structs.replace(one, score=0.1)
    assert len(fuse_rankings([one], [same], 3)) == 1, "the same line is one hit"
    elsewhere = [msgspec.structs.replace(one, offset=number) for number in range(9)]
    assert len(fuse_rankings(elsewhere, [], 3)) == 3
    (score,) = {hit.score for hit in fuse_rankings([one], [one], 3)}
    assert score == pytest.approx(2 / 61, abs=1e-6)


def test_more_distant_vectors_differ_in_more_signs() -> None:
    source = random.Random(1)
    vector = [source.gauss(0, 1) for _ in range(256)]
    near = [one + source.gauss(0, 0.3) for one in vector]
    far = [source.gauss(0, 1) for _ in range(256)]
    assert (signs(vector) ^ signs(near)).bit_count() < 60 < 100 < (signs(vector) ^ signs(far)).bit_count()
    assert similarity(vector, vector) == pytest.approx(1)
    assert similarity(vector, near) > 0.8 > abs(similarity(vector, far)) + 0.5
    assert similarity(vector, [0.0] * 256) == 0


def command(world: World, *arguments: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sessiontree", "search", "--semantic", *arguments],
        env={**world.environment, **({"PYTHONPATH": str(path)} if path else {})},
        cwd=world.home,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_package_can_provide_its_own_embedder(world: World, tmp_path: Path) -> None:
    folder = tmp_path / "installed"
    (folder / "acme-1.0.dist-info").mkdir(parents=True)
    (folder / "acme-1.0.dist-info" / "entry_points.txt").write_text("[sessiontree.embedders]\nacme = acme:EMBEDDER\n")
    root = Path(__file__).parents[2]
    source = ["import sys", f"sys.path.append({str(root)!r})", "from tests.search.test_semantic import Meanings as Own"]
    (folder / "acme.py").write_text("\n".join([*source, "EMBEDDER = Own()"]))
    done = command(world, "authentication", path=folder)
    assert done.returncode == 0, done.stderr
    assert "users cannot sign in" in done.stdout


def test_wordllama_is_used_if_installed_and_otherwise_an_install_hint_is_shown(world: World) -> None:
    """Checks whichever case applies: the model is installed or it is not."""
    done = command(world, "authentication is broken")
    if not IS_INSTALLED:
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == (
            "sessiontree: semantic search needs another package: pip install 'sessiontree[semantic]'\n"
        )
        return
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "users cannot sign in" in done.stdout
    assert "bread" not in done.stdout
    model = find_embedder()
    assert isinstance(model, WordLlamaEmbedder)
    (query, near, far) = model.embed(["authentication is broken", "users cannot sign in", "bake rye bread"])
    assert similarity(query, near) > model.least > similarity(query, far)
    assert all(number == number for number in model.embed([""])[0]), "an empty text has a valid vector"
