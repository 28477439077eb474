"""A session about something is ranked above those that only mention it."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from sessiontree.library import Library
from sessiontree.search.engine import Refresh
from tests.library.world import IDS, World, append, claude_lines, pi_lines

SESSIONS = 60
_TITLES = (("custom-title", "customTitle"), ("agent-name", "agentName"))


def vocabulary(chance: random.Random, size: int) -> list[str]:
    syllables = [a + b for a in "bcdfghklmnprstvz" for b in "aeiou"]
    words: dict[str, None] = {}
    while len(words) < size:
        words["".join(chance.choices(syllables, k=chance.randint(2, 4)))] = None
    return list(words)


class RankingCorpus:
    """Sessions with known topics: words that only one has, and common words that each is about."""

    def __init__(self, folder: Path) -> None:
        chance = random.Random(3)
        words = vocabulary(chance, 2600)
        common, rare = words[:300], words[300:]
        weights = [1 / (rank + 3) for rank in range(len(common))]
        self.world = World(folder)
        self.rare: list[tuple[str, str]] = []
        self.topics: list[tuple[str, str]] = []
        for number in range(SESSIONS):
            own = rare[number * 30 : number * 30 + 30]
            topic = chance.sample(common[20:], 3)
            prompts = []
            for turn in range(12):
                words_of_prompt = chance.choices(common, weights, k=chance.randint(40, 160))
                if turn % 2 == 0:
                    words_of_prompt += [*chance.sample(topic, 2)] * 2
                words_of_prompt += chance.sample(own, 4)
                chance.shuffle(words_of_prompt)
                prompts.append(" ".join(words_of_prompt))
            lines = (claude_lines if number % 2 else pi_lines)(IDS[number], "/work", prompts, minute=number)
            folder_of = ".claude/projects/-work" if number % 2 else ".pi/agent/sessions/--work--"
            name = f"{IDS[number]}.jsonl" if number % 2 else f"2026-02-16T10-00-00-000Z_{IDS[number]}.jsonl"
            self.world.put(f"{folder_of}/{name}", lines)
            used = " ".join(prompts).split()
            mine = [word for word in own if word in used]
            self.rare += [(IDS[number], " ".join(chance.sample(mine, 2))) for _ in range(4)]
            self.topics += [(IDS[number], " ".join(topic[:2])), (IDS[number], " ".join(topic[1:]))]


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> RankingCorpus:
    made = RankingCorpus(tmp_path_factory.mktemp("ranking"))
    with made.world.library() as library:
        library.search("x", refresh="all")
    return made


def share_in_first_three(library: Library, asked: list[tuple[str, str]]) -> float:
    right = 0
    for id, query in asked:
        first = list(dict.fromkeys(hit.session.id for hit in library.search(query)))[:3]
        right += id in first
    return right / len(asked)


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_sessions_are_among_the_first_three_for_their_words(known: RankingCorpus, step: int) -> None:
    with known.world.library() as library:
        assert share_in_first_three(library, known.rare[::step]) >= 0.95
        assert share_in_first_three(library, known.topics[::step]) >= 0.80


def test_a_title_counts_more_than_the_output_of_a_tool(tmp_path: Path) -> None:
    world = World(tmp_path)
    titled = claude_lines(IDS[0], "/work", ["hello"])
    titled.append({"type": "custom-title", "customTitle": "the harbour survey", "sessionId": IDS[0]})
    world.put(f".claude/projects/-work/{IDS[0]}.jsonl", titled)
    result = {"type": "tool_result", "tool_use_id": "t", "content": "harbour survey " * 50}
    noisy = claude_lines(IDS[1], "/work", ["hello"], minute=30)
    noisy[0]["message"]["content"] = [result]
    world.put(f".claude/projects/-work/{IDS[1]}.jsonl", noisy)
    with world.library() as library:
        assert [hit.session.id for hit in library.search("harbour survey")] == [IDS[0], IDS[1]]


def ranked(world: World, query: str) -> list[str]:
    with world.library() as library:
        return list(dict.fromkeys(hit.session.id for hit in library.search(query)))


def test_whole_words_come_before_parts_of_names(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.pi(IDS[0], "/work", ["please parse it"], minute=0)
    world.pi(IDS[1], "/work", ["please parse_json it"], minute=1)
    assert ranked(world, "parse") == [IDS[0], IDS[1]]


def test_a_recent_session_comes_before_an_old_one_that_is_slightly_better(tmp_path: Path) -> None:
    world = World(tmp_path)
    old = world.pi(IDS[0], "/work", ["fix the parser, the parser"])
    old.write_bytes(old.read_bytes().replace(b"2026-02-16", b"2025-02-16"))
    os.utime(old, (1_739_700_000, 1_739_700_000))
    world.pi(IDS[1], "/work", ["fix the lexer, the parser"])
    assert ranked(world, "parser") == [IDS[1], IDS[0]]


@pytest.mark.parametrize("refresh", ["all", "none"])
def test_a_session_with_many_titles_is_one_hit_for_the_newest_that_matches(refresh: Refresh, tmp_path: Path) -> None:
    world = World(tmp_path)
    path = world.claude(IDS[0], "/work", ["hello", "a zebra"])
    for name in ("zebra one", "zebra two", "tide"):
        append(path, [{"type": kind, key: name, "sessionId": IDS[0]} for kind, key in _TITLES])
    with world.library() as library:
        found = library.search("zebra", refresh=refresh, per_session=5)
        shown = [(hit.kind, "".join(part.text for part in hit.snippet)) for hit in found]
        assert shown == [("title", "zebra two"), ("prompt", "a zebra")]
        assert found.more == {}
        assert library.search("zebra", refresh=refresh, per_session=1).more == {str(path): 1}
