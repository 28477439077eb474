"""Convert a session to another dialect, entry by entry: decode, map tools and roles, encode.

Only ids are kept in memory. The report lists everything that the target cannot store unchanged.
"""

from __future__ import annotations

import itertools
import os
from builtins import open as open_file
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any, Literal

import msgspec
from msgspec import Struct

from sessiontree import plugins
from sessiontree.conversion.context_edits import ContextEdits, is_left_out
from sessiontree.conversion.replaced_entries import hide_replaced
from sessiontree.conversion.restatement import (
    REPLACED_NOTE,
    RESTATED_NOTE,
    UNLIKE_NOTE,
    ContextRisks,
    has_own_wording,
    is_same_context,
    restate,
)
from sessiontree.conversion.tool_mapping import ToolMapper, with_original_tools
from sessiontree.conversion.unsent_turns import UnsentTurns
from sessiontree.conversion.walk import LEAF, end_of_history, is_of_conversation, iter_entries
from sessiontree.core.context import Context
from sessiontree.core.entries import CONTEXT_TYPES, Config, ForkOrigin
from sessiontree.core.ids import new_session_id, timestamp
from sessiontree.core.messages import BLOCK_TYPES, Message
from sessiontree.dialects.canonical import CanonicalEntry, Encoded, Encoder, LossNote, NoteKind, SessionMeta
from sessiontree.dialects.contract import Dialect
from sessiontree.dialects.passthrough import REPORT
from sessiontree.dialects.roles import with_common_role
from sessiontree.errors import UsageError
from sessiontree.providers.turns import to_turn
from sessiontree.session.branch_ends import find_branch_ends, newest_leaves
from sessiontree.session.history import history_links
from sessiontree.session.open import open_store
from sessiontree.session.reader import CURRENT, Current, Reader
from sessiontree.stores.file import FileStore

BranchChoice = Literal["active", "all"]

_NOTHING: Counter[str] = Counter()  # creating one for each entry takes time
_ORDER: tuple[NoteKind, ...] = ("dropped", "changed", "mapped", "aside")


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
        self.dropped_ids: set[str] = set()
        """The entries that are not sent, and that the target cannot keep as data either."""
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

    def count(self, entry: CanonicalEntry, notes: Sequence[LossNote] = ()) -> None:
        """Count what an entry carries over, without what the notes about it list as dropped or kept aside."""
        lost = Counter(note.what for note in notes if note.kind in ("aside", "dropped")) if notes else _NOTHING
        message = entry.fields.get("message")
        if entry.kind != "message" or not isinstance(message, dict):
            if entry.kind in CONTEXT_TYPES or not lost:
                self.carried[entry.kind] += 1
            return
        self.carried[str(message.get("role"))] += 1
        content = message.get("content")
        if isinstance(content, list):
            for block in content:
                kind = block.get("type") if isinstance(block, dict) else None
                if kind == "text" or not isinstance(kind, str) or kind not in BLOCK_TYPES:
                    continue
                if lost[f"{kind} blocks"]:
                    lost[f"{kind} blocks"] -= 1
                else:
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


_APPROVALS = frozenset({"approvalMode", "approvalTools"})
"""Of the settings in a `config` entry."""


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
        raise UsageError(
            f"sessions of {to} have no branches; convert only the active one, "
            f"or another one with `sessiontree fork SESSION --at ENTRY --to {to}`"
        )
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
    unsent = UnsentTurns(session, dialect, leaf, all_branches=branch == "all")
    conversion = _Conversion(session, dialect, meta, report, edits, unsent)
    return Converted(dialect, meta, conversion.iter_lines(leaf, all_branches=branch == "all"), report)


def _own_config(session: Reader) -> Config | None:
    """The settings without the session's name and approvals; None when they are the defaults.

    Approvals are not copied: the user gave them to one session in one agent, or another person wrote them.
    """
    config = msgspec.structs.replace(session.config, approval_mode="default", approval_tools=())
    if config.summary == session.given_name:
        config = msgspec.structs.replace(config, summary=None)
    return None if config == Config() else config


def _without_approvals(entry: CanonicalEntry) -> CanonicalEntry:
    """A change of settings without its approvals; any other entry unchanged."""
    config = entry.fields.get("config") if entry.kind == "config" else None
    if not isinstance(config, dict) or _APPROVALS.isdisjoint(config):
        return entry
    kept = {name: value for name, value in config.items() if name not in _APPROVALS}
    return msgspec.structs.replace(entry, fields={**entry.fields, "config": kept})


class _UnlikeBranch(Struct, frozen=True):
    """A branch whose context the client of the target would send differently."""

    end: str | None
    """Its last entry in the target."""
    context: Context
    """Its context in the source."""
    entries: Mapping[str, CanonicalEntry]
    """Those of the source that each client introduces in its own words, by the ids of their lines."""
    is_active: bool = False


class _Conversion:
    def __init__(
        self,
        session: Reader,
        target: Dialect,
        meta: SessionMeta,
        report: Report,
        edits: ContextEdits,
        unsent: UnsentTurns,
    ) -> None:
        self._session = session
        self._edits = edits
        self._unsent = unsent
        self._target = target
        self._meta = meta
        self._tools = ToolMapper(session.dialect.name, target.name)
        self._encoder: Encoder = target.encoder(meta)
        tree = session.journal.tree
        repeats_ids = len(tree.node_of) < len(tree.ids)
        self._risks = ContextRisks(session.dialect, target, session.journal.types, repeats_ids=repeats_ids)
        self._worded: dict[str, CanonicalEntry] = {}
        """The entries so far that each client introduces in its own words, by the ids of their lines."""
        self._report = report
        self._numbers: dict[str, int] = {}
        """Id of a canonical entry -> its number in the order of encoding."""
        self._line_ends: dict[str, int] = {}
        """Id of a line of the source -> the number of the last of its further entries, such as the results of calls.

        They have the id of the line with a number after it.
        """
        self._new_ids: list[str | None] = []
        """By number: the id in the target."""
        self._in_conversation = bytearray()
        """By number: whether the entry belongs to the conversation."""
        self._has_title = False
        self._labeled: set[str] = set()
        self._entry_ids: dict[str, str] = {}
        """Id of a line of the source -> id of the canonical entry it became a part of."""

    def iter_lines(
        self, leaf: str | None, *, all_branches: bool, unlike: Sequence[_UnlikeBranch] | None = None
    ) -> Iterator[bytes]:
        """Iterate over the lines of the copy. `unlike` are the branches to restate; None to find out."""
        yield from _with_lf(self._encoder.prologue())
        can_replace = unlike is None and self._target.traits.is_linear and not self._target.client.encodes_resets
        replaced = self._find_unlike_branch(leaf) if can_replace else None
        if replaced is not None:
            self._report.note(REPLACED_NOTE)
            yield from self._iter_replaced(leaf, replaced)
            return
        entries = iter_entries(self._session, leaf, all_branches=all_branches, on_restated=self._watch_restated)
        for entry, parent in entries:
            self._risks.watch(entry, parent)
            _add_worded(self._worded, entry)
            yield from _with_lf(self._encode(entry, self._new_id(parent)))
        current = self._current(leaf)
        ends = self._session.leaves() if all_branches else ()
        is_risky = self._risks.found or self._unsent.are_mixed or any(map(self._risks.is_risky, ends))
        if unlike is None and is_risky:
            unlike = self._find_unlike(leaf, all_branches=all_branches)
        for branch in unlike or ():
            last = branch.end
            # In a format without branches, no other branch has a result for a call.
            renames_calls = not self._target.traits.is_linear
            for entry in self._restate(branch, renames_calls=renames_calls):
                encoded = self._encode_mapped(entry, last)
                yield from _with_lf(encoded.lines)
                last = encoded.id
            current = last if branch.is_active else current
        yield from self._iter_end(current)

    def _iter_end(self, current: str | None) -> Iterator[bytes]:
        for entry in self._iter_metadata():
            yield from _with_lf(self._encode(entry, current))
        self._note_missing_blobs()
        yield from _with_lf(self._encoder.encode(self._report_entry(), current).lines)
        yield from _with_lf(self._encoder.epilogue(current))

    def _watch_restated(self, entry: CanonicalEntry) -> None:
        self._risks.watch_restated()
        _add_worded(self._worded, entry)

    def _current(self, leaf: str | None) -> str | None:
        """The current entry in the target: the last one of the history, which need not be the line of the leaf.

        If Claude Code ends right after a compaction, its leaf is a message that the compaction kept. And a result that
        it recorded before the last shard of a response becomes an entry after the response.
        """
        session = self._session
        history = session.dialect.find_history(session.journal, end_of_history(session, leaf), session.read_options)
        ids = session.journal.tree.ids
        numbers = [of.get(ids[node], -1) for node in history for of in (self._numbers, self._line_ends)]
        last = max(numbers, default=-1)
        return self._new_ids[last] if last >= 0 else None

    def _encode(self, entry: CanonicalEntry, parent: str | None) -> Sequence[bytes]:
        for alias in entry.aliases:
            self._entry_ids[alias] = entry.id
        if entry.kind == LEAF:
            self._track_id(entry, parent)
            return ()
        self._has_title |= entry.kind == "session_info"
        if entry.kind == "label":
            self._labeled.add(str(entry.fields.get("targetId")))
        sent, unsent_notes = self._unsent.apply(entry)
        # An edit changes nothing about a message that is not sent.
        is_unsent = sent is not entry and is_left_out(sent)
        edited, edit_notes = (sent, ()) if is_unsent else self._edits.apply(sent)
        encoded = self._encode_mapped(with_original_tools(edited), parent)
        self._track_id(entry, encoded.id)
        self._report.count(entry, encoded.notes)
        if unsent_notes or edit_notes or encoded.notes:
            self._add_notes(edited, [*unsent_notes, *edit_notes, *encoded.notes], encoded.notes)
        return encoded.lines

    def _add_notes(self, entry: CanonicalEntry, notes: Sequence[LossNote], of_encoder: Sequence[LossNote]) -> None:
        dropped = next((note for note in of_encoder if note.kind == "dropped"), None)
        if dropped is not None and is_left_out(entry):
            self._report.dropped_ids.add(entry.id)
            notes = [msgspec.structs.replace(note, kind="dropped", why=dropped.why) for note in notes[:1]]
        for note in notes:
            self._report.note(note)

    def _encode_mapped(self, entry: CanonicalEntry, parent: str | None) -> Encoded:
        """Encode an entry with the target's tools and roles."""
        mapped, tool_notes = self._tools.map_entry(_without_approvals(entry))
        mapped, role_notes = with_common_role(mapped, self._target)
        encoded = self._encoder.encode(mapped, parent)
        notes = (*tool_notes, *role_notes)
        return msgspec.structs.replace(encoded, notes=(*notes, *encoded.notes)) if notes else encoded

    # Contexts that the target would send differently

    def _find_unlike(self, leaf: str | None, *, all_branches: bool) -> list[_UnlikeBranch]:
        """Find the branches whose context the client of the target would send differently, the active one last."""
        # Without a reset, the messages would have to start a new tree, apart from the conversation.
        can_restate = self._target.client.encodes_resets
        unlike: list[_UnlikeBranch] = []
        while found := self._find_more_unlike(unlike, leaf, all_branches=all_branches):
            unlike = sorted([*unlike, *found], key=lambda branch: branch.is_active)
            answers_others = (self._risks.may_answer_others(branch.context, leaf) for branch in found)
            if not (all_branches and can_restate and any(answers_others)):
                break
            self._risks.watch_restated()
        for _ in unlike:
            self._report.note(RESTATED_NOTE if can_restate else UNLIKE_NOTE)
        return unlike if can_restate else []

    def _find_more_unlike(
        self, known: Sequence[_UnlikeBranch], leaf: str | None, *, all_branches: bool
    ) -> list[_UnlikeBranch]:
        with TemporaryDirectory() as folder:
            path = os.path.join(folder, "copy.jsonl")
            trial = _Conversion(self._session, self._target, self._meta, Report("", ""), self._edits, self._unsent)
            with open_file(path, "wb") as file:
                file.writelines(trial.iter_lines(leaf, all_branches=all_branches, unlike=known))
            with open_store(FileStore(path), dialect=self._target.name) as copy:
                found = self._compare(copy, leaf, all_branches=all_branches)
        ends = {(branch.end, branch.is_active) for branch in known}
        return [branch for branch in found if (branch.end, branch.is_active) not in ends]

    def _restate(
        self, unlike: _UnlikeBranch, *, renames_calls: bool, with_usage: bool = False
    ) -> Iterator[CanonicalEntry]:
        return restate(
            unlike.context,
            unlike.entries,
            is_inserted=self._session.dialect.client.inserts,
            renames_calls=renames_calls,
            with_usage=with_usage,
        )

    # The same for a client without branches and resets

    def _find_unlike_branch(self, leaf: str | None) -> _UnlikeBranch | None:
        """Find out before the conversion whether the client would send another context, if it sends any."""
        with TemporaryDirectory() as folder:
            path = os.path.join(folder, "copy.jsonl")
            trial = _Conversion(self._session, self._target, self._meta, Report("", ""), self._edits, self._unsent)
            with open_file(path, "wb") as file:
                file.writelines(trial.iter_lines(leaf, all_branches=False, unlike=()))
            # These clients add their own words to a summary, even to a blank one.
            is_blank = any(map(_is_blank_summary, trial._worded.values()))
            if not trial._risks.found and not self._unsent.are_mixed and not is_blank:
                return None
            with open_store(FileStore(path), dialect=self._target.name) as copy:
                found = trial._compare(copy, leaf, all_branches=False)
            if is_blank and not found:
                found = [_UnlikeBranch(None, self._session.context(leaf), trial._worded)]
        return next((branch for branch in found if any(map(_is_sent, branch.context.messages))), None)

    def _iter_replaced(self, leaf: str | None, unlike: _UnlikeBranch) -> Iterator[bytes]:
        """Encode the messages of the context, and with each of them some entries of the source as data."""
        originals = iter_entries(self._session, leaf, all_branches=False)
        count = sum(1 for _ in iter_entries(self._session, leaf, all_branches=False))
        share = -(-count // len(unlike.context.messages))
        last: str | None = None
        for entry in self._restate(unlike, renames_calls=False, with_usage=True):
            if entry.kind == "reset_boundary" or _is_system_message(entry):
                continue
            encoded = self._encode_mapped(entry, last)
            last = encoded.id
            yield from _with_lf(encoded.lines)
            yield from _with_lf(self._encode_hidden(itertools.islice(originals, share), last))
        yield from _with_lf(self._encode_hidden(originals, last))
        yield from self._iter_end(last)

    def _encode_hidden(self, entries: Iterator[tuple[CanonicalEntry, str | None]], parent: str | None) -> list[bytes]:
        lines: list[bytes] = []
        for entry, _ in entries:
            self._has_title |= entry.kind == "session_info"
            self._report.count(entry)
            self._track_id(entry, parent)
            if entry.kind != LEAF:
                lines += self._encoder.encode(hide_replaced(entry), parent).lines
        return lines

    def _compare(self, copy: Reader, leaf: str | None, *, all_branches: bool) -> list[_UnlikeBranch]:
        session = self._session
        if session.dialect.name != self._target.name:
            session = Reader(session.journal, msgspec.structs.replace(session.read_options, provider_history=False))
        entries, copied = self._worded, _find_worded(copy, copy.leaf, all_branches)
        target = self._target.client
        clients = (session.dialect.client, target)

        def is_inserted(role: str, text: str) -> bool:
            return any(client.inserts(role, text) for client in clients)

        def is_like(context: Context, end: str | None) -> bool:
            return is_same_context(
                context,
                entries,
                copy.context(end),
                copied,
                skips_failed=target.drops_failed_turns,
                sends_thinking=target.sends_thinking_as_text,
                is_inserted=is_inserted,
            )

        found: list[_UnlikeBranch] = []
        for other in self._other_leaves(leaf) if all_branches else ():
            if not self._may_differ(other):
                continue
            end, context = self._current(other), session.context(other)
            # Without an end, the branch has no line that is sent, as one with nothing but results without calls.
            is_alike = is_like(context, end) if end else not any(map(_is_sent, context.messages))
            if not is_alike:
                found.append(_UnlikeBranch(end, context, entries))
        if leaf is None:
            return found
        context = session.context(leaf)
        must_be_last = found and not self._target.traits.one_line_per_entry  # the lines of the active branch
        if must_be_last or (self._may_differ(leaf) and not is_like(context, None)):
            found.append(_UnlikeBranch(self._current(leaf), context, entries, is_active=True))
        return found

    def _may_differ(self, leaf: str) -> bool:
        # Without one line per entry, a line may be the end of another branch than the one it is encoded in.
        is_certain = self._session.dialect.traits.one_line_per_entry and leaf in self._numbers
        return not is_certain or self._unsent.are_mixed or self._risks.is_risky(leaf)

    def _other_leaves(self, leaf: str | None) -> Iterator[str]:
        """Iterate over the ends of the other branches.

        A line without children need not be one. In Claude Code, the conversation continues after the lines that a
        compaction kept, and not after its summary; and the progress of a tool is beside the conversation.
        """
        session = self._session
        if session.dialect.traits.one_line_per_entry:
            yield from (id for id in session.leaves() if id != leaf)
            return
        leaves = newest_leaves(session, leaf)
        if leaf is not None:  # the active branch first: others that end with the same message are not branches
            active = session.journal.tree.node_of[leaf]
            leaves.sort(key=lambda node: node != active)
        ends = find_branch_ends(
            session, history_links(session), leaves, is_message=self._has_message, distinct_contexts=True
        )
        ids = session.journal.tree.ids
        yield from (ids[end] for end in sorted(end.leaf for end in ends) if ids[end] != leaf)

    def _has_message(self, node: int) -> bool:
        id = self._session.journal.tree.ids[node]
        numbers = (of.get(id) for of in (self._numbers, self._line_ends))
        return any(number is not None and self._in_conversation[number] for number in numbers)

    def _track_id(self, entry: CanonicalEntry, id: str | None) -> None:
        number = len(self._new_ids)
        for name in (entry.id, *entry.aliases):
            self._numbers[name] = number
            line, dot, _ = name.rpartition(".")
            if dot:
                self._line_ends[line] = number
        self._new_ids.append(id)
        self._in_conversation.append(is_of_conversation(entry))

    def _new_id(self, name: str | None) -> str | None:
        number = None if name is None else self._numbers.get(name)
        return None if number is None else self._new_ids[number]

    def _iter_metadata(self) -> Iterator[CanonicalEntry]:
        """Iterate over the session's name and labels that are not part of the history."""
        title = self._session.given_name
        if title and not self._has_title:
            yield CanonicalEntry("session_info", {"name": title}, timestamp=timestamp())
        for line, label in self._session.labels.items():
            target = self._entry_ids.get(line, line)
            if target in self._numbers and target not in self._labeled:
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


def _is_system_message(entry: CanonicalEntry) -> bool:
    message = entry.fields.get("message")
    return isinstance(message, dict) and message.get("role") == "system"


def _is_blank_summary(entry: CanonicalEntry) -> bool:
    return entry.kind == "compaction" and not str(entry.fields.get("summary") or "").strip()


def _is_sent(message: Message) -> bool:
    return to_turn(message, []) is not None


def _find_worded(session: Reader, leaf: str | None, all_branches: bool) -> dict[str, CanonicalEntry]:
    """The entries that each client introduces in its own words, by the ids of their lines."""
    found: dict[str, CanonicalEntry] = {}
    add = partial(_add_worded, found)
    for entry, _ in iter_entries(session, leaf, all_branches=all_branches, on_restated=add):
        add(entry)
    return found


def _add_worded(found: dict[str, CanonicalEntry], entry: CanonicalEntry) -> None:
    if has_own_wording(entry):
        found.update(dict.fromkeys((entry.id, *entry.aliases), entry))


def _with_lf(lines: Sequence[bytes]) -> Iterator[bytes]:
    for line in lines:
        yield line + b"\n"
