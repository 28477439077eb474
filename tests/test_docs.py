"""Documentation stays current: snippets and examples run, and every command, type and problem is documented."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from sessiontree.chat.commands import COMMANDS as CHAT_COMMANDS
from sessiontree.cli.commands import COMMANDS
from sessiontree.core.entries import ENTRY_TYPES
from sessiontree.core.messages import BLOCK_TYPES, MESSAGE_ROLES
from sessiontree.core.tree import TreeProblemKind

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs"))

import console  # noqa: E402 - it is docs/console.py, which has to be on the path first

PAGES = [ROOT / "README.md", ROOT / "README.zh-CN.md", *sorted((ROOT / "docs").rglob("*.md"))]
GENERATED = "cli-reference.md"
ENGLISH_PAGES = [
    *(page for page in PAGES if page.name not in ("README.zh-CN.md", GENERATED)),
    *(ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")),
]
SNIPPETS = [
    pytest.param(code, id=f"{page.name}-{number}")
    for page in PAGES
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL))
]


def run_python(*arguments: str, home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "HOME": str(home), "SESSIONTREE_HOME": str(home)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("code", SNIPPETS)
def test_every_python_snippet_in_the_documentation_runs(code: str, tmp_path: Path) -> None:
    done = run_python("-c", code, home=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("example", sorted(path.name for path in (ROOT / "examples").glob("*.py")))
def test_every_example_runs(example: str, tmp_path: Path) -> None:
    arguments = [str(tmp_path / "sample")] if example in ("run.py", "sample_library.py") else []
    done = run_python(f"examples/{example}", *arguments, home=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout
    # The scripted server answers the second request only if its last message has the result of the call.
    assert not example.endswith("_loop.py") or done.stdout == "It is Monday.\n"


def test_the_demo_draws_a_tree_and_two_contexts_and_suggests_commands(tmp_path: Path) -> None:
    shown = run_python("examples/demo.py", home=tmp_path).stdout
    assert "●─╮" in shown
    assert "◀ here" in shown
    assert shown.count("\n  user        Add a --json flag") == 2
    assert "Try next:" in shown


def test_the_projects_of_the_sample_library_are_apart_inside_a_clone(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    sample = tmp_path / "build" / "sample"
    run_python("examples/run.py", str(sample), home=tmp_path / "empty")
    shop = sample / "projects" / "shop"
    shown = run_python("-m", "sessiontree", "list", "--project", str(shop), "--json", home=sample).stdout
    assert {session["cwd"] for session in json.loads(shown)["sessions"]} == {str(shop)}


def test_without_sessions_make_run_shows_a_sample_library_of_every_agent(tmp_path: Path) -> None:
    shown = run_python("examples/run.py", str(tmp_path / "sample"), home=tmp_path / "empty").stdout
    for agent in ("claude", "pi", "omp", "neovate", "native"):
        assert re.search(rf"\b{agent}\b", shown), agent
    assert "export HOME=" in shown


def test_on_a_terminal_make_run_opens_the_terminal_ui(tmp_path: Path) -> None:
    terminal, inner = pty.openpty()
    program = subprocess.Popen(
        [sys.executable, "examples/run.py", str(tmp_path / "sample")],
        env={**os.environ, "HOME": str(tmp_path), "SESSIONTREE_HOME": str(tmp_path), "TERM": "xterm-256color"},
        cwd=ROOT,
        stdin=inner,
        stdout=inner,
        stderr=inner,
    )
    os.close(inner)
    limit = threading.Timer(60, program.kill)
    limit.start()
    try:
        shown = b""
        while b"Fix the flaky login test" not in shown:
            shown += os.read(terminal, 1 << 16)
        assert b"\x1b[?1049h" in shown  # the alternate screen
        os.write(terminal, b"\x11")  # Ctrl+Q
        while b"Try next" not in shown:
            shown += os.read(terminal, 1 << 16)
        assert program.wait(60) == 0
    finally:
        limit.cancel()
        program.kill()
        program.wait()
        os.close(terminal)


def test_make_run_shows_the_sessions_of_the_machine_where_there_are_any(tmp_path: Path) -> None:
    run_python("examples/sample_library.py", str(tmp_path / "mine"), home=tmp_path)
    shown = run_python("examples/run.py", str(tmp_path / "sample"), home=tmp_path / "mine").stdout
    assert "Fix the flaky login test" in shown
    assert "sample library" not in shown
    assert not (tmp_path / "sample").exists()


def test_every_command_is_documented() -> None:
    page = (ROOT / "docs" / "cli.md").read_text()
    assert re.findall(r"^\| `(\w+) [A-Za-z\[]", page, re.MULTILINE) == list(COMMANDS)


def test_every_type_role_and_block_of_the_native_format_is_documented() -> None:
    page = (ROOT / "docs" / "formats" / "native.md").read_text()
    made_up = {"compactionSummary", "branchSummary"}
    for name in [*ENTRY_TYPES, *(set(MESSAGE_ROLES) - made_up)]:
        assert f"| `{name}` |" in page, name
    for name in BLOCK_TYPES:
        assert f'"type":"{name}"' in page, name


def test_every_kind_of_problem_is_documented() -> None:
    source = (ROOT / "src" / "sessiontree" / "session" / "journal.py").read_text()
    kinds = {
        *re.findall(r'"([a-z0-9]+(?:-[a-z0-9]+)+)"', source),
        *TreeProblemKind.__args__,
        "bom",
        "crlf",
        "undecodable",
    }
    kinds -= {"utf-8"}
    page = (ROOT / "docs" / "how-it-works.md").read_text()
    assert kinds - set(re.findall(r"`([a-z0-9-]+)`", page)) == set()


def test_links_between_pages_are_valid() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


@pytest.mark.parametrize("page", ENGLISH_PAGES, ids=lambda page: page.name)
def test_sentences_are_short(page: Path) -> None:
    """At most 25 words to the next full stop, colon or semicolon. Names in code and items of tables do not count."""
    prose = re.sub(r"```.*?```|<!--.*?-->", "", page.read_text(), flags=re.DOTALL)
    prose = "\n".join(line for line in prose.splitlines() if not line.lstrip().startswith("|"))
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*(?:[*-]|\d+\.) )|\n(?=#)", prose):
        words = re.sub(r"`[^`]*`|\]\([^)]*\)", " ", " ".join(paragraph.split()))
        for sentence in re.split(r"(?<=[.!?:;])[\"*)]*\s+", words):
            assert len(re.findall(r"[\w'’./%-]+", sentence)) <= 25, sentence


@pytest.mark.parametrize("page", ENGLISH_PAGES, ids=lambda page: page.name)
def test_lines_are_at_most_120_columns(page: Path) -> None:
    """Except in code and tables, and for pictures, which are links on a line of their own."""
    prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    assert [line for line in prose.splitlines() if len(line) > 120 and not line.startswith(("|", "!["))] == []


@pytest.mark.parametrize("page", list(console.pages()), ids=lambda page: page.name)
def test_the_commands_of_a_page_print_what_the_page_shows(page: Path) -> None:
    text = page.read_text()
    assert without_chance(console.refreshed(text)) == without_chance(text), "run `make docs` to update the page"


def without_chance(text: str) -> list[str]:
    """Lines with ids, numbers, times and the padding of columns replaced, which differ from run to run."""
    return [re.sub(r"\s+", " ", re.sub(r"[0-9a-f-]{4,}\S*|[\d:.,]+", "#", line)) for line in text.splitlines()]


def test_both_readmes_show_the_same_code_and_commands() -> None:
    english, chinese = (
        re.findall(r"```\w*\n(.*?)```", (ROOT / name).read_text(), re.DOTALL)
        for name in ("README.md", "README.zh-CN.md")
    )
    assert [without_chance(block) for block in english] == [without_chance(block) for block in chinese]
    links = [
        set(re.findall(r"\]\(([^)]+)\)", (ROOT / name).read_text())) - {"README.md", "README.zh-CN.md"}
        for name in ("README.md", "README.zh-CN.md")
    ]
    assert links[0] == links[1]


def test_the_glossary_has_at_most_25_words_and_each_once() -> None:
    words = re.findall(r"^\| ([a-z ]+) \|", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)
    words.remove("word")
    assert len(words) == len(set(words)) <= 25


SEED_ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / "docs" / "seeds.md").read_text().splitlines()
    if re.match(r"\| \d", line)
]


def test_the_page_of_the_seeds_names_modules_and_commands_that_exist() -> None:
    for number, feature, where, *_ in SEED_ROWS:
        for name in re.findall(r"`([^`]+)`", where):
            command = name.removeprefix("sessiontree ")
            if command != name:
                assert command in COMMANDS, (number, feature)
            elif name.startswith("/"):
                assert name[1:] in CHAT_COMMANDS, (number, feature)
            else:
                assert (ROOT / "src" / "sessiontree" / f"{name}.py").is_file(), (number, feature, name)
        assert "`" in where or where in ("planned: terminal UI", "not applicable"), (number, feature)


def test_the_page_of_the_seeds_names_tests_that_exist() -> None:
    for number, feature, where, test, *_ in SEED_ROWS:
        assert test or where == "not applicable", (number, feature)
        for name in re.findall(r"`([^`]+)`", test):
            file, _, function = name.partition("::")
            path = ROOT / "tests" / f"{file}.py"
            assert path.is_file(), (number, feature, file)
            assert not function or f"def test_{function}(" in path.read_text(), (number, feature, name)


def test_the_page_of_the_seeds_lists_every_feature() -> None:
    assert len(SEED_ROWS) == 352
    assert all(len(row) == 5 for row in SEED_ROWS)


@pytest.mark.parametrize("option", ["--help", "-h", "--unknown"])
def test_an_option_of_the_sample_library_is_not_a_folder(option: str, tmp_path: Path) -> None:
    program = ROOT / "examples" / "sample_library.py"
    ran = subprocess.run([sys.executable, program, option], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "python examples/sample_library.py DIR" in ran.stdout + ran.stderr
    assert ran.returncode == (1 if option == "--unknown" else 0)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("page", ["README.md", "README.zh-CN.md", "docs/index.md"])
def test_the_security_page_is_linked(page: str) -> None:
    assert re.search(r"\]\((\.\./)?SECURITY\.md\)", (ROOT / page).read_text())
