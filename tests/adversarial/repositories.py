"""Repositories that try to run a program: each way touches a file when it succeeds."""

from __future__ import annotations

import subprocess
from pathlib import Path

QUIET = ("-c", "user.name=Eve", "-c", "user.email=eve@example.org", "-c", "commit.gpgsign=false")


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *QUIET, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.rstrip("\n")


class Trap:
    """A program, and the file that it touches."""

    def __init__(self, folder: Path) -> None:
        self.mark = folder / "program-was-run"
        self.program = folder / "program"
        self.program.write_text(f"#!/bin/sh\ntouch {self.mark}\ncat 2>/dev/null\n")
        self.program.chmod(0o755)

    @property
    def has_run(self) -> bool:
        return self.mark.exists()


def make_project(folder: Path) -> Path:
    """A repository with one commit with a signature, attributes, and a changed file."""
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q", "-b", "main")
    (folder / ".gitattributes").write_text("* filter=evil diff=evil\n")
    (folder / "a.txt").write_text("one\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "first")
    signature = "gpgsig -----BEGIN PGP SIGNATURE-----\n \n iQ==\n -----END PGP SIGNATURE-----"
    head, _, message = git(folder, "cat-file", "commit", "HEAD").partition("\n\n")
    signed = subprocess.run(
        ["git", "-C", folder, "hash-object", "-t", "commit", "-w", "--stdin"],
        input=f"{head}\n{signature}\n\n{message}\n", capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    git(folder, "update-ref", "HEAD", signed)
    (folder / "a.txt").write_text("two\n")
    return folder


SETTINGS: dict[str, tuple[str, ...]] = {
    "fsmonitor": ("core.fsmonitor",),
    "ssh": ("core.sshCommand",),
    "pager": ("core.pager", "pager.log", "pager.status"),
    "editor": ("core.editor", "sequence.editor"),
    "external diff": ("diff.external",),
    "external diff of a driver": ("diff.evil.command",),
    "textconv": ("diff.evil.textconv",),
    "clean filter": ("filter.evil.clean", "filter.evil.smudge"),
    "filter process": ("filter.evil.process",),
    "signature check": ("gpg.program", "gpg.openpgp.program"),
    "credentials": ("credential.helper", "core.askPass"),
    "alternate refs": ("core.alternateRefsCommand",),
}


def set_trap(project: Path, trap: Trap, way: str) -> None:
    """Prepare a repository, as someone who packs it can."""
    hooks = project / ".git" / "hooks"
    if way in SETTINGS:
        for key in SETTINGS[way]:
            git(project, "config", key, str(trap.program))
        if way == "signature check":
            git(project, "config", "log.showSignature", "true")
    elif way == "included settings":
        (project / ".git" / "more").write_text(
            f'[core]\n\tfsmonitor = {trap.program}\n[filter "evil"]\n\tclean = {trap.program}\n'
        )
        git(project, "config", "include.path", "more")
    elif way == "settings of the worktree":
        git(project, "config", "extensions.worktreeConfig", "true")
        git(project, "config", "--worktree", "core.fsmonitor", str(trap.program))
    elif way == "hooks":
        hooks.mkdir(exist_ok=True)
        for name in ("post-index-change", "post-checkout", "reference-transaction", "pre-auto-gc"):
            (hooks / name).symlink_to(trap.program)
    elif way == "submodule":
        inner = project / "inner"
        make_project(inner)
        git(project, "-c", "protocol.file.allow=always", "submodule", "add", "-q", "./inner", "inner")
        (project / ".gitmodules").write_text((project / ".gitmodules").read_text() + "\tignore = none\n")
        for key in ("core.fsmonitor", "filter.evil.clean", "diff.external"):
            git(inner, "config", key, str(trap.program))
        git(project, "config", "diff.submodule", "diff")
    else:
        raise AssertionError(way)


WAYS = (*SETTINGS, "included settings", "settings of the worktree", "hooks", "submodule")
