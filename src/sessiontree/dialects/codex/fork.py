"""Fork a rollout: its lines are copied byte for byte into a new legacy thread, without what was rolled back.

Lines of a paginated rollout lose their ordinals, and get the events by which Codex shows a legacy thread.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

from sessiontree.core.jsonio import parse_object, render_json
from sessiontree.dialects.canonical import SessionMeta
from sessiontree.dialects.codex.encoder import CLI_VERSION, ORIGINATOR, CodexEncoder
from sessiontree.dialects.codex.header import header_meta, is_paginated
from sessiontree.dialects.codex.items import images_of, string, texts_of
from sessiontree.dialects.codex.locations import thread_id
from sessiontree.dialects.codex.records import MESSAGE, META, ROLLBACK, TURN_CONTEXT, note_of
from sessiontree.dialects.codex.rollbacks import find_history
from sessiontree.dialects.contract import IndexedLines, is_metadata_id

_STEP = 256
_LEFT_OUT = frozenset({"history_mode", "history_base", "forked_from_ordinal_exclusive", "context_window"})
_PARENT_FIELDS = frozenset({"parent_thread_id", "thread_source", "agent_nickname", "agent_role", "agent_path"})
"""Fields of a sub-agent: a fork of one is a separate thread."""
_OF_THREAD = frozenset({"item_completed", "thread_settings_applied", "thread_goal_updated"})
"""Events that belong to one paginated thread."""
_ordinal = re.compile(rb'(\{"timestamp":"[^"]{1,40}",)"ordinal":(\d{1,18}),')


def encode_fork(
    lines: IndexedLines, leaf: int | None, meta: SessionMeta, *, is_repair: bool = False
) -> Iterator[bytes]:
    """The lines of a fork. A repair copies a line once that follows itself with the same ordinal."""
    own = header_meta(lines)
    yield _header_line(own, meta)
    seen: dict[int, bytes] | None = {} if is_repair else None
    is_numbered = is_paginated(own)
    nodes = _copied_nodes(lines, leaf)
    for start in range(0, len(nodes), _STEP):
        for raw in lines.iter_raw(nodes[start : start + _STEP]):
            yield from _legacy_lines(raw.rstrip(), seen) if is_numbered else [raw]
    if meta.title:
        yield from CodexEncoder(meta).epilogue(None)


def _copied_nodes(lines: IndexedLines, leaf: int | None) -> list[int]:
    """The history of a leaf, and the metadata lines between its entries."""
    history = find_history(lines, leaf)
    end = _end_of(lines, history[-1]) if history else 0
    wanted, ids = set(history), lines.tree.ids
    found: list[int] = []
    is_copied = True
    for node in range(end):
        kind = lines.types[node]
        if not is_metadata_id(ids[node]):
            is_copied = node in wanted
        if is_copied and kind not in (META, ROLLBACK):
            found.append(node)
    return found


def _end_of(lines: IndexedLines, last: int) -> int:
    """The node after the metadata lines of an entry, such as the event that shows it and its usage."""
    ids, types = lines.tree.ids, lines.types
    end = last + 1
    while end < len(types) and is_metadata_id(ids[end]) and types[end] not in (TURN_CONTEXT, ROLLBACK):
        end += 1
    return end


def _header_line(own: dict[str, Any], meta: SessionMeta) -> bytes:
    id = thread_id(meta.id)
    kept = {name: value for name, value in own.items() if name not in _LEFT_OUT | _PARENT_FIELDS}
    payload = {
        "originator": ORIGINATOR,
        "cli_version": CLI_VERSION,
        **{name: value for name, value in kept.items() if value != ""},
        "id": id,
        "timestamp": meta.timestamp,
        "cwd": meta.cwd,
    }
    if "session_id" in own:
        payload["session_id"] = id
    if not isinstance(own.get("source"), str):
        payload["source"] = "cli"
    if meta.forked_from is not None:
        payload["forked_from_id"] = thread_id(meta.forked_from.session)
    return render_json({"timestamp": meta.timestamp, "type": META, "payload": payload})


def _legacy_lines(raw: bytes, seen: dict[int, bytes] | None) -> Iterator[bytes]:
    """A line of a paginated rollout in a legacy one: without its ordinal, and with the event that shows a prompt."""
    found = _ordinal.match(raw)
    fields: dict[str, Any] | None = None
    if found:
        ordinal, line = int(found[2]), found[1] + raw[found.end() :]
    else:
        fields = parse_object(raw)
        number = fields.pop("ordinal", None)
        ordinal, line = (number if type(number) is int else -1), render_json(fields)
    if seen is not None and ordinal >= 0:
        digest = blake2b(raw, digest_size=8).digest()
        if seen.get(ordinal) == digest:
            return
        seen[ordinal] = digest
    fields = parse_object(line) if fields is None else fields
    payload = fields.get("payload")
    if not isinstance(payload, dict):
        yield line
        return
    if fields.get("type") == "event_msg" and string(payload, "type") in _OF_THREAD:
        return
    yield line
    if fields.get("type") != "response_item" or payload.get("type") != MESSAGE:
        return
    event: dict[str, Any] | None = None
    if note_of(fields) == "p":
        event = {"type": "user_message", "message": texts_of([payload]), "images": images_of([payload])}
    elif payload.get("role") == "assistant":
        event = {"type": "agent_message", "message": texts_of([payload])}
    if event is not None:
        yield render_json({"timestamp": fields.get("timestamp"), "type": "event_msg", "payload": event})
