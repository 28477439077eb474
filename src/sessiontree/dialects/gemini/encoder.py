"""Encode sessions as Gemini CLI's messages (see `records`)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

from sessiontree.dialects.canonical import CanonicalEntry, LossNote, SessionMeta
from sessiontree.dialects.contract import IndexedLines
from sessiontree.dialects.gemini.client import ANSWER_TO_SUMMARY
from sessiontree.dialects.gemini.content import COMMANDS, UNANSWERED
from sessiontree.dialects.gemini.entries import decode_fields
from sessiontree.dialects.gemini.ids import derived_id, is_uuid, session_id
from sessiontree.dialects.gemini.records import CONTEXT_MARKS, SNAPSHOT
from sessiontree.dialects.grouped_results import Answer, Built, GroupedEncoder, content_blocks, is_call, result_text
from sessiontree.dialects.passthrough import PASSTHROUGH

_NOT_ANSWERED = "[No result was recorded for this call.]"
_MASK = "\u200b"
"""Before a text that Gemini CLI would take for a command, so that it sends it."""


def metadata(meta: SessionMeta) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "sessionId": session_id(meta.id),
        "projectHash": hashlib.sha256(meta.cwd.encode("utf-8", "surrogatepass")).hexdigest(),
        "startTime": meta.timestamp,
        "lastUpdated": meta.timestamp,
        "kind": "main",
        "directories": [meta.cwd],
    }
    return {**fields, "summary": meta.title} if meta.title else fields


class GeminiEncoder(GroupedEncoder):
    client = "Gemini CLI"

    def __init__(self, meta: SessionMeta, lines: IndexedLines | None = None) -> None:
        super().__init__(meta, lines)
        self._record_ids = set(self.ids)

    def header(self) -> dict[str, Any]:
        return metadata(self.meta)

    def decode(self, fields: dict[str, Any]) -> Iterator[CanonicalEntry]:
        return decode_fields(fields)

    def attach(self, fields: dict[str, Any], passthrough: dict[str, Any]) -> dict[str, Any]:
        return {**fields, PASSTHROUGH: passthrough}

    def build_prompt(self, entry: CanonicalEntry, blocks: list[Any]) -> Built:
        parts = [_part(block) for block in blocks]
        left_out = [at for at, part in enumerate(parts) if part is None]
        content, notes = _masked([part for part in parts if part is not None])
        return Built({**self._record(entry, "user"), "content": content}, left_out, notes=notes)

    def build_text(self, entry: CanonicalEntry, text: str) -> Built:
        content, notes = _masked([{"text": text}])
        return Built({**self._record(entry, "user"), "content": content}, is_reworded=True, notes=notes)

    def build_compaction(self, entry: CanonicalEntry, kept: str | None) -> tuple[list[bytes], Built]:
        summary = str(entry.fields.get("summary") or "")
        if not summary.lstrip().startswith(SNAPSHOT):
            summary = f"{SNAPSHOT}\n{summary}\n</state_snapshot>"
        record = self._record(entry, "user")
        answer = {"id": derived_id(record["id"], "answer"), "timestamp": record["timestamp"], "type": "gemini"}
        compaction = {"kept": kept, "answer": {**answer, "content": [{"text": ANSWER_TO_SUMMARY}]}}
        return [], Built({**record, "content": [{"text": summary}], "compaction": compaction})

    def start_answer(self, entry: CanonicalEntry) -> str:
        return self._new_id(entry)

    def build_answer(self, answer: Answer) -> Built:
        parts: list[dict[str, Any]] = []
        thoughts: list[dict[str, Any]] = []
        calls: list[dict[str, Any]] = []
        order: list[tuple[int, int]] = []
        record = self._record(answer.entry, "gemini", answer.id)
        for at, block in enumerate(answer.blocks):
            kind = block.get("type") if isinstance(block, dict) else None
            if kind == "thinking" and isinstance(block.get("thinking"), str):
                thoughts.append({"subject": "", "description": block["thinking"], "timestamp": record["timestamp"]})
                order.append((0, at))
            elif is_call(block) and all(call["id"] != block["id"] for call in calls):
                calls.append(_call(block, answer.results.get(block["id"]), record["timestamp"]))
                order.append((2, at))
            elif kind in ("text", "image") and (part := _part(block)) is not None:
                parts.append(part)
                order.append((1, at))
        usage = answer.message.get("usage")
        record |= {
            "content": parts,
            "thoughts": thoughts,
            "tokens": _tokens(usage) if isinstance(usage, dict) else None,
            "model": str(answer.message.get("model") or "unknown"),
        }
        if calls:
            record["toolCalls"] = calls
        written = [at for _, at in sorted(order)]
        left_out = [at for at in range(len(answer.blocks)) if at not in written]
        answered = [call["id"] for call in calls if call["id"] in answer.results]
        return Built(record, left_out, calls=answered, order=written)

    def _record(self, entry: CanonicalEntry, kind: str, id: str = "") -> dict[str, Any]:
        return {"id": id or self._new_id(entry), "timestamp": entry.timestamp or self.meta.timestamp, "type": kind}

    def _new_id(self, entry: CanonicalEntry) -> str:
        """The id of a new record, which no other one has: Gemini CLI would replace that one."""
        is_own = is_uuid(entry.id) and self.ids.get(entry.id, entry.id) == entry.id
        id = entry.id if is_own else derived_id(self.meta.id, entry.id or str(len(self.ids)))
        while id in self._record_ids:
            id = derived_id(id, "again")
        self._record_ids.add(id)
        return id


def _masked(parts: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[LossNote]]:
    """Parts that Gemini CLI sends, although they begin like one of its commands."""
    text = "".join(str(part.get("text") or "") for part in parts)
    if not text.lstrip().startswith((*COMMANDS, *CONTEXT_MARKS)):
        return parts, []
    at = next(at for at, part in enumerate(parts) if part.get("text"))
    masked = {**parts[at], "text": _MASK + parts[at]["text"]}
    why = "Gemini CLI takes them for commands; a character without width is before them"
    return [*parts[:at], masked, *parts[at + 1 :]], [LossNote("changed", "prompts that begin with / or ?", why)]


def _part(block: object) -> dict[str, Any] | None:
    if not isinstance(block, dict):
        return None
    match block.get("type"):
        case "text" if isinstance(block.get("text"), str) and block["text"]:
            return {"text": block["text"]}
        case "image":
            return {"inlineData": {"mimeType": str(block.get("mimeType") or "image/png"), "data": block.get("data")}}
        case _:
            return None


def _call(block: Mapping[str, Any], result: CanonicalEntry | None, time: str) -> dict[str, Any]:
    id, name, arguments = block["id"], block["name"], block.get("arguments")
    call = {"id": id, "name": name, "args": arguments if isinstance(arguments, dict) else {}, "timestamp": time}
    if result is None:
        # The API refuses a history with a call that has no response.
        answer = {"functionResponse": {"id": id, "name": name, "response": {"error": _NOT_ANSWERED}}}
        return {**call, "result": [answer], "status": "cancelled", PASSTHROUGH: {UNANSWERED: True}}
    message = result.fields["message"]
    is_error = message.get("isError") is True
    text = result_text(message)
    response = {"id": id, "name": name, "response": {"error" if is_error else "output": text}}
    images = [
        part for block in content_blocks(message.get("content")) if (part := _part(block)) and "inlineData" in part
    ]
    return {
        **call,
        "result": [{"functionResponse": response}, *images],
        "status": "error" if is_error else "success",
        "resultDisplay": text,
        "displayName": name,
        "description": "",
    }


def _tokens(usage: Mapping[str, Any]) -> dict[str, Any]:
    def count(name: str) -> int | float:
        value = usage.get(name)
        return value if isinstance(value, int | float) and not isinstance(value, bool) else 0

    cached = count("cacheRead")
    given, output = count("input") + count("cacheWrite") + cached, count("output")
    counts = {"input": given, "output": output, "cached": cached, "thoughts": 0, "tool": 0}
    return {**counts, "total": count("totalTokens") or given + output}
