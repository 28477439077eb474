"""Sessions that `sessiontree chat` itself writes: the real program, and a model server that plays a script.

What is typed and what the model answers is the same each time. Everything that a chat can leave in a session is there:
calls side by side, a failed and a denied one, commands of the user, checkpoints, settings, a label and a name, a branch
that was rewound and one that was merged in, an answer that failed, and a compaction after the provider refused.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from sessiontree.models.script import ScriptCall, ScriptError, ScriptTurn
from sessiontree.testing.model_server import ModelServer

MODELS = {"anthropic": "anthropic:claude-sonnet-4-5", "openai": "openai:gpt-5"}
SECONDS = 120.0

_TYPED = """look at both files
!echo told by the user
!!echo only for the user
write the missing one
y
a
take it back
n it is needed
/label before
/rewind
1
b
now something else: 请翻译
/merge
1
/thinking high
fail once
and once more
/name A chat
/label end
/quit
"""
_GOING_ON = """say much
say more
is it too much?
/approve none
/quit
"""
_LONG = "The lexer reads letter by letter, and that is slow. " * 60


def _turns() -> list[ScriptTurn]:
    read, missing = ScriptCall("read", {"path": "a.txt"}), ScriptCall("read", {"path": "b.txt", "limit": 3})
    write = ScriptCall("write", {"path": "b.txt", "content": "beta\n"})
    return [
        ScriptTurn(thinking="Two files.", text="I look at both.", tool_calls=(read, missing)),
        ScriptTurn(text="The second one is missing."),
        ScriptTurn(text="I write it.", tool_calls=(write,)),
        ScriptTurn(tool_calls=(ScriptCall("bash", {"command": "cat b.txt > c.txt; echo copied; exit 3"}),)),
        ScriptTurn(text="Written and copied."),
        ScriptTurn(text="I take it back.", tool_calls=(ScriptCall("write", {"path": "b.txt", "content": ""}),)),
        ScriptTurn(text="Then it stays."),
        ScriptTurn(text="好的：会话树 🌲"),
        ScriptTurn(error=ScriptError("refused")),
        ScriptTurn(thinking="Hm.", text="That went well."),
    ]


def _turns_going_on() -> list[ScriptTurn]:
    # A new server counts from 1 again, and no provider gives an id twice.
    calls = (ScriptCall("read", {"path": "a.txt"}, "toolu_later_1"), ScriptCall("ls", {"path": "."}, "toolu_later_2"))
    return [
        ScriptTurn(text=_LONG),
        ScriptTurn(text=_LONG),
        ScriptTurn(thinking="I shall see.", text="I look once more.", tool_calls=calls),
        ScriptTurn(error=ScriptError("overflow")),
        ScriptTurn(text="It fits now."),
    ]


def write_chats(folder: Path) -> Iterator[Path]:
    """The sessions: for each provider one as it was left, and the same after it was gone on with until it was full."""
    for provider, model in MODELS.items():
        place = folder / provider
        (place / "project").mkdir(parents=True)
        (place / "project" / "a.txt").write_text("alpha\n  indented\n")
        _talk(place, ["--model", model, "--thinking", "low"], _TYPED, _turns())
        yield _copied(place, folder / f"chat-{provider}.jsonl")
        _talk(place, ["--model", model, "--continue"], _GOING_ON, _turns_going_on())
        yield _copied(place, folder / f"chat-{provider}-compacted.jsonl")


def _talk(place: Path, arguments: Sequence[str], typed: str, turns: Sequence[ScriptTurn]) -> None:
    home = str(place / "home")
    with ModelServer(turns) as server:
        given = {"PATH": os.defpath, "LANG": "C.UTF-8", "HOME": home, "SESSIONTREE_HOME": home}
        done = subprocess.run(
            [sys.executable, "-m", "sessiontree", "chat", *arguments],
            input=typed,
            cwd=place / "project",
            env={**given, **server.environment()},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        left = len(turns) - len(server.requests)
    if done.returncode or left:
        raise RuntimeError(f"the chat did not go as planned, turns left: {left}\n{done.stdout}\n{done.stderr}")


def _copied(place: Path, to: Path) -> Path:
    (written,) = (place / "home" / "sessions").rglob("*.jsonl")
    shutil.copyfile(written, to)
    return to
