"""Events of an exploration: those of each lane's run, and of the lanes themselves.

lane_made          a lane was created; its record is in the file
(events of its run, see `sessiontree.agent.events`)
delivered*         a message from another lane was delivered
lane_ended         its run is over; its end is in the file
forked_by_rule     a rule wants another lane: followed by `lane_made`, or by
lane_refused       no more lanes may be created
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
    """Id of the lane's first entry."""


class LaneEnded(EventBase, frozen=True, tag="lane_ended"):
    state: str
    why: str
    text: str
    spent: RunUsage
    """All runs of the lane together."""


class LaneRefused(EventBase, frozen=True, tag="lane_refused"):
    """A requested lane was not created."""

    why: str
    origin: int | None = None
    rule: str | None = None


class ForkedByRule(EventBase, frozen=True, tag="forked_by_rule"):
    rule: str
    reason: str


class Delivered(EventBase, frozen=True, tag="delivered"):
    """A message from another lane was appended to the lane."""

    sender: str
    text: str


AnyEvent: TypeAlias = Event | LaneMade | LaneEnded | LaneRefused | ForkedByRule | Delivered


class LaneEvent(Value, frozen=True, omit_defaults=False):
    """An event of a lane's run, or of the exploration itself, with the number of the lane."""

    lane: int
    """Its number; 0 for events that concern no particular lane."""
    event: AnyEvent
