"""What an exploration tells while it goes: the events of all its lanes, and what becomes of lanes.

lane_made          a lane exists; its record is in the file
(events of its run, as `sessiontree.agent.events` has them)
delivered*         something another lane sent has been put before the lane
lane_ended         its run is over; its end is in the file
forked_by_rule     a rule wants another lane: `lane_made` follows, or
lane_refused       no more lanes may be made
"""

from __future__ import annotations

from typing import TypeAlias

from sessiontree.agent.events import Event, EventBase
from sessiontree.agent.limits import RunUsage
from sessiontree.core.jsonio import Value
from sessiontree.explore.records import LaneRecord


class LaneMade(EventBase, frozen=True, tag="lane_made"):
    record: LaneRecord
    start: str
    """The id of the lane's first entry."""


class LaneEnded(EventBase, frozen=True, tag="lane_ended"):
    state: str
    why: str
    text: str
    spent: RunUsage
    """All runs of the lane together."""


class LaneRefused(EventBase, frozen=True, tag="lane_refused"):
    """A lane was wanted and not made."""

    why: str
    origin: int | None = None
    rule: str | None = None


class ForkedByRule(EventBase, frozen=True, tag="forked_by_rule"):
    rule: str
    reason: str


class Delivered(EventBase, frozen=True, tag="delivered"):
    """A message of another lane was put before the lane."""

    sender: str
    text: str


AnyEvent: TypeAlias = Event | LaneMade | LaneEnded | LaneRefused | ForkedByRule | Delivered


class LaneEvent(Value, frozen=True, omit_defaults=False):
    """Something that happened on a lane."""

    lane: int
    """Its number; 0 for what is of no lane."""
    event: AnyEvent
