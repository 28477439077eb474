"""Writing a transcript that the client resumes in full: items in canonical form -> lines.

An answer is one line for each of its blocks, a result hangs on the line of its call, a compaction is a boundary and a
summary. Entries that the client has no line for are asides: lines of our own type, which it passes over. What a line
has no place for rides along on it. For ordinary messages that is known beforehand (`plain`); for all others it is
worked out by telling the line and looking at what is missing (`differences`).
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from sessiontree.core.entries import Config
from sessiontree.core.jsonio import render_json
from sessiontree.dialects.canonical import CanonicalEntry, Encoded, SessionMeta
from sessiontree.dialects.claude import content_builder
from sessiontree.dialects.claude.aside import put_aside
from sessiontree.dialects.claude.chain import Chain
from sessiontree.dialects.claude.encode_assistant import Answering
from sessiontree.dialects.claude.encode_compaction import write_boundary
from sessiontree.dialects.claude.encode_user import line_again, write_command, write_meta, write_prompt
from sessiontree.dialects.claude.history import START
from sessiontree.dialects.claude.leaf import is_pinned_elsewhere
from sessiontree.dialects.claude.records import Fields, object_in, string_in
from sessiontree.dialects.claude.reparent import NIL
from sessiontree.dialects.claude.restoring import summary_content
from sessiontree.dialects.claude.transcript import Transcript
from sessiontree.dialects.contract import IndexedLines

_SPEAKING = ("message", "custom_message", "branch_summary")


class ClaudeEncoder:
    """Writes one transcript."""

    def __init__(self, meta: SessionMeta, lines: IndexedLines | None = None) -> None:
        self._meta = meta
        self._lines = lines
        self._title = meta.title
        self._transcript = Transcript(meta, lines)
        self._answering = Answering(self._transcript)

    def prologue(self) -> Sequence[bytes]:
        config = self._meta.config
        if config is None or config == Config():
            return ()
        entry = {"type": "config", "config": config}
        return [render_json(self._transcript.sheet.aside(entry, self._meta.timestamp, **{START: True}))]

    def encode(self, entry: CanonicalEntry, parent: str | None) -> Encoded:
        written = self._add(entry, parent)
        if self._lines is None or written.id is None or written.id == parent or not written.lines:
            return written
        if parent is not None and entry.kind in _SPEAKING:  # and not through what a later boundary keeps
            freed = self._transcript.freed(CanonicalEntry("", {}, timestamp=entry.timestamp), str(parent))
            written = replace(written, lines=[*map(render_json, freed), *written.lines])
        # What begins anew does not hang on the line that an earlier pin names.
        behind = None if entry.kind in ("compaction", "reset_boundary") else parent
        if is_pinned_elsewhere(Chain(self._lines), behind):
            pin = self._transcript.sheet.note("last-prompt", leafUuid=str(written.id))
            return replace(written, lines=[*written.lines, render_json(pin)])
        return written

    def _add(self, entry: CanonicalEntry, parent: str | None) -> Encoded:
        transcript = self._transcript
        transcript.after = transcript.standing.aside_before(parent)
        if parent is not None:
            parent = str(parent)
        match entry.kind:
            case "message":
                return self._message(entry, parent, object_in(entry.fields, "message"))
            case "custom_message":
                return write_meta(transcript, entry, parent, entry.fields.get("content"))
            case "branch_summary":
                text = content_builder.branch_text(string_in(entry.fields, "summary") or "")
                return write_meta(transcript, entry, parent, text, summary_content(entry))
            case "compaction" | "reset_boundary":
                return write_boundary(transcript, entry, parent)
            case "custom" if (again := line_again(transcript, entry, parent)) is not None:
                return again
            case "leaf" if not transcript.is_new:
                target = string_in(entry.fields, "targetId")
                lines = transcript.freed(entry, target) if target is not None else []
                pin = transcript.sheet.note("last-prompt", leafUuid=target or NIL, explicit=True)
                return Encoded(parent, [render_json(line) for line in (*lines, pin)])
            case "session_info":
                return self._session_info(entry, parent)
            case _:
                return put_aside(transcript, entry, parent)

    def _message(self, entry: CanonicalEntry, parent: str | None, message: Fields) -> Encoded:
        match message.get("role"):
            case "user":
                return write_prompt(self._transcript, entry, parent, message)
            case "assistant":
                return self._answering.answer(entry, parent, message)
            case "toolResult":
                return self._answering.result(entry, parent, message)
            case "bashExecution" if message.get("excludeFromContext") is not True:
                return write_command(self._transcript, entry, parent, message)
            case "custom":
                return write_meta(self._transcript, entry, parent, message.get("content"))
            case role:
                what = f"{role} messages" if isinstance(role, str) else "messages of no role"
                return put_aside(self._transcript, entry, parent, what)

    def _session_info(self, entry: CanonicalEntry, parent: str | None) -> Encoded:
        name = " ".join((string_in(entry.fields, "name") or "").split())
        titles = [
            self._transcript.sheet.note("custom-title", customTitle=name),
            self._transcript.sheet.note("agent-name", agentName=name),
        ]
        self._title = name or self._title
        if not entry.id and name:  # nothing but a name: the client's own lines say it
            return Encoded(parent, [render_json(line) for line in titles])
        written = put_aside(self._transcript, entry, parent)
        notes = [] if name else written.notes
        return Encoded(written.id, [*written.lines, *(render_json(line) for line in titles if name)], notes)

    def epilogue(self, leaf: str | None) -> Sequence[bytes]:
        transcript = self._transcript
        lines = transcript.released()
        transcript.after = transcript.standing.aside_before(leaf)
        leaf = None if leaf is None else str(leaf)
        prompt = transcript.standing.last_prompt(leaf)
        if leaf is not None and transcript.standing.needs_boundary(leaf, is_result=False):
            lines += transcript.parted(CanonicalEntry("", {}, "the end"), leaf)
            leaf = transcript.last = lines[-1]["uuid"]
            transcript.say_after(lines[-1])
        if self._title:
            lines.append(transcript.sheet.note("custom-title", customTitle=self._title))
        if transcript.last is not None:
            said = {"lastPrompt": prompt} if prompt else {}
            explicit = {"explicit": True} if leaf != transcript.last else {}
            lines.append(transcript.sheet.note("last-prompt", **said, leafUuid=leaf or NIL, **explicit))
        return [render_json(line) for line in lines]
