"""Run the `console` blocks of pages on the sample library, so that they show what the program prints.

    make docs                          write the output of every block anew
    python docs/console.py PAGE...     of these pages only

A page takes part if it has a comment `<!-- in: PROJECT -->`, which names the project of the sample library that the
commands run in from there on. A block holds commands after `$ ` with their output below; the blocks of one page run in
order. tests/test_docs.py runs the same commands and compares.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "examples"))

from sample_library import write_library  # noqa: E402 - examples/ has to be on the path first

BLOCK = re.compile(r"(?P<open>```console\n)(?P<body>.*?)(?P<close>```)|<!-- in: (?P<project>\w+) -->", re.DOTALL)
WIDTH = "92"


def pages() -> Iterator[Path]:
    """Every page that takes part."""
    for page in (ROOT / "README.md", ROOT / "README.zh-CN.md", *sorted((ROOT / "docs").rglob("*.md"))):
        if page.exists() and "<!-- in: " in page.read_text(encoding="utf-8"):
            yield page


def refreshed(page: str) -> str:
    """The text of a page with the output that its commands have now."""
    # A name of letters and digits only: agents replace other characters when they name folders after it.
    home = Path(tempfile.gettempdir()).resolve() / f"st{secrets.token_hex(5)}"
    try:
        write_library(home)
        project = ""

        def refresh(found: re.Match[str]) -> str:
            nonlocal project
            if found["project"]:
                project = found["project"]
                return found[0]
            commands = [line for line in found["body"].splitlines() if line.startswith("$ ")]
            shown = "".join(f"{command}\n{run(command[2:], home, home / 'projects' / project)}" for command in commands)
            return f"{found['open']}{shown}{found['close']}"

        return BLOCK.sub(refresh, page)
    finally:
        shutil.rmtree(home)


def run(command: str, home: Path, cwd: Path) -> str:
    """What a shell prints for a command, in a terminal of a fixed width, with `~` for the home folder."""
    bin = str(Path(sys.executable).parent)
    env = {
        "HOME": str(home),
        "PATH": f"{bin}:{os.environ['PATH']}",
        "LANG": "C.UTF-8",
        "COLUMNS": WIDTH,
        "TZ": afternoon(),
    }
    done = subprocess.run(
        ["sh", "-c", command],
        cwd=cwd,
        env=env,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    # Agents name folders after the project's path, with hyphens for slashes.
    shown = done.stdout.replace(str(home), "~").replace(str(home).strip("/").replace("/", "-"), "home-me")
    lines = [line.rstrip() for line in shown.splitlines()]
    return "".join(f"{line}\n" for line in lines)


def afternoon() -> str:
    """A time zone in which it is now between 3 and 4 p.m.

    The sample library is a few hours old. So its times are shown without a date at every hour of the day.
    """
    return f"DOCS{time.gmtime().tm_hour - 15:+d}"


def main() -> None:
    for page in map(Path, sys.argv[1:]) if sys.argv[1:] else pages():
        page.write_text(refreshed(page.read_text(encoding="utf-8")), encoding="utf-8")
        print(page.resolve().relative_to(ROOT))


if __name__ == "__main__":
    main()
