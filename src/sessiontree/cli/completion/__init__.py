"""Print the script that lets a shell complete commands, options, sessions, entries and paths with the TAB key.

It works for both names, sessiontree and stree. zsh and fish show the title of each session beside its id. Sessions come
from the cache of `sessiontree list`.
"""

from __future__ import annotations

import argparse
import os
import sys

from sessiontree.cli import output
from sessiontree.cli.parser import Options
from sessiontree.errors import UsageError

EXAMPLES = """examples:
  eval "$(sessiontree completion bash)"
  sessiontree completion fish >~/.config/fish/completions/sessiontree.fish

The first line belongs in ~/.bashrc, or with zsh instead of bash in ~/.zshrc, behind compinit. bash has to be 4.3 or
newer."""

SHELLS = ("bash", "zsh", "fish")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, nargs="?", metavar="SHELL", help="bash, zsh or fish")
    # How the scripts ask: the words of the line on stdin, each with a NUL behind it, plain or as they were quoted.
    parser.add_argument("--complete", choices=("plain", "quoted"), help=argparse.SUPPRESS)


def run(options: Options) -> None:
    if options.complete:
        _answer(quoted=options.complete == "quoted")
        return
    if options.shell is None:
        raise UsageError(f"which shell? `sessiontree completion {'|'.join(SHELLS)}`")
    script = read_script(options.shell)
    if options.json:
        output.print_json({"shell": options.shell, "script": script})
    else:
        output.print_lines(script.splitlines())


def read_script(shell: str) -> str:
    with open(os.path.join(os.path.dirname(__file__), f"script.{shell}"), encoding="utf-8") as file:
        return file.read()


def _answer(*, quoted: bool) -> None:
    from sessiontree.cli.completion.protocol import answer
    from sessiontree.cli.completion.quotes import unquoted

    words = sys.stdin.buffer.read().decode("utf-8", "surrogateescape").split("\0")[:-1]
    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]  # what a shell of any locale hands on as it is
    output.print_lines(answer([unquoted(word) for word in words] if quoted else words))
