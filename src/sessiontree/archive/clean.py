"""Which sessions are old enough to go, and which are about to be deleted by the agent that wrote them."""

from __future__ import annotations

import functools
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct

from sessiontree.archive.archive import Archive, delete
from sessiontree.archive.candidates import Candidate, look_closer, milliseconds
from sessiontree.archive.catalog import Item
from sessiontree.core.jsonio import parse_json
from sessiontree.errors import UsageError

_DAY = 86_400_000
_UNITS = {"h": _DAY // 24, "d": _DAY, "w": 7 * _DAY, "m": 30 * _DAY, "y": 365 * _DAY}
_duration = re.compile(r"(\d{1,6})([hdwmy])\Z")

CLAUDE_DAYS = 30
"""After how many days Claude Code deletes a session, by the date of its file, unless its settings say otherwise."""
_SOON = 7 * _DAY


class Policy(Struct, frozen=True):
    """Which sessions shall go."""

    older_than: int
    """Milliseconds since the last message."""
    keep_named: bool = False
    keep_labelled: bool = False
    agent: str | None = None


class Plan(Struct, frozen=True):
    """What cleaning would do."""

    chosen: tuple[Candidate, ...]
    spared: dict[str, int]
    """Why old sessions stay, and how many for each reason."""
    archived: tuple[Item, ...] = ()
    """What is in the archive already and would be deleted there; only when deleting for good."""

    @property
    def size(self) -> int:
        return sum(one.size for one in self.chosen) + sum(item.size for item in self.archived)


def parse_duration(text: str) -> int:
    """`30d` -> milliseconds; hours, days, weeks, months of 30 days, years."""
    found = _duration.match(text.strip().lower())
    if not found:
        raise UsageError(f"{text!r} is no duration; a number and one of h, d, w, m, y is, like 30d")
    return int(found[1]) * _UNITS[found[2]]


def plan_cleaning(candidates: Iterable[Candidate], policy: Policy, now: int) -> Plan:
    """Choose the sessions that go: the oldest first. Writes nothing.

    A file is opened only where that decides: of sessions that seem old enough, and of which something is not known that
    was asked about.
    """
    chosen: list[Candidate] = []
    spared: Counter[str] = Counter()
    for one in candidates:
        if policy.agent is not None and one.agent != policy.agent:
            continue
        if _is_used(one, policy, now):
            continue
        known = look_closer(one) if _has_open_questions(one, policy) else one
        if known is None or _is_used(known, policy, now):
            continue
        reason = _reason_to_stay(known, policy)
        if reason:
            spared[reason] += 1
        else:
            chosen.append(known)
    return Plan(tuple(sorted(chosen, key=lambda one: one.active or 0)), dict(spared))


def _is_used(one: Candidate, policy: Policy, now: int) -> bool:
    return one.active is not None and now - one.active < policy.older_than


def _has_open_questions(one: Candidate, policy: Policy) -> bool:
    """Whether something about an old session is not known that decides whether it goes."""
    if one.pinned:
        return False
    is_open = not one.is_dated or (policy.keep_named and one.named is None)
    return is_open or (policy.keep_labelled and one.labelled is None)


def _reason_to_stay(one: Candidate, policy: Policy) -> str | None:
    if one.active is None:
        return "nothing tells when they were last used"
    if one.pinned:
        return "pinned"
    if policy.keep_named and one.named:
        return "named"
    if policy.keep_labelled and one.labelled:
        return "labelled"
    return None


def plan_purging(plan: Plan, items: Sequence[Item], pinned: frozenset[str], policy: Policy, now: int) -> Plan:
    """Also choose what is in the archive: all of the chosen sessions, and what was cleaned long enough ago.

    Copies made by `keep` stay as long as their session is not chosen: the original may be gone already.
    """
    paths = {one.path for one in plan.chosen}
    gone = [
        item
        for item in items
        if item.session not in pinned
        and (policy.agent is None or item.agent == policy.agent)
        and (item.path in paths or (item.kind == "moved" and _age(item, now) >= policy.older_than))
    ]
    return Plan(plan.chosen, plan.spared, tuple(gone))


def _age(item: Item, now: int) -> int:
    return now - (milliseconds(item.when) or now)


def purge(archive: Archive, plan: Plan) -> None:
    """Delete everything in a plan for good."""
    with archive.locked():
        for one in plan.chosen:
            delete(one.path, archive.bounds)
        for item in plan.archived:
            archive.purge(item)


def at_risk(candidates: Iterable[Candidate], items: Iterable[Item], now: int) -> list[Candidate]:
    """The sessions that Claude Code deletes by itself within a week, and of which the archive has no copy."""
    copies = {item.path: item.files[0] for item in items if item.kind == "kept"}
    days_of = functools.cache(claude_days)
    found: list[Candidate] = []
    for one in candidates:
        if one.agent != "claude":
            continue
        try:
            status = os.stat(one.path)
        except FileNotFoundError:
            continue
        copy = copies.get(one.path)
        is_copied = copy is not None and copy.size == status.st_size
        limit = days_of(os.path.dirname(os.path.dirname(one.path))) * _DAY
        if not is_copied and now - status.st_mtime_ns // 1_000_000 > limit - _SOON:
            found.append(one)
    return found


def claude_days(projects: str) -> int:
    """After how many days Claude Code deletes a transcript, by the settings above the folder of its projects."""
    settings = os.path.join(os.path.dirname(projects), "settings.json")
    try:
        with open(settings, "rb") as file:
            days = parse_json(file.read(1 << 20)).get("cleanupPeriodDays")
    except (OSError, ValueError, AttributeError):
        return CLAUDE_DAYS
    return days if isinstance(days, int) and days >= 0 else CLAUDE_DAYS
