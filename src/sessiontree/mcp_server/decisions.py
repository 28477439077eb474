"""Recent decisions in a project, found by simple rules without a model.

These count as decisions:

* labels on entries;
* in the summary of a compaction or branch, the lines below a heading about decisions, else the beginning;
* sentences of users and models on the active path that state a decision.

Such rules miss some decisions and report other text as decisions, so each comes with its entry for further reading.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, TypeAlias

from msgspec import Struct

from sessiontree.core.entries import milliseconds
from sessiontree.errors import SessionTreeError
from sessiontree.library.library import Library
from sessiontree.library.summary import Summary
from sessiontree.search.text_extractor import read_line
from sessiontree.session.session import Session

Source: TypeAlias = Literal["label", "summary", "statement"]

_MAX_SESSIONS = 20
_MAX_BYTES_READ = 64 << 20
"""Limit of bytes read per query, the newest sessions first."""
_LAST_ENTRIES = 400
_MAX_TEXT = 400
_MAX_MESSAGE = 20_000
_MIN_BYTES = 12
_MAX_PER_SESSION = 12

_heading = re.compile(r"^\s{0,3}(?:#{1,6}\s+|\*\*|__)?(?P<text>[^\n]{1,80}?)(?:\*\*|__)?:?\s*$")
_about_decisions = re.compile(
    r"decision|decided|entscheid|décision|decisi[oó]n|决定|決定|決策|决策|결정", re.IGNORECASE
)
_decided = re.compile(
    r"""\b(?:
        (?:we|i)(?:['’]ve|\ have)?\ (?:decided|agreed|chose|settled\ on|went\ with|will\ go\ with)
      | (?:let['’]?s|we['’]ll|we\ will|we\ should|i['’]ll)
        \ (?:go\ with|use|keep|stick\ (?:with|to)|drop|switch\ to|not\ )
      | decision\s*:
      | (?:is|was|are|were)\ (?:decided|agreed|chosen)
      | instead\ of
      | from\ now\ on
      | (?:always|never)\ use
      | (?:please\ )?(?:do\ not|don['’]t)\ use
    )
    | 决定 | 決定 | 決めた | 采用 | 採用 | 不要用 | 결정""",
    re.IGNORECASE | re.VERBOSE,
)
_sentence = re.compile(r"[^.!?。！？\n]+[.!?。！？]*")
_fenced = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)


class Decision(Struct, frozen=True):
    """A possible decision and its entry."""

    session: Summary
    entry: str
    source: Source
    who: str
    text: str
    time: int


def recent_decisions(library: Library, project: str) -> list[Decision]:
    """Decisions in the sessions of a folder's project, newest first."""
    found: list[Decision] = []
    read = 0
    for summary in library.sessions(project=project)[:_MAX_SESSIONS]:
        read += summary.size
        if read > _MAX_BYTES_READ:
            break
        found += decisions_of(summary)
    return sorted(found, key=lambda decision: decision.time, reverse=True)


def decisions_of(summary: Summary) -> list[Decision]:
    """Decisions in one session, newest first; empty if it cannot be opened."""
    from sessiontree.session.open import open

    try:
        session = open(summary.ref, dialect=summary.agent)
        path = session.path_ids()[-_LAST_ENTRIES:] if session.leaf is not None else []
        found = [*_labels(summary, session), *(decision for id in path for decision in _of_entry(summary, session, id))]
    except (SessionTreeError, OSError):
        return []
    found.sort(key=lambda decision: decision.time, reverse=True)
    return list({decision.text: decision for decision in found}.values())[:_MAX_PER_SESSION]


def _labels(summary: Summary, session: Session) -> Iterator[Decision]:
    for id, label in session.labels.items():
        if id in session:
            yield Decision(
                summary, id, "label", "", _cut(label), milliseconds(session.entry(id).timestamp) or summary.recency
            )


def _of_entry(summary: Summary, session: Session, id: str) -> Iterator[Decision]:
    """Decisions in a line, by search's extractor: it distinguishes summaries from prompts in every format."""
    for line in read_line(session.raw(id), session.dialect):
        time = (milliseconds(line.time) if line.time else None) or summary.recency
        for text in line.texts:
            if text.kind == "summary":
                for statement in _of_summary(text.text):
                    yield Decision(summary, id, "summary", "", _cut(statement), time)
            elif text.kind in ("prompt", "answer"):
                for statement in _statements(text.text[:_MAX_MESSAGE]):
                    yield Decision(summary, id, "statement", text.role, _cut(statement), time)


def _of_summary(text: str) -> Iterator[str]:
    """The lines below a heading about decisions; without one, the whole summary."""
    lines = text.splitlines()
    under = [at for at, line in enumerate(lines) if _is_heading(line) and _about_decisions.search(line)]
    for at in under:
        for line in lines[at + 1 :]:
            if _is_heading(line):
                break
            if line.strip():
                yield line.strip().lstrip("-*• ")
    if not under and text.strip():
        yield text.strip()


def _is_heading(line: str) -> bool:
    found = _heading.match(line)
    return found is not None and (line.lstrip().startswith(("#", "**", "__")) or line.rstrip().endswith(":"))


def _statements(text: str) -> Iterator[str]:
    for found in _sentence.finditer(_fenced.sub("\n", text)):
        statement = found[0].strip()
        if _decided.search(statement) and len(statement.encode()) >= _MIN_BYTES:
            yield statement


def _cut(text: str) -> str:
    line = " ".join(text[: 4 * _MAX_TEXT].split())
    return line if len(line) <= _MAX_TEXT else line[: _MAX_TEXT - 1].rstrip() + "…"
