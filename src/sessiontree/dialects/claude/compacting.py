"""Compactions and resets -> a boundary, the summary behind it, and a line for what was kept to stand before."""

from __future__ import annotations

from sessiontree.dialects.claude import composing, told
from sessiontree.dialects.claude.restoring import rests_of
from sessiontree.dialects.claude.sheets import boundary_facts
from sessiontree.dialects.claude.told import NAME
from sessiontree.dialects.claude.transcript import Transcript
from sessiontree.dialects.claude.wire import Fields, object_in, string_in
from sessiontree.dialects.riders import RIDER
from sessiontree.dialects.scribe import Item, Note, Written
from sessiontree.values import render_json

_CONTINUED = "This session is being continued"


def write_boundary(transcript: Transcript, item: Item, parent: str | None) -> Written:
    """Where the context begins anew."""
    sheet, standing = transcript.sheet, transcript.standing
    summary = string_in(item.fields, "summary") or ""
    first_kept = string_in(item.fields, "firstKeptEntryId")
    lines = transcript.released()
    kept = standing.kept(first_kept, parent) if first_kept else []
    rests = rests_of(item, 2 if summary else 1)
    is_own = NAME in object_in(item.fields, RIDER)
    count = 1 + bool(summary) + (bool(kept) or not summary)
    uuids = sheet.uuids(item, count)
    time = sheet.time(item)
    anchor = uuids[1] if summary else uuids[0]
    about = boundary_facts(item.fields, is_own, kept, anchor)
    before = parent
    if parent is not None and standing.needs_boundary(parent, is_result=False):
        lines += transcript.parted(item, parent)
        before = lines[-1]["uuid"]
        transcript.say_after(lines[-1])
    boundary = transcript.boundary_line(uuids[0], before, time, about, rests[0])
    written = [boundary]
    behind: Fields | None = None
    if summary:
        text = summary if is_own or summary.startswith(_CONTINUED) else composing.summary_text(summary)
        said = {"message": {"role": "user", "content": text}}
        marks = {"isVisibleInTranscriptOnly": True, "isCompactSummary": True}
        behind = sheet.line("user", uuids[1], uuids[0], time, {**said, **marks}, rests[-1])
        written.append(behind)
    if count > len(written):
        # What was kept stands between the summary and the line that follows it, so there has to be one; and a
        # boundary with nothing behind it compacts nothing.
        written.append(transcript.silent_line(uuids[-1], anchor, time))
    transcript.ride(item, boundary, told.told_compaction(boundary, behind, transcript.base))
    notes = []
    if item.kind == "reset_boundary":
        notes.append(Note("mapped", "resets of the context", "written as compactions without a summary"))
    placed = transcript.placed(item, parent, written, notes, kept=tuple(kept))
    standing.capture(kept)
    return Written(placed.id, [*map(render_json, lines), *placed.lines], notes)
