"""Start a transcript with the history of another: its lines are unchanged except for the session they name."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

from sessiontree.core.jsonio import parse_json, render_json
from sessiontree.dialects.canonical import SessionMeta
from sessiontree.dialects.claude.boundaries import is_separator
from sessiontree.dialects.claude.chain import Chain
from sessiontree.dialects.claude.history import find_end_of_conversion, find_history
from sessiontree.dialects.claude.locations import session_uuid
from sessiontree.dialects.claude.path import find_path
from sessiontree.dialects.claude.records import Fields, object_in, string_in
from sessiontree.dialects.contract import AS_CLIENT, IndexedLines, is_metadata_id
from sessiontree.dialects.defaults import replace_field
from sessiontree.dialects.passthrough import PASSTHROUGH


def encode_fork(lines: IndexedLines, leaf: int | None, meta: SessionMeta) -> Iterator[bytes]:
    """Return the history of a leaf in file order with the labels on it, then a title and a pin."""
    session = session_uuid(meta.id)
    chain = Chain(lines)
    history = set(find_history(lines, leaf, AS_CLIENT))
    path = find_path(chain, leaf, AS_CLIENT).nodes
    late = _find_late_results(chain, path, history)
    history.update(late)
    # Separators are no part of a history, but lines are their children.
    parents = {parent for node in history if (parent := chain.parents[node]) is not None}
    history.update(parent for parent in parents if is_separator(chain, parent))
    report = find_end_of_conversion(chain)
    if any(node <= report for node in history):  # with it, the lines before it are read as those of a conversion
        history.add(report)
    nodes = sorted(history | _find_labels(lines, {lines.tree.ids[node] for node in history}))
    for node, raw in zip(nodes, lines.iter_raw(nodes), strict=True):
        yield _copy_line(raw, session, meta, late.get(node))
    if not nodes:
        yield _build_first_line(session, meta)
    if meta.title:
        yield render_json({"type": "custom-title", "customTitle": meta.title, "sessionId": session})
    pinned = _find_pinned(lines, leaf, path) if leaf is not None and leaf in history else None
    if pinned is not None:
        last = max(node for node in history if not is_metadata_id(lines.tree.ids[node]))
        explicit = {} if pinned == last else {"explicit": True}
        pin = {"type": "last-prompt", "leafUuid": lines.tree.ids[pinned], **explicit, "sessionId": session}
        yield render_json(pin)


def _find_pinned(lines: IndexedLines, leaf: int, path: Sequence[int]) -> int | None:
    """Return the leaf, or the last line before it that is not a metadata line, which the client cannot continue."""
    return next((node for node in (leaf, *reversed(path)) if not is_metadata_id(lines.tree.ids[node])), None)


def _find_late_results(chain: Chain, path: Sequence[int], history: Container[int]) -> dict[int, str]:
    """Return the lines on a path that are no part of the history of a conversion, and the line that each follows.

    The client also sends results on other branches. Their parents are there, so they become children of the calls.
    """
    found: dict[int, str] = {}
    before = ""
    for node in path:
        if node not in history and before:
            found[node] = before
        elif chain.types[node] == "message" and chain.summary(node).is_assistant:
            before = chain.tree.ids[node]
    return found


def _build_first_line(session: str, meta: SessionMeta) -> bytes:
    # A session without entries has no other line that names it. The client skips this one.
    origin = None if meta.forked_from is None else meta.forked_from.session
    entry = {"type": "custom", "customType": "sessiontree.fork", "data": {"session": origin, "entry": None}}
    header = {"sessionId": session, "timestamp": meta.timestamp, "cwd": meta.cwd}
    return render_json({"type": PASSTHROUGH, **header, "entry": entry, "id": session, "parent": None})


def _find_labels(lines: IndexedLines, ids: set[str]) -> set[int]:
    candidates = [node for node, kind in enumerate(lines.types) if kind == "label"]
    entries = (object_in(line, "entry") for line in lines.fields(candidates))
    return {node for node, entry in zip(candidates, entries, strict=True) if entry.get("targetId") in ids}


def _copy_line(raw: bytes, session: str, meta: SessionMeta, parent: str | None) -> bytes:
    """Return a line for another session. Its origin is marked as the client's `/branch` does; `parent` is a new one."""
    try:
        line: Fields = parse_json(raw)
    except ValueError:
        return raw
    if parent is not None:
        line["parentUuid"] = parent
        raw = render_json(line)
    raw = replace_field(raw, "sessionId", session)
    if meta.forked_from is None or "uuid" not in line:
        return raw
    origin = {"sessionId": meta.forked_from.session, "messageUuid": string_in(line, "uuid")}
    if "forkedFrom" in line:
        return render_json({**line, "sessionId": session, "forkedFrom": origin})
    return raw.rstrip()[:-1].rstrip() + b',"forkedFrom":' + render_json(origin) + b"}"
