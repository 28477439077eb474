"""`--model demo`: a scripted conversation with real tools in a temporary folder. Makes no network requests."""

from __future__ import annotations

import tempfile
from pathlib import Path

from sessiontree.compaction.prompts import CARE
from sessiontree.git import command
from sessiontree.models import ScriptedModel
from sessiontree.models.scripted import ScriptCall, ScriptTurn

DEMO = "demo"

_WORDS = '''"""Counts words."""


def count(text):
    return len(text.split(" "))
'''
_TEST = """from words import count

assert count("one two") == 2
assert count("one  two") == 2, "two spaces do not make a word"
print("all tests pass")
"""


def create_demo_project() -> str:
    """Create a folder with a small program that has a bug; as a git repository, so that lanes get worktrees."""
    folder = Path(tempfile.mkdtemp(prefix="sessiontree-demo-"))
    (folder / "words.py").write_text(_WORDS)
    (folder / "test_words.py").write_text(_TEST)
    author = ("-c", "user.name=demo", "-c", "user.email=demo@localhost", "-c", "commit.gpgsign=false")
    for arguments in (("init", "-q"), ("add", "-A"), (*author, "commit", "-q", "-m", "A program with a bug")):
        command.query(str(folder), *arguments)
    return str(folder)


_VARIANTS = (
    (
        "a loop",
        "def count(text):\n    words = 0\n    for _ in text.split():\n        words += 1\n    return words\n",
    ),
    ("the length of a list", "def count(text):\n    return len(text.split())\n"),
    ("a pattern", 'import re\n\n\ndef count(text):\n    return len(re.findall(r"\\S+", text))\n'),
    ("a sum", "def count(text):\n    return sum(1 for _ in text.split())\n"),
)


_SUMMARY = ScriptTurn(
    when=CARE,
    text=(
        "## Goal\n\n- See what sessiontree can do.\n\n## Critical Context\n\n- This is a demonstration: a script wrote "
        "this summary, the same for every conversation. A model would summarize the messages."
    ),
    repeat=True,
)
"""The answer to a request for a summary, of which there may be any number."""


def demo_lane_model(number: int) -> ScriptedModel:
    """A script with one of several solutions, so that lanes differ."""
    method, program = _VARIANTS[(number - 1) % len(_VARIANTS)]
    path = "demo_words.py"
    return ScriptedModel(
        [
            _SUMMARY,
            ScriptTurn(
                text=f"This is a demonstration: I am a script. I count words with {method}.",
                tool_calls=(
                    ScriptCall("write", {"path": path, "content": f'"""Counts words with {method}."""\n\n{program}'}),
                ),
                first_delay=0.3 * number,
                delay=0.03,
            ),
            ScriptTurn(text="Now I check what I wrote.", tool_calls=(ScriptCall("read", {"path": path}),), delay=0.03),
            ScriptTurn(text=f"Done: words are counted with {method}, in {path}.", delay=0.03),
            ScriptTurn(text="My script has ended.", repeat=True),
        ]
    )


def demo_model() -> ScriptedModel:
    """The script of the demonstration. It ignores its input."""
    return ScriptedModel(
        [
            _SUMMARY,
            ScriptTurn(
                thinking="This is a demonstration: I am a script. First I read both files, in parallel.",
                text="I am a script, not a model, but my tools are real. I read the two files here.",
                tool_calls=(
                    ScriptCall("read", {"path": "words.py"}),
                    ScriptCall("read", {"path": "test_words.py"}),
                ),
                delay=0.02,
            ),
            ScriptTurn(
                text="Two spaces in a row count as a word. I fix that; you will be asked first.",
                tool_calls=(
                    ScriptCall("edit", {"path": "words.py", "old_text": 'text.split(" ")', "new_text": "text.split()"}),
                ),
                delay=0.02,
            ),
            ScriptTurn(
                text="Now the tests.",
                tool_calls=(ScriptCall("bash", {"command": "python3 test_words.py"}),),
                delay=0.02,
            ),
            ScriptTurn(
                text=(
                    "Done. Now try /tree to switch to any message, /rewind to revert the change of the file, "
                    "/fork for a new session, /compact, /usage, !ls to run a command, /help."
                ),
                delay=0.02,
            ),
            ScriptTurn(text="My script has ended. /help lists the commands.", repeat=True),
        ]
    )
