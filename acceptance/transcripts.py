"""Generate Claude Code transcripts from a seed: what the client writes, and what kills, rewinds and damage leave.

A session is simulated turn by turn. Afterwards the file may be damaged: a line is lost, lines appear twice, writing
ends at any line. Ids are short, and texts repeat them, so that a difference is easy to read.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

from acceptance.trees import PICTURE

Fields: TypeAlias = dict[str, Any]

START = datetime(2026, 10, 1, tzinfo=UTC)
MODEL = "claude-sonnet-4-5"
NIL = "00000000-0000-0000-0000-000000000000"
SESSION = "5e551011-0000-4000-8000-000000000001"
SIGNATURE = "c2lnbmF0dXJl"

GAPS_MS = (0, 1, 300, 700, 1500, 4000, 5000, 5001, 60_000)
GAP_WEIGHTS = (2, 2, 20, 30, 10, 4, 1, 1, 4)
BAD_LINES = (b"", b"{", b"not JSON", b"null", b"[1]", b'{"type":"user"}', b'{"uuid":"bad"}', b"\0\0\0\0", b"\xff\xfe")


def generate(seed: int) -> bytes:
    """Return the transcript of a seed; always the same one."""
    rng = random.Random(seed)
    lines = _Simulation(rng).run()
    return _damage(rng, lines)


def _damage(rng: random.Random, lines: list[Fields]) -> bytes:
    """Render lines as a file that may have lost some, may have some twice, or may end early."""
    if rng.random() < 0.1:  # killed at any line
        lines = lines[: rng.randint(2, len(lines))]
    if rng.random() < 0.12:
        del lines[rng.randrange(1, len(lines))]
    if rng.random() < 0.12:
        copied = rng.randrange(len(lines))
        lines.insert(rng.randint(copied + 1, len(lines)), dict(lines[copied]))
    # Without spaces: the client does not find a conversation in lines that have some after colons.
    rendered = [json.dumps(line, separators=(",", ":")).encode() for line in lines]
    if rng.random() < 0.06:  # a line that was not written completely
        torn = rng.choice(rendered)
        rendered.insert(rng.randint(1, len(rendered)), torn[: rng.randint(1, len(torn) - 1)])
    if rng.random() < 0.1:
        rendered.insert(rng.randint(1, len(rendered)), rng.choice(BAD_LINES))
    return b"".join(line + b"\n" for line in rendered)


class _Simulation:
    """A session that grows turn by turn. `head` is the line that the next one continues."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.lines: list[Fields] = []
        self.head: str | None = None
        self._time = START
        self._numbers: dict[str, int] = {}
        self._parents: dict[str, str | None] = {}
        self._pins = rng.choice(("none", "turn", "line", "some"))
        """How often the client pins its head: clients before 2.1.150 never did."""
        self._is_old = rng.random() < 0.25
        """Whether progress lines are part of the chain, as in clients up to 2.1.8x."""
        self._is_subagent = False
        """Whether a sub-agent writes."""

    def run(self) -> list[Fields]:
        self._turn()
        events: list[tuple[Callable[[], None], int]] = [
            (self._turn, 40),
            (self._rewind, 8),
            (self._compact, 8),
            (self._subagent, 3),
            (self._snip, 2),
            (self._new_root, 2),
            (self._lose_parent, 3),
            (self._repeat_line, 2),
            (self._close_cycle, 2),
        ]
        chosen = self.rng.choices(
            [event for event, _ in events], [weight for _, weight in events], k=self.rng.randint(1, 7)
        )
        for event in chosen:
            event()
        if self._pins == "some" or self.rng.random() < 0.1:
            self._pin()
        return self.lines

    # Turns

    def _turn(self) -> None:
        self._prompt()
        for _ in range(self.rng.choice((1, 1, 1, 2, 3))):
            self._answer()
        if self._pins == "turn":
            self._pin()

    def _prompt(self) -> None:
        kind = self.rng.random()
        more: Fields = {"isMeta": True} if kind < 0.06 else {}
        if kind > 0.95:
            self._command()
            return
        id = self._name("U")
        content: object = id
        if kind > 0.9:
            content = [{"type": "text", "text": id}, *([_picture()] if self.rng.random() < 0.5 else [])]
        elif kind > 0.87:
            content = f"<command-name>/{id}</command-name>\n<command-args></command-args>"
        elif kind > 0.84:
            content = [{"type": "text", "text": "[Request interrupted by user]"}]
        self._write(id, {"type": "user", **more, "message": {"role": "user", "content": content}})
        if self._is_old and self.rng.random() < 0.1:
            self._progress(id, kind="hook_progress")

    def _command(self) -> None:
        id = self._name("C")
        output = f"<local-command-stdout>{id}</local-command-stdout>"
        self._write(id, {"type": "system", "subtype": "local_command", "content": output})

    def _answer(self) -> None:
        """Write a response in shards, with the results of its calls in any order; some calls stay open."""
        response = self._name("msg_")
        kind = self.rng.random()
        if kind < 0.05:
            self._failure()
            return
        if kind < 0.1:
            self._one_line_answer(response)
            return
        if self.rng.random() < 0.2:
            self._shard(response, self._thinking())
        if self.rng.random() < 0.6:
            self._shard(response, self._text())
        calls = self.rng.choice((0, 0, 1, 1, 2, 3)) if self.lines[-1]["type"] == "assistant" else self.rng.randint(1, 3)
        open_calls: list[tuple[str, str]] = []
        for _ in range(calls):
            call = self._name("toolu_")
            if self.rng.random() < 0.05:
                self._shard(response, self._thinking())
            open_calls.append((self._shard(response, _call(call)), call))
            if self.rng.random() < 0.15:  # a fast call is answered while the response is still being received
                self._result(*open_calls.pop())
        if self.rng.random() < 0.4:
            self.rng.shuffle(open_calls)
        style = self.rng.choice(("own", "own", "own", "last", "previous"))
        last = self.head
        for shard, call in open_calls:
            if self.rng.random() < 0.15:
                continue  # never answered
            parent = {"own": shard, "last": last, "previous": self.head}[style]
            self._result(str(parent), call)
        if self.rng.random() < 0.05:
            self.head = last  # the next line does not follow the result that was written last

    def _one_line_answer(self, response: str) -> None:
        """Write several calls on one line, as other programs do, with results on their own lines or together."""
        calls = [self._name("toolu_") for _ in range(2)]
        shard = self._shard(response, *(_call(call) for call in calls))
        answered = [call for call in calls if self.rng.random() < 0.8]
        if self.rng.random() < 0.5:
            for call in answered:
                self._result(shard, call)
        elif answered:
            self._result(shard, *answered)

    def _failure(self) -> None:
        message = {"id": self._name("error_"), "role": "assistant", "model": "<synthetic>", "content": [self._text()]}
        is_error = self.rng.random() < 0.7
        error = {"isApiErrorMessage": True, "error": "unknown"} if is_error else {}
        self._write(self._name("E"), {"type": "assistant", **error, "message": message})

    def _shard(self, response: str, *blocks: Fields) -> str:
        content = list(blocks)
        message = {"id": response, "type": "message", "role": "assistant", "model": MODEL, "content": content}
        return self._write(self._name("A"), {"type": "assistant", "message": message})

    def _text(self) -> Fields:
        text = " " if self.rng.random() < 0.03 else self._name("text")
        return {"type": "text", "text": text}

    def _thinking(self) -> Fields:
        if self.rng.random() < 0.1:
            return {"type": "redacted_thinking", "data": self._name("redacted")}
        return {"type": "thinking", "thinking": self._name("thought"), "signature": SIGNATURE}

    def _result(self, parent: str, *calls: str) -> None:
        self.head = parent
        if self._is_old and self.rng.random() < 0.5:
            self._progress(calls[0])
        blocks = [self._result_block(call) for call in calls]
        self._write(self._name("R"), {"type": "user", "message": {"role": "user", "content": blocks}})

    def _result_block(self, call: str) -> Fields:
        kind = self.rng.random()
        content: object = f"result of {call}"
        if kind < 0.1:
            content = [{"type": "text", "text": content}, *([_picture()] if kind < 0.05 else [])]
        error = {"is_error": True} if kind > 0.9 else {}
        return {"type": "tool_result", "tool_use_id": call, "content": content, **error}

    def _progress(self, call: str, *, kind: str = "bash_progress") -> None:
        parent = self.head
        data = {"type": kind, "output": ""}
        self._write(self._name("P"), {"type": "progress", "data": data, "toolUseID": call, "parentToolUseID": call})
        if self.rng.random() < 0.5:
            self.head = parent  # off the chain

    # Other events

    def _rewind(self) -> None:
        """Continue from an earlier line; mostly from the one before a prompt."""
        prompts = [id for id in self._parents if id.startswith(("U", "C"))]
        target = self._parents[self.rng.choice(prompts)] if self.rng.random() < 0.8 else self._any_line()
        self.head = target
        if self.rng.random() < 0.4:
            leaf = target or NIL
            self.lines.append({"type": "last-prompt", "leafUuid": leaf, "explicit": True})
        if self.rng.random() < 0.85:  # else the client was closed before the next prompt
            self._turn()

    def _compact(self) -> None:
        """Write a boundary that preserves the end, the start or some lines of the path, or nothing; and a summary."""
        path = self._path()
        before = self.head
        boundary, summary = self._name("B"), self._name("S")
        kept: list[str] = []
        kind = self.rng.choice(("nothing", "end", "end", "end", "start", "some"))
        at = self.rng.randrange(len(path)) if path else 0
        if path and kind != "nothing":
            kept = {"end": path[at:], "start": path[: at + 1], "some": path[at::2]}[kind]
        anchor = boundary if kind == "start" else summary
        if self.rng.random() < 0.05:
            anchor = self.rng.choice((boundary, summary, "missing"))
        metadata = {"trigger": "manual", "preTokens": 1000, **self._preserved(kept, anchor)}
        self.head = None
        self._write(
            boundary,
            {
                "type": "system",
                "subtype": "compact_boundary",
                "logicalParentUuid": before,
                "content": "Conversation compacted",
                "compactMetadata": metadata,
            },
        )
        if self.rng.random() < 0.05:
            return  # killed before the summary
        if self.rng.random() < 0.92:
            message = {"role": "user", "content": f"This session is being continued. {summary}"}
            self._write(summary, {"type": "user", "isCompactSummary": True, "message": message})
        if self.rng.random() < 0.3:
            self._attachment()
        if kept and self.rng.random() < 0.15:
            self.head = kept[-1]  # the next line continues the preserved ones directly
        if self.rng.random() < 0.8:
            self._turn()

    def _preserved(self, kept: list[str], anchor: str) -> Fields:
        if not kept:
            return {}
        if self.rng.random() < 0.04:
            kept = [*kept[:-1], "missing"]
        segment = {"headUuid": kept[0], "anchorUuid": anchor, "tailUuid": kept[-1]}
        messages = {"anchorUuid": anchor, "uuids": kept, "allUuids": kept}
        form = self.rng.choice(("both", "both", "segment", "messages"))
        return {
            **({"preservedSegment": segment} if form != "messages" else {}),
            **({"preservedMessages": messages} if form != "segment" else {}),
        }

    def _attachment(self) -> None:
        """Write a line of the client, which the next line follows or has beside it."""
        before, kind = self.head, self.rng.random()
        if kind < 0.2:
            self._command()
        elif kind < 0.3:
            id = self._name("Q")
            command = {"type": "queued_command", "prompt": f"typed {id}", "commandMode": "prompt"}
            self._write(id, {"type": "attachment", "attachment": command})
        elif kind < 0.4:
            text = "<system-reminder>\nA reminder.\n</system-reminder>"
            role = self.rng.choice(("system", "user"))
            rendered = {"rendered": [{"content": text}], "renderedRole": role}
            reminder = {"type": "task_reminder", "content": [], "itemCount": 0}
            self._write(self._name("T"), {"type": "attachment", "attachment": reminder, **rendered})
        elif kind < 0.6:
            self._write(self._name("T"), {"type": "attachment", "attachment": {"type": "date"}, "rendered": []})
        else:
            subtype = self.rng.choice(("informational", "turn_duration", "stop_hook_summary", "api_error"))
            self._write(self._name("T"), {"type": "system", "subtype": subtype, "content": "note", "level": "info"})
        if self.rng.random() < 0.4:
            self.head = before

    def _subagent(self) -> None:
        """Write lines of a sub-agent into the main file, as clients up to 2.0.x did."""
        head, self.head = self.head, self.head if self.rng.random() < 0.3 else None
        self._is_subagent = True
        for number in range(self.rng.randint(1, 3)):
            role = "assistant" if number % 2 else "user"
            block = {"type": "text", "text": self._name("side")}
            message = {"id": self._name("msg_"), "role": role, "model": MODEL, "content": [block]}
            self._write(self._name("X"), {"type": role, "isSidechain": True, "message": message})
        self.head, self._is_subagent = head, False

    def _snip(self) -> None:
        removed = self.rng.sample(sorted(self._parents), k=min(2, len(self._parents)))
        kind = self.rng.choice(("snip_boundary", "informational"))
        self._write(self._name("N"), {"type": "system", "subtype": kind, "snipMetadata": {"removedUuids": removed}})

    def _new_root(self) -> None:
        self.head = None
        self._turn()

    def _lose_parent(self) -> None:
        self.head = self._name("lost")
        self._turn()

    def _repeat_line(self) -> None:
        """Write a line once more with the same id: unchanged, later, or with another parent."""
        chain = [line for line in self.lines if "uuid" in line]
        line = dict(self.rng.choice(chain))
        if self.rng.random() < 0.5:
            line["timestamp"] = self._next_time()
        if self.rng.random() < 0.3:
            line["parentUuid"] = self.head
        self.lines.append(line)

    def _close_cycle(self) -> None:
        """Write a line of the path once more, with a line after it, or the line itself, as its parent."""
        path = [id for id in self._path() if not id.startswith("X")]
        if not path:  # the path has only lines of sub-agents
            return
        above = self.rng.randrange(len(path))
        line = next(line for line in reversed(self.lines) if line.get("uuid") == path[above])
        self.lines.append({**line, "parentUuid": self.rng.choice(path[above:])})
        if self.rng.random() < 0.7:
            self._turn()

    # Lines

    def _write(self, id: str, payload: Fields) -> str:
        """Write a chain line below the head, and make it the head."""
        fields = {
            "parentUuid": self.head,
            "isSidechain": False,
            **payload,
            "uuid": id,
            "timestamp": self._next_time(),
            "sessionId": SESSION,
        }
        pins = self._pins == "line"
        if pins and self.rng.random() < 0.15:
            # Metadata lines are not in causal order: a pin can precede the line it names.
            self.lines.append({"type": "last-prompt", "leafUuid": id})
        self.lines.append(fields)
        self._parents[id] = self.head
        self.head = id
        if pins and self.rng.random() < 0.3:
            self._pin()
        if self.rng.random() < 0.04:
            self._metadata(id)
        if self.rng.random() < 0.04 and payload["type"] != "progress" and not self._is_subagent:
            self._attachment()
        return id

    def _metadata(self, id: str) -> None:
        kind = self.rng.choice(("file-history-snapshot", "mode", "custom-title", "queue-operation"))
        values = {
            "mode": {"mode": "normal"},
            "custom-title": {"customTitle": "A title"},
            "queue-operation": {"operation": "enqueue", "timestamp": self._next_time(), "content": "typed"},
        }
        self.lines.append({"type": kind, **values.get(kind, {"messageId": id, "snapshot": {"messageId": id}})})

    def _pin(self) -> None:
        choice = self.rng.random()
        leaf = self.head
        if choice < 0.08:
            leaf = self.rng.choice((NIL, "unknown", self._any_line()))
        explicit = {"explicit": True} if choice < 0.04 or choice > 0.95 else {}
        self.lines.append({"type": "last-prompt", "lastPrompt": "x", "leafUuid": leaf, **explicit})

    def _any_line(self) -> str:
        return self.rng.choice(sorted(id for id in self._parents if not id.startswith("X")))

    def _path(self) -> list[str]:
        """The lines from the root to the head, by recorded parents."""
        path: list[str] = []
        at = self.head
        while at in self._parents and at not in path:
            path.append(at)
            at = self._parents[at]
        return path[::-1]

    def _name(self, prefix: str) -> str:
        """A new name: the prefix with a number."""
        self._numbers[prefix] = number = self._numbers.get(prefix, 0) + 1
        return f"{prefix}{number}"

    def _next_time(self) -> str:
        gap = self.rng.choices(GAPS_MS, GAP_WEIGHTS)[0]
        if self.rng.random() < 0.03:
            gap = -gap
        self._time += timedelta(milliseconds=gap)
        return self._time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _picture() -> Fields:
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PICTURE}}


def _call(id: str) -> Fields:
    return {"type": "tool_use", "id": id, "name": "Bash", "input": {"command": id}}
