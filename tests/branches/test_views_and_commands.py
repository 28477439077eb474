"""Output for users: commands, the tree with its merges, and HTML pages."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from sessiontree.views.diff import wrap
from sessiontree.views.text import columns
from tests.branches.worlds import World
from tests.cli.conftest import Run, run

__all__ = ["run"]

NASTY = "<script>alert(1)</script>\x1b[31m \u202e 悪い \"'&"


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World("native", tmp_path / "w")
    session = made.opened()
    session.label(made.one, "by hand")
    session.label(made.other, "生成器")
    session.move(made.other)
    session.close()
    made.before = made.path.read_bytes()
    return made


def test_branches_lists_names_and_distances(run: Run, world: World) -> None:
    ran = run("branches", str(world.path))
    assert ran.code == 0
    assert ran.lines[0].split() == ["BRANCH", "NAME", "AHEAD", "BEHIND", "TOKENS", "AGE", "LAST", "MESSAGE"]
    assert ran.lines[1].startswith(f"●  {world.other}  生成器 ")
    assert ran.lines[2].startswith(f"○  {world.one}  by hand")
    assert "no other process" in ran.err
    output = run("branches", str(world.path), "--json").json
    assert [branch["name"] for branch in output["branches"]] == ["生成器", "by hand"]
    assert output["branches"][1]["ahead"] == {"entries": 5, "messages": 5}
    assert output["writers"] == []


@pytest.mark.parametrize("width", [40, 60, 100, 160])
def test_a_diff_fits_the_terminal(run: Run, world: World, width: int) -> None:
    ran = run("diff", str(world.path), "by hand", "生成器", width=width)
    assert ran.code == 0
    assert all(columns(line) <= width for line in ran.lines)
    assert ("│" in ran.out) == (width >= 76)
    assert "parser.py" in ran.out
    assert "用生成器 instead." in ran.out


def test_a_diff_as_json_has_both_sides(run: Run, world: World) -> None:
    output = run("diff", str(world.path), "by hand", "生成器", "--json").json
    assert output["ancestor"] == world.fork
    assert [side["final"] for side in output["sides"]] == ["The hand-written one fails.", "The generated one works."]
    assert output["conflicts"][0]["path"] == "parser.py"
    assert output["sides"][0]["used"]["requests"] == 2


def test_a_diff_across_sessions_names_the_other_one(run: Run, world: World, tmp_path: Path) -> None:
    other = World("claude", tmp_path / "c")
    ran = run("diff", str(world.path), "by hand", f"{other.path}:{other.other}")
    assert ran.code == 0
    assert "the branches have no entries in common" in ran.out


def test_a_diff_of_an_entry_with_itself_or_with_its_own_branch_claims_no_divergence(
    run: Run, world: World, tmp_path: Path
) -> None:
    same = run("diff", str(world.path), "by hand", "by hand")
    assert same.code == 0
    assert [line for line in same.lines if line] == [
        f"both branches end at {world.one[:8]} (7 entries); there is nothing to compare"
    ]
    part = run("diff", str(world.path), world.fork, "by hand", width=200)
    assert part.lines[0] == f"the branch of {world.one[:8]} continues after {world.fork[:8]} (2 entries in common)"
    back = run("diff", str(world.path), "by hand", world.fork, width=200)
    assert back.lines[0] == part.lines[0]
    for other, words in (("by hand", "nothing to compare"), (world.fork, "continues after")):
        out = tmp_path / f"{other}.html"
        assert run("diff", str(world.path), "by hand", other, "--html", str(out)).code == 0
        assert words in out.read_text()
        assert "iverge" not in out.read_text()


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, Any]]] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_a_page_of_two_branches_escapes_hostile_text(run: Run, world: World, tmp_path: Path) -> None:
    end = world.say(world.fork, NASTY, NASTY, ("toolu_n", "<b>.py", NASTY), NASTY, NASTY)
    world.opened().label(end, "<i>label</i>")
    out = tmp_path / "diff.html"
    ran = run("diff", str(world.path), "by hand", end, "--html", str(out))
    assert ran.code == 0
    assert ran.lines == [str(out)]
    text = out.read_text()
    page = Page(text)
    assert "script" not in [tag for tag, _ in page.tags]
    assert not any("src" in attributes for _, attributes in page.tags)
    links = [attributes["href"] for _, attributes in page.tags if "href" in attributes]
    assert all(link is not None and link.startswith("#entry-") for link in links)
    assert "<script>alert(1)</script>" in "".join(page.words)
    assert "\x1b" not in text
    assert "default-src 'none'" in text
    again = run("diff", str(world.path), "by hand", end, "--html", str(out))
    assert again.code == 1
    assert "file exists" in again.err
    assert out.read_text() == text


def test_merging_on_the_command_line(run: Run, world: World) -> None:
    shown = run("merge", str(world.path), "by hand", "--dry-run")
    assert shown.code == 0
    assert "recursive descent" in shown.out
    assert world.path.read_bytes() == world.before
    done = run("merge", str(world.path), "by hand", "--into", "生成器")
    assert done.code == 0
    join = done.out.strip()
    assert "conflict: Both branches changed `parser.py`" in done.err
    again = run("merge", str(world.path), "by hand", "--json")
    assert again.json["entry"] is None
    assert "nothing was added" in again.json["nothing"]
    tree = run("tree", str(world.path))
    (row,) = [line for line in tree.lines if "merge" in line and "⇠" in line]
    assert row.startswith(f"╰─◆ {join}")
    assert f"⇠ {world.one}" in row
    (end,) = [line for line in tree.lines if "⇢" in line]
    assert f"⇢ {join}" in end
    nodes = {node["id"]: node for node in run("tree", str(world.path), "--json").json["nodes"]}
    assert nodes[join]["mergedFrom"]["entry"] == world.one
    assert nodes[join]["parent"] == world.other
    assert nodes[world.one]["mergedInto"] == [join]
    assert nodes[world.other]["mergedFrom"] is None


def test_the_tree_of_a_page_links_a_merge_to_both_parents(run: Run, tmp_path: Path) -> None:
    for dialect in ("native", "claude", "neovate"):
        world = World(dialect, tmp_path / dialect)
        run("merge", str(world.path), world.one, "--into", world.other)
        page = run("export", str(world.path), "--format", "html", "--branch", "all").out
        assert re.search(rf'<a class="join" href="#entry-{world.one}">⇠ merged from {world.one}', page), dialect


def test_merging_another_session_on_the_command_line(run: Run, world: World, tmp_path: Path) -> None:
    other = World("pi", tmp_path / "p")
    done = run("merge", str(world.path), other.one, "--from-session", str(other.path), "--how", "append", "--json").json
    assert done["from"] == {"entry": other.one, "session": other.opened().id}
    assert done["messages"] == 7, "they share no entries, so all messages are new"
    assert len(done["brought"]) == 7


def test_picking_on_the_command_line(run: Run, world: World) -> None:
    done = run("pick", str(world.path), "by hand", "--onto", "生成器")
    assert done.code == 0
    assert "1 message copied" in done.err
    same = run("merge", str(world.path), "by hand", "--how", "pick", "--entries", "by hand")
    assert "nothing was added" in same.err


def test_leaving_with_a_summary_on_the_command_line(run: Run, world: World) -> None:
    done = run("branch", str(world.path), world.fork, "--summarise", "--instructions", "the tests", "--json")
    assert done.code == 0
    assert "lark" in done.json["summary"]
    assert world.opened().leaf == done.json["leaf"]
    plain = run("branch", str(world.path), "by hand", "--json").json
    assert plain["summary"] is None


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("merge", "S", "nowhere"), 1, "no entry"),
        (("merge", "S", "by hand", "--how", "pick"), 2, "must be used together"),
        (("merge", "S", "by hand", "--entries", "by hand"), 2, "must be used together"),
        (("merge", "S", "by hand", "--how", "sideways"), 2, "unknown value"),
        (("merge", "S", "by hand", "--summarizer", "nobody"), 1, "nobody"),
        (("merge", "S", "by hand", "--from-session", "/nowhere.jsonl"), 1, "nowhere"),
        (("diff", "S", "by hand"), 2, "required"),
        (("diff", "S", "by hand", "nowhere"), 1, "no entry"),
        (("diff", "S", "by hand", "nowhere.jsonl:x"), 1, "nowhere"),
        (("pick", "S", "nowhere"), 1, "no entry"),
        (("pick", "S"), 2, "required"),
        (("branches", "/nowhere.jsonl"), 1, "nowhere"),
        (("branch", "S", "by hand", "--instructions", "x"), 2, "--summarize"),
    ],
)
def test_bad_input_is_reported_in_one_line(
    run: Run, world: World, arguments: tuple[str, ...], code: int, words: str
) -> None:
    ran = run(*(str(world.path) if argument == "S" else argument for argument in arguments))
    assert ran.code == code
    assert words in ran.err
    assert ran.err.count("\n") == 1
    assert world.path.read_bytes() == world.before


def test_control_characters_never_reach_the_terminal(run: Run, world: World) -> None:
    end = world.say(world.fork, NASTY, NASTY, ("toolu_n", NASTY, NASTY), NASTY, NASTY)
    world.opened().label(end, "x\x1b]0;title\x07")
    for arguments in (
        ("branches",),
        ("diff", "S", "by hand", end),
        ("merge", "S", end, "--into", "by hand", "--dry-run"),
        ("merge", "S", end, "--into", "by hand", "--how", "append"),
        ("tree",),
    ):
        command = [str(world.path) if argument == "S" else argument for argument in arguments]
        ran = run(*command, *(() if "S" in arguments else (str(world.path),)))
        assert ran.code == 0
        assert "\x1b" not in ran.out + ran.err
        assert "\u202e" not in ran.out + ran.err


@pytest.mark.parametrize(("variables", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)])
def test_colors_are_used_only_on_terminals_that_support_them(
    world: World, variables: dict[str, str], coloured: bool
) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 90, 0, 0))
    environment = {**os.environ, "TERM": "xterm", **variables}
    if "NO_COLOR" not in variables:
        environment.pop("NO_COLOR", None)
    command = [sys.executable, "-m", "sessiontree", "diff", str(world.path), "by hand", "生成器"]
    child = subprocess.Popen(command, stdout=theirs, stderr=theirs, stdin=theirs, env=environment)
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # the terminal is closed when its program has ended
        while data := os.read(ours, 65536):
            shown += data
    os.close(ours)
    assert child.wait(60) == 0
    assert (b"\x1b[1masked\x1b[0m" in shown) == coloured
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown.decode())
    assert "\x1b" not in plain
    assert all(columns(line) <= 90 for line in plain.splitlines())


def test_wrapping_keeps_every_word_and_no_line_is_too_wide() -> None:
    line = "一二三四五 six seven 八九十 averyveryverylongwordthatfitsnowhere end"
    for width in range(4, 50):
        pieces = wrap(line, width)
        assert all(columns(piece) <= width for piece in pieces)
        assert "".join("".join(pieces).split()) == "".join(line.split())
