"""Telling a session in canonical form and writing it in another dialect, entry by entry.

Nothing is held but ids: an item is told, its tools are said in the target's words, it is written, and forgotten. What
cannot be said in the target is noted in the report.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from sessiontree import plugins
from sessiontree.conversion.report import Report
from sessiontree.conversion.roles import in_common_roles
from sessiontree.conversion.tool_names import ToolWords, with_own_words
from sessiontree.conversion.walk import REPORT, iter_items
from sessiontree.core.entries import Config, ForkOrigin
from sessiontree.core.ids import new_session_id, timestamp
from sessiontree.dialects.canonical import CanonicalEntry, Encoder, LossNote, SessionMeta
from sessiontree.dialects.contract import Dialect
from sessiontree.errors import UsageError
from sessiontree.session.reader import CURRENT, Current, Reader

BranchChoice = Literal["active", "all"]

_POSITION = "leaf"
"""Where a session stands is said by the encoder at the end; the moves before it have no meaning in another file."""


class Converted:
    """A session in another dialect. `lines` can be gone through once; the report is complete when it was."""

    def __init__(self, dialect: Dialect, meta: SessionMeta, lines: Iterator[bytes], report: Report) -> None:
        self.dialect = dialect
        self.start = meta
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
    """A session as one of another agent (or of the same), with the history of where it stands, or of one entry.

    `branch="all"` takes every branch along; a target is always told where the session stands. With `fork` the new
    session names the old one as its origin, in the target's own way.
    """
    if branch not in ("active", "all"):
        raise UsageError(f"{branch!r} is no choice of branches; it is `active` or `all`")
    dialect: Dialect = plugins.load("dialects", to)
    leaf = session.leaf if isinstance(at, Current) else at
    start = SessionMeta(
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
    telling = _Telling(session, dialect, dialect.encoder(start), report)
    return Converted(dialect, start, telling.iter_lines(leaf, whole=branch == "all"), report)


def _own_config(session: Reader) -> Config | None:
    """The settings that are more than the defaults and the session's name."""
    config = session.config
    if config.summary == session.given_name:
        config = msgspec.structs.replace(config, summary=None)
    return None if config == Config() else config


class _Telling:
    """One conversion under way."""

    def __init__(self, session: Reader, target: Dialect, encoder: Encoder, report: Report) -> None:
        self._session = session
        self._target = target.name
        self._words = ToolWords(session.dialect.name, target.name)
        self._encoder = encoder
        self._report = report
        self._ids: dict[str, str | None] = {}
        """What the target calls the entries told so far."""
        self._told_title = False
        self._labelled: set[str] = set()
        self._told: dict[str, str] = {}
        """What the lines of the source are called in canonical form."""

    def iter_lines(self, leaf: str | None, *, whole: bool) -> Iterator[bytes]:
        yield from _ended(self._encoder.prologue())
        for entry, parent in iter_items(self._session, leaf, whole=whole):
            for line in self._write(entry, None if parent is None else self._ids.get(parent)):
                yield line + b"\n"
        stands = None if leaf is None else self._ids.get(leaf)
        for entry in self._iter_about_all():
            yield from _ended(self._write(entry, stands))
        self._note_missing_blobs()
        yield from _ended(self._encoder.encode(self._report_item(), stands).lines)
        yield from _ended(self._encoder.epilogue(stands))

    def _write(self, entry: CanonicalEntry, parent: str | None) -> Sequence[bytes]:
        """The lines of one item."""
        for line in entry.aliases:
            self._told[line] = entry.id
        if entry.kind == _POSITION:
            self._remember(entry, parent)
            return ()
        self._told_title |= entry.kind == "session_info"
        if entry.kind == "label":
            self._labelled.add(str(entry.fields.get("targetId")))
        said, notes = self._words.said(with_own_words(entry))
        said, more_notes = in_common_roles(said, self._target)
        written = self._encoder.encode(said, parent)
        self._remember(entry, written.id)
        self._report.count(entry)
        for note in (*notes, *more_notes, *written.notes):
            self._report.note(note)
        return written.lines

    def _remember(self, entry: CanonicalEntry, id: str | None) -> None:
        self._ids[entry.id] = id
        for other in entry.aliases:
            self._ids[other] = id

    def _iter_about_all(self) -> Iterator[CanonicalEntry]:
        """What is said about the session or its entries beside the path: the name, and labels."""
        title = self._session.given_name
        if title and not self._told_title:
            yield CanonicalEntry("session_info", {"name": title}, timestamp=timestamp())
        for line, label in self._session.labels.items():
            target = self._told.get(line, line)
            if target in self._ids and target not in self._labelled:
                yield CanonicalEntry("label", {"targetId": target, "label": label}, timestamp=timestamp())

    def _report_item(self) -> CanonicalEntry:
        """What became of everything, kept in the new session where its client does not look."""
        data = {"session": self._session.id, "location": self._session.location, **self._report.as_json()}
        return CanonicalEntry("custom", {"customType": REPORT, "data": data}, timestamp=timestamp())

    def _note_missing_blobs(self) -> None:
        for problem in self._session.problems:
            if problem.kind in ("missing-blob", "damaged-blob"):
                self._report.note(
                    LossNote("dropped", "images and texts kept outside the file", "their blob is not there")
                )


def _ended(lines: Sequence[bytes]) -> Iterator[bytes]:
    for line in lines:
        yield line + b"\n"
