"""Convert a session to another dialect, entry by entry: decode, map tools and roles, encode.

Only ids are kept in memory. The report lists everything that the target cannot store unchanged.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct

from sessiontree import plugins
from sessiontree.conversion.context_edits import ContextEdits
from sessiontree.conversion.tool_mapping import ToolMapper, with_original_tools
from sessiontree.conversion.walk import REPORT, iter_entries
from sessiontree.core.entries import Config, ForkOrigin
from sessiontree.core.ids import new_session_id, timestamp
from sessiontree.core.messages import BLOCK_TYPES
from sessiontree.dialects.canonical import CanonicalEntry, Encoder, LossNote, NoteKind, SessionMeta
from sessiontree.dialects.contract import Dialect
from sessiontree.dialects.roles import with_common_role
from sessiontree.errors import UsageError
from sessiontree.session.reader import CURRENT, Current, Reader

BranchChoice = Literal["active", "all"]

_ORDER: tuple[NoteKind, ...] = ("dropped", "changed", "mapped", "aside")
_LEAF = "leaf"
"""Not converted: the encoder writes the current entry at the end, and earlier moves have no meaning in another file."""


class Line(Struct, frozen=True):
    """One kind of loss or change, and how often it occurred."""

    kind: NoteKind
    what: str
    why: str
    count: int


class Report:
    """Filled while the lines of a conversion are iterated."""

    def __init__(self, source: str, target: str) -> None:
        self.source = source
        self.target = target
        self.carried: Counter[str] = Counter()
        """Counts of what was carried over: messages by role, blocks and other entries by type."""
        self._notes: Counter[LossNote] = Counter()

    @property
    def notes(self) -> list[Line]:
        """Losses and changes, the worst first."""
        lines = [Line(note.kind, note.what, note.why, count) for note, count in self._notes.items()]
        return sorted(lines, key=lambda line: (_ORDER.index(line.kind), line.what, line.why))

    @property
    def dropped(self) -> list[Line]:
        """Content that the target does not have at all."""
        return [line for line in self.notes if line.kind == "dropped"]

    def note(self, note: LossNote) -> None:
        self._notes[note] += 1

    def count(self, entry: CanonicalEntry) -> None:
        message = entry.fields.get("message")
        if entry.kind != "message" or not isinstance(message, dict):
            self.carried[entry.kind] += 1
            return
        self.carried[str(message.get("role"))] += 1
        content = message.get("content")
        if isinstance(content, list):
            for block in content:
                kind = block.get("type") if isinstance(block, dict) else None
                if kind != "text" and isinstance(kind, str) and kind in BLOCK_TYPES:
                    self.carried[kind] += 1

    def as_json(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "target": self.target,
            "carried": dict(sorted(self.carried.items())),
            "notes": [
                {"kind": line.kind, "what": line.what, "why": line.why, "count": line.count} for line in self.notes
            ],
        }


class Converted:
    """A session in another dialect. `lines` can be iterated once; the report is complete after that."""

    def __init__(self, dialect: Dialect, meta: SessionMeta, lines: Iterator[bytes], report: Report) -> None:
        self.dialect = dialect
        self.meta = meta
        self.lines = lines
        """The lines of the new file, each with its LF."""
        self.report = report


def convert(
    session: Reader,
    to: str,
    *,
    branch: BranchChoice = "active",
    at: str | Current | None = CURRENT,
    id: str | None = None,
    cwd: str | None = None,
    fork: bool = False,
) -> Converted:
    """Convert a session to another agent's format (or the same), with the history of the current entry or another one.

    `branch="all"` includes every branch; the current entry is kept either way. With `fork` the new session records the
    old one as its origin, in the target's format.
    """
    if branch not in ("active", "all"):
        raise UsageError(f"unknown choice of branches {branch!r}: use `active` or `all`")
    dialect: Dialect = plugins.load("dialects", to)
    if branch == "all" and dialect.traits.is_linear:
        raise UsageError(f"sessions of {to} have no branches; convert one at a time")
    leaf = session.leaf if isinstance(at, Current) else at
    meta = SessionMeta(
        id=id or new_session_id(),
        timestamp=timestamp(),
        cwd=session.cwd if cwd is None else cwd,
        title=session.given_name,
        git_branch=session.git_branch,
        config=_own_config(session),
        forked_from=ForkOrigin(session.id, leaf) if fork else None,
        origin=session.location if fork else None,
    )
    report = Report(session.dialect.name, to)
    edits = ContextEdits(session, dialect, leaf, all_branches=branch == "all")
    conversion = _Conversion(session, dialect, dialect.encoder(meta), report, edits)
    return Converted(dialect, meta, conversion.iter_lines(leaf, all_branches=branch == "all"), report)


def _own_config(session: Reader) -> Config | None:
    """The settings without the session's name and approvals; None when they are the defaults.

    Approvals are not copied: the user gave them to one session in one agent, or another person wrote them.
    """
    config = msgspec.structs.replace(session.config, approval_mode="default", approval_tools=())
    if config.summary == session.given_name:
        config = msgspec.structs.replace(config, summary=None)
    return None if config == Config() else config


class _Conversion:
    def __init__(self, session: Reader, target: Dialect, encoder: Encoder, report: Report, edits: ContextEdits) -> None:
        self._session = session
        self._edits = edits
        self._target = target
        self._tools = ToolMapper(session.dialect.name, target.name)
        self._encoder = encoder
        self._report = report
        self._new_ids: dict[str, str | None] = {}
        """Id of a canonical entry -> id in the target."""
        self._has_title = False
        self._labeled: set[str] = set()
        self._entry_ids: dict[str, str] = {}
        """Id of a line of the source -> id of the canonical entry it became a part of."""

    def iter_lines(self, leaf: str | None, *, all_branches: bool) -> Iterator[bytes]:
        yield from _with_lf(self._encoder.prologue())
        for entry, parent in iter_entries(self._session, leaf, all_branches=all_branches):
            yield from _with_lf(self._encode(entry, None if parent is None else self._new_ids.get(parent)))
        current = self._current(leaf)
        for entry in self._iter_metadata():
            yield from _with_lf(self._encode(entry, current))
        self._note_missing_blobs()
        yield from _with_lf(self._encoder.encode(self._report_entry(), current).lines)
        yield from _with_lf(self._encoder.epilogue(current))

    def _current(self, leaf: str | None) -> str | None:
        """The current entry in the target: the last one of the history, which need not be the line of the leaf.

        If Claude Code ends right after a compaction, its leaf is a message that the compaction kept.
        """
        session = self._session
        history = session.dialect.find_history(session.journal, session.node_of(leaf), session.read_options)
        ids = session.journal.tree.ids
        last = next((ids[node] for node in reversed(history) if ids[node] in self._new_ids), None)
        if last is None:
            return None
        # The further entries of a line, such as the results of its calls, have its id with a number.
        names = itertools.takewhile(self._new_ids.__contains__, (f"{last}.{number}" for number in itertools.count(1)))
        return self._new_ids[[last, *names][-1]]

    def _encode(self, entry: CanonicalEntry, parent: str | None) -> Sequence[bytes]:
        for alias in entry.aliases:
            self._entry_ids[alias] = entry.id
        if entry.kind == _LEAF:
            self._track_id(entry, parent)
            return ()
        self._has_title |= entry.kind == "session_info"
        if entry.kind == "label":
            self._labeled.add(str(entry.fields.get("targetId")))
        edited, edit_notes = self._edits.apply(entry)
        mapped, tool_notes = self._tools.map_entry(with_original_tools(edited))
        mapped, role_notes = with_common_role(mapped, self._target)
        encoded = self._encoder.encode(mapped, parent)
        self._track_id(entry, encoded.id)
        self._report.count(entry)
        for note in (*edit_notes, *tool_notes, *role_notes, *encoded.notes):
            self._report.note(note)
        return encoded.lines

    def _track_id(self, entry: CanonicalEntry, id: str | None) -> None:
        self._new_ids[entry.id] = id
        for alias in entry.aliases:
            self._new_ids[alias] = id

    def _iter_metadata(self) -> Iterator[CanonicalEntry]:
        """Iterate over the session's name and labels that are not part of the history."""
        title = self._session.given_name
        if title and not self._has_title:
            yield CanonicalEntry("session_info", {"name": title}, timestamp=timestamp())
        for line, label in self._session.labels.items():
            target = self._entry_ids.get(line, line)
            if target in self._new_ids and target not in self._labeled:
                yield CanonicalEntry("label", {"targetId": target, "label": label}, timestamp=timestamp())

    def _report_entry(self) -> CanonicalEntry:
        """The report as a custom entry for the new session."""
        data = {"session": self._session.id, "location": self._session.location, **self._report.as_json()}
        return CanonicalEntry("custom", {"customType": REPORT, "data": data}, timestamp=timestamp())

    def _note_missing_blobs(self) -> None:
        for problem in self._session.problems:
            if problem.kind in ("missing-blob", "damaged-blob"):
                self._report.note(
                    LossNote("dropped", "images and texts stored outside the file", "their blob is missing")
                )


def _with_lf(lines: Sequence[bytes]) -> Iterator[bytes]:
    for line in lines:
        yield line + b"\n"
