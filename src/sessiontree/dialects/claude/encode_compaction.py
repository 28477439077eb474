"""Compactions and resets -> a boundary, the summary behind it, and a line for what was kept to stand before."""

from __future__ import annotations

from sessiontree.core.jsonio import render_json
from sessiontree.dialects.canonical import CanonicalEntry, Encoded, LossNote
from sessiontree.dialects.claude import content_builder, decode_lines
from sessiontree.dialects.claude.decode_lines import NAME
from sessiontree.dialects.claude.line_builder import boundary_facts
from sessiontree.dialects.claude.records import Fields, object_in, string_in
from sessiontree.dialects.claude.restoring import rests_of
from sessiontree.dialects.claude.transcript import Transcript
from sessiontree.dialects.passthrough import PASSTHROUGH

_CONTINUED = "This session is being continued"


def write_boundary(transcript: Transcript, entry: CanonicalEntry, parent: str | None) -> Encoded:
    """Where the context begins anew."""
    sheet, standing = transcript.sheet, transcript.standing
    summary = string_in(entry.fields, "summary") or ""
    first_kept = string_in(entry.fields, "firstKeptEntryId")
    lines = transcript.released()
    kept = standing.kept(first_kept, parent) if first_kept else []
    rests = rests_of(entry, 2 if summary else 1)
    is_own = NAME in object_in(entry.fields, PASSTHROUGH)
    count = 1 + bool(summary) + (bool(kept) or not summary)
    uuids = sheet.uuids(entry, count)
    time = sheet.time(entry)
    anchor = uuids[1] if summary else uuids[0]
    about = boundary_facts(entry.fields, is_own, kept, anchor)
    before = parent
    if parent is not None and standing.needs_boundary(parent, is_result=False):
        lines += transcript.parted(entry, parent)
        before = lines[-1]["uuid"]
        transcript.say_after(lines[-1])
    boundary = transcript.boundary_line(uuids[0], before, time, about, rests[0])
    written = [boundary]
    behind: Fields | None = None
    if summary:
        text = summary if is_own or summary.startswith(_CONTINUED) else content_builder.summary_text(summary)
        said = {"message": {"role": "user", "content": text}}
        marks = {"isVisibleInTranscriptOnly": True, "isCompactSummary": True}
        behind = sheet.line("user", uuids[1], uuids[0], time, {**said, **marks}, rests[-1])
        written.append(behind)
    if count > len(written):
        # What was kept stands between the summary and the line that follows it, so there has to be one; and a
        # boundary with nothing behind it compacts nothing.
        written.append(transcript.silent_line(uuids[-1], anchor, time))
    transcript.ride(entry, boundary, decode_lines.told_compaction(boundary, behind, transcript.base))
    notes = []
    if entry.kind == "reset_boundary":
        notes.append(LossNote("mapped", "resets of the context", "written as compactions without a summary"))
    placed = transcript.placed(entry, parent, written, notes, kept=tuple(kept))
    standing.capture(kept)
    return Encoded(placed.id, [*map(render_json, lines), *placed.lines], notes)
