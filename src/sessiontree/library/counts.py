"""Messages, branches and usage of the lines that were read: of whole files, of ends, and of what was added since."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from msgspec import Struct

from sessiontree.branches.tips import count_ends
from sessiontree.core.entries import Entry, MessageEntry
from sessiontree.core.messages import Assistant, Usage, User
from sessiontree.core.usage import UsageTotals, total_usage
from sessiontree.dialects.contract import is_metadata_id
from sessiontree.session.journal import Journal
from sessiontree.session.reader import Reader

USING = frozenset({"message", "compaction", "branch_summary", "usage"})
"""The types of entries that may say what a request used."""
_SYNTHETIC = "<synthetic>"


class Seed(Struct, frozen=True, array_like=True):
    """The last response that was counted: its further lines may be still to come, and count no second time."""

    response: str
    usage: Usage


class Counted(Struct, frozen=True, array_like=True):
    """What is counted, and what going on needs."""

    messages: int = 0
    branches: int = 0
    usage: UsageTotals = UsageTotals()
    model: str | None = None
    tip: str | None = None
    """The last entry that is no bookkeeping; it ends a branch."""
    seed: Seed | None = None
    exact: bool = True


def count(reader: Reader) -> Counted:
    """Everything, in a file of which all lines are there."""
    return count_used(reader, list(_using(reader.journal, range(len(reader.journal)))))


def count_used(reader: Reader, used: Sequence[Entry]) -> Counted:
    """The same for someone who has all entries that say what they used (see `says_usage`), in file order."""
    journal = reader.journal
    nodes = range(len(journal))
    return Counted(
        messages=journal.types.count("message"),
        branches=count_ends(reader),
        usage=total_usage(used),
        model=_last_model(used),
        tip=_tip(journal, nodes),
        seed=_seed(used),
    )


def estimate(reader: Reader, seen: int, size: int) -> Counted:
    """The same from the two ends of a file: `seen` bytes of `size`."""
    counted = count(reader)
    stretch = size / seen
    usage = counted.usage
    return Counted(
        messages=round(counted.messages * stretch),
        branches=max(counted.branches - 1, min(counted.branches, 1)),  # the end of the first part ends no branch
        usage=UsageTotals(
            round(usage.requests * stretch),
            round(usage.input * stretch),
            round(usage.output * stretch),
            round(usage.cached * stretch),
            round(usage.cache_written * stretch),
            usage.cost * stretch,
        ),
        model=counted.model,
        tip=counted.tip,
        seed=counted.seed,
        exact=False,
    )


def go_on(before: Counted, journal: Journal, first: int) -> Counted:
    """What was counted, and the lines from node `first` on, which were added since.

    Where an added line hangs on an entry that is neither the last one nor among the added, nobody knows without
    reading the whole file whether a branch began or went on: then the number is taken for an estimate.
    """
    nodes = range(first, len(journal))
    used = list(_using(journal, nodes))
    more, is_sure = _added_branches(before.tip, journal, first)
    return Counted(
        messages=before.messages + sum(kind == "message" for kind in journal.types[first:]),
        branches=max(before.branches + more, 0),
        usage=_added_usage(before, used),
        model=_last_model(used) or before.model,
        tip=_tip(journal, nodes) or before.tip,
        seed=_seed(used) or before.seed,
        exact=before.exact and is_sure,
    )


def _added_branches(tip: str | None, journal: Journal, first: int) -> tuple[int, bool]:
    """How many branches were added, and whether that is sure.

    Where results stand beside each other and compactions begin anew, more than what was added is needed to tell what is
    a branch: there it is sure only if each line hangs on the one before.
    """
    tree, types = journal.tree, journal.types
    quiet = journal.dialect.bookkeeping | {"leaf"}
    spoken = [
        node for node in range(first, len(types)) if types[node] not in quiet and not is_metadata_id(tree.ids[node])
    ]
    inner: set[int] = set()
    elsewhere: list[int] = []
    goes_on = False
    for node in spoken:
        parent = tree.parent(node)
        if parent is not None and parent >= first:
            inner.add(parent)
            continue
        named = tree.missing_parent(node) if parent is None else tree.ids[parent]
        goes_on = goes_on or (named is not None and named == tip)
        if named is not None and named != tip:
            elsewhere.append(node)
    if journal.dialect.one_line_per_entry:
        return sum(node not in inner for node in spoken) - goes_on, not elsewhere
    is_chain = [tree.parent(node) for node in spoken[1:]] == spoken[:-1]
    return sum(map(_is_prompt, journal.entries(elsewhere))), is_chain and (goes_on or not spoken)


def _is_prompt(entry: Entry) -> bool:
    return isinstance(entry, MessageEntry) and isinstance(entry.message, User)


def _added_usage(before: Counted, used: Sequence[Entry]) -> UsageTotals:
    """The seed is counted along, so that its further lines are known for what they are, and then taken off."""
    seed = before.seed
    along = [] if seed is None else [MessageEntry(message=Assistant(usage=seed.usage, response_id=seed.response))]
    old, new, off = before.usage, total_usage([*along, *used]), total_usage(along)
    return UsageTotals(
        old.requests + new.requests - off.requests,
        old.input + new.input - off.input,
        old.output + new.output - off.output,
        old.cached + new.cached - off.cached,
        old.cache_written + new.cache_written - off.cache_written,
        round(old.cost + new.cost - off.cost, 10),
    )


def says_usage(raw: bytes) -> bool:
    """Whether a line may say what a request used; else it need not be decoded for that."""
    return b'"usage"' in raw


def _using(journal: Journal, nodes: Sequence[int]) -> Iterator[Entry]:
    """The entries that say what they used, in file order; the others are not decoded."""
    asked = [node for node in nodes if journal.types[node] in USING]
    for node, raw in zip(asked, journal.iter_raw(asked), strict=True):
        if says_usage(raw):
            entry = journal.dialect.parse(raw)
            yield entry if entry.id else msgspec.structs.replace(entry, id=journal.tree.ids[node])


def _last_model(used: Sequence[Entry]) -> str | None:
    for entry in reversed(used):
        message = entry.message if isinstance(entry, MessageEntry) else None
        if isinstance(message, Assistant) and message.model and message.model != _SYNTHETIC:
            return message.model
    return None


def _seed(used: Sequence[Entry]) -> Seed | None:
    seed: Seed | None = None
    for entry in reversed(used):
        message = entry.message if isinstance(entry, MessageEntry) else None
        if not isinstance(message, Assistant) or not message.response_id or not message.usage:
            continue
        if seed is not None and message.response_id != seed.response:
            break
        if seed is None or message.usage.total_tokens > seed.usage.total_tokens:
            seed = Seed(message.response_id, message.usage)
    return seed


def _tip(journal: Journal, nodes: Sequence[int]) -> str | None:
    quiet = journal.dialect.bookkeeping | {"leaf"}
    for node in reversed(nodes):
        id = journal.tree.ids[node]
        if journal.types[node] not in quiet and not is_metadata_id(id):
            return id
    return None
