"""A part of a session's path as cards. Long sessions are shown in windows that start with a prompt."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from markupsafe import Markup
from msgspec import Struct

from sessiontree.branches.merge_records import find_merges
from sessiontree.branches.session_layout import find_layout
from sessiontree.branches.subagent_branches import last_entry_from
from sessiontree.branches.subagent_sessions import SubagentSession, find_session_of_call
from sessiontree.core.entries import Entry, MessageEntry
from sessiontree.core.messages import User
from sessiontree.dialects.contract import is_metadata_id
from sessiontree.errors import NotFoundError
from sessiontree.export.html.branch_graph import GraphRow
from sessiontree.export.html.cards import CardRenderer, State, group_cards
from sessiontree.export.html.compaction_folds import find_folds
from sessiontree.export.html.page import find_recovered
from sessiontree.export.html.subagents import is_task, opening
from sessiontree.export.record_builder import build_records, gist, records_of
from sessiontree.export.records import Call, Command, Note, Record, TextPiece, ThinkingPiece
from sessiontree.session.session import Session
from sessiontree.stores.contract import SessionRef

WINDOW = 160
"""Approximate number of entries in a window; it ends before a prompt."""
_LOOK_AHEAD = 400
_STEP = 64
MAX_HITS = 200
MAX_OUTLINE = 2_000


class SubagentAddresses(Struct, frozen=True):
    """The addresses of the cards of sub-agents."""

    by_call: dict[str, str]
    """Those on branches and in files that belong to the session, by the id of their call."""
    sessions: list[SubagentSession]
    address_of: Callable[[SessionRef], str]
    """Makes the address of a session."""

    def find(self, session: Session, entry: str, call: Call) -> str | None:
        if call.id in self.by_call or not is_task(call):
            return self.by_call.get(call.id)
        ref = find_session_of_call(session, self.sessions, entry, call.id)
        return None if ref is None else self.address_of(ref)


class PathView(Struct, frozen=True):
    """The entries of a path, by number, and which of them are on the active one."""

    nodes: list[int]
    leaf: str | None
    active: frozenset[int]
    recovered: frozenset[int]

    def states_of(self, node: int) -> tuple[State, ...]:
        found: list[State] = [] if node in self.active else ["abandoned"]
        return (*found, "recovered") if node in self.recovered else tuple(found)


class Window(Struct, frozen=True):
    """Successive positions of a path."""

    start: int
    end: int
    total: int


def find_path(session: Session, leaf: str | None = None) -> PathView:
    """The path to an entry; by default to the current one."""
    current = _history(session, session.leaf)
    nodes = current if leaf is None or leaf == session.leaf else _history(session, leaf)
    return PathView(nodes, session.leaf if leaf is None else leaf, frozenset(current), find_recovered(session))


def find_subagent_path(session: Session, start: str) -> PathView:
    """The entries of a sub-agent on a branch of the session, from its first one. No entry counts as abandoned."""
    first = session.node_of(start)
    if first is None:
        raise NotFoundError(f"no entry {start!r} in this session")
    last = session.journal.tree.ids[last_entry_from(session, first)]
    history = _history(session, last)
    nodes = history[history.index(first) :] if first in history else [node for node in history if node > first]
    return PathView(nodes, last, frozenset(nodes), frozenset())


def _history(session: Session, leaf: str | None) -> list[int]:
    history = session.dialect.find_history(session.journal, session.node_of(leaf), session.read_options)
    ids, parents = session.journal.tree.ids, session.journal.tree.parents()
    if session.dialect.traits.one_line_per_entry:
        return history
    return [node for node in history if not is_metadata_id(ids[node]) or parents[node] is not None] or history


def find_leaf_of(session: Session, entry: str) -> str:
    """A leaf whose path has an entry: the current one if possible, else the last entry of its lane."""
    node = session.node_of(entry)
    if node is None:
        raise NotFoundError(f"no entry {entry!r} in this session")
    if session.leaf is not None and node in set(_history(session, session.leaf)):
        return session.leaf
    layout = find_layout(session, find_merges(session))
    lane = layout.lanes[node]
    return session.journal.tree.ids[layout.last[lane]] if lane >= 0 else entry


def find_window(
    session: Session, path: PathView, *, entry: str | None = None, start: int | None = None, before: int | None = None
) -> Window:
    """The window with an entry, from a position, or before one; by default the last one."""
    total = len(path.nodes)
    if before is not None:
        end = min(before, total)
        begin = _next_prompt(session, path.nodes, max(0, end - WINDOW)) if end > WINDOW else 0
        return Window(begin if begin < end else max(0, end - WINDOW), end, total)
    if entry is not None:
        node = session.node_of(entry)
        at = path.nodes.index(node) if node in path.nodes else total - 1
        begin = _next_prompt(session, path.nodes, max(0, at - WINDOW // 2)) if at > WINDOW // 2 else 0
        begin = begin if begin <= at else max(0, at - WINDOW // 2)
        return Window(begin, _next_prompt(session, path.nodes, min(total, begin + WINDOW)), total)
    if start is not None:
        begin = min(start, total)
        return Window(begin, _next_prompt(session, path.nodes, min(total, begin + WINDOW)), total)
    begin = _next_prompt(session, path.nodes, total - WINDOW) if total > WINDOW else 0
    return Window(begin if begin < total else max(0, total - WINDOW), total, total)


def _next_prompt(session: Session, nodes: Sequence[int], at: int) -> int:
    """The position of the next prompt, so that no answer is cut; `at` itself if none follows soon."""
    for offset, entry in enumerate(_read(session, nodes[at : at + _LOOK_AHEAD])):
        if isinstance(entry, MessageEntry) and isinstance(entry.message, User):
            return at + offset
    return len(nodes) if len(nodes) - at <= _LOOK_AHEAD else at


def _read(session: Session, nodes: Sequence[int]) -> Iterator[Entry]:
    for start in range(0, len(nodes), _STEP):
        yield from session.journal.entries(nodes[start : start + _STEP])


def render_window(
    session: Session, path: PathView, window: Window, subagents: SubagentAddresses | None = None
) -> Markup:
    """The cards of a window."""

    def find_subagent(entry: str, call: Call) -> Markup | None:
        address = None if subagents is None else subagents.find(session, entry, call)
        return None if address is None else opening(None, "", 0, address)

    renderer = CardRenderer(session.dialect.name, find_subagent)
    folds = find_folds(session, path.nodes)
    parts: list[str] = []
    for card in group_cards(iter_records(session, path.nodes[window.start : window.end]), path.states_of):
        parts += folds.markup_before(card.first.node)
        parts.append(renderer.render(card))
    parts += folds.markup_at_end()
    return Markup("".join(parts))  # noqa: S704 - cards and folds are markup


def iter_records(session: Session, nodes: Sequence[int]) -> Iterator[Record]:
    return build_records(zip(nodes, _read(session, nodes), strict=True), session.labels)


def describe_nodes(session: Session, nodes: Iterable[int]) -> dict[int, GraphRow]:
    """Kind and first words of entries, for rows of the picture that are visible."""
    merges = find_merges(session)
    chosen = [node for node in nodes if 0 <= node < len(session)]
    found: dict[int, GraphRow] = {}
    for node, entry in zip(chosen, session.journal.entries(chosen), strict=True):
        for record in records_of(node, entry):
            kind = "merge" if entry.id in merges else record.who
            if node not in found:
                found[node] = GraphRow(kind, gist(record, 100) or record.title)
    return found


class Stop(Struct, frozen=True):
    """A prompt or summary of the outline."""

    id: str
    text: str
    who: str
    label: str | None


def build_outline(session: Session, path: PathView) -> list[Stop]:
    """The prompts and summaries of a path, the newest ones if there are very many."""
    types = session.journal.types
    found = [
        Stop(record.id, gist(record, 110) or record.title, record.who, record.label)
        for record in iter_records(session, [node for node in path.nodes if types[node] != "custom"])
        if record.who in ("user", "summary") or record.label
    ]
    return found[-MAX_OUTLINE:]


class FindHit(Struct, frozen=True):
    id: str
    who: str
    before: str
    match: str
    after: str


def find_text(session: Session, nodes: Sequence[int], words: str) -> list[FindHit]:
    """The entries that contain a text, in order."""
    wanted = words.lower()
    found: list[FindHit] = []
    for record in iter_records(session, nodes):
        for text in record_texts(record):
            at = text.lower().find(wanted)
            if at >= 0 and len(text.lower()) == len(text):
                end = at + len(wanted)
                found.append(
                    FindHit(record.id, record.who, text[max(0, at - 60) : at], text[at:end], text[end : end + 90])
                )
                break
        if len(found) >= MAX_HITS:
            break
    return found


def record_texts(record: Record) -> Iterator[str]:
    """All texts of a record, with those of its calls and their results."""
    for piece in record.pieces:
        match piece:
            case TextPiece() | Note():
                yield piece.text
            case ThinkingPiece():
                yield piece.text or ""
            case Command():
                yield piece.command
                yield piece.output
            case Call():
                yield from (value for value in piece.arguments.values() if isinstance(value, str))
                if piece.result is not None:
                    yield from (part.text for part in piece.result.pieces if isinstance(part, TextPiece))
            case _:
                pass
