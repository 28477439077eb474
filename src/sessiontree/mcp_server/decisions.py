"""What was decided lately in a project, found by simple rules and without a model.

What counts: a label that someone put on an entry; the lines of a compaction's or branch's summary under a heading about
decisions (without one, how the summary begins); and sentences of people and models on the active path that say that
something was decided. Such rules miss some and take some that are none: each comes with its place, to read on there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, TypeAlias

from msgspec import Struct

from sessiontree.core.context import milliseconds
from sessiontree.errors import SessionTreeError
from sessiontree.library.library import Library
from sessiontree.library.summary import Summary
from sessiontree.search.text_extractor import read_line
from sessiontree.session.session import Session

Source: TypeAlias = Literal["label", "summary", "statement"]

_MOST_SESSIONS = 20
_MOST_READ = 64 << 20
"""Bytes of sessions that are read for one answer, the newest first."""
_LAST_ENTRIES = 400
_LONGEST = 400
_LONGEST_SAID = 20_000
_SHORTEST = 12
_OF_A_SESSION = 12

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
    """Something that may have been decided, and where it stands."""

    session: Summary
    entry: str
    source: Source
    who: str
    text: str
    time: int


def recent_decisions(library: Library, project: str) -> list[Decision]:
    """Of the sessions of the project of a folder, the newest first."""
    found: list[Decision] = []
    read = 0
    for one in library.sessions(project=project)[:_MOST_SESSIONS]:
        read += one.size
        if read > _MOST_READ:
            break
        found += decisions_of(one)
    return sorted(found, key=lambda decision: decision.time, reverse=True)


def decisions_of(one: Summary) -> list[Decision]:
    """What one session tells, the newest first; nothing of one that cannot be opened."""
    from sessiontree.session.open import open

    try:
        session = open(one.path, dialect=one.agent)
        path = session.path_ids()[-_LAST_ENTRIES:] if session.leaf is not None else []
        found = [*_labels(one, session), *(decision for id in path for decision in _of_entry(one, session, id))]
    except (SessionTreeError, OSError):
        return []
    found.sort(key=lambda decision: decision.time, reverse=True)
    return list({decision.text: decision for decision in found}.values())[:_OF_A_SESSION]


def _labels(one: Summary, session: Session) -> Iterator[Decision]:
    for id, label in session.labels.items():
        if id in session:
            yield Decision(one, id, "label", "", _cut(label), milliseconds(session.entry(id).timestamp) or one.recency)


def _of_entry(one: Summary, session: Session, id: str) -> Iterator[Decision]:
    """What a line says, read as the search reads it: it knows summaries of every format from prompts."""
    for line in read_line(session.raw(id), session.dialect):
        time = (milliseconds(line.time) if line.time else None) or one.recency
        for text in line.texts:
            if text.kind == "summary":
                for said in _of_summary(text.text):
                    yield Decision(one, id, "summary", "", _cut(said), time)
            elif text.kind in ("prompt", "answer"):
                for said in _statements(text.text[:_LONGEST_SAID]):
                    yield Decision(one, id, "statement", text.role, _cut(said), time)


def _of_summary(text: str) -> Iterator[str]:
    """The lines under a heading about decisions; without one, the beginning."""
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
        said = found[0].strip()
        if _decided.search(said) and len(said.encode()) >= _SHORTEST:
            yield said


def _cut(text: str) -> str:
    line = " ".join(text[: 4 * _LONGEST].split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1].rstrip() + "…"
