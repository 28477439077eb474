"""Fork a session like Neovate's `/branch`: lines are copied byte for byte, each with a mark of its origin.

Approvals in the settings are not copied: the user gave those to one session, not to its copies.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sessiontree.core.jsonio import parse_json, render_json
from sessiontree.dialects.canonical import SessionMeta
from sessiontree.dialects.contract import AS_CLIENT, IndexedLines
from sessiontree.dialects.defaults import replace_field
from sessiontree.dialects.neovate.locations import session_id
from sessiontree.dialects.neovate.path import find_history
from sessiontree.dialects.neovate.records import string

_APPROVALS = {"approvalMode", "approvalTools"}


def encode_fork(lines: IndexedLines, leaf: int | None, meta: SessionMeta) -> Iterator[bytes]:
    """Return the lines of a fork: settings, the history of a leaf with its snapshots and labels, and a title."""
    new = session_id(meta.id)
    nodes = set(find_history(lines, leaf, AS_CLIENT))
    nodes |= {node for node, kind in enumerate(lines.types) if kind == "config"}
    wanted = sorted(nodes | _related_metadata(lines, {lines.tree.ids[node] for node in nodes}))
    if not wanted:
        yield render_json({"type": "config", "config": {}})  # a session needs at least one line
    for raw in lines.iter_raw(wanted):
        yield _for_session(raw, new, meta)
    if meta.title:
        yield render_json(
            {"type": "custom-title", "customTitle": f"{meta.title} (branch)", "sessionId": new} | _last(lines, leaf)
        )


def _related_metadata(lines: IndexedLines, ids: set[str]) -> set[int]:
    """Snapshots and labels of copied messages."""
    kinds = {"file_snapshot": "messageId", "label": "targetId"}
    found: set[int] = set()
    candidates = [node for node, kind in enumerate(lines.types) if kind in kinds]
    for node, fields in zip(candidates, lines.fields(candidates), strict=True):
        inside = fields.get("entry") if isinstance(fields.get("entry"), dict) else fields
        if isinstance(inside, dict) and string(inside, kinds[lines.types[node]]) in ids:
            found.add(node)
    return found


def _for_session(raw: bytes, session: str, meta: SessionMeta) -> bytes:
    """Return a line for another session. The mark of an earlier fork is replaced, as Neovate does."""
    try:
        fields: dict[str, Any] = parse_json(raw)
    except ValueError:
        return raw
    if fields.get("type") == "config":
        raw = _without_approvals(raw, fields)
    if "sessionId" in fields:
        raw = replace_field(raw, "sessionId", session)
    if fields.get("type") != "message" or meta.forked_from is None:
        return raw
    mark = {"sessionId": meta.forked_from.session, "messageUuid": string(fields, "uuid")}
    if "forkedFrom" in fields:
        return render_json({**fields, "sessionId": session, "forkedFrom": mark})
    return raw.rstrip()[:-1].rstrip() + b',"forkedFrom":' + render_json(mark) + b"}"


def _without_approvals(raw: bytes, fields: dict[str, Any]) -> bytes:
    config = fields.get("config")
    if not isinstance(config, dict) or not _APPROVALS & config.keys():
        return raw
    return render_json({**fields, "config": {name: config[name] for name in config if name not in _APPROVALS}})


def _last(lines: IndexedLines, leaf: int | None) -> dict[str, str]:
    """The uuid that Neovate's own next line uses as its parent (see `metadata_lines`)."""
    return {} if leaf is None else {"uuid": lines.tree.ids[leaf]}
