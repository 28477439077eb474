"""What the lines of a transcript tell of their session, and whether some bytes are a transcript at all."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import islice
from typing import Any

from sessiontree.core.entries import ForkOrigin, Header
from sessiontree.core.jsonio import parse_json
from sessiontree.dialects.claude.records import CHAIN_TYPES, METADATA_TYPES, Fields, object_in, string_in
from sessiontree.dialects.contract import CERTAIN, IndexedLines
from sessiontree.dialects.detect import head_records

SURE, LIKELY, UNSURE = 60, 40, 20
_FIRST_LINES, _FEW_LINES = 64, 4
_MANY_LINES = 256


def recognize(head: bytes) -> int:
    """How sure we are that a file begins like a transcript."""
    records = head_records(head)
    if any(map(_is_of_another_agent, records)):
        return 0
    likelihoods = [*map(_likelihood, records)]
    best = max(likelihoods, default=0)
    if best == SURE and likelihoods[0]:
        return CERTAIN
    if best == 0 and b'"parentUuid":' in head and b'"isSidechain":' in head:
        return UNSURE  # the first line is longer than what we are shown
    return best


def _is_of_another_agent(fields: Fields) -> bool:
    kind = fields.get("type")
    return (kind == "session" and "id" in fields) or (kind == "message" and "role" in fields)


def _likelihood(fields: Fields) -> int:
    kind = string_in(fields, "type")
    if kind in CHAIN_TYPES and isinstance(fields.get("uuid"), str):
        return SURE if "parentUuid" in fields or isinstance(fields.get("sessionId"), str) else UNSURE
    if kind in METADATA_TYPES and is_record(fields):
        return LIKELY if any(key in fields for key in ("sessionId", "leafUuid", "messageId")) else 0
    return UNSURE if kind in ("user", "assistant") and isinstance(fields.get("message"), dict) else 0


def is_record(fields: dict[str, Any]) -> bool:
    """Whether an object is a whole line, and not one of the typed objects inside one."""
    kind = fields.get("type")
    if not isinstance(kind, str):
        return False
    return kind in METADATA_TYPES or isinstance(fields.get("uuid"), str) or isinstance(fields.get("sessionId"), str)


def find_header(lines: IndexedLines) -> Header | None:
    """The session's id, folder, beginning and origin."""
    if not lines.types:
        return None
    size = len(lines.types)
    placed = list(islice((node for node in range(size) if _is_placed(lines, node)), _FIRST_LINES))
    first = _first_fields(lines, placed or range(size)[:_FIRST_LINES])
    end = next((node for node in range(size - 1, -1, -1) if _is_placed(lines, node)), size - 1)
    (last,) = lines.fields([end])
    stem = os.path.splitext(os.path.basename(lines.location))[0]
    origin = _fork_origin(lines)
    return Header(
        id=string_in(last, "sessionId") or _first_string(first, "sessionId") or stem,
        timestamp=_first_string(first, "timestamp"),
        cwd=_first_string(first, "cwd"),
        parent_session=origin.session if origin else None,
        forked_from=origin,
    )


def _first_fields(lines: IndexedLines, nodes: Sequence[int]) -> Sequence[Fields]:
    """The first lines, decoded; of an ordinary file the first few say all there is to know."""
    few = lines.fields(nodes[:_FEW_LINES])
    return few if all(_first_string(few, key) for key in ("sessionId", "timestamp", "cwd")) else lines.fields(nodes)


def _is_placed(lines: IndexedLines, node: int) -> bool:
    return lines.tree.ids[node] != f"@{node}"


def _first_string(lines: Sequence[Fields], key: str) -> str:
    return next((found for fields in lines if (found := string_in(fields, key))), "")


def _fork_origin(lines: IndexedLines) -> ForkOrigin | None:
    """Copied lines say where they are from. They come first, so the last of them is where the fork was taken."""
    in_tree = (node for node in range(len(lines.types)) if _is_placed(lines, node))
    first = next(in_tree, None)
    origin = _copied_from(lines, first) if first is not None else None
    if first is None or origin is None:
        return None
    placed = [first, *in_tree]
    low, high = 0, len(placed) - 1
    while low < high:
        middle = (low + high + 1) // 2
        found = _copied_from(lines, placed[middle])
        if found is None:
            high = middle - 1
        else:
            low, origin = middle, found
    return origin


def _copied_from(lines: IndexedLines, node: int) -> ForkOrigin | None:
    (fields,) = lines.fields([node])
    origin = object_in(fields, "forkedFrom")
    session = string_in(origin, "sessionId")
    return ForkOrigin(session, string_in(origin, "messageUuid")) if session else None


def find_git_branch(lines: IndexedLines) -> str | None:
    """The branch that the last line which names one was written on; "HEAD" names none."""
    messages = [node for node, kind in enumerate(lines.types) if kind == "message"]
    size = 1  # most often the last line says it; where none does, all are looked through in ever larger steps
    while messages:
        step = messages[-size:]
        del messages[-size:]
        for raw in reversed(list(lines.iter_raw(step))):
            if raw.count(b"gitBranch") <= (b'"gitBranch":""' in raw):
                continue
            branch = _git_branch(raw)
            if branch and branch != "HEAD":
                return branch
        size = min(4 * size, _MANY_LINES)
    return None


def _git_branch(raw: bytes) -> str | None:
    try:
        fields = parse_json(raw)
    except ValueError:
        return None
    return string_in(fields, "gitBranch") if isinstance(fields, dict) else None


def find_given_title(lines: IndexedLines) -> str | None:
    """The last name that the user gave the session, else the last that the client made for it."""
    for kind, key in (("custom-title", "customTitle"), ("ai-title", "aiTitle")):
        for node in range(len(lines.types) - 1, -1, -1) if kind in lines.types else ():
            if lines.types[node] == kind:
                (fields,) = lines.fields([node])
                title = " ".join((string_in(fields, key) or "").split())
                if title:
                    return title
    return None
