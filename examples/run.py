"""What `make run` shows: the sessions of every agent on this machine, or a sample library when there are none."""

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


def main() -> None:
    with Library() as library:
        has_sessions = next(iter(library.everything()), None) is not None
    environment = dict(os.environ)
    if not has_sessions:
        environment["HOME"] = str(SAMPLE)
        # Folders that the environment names would lead away from the sample.
        for name in ("SESSIONTREE_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "CLAUDE_CONFIG_DIR", "PI_CODING_AGENT_DIR"):
            environment.pop(name, None)
        if not SAMPLE.exists():
            subprocess.run(
                [sys.executable, ROOT / "examples" / "sample_library.py", SAMPLE], check=True, stdout=subprocess.DEVNULL
            )
        print("No sessions of any agent were found on this machine; this is a sample library.\n")
    sys.stdout.flush()
    code = subprocess.run(
        [sys.executable, "-m", "sessiontree", "list", "--all", "--limit", "20"], env=environment
    ).returncode
    program = Path(sys.executable).parent / "sessiontree"
    with contextlib.suppress(ValueError):  # started from another folder: then the whole path is right
        program = program.relative_to(Path.cwd())
    export = (
        f"  export HOME={shlex.quote(str(SAMPLE))}    # read the sample library, in this shell only\n"
        if not has_sessions
        else ""
    )
    print(f"""
Try next, with an id or a title of the list:

{export}  {program} tree SESSION           draw its branches
  {program} search WORDS           find what was written in any of them
  {program} resume SESSION --print  the command that resumes it in its agent
  {program} --help""")
    sys.exit(code)


if __name__ == "__main__":
    main()
