"""What makes one JSON value another: found, and put back.

{"set": {name: value}, "without": [name], "in": {name: delta}}    for objects
{"at": [[position, delta], …]}                                    for lists of the same length
{"is": value}                                                     for anything else
"""

from __future__ import annotations

from typing import Any


def difference(old: Any, new: Any) -> dict[str, Any] | None:
    """What to do to `old` so that it says what `new` says; None when it does already."""
    if old is new or (type(old) is type(new) and old == new):
        return None
    if isinstance(old, dict) and isinstance(new, dict):
        return _object_difference(old, new)
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        deltas = [[at, difference(*pair)] for at, pair in enumerate(zip(old, new, strict=True))]
        return {"at": [[at, delta] for at, delta in deltas if delta is not None]}
    return {"is": new}


def _object_difference(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    plain = {name: value for name, value in new.items() if name not in old}
    inside: dict[str, Any] = {}
    for name in old.keys() & new.keys():
        delta = difference(old[name], new[name])
        if delta is not None and "is" in delta:
            plain[name] = new[name]
        elif delta is not None:
            inside[name] = delta
    parts = {"set": plain, "without": sorted(old.keys() - new.keys()), "in": inside}
    return {name: part for name, part in parts.items() if part}


def applied(old: Any, delta: Any) -> Any:
    """`old` with a delta put back, as far as the two fit each other."""
    if not isinstance(delta, dict):
        return old
    if "is" in delta:
        return delta["is"]
    if isinstance(old, dict):
        return _applied_to_object(old, delta)
    at = delta.get("at")
    if isinstance(old, list) and isinstance(at, list):
        found = list(old)
        for pair in at:
            if isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], int) and 0 <= pair[0] < len(found):
                found[pair[0]] = applied(found[pair[0]], pair[1])
        return found
    return old


def _applied_to_object(old: dict[str, Any], delta: dict[str, Any]) -> dict[str, Any]:
    without, plain, inside = delta.get("without"), delta.get("set"), delta.get("in")
    found = {name: value for name, value in old.items() if not (isinstance(without, list) and name in without)}
    if isinstance(inside, dict):
        found |= {name: applied(found[name], change) for name, change in inside.items() if name in found}
    return found | plain if isinstance(plain, dict) else found
