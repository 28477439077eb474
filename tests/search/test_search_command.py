"""`sessiontree search` for people and scripts: process, output, real terminal."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from sessiontree.library import Library
from sessiontree.search import Index, Part
from sessiontree.search.snippets import snippet
from sessiontree.views.search_results import draw_snippet
from sessiontree.views.text import columns
from tests.cli.conftest import Ran
from tests.library.world import IDS, World, append, pi_lines
from tests.search.builders import SESSIONS

HOSTILE = "\x1b]0;owned\x07\x1b[31mred\x1b[0m \u202eevil\u2066 needlehostile \x9b2J"


class Place:
    """A world with the command."""

    def __init__(self, folder: Path) -> None:
        self.world = World(folder)
        self.environment = {**self.world.environment, "COLUMNS": "100", "TZ": "UTC", "LANG": "C.UTF-8"}

    def search(self, *arguments: str, cwd: Path | None = None, **environment: str) -> Ran:
        command = [sys.executable, "-m", "sessiontree", "search", *arguments]
        return Ran(
            subprocess.run(
                command,
                env=self.environment | environment,
                cwd=cwd or self.world.home,
                capture_output=True,
                stdin=subprocess.DEVNULL,
                timeout=60,
                check=False,
            )
        )

    def on_terminal(self, *arguments: str, width: int = 80, program: Sequence[str] = (), **environment: str) -> str:
        """Terminal output with all control sequences."""
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
        process = subprocess.Popen(
            [sys.executable, *(program or ["-m", "sessiontree", "search", *arguments])],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={key: value for key, value in self.environment.items() if key != "COLUMNS"}
            | {"TERM": "xterm"}
            | environment,
            start_new_session=True,
        )
        os.close(slave)
        shown = b"".join(_read(master))
        process.wait(timeout=30)
        os.close(master)
        return shown.decode("utf-8", "replace")


def _read(master: int) -> Iterator[bytes]:
    end = time.monotonic() + 40
    while select.select([master], [], [], max(end - time.monotonic(), 0))[0]:
        try:
            data = os.read(master, 65536)
        except OSError:
            return
        if not data:
            return
        yield data


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Sessions of all agents, and one with hostile text."""
    place = Place(tmp_path_factory.mktemp("place"))
    for build in SESSIONS.values():
        build(place.world)
    place.world.pi(IDS[30], "/work/tides", [HOSTILE, "say -x and --json", "最初の潮位の計算は遅い" * 30 + "目的語"])
    return place


@pytest.fixture
def fresh(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_hit_shows_its_session_its_entry_and_marked_words(place: Place) -> None:
    ran = place.search("needleoutput", "--agent", "pi")
    assert ran.code == 0
    assert re.fullmatch(
        r"needletitle  pi · work · \d+\w+ · 0a000001\S*\n"
        r"  1  read result · a0000004 · \d+% · \d+\w+ · before a compaction · failed\n"
        r"     a «needleoutput» b\n",
        ran.out,
    )


@pytest.mark.parametrize("agent", SESSIONS)
def test_a_hit_outside_of_the_context_is_marked(place: Place, agent: str) -> None:
    assert "on an abandoned branch" in place.search("needledead", "--agent", agent).out
    assert "before a compaction" in place.search("needlebefore", "--agent", agent).out
    answer = place.search("needleanswer", "--agent", agent).out
    assert "needleanswer" in answer
    assert "branch" not in answer
    assert "compaction" not in answer


def test_hits_are_grouped_by_session_and_numbered(fresh: Place) -> None:
    fresh.world.pi(IDS[1], "/a", ["tide one", "other", "tide two"])
    fresh.world.pi(IDS[2], "/b", ["tide three"])
    lines = fresh.search("tide").lines
    assert [line.split()[0] for line in lines if re.match(r" +\d+  ", line)] == list("12345")
    assert sum(not line for line in lines) == 1
    assert lines[-1]


def test_json_is_one_object_with_the_paging_state_and_commands_as_lists(place: Place) -> None:
    found = place.search("needledead", "--json").json
    assert found["schemaVersion"] == 1
    assert (found["state"], found["total"], found["offset"], found["nextOffset"]) == ("index", 5, 0, None)
    hit = next(hit for hit in found["hits"] if hit["session"]["agent"] == "pi")
    assert set(hit["session"]) >= {"id", "path", "agent", "title", "project"}
    assert (hit["entry"], hit["kind"], hit["role"], hit["branch"]) == ("a0000002", "answer", "assistant", "abandoned")
    text, ranges = hit["snippet"]["text"], hit["snippet"]["ranges"]
    assert [text[start:end] for start, end in ranges] == ["needledead"]
    assert hit["command"][:2] == ["sessiontree", "show"]
    shown = subprocess.run(
        [sys.executable, "-m", *hit["command"]], env=place.environment, capture_output=True, text=True, check=True
    )
    assert "needledead" in shown.stdout


def test_pages_follow_each_other_without_gaps(place: Place) -> None:
    whole = [hit["score"] for hit in place.search("needledead", "--json").json["hits"]]
    paths: list[str] = []
    offset: int | None = 0
    while offset is not None:
        page = place.search("needledead", "--json", "--limit", "2", "--offset", str(offset)).json
        is_last = page["nextOffset"] is None
        assert page["total"] == (len(whole) if is_last else None)
        assert page["nextOffset"] == (None if is_last else page["offset"] + 2)
        assert len(page["hits"]) == 2 or is_last
        paths += [hit["session"]["path"] for hit in page["hits"]]
        offset = page["nextOffset"]
    assert len(paths) == len(set(paths)) == len(whole)
    more = place.search("needledead", "--limit", "2")
    assert "--offset 2" in more.err
    assert "start over" in place.search("needledead", "--offset", "50").err


def test_words_may_begin_with_a_hyphen_and_unknown_options_are_rejected(place: Place) -> None:
    assert "«needleprompt»" in place.search("needleprompt", "-needlezzz", "--limit", "1").out
    assert place.search("needleprompt", "-say").out == ""
    behind = place.search("--", "--json")
    assert behind.out.count("--«json»") + behind.out.count("«--json»") == 2
    between = place.search("needleprompt", "--limit", "1", "say", "--json").json
    assert between["query"] == "needleprompt say"
    refused = place.search("needleprompt", "--jsn")
    assert refused.code == 2
    assert "--jsn" in refused.err
    assert place.search("--limit=1", "needleprompt").code == 0


def test_neighbors_are_shown_around_a_hit(place: Place) -> None:
    ran = place.search("needlebefore", "--agent", "pi", "--context", "1")
    assert ran.lines[2:] == [
        "     ┆ tool result (failed: read): a needleoutput b",
        "     «needlebefore»",
        "     ┆ user: go on",
    ]
    (hit,) = place.search("needlebefore", "--agent", "pi", "--context", "2", "--json").json["hits"]
    assert [one["entry"] for one in hit["before"]] == ["a0000003", "a0000004"]
    assert [one["entry"] for one in hit["after"]] == ["a0000006", "a0000007"]


@pytest.mark.parametrize("agent", SESSIONS)
def test_open_shows_the_branch_at_the_hit(place: Place, agent: str) -> None:
    shown = place.search("needledead", "--agent", agent, "--open").out
    found = next(line for line in shown.splitlines() if "◀ found here" in line)
    assert shown.split(found)[1].split() == ["«needledead»"]
    assert "say needleprompt" in shown
    assert "needleanswer" not in shown
    opened = place.search("needlethinking", "--agent", agent, "--open", "--json").json["opened"]
    assert opened["entries"][opened["at"]]["id"]


def test_open_of_a_title_shows_where_the_session_begins(place: Place) -> None:
    shown = place.search("in:title", "needletitle", "--agent", "claude", "--open").out
    assert "needletitle" in shown
    assert "found here" not in shown


def test_a_query_never_fails_and_what_was_not_read_as_typed_is_noted(place: Place) -> None:
    for query in ('"', "re:/(/", "a OR", "((((", "*", "\\", "NEAR(a b)", "x' OR 1=1 --"):
        ran = place.search("--", query)
        assert ran.code == 0, (query, ran.err)
        assert "Traceback" not in ran.err
    assert "since: expects an age" in place.search("since:xx needle*").err


def test_without_hits_the_scope_and_a_hint_are_printed(place: Place) -> None:
    ran = place.search("zyzzyva quokka", "--agent", "pi")
    assert (ran.code, ran.out) == (0, "")
    assert "no match for 'zyzzyva quokka' in 2 sessions of pi" in ran.err
    assert "try: " in ran.err
    assert "OR" in ran.err
    assert (
        "unknown agent 'no'; known: claude, codex, gemini, native, neovate, omp, opencode, pi, qwen"
        in place.search("x", "--agent", "no").err
    )
    empty = place.search("zyzzyva", "--json").json
    assert (empty["hits"], empty["total"], empty["nextOffset"]) == ([], 0, None)


def test_invalid_numbers_are_rejected_on_one_line(place: Place) -> None:
    for arguments in (("--limit", "0"), ("--offset", "-1"), ("--context", "-2"), ("--rebuild", "--no-refresh")):
        ran = place.search("x", *arguments)
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.count("\n") == 1


def test_search_can_be_limited_to_a_project_and_a_period(fresh: Place, tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "other").mkdir()
    fresh.world.pi(IDS[1], tmp_path / "one", ["tide"])
    fresh.world.pi(IDS[2], tmp_path / "other", ["tide"])
    found = fresh.search("tide", "--project", ".", "--json", cwd=tmp_path / "one").json
    assert {hit["session"]["project"] for hit in found["hits"]} == {str(tmp_path / "one")}
    assert fresh.search("tide", "--since", "2026-02-17", "--json").json["hits"] == []
    assert fresh.search("tide", "--since", "2026-02-16", "--json").json["hits"] != []


def test_hostile_text_cannot_reach_the_terminal(place: Place) -> None:
    for arguments in (("needlehostile",), ("needlehostile", "--open"), ("say", "--context=2"), ("--", "\x1b[2J\u202e")):
        ran = place.search(*arguments)
        for shown in (ran.out, ran.err, place.on_terminal(*arguments, PAGER="cat")):
            rest = re.sub(r"\x1b\[(?:0|1|2|33|1;33)m", "", shown).replace("\r\x1b[K", "")
            assert not re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", rest), arguments


def test_no_line_is_wider_than_the_terminal_and_the_hit_is_on_it(place: Place) -> None:
    for width in (40, 80, 120):
        ran = place.search("目的語", COLUMNS=str(width))
        assert all(columns(line) <= width for line in ran.lines), width
        narrow = place.search("needleoutput OR needledead", COLUMNS=str(width)).lines
        assert all(columns(line) <= width for line in narrow), (width, narrow)
        assert "«目的語»" in ran.out
    shown = place.on_terminal("目的語", width=60)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert all(columns(line) <= 60 for line in plain.splitlines())
    assert "\x1b[1;33m目的語\x1b[0m" in shown
    assert "«" in place.on_terminal("目的語", NO_COLOR="1")


@pytest.mark.parametrize("width", [12, 20, 33, 90])
@pytest.mark.parametrize(
    "text", ["潮" * 200 + "針" + "位" * 200, "a " * 150 + "針 " + "b " * 150, "針" * 80, "🦑針👩‍👩‍👧"]
)
def test_a_snippet_fits_any_width_with_its_hit_in_it(text: str, width: int) -> None:
    at = text.index("針")
    drawn = draw_snippet(snippet(text, [(at, at + 1)]), width, lambda hit: f"«{hit}»")
    assert "«針»" in drawn
    assert columns(drawn) <= width
    assert draw_snippet([Part("")], width, str) == ""


def test_a_pager_gets_the_complete_branch_without_colors_unless_it_is_less(place: Place, tmp_path: Path) -> None:
    pager = tmp_path / "pager"
    pager.write_text("#!/bin/sh\ncat > " + str(tmp_path / "paged") + "\necho PAGED\n")
    pager.chmod(0o755)
    assert "PAGED" in place.on_terminal("needledead", "agent:pi", "--open", PAGER=str(pager))
    paged = (tmp_path / "paged").read_text()
    assert "◀ found here" in paged
    assert "\x1b" not in paged
    less = tmp_path / "less"
    less.write_text("#!/bin/sh\necho ARGUMENTS $*\ncat > " + str(tmp_path / "paged") + "\n")
    less.chmod(0o755)
    shown = place.on_terminal("needledead", "agent:pi", "--open", PAGER=str(less))
    at = int(re.search(r"ARGUMENTS -R \+(\d+)", shown)[1])  # type: ignore[index]
    assert "◀ found here" in (tmp_path / "paged").read_text().splitlines()[at - 1]
    assert "needleprompt" in place.on_terminal("needledead", "agent:pi", "--open", PAGER="no-such-program")


def large(world: World, sessions: int = 3) -> None:
    """More than is indexed before a search."""
    for number in range(sessions):
        lines = pi_lines(IDS[number], "/work", [f"tide {number} " + "some words of filling " * 2000] * 40)
        world.put(f".pi/agent/sessions/--work--/2026-02-16T10-00-00-000Z_{IDS[number]}.jsonl", lines)


def test_without_an_index_files_are_scanned_and_the_index_is_built_for_the_next_search(fresh: Place) -> None:
    large(fresh.world)
    untouched = fresh.search("tide", "--json", "--no-refresh").json
    assert untouched["state"] == "scan"
    assert untouched["unindexed"] > 8 << 20
    assert fresh.search("tide", "--json", "--no-refresh").json["state"] == "scan"
    first = fresh.search("tide", "--json")
    assert first.json["state"] == "scan"
    assert first.err == "", "no progress without a terminal"
    second = fresh.search("tide", "--json").json
    assert (second["state"], second["unindexed"]) == ("index", 0)
    assert {hit["session"]["id"] for hit in second["hits"]} == set(IDS[:3])


def test_a_terminal_shows_hits_first_and_is_clean_after_indexing(fresh: Place) -> None:
    large(fresh.world)
    shown = fresh.on_terminal("tide", "--limit", "1")
    assert "from the files in" in shown
    after = shown[shown.index("from the files in") :]
    assert after.count("\n") == 1
    assert after.endswith("\r\x1b[K")
    assert fresh.search("tide", "--json").json["unindexed"] == 0


def test_progress_is_one_line_that_begins_after_a_while(fresh: Place) -> None:
    code = """import time
from sessiontree.cli.index_progress import progress_bar
now = 100.0
time.perf_counter = lambda: now
show = progress_bar("indexing")
show(1 << 20, 9 << 20, "/a/early.jsonl")
now += 0.35
show(3 << 20, 9 << 20, "/a/\x1b[2Jlate.jsonl")
show(4 << 20, 9 << 20, "/a/too-soon.jsonl")
now += 0.15
show(9 << 20, 9 << 20, "/a/" + "潮" * 200)
"""
    shown = fresh.on_terminal(program=["-c", code], width=60)
    assert "early" not in shown
    assert "too-soon" not in shown
    assert "\n" not in shown
    first, second = (line for line in shown.split("\r\x1b[K") if line)
    assert re.fullmatch(r"indexing █+░+ 3 of 9 MB  ␛\[2Jlate.jsonl", first)
    assert columns(second) < 60


def test_rebuild_creates_the_same_index(fresh: Place) -> None:
    path = fresh.world.pi(IDS[1], "/work", ["tide"])
    assert len(fresh.search("tide", "--json").json["hits"]) == 2
    append(path, pi_lines(IDS[1], "/work", ["ebb"])[1:])
    with Library(environment=fresh.world.environment) as library, Index(library.environment) as index:
        index.store.database.execute("INSERT INTO terms(terms) VALUES('delete-all')")
    assert fresh.search("tide", "--json", "--no-refresh").json["hits"] == []
    assert len(fresh.search("tide", "--json", "--rebuild").json["hits"]) == 2


def test_the_help_has_two_examples_that_run(place: Place) -> None:
    examples = re.findall(r"^  sessiontree search (.*)$", place.search("--help").out, re.MULTILINE)
    assert len(examples) == 2
    import shlex

    for example in examples:
        ran = place.search(*shlex.split(example))
        assert ran.code == 0, ran.err
        assert not ran.out or "--json" not in example or json.loads(ran.out)


def test_a_terminal_shows_the_progress_of_a_pattern(place: Place) -> None:
    show_at_once = (
        "import sys; from sessiontree.cli import index_progress, main; "
        "index_progress._AFTER = index_progress._EVERY = 0; main(['search', 're:/no.such.text/'])"
    )
    shown = place.on_terminal(program=["-c", show_at_once])
    assert "searching █" in shown
    assert shown.index("\r\x1b[Kno match") > shown.index("searching █"), "the bar is removed before the output"
