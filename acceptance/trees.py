"""Generated sessions of Pi and oh-my-pi: the same seed gives the same bytes.

They have what real files have and what goes wrong with them: branches, several roots, compactions that keep something
or nothing on active and left branches, summaries, labels, settings, unanswered calls, context edits, missing and later
parents, duplicates, bad lines, old versions, and kills in the middle of a write.

Not generated: cycles of parents, because Pi does not end on those; answers that name no model, which Pi takes for a
change to no model; and for oh-my-pi answers without content, on which it fails.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from acceptance.programs import Name

JsonObject: TypeAlias = dict[str, Any]

SOME_TEXTS = (
    "Look at the parser.",
    "",
    "  two\n\n  lines ",
    "会话树 🌲 and “quotes”",
    "x" * 3_000,
    '{"type":"message","id":"inside","parentId":null}',
    '\u2028 \\ " \t',
)
TOOLS = ("read", "bash", "write", "task", "unheard_of")
LEVELS = ("off", "minimal", "low", "high", "xhigh")
MODELS = (("anthropic", "claude-opus-5"), ("openai", "gpt-5"), ("local", "org/model:tag"))
PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
NOT_AN_ENTRY = (
    *(b"", b"   ", b"null", b"false", b"123", b'"x"', b"[]", b"{}", b"{"),
    *(b'{"type":"message","id":"torn', b"not json at all", b"\xff\xfe", b"\0" * 16),
)


def generate(seed: int) -> bytes:
    """A session file of Pi."""
    return _PiFile(random.Random(f"pi {seed}")).build()


def generate_omp(seed: int) -> bytes:
    """A session file of oh-my-pi."""
    return _OhMyPiFile(random.Random(f"omp {seed}")).build()


GENERATORS: Mapping[Name, Callable[[int], bytes]] = {"pi": generate, "omp": generate_omp}
"""The generator for each program whose trees are generated."""


class _PiFile:
    required = frozenset({"role", "provider", "model"})
    """Fields of messages that are never left out."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        self.version = draw.choices((3, 2, 1), (8, 1, 1))[0]
        self.lines: list[JsonObject] = []
        self.parents: dict[str, str | None] = {}
        self.leaf: str | None = None
        self.open_calls: list[tuple[str, str]] = []
        self.time = 1_770_000_000_000

    # The file

    def build(self) -> bytes:
        steps = self.steps()
        kinds, weights = list(steps), list(steps.values())
        for _ in range(self.draw.randint(1, 40)):
            self.draw.choices(kinds, weights)[0]()
        lines = [json.dumps(line, ensure_ascii=self.chance(0.2)).encode() for line in self.damaged_lines()]
        head = self.head()
        lines = [*head, *lines]
        for _ in range(self.draw.choices((0, 1, 3), (7, 2, 1))[0]):
            lines.insert(self.draw.randint(len(head), len(lines)), self.draw.choice(NOT_AN_ENTRY))
        if self.chance(0.05) and len(lines) > 3:  # two writers, or a write after a torn one: no line end between them
            at = self.draw.randrange(2, len(lines) - 1)
            cut = self.draw.choice((len(lines[at]), self.draw.randint(0, len(lines[at]))))
            lines[at : at + 2] = [lines[at][:cut] + lines[at + 1]]
        end = b"\r\n" if self.chance(0.05) else b"\n"
        data = b"".join(line + end for line in lines)
        return self.killed(data, len(b"".join(head)) + len(end) * len(head)) if self.chance(0.3) else data

    def head(self) -> list[bytes]:
        header: JsonObject = {"type": "session", "version": self.version, "id": "019c0000-0000-7000-8000-000000000001"}
        if self.version == 1:
            del header["version"]
        return [json.dumps({**header, "timestamp": self.now(), "cwd": "/tmp"}).encode()]

    def killed(self, data: bytes, after: int) -> bytes:
        """Bytes up to a random point behind the head: the end of a line, or the middle of one."""
        if self.chance(0.5):
            ends = [at + 1 for at, byte in enumerate(data) if byte == 10 and at + 1 >= after]
            return data[: self.draw.choice(ends)]
        return data[: self.draw.randint(after, len(data))]

    def damaged_lines(self) -> list[JsonObject]:
        """The lines, some of them twice, lost, moved to a later position, or with another parent."""
        lines = list(self.lines)
        if self.version == 1:
            return lines
        for _ in range(self.draw.choices((0, 1, 2), (7, 2, 1))[0]):
            if not lines:
                break
            at = self.draw.randrange(len(lines))
            match self.draw.randrange(5):
                case 0:
                    del lines[at]
                case 1:
                    lines.insert(self.draw.randint(at, len(lines)), lines[at])
                case 2:  # the same id again, with other content
                    again = {**lines[at], "type": "message", "message": self.user()}
                    lines.insert(self.draw.randint(at, len(lines)), again)
                case 3:
                    lines.insert(self.draw.randint(at, len(lines)), lines.pop(at))
                case _:
                    lines[at] = {**lines[at], "parentId": self.draw.choice(("nowhere", None, ""))}
        return lines

    # The steps

    def steps(self) -> dict[Callable[[], None], float]:
        moves = {} if self.version == 1 else {self.move: 3.0, self.new_root: 0.3}
        return {
            **moves,
            self.prompt: 6,
            self.answer: 8,
            self.results: 6,
            self.compaction: 2,
            self.branch_summary: 1,
            self.label: 1,
            self.name: 0.5,
            self.model: 1,
            self.thinking_level: 1,
            self.custom: 1,
            self.custom_message: 1,
            self.usage_record: 0.5,
            self.context_edit: 2,
            self.shell: 1,
            self.system: 1,
            self.unknown: 0.5,
        }

    def append(self, kind: str, /, **fields: Any) -> str:
        id = f"{self.draw.getrandbits(32):08x}"
        line = {"type": kind, "id": id, "parentId": self.leaf, "timestamp": self.now(), **fields}
        if self.version == 1:
            del line["id"], line["parentId"]
        self.lines.append(line)
        self.parents[id] = self.leaf
        self.leaf = id
        return id

    def message(self, **message: Any) -> str:
        if self.chance(0.04):  # an extension, or an older version, that left a field out
            field = self.draw.choice([name for name in message if name not in self.required])
            message = {name: value for name, value in message.items() if name != field}
            message |= {field: None} if self.chance(0.3) else {}
        return self.append("message", message=message)

    def move(self) -> None:
        if self.parents:
            self.leaf = self.draw.choice(list(self.parents))

    def new_root(self) -> None:
        self.leaf = None

    def prompt(self) -> None:
        self.message(**self.user())

    def user(self) -> JsonObject:
        role = "hookMessage" if self.version < 3 and self.chance(0.2) else "user"
        own = {"customType": "note", "display": True} if role == "hookMessage" else {}
        return {"role": role, **own, "content": self.content(), "timestamp": self.tick()}

    def answer(self) -> None:
        blocks = [self.draw.choice((self.text_block, self.thinking_block))() for _ in range(self.draw.randint(0, 2))]
        calls = [
            {"type": "toolCall", "id": f"call_{self.draw.getrandbits(24):x}", "name": name, "arguments": arguments}
            for name in self.draw.choices(TOOLS, k=self.draw.choices((0, 1, 2, 3), (4, 3, 2, 1))[0])
            for arguments in [{"path": self.text(), "depth": [1, None, {"deep": True}]}]
        ]
        self.open_calls += [(str(call["id"]), str(call["name"])) for call in calls]
        self.message(**self.assistant([*blocks, *calls], "toolUse" if calls else "stop"))

    def assistant(self, blocks: Sequence[JsonObject], stopped: str) -> JsonObject:
        provider, model = self.draw.choice(MODELS)
        if self.chance(0.15):
            stopped = self.draw.choice(("error", "aborted", "length"))
        return {
            "role": "assistant",
            "content": list(blocks),
            "api": "anthropic-messages",
            "provider": provider,
            "model": model,
            "usage": self.usage(),
            "stopReason": stopped,
            **({"errorMessage": "overloaded"} if stopped == "error" else {}),
            "timestamp": self.tick(),
        }

    def results(self) -> None:
        """Results of the open calls: of all, of some, or of a call that was never made."""
        answered = [call for call in self.open_calls if self.chance(0.85)]
        if self.chance(0.05):
            answered.append(("call_never", "read"))
        if self.chance(0.2):
            answered.reverse()
        self.open_calls = []
        for call, tool in answered:
            blocks = [self.text_block() for _ in range(self.draw.randint(0, 2))]
            result = {"toolCallId": call, "toolName": tool, "content": blocks, "isError": self.chance(0.2)}
            self.message(role="toolResult", **result, timestamp=self.tick())

    def compaction(self) -> None:
        path = self.path()
        kept = [self.draw.choice(path)] if path else []
        others = [*self.parents, "nowhere", None]
        fields: JsonObject = {"summary": self.text(), "tokensBefore": self.draw.randint(0, 100_000)}
        if self.version == 1:
            fields["firstKeptEntryIndex"] = self.draw.randint(0, len(self.lines) + 2)
        else:
            fields["firstKeptEntryId"] = self.draw.choice(kept * 4 * len(others) + others)
        if self.chance(0.3):
            fields["systemMessage"] = self.system_message()
        id = self.append("compaction", **fields, **self.by_extension())
        if self.version > 1 and self.chance(0.1):
            self.lines[-1]["firstKeptEntryId"] = id

    def branch_summary(self) -> None:
        left = self.leaf or "root"
        if self.version > 1:
            self.move()
        self.append("branch_summary", fromId=left, summary=self.text(), **self.by_extension())

    def by_extension(self) -> JsonObject:
        return {"fromHook": self.chance(0.5)} if self.chance(0.5) else {}

    def label(self) -> None:
        label = {"label": self.text()} if self.chance(0.7) else {}
        self.append("label", targetId=self.target(), **label)

    def name(self) -> None:
        self.append("session_info", name=self.text())

    def model(self) -> None:
        provider, model = self.draw.choice(MODELS)
        self.append("model_change", provider=provider, modelId=model)

    def thinking_level(self) -> None:
        self.append("thinking_level_change", thinkingLevel=self.draw.choice(LEVELS))

    def custom(self) -> None:
        self.append("custom", customType="state", data={"n": self.draw.randint(0, 9)})

    def custom_message(self) -> None:
        fields = {"customType": "note", "content": self.content(), "display": self.chance(0.5)}
        self.append("custom_message", **fields)

    def usage_record(self) -> None:
        self.append("usage", kind="cache_warm", provider="anthropic", model="m", usage=self.usage())

    def context_edit(self) -> None:
        replacement = None if self.chance(0.4) else {"content": self.content()}
        self.append("context_edit", targetId=self.target(), replacement=replacement)

    def shell(self) -> None:
        hidden = {"excludeFromContext": True} if self.chance(0.3) else {}
        ran = {"command": "ls", "output": self.text(), "exitCode": 0, "cancelled": False, "truncated": False}
        self.message(role="bashExecution", **ran, **hidden, timestamp=self.tick())

    def system(self) -> None:
        self.message(**self.system_message())

    def system_message(self) -> JsonObject:
        tools = {"toolsAdded": [{"name": "read", "description": "", "parameters": {}}]} if self.chance(0.3) else {}
        sections = {"sections": {"rules": self.draw.choice(("be brief", None))}} if self.chance(0.3) else {}
        return {"role": "system", "content": self.text(), **sections, **tools, "timestamp": self.tick()}

    def unknown(self) -> None:
        self.append("from_the_future", content="unknown", message={"role": "user", "content": "not a message"})

    # Parts

    def chance(self, probability: float) -> bool:
        return self.draw.random() < probability

    def tick(self) -> int:
        self.time += self.draw.randint(0, 5_000)
        return self.time

    def now(self) -> str:
        seconds, milliseconds = divmod(self.tick(), 1000)
        minutes, second = divmod(seconds % 3600, 60)
        return f"2026-02-16T10:{minutes:02}:{second:02}.{milliseconds:03}Z"

    def text(self) -> str:
        chosen = self.draw.choice(SOME_TEXTS)
        return f"{chosen} {self.draw.getrandbits(16):x}" if chosen and self.chance(0.8) else chosen

    def text_block(self) -> JsonObject:
        return {"type": "text", "text": self.text()}

    def thinking_block(self) -> JsonObject:
        signed = {"thinkingSignature": "c2lnbmVk"} if self.chance(0.5) else {}
        return {"type": "thinking", "thinking": self.text(), **signed}

    def content(self) -> str | list[JsonObject]:
        if self.chance(0.5):
            return self.text()
        blocks = [self.text_block() for _ in range(self.draw.randint(0, 2))]
        return [*blocks, {"type": "image", "data": PICTURE, "mimeType": "image/png"}] if self.chance(0.3) else blocks

    def usage(self) -> JsonObject:
        cost = dict.fromkeys(("input", "output", "cacheRead", "cacheWrite", "total"), 0.25)
        return {"input": 10, "output": 2, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 12, "cost": cost}

    def path(self) -> list[str]:
        path: list[str] = []
        node = self.leaf
        while node is not None:
            path.append(node)
            node = self.parents[node]
        return path

    def target(self) -> str:
        path = self.path()
        return self.draw.choice(path) if path and self.chance(0.9) else "nowhere"


class _OhMyPiFile(_PiFile):
    """Pi's format with a title slot, more types of entries, and turns that are left out of a context."""

    required = _PiFile.required | {"content"}

    def head(self) -> list[bytes]:
        (header,) = super().head()
        titled = {**json.loads(header), "title": "In the header", "titleSource": "auto"}
        lines = [json.dumps(titled).encode() if self.chance(0.5) else header]
        if self.chance(0.7):
            slot = {
                "type": "title",
                "v": 1,
                "title": self.draw.choice(("", "标题")),
                "updatedAt": self.now(),
                "pad": "",
            }
            size = len(json.dumps(slot, ensure_ascii=False).encode())
            lines.insert(0, json.dumps({**slot, "pad": " " * (255 - size)}, ensure_ascii=False).encode())
        return lines

    def steps(self) -> dict[Callable[[], None], float]:
        return {
            **super().steps(),
            self.reset: 1,
            self.mode: 0.5,
            self.rules: 0.5,
            self.notes: 0.5,
            self.bookkeeping: 1,
            self.file_mention: 0.5,
            self.python: 0.5,
            self.developer: 0.5,
            self.interrupted: 0.7,
            self.retried: 0.5,
            self.never_sent: 0.5,
            self.remote_compaction: 0.5,
        }

    def by_extension(self) -> JsonObject:
        return {"fromExtension": True} if self.chance(0.3) else {}

    def model(self) -> None:
        role = self.draw.choice(({}, {}, {"role": "default"}, {"role": "smol"}, {"role": "temporary"}))
        self.append("model_change", model="/".join(self.draw.choice(MODELS)), **role)

    def thinking_level(self) -> None:
        level = self.draw.choice((*LEVELS, None))
        self.append("thinking_level_change", thinkingLevel=level, configured=self.draw.choice(("auto", level)))

    def system(self) -> None:
        """Not a role of oh-my-pi."""

    def answer(self) -> None:
        super().answer()
        content = self.lines[-1]["message"].get("content")
        if content is not None and self.chance(0.1):
            content.insert(0, {"type": "redactedThinking", "data": "b3BhcXVl"})

    def reset(self) -> None:
        self.append("reset_boundary")

    def mode(self) -> None:
        self.append("mode_change", mode=self.draw.choice(("plan", "none")), data={"goal": self.text()})

    def rules(self) -> None:
        self.append("ttsr_injection", injectedRules=self.draw.sample(("brief", "style", "tests"), 2))

    def notes(self) -> None:
        data = {"version": self.draw.choice((1, 1, 1, 2)), "text": self.text()}
        self.append("custom", customType="experimental_context_notes", data=data)

    def bookkeeping(self) -> None:
        match self.draw.randrange(4):
            case 0:
                self.append("title_change", title=self.text(), source="user")
            case 1:
                self.append("credential_pin", provider="anthropic", hash="0" * 64)
            case 2:
                self.append("service_tier_change", serviceTier={"openai": "priority"})
            case _:
                used = {"purpose": "title", "api": "anthropic-messages", "provider": "anthropic", "model": "m"}
                self.append("model_usage", **used, usage=self.usage(), stopReason="stop")

    def file_mention(self) -> None:
        files = [{"path": "a.txt", "content": self.text(), "lineCount": 1}]
        self.message(role="fileMention", files=files, timestamp=self.tick())

    def python(self) -> None:
        ran = {"code": "1 + 1", "output": "2", "exitCode": 0, "cancelled": False, "truncated": False}
        self.message(role="pythonExecution", **ran, timestamp=self.tick())

    def developer(self) -> None:
        self.message(role="developer", content=self.content(), timestamp=self.tick())

    def interrupted(self) -> None:
        """An aborted turn, in most cases followed by the note that keeps it."""
        turn = self.assistant([self.thinking_block(), self.text_block()], "aborted")
        self.message(**{**turn, "stopReason": "aborted"})
        if self.chance(0.7):
            note = {"customType": "interrupted-thinking", "content": self.text(), "display": False}
            self.append("custom_message", **note)

    def retried(self) -> None:
        self.message(**self.assistant([self.text_block()], "stop"), retryRecovery={"attempt": 1})

    def never_sent(self) -> None:
        kind = self.draw.choice(("prewalk-plan", "vibe-mode-context"))
        self.append("custom_message", customType=kind, content=self.text(), display=True)

    def remote_compaction(self) -> None:
        self.compaction()
        self.lines[-1]["preserveData"] = {
            "openaiRemoteCompaction": {
                "provider": self.draw.choice(("openai", "")),
                "replacementHistory": self.draw.choice(([], [{"type": "message"}], None)),
            }
        }
        if self.chance(0.5):
            self.lines[-1]["providerReplayThroughEntryId"] = self.target()
