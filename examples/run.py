"""What `make run` shows: the sessions of every agent on this machine, or a sample library when there are none.

On a terminal they are shown in the terminal UI, elsewhere as a list.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import sys
from pathlib import Path

from sessiontree.library import Library

ROOT = Path(__file__).parents[1]
SAMPLE = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "sample-library"
FOLDER_VARIABLES = ("SESSIONTREE_", "XDG_", "CLAUDE_", "CODEX_", "GEMINI_", "OMP_", "OPENCODE_", "PI_", "QWEN_")
"""How the names of variables start that may name another folder of sessions than the one in the home folder."""


def main() -> None:
    with Library() as library:
        has_sessions = next(iter(library.everything()), None) is not None
    environment = dict(os.environ)
    if not has_sessions:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(FOLDER_VARIABLES)}
        environment["HOME"] = str(SAMPLE)
        if not SAMPLE.exists():
            subprocess.run(
                [sys.executable, ROOT / "examples" / "sample_library.py", SAMPLE], check=True, stdout=subprocess.DEVNULL
            )
            # Inside a clone they would all belong to its repository, and so to one project.
            for project in (SAMPLE / "projects").iterdir():
                subprocess.run(["git", "init", "-q", project], check=True)
        print("No sessions of any agent were found on this machine; this is a sample library.\n")
    sys.stdout.flush()
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    command = ["ui", "--all"] if is_terminal else ["list", "--all", "--limit", "20"]
    code = subprocess.run([sys.executable, "-m", "sessiontree", *command], env=environment).returncode
    program = Path(sys.executable).parent / "sessiontree"
    with contextlib.suppress(ValueError):  # started from another folder: then the whole path is right
        program = program.relative_to(Path.cwd())
    export = (
        f"  # read the sample library, in this shell only:\n  export HOME={shlex.quote(str(SAMPLE))}\n\n"
        if not has_sessions
        else ""
    )
    print(f"""
Try next, with an id or a title of the list:

{export}  {program} tree SESSION            draw its branches
  {program} search WORDS            search all of them
  {program} resume SESSION --print  show how to resume it
  {program} --help                  list all commands""")
    sys.exit(code)


if __name__ == "__main__":
    main()
