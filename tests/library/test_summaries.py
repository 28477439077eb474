"""Summaries read from both ends of a session file."""

from __future__ import annotations

import base64
import json
import os
import re
from pathlib import Path
from random import Random

import pytest

import sessiontree
from sessiontree.branches.tips import find_tips
from sessiontree.conversion.install import Request, carry_out, make_plan
from sessiontree.dialects.contract import SessionFile
from sessiontree.library import Summary
from sessiontree.library.summary import cut_at_word, is_meaningful
from sessiontree.library.summary_reader import WINDOW, read_ends, read_growth
from sessiontree.stores.file import FileStore
from sessiontree.views.session_facts import describe_session
from tests.library.world import IDS, World, claude_lines, clock, json_lines, pi_lines

CORPUS = Path(__file__).parents[1] / "corpus"


def summary_of(path: Path, agent: str) -> Summary:
    return read_ends(FileStore(path), agent).summary


def write(folder: Path, lines: list[dict[str, object]] | bytes) -> Path:
    path = folder / "s.jsonl"
    path.write_bytes(lines if isinstance(lines, bytes) else json_lines(lines))
    return path


def test_counts_of_a_small_session_are_exact(tmp_path: Path) -> None:
    path = write(tmp_path, claude_lines(IDS[0], "/src/tides", ["first things first", "and then"]))
    one = summary_of(path, "claude")
    assert (one.id, one.agent, one.cwd, one.git_branch) == (IDS[0], "claude", "/src/tides", "main")
    assert (one.title, one.named) == ("first things first", False)
    assert (one.first_prompt, one.last_prompt) == ("first things first", "and then")
    assert (one.messages, one.branches, one.exact, one.health) == (4, 1, True, "ok")
    assert (one.tokens_in, one.tokens_out, one.tokens_cached, one.model) == (20, 10, 200, "swift-4")


def test_activity_is_the_time_of_the_last_message_not_of_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, pi_lines("a", "/x", ["one", "two"], minute=5))
    os.utime(path, (0, 0))
    one = summary_of(path, "pi")
    assert one.active is not None
    assert one.created is not None
    assert one.active - one.created == 60_000
    assert one.cost == 0.5


@pytest.mark.parametrize(
    ("more", "title", "named"),
    [
        ([], "hello", False),
        ([{"type": "ai-title", "aiTitle": "made", "sessionId": IDS[0]}], "made", True),
        (
            [
                {"type": "custom-title", "customTitle": "given", "sessionId": IDS[0]},
                {"type": "ai-title", "aiTitle": "made", "sessionId": IDS[0]},
            ],
            "given",
            True,
        ),
    ],
)
def test_the_title_follows_the_rule_of_the_agent(
    more: list[dict[str, object]], title: str, named: bool, tmp_path: Path
) -> None:
    one = summary_of(write(tmp_path, [*claude_lines(IDS[0], "/x"), *more]), "claude")
    assert (one.title, one.named) == (title, named)


def test_without_a_name_the_first_meaningful_prompt_is_the_title(tmp_path: Path) -> None:
    prompts = ["<system-reminder>be nice</system-reminder>", "  ", "Please mend\nthe   parser"]
    assert summary_of(write(tmp_path, pi_lines("a", "/x", prompts)), "pi").title == "Please mend the parser"


def test_titles_are_cut_at_a_word() -> None:
    assert cut_at_word("mend the parser", 12) == "mend the…"
    assert cut_at_word("解析器" * 10, 12) == "解析器解析器解析器解析…"
    assert cut_at_word("short", 12) == "short"
    assert not is_meaningful("<command-name>/clear</command-name>")
    assert is_meaningful("<div> is broken")


def test_a_large_session_is_read_at_its_ends_only(tmp_path: Path) -> None:
    prompts = ["the very first", *("x" * 3000 for _ in range(400)), "the very last"]
    path = write(tmp_path, claude_lines(IDS[0], "/x", prompts))
    size = path.stat().st_size
    seen = read_ends(FileStore(path), "claude", size)
    assert size > 6 * WINDOW
    assert seen.bytes_read == 2 * WINDOW
    one = seen.summary
    assert (one.first_prompt, one.last_prompt, one.exact) == ("the very first", "the very last", False)
    assert one.messages == pytest.approx(804, rel=0.15)
    assert one.tokens_out == pytest.approx(402 * 5, rel=0.15)
    assert one.branches == 1
    assert one.health == "unchecked"


@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_nothing_is_lost_at_the_size_limit_of_a_complete_read(extra: int, tmp_path: Path) -> None:
    lines = json_lines(pi_lines("a", "/x", ["hello", "again"]))
    filler = {"type": "custom", "id": "c", "parentId": None, "timestamp": clock(0), "customType": "x", "data": ""}
    room = 2 * WINDOW + extra - len(lines) - len(json_lines([filler]))
    path = write(tmp_path, lines + json_lines([{**filler, "data": "d" * room}]))
    assert path.stat().st_size == 2 * WINDOW + extra
    one = summary_of(path, "pi")
    assert one.exact == (extra <= 0)
    assert one.first_prompt == "hello"


@pytest.mark.parametrize("size", [WINDOW + 7, 5 * WINDOW])
def test_one_giant_line_can_be_summarized(size: int, tmp_path: Path) -> None:
    for lines in ([*pi_lines("a", "/x", ["hello"]), {"type": "custom", "id": "c", "data": "d" * size}],):
        one = summary_of(write(tmp_path, lines), "pi")
        assert (one.id, one.title) == ("a", "hello")
    giant = claude_lines(IDS[0], "/x", ["y" * 5 * WINDOW, "last"])
    one = summary_of(write(tmp_path, giant), "claude")
    assert (one.id, one.cwd, one.last_prompt) == (IDS[0], "/x", "last")


@pytest.mark.parametrize("agent", ["claude", "pi", "omp", "neovate", "native"])
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n",
        b"{}",
        b"[]\nnull\n3\n",
        b"\x00" * 1000,
        b"\xff\xfe\x00{\n",
        b'{"type":"session"',
        b'{"type":"session","id":7}\n',
        b"not json at all\n" * 20000,
        b'{"type":"message","message":{"role":"user","content":[[[[[]]]]]}}\n' * 50,
        b"[" * 200_000,
        b'{"type":"user","uuid":"\\ud800","parentUuid":"\\ud800","message":{"content":"\\ud800"},"cwd":"\\ud800"}\n',
    ],
    ids=range(12),
)
def test_a_file_with_any_content_is_listed(agent: str, data: bytes, world: World) -> None:
    path = world.put("x/s.jsonl", data)
    one = summary_of(path, agent)
    assert one.path == str(path)
    assert one.size == len(data)
    with world.library(roots={agent: [str(world.home)]}) as library:
        assert [found.path for found in library.sessions()] in ([str(path)], [])
    with world.library(roots={agent: [str(world.home)]}) as library:
        library.sessions()
        assert library.scan.read == 0


def test_random_damage_never_raises(tmp_path: Path) -> None:
    chance = Random(5)
    for agent, lines in (
        ("claude", claude_lines(IDS[0], "/x", ["a", "b", "c"])),
        ("pi", pi_lines("a", "/x", ["a"] * 9)),
    ):
        whole = json_lines(lines)
        for _ in range(150):
            data = bytearray(whole)
            for _ in range(chance.randrange(1, 8)):
                data[chance.randrange(len(data))] = chance.randrange(256)
            summary_of(write(tmp_path, bytes(data[: chance.randrange(len(data))])), agent)


def test_damage_is_marked(tmp_path: Path) -> None:
    sound = json_lines(pi_lines("a", "/x", ["hello", "again"]))
    assert summary_of(write(tmp_path, sound), "pi").health == "ok"
    for broken in (sound + b'{"type":"mess', sound.replace(b'"user"', b'"us\n', 1), sound + b"\x00" * 50 + b"\n"):
        assert summary_of(write(tmp_path, broken), "pi").health == "damaged"


@pytest.mark.parametrize("agent", ["native", "omp"])
def test_a_session_whose_large_content_is_in_blobs_is_damaged_only_without_them(agent: str, tmp_path: Path) -> None:
    image = {"type": "image", "data": base64.b64encode(bytes(range(256)) * 8).decode(), "mimeType": "image/png"}
    path = tmp_path / "sessions" / "x" / "s.jsonl"
    path.parent.mkdir(parents=True)
    session = sessiontree.create(cwd="/x", home=tmp_path)
    session.append("user", "Hello")
    carry_out(session, make_plan(session, Request(agent, out=str(path)))).append("user", [image])
    assert summary_of(path, agent).health == "ok"
    name = re.findall(rb"sha256:([0-9a-f]{64})", path.read_bytes())[0]
    path.write_bytes(path.read_bytes().replace(name, name[::-1]))
    assert summary_of(path, agent).health == "damaged"


def test_a_file_that_cannot_be_opened_is_listed_as_damaged(tmp_path: Path) -> None:
    assert read_ends(FileStore(tmp_path / "gone.jsonl"), "pi", 10).summary.health == "damaged"


@pytest.mark.parametrize("path", sorted(CORPUS.rglob("*.jsonl")), ids=lambda path: path.name)
def test_summaries_of_small_corpus_files_agree_with_the_session(path: Path) -> None:
    if path.stat().st_size > 2 * WINDOW:
        return
    try:
        session = sessiontree.open(path)
    except sessiontree.NotASessionError:
        return
    one = summary_of(path, session.dialect.name)
    assert (one.messages, one.branches) == (session.count("message"), len(find_tips(session)))
    used = session.usage()
    assert (one.tokens_out, one.tokens_cached) == (round(used.output), round(used.cached))
    assert one.cost == pytest.approx(used.cost)
    assert one.cwd == session.cwd
    assert one.named == bool(session.given_name)
    if session.name and len(session.name) < 100 and one.messages:
        assert one.title == " ".join(session.name.split())


def test_a_summary_is_an_immutable_value(tmp_path: Path) -> None:
    one = summary_of(write(tmp_path, pi_lines("a", "/x")), "pi")
    assert json.dumps(one.title) == '"hello"'
    with pytest.raises(AttributeError):
        one.title = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("name", "branches"),
    [("03_parallel", 1), ("05_parallel_then_resume", 1), ("12_compacted", 1), ("15_interactive_rewind_rename_bash", 2)],
)
def test_parallel_results_and_compactions_are_not_branches_but_a_rewind_is(name: str, branches: int) -> None:
    path = CORPUS / "claude" / f"{name}.jsonl"
    assert summary_of(path, "claude").branches == branches
    assert describe_session(sessiontree.open(path))["branches"] == branches


def test_a_line_that_is_added_to_parallel_results_adds_no_branch(tmp_path: Path) -> None:
    """Wherever the file ended when it was first read, the total is that of a single read."""
    raw = (CORPUS / "claude" / "03_parallel.jsonl").read_bytes()
    lines = raw.splitlines(keepends=True)
    for known in range(1, len(lines)):
        path = write(tmp_path, b"".join(lines[:known]))
        before = read_ends(FileStore(path), "claude")
        path.write_bytes(raw)
        assert before.state is not None
        after = read_growth(FileStore(path), before.summary, before.state, len(raw), 0, SessionFile())
        assert after is None or (after.summary.branches, after.summary.exact) == (1, True), known
