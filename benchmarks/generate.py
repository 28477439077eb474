"""Generate a session like one from months of work with a coding agent, only larger.

The same `Shape` always gives the same bytes. Lines are written one by one, so memory use is small for any size. One
factor scales all text lengths; it is adjusted so that the size and the number of entries are reached together.

One writer follows the main path, which is the longest and ends the file. The others write branches from earlier
entries. Two of three are the user's: the leaf moves there, some entries are written, the leaf moves back. The third is
a sub-agent's: its lines alternate with those of the main path.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any, BinaryIO, TypeVar

import msgspec
from msgspec import Struct

from benchmarks import texts
from benchmarks.texts import Texts

Body = tuple[str, dict[str, Any]]
"""The body of an entry: its type and its own fields."""

_MEAN_LINE = 1_480
"""Mean bytes of a line before stretching."""
ShapeT = TypeVar("ShapeT", bound=Struct)

_MODELS = ("swift-4", "swift-4-large", "granite-2")
_EPOCH = datetime(2026, 1, 5, 8, tzinfo=UTC)


class Shape(Struct, frozen=True):
    """How large a generated session is."""

    size: int = 100_000_000
    entries: int = 60_000
    branches: int = 120
    compactions: int = 24
    seed: int = 1


LARGE = Shape(size=1_000_000_000, entries=600_000, branches=1_200, compactions=240)
"""The same session ten times as long."""


def scratch_folder() -> Path:
    """The folder of generated files; never in the repository."""
    chosen = os.environ.get("SESSIONTREE_BENCH_DIR")
    folder = Path(chosen) if chosen else Path(tempfile.gettempdir(), f"sessiontree-bench-{os.getuid()}")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def generated(shape: Shape) -> Path:
    """The session of a shape; generated on first use."""
    return generated_file("session", __file__, shape, write_session)


def generated_file(name: str, recipe: str, shape: ShapeT, write: Callable[[BinaryIO, ShapeT], None]) -> Path:
    """The file that `write` generates for a shape, cached until the recipe changes."""
    source = b"".join(Path(module).read_bytes() for module in (recipe, texts.__file__))
    numbers = "-".join(map(str, msgspec.structs.astuple(shape)))
    path = scratch_folder() / f"{name}-{numbers}-{hashlib.blake2b(source, digest_size=4).hexdigest()}.jsonl"
    if not path.exists():
        unfinished = path.with_suffix(f".{os.getpid()}.tmp")
        with open(unfinished, "wb") as file:
            write(file, shape)
        unfinished.rename(path)
    return path


def write_session(file: BinaryIO, shape: Shape) -> None:
    """Write the session of a shape."""
    out = _Out(file, shape)
    main = _Writer(out, None)
    subagent, subagent_left = main, 0
    lengths = _branch_lengths(shape)
    main_length = shape.entries - sum(lengths) - 2 * sum(not _is_subagent(at) for at in range(shape.branches))
    branch_at = {_spread(at, shape.branches, main_length): at for at in range(shape.branches)}
    compaction_at = {_spread(at, shape.compactions, main_length) for at in range(shape.compactions)}
    for step in range(main_length):
        if subagent_left:
            subagent.speak()
            subagent_left -= 1
        branch = branch_at.get(step)
        if branch is not None and _is_subagent(branch):
            subagent, subagent_left = _Writer(out, out.earlier_entry(main)), lengths[branch]
        elif branch is not None:
            _write_detour(out, main, lengths[branch])
        if step in compaction_at:
            main.says_next(lambda: out.conversation.compaction(main.kept_from()))
        main.speak()


def _write_detour(out: _Out, main: _Writer, length: int) -> None:
    """The user goes back, tries something and returns to the main path."""
    branch = _Writer(out, out.earlier_entry(main))
    out.move_leaf(branch.leaf)
    for _ in range(length):
        branch.speak()
    out.move_leaf(main.leaf)
    summary = out.conversation.branch_summary(branch.leaf)
    main.says_next(lambda: summary)


def _spread(at: int, count: int, length: int) -> int:
    """The position of one of `count` items, spread evenly over a length."""
    return (at + 1) * length // (count + 1)


def _is_subagent(branch: int) -> bool:
    return branch % 3 == 2


def _branch_lengths(shape: Shape) -> list[int]:
    """How many entries each branch has: about a fifth of all entries together."""
    mean = max(2, shape.entries // (5 * max(1, shape.branches)))
    random = Random(shape.seed)
    return [random.randint(mean // 2, mean * 3 // 2) for _ in range(shape.branches)]


class _Out:
    """The file being written: assigns ids and times, and steers its size."""

    def __init__(self, file: BinaryIO, shape: Shape) -> None:
        self._file = file
        self._bytes_left = shape.size
        self._entries_left = shape.entries
        self._count = 0
        self._now = _EPOCH
        self.random = Random(shape.seed)
        self.texts = Texts(self.random)
        self.conversation = _Conversation(self.random, self.texts)
        self._landmarks: list[str] = []
        header = {"type": "session", "version": 3, "id": f"{shape.seed:08x}-0000-7000-8000-000000000000"}
        self._line({**header, "timestamp": self._time(), "cwd": "/home/ada/lattice", "sessiontree": 1})

    def write(self, parent: str | None, body: Body) -> str:
        """Write an entry; returns its id."""
        kind, fields = body
        # An odd factor makes the ids look random and keeps them apart without remembering them.
        id = f"{(self._count * 2_654_435_761 + 12_345) % 2**32:08x}"
        self._count += 1
        self._now += timedelta(milliseconds=self.random.randint(200, 60_000))
        self._line({"type": kind, "id": id, "parentId": parent, "timestamp": self._time(), **fields})
        self._entries_left -= 1
        if self._entries_left > 0:
            self.texts.stretch = min(10.0, max(0.05, self._bytes_left / self._entries_left / _MEAN_LINE))
        if self._count % 50 == 0:
            self._landmarks.append(id)
        return id

    def move_leaf(self, target: str | None) -> None:
        self.write(target, ("leaf", {"targetId": target}))

    def earlier_entry(self, main: _Writer) -> str | None:
        """Where a branch starts: mostly a little back on the main path, at times anywhere in the session."""
        if self._landmarks and self.random.random() < 0.3:
            return self.random.choice(self._landmarks)
        return self.random.choice(main.recent)[0] if main.recent else None

    def _line(self, fields: dict[str, Any]) -> None:
        line = msgspec.json.encode(fields) + b"\n"
        self._file.write(line)
        self._bytes_left -= len(line)

    def _time(self) -> str:
        return self._now.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class _Writer:
    """The writer of one branch."""

    def __init__(self, out: _Out, leaf: str | None) -> None:
        self.leaf = leaf
        self.recent: deque[tuple[str, bool]] = deque(maxlen=300)
        """The last entries of the branch, and whether a kept range may start there."""
        self._out = out
        self._bodies = out.conversation.iter_bodies()
        self._summaries: deque[Callable[[], Body]] = deque()
        self._has_open_call = False

    def speak(self) -> None:
        is_summary = self._summaries and not self._has_open_call
        self.write(self._summaries.popleft()() if is_summary else next(self._bodies))

    def says_next(self, summary: Callable[[], Body]) -> None:
        """Write a summary next, but not between a call and its result: no client does that."""
        self._summaries.append(summary)

    def write(self, body: Body) -> None:
        kind, fields = body
        id = self._out.write(self.leaf, body)
        if kind in ("usage", "custom"):
            return  # bookkeeping is a child of the leaf and does not move it
        self.leaf = id
        self._has_open_call = kind == "message" and fields["message"].get("stopReason") == "toolUse"
        self.recent.append((id, kind == "message" and fields["message"]["role"] != "toolResult"))

    def kept_from(self) -> str | None:
        """The entry a compaction keeps from: 20 to 60 back, and not the result of a call that is summarized."""
        back = self._out.random.randint(20, 60)
        return next((id for id, may_start in list(self.recent)[-back:] if may_start), self.leaf)


class _Conversation:
    """Bodies of entries, with texts of suitable length."""

    def __init__(self, random: Random, texts: Texts) -> None:
        self._random = random
        self._texts = texts
        self._calls = 0

    def iter_bodies(self) -> Iterator[Body]:
        """An endless sequence of turns."""
        while True:
            yield from self._asides()
            yield self._user()
            for _ in range(min(24, int(self._random.expovariate(1 / 6)))):
                call = self._tool_call()
                yield self._assistant([*self._thoughts(), call], "toolUse")
                yield self._tool_result(call)
            yield self._assistant([*self._thoughts(), self._text(900)], "stop")

    def compaction(self, kept: str | None) -> Body:
        fields = {
            "summary": "## Goal\n\n" + self._texts.prose(6_000),
            "firstKeptEntryId": kept,
            "tokensBefore": self._random.randint(120_000, 190_000),
            "details": {"readFiles": self._texts.paths(12), "modifiedFiles": self._texts.paths(6)},
        }
        return "compaction", fields

    def branch_summary(self, left_at: str | None) -> Body:
        return "branch_summary", {"fromId": left_at, "summary": self._texts.prose(1_500)}

    def _asides(self) -> Iterator[Body]:
        """Entries that occur between turns now and then."""
        chance = self._random.random
        if chance() < 0.015:
            yield "model_change", {"provider": "anvil", "modelId": self._random.choice(_MODELS)}
        if chance() < 0.015:
            yield "thinking_level_change", {"thinkingLevel": self._random.choice(["low", "medium", "high"])}
        if chance() < 0.02:
            yield "custom_message", {"customType": "reminder", "content": self._texts.prose(300), "display": False}
        if chance() < 0.05:
            yield "custom", {"customType": "todo", "data": {"open": self._texts.paths(4), "done": 3}}
        if chance() < 0.02:
            yield "usage", {"kind": "title", "provider": "anvil", "model": _MODELS[0], "usage": self._usage()}

    def _user(self) -> Body:
        content = [self._text(250)] if self._random.random() < 0.9 else self._texts.prose(250)
        return "message", {"message": {"role": "user", "content": content, "timestamp": self._milliseconds()}}

    def _assistant(self, content: list[dict[str, Any]], stop_reason: str) -> Body:
        message = {
            "role": "assistant",
            "content": content,
            "api": "anvil-messages",
            "provider": "anvil",
            "model": self._random.choice(_MODELS),
            "usage": self._usage(),
            "stopReason": stop_reason,
            "timestamp": self._milliseconds(),
        }
        return "message", {"message": message}

    def _thoughts(self) -> list[dict[str, Any]]:
        blocks: list[dict[str, Any]] = []
        if self._random.random() < 0.4:
            signature = self._texts.signature(700)
            blocks.append({"type": "thinking", "thinking": self._texts.prose(350), "thinkingSignature": signature})
        if self._random.random() < 0.5:
            blocks.append(self._text(120))
        return blocks

    def _tool_call(self) -> dict[str, Any]:
        self._calls += 1
        path = self._texts.paths(1)[0]
        name, arguments = self._random.choice(
            (
                ("bash", {"command": f'cd lattice && pytest -x "{path}" | tail -n 40', "timeout": 120}),
                ("bash", {"command": f"rg -n 'def \\w+' {path} | sort -k2"}),
                ("read", {"path": path, "offset": self._random.randint(1, 900), "limit": 200}),
                ("edit", {"path": path, "oldText": self._texts.code(250), "newText": self._texts.code(350)}),
                ("write", {"path": path, "content": self._texts.code(1_200)}),
            )
        )
        return {"type": "toolCall", "id": f"call_{self._calls:08d}", "name": name, "arguments": arguments}

    def _tool_result(self, call: dict[str, Any]) -> Body:
        text = self._texts.code if call["name"] == "read" else self._texts.output
        typical = {"read": 4_500, "bash": 2_200, "edit": 300, "write": 80}[call["name"]]
        message = {
            "role": "toolResult",
            "toolCallId": call["id"],
            "toolName": call["name"],
            "content": [{"type": "text", "text": text(typical)}],
            "isError": self._random.random() < 0.06,
            "timestamp": self._milliseconds(),
        }
        return "message", {"message": message}

    def _text(self, typical: int) -> dict[str, Any]:
        return {"type": "text", "text": self._texts.prose(typical)}

    def _usage(self) -> dict[str, Any]:
        read, written, out = (self._random.randint(*bounds) for bounds in ((900, 150_000), (0, 6_000), (20, 3_000)))
        cost = {"input": 0.000012, "output": out * 1.5e-5, "cacheRead": read * 3e-7, "cacheWrite": written * 3.75e-6}
        return {
            "input": 4,
            "output": out,
            "cacheRead": read,
            "cacheWrite": written,
            "totalTokens": 4 + out + read + written,
            "cost": {**cost, "total": sum(cost.values())},
        }

    def _milliseconds(self) -> int:
        return 1_767_600_000_000 + self._calls * 30_000
