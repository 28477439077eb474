"""`--model demo`: a scripted conversation with real tools in a scratch folder. Nothing is sent anywhere."""

from __future__ import annotations

import tempfile
from pathlib import Path

from sessiontree.git import command
from sessiontree.models import ScriptedModel
from sessiontree.models.script import ScriptCall, ScriptTurn

DEMO = "demo"

_WORDS = '''"""Counts words."""


def count(text):
    return len(text.split(" "))
'''
_TEST = """from words import count

assert count("one two") == 2
assert count("one  two") == 2, "two blanks are no word"
print("all tests pass")
"""


def make_scratch() -> str:
    """A new folder with a small program that has a fault; a repository if there is git, so that lanes have copies."""
    folder = Path(tempfile.mkdtemp(prefix="sessiontree-demo-"))
    (folder / "words.py").write_text(_WORDS)
    (folder / "test_words.py").write_text(_TEST)
    who = ("-c", "user.name=demo", "-c", "user.email=demo@localhost", "-c", "commit.gpgsign=false")
    for arguments in (("init", "-q"), ("add", "-A"), (*who, "commit", "-q", "-m", "A program with a fault")):
        command.query(str(folder), *arguments)
    return str(folder)


_WAYS = (
    (
        "a loop",
        "def count(text):\n    words = 0\n    for _ in text.split():\n        words += 1\n    return words\n",
    ),
    ("the length of a list", "def count(text):\n    return len(text.split())\n"),
    ("a pattern", 'import re\n\n\ndef count(text):\n    return len(re.findall(r"\\S+", text))\n'),
    ("a sum", "def count(text):\n    return sum(1 for _ in text.split())\n"),
)


def demo_lane_model(number: int) -> ScriptedModel:
    """Plays one of several ways to the same end, so that there is something to compare."""
    way, program = _WAYS[(number - 1) % len(_WAYS)]
    path = "demo_words.py"
    return ScriptedModel(
        [
            ScriptTurn(
                text=f"This is a demonstration: I am a script. I count words with {way}.",
                tool_calls=(
                    ScriptCall("write", {"path": path, "content": f'"""Counts words with {way}."""\n\n{program}'}),
                ),
                first_delay=0.3 * number,
                delay=0.03,
            ),
            ScriptTurn(
                text="Now I look at what I wrote.", tool_calls=(ScriptCall("read", {"path": path}),), delay=0.03
            ),
            ScriptTurn(text=f"Done: words are counted with {way}, in {path}.", delay=0.03),
            ScriptTurn(text="My script has ended, so this is all I say.", repeat=True),
        ]
    )


def demo_model() -> ScriptedModel:
    """Plays the demonstration, whatever it is told."""
    return ScriptedModel(
        [
            ScriptTurn(
                thinking="This is a demonstration: I am a script. First I look at both files, side by side.",
                text="I am a script, not a model, but my tools are real. I look at the two files here.",
                tool_calls=(
                    ScriptCall("read", {"path": "words.py"}),
                    ScriptCall("read", {"path": "test_words.py"}),
                ),
                delay=0.02,
            ),
            ScriptTurn(
                text="Two blanks in a row count as a word. I change that, and you are asked first.",
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
                    "That was all I had to do. Now try /tree to go back to any message, /rewind to take the change "
                    "of the file back, /fork for a new session, /compact, /usage, !ls for a command of yours, /help."
                ),
                delay=0.02,
            ),
            ScriptTurn(text="My script has ended, so this is all I say. /help lists what you can do.", repeat=True),
        ]
    )
