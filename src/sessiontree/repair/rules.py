"""Table of the rules of `doctor`: id, meaning, what the client does about it, what `repair` does."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Severity = Literal["loss", "damage", "note"]
"""A loss hides messages; damage is anything else that is broken; a note is for information."""


class Rule(Struct, frozen=True):
    """One kind of problem."""

    id: str
    severity: Severity
    meaning: str
    client: str
    """What the client does about it."""

    repair: str
    """What `repair` does about it, or why it does nothing."""


_LEFT = "leaves it unchanged"
_QUARANTINE = "moves the bytes to the sidecar"

RULES: dict[str, Rule] = {
    rule.id: rule
    for rule in (
        Rule("torn-tail", "damage", "the last line is incomplete", "skips or rejects it", _QUARANTINE),
        Rule("undecodable", "damage", "a line is not JSON", "skips it silently, or rejects the file", _QUARANTINE),
        Rule(
            "glued-stub",
            "loss",
            "a complete record follows an incomplete one on the same line",
            "also loses the complete record",
            "moves the record to its own line and the incomplete one to the sidecar",
        ),
        Rule(
            "fused-records", "loss", "several records are on one line", "loses some or all of them", "splits the line"
        ),
        Rule(
            "nul-run",
            "damage",
            "NUL bytes where a write was lost",
            "loses the rest of the line",
            "removes them; the sidecar lists them",
        ),
        Rule("bad-utf8", "damage", "a line has invalid UTF-8", "shows replacement characters", _LEFT),
        Rule("lone-surrogate", "note", "a text has half of a surrogate pair", "keeps or replaces it", _LEFT),
        Rule("odd-json", "note", "a line is not strict JSON", "may skip it", _LEFT),
        Rule("bom", "damage", "the file starts with a byte order mark", "may reject the file", "removes it"),
        Rule("crlf", "note", "lines end in CR LF", "reads it", _LEFT),
        Rule("blank-line", "note", "a line is blank", "skips it, or rejects the file", "removes it"),
        Rule("no-final-newline", "damage", "the last line has no LF", "may glue its next line to it", "ends the line"),
        Rule("not-an-object", "damage", "a line is not a JSON object", "may crash on it", _QUARANTINE),
        Rule("not-an-entry", "note", "an object is not an entry", "ignores it", _LEFT),
        Rule("second-header", "damage", "the file has a second header", "ignores the second header", _LEFT),
        Rule("late-header", "damage", "entries come before the header", "rejects the file", "moves the header up"),
        Rule("no-header", "loss", "the header is missing", "rejects the file", "writes one"),
        Rule("several-sessions", "damage", "the file has lines of several sessions", "mixes them up", _LEFT),
        Rule(
            "duplicate-id",
            "loss",
            "two entries have the same id",
            "shows only the later one",
            "gives the earlier one a new id",
        ),
        Rule(
            "missing-parent",
            "loss",
            "an entry's parent is missing",
            "shows nothing before it",
            "links it to the best candidate",
        ),
        Rule(
            "false-root",
            "loss",
            "an entry in the middle has no parent",
            "shows nothing before it",
            "links it",
        ),
        Rule(
            "summary-off-path", "loss", "a compaction's summary is not on the path", "forgets the summary", "links it"
        ),
        Rule("empty-parent", "note", "an entry's parent is empty", "reads it as a root", _LEFT),
        Rule("self-parent", "loss", "an entry is its own parent", "may hang", "links it to the entry before it"),
        Rule("cycle", "loss", "entries are each other's parents", "may hang", "breaks the cycle at its first entry"),
        Rule("forward-reference", "note", "an entry comes before its parent", "reads it", _LEFT),
        Rule("no-id", "loss", "an entry has no id", "loses its place in the tree", "writes a generated id"),
        Rule(
            "stale-leaf",
            "loss",
            "the last line is bookkeeping of another branch and hides the newest messages",
            "opens the older branch",
            "adds a line on the branch of the newest messages",
        ),
        Rule(
            "duplicate-ordinal",
            "damage",
            "two lines have the same number",
            "reads both: a message is sent twice",
            "copies a repeated line once",
        ),
        Rule("missing-ordinal", "loss", "numbered lines are missing", "reads the rest", "cannot restore them"),
        Rule(
            "no-ordinal", "loss", "the last line has no number", "refuses to resume", "writes a thread without numbers"
        ),
        Rule("refused-header", "loss", "the header lacks a field", "refuses to resume", "writes a complete header"),
        Rule("orphan-tool-result", "damage", "a result has no matching call", "drops or rejects it", _LEFT),
        Rule("unanswered-tool-call", "note", "a call has no result", "completes or strips it", _LEFT),
        Rule("lost-parallel-results", "loss", "results of parallel calls are off the path", "may lose them", _LEFT),
        Rule(
            "dangling-bound", "loss", "the first kept entry of a compaction is not on its path", "keeps nothing", _LEFT
        ),
        Rule("missing-blob", "loss", "large content is missing", "shows the reference", _LEFT),
        Rule("damaged-blob", "loss", "large content does not match its hash", "shows something else", _LEFT),
        Rule("missing-subagent", "note", "the transcript of a sub-agent is missing", "shows only its report", _LEFT),
        Rule("cut-content", "note", "a long text was truncated when it was written", "shows what is left", _LEFT),
        Rule("missing-output", "loss", "a file with spilled tool output is missing", "shows its beginning", _LEFT),
        Rule("moved-output", "note", "a file with spilled tool output was moved to the session", "loses it", _LEFT),
        Rule("title-out-of-sight", "note", "the title is where the client does not look", "shows another title", _LEFT),
        Rule("bloat", "note", "a large part of the file is repeated bookkeeping", "reads all of it each time", _LEFT),
        Rule("newer-version", "note", "the file has a newer version", "reads it", _LEFT),
        Rule(
            "old-version",
            "note",
            "the file has an old version",
            "rewrites it when it opens it",
            "leaves it to `migrate`",
        ),
    )
}
