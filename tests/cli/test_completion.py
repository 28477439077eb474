"""Completion at the cursor, through the protocol that the shells' scripts use."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sessiontree import plugins
from sessiontree.cli.commands import COMMANDS
from sessiontree.cli.completion.protocol import AGENT_ARGUMENTS, FALLBACKS, complete_line
from sessiontree.cli.completion.quotes import unquote
from sessiontree.cli.parser import build_parsers, find_subcommands
from tests.library.world import IDS, World

HOSTILE = [
    "$(touch broken-out)",
    "`touch broken-out`",
    "'; touch broken-out; '",
    '"; touch broken-out; "',
    "| touch broken-out & > broken-out",
    "\x1b]0;title\x07\x1b[31m red \u202etfel",
    "tab\there\nand a new line\r\x00",
    "%F{red}%{x%} $x ${x} !! * ? [a] ~ #",
    "a:b\\:c=d 解析器",
]

# Values that are the person's own words.
FREE = {
    "TEXT",
    "VALUE",
    "ROLE",
    "NAME",
    "TAG",
    "N",
    "AGE",
    "ID",
    "QUERY",
    "DIALECT=DIR",
    "ADDRESS",
    "LANE",
    "COMMAND",
    "PROMPT",
    "SIZE",
}

Complete = Callable[..., list[str]]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def complete(world: World, monkeypatch: pytest.MonkeyPatch) -> Complete:
    for name, value in world.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(world.folder)
    return lambda *words: list(complete_line(words))


def words_of(lines: list[str]) -> list[str]:
    return [line.split("\t")[0] for line in lines[1:]]


def ask(world: World, *words: str, form: str = "plain") -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "sessiontree", "completion", "--complete", form]
    data = b"".join(os.fsencode(word) + b"\0" for word in words)
    return subprocess.run(command, input=data, env=world.environment, capture_output=True, timeout=60, check=False)


def test_the_first_word_is_a_command_with_its_summary(complete: Complete) -> None:
    assert words_of(complete("")) == list(COMMANDS)
    assert complete("cont") == [
        "nothing",
        "context\tshow the messages a model receives",
        "continue\tfind the session to continue",
    ]
    assert words_of(complete("-")) == ["--help", "--version", "-c", "-r"]
    assert complete("nonsense", "") == ["nothing"]


def test_settings_are_completed_with_descriptions(complete: Complete) -> None:
    assert complete("config", "set", "retry.a") == ["nothing", "retry.attempts\thow often to retry a request"]


def leaf_parsers(command: str) -> dict[tuple[str, ...], argparse.ArgumentParser]:
    """The parser of a command, or those of its subcommands, by the words that select them."""
    _, parsers = build_parsers([command])
    subcommands = find_subcommands(parsers[command])
    return {(command, name): parser for name, parser in subcommands.items()} or {(command,): parsers[command]}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_in_the_help_of_a_command_is_offered(command: str, complete: Complete) -> None:
    for words, parser in leaf_parsers(command).items():
        offered = words_of(complete(*words, "--"))
        for action in parser._actions:
            names = [name for name in action.option_strings if name.startswith("--")]
            assert all((name in offered) == (action.help != argparse.SUPPRESS) for name in names), names


def test_subcommands_and_their_sessions_are_offered(world: World, complete: Complete) -> None:
    session = IDS[0]
    world.claude(session, "/work", ["mend the parser"])
    assert complete("explore", "ke") == ["files", "keep\tmake a lane current and apply its files"]
    assert words_of(complete("explore", "")) == [
        *("start", "resume", "list", "compare", "keep", "merge", "drop", "diff"),
        session,
    ]
    assert words_of(complete("explore", "keep", "")) == [session]
    assert "--no-files" in words_of(complete("explore", "keep", session, "--"))
    assert "--fork-on" not in words_of(complete("explore", "keep", session, "--"))
    assert words_of(complete("explore", session, "--")) == words_of(complete("explore", "start", session, "--"))


@pytest.mark.parametrize("command", COMMANDS)
def test_every_value_of_a_command_is_completed_or_known_to_be_free_text(command: str) -> None:
    known = {*FALLBACKS, "ENTRY", "ITEM", "KEY", *FREE}
    for action in [action for parser in leaf_parsers(command).values() for action in parser._actions]:
        if action.nargs == 0 or action.choices or action.dest in AGENT_ARGUMENTS or action.help == argparse.SUPPRESS:
            continue
        metavars = action.metavar if isinstance(action.metavar, tuple) else (action.metavar or action.dest.upper(),)
        parts = {part for metavar in metavars for part in ([metavar] if metavar in FREE else metavar.split("|"))}
        assert parts <= known, f"{command}: say in completion/protocol.py what fits for {parts - known}, or here: FREE"


def test_options_that_were_given_or_exclude_each_other_are_not_offered_again(complete: Complete) -> None:
    assert "--all" not in words_of(complete("list", "--all", "--"))
    assert "--root" in words_of(complete("list", "--root", "pi=/x", "--"))
    left = words_of(complete("repair", "x.jsonl", "--in-place", "--"))
    assert {"--out", "--dry-run"} & set(left) == set()
    assert words_of(complete("list", "")) == words_of(complete("list", "--"))


def test_choices_are_offered_after_a_space_and_after_an_equals_sign(complete: Complete) -> None:
    assert complete("list", "--sort", "") == ["nothing", "recent", "size", "cost", "messages"]
    assert complete("list", "--sort=s") == ["nothing", "--sort=size"]
    assert complete("export", "x", "--format", "h") == ["nothing", "html"]
    assert complete("convert", "x", "--to", "") == ["nothing", *plugins.names("dialects")]
    assert complete("worktree", "") == ["nothing", "save", "restore", "list"]


def test_paths_are_left_to_the_shell(complete: Complete) -> None:
    assert complete("export", "x", "--out", "") == ["files"]
    assert complete("new", "--cwd", "") == ["folders"]
    assert complete("mv", "--project", "old", "") == ["files"]
    assert complete("backup", "") == ["folders"]
    assert complete("show", "some/where") == ["files"]
    assert complete("new", "--name", "") == ["nothing"]
    assert complete("append", "x", "user", "--", "--a") == ["nothing"]


def test_sessions_of_every_agent_are_offered_with_their_titles_the_newest_first(
    world: World, complete: Complete
) -> None:
    world.claude(IDS[0], "/work", ["mend the parser"])
    world.pi(IDS[1], "/work", ["解析器"], minute=30)
    assert complete("show", "") == ["files", f"{IDS[1]}\t解析器", f"{IDS[0]}\tmend the parser"]
    assert words_of(complete("show", IDS[0][:9])) == [IDS[0]]
    assert words_of(complete("keep", IDS[1], "")) == [IDS[0]]


def test_short_forms_complete_like_continue(complete: Complete) -> None:
    assert words_of(complete("-c", "--")) == words_of(complete("continue", "--"))
    assert "--choose" not in words_of(complete("-r", "--"))


def test_two_files_with_the_same_id_are_offered_as_paths(world: World, complete: Complete) -> None:
    paths = {str(world.claude(IDS[0], "/one")), str(world.claude(IDS[0], "/two"))}
    assert set(words_of(complete("show", ""))) == paths


def test_a_new_session_is_offered_and_a_deleted_one_is_not(world: World, complete: Complete) -> None:
    path = world.claude(IDS[0], "/work")
    assert words_of(complete("show", "")) == [IDS[0]]
    world.claude(IDS[1], "/work", minute=5)
    path.unlink()
    assert words_of(complete("show", "")) == [IDS[1]]


def test_many_unread_files_are_not_read_during_a_completion(world: World, complete: Complete) -> None:
    world.claude(IDS[0], "/work", ["known"])
    gone = world.claude(IDS[1], "/work", ["gone"])
    with world.library() as library:
        library.refresh()
    gone.unlink()
    for id in IDS[10:60]:
        world.claude(id, "/work", ["not read yet"])
    own = list(sessiontree_new(world))
    assert complete("show", "") == ["files", f"{IDS[0]}\tknown", *own]
    with world.library() as library:
        library.refresh()
    assert len(complete("show", "")) == 1 + 1 + 50 + len(own)


def sessiontree_new(world: World) -> list[str]:
    """The id of a new session of our own."""
    import sessiontree

    session = sessiontree.create(cwd="/work", home=world.environment["SESSIONTREE_HOME"], appear="now")
    session.close()
    return [session.id]


def test_entries_and_labels_are_offered_when_a_session_is_on_the_line(world: World, complete: Complete) -> None:
    import sessiontree

    session = sessiontree.create(cwd="/work", home=world.environment["SESSIONTREE_HOME"])
    question = session.append("user", "Which library?")
    reply = session.append("assistant", [{"type": "text", "text": "argparse 吧"}])
    session.label(question.id, "the question")
    session.close()
    offered = ["the question\tWhich library?", f"{reply.id}\targparse 吧", f"{question.id}\tWhich library?"]
    for name in (session.id, session.id[:13], session.location):
        assert complete("branch", name, "") == ["nothing", *offered]
        assert complete("show", name, "--leaf", "") == ["nothing", *offered]
        assert complete("show", name, "--leaf=the") == ["nothing", "--leaf=the question\tWhich library?"]
    assert complete("show", "--leaf", "") == ["nothing"]
    assert complete("show", session.id, "--leaf", reply.id) == ["nothing", offered[1]]


def test_entries_of_another_agents_session_are_found_by_its_id(world: World, complete: Complete) -> None:
    world.pi(IDS[0], "/work", ["first", "second"])
    assert complete("fork", IDS[0], "--at", "u") == ["nothing", "u0000001\tsecond", "u0000000\tfirst"]


def test_archived_items_are_offered(world: World, complete: Complete) -> None:
    path = world.claude(IDS[0], "/work", ["mend the parser"])
    command = [sys.executable, "-m", "sessiontree", "keep", str(path)]
    subprocess.run(command, env=world.environment, check=True, capture_output=True)
    (line,) = complete("restore", "")[1:]
    assert line.endswith("\tmend the parser")


@pytest.mark.parametrize("title", HOSTILE)
def test_a_title_is_one_clean_line_after_its_id(title: str, world: World) -> None:
    world.claude(IDS[0], "/work", [title])
    done = ask(world, "show", "")
    assert (done.returncode, done.stderr) == (0, b"")
    head, line = done.stdout.decode().removesuffix("\n").split("\n")
    assert head == "files"
    id, _, description = line.partition("\t")
    assert id == IDS[0]
    assert description
    assert description.isprintable()
    assert not set("\u202e\x1b\t") & set(description)


def test_words_with_unprintable_characters_are_not_offered(world: World, complete: Complete) -> None:
    import sessiontree

    session = sessiontree.create(cwd="/work", home=world.environment["SESSIONTREE_HOME"])
    for label in ("\x1b[31mred", "two\nlines", "a\ttab", "--yes", "\u202etfel", "fine; really"):
        session.label(session.append("user", "hello").id, label)
    session.flush()
    labels = [word for word in words_of(complete("branch", session.id, "")) if word not in session.ids]
    assert labels == ["fine; really"]


@pytest.mark.parametrize(
    ("typed", "plain"),
    [
        ("plain", "plain"),
        ("'a b'", "a b"),
        ('"a b', "a b"),
        ("a\\ b", "a b"),
        ("'it'\\''s'", "it's"),
        ('"\\$x \\y"', "$x \\y"),
        ("'\\n'", "\\n"),
        ("--out='a b", "--out=a b"),
        ("end\\", "end"),
        ("", ""),
    ],
)
def test_quotes_are_removed_as_a_shell_does(typed: str, plain: str) -> None:
    assert unquote(typed) == plain


def test_words_may_be_quoted_or_invalid_text(world: World) -> None:
    assert ask(world, "list", "'--sort'", '"re', form="quoted").stdout == b"nothing\nrecent\n"
    assert ask(world, "show", "\udcff").stdout == b"files\n"
    assert ask(world).stdout.startswith(b"nothing\nui\t")
    assert ask(world, "branch", "nowhere.jsonl", "").returncode == 1


def test_completion_is_fast_with_a_thousand_sessions(world: World) -> None:
    """CPU time is far below that of reading a thousand files; `make bench` measures it exactly."""
    for number in range(1000):
        world.pi(f"{number:08x}-0000-4000-8000-000000000000", "/work", ["mend the parser"])
    with world.library() as library:
        library.refresh()
    best = 9.0
    for _ in range(5):
        before = os.times()
        done = ask(world, "show", "")
        after = os.times()
        assert done.stdout.count(b"mend the parser") == 1000
        best = min(best, after.children_user + after.children_system - before.children_user - before.children_system)
    assert best < 0.6


def test_the_scripts_are_printed_and_contain_no_commands_or_options(world: World) -> None:
    for shell in ("bash", "zsh", "fish"):
        command = [sys.executable, "-m", "sessiontree", "completion", shell]
        script = subprocess.run(command, env=world.environment, capture_output=True, text=True, check=True).stdout
        assert "sessiontree completion --complete" in script
        assert "stree" in script
        assert not {"convert", "--sort", "worktree", "--leaf"} & set(script.replace("'", " ").split())


def test_without_a_shell_the_error_names_the_next_step(world: World) -> None:
    command = [sys.executable, "-m", "sessiontree", "completion"]
    done = subprocess.run(command, env=world.environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "bash|zsh|fish" in done.stderr
