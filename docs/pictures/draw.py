"""Draw the pictures of the documentation: real commands on the sample library, in a real terminal, as SVG.

    make pictures        all of them; needs tmux
    python docs/pictures/draw.py tree list

Each picture is what a tmux pane shows after the keys of its scene were typed.
"""

from __future__ import annotations

import html
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.cells import cell_len
from rich.console import Console
from rich.style import Style
from rich.text import Text

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from examples.sample_library import write_library  # noqa: E402 - the repository's root has to be on the path first

HERE = Path(__file__).parent
LOGIN = '"Fix the flaky login test"'
JSON = '"Add a --json flag"'
LANES = "--prompts ../prompts.txt --model scripted:../model.json --approval yolo"

# name: (columns, rows, project, keys to type; each is typed after the one before has finished)
SCENES: dict[str, tuple[int, int, str, tuple[str, ...]]] = {
    "list": (100, 10, "shop", ("sessiontree list --all",)),
    "tree": (100, 22, "shop", (f"sessiontree tree {LOGIN}",)),
    "branches": (100, 10, "shop", (f"sessiontree branches {LOGIN}",)),
    "diff": (100, 30, "shop", (f"sessiontree diff {LOGIN} c69f6407 1106ac9b",)),
    "show": (100, 30, "tools", ('sessiontree show "Add a --json flag"',)),
    "context": (100, 26, "shop", ('sessiontree context "Move the queue to PostgreSQL"',)),
    "search": (100, 14, "shop", ("sessiontree search clock",)),
    "search-cjk": (100, 10, "shop", ("sessiontree search 完成",)),
    "doctor": (100, 18, "shop", ('sessiontree doctor "Rate limits for the API"',)),
    "repair": (100, 18, "shop", ('sessiontree repair "Rate limits for the API"',)),
    "convert": (100, 22, "shop", (f"sessiontree convert {LOGIN} --to pi",)),
    "stats": (100, 16, "shop", ("sessiontree stats --all",)),
    "info": (100, 24, "shop", (f"sessiontree info {LOGIN}",)),
    "explore": (100, 24, "tools", (f"sessiontree explore start {JSON} {LANES}",)),
    "chat": (90, 26, "tools", ("sessiontree chat --model demo", "What is in this folder?", "/tree")),
}


def draw(name: str, home: Path) -> None:
    columns, rows, project, keys = SCENES[name]
    screen = show(home, home / "projects" / project, columns, rows, keys)
    lines = screen.rstrip("\n").split("\n")
    text = Text.from_ansi("\n".join(lines))
    # Rich gives each run of one style its width in cells. Wide characters become runs of their own by a style that
    # changes nothing else; otherwise a browser's own widths would push the rest of the line out of its columns.
    text.highlight_regex(
        r"[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60]+", Style(blink=False)
    )
    console = Console(record=True, width=columns, file=open(os.devnull, "w"), force_terminal=True)  # noqa: SIM115
    console.print(text, soft_wrap=True)
    svg = console.export_svg(title=keys[0], code_format=_without_web_fonts(), unique_id=f"st-{name}")
    svg = re.sub(r'textLength="([\d.]+)"([^>]*)>([^<]*)<', _with_width_in_cells, svg)
    (HERE / f"{name}.svg").write_text("\n".join(line.rstrip() for line in svg.splitlines()) + "\n", encoding="utf-8")
    print(f"docs/pictures/{name}.svg")


def _with_width_in_cells(found: re.Match[str]) -> str:
    """Rich counts characters where a terminal counts cells, of which a wide character takes two."""
    width, attributes, shown = found.groups()
    content = html.unescape(shown)
    cells = float(width) / max(len(content), 1) * cell_len(content)
    return f'textLength="{cells:g}"{attributes}>{shown}<'


def show(home: Path, cwd: Path, columns: int, rows: int, keys: tuple[str, ...]) -> str:
    """What a terminal of this size shows after the keys, with colors as escape sequences."""
    socket = f"sessiontree-pictures-{os.getpid()}-{time.monotonic_ns()}"  # a server of its own, that ends with it
    tmux = ["tmux", "-L", socket, "-f", os.devnull]
    bin = str(Path(sys.executable).parent)
    env = {"HOME": str(home), "PATH": f"{bin}:{os.environ['PATH']}", "TERM": "xterm-256color", "LANG": "C.UTF-8"}
    start = [*tmux, "new-session", "-d", "-x", str(columns), "-y", str(rows), "-c", str(cwd), "env", "PS1=$ ", "sh"]
    subprocess.run(start, env=env, check=True)
    try:
        subprocess.run([*tmux, "set-option", "-g", "status", "off"], env=env, check=True)
        subprocess.run([*tmux, "resize-window", "-x", str(columns), "-y", str(rows)], env=env, check=True)
        for key in keys:
            subprocess.run([*tmux, "send-keys", "-l", key], env=env, check=True)
            subprocess.run([*tmux, "send-keys", "Enter"], env=env, check=True)
            _wait_until_still(tmux, env)
        return _capture(tmux, env, "-e")
    finally:
        subprocess.run([*tmux, "kill-server"], env=env, check=False)


def _wait_until_still(tmux: list[str], env: dict[str, str]) -> None:
    """Until the screen has not changed for a second; commands here take far less to begin."""
    seen, since, deadline = "", time.monotonic(), time.monotonic() + 60
    while time.monotonic() - since < 2.0 and time.monotonic() < deadline:
        time.sleep(0.1)
        now = _capture(tmux, env)
        if now != seen:
            seen, since = now, time.monotonic()


def _capture(tmux: list[str], env: dict[str, str], *options: str) -> str:
    done = subprocess.run([*tmux, "capture-pane", "-p", *options], env=env, check=True, capture_output=True, text=True)
    screen = done.stdout.rstrip()
    # Without the prompt for the next command.
    return screen.removesuffix("$").rstrip() + "\n"


def _without_web_fonts() -> str:
    """Rich's template without its fonts from the web: a picture of ours loads nothing."""
    before, _, rest = CONSOLE_SVG_FORMAT.partition("    @font-face {{")
    _, _, after = rest.rpartition("font-weight: 700;\n    }}\n")
    return before + after.replace(
        "Fira Code, monospace", "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
    )


def _prepare_lanes(projects: Path) -> None:
    """A repository to work in, three prompts, and a model that answers by a script."""
    tools = projects / "tools"
    (tools / "parser.py").write_text("import argparse\n")
    git = ["git", "-C", str(tools), "-c", "user.name=sample", "-c", "user.email=sample@localhost"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "parser"]):
        subprocess.run([*git, *command], check=True)
    (projects / "prompts.txt").write_text("Use click.\nUse typer.\nKeep argparse.\n")
    call = {"name": "write", "arguments": {"path": "parser.py", "content": "import click\n"}}
    turns = [{"text": "I'll change the parser.", "toolCalls": [call]}, {"text": "Done: the flag works."}]
    (projects / "model.json").write_text(json.dumps({"turns": turns}))


def main() -> None:
    wanted = sys.argv[1:] or list(SCENES)
    with tempfile.TemporaryDirectory(prefix="home-", dir="/tmp") as folder:
        home = Path(folder)
        write_library(home)
        _prepare_lanes(home / "projects")
        for name in wanted:
            draw(name, home)
    print("view them with any browser; commands:", shlex.join(wanted))


if __name__ == "__main__":
    main()
