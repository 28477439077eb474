"""Paths of Pi entries to plan a compaction for, each generated from a number. `pi_answers.json` has Pi's own answers.

The answers are the results of `prepareCompaction` in the real program (npm package `@earendil-works/pi-coding-agent`
1.5.0) for each case. Messages are identified by the seconds in their timestamps.
"""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from random import Random
from typing import Any

COUNT = 400
ANSWERS = "pi_answers.json"

_TEXTS = ("short", "word " * 40, "解析器" * 30, "emoji 🙂🙂 " * 9, "x" * 333, "", "def f(a):\n    return a[0]\n" * 7)
_IMAGE = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
_COST = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0}


class Case:
    """A path, and how many of its tokens to keep."""

    def __init__(self, number: int) -> None:
        self._random = Random(number)
        self._time = 1_700_000_000_000
        self._calls = 0
        self._spoken: list[str] = []
        self.entries: list[dict[str, Any]] = []
        length = self._random.randint(1, 40)
        while len(self.entries) < length:
            self._go_on(self._random.random())
        self.keep = self._random.choice([0, 1, 10, 50, 120, 300, 1000, 20000])

    def as_json(self) -> dict[str, Any]:
        return {"entries": self.entries, "keep": self.keep}

    def _go_on(self, chance: float) -> None:
        random = self._random
        if chance < 0.25:
            self._user()
        elif chance < 0.55:
            self._turn()
        elif chance < 0.60:
            run = {"command": "ls", "output": self._text(), "exitCode": 0, "cancelled": False, "truncated": False}
            self._say("bashExecution", **run)
        elif chance < 0.65:
            self._add("custom_message", customType="note", content=self._text(), display=True)
        elif chance < 0.72:
            self._add("label", targetId=random.choice(self._spoken or ["x"]), label="l")
        elif chance < 0.76:
            self._add("model_change", provider="p", modelId="m2")
        elif chance < 0.80:
            self._branch_summary()
        elif chance < 0.85 and self._spoken:
            replacements = [None, None, {"content": "edited"}, {"content": [{"type": "text", "text": "blocks " * 5}]}]
            target = random.choice(self._spoken[-4:])
            self._add("context_edit", targetId=target, replacement=random.choice(replacements))
        elif chance < 0.90 and self._spoken:
            self._compaction()
        elif chance < 0.94:
            self._system()
        else:
            self._add("thinking_level_change", thinkingLevel="high")

    def _add(self, kind: str, **fields: Any) -> str:
        self._time += 1000
        time = datetime.fromtimestamp(self._time / 1000, UTC).isoformat(timespec="milliseconds")
        id, parent = f"{len(self.entries) + 1:08x}", self.entries[-1]["id"] if self.entries else None
        stamp = time.replace("+00:00", "Z")
        self.entries.append({"type": kind, "id": id, "parentId": parent, "timestamp": stamp, **fields})
        return id

    def _say(self, role: str, **fields: Any) -> None:
        message = {"role": role, **fields, "timestamp": self._time + 1000}
        self._spoken.append(self._add("message", message=message))

    def _text(self) -> str:
        return self._random.choice(_TEXTS)

    def _user(self) -> None:
        content: Any = self._text()
        if self._random.random() < 0.4:
            content = [{"type": "text", "text": content}]
            if self._random.random() < 0.3:
                content.append(_IMAGE)
        self._say("user", content=content)

    def _turn(self) -> None:
        random = self._random
        blocks: list[dict[str, Any]] = []
        if random.random() < 0.3:
            blocks.append({"type": "thinking", "thinking": self._text()})
        if random.random() < 0.8:
            blocks.append({"type": "text", "text": self._text()})
        calls: list[tuple[str, str]] = []
        for _ in range(random.choice([0, 0, 1, 1, 2])):
            self._calls += 1
            id, name = f"call_{self._calls}", random.choice(["read", "edit", "write", "bash"])
            file = {"path": f"src/{random.randint(1, 6)}.py"}
            arguments = {"command": self._text() or "ls", "timeout": 30} if name == "bash" else file
            blocks.append({"type": "toolCall", "id": id, "name": name, "arguments": arguments})
            calls.append((id, name))
        reason = random.choice(["stop", "toolUse", "stop", "aborted", "error"])
        self._say("assistant", content=blocks, api="a", provider="p", model="m", usage=self._usage(), stopReason=reason)
        for id, name in calls:
            content: list[Any] = [{"type": "text", "text": self._text() * random.choice([1, 1, 5])}]
            if random.random() < 0.1:
                content.append(_IMAGE)
            if random.random() < 0.1:  # another message between a call and its result
                self._add("label", targetId=self._spoken[-1], label="between")
            self._say("toolResult", toolCallId=id, toolName=name, content=content, isError=random.random() < 0.2)

    def _usage(self) -> dict[str, Any]:
        if self._random.random() < 0.5:
            return {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 0, "cost": _COST}
        tokens = self._random.randint(1, 3000)
        total = self._random.choice([0, tokens + 20])
        return {"input": tokens, "output": 7, "cacheRead": 11, "cacheWrite": 2, "totalTokens": total, "cost": _COST}

    def _branch_summary(self) -> None:
        summary = self._random.choice(["", "what happened " * 9])
        details = {"readFiles": ["b.py"], "modifiedFiles": ["src/1.py"]}
        by_hook = self._random.choice([True, False])
        self._add("branch_summary", fromId="root", summary=summary, details=details, fromHook=by_hook)

    def _compaction(self) -> None:
        random = self._random
        bound = random.choice([random.choice(self.entries)["id"], self._spoken[-1], "nowhere"])
        fields: dict[str, Any] = {"summary": "the summary so far " * 5, "firstKeptEntryId": bound, "tokensBefore": 99}
        fields["details"] = {"readFiles": ["a.py", "src/2.py"], "modifiedFiles": ["z.py"]}
        fields["fromHook"] = random.choice([True, False])
        if random.random() < 0.3:
            content = "You are " + self._text()
            fields["systemMessage"] = {"role": "system", "content": content, "timestamp": self._time + 1000}
        self._add("compaction", **fields)

    def _system(self) -> None:
        random = self._random
        more: dict[str, Any] = {}
        if random.random() < 0.5:
            more["sections"] = {"a": self._text() or "q", "b": None}
        if random.random() < 0.5:
            tool = {"name": f"t{random.randint(1, 3)}", "description": "does", "parameters": {"x": [1, 2]}}
            more["toolsAdded"] = [tool]
        if random.random() < 0.2:
            more["toolsRemoved"] = [{"name": "t1"}]
        self._say("system", content=random.choice(["You are.", [{"type": "text", "text": "Be brief. " * 6}]]), **more)


def all_cases() -> list[Case]:
    return [Case(number) for number in range(COUNT)]


def checksum(cases: list[Case]) -> str:
    """Checksum of all cases, so that answers are never compared with those of other cases."""
    data = json.dumps([case.as_json() for case in cases], sort_keys=True).encode()
    return hashlib.blake2b(data, digest_size=8).hexdigest()
