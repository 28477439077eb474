"""Encode canonical entries as Qwen Code's lines: one record for each entry.

Entries that Qwen Code cannot store become system records of the subtype `sessiontree`, which it skips. A move is a
`rewind` record, whose parent is the new current record. A compaction lists the whole new history: the summary and the
contents of the kept entries. A reset is a compaction that lists nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from sessiontree.core.entries import Config
from sessiontree.core.ids import timestamp
from sessiontree.core.jsonio import convert_fields, native_fields, render_json_line
from sessiontree.dialects.canonical import CanonicalEntry, Encoded, LossNote, SessionMeta
from sessiontree.dialects.claude.locations import generate_uuid
from sessiontree.dialects.contract import IndexedLines
from sessiontree.dialects.passthrough import PASSTHROUGH, apply_delta, build_passthrough, carried_data
from sessiontree.dialects.qwen.content import (
    EncodedContent,
    JsonDict,
    calls_of,
    encode_assistant,
    encode_result,
    encode_text,
    encode_user,
    results_of,
    sent_id,
    string,
)
from sessiontree.dialects.qwen.decode import CARRIED, compaction_fields, merged
from sessiontree.dialects.qwen.kept_contents import KeptContents
from sessiontree.dialects.qwen.locations import is_accepted, session_id
from sessiontree.dialects.qwen.records import TITLE, parse_messages

VERSION = "0.24.4"
"""The version of Qwen Code that new records name as their writer."""

_RESUME = (
    "Resume the prior task using the summary above. Continue from the last in-flight step; do not acknowledge the "
    "summary, do not re-introduce, do not greet the user again."
)
_BRANCH = "Another branch of this conversation was followed for a while and then left. This happened on it:"
_TOO_DEEP = LossNote("dropped", "entries nested too deeply", "no line can hold them; an empty line replaces them")
_EXTENSION = LossNote("mapped", "messages of extensions", "they are user messages in Qwen Code")
_SUMMARY = LossNote("mapped", "summaries of branches", "they are user messages in Qwen Code")
_STRAY = LossNote("changed", "tool results", "the call they answer is not before them; Qwen Code drops such results")
_KEPT = LossNote("mapped", "kept entries of compactions", "Qwen Code lists the whole new history in a compaction")


class QwenEncoder:
    """Encodes one session; Qwen Code uses the last line of the file as the current record."""

    def __init__(self, meta: SessionMeta, lines: IndexedLines | None = None) -> None:
        self._meta = meta
        self._lines = lines
        self._existing: Mapping[str, int] = {} if lines is None else lines.tree.node_of
        self._session = session_id(meta.id) if lines is None or lines.header is None else lines.header.id
        self._cwd = meta.cwd if lines is None or lines.header is None else lines.header.cwd
        self._time = meta.timestamp
        self._kept = KeptContents(lines)
        self._written: dict[str, str | None] = {}
        """The ids written so far, each with that of its parent."""
        self._new_ids: dict[str, str] = {}
        self._last: str | None = None
        self._open: dict[str, frozenset[str]] = {}
        """By id of a record: the calls that its children may answer."""
        self._title: str | None = None
        self._config = Config()

    def prologue(self) -> Sequence[bytes]:
        return []

    def encode(self, entry: CanonicalEntry, parent: str | None) -> Encoded:
        self._time = entry.timestamp or (self._time if self._lines is None else timestamp())
        id = entry.id if is_accepted(entry.id) and not self._is_taken(entry.id) else self._derive_id(entry.id)
        self._new_ids.update((old, id) for old in (entry.id, *entry.aliases) if old)
        try:
            line, notes = self._encode(entry, id, parent)
        except RecursionError:
            line, notes = self._own_record(CanonicalEntry(PASSTHROUGH, {}, entry.id), id, parent), [_TOO_DEEP]
        self._written[id] = parent
        self._last = id
        return Encoded(id, [line], notes)

    def epilogue(self, leaf: str | None) -> Sequence[bytes]:
        lines: list[bytes] = []
        title, config = " ".join((self._meta.title or "").split()), self._meta.config
        for kind, fields in (
            (TITLE, {"name": title} if title and title != self._title else None),
            ("config", {"config": msgspec.to_builtins(config)} if config and config != self._config else None),
        ):
            if fields is not None:
                encoded = self.encode(CanonicalEntry(kind, fields), leaf)
                lines += encoded.lines
                leaf = encoded.id
        if leaf != self._last:
            lines += self.encode(CanonicalEntry("leaf", {"targetId": leaf}), leaf).lines
        return lines

    # Internal

    def _is_taken(self, id: str) -> bool:
        return id in self._written or id in self._existing

    def _derive_id(self, old: str) -> str:
        """Return an unused uuid: reproducible, except for new entries of an existing file."""
        seed = f"{self._session} {len(self._written)} {old}"
        if self._lines is not None:
            seed += f" {self._time} {len(self._existing)}"
        id = generate_uuid(b"sessiontree:qwen", seed)
        while self._is_taken(id):
            id = generate_uuid(b"sessiontree:qwen", id + seed)
        return id

    def _encode(self, entry: CanonicalEntry, id: str, parent: str | None) -> tuple[bytes, Sequence[LossNote]]:
        fields, message = entry.fields, entry.fields.get("message")
        match entry.kind:
            case "message" if isinstance(message, dict):
                return self._encode_message(entry, message, id, parent)
            case "compaction":
                return self._encode_compaction(entry, id, parent)
            case "reset_boundary":
                return self._compaction_record(entry, id, parent, {"info": _info(0), "compressedHistory": []}), ()
            case "custom_message":
                encoded = encode_user(fields)
                line = self._content_record(entry, "user", encoded, id, parent, is_reworded=True)
                return line, [*encoded.notes, _EXTENSION]
            case "branch_summary" if string(fields, "summary").strip():
                text = f"{_BRANCH}\n\n<summary>\n{string(fields, 'summary')}\n</summary>"
                encoded = EncodedContent(encode_text("user", text))
                return self._content_record(entry, "user", encoded, id, parent, is_reworded=True), [_SUMMARY]
            case "session_info":
                return self._encode_title(entry, id, parent), ()
            case "leaf":
                return self._record("system", id, parent, subtype="rewind", systemPayload={"truncatedCount": 0}), ()
            case "config":
                config = fields.get("config")
                self._config = convert_fields(Config, config) if isinstance(config, dict) else Config()
            case _:
                pass
        return self._own_record(entry, id, parent), ()

    def _encode_message(
        self, entry: CanonicalEntry, message: JsonDict, id: str, parent: str | None
    ) -> tuple[bytes, Sequence[LossNote]]:
        match message.get("role"):
            case "user":
                encoded = encode_user(message)
                return self._content_record(entry, "user", encoded, id, parent), encoded.notes
            case "assistant":
                encoded = encode_assistant(message)
                if not encoded.content["parts"]:  # Qwen Code would not send the answers next to it either
                    return self._own_record(entry, id, parent), encoded.notes
                more = _usage_fields(message)
                return self._content_record(entry, "assistant", encoded, id, parent, **more), encoded.notes
            case "toolResult" if sent_id(string(message, "toolCallId")) in self._open_calls(parent):
                encoded = encode_result(message)
                text = encoded.content["parts"][0]["functionResponse"]["response"]
                result = {
                    "callId": sent_id(string(message, "toolCallId")),
                    "status": "error" if message.get("isError") is True else "success",
                    "resultDisplay": next(iter(text.values())),
                }
                line = self._content_record(entry, "tool_result", encoded, id, parent, toolCallResult=result)
                return line, encoded.notes
            case "toolResult":
                encoded = encode_user(message)
                opening = encode_text(
                    "user", f"The tool {string(message, 'toolName') or 'that was called'} gave this result:"
                )
                opening["parts"] += encoded.content["parts"]
                stray = EncodedContent(opening)
                line = self._content_record(entry, "user", stray, id, parent, is_reworded=True)
                return line, [*encoded.notes, _STRAY]
            case _:
                return self._own_record(entry, id, parent), ()

    def _open_calls(self, parent: str | None) -> frozenset[str]:
        """The calls that a child of a record may answer: those of the response before it."""
        if parent is None or parent in self._open:
            return self._open.get(parent or "", frozenset())
        lines, node = self._lines, self._existing.get(parent)
        found: frozenset[str] = frozenset()
        while lines is not None and node is not None:
            content = lines.fields([node])[0].get("message")
            if isinstance(content, dict) and content.get("role") == "model":
                found = frozenset(calls_of(content))
                break
            node = None if isinstance(content, dict) and not results_of(content) else lines.tree.parent(node)
        return found

    def _content_record(
        self,
        entry: CanonicalEntry,
        kind: str,
        encoded: EncodedContent,
        id: str,
        parent: str | None,
        *,
        is_reworded: bool = False,
        **more: Any,
    ) -> bytes:
        own = carried_data(entry, CARRIED)
        content = encoded.content
        if isinstance(own, dict) and not is_reworded:
            applied = apply_delta(content, own.get("content"))
            content = applied if isinstance(applied, dict) and "parts" in applied else content
            more |= {name: own[name] for name in ("toolCallResult", "subtype") if name in own}
        record = {"type": kind, "timestamp": self._time, "message": content, **more}
        decoded = CanonicalEntry("message", {"message": native_fields(merged(parse_messages(record)))}, id)
        passthrough = build_passthrough(entry, decoded, left_out=encoded.left_out, is_reworded=is_reworded)
        calls = frozenset(calls_of(content))
        self._open[id] = (
            calls if kind == "assistant" else self._open_calls(parent) if kind == "tool_result" else frozenset()
        )
        self._kept.add(id, parent, content)
        more = {"provenance": _PROVENANCE[kind], **more, "message": content, PASSTHROUGH: passthrough}
        return self._record(kind, id, parent, **more)

    def _encode_compaction(
        self, entry: CanonicalEntry, id: str, parent: str | None
    ) -> tuple[bytes, Sequence[LossNote]]:
        own = carried_data(entry, CARRIED)
        payload = own.get("payload") if isinstance(own, dict) else None
        notes: list[LossNote] = []
        if not isinstance(payload, dict) or compaction_fields(payload)["summary"] != string(entry.fields, "summary"):
            tokens = entry.fields.get("tokensBefore")
            summary = string(entry.fields, "summary")
            # Without the client's own answer: it would send that and an answer after it as one.
            history = [encode_text("user", f"{summary}\n\n{_RESUME}")] if summary.strip() else []
            kept = entry.fields.get("firstKeptEntryId")
            if isinstance(kept, str):
                found = self._kept.find(self._new_ids.get(kept, kept), parent)
                history += found
                notes += [_KEPT] if found else []
            count = int(tokens) if isinstance(tokens, int | float) and 0 <= tokens < 2**53 else 0
            payload = {"info": _info(count), "compressedHistory": history}
        return self._compaction_record(entry, id, parent, payload), notes

    def _compaction_record(self, entry: CanonicalEntry, id: str, parent: str | None, payload: JsonDict) -> bytes:
        decoded = CanonicalEntry("compaction", compaction_fields(payload), id)
        passthrough = build_passthrough(entry, decoded)
        self._kept.add(id, parent, None)
        fields = {"subtype": "chat_compression", "systemPayload": payload, PASSTHROUGH: passthrough}
        return self._record("system", id, parent, **fields)

    def _encode_title(self, entry: CanonicalEntry, id: str, parent: str | None) -> bytes:
        name = string(entry.fields, "name")
        self._title = " ".join(name.split())
        passthrough = build_passthrough(entry, CanonicalEntry(TITLE, {"name": name}, id))
        self._continue(id, parent)
        payload = {"customTitle": name, "titleSource": "manual"}
        more = {PASSTHROUGH: passthrough} if passthrough else {}
        return self._record("system", id, parent, subtype="custom_title", systemPayload=payload, **more)

    def _own_record(self, entry: CanonicalEntry, id: str, parent: str | None) -> bytes:
        kind = entry.kind or PASSTHROUGH
        fields = {name: value for name, value in entry.fields.items() if name not in (PASSTHROUGH, "type")}
        target = fields.get("targetId")
        if isinstance(target, str) and target in self._new_ids:
            fields["targetId"] = self._new_ids[target]
        passthrough = build_passthrough(entry, CanonicalEntry(kind, fields, id))
        self._continue(id, parent)
        more = {PASSTHROUGH: passthrough} if passthrough else {}
        return self._record("system", id, parent, subtype=PASSTHROUGH, systemPayload={"type": kind, **fields}, **more)

    def _continue(self, id: str, parent: str | None) -> None:
        """Note a record without a message: calls before it may be answered after it."""
        self._open[id] = self._open_calls(parent)
        self._kept.add(id, parent, None)

    def _record(self, kind: str, id: str, parent: str | None, **more: Any) -> bytes:
        fields: JsonDict = {
            "uuid": id,
            "parentUuid": parent,
            "sessionId": self._session,
            "timestamp": self._time,
            "type": kind,
            "cwd": self._cwd,
            "version": VERSION,
        }
        if self._meta.git_branch:
            fields["gitBranch"] = self._meta.git_branch
        if kind == "system":
            fields["provenance"] = "system"
        return render_json_line(fields | more)


_PROVENANCE = {"user": "real_user", "assistant": "assistant_output", "tool_result": "tool_result"}


def _info(tokens: int) -> JsonDict:
    return {"originalTokenCount": tokens, "newTokenCount": 0, "compressionStatus": 1}


def _usage_fields(message: JsonDict) -> JsonDict:
    """The model and the usage of a response, as Qwen Code counts: the prompt includes cached tokens."""
    more: JsonDict = {"model": message["model"]} if isinstance(message.get("model"), str) else {}
    usage = message.get("usage")
    if not isinstance(usage, dict):
        return more
    read, written, cached = (_count(usage, name) for name in ("input", "output", "cacheRead"))
    prompt = read + cached + _count(usage, "cacheWrite")
    return more | {
        "usageMetadata": {
            "promptTokenCount": prompt,
            "candidatesTokenCount": written,
            "thoughtsTokenCount": 0,
            "totalTokenCount": prompt + written,
            "cachedContentTokenCount": cached,
        }
    }


def _count(fields: JsonDict, name: str) -> int:
    found = fields.get(name)
    return int(found) if isinstance(found, int | float) and not isinstance(found, bool) and 0 <= found < 2**53 else 0
