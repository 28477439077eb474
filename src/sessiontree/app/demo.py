"""`--model demo`: a scripted conversation with real tools, which only read. Makes no network requests."""

from __future__ import annotations

import os

from sessiontree.compaction.prompts import CARE
from sessiontree.models import ScriptedModel
from sessiontree.models.scripted import ScriptCall, ScriptTurn

DEMO = "demo"

_LARGEST = 64 * 1024
_TEXT = (".md", ".txt", ".rst", ".toml", ".py", ".js", ".ts", ".go", ".rs", ".java", ".c", ".json", ".yaml", ".yml")


def find_text_file(folder: str) -> str | None:
    """The name of a small text file in a folder for the demonstration to read; the README if there is one."""
    try:
        with os.scandir(folder) as entries:
            names = [
                entry.name
                for entry in entries
                if entry.name.lower().endswith(_TEXT)
                and entry.is_file(follow_symlinks=False)
                and entry.stat(follow_symlinks=False).st_size <= _LARGEST
            ]
    except OSError:
        return None
    return min(
        names,
        key=lambda name: (not name.lower().startswith("readme"), _TEXT.index(_extension(name)), name),
        default=None,
    )


def _extension(name: str) -> str:
    return os.path.splitext(name)[1].lower()


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
"""The answer to requests for a summary. It can be given any number of times."""


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


def demo_model(folder: str | None = None) -> ScriptedModel:
    """The script of the demonstration for a folder (default: the current one). It only reads, and ignores its input."""
    file = find_text_file(os.curdir if folder is None else folder)
    looks = ScriptTurn(
        thinking="This is a demonstration: I am a script. First I look around, with two calls in parallel.",
        text="I am a script, not a model, but my tools are real. I look at this folder, and change nothing.",
        tool_calls=(ScriptCall("ls", {"path": "."}), ScriptCall("glob", {"pattern": "*"})),
        delay=0.02,
    )
    reads = ScriptTurn(text=f"Now I read {file}.", tool_calls=(ScriptCall("read", {"path": file}),), delay=0.02)
    ends = ScriptTurn(
        text=(
            "Done, and nothing was changed. Now try /tree to switch to any message, /fork for a new session, "
            "/compact, /usage, !ls to run a command, /help. `--model provider:name` answers for real."
        ),
        delay=0.02,
    )
    last = ScriptTurn(text="My script has ended. /help lists the commands.", repeat=True)
    return ScriptedModel([_SUMMARY, looks, *([reads] if file is not None else []), ends, last])
