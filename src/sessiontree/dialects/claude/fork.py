"""A new transcript that begins with the history of another: its lines as they stand, but for the session they name."""

from __future__ import annotations

from collections.abc import Iterator

from sessiontree.core.jsonio import parse_json, render_json
from sessiontree.dialects.canonical import SessionMeta
from sessiontree.dialects.claude.history import find_history
from sessiontree.dialects.claude.places import session_uuid
from sessiontree.dialects.claude.records import Fields, object_in, string_in
from sessiontree.dialects.contract import AS_CLIENT, IndexedLines, is_metadata_id, replace_field
from sessiontree.dialects.passthrough import PASSTHROUGH


def encode_fork(lines: IndexedLines, leaf: int | None, meta: SessionMeta) -> Iterator[bytes]:
    """The history of a leaf in file order with the labels on it, then a title and where the session stands."""
    new = session_uuid(meta.id)
    history = set(find_history(lines, leaf, AS_CLIENT))
    nodes = sorted(history | _labels(lines, {lines.tree.ids[node] for node in history}))
    for raw in lines.iter_raw(nodes):
        yield _of_session(raw, new, meta)
    if not nodes:
        yield _beginning(new, meta)
    if meta.title:
        yield render_json({"type": "custom-title", "customTitle": meta.title, "sessionId": new})
    if leaf is not None and leaf in history:
        last = max(node for node in history if not is_metadata_id(lines.tree.ids[node]))
        explicit = {} if leaf == last else {"explicit": True}
        pin = {"type": "last-prompt", "leafUuid": lines.tree.ids[leaf], **explicit, "sessionId": new}
        yield render_json(pin)


def _beginning(session: str, meta: SessionMeta) -> bytes:
    """A line of ours, which the client passes over: a session in which nothing was said has no other to be known by."""
    origin = None if meta.forked_from is None else meta.forked_from.session
    entry = {"type": "custom", "customType": "sessiontree.fork", "data": {"session": origin, "entry": None}}
    known = {"sessionId": session, "timestamp": meta.timestamp, "cwd": meta.cwd}
    return render_json({"type": PASSTHROUGH, **known, "entry": entry, "id": session, "parent": None})


def _labels(lines: IndexedLines, ids: set[str]) -> set[int]:
    candidates = [node for node, kind in enumerate(lines.types) if kind == "label"]
    entries = (object_in(fields, "entry") for fields in lines.fields(candidates))
    return {node for node, entry in zip(candidates, entries, strict=True) if entry.get("targetId") in ids}


def _of_session(raw: bytes, session: str, meta: SessionMeta) -> bytes:
    """The same line in another session, with where it was copied from, as the client marks it."""
    try:
        fields: Fields = parse_json(raw)
    except ValueError:
        return raw
    raw = replace_field(raw, "sessionId", session)
    if meta.forked_from is None or "uuid" not in fields:
        return raw
    mark = {"sessionId": meta.forked_from.session, "messageUuid": string_in(fields, "uuid")}
    if "forkedFrom" in fields:
        return render_json({**fields, "sessionId": session, "forkedFrom": mark})
    return raw.rstrip()[:-1].rstrip() + b',"forkedFrom":' + render_json(mark) + b"}"
