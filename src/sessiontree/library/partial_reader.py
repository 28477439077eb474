"""A session read from some of its lines: prompts in them, and the lines to keep for a later update."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from sessiontree.core.entries import MessageEntry
from sessiontree.core.jsonio import parse_json
from sessiontree.core.messages import User, message_text
from sessiontree.dialects.contract import AS_CLIENT, Dialect
from sessiontree.library.roots import dialect_named
from sessiontree.library.summary import MAX_PROMPT, MAX_TITLE, Summary, cut_at_word, is_meaningful
from sessiontree.session.journal import Journal
from sessiontree.session.reader import Reader
from sessiontree.session.session import Session
from sessiontree.stores.contract import SessionRepository, read_bytes
from sessiontree.stores.memory import MemoryStore

_LARGEST_KEPT, _KEPT_ALTOGETHER = 4096, 128 * 1024
_MOST_PROMPTS, _STEP = 64, 16
_CUT_PROMPT = rb'"(?:text|content)"\s*:\s*"((?:[^"\\]|\\["\\/bfnrt]){1,2000})'


class PartialJournal(Journal):
    """A journal of lines in memory, where random access to lines is free."""

    def __init__(
        self, store: MemoryStore, dialect: Dialect, find_repository: Callable[[], SessionRepository] | None
    ) -> None:
        super().__init__(store, dialect, find_repository)
        self._content = store.content
        self._raws: list[bytes] = []
        self._decode_or_none: dict[int, dict[str, Any]] = {}

    def fields(self, nodes: Sequence[int]) -> list[dict[str, Any]]:
        decoded = self._decode_or_none
        for node in nodes:
            if node not in decoded:
                decoded[node] = self.fields_of(next(self.iter_raw([node])))
        return [decoded[node] for node in nodes]

    def iter_lines(self, nodes: Sequence[int]) -> Iterator[bytes]:
        if len(self._raws) != len(self.types):
            self._raws = self._split() or list(super().iter_lines(range(len(self.types))))
        return iter([self._raws[node] for node in nodes])

    def _split(self) -> list[bytes]:
        """The lines of all entries, if the file is sound and has one entry per line; else empty."""
        if self._problems:
            return []
        lines = self._content().split(b"\n")
        if not lines[-1]:
            lines.pop()
        if lines and self.header_span is not None:
            del lines[self.header_span.line - 1]
        return lines if len(lines) == len(self.types) else []


def read_lines(
    lines: bytes, path: str, agent: str, find_repository: Callable[[], SessionRepository] | None = None
) -> Reader:
    """Open some lines of a session as a reader. Without a repository, references to blobs stay as they are."""
    dialect: Dialect = dialect_named(agent)
    start = lines.find(b"\n", lines.find(b"\n") + 1) + 1 if dialect.traits.has_header else 0
    store = MemoryStore(lines[:start] if start else lines, path)
    reader = Reader(PartialJournal(store, dialect, find_repository), AS_CLIENT)
    if start:  # a header is in the first two lines; without one, the lines are decoded in one block
        store.append(lines[start:], expected_size=store.size())
        reader.journal.refresh()
    return reader


def first_prompt(journal: Journal, messages: Sequence[int]) -> str:
    """The first prompt of a user; empty if there is none."""
    return next(_prompts(journal, messages[:_MOST_PROMPTS]), "")


def last_prompt(journal: Journal, messages: Sequence[int]) -> str | None:
    """The last prompt of a user."""
    for start in range(len(messages), 0, -_STEP):
        step = list(_prompts(journal, messages[max(start - _STEP, 0) : start]))
        if step:
            return step[-1]
    return None


def _prompts(journal: Journal, nodes: Sequence[int]) -> Iterator[str]:
    marks = journal.dialect.traits.marks
    for raw in journal.iter_raw(nodes):
        if not marks.may_be_prompt(raw):
            continue
        entry = journal.dialect.parse(raw)
        message = entry.message if isinstance(entry, MessageEntry) else None
        if isinstance(message, User):
            text = message_text(message)
            if is_meaningful(text):
                yield text


def kept_lines(reader: Reader) -> bytes:
    """The lines that the dialect's rules about the whole session may need."""
    journal = reader.journal
    nodes: dict[int, None] = {}
    last_of: dict[str, int] = {}
    messages: list[int] = []
    for node, kind in enumerate(journal.types):
        if kind == "message":
            messages.append(node)
        elif kind not in last_of:
            nodes[node] = None
            last_of[kind] = node
        else:
            last_of[kind] = node
    nodes.update(dict.fromkeys(last_of.values()))
    few = sorted(nodes)
    small = [node for node, raw in zip(few, journal.iter_raw(few), strict=True) if len(raw) <= _LARGEST_KEPT]
    marks = journal.dialect.traits.marks.prompts
    for at, raw in enumerate(journal.iter_raw(messages[:_MOST_PROMPTS])):
        if any(mark in raw for mark in marks):
            small.append(messages[at])
            if next(_prompts(journal, [messages[at]]), None) is not None:
                break
    header = journal.header_span
    kept = [] if header is None else [read_bytes(journal.store, header.start, header.end - header.start)]
    room = _KEPT_ALTOGETHER
    for raw in journal.iter_raw(sorted(small)):
        room -= len(raw)
        if room >= 0:
            kept.append(raw)
    return b"".join(raw + b"\n" for raw in kept)


def with_cut_prompt(summary: Summary, line: bytes) -> Summary:
    """Add the beginning of a first prompt whose line is longer than the part that was read."""
    found = re.search(_CUT_PROMPT, line) if b'"user"' in line else None
    try:
        text = parse_json(b'"' + found[1] + b'"') if found else ""
    except ValueError:
        text = ""
    if not isinstance(text, str) or not is_meaningful(text):
        return summary
    return msgspec.structs.replace(
        summary,
        title=summary.title or cut_at_word(text, MAX_TITLE),
        first_prompt=cut_at_word(text, MAX_PROMPT),
        last_prompt=summary.last_prompt or cut_at_word(text, MAX_PROMPT),
    )


def session_title(session: Session) -> str:
    """The title of an open session as in listings: its name, else its first meaningful prompt.

    Empty before the first prompt. Untrusted text, on one line.
    """
    given = session.given_name
    if given:
        return cut_at_word(given, MAX_TITLE)
    journal = session.journal
    messages = [node for node, kind in enumerate(journal.types) if kind == "message"]
    return cut_at_word(first_prompt(journal, messages), MAX_TITLE)


def session_description(session: Reader) -> str:
    """Description of a session in its settings, shortened to one line; empty if that is only its name."""
    described = session.config.summary or ""
    return "" if described == session.given_name else cut_at_word(described, MAX_PROMPT)
