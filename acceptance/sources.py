"""The sessions under test: those of the corpus, and those that our library, chat and explorations write."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import sessiontree
from acceptance.chats import write_chats
from acceptance.explorations import write_explorations
from sessiontree import Session
from sessiontree.branches.list import list_branches
from sessiontree.branches.merge import merge
from sessiontree.dialects.contract import ReadOptions

Dialect: TypeAlias = Literal["claude", "pi", "omp", "neovate", "native", "codex", "opencode", "gemini", "qwen"]

MERGED_IN: tuple[Dialect, ...] = ("pi", "omp", "claude")
"""Dialects whose programs get a session with branches that we merged in place."""

CORPUS = Path(__file__).parents[1] / "tests" / "corpus"
GOLDENS: tuple[Dialect, ...] = ("codex", "qwen")
FOLDERS: dict[Dialect, str] = {"claude": "claude", "pi": "pi-family", "omp": "pi-family", "neovate": "neovate"}

PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
MODEL = {"api": "anthropic-messages", "provider": "anthropic", "model": "claude-sonnet-4-5"}


@dataclass(frozen=True, slots=True)
class Source:
    """A session file and the dialect it is read in."""

    dialect: Dialect
    path: Path

    @property
    def name(self) -> str:
        return f"{self.dialect} {self.path.stem}"

    def opened(self, reader: Dialect | None = None) -> Session:
        """Open the session; for another program, with messages that a provider replays for its own client."""
        options = ReadOptions(provider_history=reader in (None, self.dialect))
        return sessiontree.open(self.path, dialect=self.dialect, read_options=options)

    def is_healthy(self) -> bool:
        session = self.opened()
        return bool(session.context().messages) and not session.problems


def iter_sources(folder: Path) -> Iterator[Source]:
    """Every session of the corpus, and ours, which are written to `folder`."""
    for dialect, name in FOLDERS.items():
        for path in sorted((CORPUS / name).glob("*.jsonl")):
            if path.stat().st_size:
                yield Source(dialect, path)
    for agent in GOLDENS:
        for expected in sorted((CORPUS.parent / "goldens" / agent).glob("[0-9]*/expected.json")):
            id = json.loads(expected.read_text())["session_id"]
            yield from (Source(agent, path) for path in expected.parent.glob(f"*{id}.jsonl"))
    for write in CONVERSATIONS:
        path = folder / f"{write.__name__}.jsonl"
        with sessiontree.create(cwd="/tmp", path=path, home=folder) as session:
            write(session)
        yield Source("native", path)
    for dialect in MERGED_IN:
        yield Source(dialect, _merged(folder, dialect))
    for path in write_chats(folder / "chats"):
        yield Source("native", path)
    for path in write_explorations(folder / "explorations"):
        yield Source("native", path)


def plain(session: Session) -> None:
    session.append("user", "What is in this folder?")
    answer(session, text("A readme and one test."))
    session.append("user", "Thank you.")
    answer(session, text("You are welcome."))


def tools(session: Session) -> None:
    session.append("user", "Read both files and run the tests.")
    calls = [
        call("toolu_01a", "read", path="a.txt"),
        call("toolu_01b", "read", path="b.txt", limit=3),
        call("toolu_01c", "bash", command="make test", env={"CI": True, "depth": [1, 2, None]}),
    ]
    answer(session, text("All three at once."), *calls)
    result(session, "toolu_01a", "read", text("alpha\n  indented\n"))
    result(session, "toolu_01b", "read", text("no such file: b.txt"), is_error=True)
    result(session, "toolu_01c", "bash", text("3 passed"), text("0 failed"))
    answer(session, text("The second file is missing."), call("toolu_02", "write", path="b.txt", content=""))
    result(session, "toolu_02", "write")
    answer(session, text("Now it is there."))


def thinking(session: Session) -> None:
    session.append("user", "Think first.")
    answer(session, {"type": "thinking", "thinking": "Hm.", "thinkingSignature": "c2lnbmVk"}, text("Thought."))
    session.append("user", "Once more.")
    answer(session, {"type": "thinking", "thinking": "Nobody signed this."}, text("Thought again."))


def languages(session: Session) -> None:
    session.append("user", "请把 README 翻译成中文，谢谢！ 👩‍💻🎉")
    write = call("toolu_zh", "write", path="说明.md", content='「会话」树 🌲\n\ttab \\ and "quotes"')
    answer(session, text("好的：第一行\n第二行"), write)
    result(session, "toolu_zh", "write", text("已写入 说明.md ✅"))
    answer(session, text("完成。 Ünïcödé — “quotes” \u2028 and more"))


def images(session: Session) -> None:
    session.append("user", [text("What is this?"), _image()])
    answer(session, text("Let me open the other one."), call("toolu_img", "read", path="b.png"))
    result(session, "toolu_img", "read", text("a picture"), _image())
    answer(session, text("Both are one pixel."))


def told(session: Session) -> None:
    session.append("user", "I run something myself.")
    session.append(role="bashExecution", command="ls -1", output="a.txt\nb.txt", exitCode=0, cancelled=False)
    session.append(
        role="bashExecution",
        command="cat secret",
        output="hidden",
        exitCode=0,
        cancelled=False,
        excludeFromContext=True,
    )
    session.append({"type": "custom_message", "customType": "note", "content": "Mind the gap.", "display": True})
    answer(session, text("I saw two files."))


def compacted(session: Session) -> None:
    session.append("user", "The first question.")
    answer(session, text("The first answer."))
    kept = session.append("user", "The second question.")
    answer(session, text("Looking."), call("toolu_kept", "read", path="a.txt"))
    result(session, "toolu_kept", "read", text("alpha"))
    answer(session, text("The second answer."))
    session.append(
        {
            "type": "compaction",
            "summary": "## So far\n\nThe first question was asked and answered.",
            "firstKeptEntryId": kept.id,
            "tokensBefore": 1234,
        }
    )
    session.append("user", "The third question.")
    answer(session, text("The third answer."))


def branches(session: Session) -> None:
    start = session.append("user", "Which way?")
    answer(session, text("Left."))
    session.append("user", "Go left.")
    older = answer(session, text("Left it is."))
    other = session.branch(at=start.id)
    other.append(_assistant(text("Right.")))
    other.append("user", "Go right.")
    other.append(_assistant(text("Right it is.")))
    session.move(older)


def compacted_elsewhere(session: Session) -> None:
    """A compaction with kept messages on a branch that was left, and results that another branch does not have."""
    start = session.append("user", "Which way?")
    answer(session, text("Left."))
    kept = session.append("user", "Go left.")
    left = answer(session, text("Looking."), call("toolu_l", "read", path="a"), call("toolu_m", "read", path="b"))
    result(session, "toolu_l", "read", text("alpha"))
    result(session, "toolu_m", "read", text("beta"))
    fields = {"summary": "We went left.", "firstKeptEntryId": kept.id, "tokensBefore": 100}
    session.append({"type": "compaction", **fields})
    session.append("user", "And on.")
    beside = session.branch(at=left)
    beside.append("user", "Stop before the results.")
    other = session.branch(at=start.id)
    other.append({"type": "branch_summary", "fromId": left, "summary": ""})
    other.append(_assistant(text("Right.")))
    session.move(other.append("user", "Go right.").id)


def _merged(folder: Path, dialect: Dialect) -> Path:
    """A session with one branch merged into another twice: as a summary, then verbatim."""
    session = sessiontree.create(cwd="/tmp", in_memory=True)
    start = session.append("user", "Which way?")
    ends = []
    for way in ("left", "right", "back"):
        branch = session.branch(at=start.id)
        branch.append(_assistant(text(f"We decided to go {way}."), call(f"toolu_{way}", "read", path=f"{way}.txt")))
        found = {"toolCallId": f"toolu_{way}", "toolName": "read", "content": [text(f"{way} is open")]}
        branch.append(role="toolResult", **found, isError=False)
        ends.append(branch.append(_assistant(text(f"Went {way}."))).id)
    session.move(ends[0])
    path = folder / dialect / "merged.jsonl"
    path.parent.mkdir(parents=True)
    converted = sessiontree.convert(session, dialect, branch="all", cwd="/tmp")
    path.write_bytes(b"".join(converted.lines))
    with sessiontree.open(path, dialect=dialect, home=folder) as written:
        one, other = (branch.leaf for branch in list_branches(written) if not branch.is_active)
        merge(written, one)
        merge(written, other, how="append")
    return path


def unanswered(session: Session) -> None:
    session.append("user", "Start something long.")
    answer(session, text("Starting."), call("toolu_open", "bash", command="sleep 100"))


CONVERSATIONS: list[Callable[[Session], None]] = [
    plain,
    tools,
    thinking,
    languages,
    images,
    told,
    compacted,
    branches,
    compacted_elsewhere,
    unanswered,
]


def _assistant(*blocks: dict[str, Any]) -> dict[str, Any]:
    stopped = "toolUse" if any(block["type"] == "toolCall" for block in blocks) else "stop"
    cost = dict.fromkeys(("input", "output", "cacheRead", "cacheWrite", "total"), 0)
    usage = {"input": 10, "output": 2, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 12, "cost": cost}
    return {"role": "assistant", **MODEL, "content": list(blocks), "stopReason": stopped, "usage": usage}


def answer(session: Session, *blocks: dict[str, Any]) -> str:
    return session.append(_assistant(*blocks)).id


def result(session: Session, call: str, tool: str, *blocks: dict[str, Any], is_error: bool = False) -> None:
    session.append(role="toolResult", toolCallId=call, toolName=tool, content=list(blocks), isError=is_error)


def text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _image() -> dict[str, Any]:
    return {"type": "image", "data": PICTURE, "mimeType": "image/png"}


def call(id: str, tool: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "toolCall", "id": id, "name": tool, "arguments": arguments}
