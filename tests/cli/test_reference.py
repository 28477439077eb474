"""The command line reference is generated from the code, with the same result on every machine."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
from pathlib import Path

from sessiontree.cli import reference
from sessiontree.cli.commands import COMMANDS
from sessiontree.cli.parser import build_parsers, find_subcommands
from sessiontree.cli.reference import GENERATED_BY

render_page = functools.cache(reference.render_page)
PAGE = Path(__file__).parents[2] / "docs" / "cli-reference.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == render_page(), f"{PAGE.name} is out of date: run `{GENERATED_BY}`"


def test_the_page_depends_on_neither_the_terminal_nor_the_environment(tmp_path: Path) -> None:
    for more in ({"COLUMNS": "30", "LANG": "C"}, {"COLUMNS": "300", "SESSIONTREE_HOME": "/x", "PYTHONUTF8": "1"}):
        done = subprocess.run(
            [sys.executable, "-m", "sessiontree.cli.reference"],
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), **more},
            capture_output=True,
            check=True,
        )
        assert done.stdout.decode() == render_page()


def test_every_command_with_every_argument_is_on_the_page() -> None:
    sections = dict(re.findall(r"^### (\w+)\n(.*?)(?=^### |\Z)", render_page(), re.MULTILINE | re.DOTALL))
    assert list(sections) == list(COMMANDS)
    _, parsers = build_parsers(COMMANDS)
    for name, parser in parsers.items():
        assert f"sessiontree {name}" in sections[name]
        subcommands = find_subcommands(parser)
        assert sections[name].count("```sh\n") == 2 + len(subcommands), "usage and examples"
        actions = [action for leaf in subcommands.values() or [parser] for action in leaf._actions]
        shown = {option for action in actions if action.help != "==SUPPRESS==" for option in action.option_strings}
        for action in actions:
            if action.help == "==SUPPRESS==":
                # `explore start --run` is hidden, `explore keep --run` is not.
                hidden = set(action.option_strings) - shown
                assert not any(re.search(f"`{option}[` ]", sections[name]) for option in hidden)
            else:
                assert all(
                    option in sections[name] + render_page().split("## Commands")[0] for option in action.option_strings
                )
            for choice in action.choices or ():
                assert f"`{choice}`" in sections[name] or action.help == "==SUPPRESS=="


def test_defaults_and_exit_codes_are_included() -> None:
    assert "| `recent`, `size`, `cost`, `messages` | `recent` |" in render_page()
    assert "| 3 | damaged input" in render_page()
