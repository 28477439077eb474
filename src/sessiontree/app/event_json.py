"""Events of runs and explorations as JSON, for `--output stream-json`, `explore --json` and other processes.

An event is an object whose `type` names its class; `sessiontree.agent.events` and `sessiontree.explore.events` list
them in the order in which they are emitted. Field names are those of the class, in camel case:

    {"type": "text_delta", "text": "Hello"}

An event of a lane is an object of type `event` with the number of the lane; 0 concerns no particular lane:

    {"type": "event", "lane": 2, "event": {"type": "text_delta", "text": "Hello"}}

New fields and types may be added. A reader should ignore those that it does not know; `decode_event` does so for fields
and raises `UsageError` for types.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec

from sessiontree.core.jsonio import JsonObject
from sessiontree.errors import UsageError
from sessiontree.explore.events import AnyEvent, LaneEvent

AppEvent: TypeAlias = AnyEvent | LaneEvent
LANE_EVENT = "event"
"""The `type` of a lane's event."""


def encode_event(event: AppEvent) -> JsonObject:
    """The JSON fields of an event."""
    fields: JsonObject = msgspec.to_builtins(event)
    return {"type": LANE_EVENT, **fields} if isinstance(event, LaneEvent) else fields


def decode_event(fields: Mapping[str, Any]) -> AppEvent:
    """The event that JSON fields describe; `UsageError` if they describe none."""
    try:
        if fields.get("type") == LANE_EVENT:
            return msgspec.convert(fields, LaneEvent)
        found: AnyEvent = msgspec.convert(fields, AnyEvent)
    except msgspec.ValidationError as error:
        raise UsageError(f"not an event: {error}") from None
    return found
