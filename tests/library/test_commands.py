"""`list`, `continue` and `open` as processes."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from wcwidth import wcswidth

from tests.library.world import IDS, World, claude_lines, json_lines, pi_lines, repository


class Ran:
    def __init__(self, done: subprocess.CompletedProcess[bytes]) -> None:
        self.code, self.out, self.err = done.returncode, done.stdout.decode(), done.stderr.decode()

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def json(self) -> Any:
        assert self.out.count("\n") == 1
        return json.loads(self.out)


Run = Callable[..., Ran]


@pytest.fixture
def here(world: World) -> Path:
    folder = world.folder / "here"
    folder.mkdir()
    return folder


def environment(world: World, **more: str) -> dict[str, str]:
    return {"LANG": "C.UTF-8", "PYTHONIOENCODING": "utf-8", **world.environment, "COLUMNS": "100", **more}


@pytest.fixture
def run(world: World, here: Path) -> Run:
    def run(*arguments: str, cwd: Path | None = None, stdin: bytes = b"", **more: str) -> Ran:
        command = [sys.executable, "-m", "sessiontree", *arguments]
        around = environment(world, **more)
        return Ran(
            subprocess.run(
                command, input=stdin, cwd=cwd or here, env=around, capture_output=True, timeout=60, check=False
            )
        )

    return run


def on_terminal(world: World, here: Path, *arguments: str, typed: bytes = b"", columns: int = 100, **more: str) -> str:
    """Output of a command on its own terminal."""
    master, slave = pty.openpty()
    import fcntl
    import struct
    import termios

    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    around = {key: value for key, value in environment(world, **{"TERM": "xterm", **more}).items() if key != "COLUMNS"}
    process = subprocess.Popen(
        [sys.executable, "-m", "sessiontree", *arguments], stdin=slave, stdout=slave, stderr=slave, cwd=here, env=around
    )
    os.close(slave)
    if typed:
        os.write(master, typed)
    shown = b""
    while True:
        ready, _, _ = select.select([master], [], [], 30)
        try:
            part = os.read(master, 65536) if ready else b""
        except OSError:
            break
        if not part:
            break
        shown += part
    process.wait(timeout=30)
    os.close(master)
    return shown.decode("utf-8", "replace").replace("\r\n", "\n")


def test_list_shows_this_project_and_all_shows_every_one(run: Run, world: World, here: Path) -> None:
    world.claude(IDS[0], here, ["mend the parser"])
    world.pi(IDS[1], "/elsewhere", ["write the docs"])
    ran = run("list")
    assert (ran.code, ran.err) == (0, "")
    assert len(ran.lines) == 2
    assert ran.lines[0].split()[:2] == ["title", "age"]
    assert "mend the parser" in ran.lines[1]
    assert "write the docs" in run("list", "--all").out
    assert "elsewhere" in run("list", "--all").out
    assert "write the docs" in run("list", "--project", "/elsewhere").out


def test_list_without_sessions_reports_that_on_stderr(run: Run, world: World, here: Path) -> None:
    world.pi(IDS[1], "/elsewhere")
    ran = run("list")
    assert (ran.code, ran.out) == (0, "")
    assert "1 in other projects (use --all)" in ran.err


def test_the_hint_of_an_empty_list_counts_only_matching_sessions(run: Run, world: World, here: Path) -> None:
    world.claude(IDS[0], here, ["mend the parser"])
    world.pi(IDS[1], "/elsewhere", ["write the docs"])
    assert run("list", "--agent", "pi").err == f"no matching sessions for {here}; 1 in other projects (use --all)\n"
    for filters in (["--agent", "omp"], ["--tag", "work"], ["--named", "--agent", "pi"]):
        assert run("list", *filters).err == f"no matching sessions for {here}\n"
    assert "other projects" not in run("stats", "--agent", "omp").err


def test_list_counts_only_matching_sessions_in_other_projects(run: Run, world: World, here: Path) -> None:
    world.claude(IDS[0], here, ["mend the parser"])
    world.pi(IDS[1], "/elsewhere")
    world.pi(IDS[2], "/elsewhere")
    run("tag", IDS[1], "kept")
    assert "no matching sessions for" in run("list", "--tag", "nope").err
    assert "other projects" not in run("list", "--tag", "nope").err
    assert "1 in other projects (use --all)" in run("list", "--tag", "kept").err
    assert "2 in other projects (use --all)" in run("list", "--agent", "pi").err


def test_a_piped_listing_is_plain(run: Run, world: World, here: Path) -> None:
    world.claude(IDS[0], here, ["tab\there \x1b[31mred\x1b[0m \u202etfel 解析器"])
    ran = run("list", COLUMNS="130")
    assert "\t" not in ran.out
    assert "\x1b" not in ran.out
    assert "\u202e" not in ran.out
    assert "解析器" in ran.out


@pytest.mark.parametrize("width", [20, 40, 60, 80, 120, 200])
def test_rows_are_never_wider_than_the_terminal(width: int, run: Run, world: World, here: Path) -> None:
    world.claude(IDS[0], here, ["解析器の名前をもっと長くしてください、" * 6])
    world.pi(IDS[1], here, ["a rather long prompt that goes on and on " * 4])
    world.put(f".claude/projects/-x/{IDS[0]}/subagents/agent-a.jsonl", claude_lines(IDS[0], str(here), sidechain=True))
    for arguments in (("list",), ("list", "--all", "--tree")):
        ran = run(*arguments, COLUMNS=str(width))
        assert max(map(wcswidth, ran.lines)) <= width, ran.out
        assert len(ran.lines) >= 3
        assert all(line[2:].strip() for line in ran.lines)


def test_columns_are_dropped_before_titles_get_too_short(run: Run, world: World, here: Path) -> None:
    world.pi(IDS[0], here, ["a rather long prompt that goes on and on"])
    narrow, wide = run("list", COLUMNS="44").lines[0].split(), run("list", COLUMNS="160").lines[0].split()
    assert narrow[:2] == ["title", "age"]
    assert set(narrow) < set(wide)
    assert {"msgs", "size", "agent", "model", "in", "out", "cost", "id"} <= set(wide)


def test_columns_are_aligned_with_wide_characters(run: Run, world: World, here: Path) -> None:
    world.claude(IDS[0], here, ["解析器"])
    world.claude(IDS[1], here, ["parser"])
    rows = run("list").lines[1:]
    assert len({wcswidth(row[: row.index("claude")]) for row in rows}) == 1


def test_subagents_are_listed_below_their_session_and_health_is_marked(run: Run, world: World, here: Path) -> None:
    main = world.claude(IDS[0], here, ["mend the parser"])
    side = claude_lines(IDS[0], str(here), ["look around"], sidechain=True)
    world.put(main.parent / IDS[0] / "subagents" / "agent-a.jsonl", side)
    world.put(main.parent / f"{IDS[1]}.jsonl", json_lines(claude_lines(IDS[1], str(here), minute=30)) + b"{torn")
    rows = run("list", "--subagents").lines[1:]
    assert rows[0].startswith("! ")
    assert rows[1].startswith("  mend the parser")
    assert rows[2].startswith("  └ ⚙ look around")
    assert "look around" not in run("list").out
    assert len(run("list", "--json").json["sessions"]) == 2


def test_what_is_unknown_is_a_question_mark(run: Run, world: World, here: Path) -> None:
    world.claude(IDS[0], here, ["mend the parser"])
    source = world.put(here / "source.jsonl", claude_lines(IDS[1], str(here), ["hello there"]))
    run("convert", str(source), "--to", "neovate", "--install")  # Neovate does not record the folder
    heading, *rows = run("list", "--all", COLUMNS="140").lines
    at = heading.index("project")
    assert {row[: at + 1].split()[0]: row[at] for row in rows} == {"mend": here.name[0], "hello": "?"}
    branches = heading.index(" br") + 2
    assert {row[branches] for row in rows} == {"1"}


def test_one_long_id_leaves_room_for_the_other_columns(run: Run, world: World, here: Path) -> None:
    for letter in "ab":
        world.claude(f"{'0' * 60}{letter}", here, [f"prompt {letter}"])
    heading, *rows = run("list").lines
    assert {"age", "msgs", "size", "agent", "id"} <= set(heading.split())
    assert max(map(len, rows)) <= 100


def test_branches_of_large_sessions_are_known_after_the_first_listing(run: Run, world: World, here: Path) -> None:
    world.claude(IDS[0], here, ["begin", *(f"prompt {number} " + "word " * 500 for number in range(200))])
    first, second = (run("list", "--json").json["sessions"][0] for _ in range(2))
    assert first["exact"] is False
    assert (second["exact"], second["branches"]) == (True, 1)


@pytest.mark.slow
@pytest.mark.parametrize("agent", ["claude", "pi", "omp", "neovate", "native"])
def test_tags_and_pins_are_shown_and_filtered_for_every_agent(run: Run, world: World, here: Path, agent: str) -> None:
    source = world.put(here / "source.jsonl", claude_lines(IDS[0], str(here), ["mend the parser"]))
    path = run("convert", str(source), "--to", agent, "--install", "--json").json["path"]
    world.claude(IDS[1], here, ["mend another thing"])
    assert run("tag", str(path), "work", "very urgent").code == 0
    assert run("pin", str(path)).code == 0
    rows = run("list", "--all", "--json").json["sessions"]
    tagged = {row["path"]: (row["tags"], row["pinned"]) for row in rows}
    assert tagged.pop(str(path)) == (["work", "very urgent"], True)
    assert [*tagged.values()] == [([], False)]
    for options in (["--tag", "work"], ["--pinned"], ["--tag", "very urgent", "--tag", "work", "--pinned"]):
        assert [row["path"] for row in run("list", "--all", "--json", *options).json["sessions"]] == [str(path)]
    assert run("list", "--all", "--json", "--tag", "wor").json["sessions"] == []
    assert "⚑ work very urgent" in run("list", "--all", COLUMNS="140").out
    for query in ("tag:work mend", "is:pinned mend", 'tag:"very urgent"'):
        assert {hit["session"]["path"] for hit in run("search", query, "--json").json["hits"]} == {str(path)}
    for query in ("-tag:work mend", "-is:pinned mend"):
        assert str(path) not in {hit["session"]["path"] for hit in run("search", query, "--json").json["hits"]}


def test_the_json_of_a_listing_is_one_object(run: Run, world: World, here: Path) -> None:
    world.claude(IDS[0], here, ["mend the parser"])
    found = run("list", "--json").json
    (one,) = found["sessions"]
    assert (one["id"], one["agent"], one["title"], one["cwd"]) == (IDS[0], "claude", "mend the parser", str(here))
    assert one["active"] == "2026-02-16T10:00:00.000Z"
    assert one["tokens"] == {"input": 10, "output": 5, "cached": 100}
    assert found["totals"]["sessions"] == 1
    assert found["scan"] == {"files": 1, "read": 1, "bytesRead": one["size"]}
    assert found["timings"].keys() == {"scanMs", "totalMs"}


def test_filters_and_limits(run: Run, world: World, here: Path) -> None:
    world.claude(IDS[0], here, ["old"])
    world.pi(IDS[1], here, ["new"], minute=30)
    assert [one["title"] for one in run("list", "--json", "--limit", "1").json["sessions"]] == ["new"]
    assert [one["title"] for one in run("list", "--json", "--agent", "claude").json["sessions"]] == ["old"]
    assert run("list", "--json", "--since", "2026-02-16T10:15:00Z").json["totals"]["sessions"] == 1
    assert run("list", "--json", "--since", "1d").json["totals"]["sessions"] == 0
    assert run("list", "--json", "--since", "yesterday").json["totals"]["sessions"] == 0
    assert run("list", "--since", "someday").code == 2
    assert run("list", "--limit", "-1").code == 2
    assert run("list", "--root", "x=y").code == 2
    missing = run("list", "--all", "--root", "pi=/nowhere")
    assert (missing.code, missing.err.splitlines()[0]) == (2, "sessiontree: --root pi=/nowhere: no such folder")


def test_on_a_terminal_headings_are_dim_and_timings_are_printed(world: World, here: Path) -> None:
    world.claude(IDS[0], here, ["mend the parser"])
    shown = on_terminal(world, here, "list")
    assert "\x1b[2m  title" in shown
    assert re.search(r"1 session · read 1 of 1 files · \d+ ms", shown)
    assert "\x1b[2m" not in on_terminal(world, here, "list", NO_COLOR="1")
    assert max(map(wcswidth, on_terminal(world, here, "list", columns=40, NO_COLOR="1").splitlines()[:2])) <= 40


def test_open_finds_by_title_and_shows_facts_and_the_last_messages(run: Run, world: World) -> None:
    path = world.pi(IDS[0], "/x", ["first of all", *["more"] * 9, "last of all"])
    ran = run("open", "first of")
    assert ran.code == 0
    assert ran.lines[0] == "first of all"
    assert f"file         {path}" in ran.lines
    assert "   last of all" in ran.lines
    assert "   first of all" not in ran.lines
    assert run("open", IDS[0][:8], "--print-path").out == f"{path}\n"
    found = run("open", IDS[0], "--json", "--messages", "1").json
    assert (found["path"], found["lastMessages"][0]["text"]) == (str(path), "last of all")


def test_open_rejects_ambiguous_and_missing_sessions(run: Run, world: World) -> None:
    world.pi(IDS[0], "/x", ["the same"])
    world.claude(IDS[1], "/x", ["the same"])
    ran = run("open", "the same")
    assert ran.code == 2
    assert IDS[0] in ran.err
    assert IDS[1] in ran.err
    assert run("open", "nothing").code == 1


def test_continue_opens_the_newest_session_of_this_project_only(run: Run, world: World, here: Path) -> None:
    ran = run("continue")
    assert ran.code == 1
    assert "no sessions for" in ran.err
    old = world.claude(IDS[0], here, ["old"])
    new = world.pi(IDS[1], here, ["new"], minute=10)
    world.claude(IDS[2], "/elsewhere", ["newest"], minute=50)
    assert run("continue", "--print-path").out == f"{new}\n"
    assert run("continue", "--json").json["path"] == str(new)
    assert run("continue").lines[0] == "new"
    old.unlink()
    new.unlink()
    assert run("continue").code == 1


def test_continue_in_a_dashed_folder_never_opens_the_nested_one(run: Run, world: World) -> None:
    dashed, nested = world.folder / "a-b", world.folder / "a" / "b"
    dashed.mkdir()
    nested.mkdir(parents=True)
    world.claude(IDS[0], nested, ["nested"])
    world.pi(IDS[1], nested, ["nested"])
    assert run("continue", cwd=dashed).code == 1
    assert run("continue", "--cwd", str(nested), cwd=dashed).code == 0


def test_continue_prefers_the_last_session_of_this_terminal(run: Run, world: World, here: Path) -> None:
    old = world.claude(IDS[0], here, ["old"])
    new = world.pi(IDS[1], here, ["new"], minute=10)
    other = world.pi(IDS[2], "/elsewhere", ["other"], minute=20)
    pane = {"TMUX_PANE": "%9"}
    assert run("continue", "--print-path", **pane).out == f"{new}\n"
    run("open", "old", **pane)
    assert run("continue", "--print-path", **pane).out == f"{old}\n"
    assert run("continue", "--print-path", TMUX_PANE="%10").out == f"{new}\n"
    run("open", "other", **pane)
    assert run("continue", "--print-path", **pane).out == f"{new}\n", f"never {other}"


def test_continue_finds_the_sessions_of_a_renamed_repository(run: Run, world: World) -> None:
    old = repository(world.folder / "old")
    path = world.claude(IDS[0], old, ["hello"])
    run("open", "hello")
    old.rename(world.folder / "new")
    assert run("continue", "--print-path", cwd=world.folder / "new").out == f"{path}\n"


def test_the_list_to_choose_from_is_numbered(run: Run, world: World, here: Path) -> None:
    world.claude(IDS[0], here, ["old"])
    new = world.pi(IDS[1], here, ["new"], minute=10)
    ran = run("continue", "-r")
    assert ran.code == 0
    assert [line[:8] for line in ran.lines[1:]] == ["  1   ne", "  2   ol"]
    shown = on_terminal(world, here, "continue", "-r", "--print-path", typed=b"1\n", columns=200)
    assert str(new) in shown
    assert "expected a number" in on_terminal(world, here, "continue", "-r", typed=b"9\n", TERM="dumb")
    assert str(new) not in on_terminal(world, here, "continue", "-r", "--print-path", typed=b"\n", columns=200)


def test_native_blobs_of_another_home_folder_are_found(run: Run, world: World, here: Path) -> None:
    import sessiontree

    with sessiontree.create(here, home=world.home / "st") as session:
        session.append("user", "big " + "x" * 200_000)
        session.append("assistant", "done")
    assert run("open", session.id).code == 0
    assert run("list").lines[1].startswith("~ big xxx")


def test_help_has_examples(run: Run) -> None:
    for command in ("list", "continue", "open"):
        ran = run(command, "--help")
        assert ran.code == 0
        assert ran.out.count(f"sessiontree {command}") >= 2 or command == "continue"
        assert "examples:" in ran.out


def test_hostile_titles_and_paths_cannot_affect_the_terminal(run: Run, world: World, here: Path) -> None:
    lines = pi_lines(IDS[0], str(here), ["\x1b]0;owned\x07\x9b31m\u202e evil \ud83d"], title="x")
    world.put(".pi/agent/sessions/--\x1b[31m--/2026_x\x1b[2J.jsonl", lines)
    for arguments in (("list",), ("list", "--all"), ("open", IDS[0]), ("continue",)):
        ran = run(*arguments)
        assert ran.code == 0, ran.err
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", ran.out + ran.err)
