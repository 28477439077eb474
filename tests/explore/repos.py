"""Repositories with every kind of uncommitted work."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

QUIET = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "commit.gpgsign=false")


def git(folder: Path, *arguments: str) -> str:
    """Run git as a user would, and return its output."""
    done = subprocess.run(["git", "-C", str(folder), *QUIET, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.rstrip("\n")


def user_filter(settings: Path, name: str, smudge: str) -> str:
    """Define a filter in a file of the user's own settings, for GIT_CONFIG_GLOBAL; a repository's own do not run."""
    settings.write_text("")
    for key, value in (("clean", "cat"), ("smudge", smudge), ("required", "true")):
        subprocess.run(["git", "config", "--file", settings, f"filter.{name}.{key}", value], check=True)
    return str(settings)


def make_repository(folder: Path) -> Path:
    """A repository with two commits."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    (folder / ".gitignore").write_text("*.log\nbuild\n")
    (folder / "a.txt").write_text("one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\n")
    (folder / "b.txt").write_text("b\n")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "src").mkdir()
    (folder / "src" / "main.py").write_text("print(1)\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "first")
    (folder / "b.txt").write_text("b, second\n")
    git(folder, "commit", "-q", "-a", "-m", "second")
    return folder


def work_in(folder: Path) -> None:
    """Uncommitted work of every kind."""
    (folder / "a.txt").write_text("ONE\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\n")
    (folder / "b.txt").unlink()
    (folder / "run.sh").chmod(0o755)
    (folder / "staged.txt").write_text("staged\n")
    git(folder, "add", "staged.txt")
    (folder / "staged.txt").write_text("changed since\n")
    (folder / "new" / "deep").mkdir(parents=True)
    (folder / "new" / "deep" / "日本 語.bin").write_bytes(bytes(range(256)))
    (folder / "link").symlink_to("new/deep")
    (folder / "broken").symlink_to("/nowhere/at/all")
    (folder / "trace.log").write_text("ignored\n")
    (folder / "build").mkdir()
    (folder / "build" / "out").write_text("ignored\n")


def contents(folder: Path) -> dict[str, tuple[str, bytes]]:
    """All files of a folder except git's own: whether each is executable or a link, and its content."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if name.split("/")[0] == ".git" or (path.is_dir() and not path.is_symlink()):
            continue
        if path.is_symlink():
            found[name] = ("link", os.readlink(path).encode())
        else:
            found[name] = ("exe" if path.stat().st_mode & 0o100 else "file", path.read_bytes())
    return found


def seen_by_user(folder: Path) -> dict[str, str]:
    """The visible state of the user's repository, which lanes must not change."""
    index = (folder / ".git" / "index").read_bytes().hex()
    return {
        "status": git(folder, "status", "--porcelain=v2", "--branch", "--untracked-files=all"),
        "branches": git(folder, "branch", "--list", "-vv"),
        "stash": git(folder, "stash", "list"),
        "reflog": git(folder, "reflog", "show", "HEAD") + git(folder, "reflog", "show", "main"),
        "staged": git(folder, "diff", "--cached"),
        "index": index,
    }
