"""`--model demo`: a scripted conversation with real tools in a scratch folder. Nothing is sent anywhere."""

from __future__ import annotations

import tempfile
from pathlib import Path

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
    """A new folder with a small program that has a fault."""
    folder = Path(tempfile.mkdtemp(prefix="sessiontree-demo-"))
    (folder / "words.py").write_text(_WORDS)
    (folder / "test_words.py").write_text(_TEST)
    return str(folder)


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
