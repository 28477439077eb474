"""The session to export: its strands as records, and facts about it, with secrets masked on request.

Entries are read in small batches and dropped. Totals (usage, masked secrets) are complete only after all entries were
read.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Literal, TypeVar

from msgspec import Struct

from sessiontree.branches.tips import count_tips
from sessiontree.core.entries import CONVERSATION_TYPES, Entry, Fragment, Problem
from sessiontree.core.usage import UsageSum, UsageTotals
from sessiontree.dialects.contract import RelatedFile
from sessiontree.export.record_builder import build_records
from sessiontree.export.records import Record
from sessiontree.export.strands import Outline, Strand, build_outline
from sessiontree.secrets.redact import Redactor
from sessiontree.session.session import Session

BranchSelection = Literal["active", "all"]
_STEP = 256
_FIRST = 4
AnyT = TypeVar("AnyT")
REPLACED = "replaced by a later entry with the same id"


class Facts(Struct, frozen=True):
    """Facts about a session that need no entry bodies."""

    title: str
    id: str
    dialect: str
    version: int
    location: str
    folder: str
    created: str
    git_branch: str | None
    forked_from: str
    leaf: str | None
    entries: int
    branches: int


class Source:
    """A session to export."""

    def __init__(self, session: Session, branch: BranchSelection = "active", redactor: Redactor | None = None) -> None:
        self.session = session
        self.branch: BranchSelection = branch
        self.redactor = redactor
        self.outline: Outline = build_outline(session)
        self.labels: dict[str, str] = self._masked(session.labels)
        self.shown = 0
        """Number of entries yielded so far."""
        self._used = UsageSum()

    def _masked(self, value: AnyT) -> AnyT:
        return value if self.redactor is None else self.redactor.value(value)

    @property
    def strands(self) -> list[Strand]:
        """The strands to export: the active path, and the others with `branch="all"`."""
        return self.outline.strands if self.branch == "all" else self.outline.strands[:1]

    def facts(self) -> Facts:
        session = self.session
        header, origin = session.header, session.header.forked_from
        came_from = f"{origin.session} at {origin.entry}" if origin else header.parent_session or ""
        facts = Facts(
            title=session.name or "",
            id=session.id,
            dialect=session.dialect.name,
            version=header.version,
            location=session.location,
            folder=session.cwd,
            created=header.timestamp,
            git_branch=session.git_branch,
            forked_from=came_from,
            leaf=session.leaf,
            entries=len(session),
            branches=count_tips(session),
        )
        return self._masked(facts)

    def records(self, strand: Strand) -> Iterator[Record]:
        """The records of a strand, with results attached to their calls."""
        return build_records(self.iter_entries(strand.nodes), self.labels)

    def outside(self) -> Iterator[Record]:
        """Entries outside of all strands: metadata lines, and entries that were replaced."""
        if self.branch == "all":
            shadowed = self.session.shadowed
            for node, entry in self.iter_entries(self.outline.outside):
                mark = REPLACED if node in shadowed else ""
                yield from build_records([(node, entry)], {}, mark)

    def iter_entries(self, nodes: Sequence[int]) -> Iterator[tuple[int, Entry]]:
        """Entries with their numbers, read in batches."""
        for start in range(0, len(nodes), _STEP):
            step = nodes[start : start + _STEP]
            entries = self.session.journal.entries(step)
            self.shown += len(step)
            for entry in entries:
                self._used.add(entry)
            yield from zip(step, self._masked(entries), strict=True)

    def first_record(self, strand: Strand) -> Record | None:
        """The first message of a strand if it is among its first entries; else its first record."""
        types = self.session.journal.types
        nodes = [node for node in strand.nodes if types[node] in CONVERSATION_TYPES][:_FIRST] or strand.nodes[:1]
        entries = zip(nodes, self._masked(self.session.journal.entries(nodes)), strict=True)
        records = list(build_records(entries, self.labels))
        messages = (record for record in records if record.who in ("user", "assistant", "summary"))
        return next(messages, records[0] if records else None)

    def used(self) -> UsageTotals:
        """Usage of the entries yielded so far."""
        return self._used.totals()

    def problems(self) -> list[Problem]:
        return self._masked(self.session.problems)

    def fragments(self) -> list[Fragment]:
        return self._masked(self.session.fragments)

    @functools.cached_property
    def files(self) -> list[RelatedFile]:
        """Related files of the session. Finding them reads every line."""
        return self.session.related_files()

    def related_files(self) -> list[tuple[str, str, str]]:
        """Related files to list: kind, name, possible path."""
        if self.branch != "all":
            return []
        found: list[tuple[str, str, str]] = [
            (item.kind, item.name, item.places[0] if item.places else "") for item in self.files
        ]
        return self._masked(found)
