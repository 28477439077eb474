"""Print a shell script that completes commands, options, sessions, entries and paths with TAB.

It works for both names, sessiontree and stree. zsh and fish show session titles next to their ids. Sessions come from
the cache of `sessiontree list`.
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

Add the first line to ~/.bashrc or, with zsh instead of bash, to ~/.zshrc after compinit. bash must be 4.3 or newer."""

SHELLS = ("bash", "zsh", "fish")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, nargs="?", metavar="SHELL", help="bash, zsh or fish")
    # Used by the scripts: the words of the line are on stdin, each followed by NUL, unquoted or as typed.
    parser.add_argument("--complete", choices=("plain", "quoted"), help=argparse.SUPPRESS)


def run(options: Options) -> None:
    if options.complete:
        _complete(quoted=options.complete == "quoted")
        return
    if options.shell is None:
        raise UsageError(f"SHELL is missing: `sessiontree completion {'|'.join(SHELLS)}`")
    script = read_script(options.shell)
    if options.json:
        output.print_json({"shell": options.shell, "script": script})
    else:
        output.print_lines(script.splitlines())


def read_script(shell: str) -> str:
    with open(os.path.join(os.path.dirname(__file__), f"script.{shell}"), encoding="utf-8") as file:
        return file.read()


def _complete(*, quoted: bool) -> None:
    from sessiontree.cli.completion.protocol import complete_line
    from sessiontree.cli.completion.quotes import unquote

    words = sys.stdin.buffer.read().decode("utf-8", "surrogateescape").split("\0")[:-1]
    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]  # shells pass it on unchanged in every locale
    output.print_lines(complete_line([unquote(word) for word in words] if quoted else words))
