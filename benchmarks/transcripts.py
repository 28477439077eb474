"""Generate a Claude Code transcript like one from a long day, only larger.

Each block of a response is a separate line with the response's id (a shard). Each result is a child of the shard with
its call, and has the tool's output twice (`toolUseResult`). The next response is a child of the last result, so with
parallel calls the other results are off the path. Metadata lines follow each turn. A boundary, if any, keeps the lines
of the last few responses.
"""

from __future__ import annotations

from collections import deque
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any, BinaryIO

import msgspec
from msgspec import Struct

from benchmarks.generate import generated_file
from benchmarks.texts import Texts

Fields = dict[str, Any]

_EPOCH = datetime(2026, 1, 5, 8, tzinfo=UTC)
_SESSION = "5e551017-0000-4000-8000-000000000001"
_MODEL = "claude-swift-4"


class TranscriptShape(Struct, frozen=True):
    """The size of a transcript, and after which fraction of it there is a compaction boundary, if any."""

    size: int = 100_000_000
    boundary: float | None = None
    seed: int = 1


WITH_BOUNDARY = TranscriptShape(size=300_000_000, boundary=0.98)


def transcript(shape: TranscriptShape) -> Path:
    """The transcript of a shape; generated on first use."""
    return generated_file("claude", __file__, shape, write_transcript)


def write_transcript(file: BinaryIO, shape: TranscriptShape) -> None:
    """Write the transcript of a shape."""
    writer = _Writer(file, shape.seed)
    boundary = shape.size if shape.boundary is None else int(shape.boundary * shape.size)
    while writer.size < boundary:
        writer.turn()
    if shape.boundary is not None:
        writer.compact()
    while writer.size < shape.size:
        writer.turn()


class _Writer:
    """The client, as far as its transcripts show it."""

    def __init__(self, file: BinaryIO, seed: int) -> None:
        self.size = 0
        self._file = file
        self._random = Random(seed)
        self._texts = Texts(self._random)
        self._now = _EPOCH
        self._leaf: str | None = None
        self._recent: deque[str] = deque(maxlen=24)
        self._tools = _Tools(self._random, self._texts)
        self._turns = 0

    def turn(self) -> None:
        """A prompt, some responses that call tools, one that does not, and the metadata lines after them."""
        self._turns += 1
        prompt = self._texts.prose(300)
        self._aside("file-history-snapshot", {"messageId": self._uuid(), "snapshot": {"trackedFileBackups": {}}})
        self._chain("user", {"message": {"role": "user", "content": prompt}, "permissionMode": "default"})
        for _ in range(min(40, int(self._random.expovariate(1 / 8)))):
            self._work()
        self._respond([*self._thoughts(), {"type": "text", "text": self._texts.prose(900)}], "end_turn")
        self._chain("system", {"subtype": "turn_duration", "durationMs": 61_000, "isMeta": False})
        self._aside("last-prompt", {"lastPrompt": prompt[:200], "leafUuid": self._leaf})
        self._aside("mode", {"mode": "normal"})
        self._aside("permission-mode", {"permissionMode": "default"})

    def compact(self) -> None:
        """A boundary that keeps the last lines, and the summary after it."""
        kept, boundary, summary = list(self._recent), self._uuid(), self._uuid()
        about = {
            "trigger": "auto",
            "preTokens": 168_000,
            "postTokens": 31_000,
            "preservedMessages": {"anchorUuid": summary, "uuids": kept, "allUuids": kept},
        }
        before, self._leaf = self._leaf, None
        fields = {"subtype": "compact_boundary", "content": "Conversation compacted", "compactMetadata": about}
        self._chain("system", {**fields, "logicalParentUuid": before}, boundary)
        text = f"This session is being continued from a previous conversation.\n\n{self._texts.prose(8_000)}"
        self._chain("user", {"message": {"role": "user", "content": text}, "isCompactSummary": True}, summary)

    def _work(self) -> None:
        """A response with one call or with several at once, and their results."""
        calls = [self._tools.call() for _ in range(1 if self._random.random() < 0.8 else self._random.randint(2, 4))]
        blocks = [*self._thoughts(), *calls]
        shards = self._respond(blocks, "tool_use")[-len(calls) :]
        answered = list(zip(shards, calls, strict=True))
        self._random.shuffle(answered)
        for shard, call in answered:
            content, copy = self._tools.result(call)
            result = {"type": "tool_result", "tool_use_id": call["id"], "content": content}
            if self._random.random() < 0.06:
                result["is_error"] = True
            self._leaf = shard
            fields = {"message": {"role": "user", "content": [result]}, "toolUseResult": copy}
            self._chain("user", {**fields, "sourceToolAssistantUUID": shard})

    def _thoughts(self) -> list[Fields]:
        blocks: list[Fields] = []
        if self._random.random() < 0.3:
            thinking, signature = self._texts.prose(350), self._texts.signature(700)
            blocks.append({"type": "thinking", "thinking": thinking, "signature": signature})
        if self._random.random() < 0.4:
            blocks.append({"type": "text", "text": self._texts.prose(150)})
        return blocks

    def _respond(self, blocks: list[Fields], stop_reason: str) -> list[str]:
        """Write a response, one line per block; returns the ids of the lines."""
        response, request = f"msg_01{self._random.getrandbits(88):022x}", f"req_01{self._random.getrandbits(88):022x}"
        usage = self._usage()
        shards: list[str] = []
        for index, block in enumerate(blocks):
            message = {
                "model": _MODEL,
                "id": response,
                "type": "message",
                "role": "assistant",
                "content": [block],
                "stop_reason": stop_reason,
                "stop_sequence": None,
                "usage": usage,
            }
            shards.append(self._chain("assistant", {"message": message, "requestId": request, "apiBlockIndex": index}))
        return shards

    def _usage(self) -> Fields:
        written = self._random.randint(0, 6_000)
        return {
            "input_tokens": 4,
            "cache_creation_input_tokens": written,
            "cache_read_input_tokens": self._random.randint(900, 150_000),
            "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": written},
            "output_tokens": self._random.randint(20, 3_000),
            "service_tier": "standard",
        }

    def _chain(self, kind: str, fields: Fields, uuid: str | None = None) -> str:
        """Write a child of the leaf, which becomes the new leaf."""
        self._now += timedelta(milliseconds=self._random.randint(5, 20_000))
        uuid = uuid or self._uuid()
        self._line(
            {
                "parentUuid": self._leaf,
                "isSidechain": False,
                "type": kind,
                **fields,
                "uuid": uuid,
                "timestamp": self._now.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
                "userType": "external",
                "entrypoint": "cli",
                "cwd": "/home/ada/lattice",
                "sessionId": _SESSION,
                "version": "2.1.325",
                "gitBranch": "main",
            }
        )
        self._leaf = uuid
        self._recent.append(uuid)
        return uuid

    def _aside(self, kind: str, fields: Fields) -> None:
        self._line({"type": kind, **fields, "sessionId": _SESSION})

    def _line(self, fields: Fields) -> None:
        self.size += self._file.write(msgspec.json.encode(fields) + b"\n")

    def _uuid(self) -> str:
        digits = f"{self._random.getrandbits(128):032x}"
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


class _Tools:
    """Tool calls and their results: for the model, and again for the screen."""

    def __init__(self, random: Random, texts: Texts) -> None:
        self._random = random
        self._texts = texts

    def call(self) -> Fields:
        (path,) = self._texts.paths(1)
        name, arguments = self._random.choice(
            (
                ("Bash", {"command": f'cd lattice && pytest -x "{path}" | tail -n 40', "description": "Run the tests"}),
                ("Grep", {"pattern": r"def \w+", "path": path, "output_mode": "content"}),
                ("Read", {"file_path": f"/home/ada/lattice/{path}", "limit": 200}),
                ("Edit", {"file_path": path, "old_string": self._texts.code(250), "new_string": self._texts.code(350)}),
            )
        )
        return {
            "type": "tool_use",
            "id": f"toolu_01{self._random.getrandbits(88):022x}",
            "name": name,
            "input": arguments,
        }

    def result(self, call: Fields) -> tuple[Any, Fields]:
        """The result for the model, and the client's own record of it."""
        arguments = call["input"]
        match call["name"]:
            case "Read":
                text = self._texts.code(3_000)
                file = {"filePath": arguments["file_path"], "content": text, "numLines": 80, "startLine": 1}
                return text, {"type": "text", "file": {**file, "totalLines": 412}}
            case "Edit":
                old, new = arguments["old_string"], arguments["new_string"]
                text = f"The file {arguments['file_path']} has been updated.\n{self._texts.code(500)}"
                lines = [f"-{line}" for line in old.split("\n")] + [f"+{line}" for line in new.split("\n")]
                patch = [{"oldStart": 12, "oldLines": 9, "newStart": 12, "newLines": 11, "lines": lines}]
                return text, {**arguments, "originalFile": self._texts.code(900), "structuredPatch": patch}
            case _:
                text = self._texts.output(1_600)
                content = text if self._random.random() < 0.9 else [{"type": "text", "text": text}]
                return content, {"stdout": text, "stderr": "", "interrupted": False, "isImage": False}
