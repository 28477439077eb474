"""Answers and the results of their calls -> lines.

An answer is one line for each of its blocks, and a result hangs on the line of its call (see `transcript` for when it
does not).
"""

from __future__ import annotations

from sessiontree.core.jsonio import render_json
from sessiontree.dialects.canonical import CanonicalEntry, Encoded, LossNote
from sessiontree.dialects.claude import content_builder, decode_lines
from sessiontree.dialects.claude.aside import put_aside
from sessiontree.dialects.claude.content import tool_word, written_reason, written_usage
from sessiontree.dialects.claude.content_builder import Composed
from sessiontree.dialects.claude.decode_lines import MADE_RESPONSE, NAME, request_of
from sessiontree.dialects.claude.line_builder import Placed, calls_on
from sessiontree.dialects.claude.records import SYNTHETIC, Fields, string_in
from sessiontree.dialects.claude.restoring import but, is_same_result, rests_of, says_block, shard_message
from sessiontree.dialects.claude.transcript import Held, Transcript
from sessiontree.dialects.claude.write_state import FoundCall
from sessiontree.dialects.passthrough import PASSTHROUGH, new_passthrough

UNKNOWN_MODEL = "unknown"


class Answering:
    """Writes the answers of one transcript, and their results."""

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        self._sheet = transcript.sheet
        self._responses: set[str] = set()
        self._calls: set[str] = set()

    # Answers

    def answer(self, entry: CanonicalEntry, parent: str | None, message: Fields) -> Encoded:
        composed = content_builder.composed_answer(message, self._name_call)
        is_failed = message.get("stopReason") in ("error", "aborted")
        if not composed.blocks and composed.left_out and not is_failed:
            # An answer of nothing would be sent as words that nobody said.
            written = put_aside(self._transcript, entry, parent, "answers of nothing but unsigned thinking")
            return Encoded(written.id, written.lines, [*composed.notes, *written.notes])
        lines = self._shards(entry, parent, message, composed, is_note=not composed.blocks and is_failed)
        calls = calls_on(lines, message, composed.places) if _has_calls(composed) else ()
        written = self._transcript.placed(entry, parent, lines, composed.notes, calls=calls)
        if calls and self._transcript.is_new:
            self._transcript.held = Held(lines[-1]["uuid"], {call.line for call in calls}, [])
        return written

    def _shards(
        self, entry: CanonicalEntry, parent: str | None, message: Fields, composed: Composed, *, is_note: bool
    ) -> list[Fields]:
        """A line for each block; one for an answer without any.

        `is_note` makes it the client's own line for a request that failed before anything was said, which it shows and
        never sends.
        """
        blocks: list[list[Fields]] = [[block] for block in composed.blocks] or [[]]
        uuids = self._sheet.uuids(entry, len(blocks), last=True)
        common = self._common(uuids[-1], message, composed)
        if is_note:
            text = string_in(message, "errorMessage") or f"The request ended: {message.get('stopReason')}"
            blocks = [[{"type": "text", "text": text}]]
            common["model"] = SYNTHETIC
        time, before = self._sheet.time(entry), parent
        lines: list[Fields] = []
        for at, (id, shard, rest) in enumerate(zip(uuids, blocks, rests_of(entry, len(blocks)), strict=True)):
            if "content" in rest and composed.places and says_block(rest["content"], message, composed.places[at]):
                shard = rest["content"]
            said = {"message": shard_message(common, shard, rest, message)}
            rest = rest if message.get("stopReason") == "error" else but(rest, "isApiErrorMessage", "error")
            line = self._sheet.line("assistant", id, before, time, said, rest)
            line.setdefault("requestId", request_of(common["id"]))
            line["apiBlockIndex"] = at
            if is_note:
                line["isApiErrorMessage"] = True
            lines.append(line)
            before = id
        self._transcript.ride(
            entry, lines[-1], decode_lines.told_response(lines, self._transcript.base), composed.left_out
        )
        return lines

    def _common(self, id: str, message: Fields, composed: Composed) -> Fields:
        """What all shards of a response say alike. One without an id of its own is called by that of its last line."""
        response = string_in(message, "responseId") or ""
        if not response.startswith("msg_") or tool_word(response) != response or response in self._responses:
            response = MADE_RESPONSE + id.replace("-", "")
        self._responses.add(response)
        return {
            "id": response,
            "type": "message",
            "role": "assistant",
            "model": string_in(message, "model") or UNKNOWN_MODEL,
            "content": [],
            "stop_reason": written_reason(message, _has_calls(composed)),
            "stop_sequence": None,
            "usage": written_usage(message.get("usage")),
        }

    def _name_call(self, block: Fields) -> str:
        name = wanted = tool_word(string_in(block, "id") or "")
        number = 2
        while name in self._calls:
            name, number = f"{wanted}_{number}", number + 1
        self._calls.add(name)
        return name

    # Results

    def result(self, entry: CanonicalEntry, parent: str | None, message: Fields) -> Encoded:
        transcript = self._transcript
        found = transcript.standing.find_call(string_in(message, "toolCallId") or "", parent)
        if found is None:
            return self._lost_result(entry, parent)
        composed = content_builder.composed_spoken(message.get("content"))
        is_apart = found.is_near and transcript.standing.needs_boundary(parent, is_result=True)
        held = transcript.held if found.is_near and not is_apart else None
        lines = [] if held is not None else transcript.released()
        hangs_on = found.call.line if held is not None else found.hangs_on
        (id,) = self._sheet.uuids(entry, 1)
        if is_apart and parent is not None:
            lines.append(transcript.own_boundary(entry, parent))
            hangs_on = lines[-1]["uuid"]
        line = self._result_line(entry, id, hangs_on, message, found, composed)
        placed = Placed(parent, (id,), id, (), found.response, found.call.line, is_apart)
        transcript.placed_result(entry, line, placed)
        if held is None:
            return Encoded(id, [render_json(each) for each in (*lines, line)], composed.notes)
        held.lines.append(line)
        held.open.discard(found.call.line)
        done = [] if held.open else transcript.released()
        return Encoded(id, [render_json(each) for each in done], composed.notes)

    def _lost_result(self, entry: CanonicalEntry, parent: str | None) -> Encoded:
        """The client drops it and says that there was no content. It rides along on a line that says nothing."""
        line = self._transcript.aside_line(entry, parent, {"type": "custom", "customType": f"{NAME}.result"})
        line[PASSTHROUGH] = new_passthrough(entry, string_in(line, "id") or "", whole=True)
        notes = [LossNote("aside", "results without a call", "Claude Code does not send them")]
        return self._transcript.written_aside(line, parent, notes)

    def _result_line(
        self,
        entry: CanonicalEntry,
        id: str,
        hangs_on: str | None,
        message: Fields,
        found: FoundCall,
        composed: Composed,
    ) -> Fields:
        """The line of a result. The client's own copy of it, `toolUseResult`, is written only if it rode along."""
        call, time = found.call, self._sheet.time(entry)
        is_error = message.get("isError") is True
        block: Fields = {
            "tool_use_id": call.id,
            "type": "tool_result",
            "content": content_builder.result_content(composed),
        }
        if is_error:
            block["is_error"] = True
        (rest,) = rests_of(entry, 1)
        content = rest["content"] if is_same_result(rest.get("content"), block) else [block]
        said = {"message": {"role": "user", "content": content}}
        line = self._sheet.line("user", id, hangs_on, time, said, rest)
        line["sourceToolAssistantUUID"] = call.line
        told_result = decode_lines.told_results(line, self._transcript.base, {call.id: call.name})[0]
        self._transcript.ride(entry, line, told_result, composed.left_out)
        return line


def _has_calls(composed: Composed) -> bool:
    return "tool_use" in [block["type"] for block in composed.blocks]
