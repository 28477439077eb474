"""Trajectories of the Agent Trajectory Interchange Format (ATIF) as sessions, to be converted to any agent's format.

Versions 1.0 to 1.7 are read. Unknown fields are ignored; what a session cannot hold is reported.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from sessiontree import plugins
from sessiontree.core.entries import Header
from sessiontree.core.ids import new_entry_id, new_session_id
from sessiontree.core.ids import timestamp as current_time
from sessiontree.core.jsonio import JsonObject, parse_json
from sessiontree.dialects import DEFAULT_DIALECT
from sessiontree.dialects.contract import Dialect
from sessiontree.errors import NotASessionError
from sessiontree.session.open import open_store
from sessiontree.session.session import Session
from sessiontree.stores.memory import MemoryStore

_version = re.compile(r"(?:ATIF-v)?1\.\d+\Z")
_data_url = re.compile(r"data:(image/[a-z]+);base64,(.*)\Z", re.DOTALL)


class _Source(Struct, frozen=True):
    path: str = ""


class _Part(Struct, frozen=True):
    type: str
    text: str | None = None
    source: _Source | None = None


class _Call(Struct, frozen=True):
    tool_call_id: str
    function_name: str
    arguments: JsonObject = {}


class _Result(Struct, frozen=True):
    source_call_id: str | None = None
    content: str | tuple[_Part, ...] | None = None
    subagent_trajectory_ref: Any = None
    extra: JsonObject | None = None


class _Observation(Struct, frozen=True):
    results: tuple[_Result, ...] = ()


class _Metrics(Struct, frozen=True):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    cost_usd: float | None = None


class _Step(Struct, frozen=True):
    source: str
    message: str | tuple[_Part, ...] = ""
    timestamp: str | None = None
    model_name: str | None = None
    reasoning_content: str | None = None
    tool_calls: tuple[_Call, ...] | None = None
    observation: _Observation | None = None
    metrics: _Metrics | None = None
    extra: JsonObject | None = None


class _Agent(Struct, frozen=True):
    name: str = ""
    model_name: str | None = None


class _Trajectory(Struct, frozen=True):
    schema_version: str
    steps: tuple[_Step, ...]
    agent: _Agent = _Agent()
    session_id: str | None = None
    extra: JsonObject | None = None
    subagent_trajectories: Any = None
    continued_trajectory_ref: str | None = None


class ReadTrajectory(Struct, frozen=True):
    session: Session
    """A native session in memory."""
    notes: tuple[str, ...]
    """What the session cannot hold."""


def read_trajectory(data: bytes, location: str, cwd: str = "") -> ReadTrajectory:
    """Read a trajectory. `cwd` is the working folder if the document names none; `location` is for messages."""
    try:
        found = msgspec.convert(parse_json(data), _Trajectory)
    except (ValueError, RecursionError) as error:
        raise NotASessionError(f"{location}: not an ATIF trajectory: {error}") from None
    if not _version.match(found.schema_version):
        raise NotASessionError(f"{location}: unknown version {found.schema_version!r}; expected ATIF-v1.0 to ATIF-v1.7")
    builder = _Builder(found, cwd)
    lines = b"".join(line + b"\n" for line in builder.lines())
    return ReadTrajectory(open_store(MemoryStore(lines), dialect=DEFAULT_DIALECT), tuple(builder.notes()))


class _Builder:
    """Native lines of a trajectory, each the child of the one before."""

    def __init__(self, trajectory: _Trajectory, cwd: str) -> None:
        self._trajectory, self._cwd = trajectory, cwd
        self._dialect: Dialect = plugins.load("dialects", DEFAULT_DIALECT)
        self._ids: set[str] = set()
        self._leaf: str | None = None
        self._time = ""
        self._images = self._references = 0

    def lines(self) -> Iterator[bytes]:
        found = self._trajectory
        about = found.extra or {}
        named = about.get("cwd")
        started = next((step.timestamp for step in found.steps if step.timestamp), None)
        self._time = started or current_time()
        folder = named if isinstance(named, str) else self._cwd
        yield self._dialect.render_header(Header(new_session_id(), 3, self._time, folder))
        title = about.get("title")
        if isinstance(title, str) and title:
            yield self._line("session_info", {"name": title})
        for step in found.steps:
            self._time = step.timestamp or self._time
            for message in self._messages(step):
                yield self._line("message", {"message": message})

    def notes(self) -> Iterator[str]:
        """What was left out. Complete after `lines`."""
        found = self._trajectory
        if found.subagent_trajectories:
            yield f"{_count(len(found.subagent_trajectories), 'trajectory', 'trajectories')} of sub-agents left out"
        if self._references:
            references = _count(self._references, "reference", "references")
            yield f"{references} to trajectories of sub-agents left out"
        if self._images:
            one = self._images == 1
            yield (
                "1 image in another file became a link"
                if one
                else f"{self._images:,} images in other files became links"
            )
        if found.continued_trajectory_ref:
            yield f"the trajectory is continued in {found.continued_trajectory_ref}"

    def _line(self, kind: str, fields: JsonObject) -> bytes:
        id = new_entry_id(self._ids)
        self._ids.add(id)
        parent, self._leaf = self._leaf, id
        return self._dialect.render_entry(kind, id, parent, self._time, fields)

    def _messages(self, step: _Step) -> Iterator[JsonObject]:
        if step.source == "agent":
            yield self._answer(step)
            names = {call.tool_call_id: call.function_name for call in step.tool_calls or ()}
        else:
            names = {}
            role = "user" if step.source == "user" else "custom"
            message: JsonObject = {"role": role, "content": self._content(step.message)}
            yield message if role == "user" else {**message, "customType": "system", "display": True}
        for result in step.observation.results if step.observation is not None else ():
            self._references += bool(result.subagent_trajectory_ref)
            content = self._content(result.content or "")
            name = names.get(result.source_call_id or "")
            if name is None:  # not of a tool call: the environment's own words
                yield {"role": "custom", "customType": "observation", "content": content, "display": True}
                continue
            failed = bool((result.extra or {}).get("is_error"))
            head: JsonObject = {"role": "toolResult", "toolCallId": result.source_call_id, "toolName": name}
            yield {**head, "content": content, "isError": failed}

    def _answer(self, step: _Step) -> JsonObject:
        blocks: list[JsonObject] = []
        if step.reasoning_content:
            blocks.append({"type": "thinking", "thinking": step.reasoning_content})
        content = self._content(step.message)
        blocks += ([{"type": "text", "text": content}] if content else []) if isinstance(content, str) else content
        calls = step.tool_calls or ()
        blocks += [
            {"type": "toolCall", "id": call.tool_call_id, "name": call.function_name, "arguments": call.arguments}
            for call in calls
        ]
        about = step.extra or {}
        stop = about.get("stop_reason")
        message: JsonObject = {
            "role": "assistant",
            "content": blocks,
            "model": step.model_name or self._trajectory.agent.model_name,
            "provider": about.get("provider"),
            "stopReason": stop if isinstance(stop, str) else "toolUse" if calls else "stop",
            "errorMessage": about.get("error"),
            "usage": None if step.metrics is None else _usage(step.metrics),
        }
        return {name: value for name, value in message.items() if value is not None}

    def _content(self, content: str | tuple[_Part, ...]) -> str | list[JsonObject]:
        if isinstance(content, str):
            return content
        blocks: list[JsonObject] = []
        for part in content:
            image = _data_url.match(part.source.path) if part.source is not None else None
            if image is not None:
                blocks.append({"type": "image", "data": image[2], "mimeType": image[1]})
            elif part.source is not None:
                self._images += 1
                blocks.append({"type": "text", "text": f"[image: {part.source.path}]"})
            else:
                blocks.append({"type": "text", "text": part.text or ""})
        return blocks


def _usage(metrics: _Metrics) -> JsonObject:
    """Token counts; cached ones are part of the prompt in the format, and not in sessions."""
    prompt, cached, output = metrics.prompt_tokens or 0, metrics.cached_tokens or 0, metrics.completion_tokens or 0
    usage: JsonObject = {"input": max(0, prompt - cached), "output": output, "cacheRead": cached, "cacheWrite": 0}
    usage["totalTokens"] = prompt + output
    if metrics.cost_usd is not None:
        usage["cost"] = {"total": metrics.cost_usd}
    return usage


def _count(number: int, singular: str, plural: str) -> str:
    return f"{number:,} {singular if number == 1 else plural}"
