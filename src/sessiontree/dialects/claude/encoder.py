"""Encode canonical entries as a transcript that the client resumes in full.

An assistant message is one line for each of its blocks, its results follow one another, a compaction is a boundary
and a summary. Entries that the client has no line type for are on metadata lines of our own type, which it
skips. Content that a line cannot store is passthrough data on it, found by decoding the line and comparing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from sessiontree.core.entries import MESSAGE_TYPES, Config
from sessiontree.core.jsonio import parse_object, render_json
from sessiontree.dialects.canonical import CanonicalEntry, Encoded, LossNote, SessionMeta
from sessiontree.dialects.claude import decode_lines
from sessiontree.dialects.claude.chain import Chain
from sessiontree.dialects.claude.content import text_of
from sessiontree.dialects.claude.decode_lines import NAME, client_fields_of
from sessiontree.dialects.claude.encode_assistant import AssistantEncoder
from sessiontree.dialects.claude.encode_user import (
    encode_command_entry,
    encode_hidden,
    encode_injected,
    encode_prompt,
)
from sessiontree.dialects.claude.history import START
from sessiontree.dialects.claude.line_builder import build_compact_metadata
from sessiontree.dialects.claude.messages import is_blank_text
from sessiontree.dialects.claude.path import is_pinned_elsewhere
from sessiontree.dialects.claude.records import NIL_UUID, Fields, object_in, string_in
from sessiontree.dialects.claude.transcript import Transcript
from sessiontree.dialects.contract import IndexedLines
from sessiontree.dialects.defaults import replace_field
from sessiontree.dialects.passthrough import carried_data, is_restated

_CONTINUED = "This session is being continued"
"""The first words of the client's summaries."""


class ClaudeEncoder:
    """Encodes one transcript."""

    def __init__(self, meta: SessionMeta, lines: IndexedLines | None = None) -> None:
        self._meta = meta
        self._lines = lines
        self._title = meta.title
        self._transcript = Transcript(meta, lines)
        self._assistant = AssistantEncoder(self._transcript)

    def prologue(self) -> Sequence[bytes]:
        config = self._meta.config
        if config is None or config == Config():
            return ()
        entry = {"type": "config", "config": config}
        return [render_json(self._transcript.builder.entry_line(entry, self._meta.timestamp, **{START: True}))]

    def encode(self, entry: CanonicalEntry, parent: str | None) -> Encoded:
        encoded = self._encode(entry, parent)
        # A metadata line changes no position: before the first chain line its own is empty.
        if self._lines is None or not encoded.id or encoded.id == parent or not encoded.lines:
            return encoded
        if parent and entry.kind in MESSAGE_TYPES:
            # A boundary in the file that preserves lines of this path would otherwise change it.
            placeholder = CanonicalEntry("", {}, timestamp=entry.timestamp)
            before = self._transcript.build_unpreserving_lines(placeholder, str(parent))
            lines = _continue_after(before, str(parent), encoded.lines)
            encoded = replace(encoded, lines=[*map(render_json, before), *lines])
        # A boundary is a root, so it never descends from the pinned line.
        branch = None if entry.kind in ("compaction", "reset_boundary") else parent or None
        if is_pinned_elsewhere(Chain(self._lines), branch):
            pin = self._transcript.builder.metadata_line("last-prompt", leafUuid=str(encoded.id))
            return replace(encoded, lines=[*encoded.lines, render_json(pin)])
        return encoded

    def _encode(self, entry: CanonicalEntry, parent: str | None) -> Encoded:
        transcript = self._transcript
        transcript.metadata_before = transcript.state.metadata_before(parent)
        parent = str(parent) if parent else None
        match entry.kind:
            case "message":
                return self._encode_message(entry, parent, object_in(entry.fields, "message"))
            case "custom_message":
                return encode_injected(transcript, entry, parent, entry.fields.get("content"))
            case "branch_summary" if _summary(entry):
                text = _branch_summary_text(string_in(entry.fields, "summary") or "")
                return encode_injected(transcript, entry, parent, text, _client_summary(entry))
            case "compaction" | "reset_boundary":
                if is_restated(entry):
                    self._assistant.start_context()
                return _encode_compaction(transcript, entry, parent)
            case "custom" if (encoded := encode_hidden(transcript, entry, parent)) is not None:
                return encoded
            case "leaf" if not transcript.is_new:
                lines = transcript.build_move_lines(entry, string_in(entry.fields, "targetId"))
                return Encoded(parent, [render_json(line) for line in lines])
            case "session_info":
                return self._encode_title(entry, parent)
            case _:
                return transcript.encode_as_metadata(entry, parent)

    def _encode_message(self, entry: CanonicalEntry, parent: str | None, message: Fields) -> Encoded:
        match message.get("role"):
            case "user":
                return encode_prompt(self._transcript, entry, parent, message)
            case "assistant":
                return self._assistant.encode_message(entry, parent, message)
            case "toolResult":
                return self._assistant.encode_result(entry, parent, message)
            case "bashExecution" if message.get("excludeFromContext") is not True:
                return encode_command_entry(self._transcript, entry, parent, message)
            case "custom":
                return encode_injected(self._transcript, entry, parent, message.get("content"))
            case role:
                plural = f"{role} messages" if isinstance(role, str) else "messages without a role"
                return self._transcript.encode_as_metadata(entry, parent, plural)

    def _encode_title(self, entry: CanonicalEntry, parent: str | None) -> Encoded:
        name = " ".join((string_in(entry.fields, "name") or "").split())
        titles = [  # the client's own rename writes both
            self._transcript.builder.metadata_line("custom-title", customTitle=name),
            self._transcript.builder.metadata_line("agent-name", agentName=name),
        ]
        self._title = name or self._title
        if not entry.id and name:  # the client's own lines hold all of it
            return Encoded(parent, [render_json(line) for line in titles])
        encoded = self._transcript.encode_as_metadata(entry, parent)
        notes = [] if name else encoded.notes
        return Encoded(encoded.id, [*encoded.lines, *(render_json(line) for line in titles if name)], notes)

    def epilogue(self, leaf: str | None) -> Sequence[bytes]:
        transcript = self._transcript
        lines: list[Fields] = []
        transcript.metadata_before = transcript.state.metadata_before(leaf)
        leaf = str(leaf) if leaf else None
        prompt = transcript.state.last_prompt(leaf)
        if leaf is not None and transcript.state.needs_boundary(leaf, is_result=False):
            lines += transcript.build_separator_lines(CanonicalEntry("", {}, "the end"), leaf)
            leaf = transcript.last_line = lines[-1]["uuid"]
            transcript.mark_position(lines[-1])
        elif transcript.last_line is not None and not transcript.state.has_turn(leaf):
            lines += transcript.build_empty_answer(CanonicalEntry("", {}, "the end"), leaf)
            leaf = transcript.last_line = lines[-1]["uuid"]
        if self._title:
            lines.append(transcript.builder.metadata_line("custom-title", customTitle=self._title))
        if transcript.last_line is not None:
            last_prompt = {"lastPrompt": prompt} if prompt else {}
            # Only an explicit pin keeps the leaf at a line that is not the last one of the file.
            explicit = {"explicit": True} if leaf != transcript.last_line else {}
            pin = transcript.builder.metadata_line("last-prompt", **last_prompt, leafUuid=leaf or NIL_UUID, **explicit)
            lines.append(pin)
        return [render_json(line) for line in lines]


def _continue_after(separator: Sequence[Fields], parent: str, lines: Sequence[bytes]) -> Sequence[bytes]:
    """Make lines follow a separator, if the last line that it preserves is not their parent."""
    if not separator:
        return lines
    preserved = separator[0]["compactMetadata"]["preservedMessages"]["uuids"]
    if preserved[-1] == parent:
        return lines
    # The lines of a response are together on its path, so its parent can be in the middle of what is preserved.
    after = separator[-1]["uuid"]
    return [
        replace_field(line, "parentUuid", after) if parse_object(line).get("parentUuid") == parent else line
        for line in lines
    ]


def _encode_compaction(transcript: Transcript, entry: CanonicalEntry, parent: str | None) -> Encoded:
    """Encode a compaction or a reset: a boundary, its summary, and a line before which the kept lines are inserted."""
    builder, state = transcript.builder, transcript.state
    summary = _summary(entry)
    first_kept = string_in(entry.fields, "firstKeptEntryId")
    before: list[Fields] = []
    kept = state.find_kept(first_kept, parent) if first_kept else []
    client_fields = client_fields_of(entry, 2 if summary else 1)
    is_own = carried_data(entry, NAME) is not None
    count = 1 + bool(summary) + (bool(kept) or not summary)
    uuids = builder.assign_uuids(entry, count)
    time = builder.time(entry)
    anchor = uuids[1] if summary else uuids[0]
    metadata = build_compact_metadata(entry.fields, is_own, kept, anchor)
    logical_parent = parent
    if parent is not None and state.needs_boundary(parent, is_result=False):
        before += transcript.build_separator_lines(entry, parent)
        logical_parent = before[-1]["uuid"]
        transcript.mark_position(before[-1])
    boundary = transcript.build_boundary(uuids[0], logical_parent, time, metadata, client_fields[0])
    lines = [boundary]
    summary_line: Fields | None = None
    if summary:
        is_client_text = is_own or summary.startswith(_CONTINUED)
        payload = {
            "message": {"role": "user", "content": summary if is_client_text else _summary_text(summary)},
            "isVisibleInTranscriptOnly": True,
            "isCompactSummary": True,
        }
        summary_line = builder.chain_line("user", uuids[1], uuids[0], time, payload, client_fields[-1])
        lines.append(summary_line)
    if kept:
        # The client inserts kept lines between the summary and its children, so the summary needs a child.
        lines.append(transcript.build_hidden_line(uuids[-1], anchor, time))
    elif not summary:
        # The client ignores a boundary without a user or assistant line after it. If the boundary names a parent, it is
        # not ignored there, but then nothing is sent of a session that is moved back to that parent.
        lines.append(transcript.build_empty_line(uuids[-1], anchor, time))
    decoded = decode_lines.decode_compaction(boundary, summary_line, transcript.common)
    transcript.add_passthrough(entry, boundary, decoded)
    notes = []
    if entry.kind == "reset_boundary":
        notes.append(LossNote("mapped", "resets of the context", "written as compactions without a summary"))
    state.add_boundary(kept)
    encoded = transcript.place(entry, parent, lines, notes, kept=tuple(kept))
    return Encoded(encoded.id, [*map(render_json, before), *encoded.lines], notes)


def _summary(entry: CanonicalEntry) -> str:
    """Return the summary of an entry; empty if it is blank, because other clients send no blank summaries.

    With our words before it, this client would send it. One that it wrote itself stays as it is.
    """
    summary = string_in(entry.fields, "summary") or ""
    return "" if is_blank_text(summary) and carried_data(entry, NAME) is None else summary


def _summary_text(summary: str) -> str:
    # The same text as in `providers.templates`: the model receives it either way.
    return f"The earlier part of this conversation was compacted. This summary replaces it:\n\n{summary}"


_BRANCH_OPENINGS = (
    "Another way was tried from here and left.",
    "Another branch of this conversation",
    "The user explored a different conversation branch",
)
"""The first words of summaries that introduce themselves: our own, those of merges, and Pi's."""


def _branch_summary_text(summary: str) -> str:
    if summary.startswith(_BRANCH_OPENINGS):
        return summary
    return (
        f"Another branch of this conversation was followed for a while and then left. This happened on it:\n\n{summary}"
    )


def _client_summary(entry: CanonicalEntry) -> Any:
    """Return the content in which the client wrote a summary, if the summary is still the same."""
    found = carried_data(entry, NAME)
    last = found[-1] if isinstance(found, list) and found else None
    content = last.get("content") if isinstance(last, dict) else None
    return content if content is not None and text_of(content) == entry.fields.get("summary") else None
