"""Encode sessions as lines of OpenCode's export, which its import command reads.

Passthrough data is in the metadata of a part.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sessiontree.core.entries import milliseconds
from sessiontree.core.jsonio import render_json
from sessiontree.dialects.canonical import CanonicalEntry, SessionMeta
from sessiontree.dialects.contract import IndexedLines
from sessiontree.dialects.grouped_results import Answer, Built, GroupedEncoder, content_blocks, is_call, result_text
from sessiontree.dialects.opencode.content import info_of, mapping, number, string
from sessiontree.dialects.opencode.entries import REQUEST_TYPE, decode_fields
from sessiontree.dialects.opencode.ids import item_id, session_id
from sessiontree.dialects.passthrough import PASSTHROUGH, UNSENT_THINKING, carried_data

VERSION = "1.18.33"
"""The version of OpenCode whose export is written."""
_AGENT = "build"
_UNKNOWN_MODEL = ("unknown", "unknown")
_FINISH = {"toolUse": "tool-calls", "length": "length", "error": "error"}


def session_info(meta: SessionMeta) -> dict[str, Any]:
    """The `info` of a session. Import replaces the project and the directory with the current ones."""
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


class OpenCodeEncoder(GroupedEncoder):
    client = "OpenCode"
    own_types = frozenset({REQUEST_TYPE})

    def __init__(self, meta: SessionMeta, lines: IndexedLines | None = None) -> None:
        super().__init__(meta, lines)
        self._session = session_id(meta.id)
        self._time = 0
        self._prompt = ""
        """The id of the last prompt, which answers name."""
        self._model = _UNKNOWN_MODEL
        self._info: dict[str, Any] = {}
        for node in range(len(lines.types) - 1, -1, -1) if lines is not None else ():
            info = info_of(lines.fields([node])[0]) if lines is not None else {}
            self._time = max(self._time, int(number(mapping(info, "time"), "created")))
            if info.get("role") == "user":
                self._prompt = string(info, "id")
                break

    def header(self) -> dict[str, Any]:
        return {"info": session_info(self.meta)}

    def decode(self, fields: dict[str, Any]) -> Iterator[CanonicalEntry]:
        return decode_fields(fields)

    def attach(self, fields: dict[str, Any], passthrough: dict[str, Any]) -> dict[str, Any]:
        """Put the data into a part that has metadata, or into a new one that is not sent."""
        parts = fields["parts"]
        for at, part in enumerate(parts):
            if part.get("type") in ("text", "reasoning", "tool"):
                return {**fields, "parts": [*parts[:at], _with_metadata(part, passthrough), *parts[at + 1 :]]}
        info = fields["info"]
        hidden = {"type": "text", "text": "", "synthetic": True, "ignored": True}
        place = {"sessionID": info["sessionID"], "messageID": info["id"]}
        id = item_id("prt", info["time"]["created"], len(parts), f"{info['id']} {len(parts)}")
        return {**fields, "parts": [*parts, _with_metadata({"id": id, **place, **hidden}, passthrough)]}

    def build_prompt(self, entry: CanonicalEntry, blocks: list[Any]) -> Built:
        parts = [_user_part(block) for block in blocks]
        left_out = [at for at, part in enumerate(parts) if part is None]
        return Built(self._prompt_fields(entry, [part for part in parts if part is not None]), left_out)

    def build_text(self, entry: CanonicalEntry, text: str) -> Built:
        fields = self._prompt_fields(entry, [{"type": "text", "text": text, "synthetic": True}])
        return Built(fields, is_reworded=True)

    def build_compaction(self, entry: CanonicalEntry, kept: str | None) -> tuple[list[bytes], Built]:
        part = {"type": "compaction", "auto": False, **({} if kept is None else {"tail_start_id": kept})}
        request = self._prompt_fields(entry, [part])
        info = self._answer_info(self._new_message(entry, "assistant"), {"usage": entry.fields.get("usage")})
        info |= {"mode": "compaction", "agent": "compaction", "summary": True}
        text = {"type": "text", "text": str(entry.fields.get("summary") or "")}
        fields = {"info": info, "parts": self._parts(info["id"], [text]), "compaction": {"tail_start_id": kept}}
        return [render_json(request)], Built(fields)

    def start_answer(self, entry: CanonicalEntry) -> str:
        self._info = self._new_message(entry, "assistant")
        id: str = self._info["id"]
        return id

    def build_answer(self, answer: Answer) -> Built:
        info = self._answer_info(self._info, answer.message)
        if answer.message.get("stopReason") in ("error", "aborted"):
            info["error"] = _error(answer.message)
        parts: list[dict[str, Any]] = []
        left_out: list[int] = []
        seen: list[str] = []
        hides_thinking = carried_data(answer.entry, UNSENT_THINKING) is True
        for at, block in enumerate(answer.blocks):
            call = block["id"] if is_call(block) else None
            part = None if call in seen else _answer_part(block, answer.results, info["time"]["created"])
            if part is None or (hides_thinking and part["type"] == "reasoning"):
                left_out.append(at)
                continue
            parts.append(self._with_attachment_ids(info["id"], part))
            seen += [] if call is None else [call]
        if not parts:
            parts = [{"type": "text", "text": ""}]
        calls = [call for call in seen if call in answer.results]
        return Built({"info": info, "parts": self._parts(info["id"], parts)}, left_out, calls=calls)

    def _new_message(self, entry: CanonicalEntry, role: str) -> dict[str, Any]:
        """Id, role and time of a message. Times ascend: OpenCode sorts by them."""
        self._time = max(self._time + 1, milliseconds(entry.timestamp) or 0)
        id = item_id("msg", self._time, 0, f"{self._session} {entry.id} {role}")
        return {"id": id, "sessionID": self._session, "role": role, "time": {"created": self._time}}

    def _parts(self, id: str, parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
        place = {"sessionID": self._session, "messageID": id}
        return [{"id": item_id("prt", self._time, at, f"{id} {at}"), **place, **part} for at, part in enumerate(parts)]

    def _with_attachment_ids(self, id: str, part: dict[str, Any]) -> dict[str, Any]:
        state = mapping(part, "state")
        if "attachments" not in state:
            return part
        return {**part, "state": {**state, "attachments": self._parts(id, state["attachments"])}}

    def _prompt_fields(self, entry: CanonicalEntry, parts: list[dict[str, Any]]) -> dict[str, Any]:
        provider, model = self._model
        info = self._new_message(entry, "user")
        info |= {"agent": _AGENT, "model": {"providerID": provider, "modelID": model}}
        self._prompt = info["id"]
        return {"info": info, "parts": self._parts(info["id"], parts)}

    def _answer_info(self, info: dict[str, Any], message: Mapping[str, Any]) -> dict[str, Any]:
        provider, model = message.get("provider"), message.get("model")
        if isinstance(model, str) and model:
            self._model = (provider if isinstance(provider, str) and provider else self._model[0], model)
        usage = mapping(message, "usage")
        created = info["time"]["created"]
        return {
            **info,
            "time": {"created": created, "completed": created},
            "parentID": self._prompt or info["id"],
            "modelID": self._model[1],
            "providerID": self._model[0],
            "mode": _AGENT,
            "agent": _AGENT,
            "path": {"cwd": self.meta.cwd, "root": self.meta.cwd},
            "cost": number(mapping(usage, "cost"), "total"),
            "tokens": {
                "input": number(usage, "input"),
                "output": number(usage, "output"),
                "reasoning": 0,
                "cache": {"read": number(usage, "cacheRead"), "write": number(usage, "cacheWrite")},
            },
            "finish": _FINISH.get(str(message.get("stopReason")), "stop"),
        }


def _with_metadata(part: dict[str, Any], passthrough: dict[str, Any]) -> dict[str, Any]:
    return {**part, "metadata": {**mapping(part, "metadata"), PASSTHROUGH: passthrough}}


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


def _answer_part(block: object, results: Mapping[str, CanonicalEntry], time: int) -> dict[str, Any] | None:
    if not isinstance(block, dict):
        return None
    match block.get("type"):
        case "text" if isinstance(block.get("text"), str):
            return {"type": "text", "text": block["text"]}
        case "thinking" if isinstance(block.get("thinking"), str):
            return {"type": "reasoning", "text": block["thinking"], "time": {"start": time, "end": time}}
        case "toolCall" if is_call(block):
            state = _state(mapping(block, "arguments"), results.get(block["id"]), time, block["name"])
            return {"type": "tool", "callID": block["id"], "tool": block["name"], "state": state}
        case _:
            return None


def _state(given: dict[str, Any], result: CanonicalEntry | None, time: int, name: str) -> dict[str, Any]:
    if result is None:
        return {"status": "running", "input": given, "time": {"start": time}}
    message = result.fields["message"]
    text = result_text(message)
    times = {"start": time, "end": time}
    if message.get("isError") is True:
        return {"status": "error", "input": given, "error": text, "time": times}
    images = [_image_part(block) for block in _images(message.get("content"))]
    state = {"status": "completed", "input": given, "output": text, "title": name, "metadata": {}, "time": times}
    return {**state, "attachments": images} if images else state


def _images(content: object) -> Sequence[dict[str, Any]]:
    return [block for block in content_blocks(content) if isinstance(block, dict) and block.get("type") == "image"]


def _error(message: Mapping[str, Any]) -> dict[str, Any]:
    text = str(message.get("errorMessage") or "")
    name = "MessageAbortedError" if message.get("stopReason") == "aborted" else "UnknownError"
    return {"name": name, "data": {"message": text}}
