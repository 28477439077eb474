"""`grep` and `glob`: matches, skipped files, and malicious patterns."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sessiontree.agent.tools import grep_glob_ls
from sessiontree.agent.tools.gitignore import iter_files, parse_rules
from sessiontree.agent.tools.grep_glob_ls import GLOB, GREP
from sessiontree.agent.tools.grep_worker import compile_glob
from tests.agent.builders import Workplace, wait_for
from tests.builders import examples

RIPGREP = shutil.which("rg")


@pytest.fixture(params=["own", "ripgrep"] if RIPGREP else ["own"])
def either(request: pytest.FixtureRequest, tmp_path: Path) -> Workplace:
    """A workplace with our own `grep`, and one with ripgrep if it is installed."""
    path = os.path.dirname(RIPGREP or "") if request.param == "ripgrep" else ""
    return Workplace(tmp_path, environment={"PATH": path})


def make(folder: Path, *paths: str) -> None:
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(f"needle in {path}\n")


def test_lines_are_found_with_file_and_number(either: Workplace) -> None:
    make(either.project, "a.py", "src/b.py", "src/c.txt")
    (either.project / "src" / "b.py").write_text("x\nNeedle\n")
    assert either.run(GREP, pattern="needle in a").text == "a.py:1: needle in a.py"
    assert (
        either.run(GREP, pattern="needle", ignore_case=True, glob="*.py").text
        == "a.py:1: needle in a.py\nsrc/b.py:2: Needle"
    )
    assert either.run(GREP, pattern="needle", path="src").text == "src/c.txt:1: needle in src/c.txt"
    assert either.run(GREP, pattern="needle", path="a.py").text == "a.py:1: needle in a.py"
    assert either.run(GREP, pattern="a.py", literal=True).text.startswith("a.py:1")
    assert either.run(GREP, pattern="nothing").text == "no line in . matches"


def test_ignored_files_are_not_searched(either: Workplace) -> None:
    make(either.project, "a.py", "build/x.py", "deep/build/y.py", "deep/keep.log", "deep/z.log", ".git/config", "-x.py")
    (either.project / ".gitignore").write_text("build/\n*.log\n!keep.log\n")
    assert sorted(iter_files(str(either.project))) == ["-x.py", ".gitignore", "a.py", "deep/keep.log"]
    found = either.run(GREP, pattern="needle").text
    assert {line.split(":")[0] for line in found.splitlines()} == {"-x.py", "a.py", "deep/keep.log"}
    assert either.run(GREP, pattern="needle", path="build/x.py").text.startswith("build/x.py:1")


def test_secret_files_are_reported_and_not_searched(either: Workplace) -> None:
    make(either.project, "a.py", ".env")
    text = either.run(GREP, pattern="needle").text
    assert "a.py:1" in text
    assert ".env: its name indicates secrets" in text
    assert "needle in .env" not in text


def test_links_binary_files_and_pipes_are_skipped(either: Workplace) -> None:
    make(either.project, "a.py")
    make(either.home, "secret")
    (either.project / "link").symlink_to(either.home / "secret")
    (either.project / "folder").symlink_to(either.home)
    (either.project / "bin").write_bytes(b"needle\0")
    os.mkfifo(either.project / "pipe")
    assert either.run(GREP, pattern="needle").text == "a.py:1: needle in a.py"


def test_limits_are_reported(either: Workplace) -> None:
    (either.project / "a").write_text("x\n" * 500)
    text = either.run(GREP, pattern="x", limit=10).text
    assert text.count("a:") == 10
    assert "more than 10 lines match" in text


def test_a_search_that_takes_too_long_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Workplace(tmp_path, environment={"PATH": ""})
    monkeypatch.setattr(grep_glob_ls, "SECONDS", 1.0)
    (place.project / "a").write_text("a" * 60 + "!\n")
    started = time.monotonic()
    output = place.run(GREP, pattern="(a+)+$")
    assert output.is_error
    assert "was stopped after 1 s" in output.text
    assert time.monotonic() - started < 8


def workers() -> list[str]:
    """Search processes of this process, started from any of its threads."""
    children = " ".join(path.read_text() for path in Path("/proc/self/task").glob("*/children")).split()
    return [pid for pid in children if "grep_worker" in Path(f"/proc/{pid}/cmdline").read_text()]


def test_a_cancelled_search_leaves_no_process(tmp_path: Path) -> None:
    place = Workplace(tmp_path, environment={"PATH": ""})
    (place.project / "a").write_text("a" * 60 + "!\n")

    async def cancelled() -> None:
        task = asyncio.create_task(GREP.run({"pattern": "(a+)+$"}, place.context))
        await asyncio.to_thread(wait_for, workers)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert not workers()


def test_invalid_patterns_and_paths_are_results(either: Workplace) -> None:
    assert "invalid pattern" in either.run(GREP, pattern="(").text
    assert "no such file" in either.run(GREP, pattern="x", path="none").text
    assert "not a folder" in either.run(GLOB, pattern="*", path="/dev/null").text


def test_a_module_in_the_project_is_not_run_by_the_search(place: Workplace) -> None:
    for name in ("re.py", "msgspec.py", "sessiontree/__init__.py"):
        make(place.project, name)
        (place.project / name).write_text(f"open({str(place.project / 'hacked')!r}, 'w')\n")
    place.run(GREP, pattern="open")
    place.run(GLOB, pattern="*.py")
    assert not (place.project / "hacked").exists()


def test_files_are_found_by_pattern_the_newest_first(place: Workplace) -> None:
    make(place.project, "a.py", "src/b.py", "src/deep/c.py", "d.txt")
    for number, name in enumerate(["src/deep/c.py", "a.py", "src/b.py"]):
        os.utime(place.project / name, (number, number))
    assert place.run(GLOB, pattern="*.py").text == "src/b.py\na.py\nsrc/deep/c.py"
    assert place.run(GLOB, pattern="src/*.py").text == "src/b.py"
    assert place.run(GLOB, pattern="src/**/*.py").text == "src/b.py\nsrc/deep/c.py"
    assert place.run(GLOB, pattern="{a,d}.*").text == "d.txt\na.py"
    assert "no file" in place.run(GLOB, pattern="*.rs").text
    assert "more than 1;" in place.run(GLOB, pattern="*", limit=1).text


@pytest.mark.parametrize(
    ("pattern", "fits", "does_not"),
    [
        ("*.py", "a.py", "x/a.py"),
        ("**/*.py", "x/y/a.py", "x/a.pyc"),
        ("a/**", "a/b/c", "b/a"),
        ("[a-c].txt", "b.txt", "d.txt"),
        ("[!a].txt", "b.txt", "a.txt"),
        ("a?c", "abc", "a/c"),
        ("{x,y/z}.md", "y/z.md", "z.md"),
        ("a\\*b", "a*b", "aXb"),
        ("(a)+", "(a)+", "aa"),
    ],
)
def test_patterns(pattern: str, fits: str, does_not: str) -> None:
    assert compile_glob(pattern).match(fits)
    assert not compile_glob(pattern).match(does_not)


@given(st.text("*?[]{}!,\\/ab-^", max_size=12))
@example("[?-,]")
@example("[?--]")
@example("[+--]")
def test_no_pattern_raises_an_error(pattern: str) -> None:
    compile_glob(pattern).match("a/b")
    parse_rules(pattern)


RULES = [
    "*.log", "/top", "dir/", "!keep.log", "a/**/z", "**/mid", "sub/*.txt", "# no", "x y", "[ab].c", "\\!odd",
    "deep/", "*", "!*/", "!*.c", "a/*", "!a/b/", "a/**", "!a/z", "!/top", "mid/**", "/n/", "!n", "**/",
    "n/**/f", "!f", "dir/*", "!dir/f", "trail ", "trail\\ ", "\\#hash", "[!a].c", "?", "!deep/", "**", "a**z",
    "!", "/", "./top", "*/", "sub/**/", "*.c/", "[a-", "foo\\",
]  # fmt: skip
PATHS = ["a.log", "keep.log", "top", "n/top", "dir/f", "n/dir/f", "a/z", "a/b/c/z", "mid/f", "n/mid", "sub/t.txt"]
PATHS += [
    "n/sub/t.txt",
    "x y",
    "a.c",
    "d.c",
    "!odd",
    "deep/keep.log",
    "n/keep.log",
    "plain",
    "n/a.c/in",
    "trail",
    "#hash",
]
IGNORE_FILES = [".gitignore", "a/.gitignore", "n/.gitignore", "n/dir/.gitignore", ".git/info/exclude"]


def check_same_as_git(folder: Path, files: dict[str, list[str]]) -> None:
    """Compare the files we list with those that git lists; `files` are ignore files with their lines."""
    subprocess.run(["git", "init", "-q", folder], check=True)
    make(folder, *PATHS)
    for name, lines in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("".join(f"{line}\n" for line in lines))
    listed = subprocess.run(
        ["git", "-C", folder, "ls-files", "--others", "--exclude-standard", "-z"], capture_output=True, check=True
    )
    assert sorted(iter_files(str(folder))) == sorted(filter(None, listed.stdout.decode().split("\0")))


@pytest.mark.parametrize(
    "files",
    [
        {".gitignore": ["*.log", "!keep.log"]},
        {".gitignore": ["*.log"], "n/.gitignore": ["!keep.log"]},
        {".gitignore": ["!keep.log"], "n/.gitignore": ["*.log"]},
        {".gitignore": ["deep/", "!deep/keep.log"]},
        {".gitignore": ["a/**", "!a/b/"]},
        {".gitignore": ["a/**", "!a/z"]},
        {".gitignore": ["*", "!*/", "!*.c"]},
        {".gitignore": ["/n/", "!n"], "n/.gitignore": ["*"]},
        {".gitignore": ["n/*", "!n/dir"], "n/dir/.gitignore": ["f"]},
        {".gitignore": ["!a.log"], ".git/info/exclude": ["*.log"]},
        {"n/.gitignore": ["/top", "sub/"], "n/dir/.gitignore": ["*"]},
        {".gitignore": ["*.log\r", "dir/\r"]},
    ],
)
def test_nested_files_negation_and_folder_rules_are_applied_as_by_git(
    tmp_path: Path, files: dict[str, list[str]]
) -> None:
    check_same_as_git(tmp_path, files)


@examples(100)
@given(st.dictionaries(st.sampled_from(IGNORE_FILES), st.lists(st.sampled_from(RULES), max_size=5), max_size=3))
def test_the_same_files_are_ignored_as_by_git(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, list[str]]
) -> None:
    check_same_as_git(tmp_path_factory.mktemp("repo"), files)
