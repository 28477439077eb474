"""Generate the sessions of a user of several agents: many files, in the folders where each agent looks.

Mostly Claude Code with sub-agents, then Pi, oh-my-pi with sub-agents, Neovate and native sessions. Sizes have a typical
distribution: many are small, a few are huge. Lines have the types that the agents write, with prose in several
languages, code and tool output. The same `Corpus` always gives the same bytes.

`environment` returns each agent's variables, so that nothing else on the machine is read.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any, BinaryIO

import msgspec
from msgspec import Struct

from benchmarks.generate import scratch_folder

Line = dict[str, Any]

_EPOCH = datetime(2026, 8, 1, 8, tzinfo=UTC)
_MODELS = ("swift-4", "swift-4-large", "granite-2")
_PROJECTS = ("lattice", "tide-tables", "kiln", "orchard-web", "parsnip", "木の家", "ledger", "notes")
_PROSE = (
    "the parser reads tokens until closing bracket and reports where failed test shows that cache keeps stale rows "
    "when two writers append at once so we lock before size check then retry migration adds column index without "
    "rewriting table Änderung größer façade naïve 解析器 失败 测试 通过 缓存 設定 を 読み込む エラー 한국어 검색 "
    "색인 🌿"
)
_WORDS = _PROSE.split()
_TOOLS = ("Read", "Edit", "Bash", "Grep")
_SHARES = (("claude", 0.62), ("pi", 0.12), ("omp", 0.12), ("neovate", 0.07), ("native", 0.07))


class Corpus(Struct, frozen=True):
    """Number of sessions, and their total size."""

    sessions: int = 200
    size: int = 155_000_000
    seed: int = 1


LARGE = Corpus(sessions=10_000, size=2_000_000_000)


def environment(folder: Path) -> dict[str, str]:
    """The variables under which every agent finds its part of a corpus."""
    return {
        "HOME": str(folder),
        "CLAUDE_CONFIG_DIR": str(folder / ".claude"),
        "PI_CODING_AGENT_SESSION_DIR": "",
        "PI_CODING_AGENT_DIR": "",
        "SESSIONTREE_HOME": str(folder / "sessiontree"),
        "XDG_DATA_HOME": str(folder / "data"),
    }


def generated(corpus: Corpus) -> Path:
    """The folder of a corpus, cached until this module changes."""
    recipe = hashlib.blake2b(Path(__file__).read_bytes(), digest_size=4).hexdigest()
    folder = scratch_folder() / f"corpus-{corpus.sessions}-{corpus.size}-{corpus.seed}-{recipe}"
    if not folder.exists():
        unfinished = folder.with_suffix(f".{os.getpid()}.tmp")
        shutil.rmtree(unfinished, ignore_errors=True)
        write_corpus(unfinished, corpus)
        unfinished.rename(folder)
    return folder


def write_corpus(folder: Path, corpus: Corpus) -> None:
    """Write all sessions of a corpus below a folder."""
    random = Random(corpus.seed)
    pool = _pool(random)
    weights = [random.lognormvariate(0, 1.6) for _ in range(corpus.sessions)]
    scale = corpus.size / sum(weights)
    agents = [name for name, _ in _SHARES]
    shares = [share for _, share in _SHARES]
    for number, weight in enumerate(weights):
        agent = random.choices(agents, shares)[0]
        chat = _Conversation(random, pool, number)
        _WRITERS[agent](folder, chat, max(2_000, int(weight * scale)))


class _Conversation:
    """One conversation: agent, folder, time, and its next text."""

    def __init__(self, random: Random, pool: str, number: int) -> None:
        self.random = random
        self._pool = pool
        self.project = random.choice(_PROJECTS)
        self.cwd = f"/home/ada/{self.project}"
        self.now = _EPOCH + timedelta(minutes=random.randint(0, 150_000))
        digits = f"{random.getrandbits(76):019x}"
        self.id = f"{number:08x}-{digits[:4]}-4{digits[4:7]}-8000-{digits[7:]}"
        self._count = 0

    def text(self, mean: int) -> str:
        length = max(8, int(self.random.expovariate(1 / mean)))
        start = self.random.randrange(len(self._pool) - min(length, len(self._pool) // 2))
        return self._pool[start : start + length]

    def uuid(self) -> str:
        self._count += 1
        digits = f"{self.random.getrandbits(64):016x}"
        return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-9000-{self._count:012x}"

    def short(self) -> str:
        self._count += 1
        return f"{(self._count * 2_654_435_761 + 12_345) % 2**32:08x}"

    def time(self) -> str:
        self.now += timedelta(milliseconds=self.random.randint(200, 40_000))
        return self.now.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def stamp(self) -> str:
        return self.now.isoformat(timespec="milliseconds").replace("+00:00", "Z").replace(":", "-").replace(".", "-")

    def is_done(self) -> bool:
        """Whether the turn ends instead of calling another tool."""
        return self.random.random() < 0.18

    def usage(self) -> tuple[int, int, int]:
        return self.random.randint(2, 900), self.random.randint(20, 1_500), self.random.randint(8_000, 150_000)


def _write(file: BinaryIO, lines: Iterator[Line], size: int) -> None:
    written = 0
    for line in lines:
        raw = msgspec.json.encode(line) + b"\n"
        file.write(raw)
        written += len(raw)
        if written >= size:
            return


def _open_new(path: Path) -> BinaryIO:
    path.parent.mkdir(parents=True, exist_ok=True)
    return open(path, "wb")


def _write_claude(folder: Path, chat: _Conversation, size: int) -> None:
    project = (
        folder / ".claude" / "projects" / ("-home-ada-" + "".join(c if c.isascii() else "-" for c in chat.project))
    )
    agents = max(0, int(chat.random.gauss(0.6, 1))) if size > 100_000 else 0
    share = int(size * 0.75) if agents else size
    with _open_new(project / f"{chat.id}.jsonl") as file:
        _write(file, _claude_lines(chat, None), share)
    for _ in range(agents):
        agent = f"a{chat.random.getrandbits(64):016x}"
        with _open_new(project / chat.id / "subagents" / f"agent-{agent}.jsonl") as file:
            _write(file, _claude_lines(chat, agent), (size - share) // agents)


def _claude_lines(chat: _Conversation, agent: str | None) -> Iterator[Line]:
    around: Line = {
        "isSidechain": agent is not None,
        "userType": "external",
        "cwd": chat.cwd,
        "sessionId": chat.id,
        "version": "2.1.325",
        "gitBranch": "main",
    }
    if agent:
        around["agentId"] = agent
    parent: str | None = None
    turn_before: str | None = None

    def line(kind: str, **fields: Any) -> Line:
        nonlocal parent
        uuid = chat.uuid()
        made = {"parentUuid": parent, **around, "type": kind, **fields, "uuid": uuid, "timestamp": chat.time()}
        parent = uuid
        return made

    def assistant(response: str, block: Line, stop: str, used: tuple[int, int, int]) -> Line:
        usage = {
            "input_tokens": used[0],
            "output_tokens": used[1],
            "cache_read_input_tokens": used[2],
            "cache_creation_input_tokens": 0,
        }
        message = {"id": response, "type": "message", "role": "assistant", "model": _MODELS[0], "content": [block]}
        return line("assistant", message={**message, "stop_reason": stop, "usage": usage}, requestId=response)

    while True:
        if agent is None:
            snapshot = {"messageId": chat.uuid(), "trackedFileBackups": {}, "timestamp": chat.time()}
            yield {"type": "file-history-snapshot", "messageId": snapshot["messageId"], "snapshot": snapshot}
        if chat.random.random() < 0.04:  # the user went back and asked again
            parent = turn_before
        turn_before = parent
        prompt = chat.text(260)
        yield line("user", message={"role": "user", "content": prompt})
        while not chat.is_done():
            response, call, used = f"msg_{chat.short()}", f"toolu_{chat.uuid()}", chat.usage()
            thought = {"type": "thinking", "thinking": chat.text(500), "signature": "c2ln" * 60}
            yield assistant(response, thought, "tool_use", used)
            tool = chat.random.choice(_TOOLS)
            asked = {"file_path": f"{chat.cwd}/src/{chat.short()}.py", "command": chat.text(80)}
            yield assistant(response, {"type": "tool_use", "id": call, "name": tool, "input": asked}, "tool_use", used)
            output = chat.text(3_500)
            result = {"type": "tool_result", "tool_use_id": call, "content": output}
            yield line("user", message={"role": "user", "content": [result]}, toolUseResult={"stdout": output})
        response = f"msg_{chat.short()}"
        yield assistant(response, {"type": "text", "text": chat.text(900)}, "end_turn", chat.usage())
        if agent is None:
            yield {"type": "last-prompt", "lastPrompt": prompt[:200], "leafUuid": parent, "sessionId": chat.id}
            if chat.random.random() < 0.3:
                yield {"type": "ai-title", "aiTitle": chat.text(40)[:60], "sessionId": chat.id}


def _shape_lines(chat: _Conversation, extra: Line, parent_session: str | None = None) -> Iterator[Line]:
    """A session in the form that Pi, oh-my-pi and the native format share."""
    header: Line = {
        "type": "session",
        "version": 3,
        "id": chat.id,
        "timestamp": chat.time(),
        "cwd": chat.cwd,
    }
    if parent_session:
        header["parentSession"] = parent_session
    yield {**header, **extra}
    parent: str | None = None

    def line(kind: str, **fields: Any) -> Line:
        nonlocal parent
        id = chat.short()
        made = {"type": kind, "id": id, "parentId": parent, "timestamp": chat.time(), **fields}
        parent = id
        return made

    def message(role: str, content: Any, **fields: Any) -> Line:
        milliseconds = int(chat.now.timestamp() * 1000)
        return line("message", message={"role": role, "content": content, **fields, "timestamp": milliseconds})

    def answer(blocks: list[Line], stop: str) -> Line:
        fresh, output, cached = chat.usage()
        cost = {"input": 0.001, "output": 0.004, "cacheRead": 0.002, "cacheWrite": 0, "total": 0.007}
        usage = {"input": fresh, "output": output, "cacheRead": cached, "cacheWrite": 0, "cost": cost}
        return message("assistant", blocks, provider="anvil", model=_MODELS[1], usage=usage, stopReason=stop)

    yield line("model_change", provider="anvil", modelId=_MODELS[1])
    yield line("thinking_level_change", thinkingLevel="medium")
    while True:
        if chat.random.random() < 0.03:
            yield line("session_info", name=chat.text(30)[:40])
        yield message("user", [{"type": "text", "text": chat.text(260)}])
        while not chat.is_done():
            call = f"call_{chat.short()}"
            asked = {"path": f"src/{chat.short()}.py", "offset": 10}
            thinking = {"type": "thinking", "thinking": chat.text(500)}
            yield answer([thinking, {"type": "toolCall", "id": call, "name": "read", "arguments": asked}], "toolUse")
            output = [{"type": "text", "text": chat.text(3_500)}]
            yield message("toolResult", output, toolCallId=call, toolName="read", isError=False)
        yield answer([{"type": "text", "text": chat.text(900)}], "stop")


def _write_pi(folder: Path, chat: _Conversation, size: int) -> None:
    sessions = folder / ".pi" / "agent" / "sessions" / f"--home-ada-{chat.project}--"
    with _open_new(sessions / f"{chat.stamp()}_{chat.id}.jsonl") as file:
        _write(file, _shape_lines(chat, {}), size)


def _write_omp(folder: Path, chat: _Conversation, size: int) -> None:
    path = folder / ".omp" / "agent" / "sessions" / f"--home-ada-{chat.project}--" / f"{chat.stamp()}_{chat.id}.jsonl"
    with _open_new(path) as file:
        _write(file, _shape_lines(chat, {"title": chat.text(30)[:50], "titleSource": "auto"}), size)
    if chat.random.random() < 0.3:
        with _open_new(path.with_suffix("") / f"agent-{chat.short()}.jsonl") as file:
            _write(file, _shape_lines(chat, {}, str(path)), size // 6)


def _write_native(folder: Path, chat: _Conversation, size: int) -> None:
    name = f"{chat.project}-{hashlib.sha256(chat.cwd.encode()).hexdigest()[:10]}"
    with _open_new(folder / "sessiontree" / "sessions" / name / f"{chat.stamp()}_{chat.id}.jsonl") as file:
        _write(file, _shape_lines(chat, {"sessiontree": 1}), size)


def _write_neovate(folder: Path, chat: _Conversation, size: int) -> None:
    notes = folder / ".neovate" / "data.json"
    if not notes.exists():
        notes.parent.mkdir(parents=True, exist_ok=True)
        notes.write_text(json.dumps({"projects": {f"/home/ada/{name}": {"history": []} for name in _PROJECTS}}))
    project = "-".join(filter(None, "".join(c if c.isascii() and c.isalnum() else "-" for c in chat.cwd).split("-")))
    with _open_new(folder / ".neovate" / "projects" / project.lower() / f"{chat.id[:8]}.jsonl") as file:
        _write(file, _neovate_lines(chat), size)


def _neovate_lines(chat: _Conversation) -> Iterator[Line]:
    yield {
        "type": "config",
        "config": {"approvalMode": "default", "approvalTools": [], "summary": chat.text(40)[:50]},
    }
    parent: str | None = None

    def line(role: str, content: Any, **fields: Any) -> Line:
        nonlocal parent
        uuid = chat.uuid()
        around = {"type": "message", "timestamp": chat.time(), "sessionId": chat.id[:8]}
        made = {"parentUuid": parent, "uuid": uuid, "role": role, "content": content, **fields, **around}
        parent = uuid
        return made

    while True:
        yield line("user", chat.text(260))
        while not chat.is_done():
            call, used = f"call_{chat.short()}", chat.usage()
            usage = {"input_tokens": used[0], "output_tokens": used[1]}
            blocks = [
                {"type": "text", "text": chat.text(300)},
                {"type": "tool_use", "id": call, "name": "read", "input": {}},
            ]
            yield line("assistant", blocks, text="", model=f"anvil/{_MODELS[2]}", usage=usage)
            result = {"llmContent": chat.text(3_500), "isError": False}
            yield line("tool", [{"type": "tool-result", "toolCallId": call, "toolName": "read", "result": result}])
        text = chat.text(900)
        usage = {"input_tokens": chat.usage()[0], "output_tokens": chat.usage()[1]}
        yield line("assistant", [{"type": "text", "text": text}], text=text, model=f"anvil/{_MODELS[2]}", usage=usage)


_WRITERS = {
    "claude": _write_claude,
    "pi": _write_pi,
    "omp": _write_omp,
    "neovate": _write_neovate,
    "native": _write_native,
}


def _pool(random: Random) -> str:
    """Prose, code and output, of which every text is a slice."""
    parts: list[str] = []
    length = 0
    while length < 600_000:
        sentence = " ".join(random.choices(_WORDS, k=random.randint(6, 16)))
        kind = random.random()
        if kind < 0.5:
            part = sentence.capitalize() + ". "
        elif kind < 0.8:
            part = f'    if value["{random.choice(_WORDS)}"] is None:\n        return {random.randint(0, 999)}\n'
        else:
            part = f"src/{random.choice(_WORDS)}.py:{random.randint(1, 900)}: {sentence}\n"
        parts.append(part)
        length += len(part)
    return "".join(parts)
