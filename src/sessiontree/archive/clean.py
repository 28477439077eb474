"""Choose which sessions are old enough to be archived, and find those that their agent is about to delete."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from sessiontree.archive.archive import SessionArchive
from sessiontree.archive.candidates import Candidate, parse_milliseconds, read_details
from sessiontree.archive.catalog import ArchiveItem
from sessiontree.clients import client_of, read_client_file

_DAY = 86_400_000
_WARNING_PERIOD = 7 * _DAY


class CleanPolicy(Struct, frozen=True):
    """Which sessions to archive."""

    older_than: int
    """Milliseconds since the last message."""
    keep_named: bool = False
    keep_labeled: bool = False
    agent: str | None = None


class CleanPlan(Struct, frozen=True):
    """What cleaning would do."""

    chosen: tuple[Candidate, ...]
    spared: dict[str, int]
    """Reason -> how many old sessions are not archived for it."""
    archived: tuple[ArchiveItem, ...] = ()
    """Archive items that would be deleted; only when purging."""

    @property
    def size(self) -> int:
        return sum(candidate.size for candidate in self.chosen) + sum(item.size for item in self.archived)


def plan_clean(candidates: Iterable[Candidate], policy: CleanPolicy, now: int) -> CleanPlan:
    """Choose the sessions to archive, oldest first. Writes nothing.

    A file is opened only if it seems old enough and the policy depends on a field that was not looked up.
    """
    chosen: list[Candidate] = []
    spared: Counter[str] = Counter()
    for candidate in candidates:
        if policy.agent is not None and candidate.agent != policy.agent:
            continue
        if _is_recent(candidate, policy, now):
            continue
        known = read_details(candidate) if _needs_details(candidate, policy) else candidate
        if known is None or _is_recent(known, policy, now):
            continue
        reason = _reason_to_spare(known, policy)
        if reason:
            spared[reason] += 1
        else:
            chosen.append(known)
    return CleanPlan(tuple(sorted(chosen, key=lambda candidate: candidate.active or 0)), dict(spared))


def _is_recent(candidate: Candidate, policy: CleanPolicy, now: int) -> bool:
    return candidate.active is not None and now - candidate.active < policy.older_than


def _needs_details(candidate: Candidate, policy: CleanPolicy) -> bool:
    if candidate.pinned:
        return False
    is_unknown = not candidate.is_dated or (policy.keep_named and candidate.named is None)
    return is_unknown or (policy.keep_labeled and candidate.labeled is None)


def _reason_to_spare(candidate: Candidate, policy: CleanPolicy) -> str | None:
    # These texts are keys of `clean --json`, so they do not change.
    if candidate.active is None:
        return "nothing tells when they were last used"
    if candidate.pinned:
        return "pinned"
    if policy.keep_named and candidate.named:
        return "named"
    if policy.keep_labeled and candidate.labeled:
        return "labelled"
    return None


def plan_purge(
    plan: CleanPlan, items: Sequence[ArchiveItem], pinned: frozenset[str], policy: CleanPolicy, now: int
) -> CleanPlan:
    """Add archive items to a plan: all items of the chosen sessions, and those that were cleaned long enough ago."""
    # Copies made by `keep` are only purged with their session: the original may have been deleted by its agent.
    paths = {candidate.path for candidate in plan.chosen}
    purged = [
        item
        for item in items
        if item.session not in pinned
        and (policy.agent is None or item.agent == policy.agent)
        and (item.path in paths or (item.kind == "moved" and _age(item, now) >= policy.older_than))
    ]
    return CleanPlan(plan.chosen, plan.spared, tuple(purged))


def _age(item: ArchiveItem, now: int) -> int:
    return now - (parse_milliseconds(item.when) or now)


def purge(archive_at: Callable[[str], SessionArchive], plan: CleanPlan) -> None:
    """Delete everything in a plan permanently. `archive_at` finds the archive of a session."""
    for candidate in plan.chosen:
        archive = archive_at(candidate.path)
        with archive.locked():
            archive.delete_session(candidate.path)
    for item in plan.archived:
        archive_at(item.path).remove(item, "purged")


def find_expiring(candidates: Iterable[Candidate], items: Iterable[ArchiveItem], now: int) -> list[Candidate]:
    """The sessions that their client will delete within a week and that have no current copy in the archive."""
    copies = {item.path: item.files[0] for item in items if item.kind == "kept"}
    retention: dict[tuple[str, str], int | None] = {}
    found: list[Candidate] = []
    for candidate in candidates:
        folder = (candidate.agent, os.path.dirname(candidate.path))
        if folder not in retention:
            retention[folder] = client_of(candidate.agent).retention_days(candidate.path, read_client_file)
        days = retention[folder]
        if days is None:
            continue
        try:
            status = os.stat(candidate.path)
        except FileNotFoundError:
            continue
        copy = copies.get(candidate.path)
        is_copied = copy is not None and copy.size == status.st_size
        if not is_copied and now - status.st_mtime_ns // 1_000_000 > days * _DAY - _WARNING_PERIOD:
            found.append(candidate)
    return found
