"""The rules doctor knows: a stable id each, what it means, what the owner does with it, what repair does.

One table, so that the words are in one place. What a finding costs is counted where it is found.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Severity = Literal["loss", "damage", "note"]
"""A loss hides something that was said; damage is something broken around it; a note is worth knowing."""


class Rule(Struct, frozen=True):
    """One kind of thing that can be wrong."""

    id: str
    severity: Severity
    meaning: str
    owner: str
    """What the program whose file it is does about it."""

    repair: str
    """What `repair` does about it, or why it does nothing."""


_LEFT = "leaves it as it is"
_QUARANTINE = "moves the bytes to the side-car"

RULES: dict[str, Rule] = {
    rule.id: rule
    for rule in (
        Rule("torn-tail", "damage", "the last line was cut while it was written", "skips or refuses it", _QUARANTINE),
        Rule("undecodable", "damage", "a line is no JSON", "skips it silently, or refuses the file", _QUARANTINE),
        Rule(
            "glued-stub",
            "loss",
            "the stub of a line has a whole record glued to it",
            "loses the record with the stub",
            "puts the record on a line of its own and the stub into the side-car",
        ),
        Rule(
            "fused-records", "loss", "several records stand on one line", "loses some or all of them", "splits the line"
        ),
        Rule(
            "nul-run",
            "damage",
            "NUL bytes stand where a write was lost",
            "loses what stands on the same line",
            "takes them out; the side-car says how many were where",
        ),
        Rule("bad-utf8", "damage", "bytes are no UTF-8", "shows replacement characters", _LEFT),
        Rule("lone-surrogate", "note", "half of a character pair stands alone", "keeps it or replaces it", _LEFT),
        Rule("odd-json", "note", "a line is not strict JSON", "may skip it", _LEFT),
        Rule("bom", "damage", "a byte order mark opens the file", "may refuse the file", "takes it out"),
        Rule("crlf", "note", "lines end in CR LF", "reads it", _LEFT),
        Rule("blank-line", "note", "a line is blank", "passes over it, or refuses the file", "takes it out"),
        Rule("no-final-newline", "damage", "the last line has no LF", "may glue its next line to it", "ends the line"),
        Rule("not-an-object", "damage", "a line holds a value that is no object", "may crash on it", _QUARANTINE),
        Rule("not-an-entry", "note", "an object is no entry", "ignores it", _LEFT),
        Rule("second-header", "damage", "a second session begins in the file", "ignores the second header", _LEFT),
        Rule("late-header", "damage", "entries stand before the header", "refuses the file", "moves the header up"),
        Rule("no-header", "loss", "the header is missing", "refuses the file", "writes one"),
        Rule("several-sessions", "damage", "lines of several sessions stand in one file", "mixes them up", _LEFT),
        Rule(
            "duplicate-id",
            "loss",
            "two entries have the same id",
            "shows only the later one",
            "gives the earlier one an id of its own",
        ),
        Rule(
            "missing-parent",
            "loss",
            "an entry's parent is not there",
            "shows nothing of what was before it",
            "links it to the best candidate",
        ),
        Rule(
            "false-root",
            "loss",
            "an entry starts anew in the middle",
            "shows nothing of what was before it",
            "links it",
        ),
        Rule(
            "summary-off-path", "loss", "a compaction's summary is not on the path", "forgets the summary", "links it"
        ),
        Rule("empty-parent", "note", "an entry's parent is no id", "takes it for a root", _LEFT),
        Rule("self-parent", "loss", "an entry is its own parent", "may hang", "links it to the entry before it"),
        Rule("cycle", "loss", "entries are each other's parents", "may hang", "opens the ring at its first entry"),
        Rule("forward-reference", "note", "an entry stands before its parent", "reads it", _LEFT),
        Rule("no-id", "loss", "an entry has no id", "loses its place in the tree", "writes the id it is given"),
        Rule(
            "stale-leaf",
            "loss",
            "bookkeeping of another branch is the last line and hides the newest messages",
            "opens the older branch",
            "adds a line that leads to the newest messages",
        ),
        Rule("orphan-tool-result", "damage", "a result answers no call that is there", "drops or refuses it", _LEFT),
        Rule("unanswered-tool-call", "note", "a call has no result", "completes or strips it", _LEFT),
        Rule("lost-parallel-results", "loss", "results of parallel calls hang beside the path", "may lose them", _LEFT),
        Rule(
            "dangling-bound", "loss", "a compaction keeps from an entry that is not on its path", "keeps nothing", _LEFT
        ),
        Rule("missing-blob", "loss", "large content is not where it should be", "shows the reference", _LEFT),
        Rule("damaged-blob", "loss", "large content does not fit its name", "shows something else", _LEFT),
        Rule("missing-subagent", "note", "the transcript of a sub-agent is not there", "shows only its report", _LEFT),
        Rule(
            "cut-content", "note", "a text was too long and was cut before it was written", "shows what is left", _LEFT
        ),
        Rule("missing-output", "loss", "tool output that was spilled to a file is gone", "shows its beginning", _LEFT),
        Rule(
            "moved-output", "note", "spilled tool output lies beside the session, not where it was", "loses it", _LEFT
        ),
        Rule(
            "title-out-of-sight", "note", "the title stands where the owner does not look", "shows another title", _LEFT
        ),
        Rule("bloat", "note", "a large part of the file is repeated bookkeeping", "reads all of it each time", _LEFT),
        Rule("newer-version", "note", "the file is of a newer version", "reads it", _LEFT),
        Rule(
            "old-version",
            "note",
            "the file is of an old version",
            "rewrites it when it opens it",
            "leaves it to `migrate`",
        ),
    )
}
