"""Encode assistant messages and tool results: one line for each block, and one for each result.

`transcript` and `write_state` decide which line is the parent of a result.
"""

from __future__ import annotations

from typing import Any

from sessiontree.core.jsonio import render_json
from sessiontree.dialects.canonical import CanonicalEntry, Encoded, LossNote
from sessiontree.dialects.claude import decode_lines
from sessiontree.dialects.claude.content import (
    EncodedContent,
    decode_blocks,
    decode_stop_reason,
    decode_usage,
    encode_assistant_content,
    encode_content,
    encode_result_content,
    encode_stop_reason,
    encode_usage,
    native_blocks,
    tool_identifier,
)
from sessiontree.dialects.claude.decode_lines import GENERATED_RESPONSE, NAME, client_fields_of, request_id
from sessiontree.dialects.claude.line_builder import PlacedEntry, find_calls
from sessiontree.dialects.claude.records import SYNTHETIC, Fields, object_in, string_in, without
from sessiontree.dialects.claude.transcript import Transcript
from sessiontree.dialects.claude.write_state import FoundCall
from sessiontree.dialects.passthrough import PASSTHROUGH, build_passthrough

UNKNOWN_MODEL = "unknown"
"""Client 2.1.150 hangs on an assistant line without a model, so one is always written."""


class AssistantEncoder:
    """Encodes the assistant messages of one transcript, and the results of their calls."""

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        self._builder = transcript.builder
        self._responses: set[str] = set()
        self._call_ids: set[str] = set()

    def start_context(self) -> None:
        """Allow the ids of earlier calls again: the messages that follow repeat them in a context of their own."""
        self._call_ids = set()

    # Assistant messages

    def encode_message(self, entry: CanonicalEntry, parent: str | None, message: Fields) -> Encoded:
        content = encode_assistant_content(message, self._assign_call_id)
        is_failed = message.get("stopReason") in ("error", "aborted")
        if not content.blocks and content.omitted and not is_failed:
            # The client would send an assistant line without content as "(no content)".
            encoded = self._transcript.encode_as_metadata(entry, parent, "messages with only unsigned thinking")
            return Encoded(encoded.id, encoded.lines, [*content.notes, *encoded.notes])
        lines = self._build_shards(entry, parent, message, content, is_error=not content.blocks and is_failed)
        calls = find_calls(lines, message, content.positions) if _has_calls(content) else ()
        return self._transcript.place(entry, parent, lines, content.notes, calls=calls)

    def _build_shards(
        self, entry: CanonicalEntry, parent: str | None, message: Fields, content: EncodedContent, *, is_error: bool
    ) -> list[Fields]:
        """Build a line for each block; one for a message without blocks.

        `is_error` makes it the client's line for a request that failed without content, which it shows and never sends.
        """
        blocks: list[list[Fields]] = [[block] for block in content.blocks] or [[]]
        uuids = self._builder.assign_uuids(entry, len(blocks), last=True)
        common = self._build_response(uuids[-1], message, content)
        if is_error:
            text = string_in(message, "errorMessage") or f"The request ended: {message.get('stopReason')}"
            blocks = [[{"type": "text", "text": text}]]
            common["model"] = SYNTHETIC
        time, before = self._builder.time(entry), parent
        lines: list[Fields] = []
        stored = client_fields_of(entry, len(blocks))
        for at, (id, shard, fields) in enumerate(zip(uuids, blocks, stored, strict=True)):
            if "content" in fields and content.positions:
                native = native_blocks(message.get("content"))[content.positions[at]]
                # The client's own form of the block is written again if it still has the same meaning.
                shard = fields["content"] if decode_blocks(fields["content"]) == [native] else shard
            payload = {"message": _merge_message({**common, "content": shard}, fields, message)}
            if message.get("stopReason") != "error":
                fields = without(fields, "isApiErrorMessage", "error")
            line = self._builder.chain_line("assistant", id, before, time, payload, fields)
            line.setdefault("requestId", request_id(common["id"]))
            line["apiBlockIndex"] = at
            if is_error:
                line["isApiErrorMessage"] = True
            lines.append(line)
            before = id
        decoded = decode_lines.decode_response(lines, self._transcript.common)
        self._transcript.add_passthrough(entry, lines[-1], decoded, content.omitted)
        return lines

    def _build_response(self, id: str, message: Fields, content: EncodedContent) -> Fields:
        """Build the message fields that all shards share. An unusable response id is replaced by a generated one."""
        response = string_in(message, "responseId") or ""
        is_usable = response.startswith("msg_") and tool_identifier(response) == response
        if not is_usable or response in self._responses or self._transcript.state.has_response(response):
            response = GENERATED_RESPONSE + id.replace("-", "")
        self._responses.add(response)
        return {
            "id": response,
            "type": "message",
            "role": "assistant",
            "model": string_in(message, "model") or UNKNOWN_MODEL,
            "content": [],
            "stop_reason": encode_stop_reason(message, has_calls=_has_calls(content)),
            "stop_sequence": None,
            "usage": encode_usage(message.get("usage")),
        }

    def _assign_call_id(self, block: Fields) -> str:
        id = wanted = tool_identifier(string_in(block, "id") or "")
        number = 2
        while id in self._call_ids:
            id, number = f"{wanted}_{number}", number + 1
        self._call_ids.add(id)
        return id

    # Results

    def encode_result(self, entry: CanonicalEntry, parent: str | None, message: Fields) -> Encoded:
        transcript = self._transcript
        found = transcript.state.find_call(string_in(message, "toolCallId") or "", parent)
        if found is None:
            return self._encode_stray_result(entry, parent)
        content = encode_content(message.get("content"))
        is_separated = found.is_adjacent and transcript.state.needs_boundary(parent, is_result=True)
        line_parent = found.parent
        lines = []
        (id,) = self._builder.assign_uuids(entry, 1)
        if is_separated and parent is not None:
            lines.append(transcript.build_separator(entry, parent))
            line_parent = lines[-1]["uuid"]
        line = self._build_result(entry, id, line_parent, message, found, content)
        placed = PlacedEntry(parent, (id,), id, (), found.response, found.call.line, is_separated)
        transcript.place_result(entry, line, placed)
        return Encoded(id, [render_json(each) for each in (*lines, line)], content.notes)

    def _encode_stray_result(self, entry: CanonicalEntry, parent: str | None) -> Encoded:
        # The client would replace a result without a call by "(no content)". So it becomes passthrough data.
        stored = {"type": "custom", "customType": f"{NAME}.result"}
        line = self._transcript.build_metadata_entry(entry, parent, stored)
        line[PASSTHROUGH] = build_passthrough(entry, CanonicalEntry("", {}, string_in(line, "id") or ""))
        notes = [LossNote("aside", "results without a call", "Claude Code does not send them")]
        return self._transcript.place_metadata(line, parent, notes)

    def _build_result(
        self,
        entry: CanonicalEntry,
        id: str,
        line_parent: str | None,
        message: Fields,
        found: FoundCall,
        content: EncodedContent,
    ) -> Fields:
        """Build the line of a result. The client's own copy, `toolUseResult`, is written only if the entry has it."""
        call = found.call
        block: Fields = {
            "tool_use_id": call.id,
            "type": "tool_result",
            "content": encode_result_content(content),
        }
        if message.get("isError") is True:
            block["is_error"] = True
        (fields,) = client_fields_of(entry, 1)
        blocks = fields["content"] if _is_same_result(fields.get("content"), block) else [block]
        payload = {"message": {"role": "user", "content": blocks}}
        line = self._builder.chain_line("user", id, line_parent, self._builder.time(entry), payload, fields)
        line["sourceToolAssistantUUID"] = call.line
        decoded = decode_lines.decode_results(line, self._transcript.common, {call.id: call.name})[0]
        self._transcript.add_passthrough(entry, line, decoded, content.omitted)
        return line


def _has_calls(content: EncodedContent) -> bool:
    return "tool_use" in [block["type"] for block in content.blocks]


# The entry may have changed since its client fields were recorded. Each is used only if it still agrees with the entry.


def _merge_message(shard: Fields, client_fields: Fields, message: Fields) -> Fields:
    if "message" not in client_fields:
        return shard
    more = object_in(client_fields, "message")
    if decode_usage(more.get("usage")) != message.get("usage"):
        more = without(more, "usage")
    if decode_stop_reason(string_in(more, "stop_reason")) != message.get("stopReason"):
        more = without(more, "stop_reason", "stop_sequence")
    return shard | without(more, "content", "role", "id", "model", "type")


def _is_same_result(content: Any, block: Fields) -> bool:
    if not isinstance(content, list) or len(content) != 1 or not isinstance(content[0], dict):
        return False
    stored = content[0]
    return (
        stored.get("tool_use_id") == block["tool_use_id"]
        and stored.get("type") == "tool_result"
        and (stored.get("is_error") is True) == ("is_error" in block)
        and decode_blocks(stored.get("content")) == decode_blocks(block["content"])
    )
