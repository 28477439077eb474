"""Build the sdist and the wheel, install the wheel into an empty environment, and use it there as a new user would.

The environment has none of the development tools, so a runtime dependency that only they bring in is noticed here.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
EXPORT = """
import sessiontree
from sessiontree.export import export
session = sessiontree.create(cwd=".", in_memory=True)
session.append("assistant", "**bold**")
page = b"".join(export(session, "html"))
assert b"<strong>bold</strong>" in page and b"sessionGraph" in page
"""
SERVE = """
import re, subprocess, sys, urllib.request
server = subprocess.Popen(["sessiontree", "serve"], stderr=subprocess.PIPE, text=True)
link = re.search("http://\\S+", server.stderr.readline())[0]
cookies = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
page = cookies.open(link).read()
script = cookies.open(link.partition("?")[0] + "static/list.js").read()
server.terminate()
server.wait(30)
assert b"Sessions" in page and b"EventSource" in script
"""
"""Templates, styles and scripts have to be part of the wheel."""


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="sessiontree-wheel-") as scratch:
        dist, empty, home = Path(scratch, "dist"), Path(scratch, "venv"), Path(scratch, "home")
        home.mkdir()
        run([sys.executable, "-m", "hatchling", "build", "-d", str(dist)], cwd=ROOT)
        (wheel,) = dist.glob("*.whl")
        (_sdist,) = dist.glob("*.tar.gz")
        venv.create(empty, with_pip=True)
        python = str(empty / "bin" / "python")
        run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel)], cwd=home)

        # Nothing of the caller's: no sessions, no settings, no Python path that could lead back to the clone.
        env = {"HOME": str(home), "PATH": f"{empty / 'bin'}{os.pathsep}{os.environ['PATH']}", "LANG": "C.UTF-8"}
        for command in (["--version"], ["--help"], ["list"], ["list", "--all", "--json"]):
            run(["sessiontree", *command], cwd=home, env=env)
        run(["stree", "--version"], cwd=home, env=env)
        run([python, "-c", readme_example()], cwd=home, env=env)
        run(["sessiontree", "list", "--all"], cwd=home, env=env)
        run([python, "-c", EXPORT], cwd=home, env=env)
        run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"{wheel}[web]"], cwd=home)
        run([python, "-c", SERVE], cwd=home, env=env)
    print("the wheel works in an empty environment")


def readme_example() -> str:
    """The first Python example of the README."""
    found = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    if found is None:
        sys.exit("README.md has no Python example")
    return found.group(1)


def run(command: list[str], *, cwd: Path, env: dict[str, str] | None = None) -> None:
    print("$", *command[:4], flush=True)
    done = subprocess.run(command, cwd=cwd, env=env, timeout=600, check=False)
    if done.returncode != 0:
        sys.exit(f"{command[0]} exited with {done.returncode}")


if __name__ == "__main__":
    main()
