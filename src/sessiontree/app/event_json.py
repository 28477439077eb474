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
_TOKENS = ("tokens", "input", "output", "cached", "cacheWritten")
LANE_EVENT = "event"
"""The `type` of a lane's event."""


def encode_event(event: AppEvent) -> JsonObject:
    """The JSON fields of an event."""
    fields: JsonObject = without_unknown_costs(msgspec.to_builtins(event))
    return {"type": LANE_EVENT, **fields} if isinstance(event, LaneEvent) else fields


def without_unknown_costs(value: Any) -> Any:
    """JSON in which the cost of used tokens is null if their price is unknown: 0 would mean that they were free."""
    if isinstance(value, list | tuple):
        return [without_unknown_costs(item) for item in value]
    if not isinstance(value, dict):
        return value
    found = {name: without_unknown_costs(item) for name, item in value.items()}
    if found.get("cost") == 0 and any(_is_count(found.get(name)) for name in _TOKENS):
        found["cost"] = None
    return found


def _is_count(value: object) -> bool:
    return isinstance(value, int | float) and value > 0


def _with_unknown_costs(value: Any) -> Any:
    """Undo `without_unknown_costs`: remove null costs."""
    if isinstance(value, list):
        return [_with_unknown_costs(item) for item in value]
    if not isinstance(value, dict):
        return value
    is_unknown = value.get("cost", 0) is None and any(name in value for name in _TOKENS)
    return {name: _with_unknown_costs(item) for name, item in value.items() if name != "cost" or not is_unknown}


def decode_event(fields: Mapping[str, Any]) -> AppEvent:
    """The event that JSON fields describe; `UsageError` if they do not describe one."""
    fields = _with_unknown_costs(dict(fields))
    try:
        if fields.get("type") == LANE_EVENT:
            return msgspec.convert(fields, LaneEvent)
        found: AnyEvent = msgspec.convert(fields, AnyEvent)
    except msgspec.ValidationError as error:
        raise UsageError(f"not an event: {error}") from None
    return found
