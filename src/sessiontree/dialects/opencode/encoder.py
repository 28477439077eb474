"""Encode sessions as lines of OpenCode's export, which its import command reads.

An answer and the results of its calls are one message, so an answer is written when its results are known. What
OpenCode has no field for is passthrough data, in the metadata of a part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from sessiontree.core.context import milliseconds
from sessiontree.core.jsonio import render_json
from sessiontree.dialects.canonical import CanonicalEntry, Encoded, LossNote, SessionMeta
from sessiontree.dialects.contract import IndexedLines, is_metadata_id
from sessiontree.dialects.opencode.content import info_of, mapping, string
from sessiontree.dialects.opencode.entries import REQUEST_TYPE, decode_fields, with_passthrough
from sessiontree.dialects.opencode.ids import item_id, session_id
from sessiontree.dialects.passthrough import build_passthrough
from sessiontree.errors import UsageError

VERSION = "1.18.33"
"""The version of OpenCode whose export is written."""
_AGENT = "build"
_UNKNOWN_MODEL = ("unknown", "unknown")
_FINISH = {"stop": "stop", "toolUse": "tool-calls", "length": "length", "error": "error", "aborted": "stop"}
_DROPPED_WHEN_WRITING = frozenset({"label"})


def session_info(meta: SessionMeta) -> dict[str, Any]:
    """The `info` of a session. Import replaces the project and the directory by the current ones."""
    created = milliseconds(meta.timestamp) or 0
    id = session_id(meta.id)
    return {
        "id": id,
        "slug": id[-8:].lower(),
        "projectID": "global",
        "directory": meta.cwd,
        "title": meta.title or f"New session - {meta.timestamp}",
        "version": VERSION,
        "time": {"created": created, "updated": created},
    }


class _Answer:
    """An answer whose results are not all known yet."""

    def __init__(self, entry: CanonicalEntry, id: str, calls: list[str]) -> None:
        self.entry, self.id = entry, id
        self.results: dict[str, CanonicalEntry] = {}
        self.calls = calls

    def takes(self, call: object) -> bool:
        return isinstance(call, str) and call in self.calls and call not in self.results


class OpenCodeEncoder:
    """Encodes one session, entry by entry. Each entry follows the one before it."""

    def __init__(self, meta: SessionMeta, lines: IndexedLines | None = None) -> None:
        self._meta = meta
        self._session = session_id(meta.id)
        self._is_new = lines is None
        self._time = milliseconds(meta.timestamp) or 0 if lines is not None else 0
        self._last: str | None = None
        self._prompt = ""
        """The id of the last prompt, which answers name."""
        self._model = _UNKNOWN_MODEL
        self._answer: _Answer | None = None
        self._ids: dict[str, str] = {}
        """Id of an entry -> id of its message."""
        if lines is not None:
            self._continue(lines)

    def _continue(self, lines: IndexedLines) -> None:
        ids = [id for id in lines.tree.ids if not is_metadata_id(id)]
        self._last = ids[-1] if ids else None
        self._ids = {id: id for id in ids}
        for node in range(len(lines.types) - 1, -1, -1):
            (fields,) = lines.fields([node])
            info = info_of(fields)
            self._time = max(self._time, int(mapping(info, "time").get("created") or 0))
            if info.get("role") == "user":
                self._prompt = string(info, "id")
                break

    def prologue(self) -> Sequence[bytes]:
        return [render_json({"info": session_info(self._meta)})]

    def encode(self, entry: CanonicalEntry, parent: str | None) -> Encoded:
        if parent != self._last:
            raise UsageError("these sessions have no branches: only the last entry can be continued; fork instead")
        message = entry.fields.get("message")
        role = message.get("role") if entry.kind == "message" and isinstance(message, dict) else None
        if role == "toolResult" and self._answer is not None and self._answer.takes(message.get("toolCallId")):  # type: ignore[union-attr]
            self._answer.results[str(message["toolCallId"])] = entry  # type: ignore[index]
            return self._encoded(entry, f"{self._answer.id}.{len(self._answer.results)}", [])
        if entry.kind not in ("message", "compaction", "custom_message", "branch_summary"):
            return self._leave_out(entry, parent)
        lines = self._flush()
        match entry.kind, role:
            case "message", "assistant":
                return self._encode_answer(entry, lines)
            case "message", "user":
                return self._encode_prompt(entry, lines)
            case "compaction", _:
                return self._encode_compaction(entry, lines)
            case _:
                return self._encode_text(entry, lines)

    def epilogue(self, leaf: str | None) -> Sequence[bytes]:  # noqa: ARG002 - the contract's
        return self._flush()

    def _leave_out(self, entry: CanonicalEntry, parent: str | None) -> Encoded:
        if entry.kind == "custom" and entry.fields.get("customType") == REQUEST_TYPE:
            return Encoded(parent)  # each summary is written with its request
        if entry.kind == "session_info" and entry.fields.get("name") == self._meta.title:
            return Encoded(parent)  # in the first line
        if not self._is_new:
            raise UsageError(f"sessions of this client cannot hold this entry ({entry.kind}); nothing was written")
        return Encoded(parent, notes=[LossNote("dropped", f"{entry.kind} entries", "OpenCode has no such entries")])

    def _encoded(self, entry: CanonicalEntry, id: str, lines: list[bytes]) -> Encoded:
        for name in (entry.id, *entry.aliases, id):
            if name:
                self._ids[name] = id.partition(".")[0]
        self._last = id
        return Encoded(id, lines)

    def _new_message(self, entry: CanonicalEntry, role: str) -> dict[str, Any]:
        """Id, role and time of a message. Times ascend: OpenCode sorts by them."""
        self._time = max(self._time + 1, milliseconds(entry.timestamp) or 0)
        id = item_id("msg", self._time, 0, f"{self._session} {entry.id} {entry.kind}")
        return {"id": id, "sessionID": self._session, "role": role, "time": {"created": self._time}}

    def _parts(self, id: str, parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [
            {
                "id": item_id("prt", self._time, number, f"{id} {number}"),
                "sessionID": self._session,
                "messageID": id,
                **part,
            }
            for number, part in enumerate(parts)
        ]

    def _user_info(self, entry: CanonicalEntry) -> dict[str, Any]:
        info = self._new_message(entry, "user")
        provider, model = self._model
        return {**info, "agent": _AGENT, "model": {"providerID": provider, "modelID": model}}

    def _answer_info(self, info: dict[str, Any], message: Mapping[str, Any]) -> dict[str, Any]:
        provider, model = message.get("provider"), message.get("model")
        if isinstance(model, str) and model:
            self._model = (provider if isinstance(provider, str) and provider else self._model[0], model)
        usage = mapping(message, "usage")
        cost = mapping(usage, "cost").get("total")
        created = info["time"]["created"]
        return {
            **info,
            "time": {"created": created, "completed": created},
            "parentID": self._prompt or info["id"],
            "modelID": self._model[1],
            "providerID": self._model[0],
            "mode": _AGENT,
            "agent": _AGENT,
            "path": {"cwd": self._meta.cwd, "root": self._meta.cwd},
            "cost": cost if isinstance(cost, int | float) else 0,
            "tokens": {
                "input": _count(usage, "input"),
                "output": _count(usage, "output"),
                "reasoning": 0,
                "cache": {"read": _count(usage, "cacheRead"), "write": _count(usage, "cacheWrite")},
            },
            "finish": _FINISH.get(str(message.get("stopReason")), "stop"),
        }

    # Each kind of entry

    def _encode_prompt(self, entry: CanonicalEntry, lines: list[bytes]) -> Encoded:
        info = self._user_info(entry)
        content = entry.fields["message"].get("content")
        blocks = content if isinstance(content, list) else [{"type": "text", "text": content}] if content else []
        written = [at for at, block in enumerate(blocks) if _user_part(block) is not None]
        parts = [part for block in blocks if (part := _user_part(block)) is not None]
        left_out = [at for at in range(len(blocks)) if at not in written]
        self._prompt = info["id"]
        return self._finish(entry, info, parts, lines, left_out=left_out)

    def _encode_text(self, entry: CanonicalEntry, lines: list[bytes]) -> Encoded:
        """An entry that OpenCode does not have, as a prompt with the text that a model receives for it."""
        info = self._user_info(entry)
        self._prompt = info["id"]
        parts = [{"type": "text", "text": _plain_text(entry), "synthetic": True}]
        return self._finish(entry, info, parts, lines, is_reworded=True)

    def _encode_compaction(self, entry: CanonicalEntry, lines: list[bytes]) -> Encoded:
        request = self._user_info(entry)
        kept = self._ids.get(str(entry.fields.get("firstKeptEntryId")))
        part = {"type": "compaction", "auto": False, **({} if kept is None else {"tail_start_id": kept})}
        lines.append(render_json({"info": request, "parts": self._parts(request["id"], [part])}))
        self._prompt = request["id"]
        info = self._answer_info(self._new_message(entry, "assistant"), {"usage": entry.fields.get("usage")})
        info |= {"mode": "compaction", "agent": "compaction", "summary": True}
        text = {"type": "text", "text": str(entry.fields.get("summary") or "")}
        return self._finish(entry, info, [text], lines, compaction={"tail_start_id": kept})

    def _encode_answer(self, entry: CanonicalEntry, lines: list[bytes]) -> Encoded:
        info = self._new_message(entry, "assistant")
        content = entry.fields["message"].get("content")
        calls = [str(block.get("id")) for block in _blocks(content) if block.get("type") == "toolCall"]
        self._answer = _Answer(entry, info["id"], calls)
        self._info = info
        return self._encoded(entry, info["id"], lines)

    def _flush(self) -> list[bytes]:
        """Write the answer whose results are complete now."""
        answer, self._answer = self._answer, None
        if answer is None:
            return []
        message = answer.entry.fields["message"]
        info = self._answer_info(self._info, message)
        if message.get("stopReason") in ("error", "aborted"):
            info["error"] = _error(message)
        parts, left_out, results, seen = [], [], [], set()
        content = message.get("content")
        blocks = content if isinstance(content, list) else [{"type": "text", "text": content}] if content else []
        for at, block in enumerate(blocks):
            call = block.get("id") if isinstance(block, dict) and block.get("type") == "toolCall" else None
            result = answer.results.get(str(call)) if isinstance(call, str) and call not in seen else None
            part = None if call in seen and call is not None else _answer_part(block, result, self._time)
            if part is None:
                left_out.append(at)
                continue
            parts.append(part)
            if call is not None:
                seen.add(call)
            if result is not None:
                results.append(result)
        if not parts:
            parts = [{"type": "text", "text": ""}]
        line = {"info": info, "parts": self._parts(info["id"], parts)}
        decoded = [*decode_fields(line)]
        recorded = [*answer.results.values()]
        order = [1 + results.index(result) for result in recorded]
        found = [build_passthrough(answer.entry, decoded[0], left_out=left_out)]
        found += [
            build_passthrough(result, _with_id(decoded[at], f"{answer.id}.{number}"))
            for number, (result, at) in enumerate(zip(recorded, order, strict=True), 1)
        ]
        return [render_json(_with_entries(line, found, order if order != sorted(order) else []))]

    def _finish(
        self,
        entry: CanonicalEntry,
        info: dict[str, Any],
        parts: list[dict[str, Any]],
        lines: list[bytes],
        *,
        left_out: Sequence[int] = (),
        is_reworded: bool = False,
        **extra: Any,
    ) -> Encoded:
        line = {"info": info, "parts": self._parts(info["id"], parts), **extra}
        (decoded,) = decode_fields(line)
        found = build_passthrough(entry, decoded, left_out=left_out, is_reworded=is_reworded)
        lines.append(render_json(_with_entries(line, [found])))
        return self._encoded(entry, info["id"], lines)


def _with_id(entry: CanonicalEntry, id: str) -> CanonicalEntry:
    return msgspec.structs.replace(entry, id=id)


def _with_entries(
    line: dict[str, Any], found: list[dict[str, Any]], order: list[int] | None = None
) -> dict[str, Any]:
    """The line with passthrough data, if there is any: in a part that has metadata, or in one that is not sent."""
    if not any(found) and not order:
        return line
    parts = line["parts"]
    for at, part in enumerate(parts):
        if part.get("type") in ("text", "reasoning", "tool"):
            return {**line, "parts": [*parts[:at], with_passthrough(part, found, order or []), *parts[at + 1 :]]}
    info = line["info"]
    hidden = {"type": "text", "text": "", "synthetic": True, "ignored": True}
    place = {"sessionID": info["sessionID"], "messageID": info["id"]}
    id = item_id("prt", info["time"]["created"], len(parts), f"{info['id']} {len(parts)}")
    return {**line, "parts": [*parts, with_passthrough({"id": id, **place, **hidden}, found, order or [])]}


def _blocks(content: object) -> list[dict[str, Any]]:
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _count(usage: Mapping[str, Any], name: str) -> int | float:
    value = usage.get(name)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else 0


def _user_part(block: object) -> dict[str, Any] | None:
    if not isinstance(block, dict):
        return None
    match block.get("type"):
        case "text":
            text = block.get("text")
            return {"type": "text", "text": text} if isinstance(text, str) and text else None
        case "image":
            return _image_part(block)
        case "file" if isinstance(block.get("url"), str) and isinstance(block.get("mime"), str):
            return {name: value for name, value in block.items() if name not in ("id", "sessionID", "messageID")}
        case _:
            return None


def _image_part(block: Mapping[str, Any]) -> dict[str, Any]:
    mime = str(block.get("mimeType") or "image/png")
    return {"type": "file", "mime": mime, "url": f"data:{mime};base64,{block.get('data') or ''}"}


def _answer_part(block: object, result: CanonicalEntry | None, time: int) -> dict[str, Any] | None:
    if not isinstance(block, dict):
        return None
    match block.get("type"):
        case "text" if isinstance(block.get("text"), str):
            return {"type": "text", "text": block["text"]}
        case "thinking" if isinstance(block.get("thinking"), str):
            return {"type": "reasoning", "text": block["thinking"], "time": {"start": time, "end": time}}
        case "toolCall" if isinstance(block.get("id"), str) and isinstance(block.get("name"), str):
            given = block.get("arguments")
            state = _state(given if isinstance(given, dict) else {}, result, time, str(block["name"]))
            return {"type": "tool", "callID": block["id"], "tool": block["name"], "state": state}
        case _:
            return None


def _state(given: dict[str, Any], result: CanonicalEntry | None, time: int, name: str) -> dict[str, Any]:
    if result is None:
        return {"status": "running", "input": given, "time": {"start": time}}
    message = result.fields["message"]
    text = _result_text(message)
    times = {"start": time, "end": time}
    if message.get("isError") is True:
        return {"status": "error", "input": given, "error": text, "time": times}
    images = [_image_part(block) for block in _blocks(message.get("content")) if block.get("type") == "image"]
    state = {"status": "completed", "input": given, "output": text, "title": name, "metadata": {}, "time": times}
    return {**state, "attachments": images} if images else state


def _result_text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    return "\n".join(str(block.get("text") or "") for block in _blocks(content) if block.get("type") == "text")


def _plain_text(entry: CanonicalEntry) -> str:
    message = entry.fields.get("message")
    if isinstance(message, dict):
        return _result_text(message) or string(message, "summary")
    return string(entry.fields, "summary") or _result_text(entry.fields)


def _error(message: Mapping[str, Any]) -> dict[str, Any]:
    text = str(message.get("errorMessage") or "")
    name = "MessageAbortedError" if message.get("stopReason") == "aborted" else "UnknownError"
    return {"name": name, "data": {"message": text}}
