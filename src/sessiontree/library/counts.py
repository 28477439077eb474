"""Messages, branches and usage: counted in whole files, estimated from two ends, extended by added lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Struct

from sessiontree.branches.tips import count_tips
from sessiontree.core.entries import Entry, MessageEntry, ModelChange
from sessiontree.core.messages import Assistant, Usage, User
from sessiontree.core.usage import UnpricedUsage, UsageSum, UsageTotals, model_of, total_usage, unpriced_totals
from sessiontree.dialects.contract import is_metadata_id
from sessiontree.session.journal import Journal
from sessiontree.session.reader import Reader, iter_usage_entries

_SYNTHETIC = "<synthetic>"


class LastResponse(Struct, frozen=True, array_like=True):
    """The last counted response. More lines of it may follow and must not count twice."""

    response: str
    usage: Usage
    model: str = ""


class Counted(Struct, frozen=True, array_like=True):
    """Counts of a session, and the state to extend them."""

    messages: int = 0
    branches: int = 0
    usage: UsageTotals = UsageTotals()
    model: str | None = None
    tip: str | None = None
    """The last entry that is not bookkeeping; it ends a branch."""
    seed: LastResponse | None = None
    exact: bool = True


class UsedEntries:
    """Facts about entries that report usage. They are added in file order and not kept."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.usage = UsageSum()
        self.model: str | None = None
        """The last model that is not synthetic."""
        self.seed: LastResponse | None = None
        for entry in entries:
            self.add(entry)

    def facts(self) -> Counted:
        """Usage, model and last response; nothing else is counted."""
        return Counted(usage=self.usage.totals(), model=self.model, seed=self.seed)

    def add(self, entry: Entry) -> int | None:
        """Add an entry; returns the row of its response in `usage`."""
        if isinstance(entry, ModelChange):
            self.model = entry.selector or self.model
        message = entry.message if isinstance(entry, MessageEntry) else None
        if isinstance(message, Assistant):
            if message.model and message.model != _SYNTHETIC:
                self.model = message.model
            seed, response, usage = self.seed, message.response_id, message.usage
            is_larger = seed is None or response != seed.response or _is_larger(usage, seed.usage)
            if response and usage and is_larger:
                self.seed = LastResponse(response, usage, model_of(entry))
        return self.usage.add(entry)


def _is_larger(usage: Usage | None, before: Usage) -> bool:
    return usage is not None and usage.total_tokens >= before.total_tokens


def count(reader: Reader) -> Counted:
    """Count everything; all lines of the file have to be there."""
    # The entries are gone before branches are counted: those of a huge session take 30 MB.
    used = UsedEntries(iter_usage_entries(reader.journal, range(len(reader.journal)))).facts()
    return count_entries(reader, used)


def count_entries(reader: Reader, used: Counted) -> Counted:
    """Complete the counts of entries that report usage (`UsedEntries.facts`) with those of the session."""
    journal = reader.journal
    return msgspec.structs.replace(
        used,
        messages=journal.types.count("message"),
        branches=count_tips(reader),
        tip=_tip(journal, range(len(journal))),
    )


def estimate(reader: Reader, seen: int, size: int) -> Counted:
    """Estimate from the two ends of a file: `seen` of `size` bytes."""
    counted = count(reader)
    factor = size / seen
    usage = counted.usage
    return Counted(
        messages=round(counted.messages * factor),
        # the end of the first part is not the end of a branch
        branches=max(counted.branches - 1, min(counted.branches, 1)),
        usage=UsageTotals(
            round(usage.requests * factor),
            round(usage.input * factor),
            round(usage.output * factor),
            round(usage.cached * factor),
            round(usage.cache_written * factor),
            usage.cost * factor,
            tuple(
                UnpricedUsage(one.model, one.input * factor, one.output * factor, one.cached * factor)
                for one in usage.unpriced
            ),
        ),
        model=counted.model,
        tip=counted.tip,
        seed=counted.seed,
        exact=False,
    )


def extend_counts(before: Counted, journal: Journal, first: int) -> Counted:
    """Extend counts by the lines from node `first` on.

    If the parent of an added line is neither the last entry nor an added one, only the complete file shows whether a
    branch begins there. The number of branches then becomes an estimate.
    """
    nodes = range(first, len(journal))
    entries = list(iter_usage_entries(journal, nodes))
    used = UsedEntries(entries)
    more, is_exact = _added_branches(before.tip, journal, first)
    return Counted(
        messages=before.messages + sum(kind == "message" for kind in journal.types[first:]),
        branches=max(before.branches + more, 0),
        usage=_added_usage(before, entries),
        model=used.model or before.model,
        tip=_tip(journal, nodes) or before.tip,
        seed=used.seed or before.seed,
        exact=before.exact and is_exact,
    )


def _added_branches(tip: str | None, journal: Journal, first: int) -> tuple[int, bool]:
    """Number of added branches, and whether it is exact.

    In formats with parallel results and restarts after compaction, the added lines alone do not show which of them
    begin a branch. There the number is exact only if each line is a child of the one before.
    """
    tree, types = journal.tree, journal.types
    bookkeeping = journal.dialect.traits.passive_types
    added = [
        node
        for node in range(first, len(types))
        if types[node] not in bookkeeping and not is_metadata_id(tree.ids[node])
    ]
    inner: set[int] = set()
    with_other_parent: list[int] = []
    continues_tip = False
    for node in added:
        parent = tree.parent(node)
        if parent is not None and parent >= first:
            inner.add(parent)
            continue
        named = tree.missing_parent(node) if parent is None else tree.ids[parent]
        continues_tip = continues_tip or (named is not None and named == tip)
        if named is not None and named != tip:
            with_other_parent.append(node)
    if journal.dialect.traits.one_line_per_entry:
        return sum(node not in inner for node in added) - continues_tip, not with_other_parent
    is_chain = [tree.parent(node) for node in added[1:]] == added[:-1]
    return sum(map(_is_prompt, journal.entries(with_other_parent))), is_chain and (continues_tip or not added)


def _is_prompt(entry: Entry) -> bool:
    return isinstance(entry, MessageEntry) and isinstance(entry.message, User)


def _added_usage(before: Counted, used: Sequence[Entry]) -> UsageTotals:
    """Usage of added entries. The last response is counted again with them, so that its further lines are merged with
    it, and then subtracted.
    """
    seed = before.seed
    along: list[Entry] = [] if seed is None else [_seed_entry(seed)]
    model = ModelChange(model=before.model)
    old, new, off = before.usage, total_usage([*along, model, *used]), total_usage(along)
    return UsageTotals(
        old.requests + new.requests - off.requests,
        old.input + new.input - off.input,
        old.output + new.output - off.output,
        old.cached + new.cached - off.cached,
        old.cache_written + new.cache_written - off.cache_written,
        round(old.cost + new.cost - off.cost, 10),
        unpriced_totals([*old.unpriced, *new.unpriced, *(_negative(one) for one in off.unpriced)]),
    )


def _seed_entry(seed: LastResponse) -> MessageEntry:
    return MessageEntry(message=Assistant(usage=seed.usage, response_id=seed.response, model=seed.model or None))


def _negative(usage: UnpricedUsage) -> UnpricedUsage:
    return UnpricedUsage(usage.model, -usage.input, -usage.output, -usage.cached)


def _tip(journal: Journal, nodes: Sequence[int]) -> str | None:
    bookkeeping = journal.dialect.traits.passive_types
    for node in reversed(nodes):
        id = journal.tree.ids[node]
        if journal.types[node] not in bookkeeping and not is_metadata_id(id):
            return id
    return None
