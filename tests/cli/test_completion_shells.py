"""The completion scripts in their shells, with keys pressed on a real terminal. See `tests/conftest.py` for shells that
are not installed: they are named at the end of the run."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import sessiontree
from tests.cli.shells import HERE, Terminal, environment
from tests.cli.test_completion import HOSTILE
from tests.library.world import IDS, World

pytestmark = pytest.mark.slow

HOSTILE_LABEL = "tests; $(touch broken-out) 'x' \"y\""


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def folder(world: World) -> Path:
    """The working folder of the shell."""
    folder = world.folder / "here"
    (folder / "a folder").mkdir(parents=True)
    (folder / "a file.md").touch()
    return folder


@pytest.fixture(params=HERE)
def terminal(request: pytest.FixtureRequest, world: World, folder: Path) -> Iterator[Terminal]:
    opened = Terminal(request.param, world, folder)
    yield opened
    opened.close()


def labelled(world: World) -> str:
    """The id of a session with a label that would do harm."""
    session = sessiontree.create(cwd="/", home=world.environment["SESSIONTREE_HOME"])
    session.label(session.append("user", "hello").id, HOSTILE_LABEL)
    session.close()
    return session.id


def test_commands_options_and_choices_are_completed(terminal: Terminal) -> None:
    terminal.type("stree conv\t", until="convert ")
    terminal.type("x --to cl\t", until="--to claude ")
    terminal.type("--stri\t", until="--strict ")
    terminal.type("--branch=al\t", until="--branch=all ")


def test_files_and_folders_are_completed_for_path_arguments(terminal: Terminal) -> None:
    terminal.type("sessiontree export a\\ fi\t", until=r"a\\ file\.md ")
    terminal.type("--out=a\\ fi\t", until=r"--out=a\\ file\.md ")
    terminal.type("--cwd x --home a\\ \t", until=r"--home a\\ folder/")


def test_sessions_with_hostile_titles_are_listed_and_nothing_breaks_out(
    terminal: Terminal, world: World, folder: Path
) -> None:
    for number, title in enumerate(HOSTILE):
        world.claude(IDS[number], "/work", [title], minute=number)
    terminal.type(f"stree open {IDS[3][:9]}\t", until=rf"{IDS[3]} ")
    terminal.type("\x15stree show 0a00000\t\t", until=IDS[0])
    assert sorted(path.name for path in folder.iterdir()) == ["a file.md", "a folder"]


def test_a_hostile_label_is_inserted_quoted(terminal: Terminal, world: World, folder: Path) -> None:
    id = labelled(world)
    terminal.type(f"stree branch {id} tes\t", until="broken-out.*y")
    terminal.type("\x15", until="")
    terminal.type(f"printf '<%s>' stree >/dev/null; stree show {id} --leaf tes\t", until="broken-out.*y")
    terminal.type("\n", until=r"hello")
    assert sorted(path.name for path in folder.iterdir()) == ["a file.md", "a folder"]


@pytest.mark.parametrize("shell", [shell for shell in HERE if shell != "bash"])
def test_titles_are_shown_next_to_the_ids(shell: str, world: World, folder: Path) -> None:
    world.claude(IDS[0], "/work", ["mend the 解析器"])
    world.pi(IDS[1], "/work", ["write the docs"])
    terminal = Terminal(shell, world, folder)
    shown = terminal.type("stree show 0a\t\t", until=r"(?s)(write the docs.*mend the 解析器|mend the 解析器.*write)")
    terminal.close()
    assert IDS[0] in shown
    assert IDS[1] in shown


@pytest.mark.parametrize("bash", [shell for shell in HERE if shell == "bash"])
class TestTheFunctionOfBash:
    """The function called as readline calls it, with the words as bash splits them."""

    def replies(self, bash: str, world: World, *words: str, line: str = "") -> list[str]:
        line = line or " ".join(words)
        script = "\n".join(
            [
                'eval "$(sessiontree completion bash)"',
                f"COMP_WORDS=({' '.join(map(shlex.quote, words))})",
                f"COMP_LINE={shlex.quote(line)} COMP_POINT={len(line)} COMP_CWORD={len(words) - 1}",
                '_sessiontree; [[ ${#COMPREPLY[@]} -eq 0 ]] || printf "%s\\n" "${COMPREPLY[@]}"',
                "complete -p sessiontree stree >&2",
            ]
        )
        done = subprocess.run(
            [bash, "-u", "-c", script], env=environment(world), capture_output=True, text=True, check=True
        )
        assert done.stderr.count("complete -F _sessiontree") == 2, done.stderr
        return done.stdout.splitlines()

    def test_words_that_bash_splits_are_joined_again(self, bash: str, world: World) -> None:
        assert self.replies(bash, world, "stree", "list", "--sort", "=", "re", line="stree list --sort=re") == [
            "recent"
        ]
        assert len(self.replies(bash, world, "stree", "list", "--sort", "=", line="stree list --sort=")) == 4
        assert self.replies(bash, world, "stree", "list", "--sort", "", line="stree list --sort ")[0] == "recent"

    def test_a_label_is_completed_after_a_colon(self, bash: str, world: World) -> None:
        session = sessiontree.create(cwd="/", home=world.environment["SESSIONTREE_HOME"])
        session.label(session.append("user", "hello").id, "step:two words")
        session.close()
        words = ("stree", "branch", session.id, "step", ":", "tw")
        assert self.replies(bash, world, *words, line=f"stree branch {session.id} step:tw") == ["two\\ words"]

    def test_words_that_cannot_be_quoted_inside_an_open_quote_are_not_offered(self, bash: str, world: World) -> None:
        id = labelled(world)
        assert self.replies(bash, world, "stree", "branch", id, "te") == [
            "tests\\;\\ \\$\\(touch\\ broken-out\\)\\ \\'x\\'\\ \\\"y\\\""
        ]
        assert self.replies(bash, world, "stree", "branch", id, '"te') == []
        assert self.replies(bash, world, "stree", "branch", id, "'te") == []

    def test_text_after_the_cursor_is_ignored(self, bash: str, world: World) -> None:
        script = (
            'eval "$(sessiontree completion bash)"; COMP_WORDS=(stree contXYZ a) COMP_LINE="stree contXYZ a" '
            'COMP_POINT=10 COMP_CWORD=1; _sessiontree; echo "${COMPREPLY[*]}"'
        )
        done = subprocess.run([bash, "-c", script], env=environment(world), capture_output=True, text=True, check=True)
        assert done.stdout == "context continue\n"


@pytest.mark.parametrize("zsh", [shell for shell in HERE if shell == "zsh"])
def test_zsh_without_compinit_gets_a_hint(zsh: str, world: World) -> None:
    command = [zsh, "-f", "-c", 'eval "$(sessiontree completion zsh)"']
    done = subprocess.run(command, env=environment(world), capture_output=True, text=True, check=False)
    assert "autoload -Uz compinit && compinit" in done.stderr
