"""Sessions that `sessiontree chat` writes, with a model server that plays a script.

Input and answers are always the same. They cover everything that a chat can write: parallel, failed and denied calls,
shell commands, checkpoints, settings, a label and a name. Branches are rewound and merged, an answer fails, and the
provider's refusal causes a compaction. Two images, one piped in and one read by a tool, exceed the size above which
other agents move them out of the file.
"""

from __future__ import annotations

import os
import random
import shutil
import struct
import subprocess
import sys
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from sessiontree.models.scripted import ScriptCall, ScriptError, ScriptTurn
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
_CONTINUED = """y
say much
say more
is it too much?
/approve none
/quit
"""
_SUMMARY = "## Goal\n\nWrite the missing file.\n\n## Progress\n\nIt was written, and it stays."
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
        ScriptTurn(text=_SUMMARY),
        ScriptTurn(error=ScriptError("refused")),
        ScriptTurn(thinking="Hm.", text="That went well."),
    ]


def _turns_going_on() -> list[ScriptTurn]:
    # A new server starts at 1 again, but ids of a provider are unique.
    calls = (ScriptCall("read", {"path": "a.txt"}, "toolu_later_1"), ScriptCall("ls", {"path": "."}, "toolu_later_2"))
    return [
        ScriptTurn(text=_LONG),
        ScriptTurn(text=_LONG),
        ScriptTurn(thinking="I shall see.", text="I look once more.", tool_calls=calls),
        ScriptTurn(error=ScriptError("overflow")),
        ScriptTurn(text=_SUMMARY),  # of what is left out
        ScriptTurn(text=_SUMMARY),  # of the start of the turn that is cut
        ScriptTurn(text="It fits now."),
    ]


def _turns_with_images() -> list[ScriptTurn]:
    return [
        ScriptTurn(text="Noise. I look at the other one.", tool_calls=(ScriptCall("read", {"path": "b.png"}),)),
        ScriptTurn(text="Noise as well."),
    ]


def write_chats(folder: Path) -> Iterator[Path]:
    """For each provider: a session, the same continued until its window was full, and a continued one with images."""
    for provider, model in MODELS.items():
        place = folder / provider
        (place / "project").mkdir(parents=True)
        (place / "project" / "a.txt").write_text("alpha\n  indented\n")
        _talk(place, ["--model", model, "--thinking", "low"], _TYPED, _turns())
        yield _copied(place, folder / f"chat-{provider}.jsonl")
        _talk(place, ["--model", model, "--continue"], _CONTINUED, _turns_going_on())
        yield _copied(place, folder / f"chat-{provider}-compacted.jsonl")
        written = _with_images(folder / f"{provider}-images", model)
        yield written.rename(written.with_name(f"chat-{provider}-images.jsonl"))  # its settings need its home


def _with_images(place: Path, model: str) -> Path:
    (place / "project").mkdir(parents=True)
    (place / "project" / "b.png").write_bytes(_noise(2))
    _talk(place, ["--model", model, "-p", "What is this?"], _noise(1), _turns_with_images())
    _talk(place, ["--model", model, "-p", "--continue", "Which one is larger?"], "", [ScriptTurn(text="Neither.")])
    (written,) = (place / "home" / "sessions").rglob("*.jsonl")
    return written


def _noise(seed: int, size: int = 64) -> bytes:
    """A PNG that cannot be made small, the same each time."""
    draw = random.Random(seed)
    rows = b"".join(b"\0" + draw.randbytes(3 * size) for _ in range(size))

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def _talk(place: Path, arguments: Sequence[str], given: str | bytes, turns: Sequence[ScriptTurn]) -> None:
    home = str(place / "home")
    with ModelServer(turns) as server:
        environment = {"PATH": os.defpath, "LANG": "C.UTF-8", "HOME": home, "SESSIONTREE_HOME": home}
        done = subprocess.run(
            [sys.executable, "-m", "sessiontree", "chat", *arguments],
            input=given.encode() if isinstance(given, str) else given,
            cwd=place / "project",
            env={**environment, **server.environment()},
            capture_output=True,
            timeout=SECONDS,
            check=False,
        )
        left = len(turns) - len(server.requests)
    if done.returncode or left:
        raise RuntimeError(f"the chat did not go as planned, turns left: {left}\n{done.stdout!r}\n{done.stderr!r}")


def _copied(place: Path, to: Path) -> Path:
    (written,) = (place / "home" / "sessions").rglob("*.jsonl")
    shutil.copyfile(written, to)
    return to
