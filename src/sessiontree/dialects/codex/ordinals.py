"""Problems that Codex has with a rollout, although each line can be read: ordinals, and headers it refuses.

Codex 0.166 reads a paginated rollout in file order and does not compare ordinals. A line that occurs twice is sent
twice, and one that is missing is just not sent. It refuses a file whose last line has no ordinal, and one whose header
lacks a required field.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sessiontree.core.jsonio import parse_object
from sessiontree.dialects.codex.header import header_meta, is_paginated
from sessiontree.dialects.codex.records import MESSAGE, META
from sessiontree.dialects.contract import IndexedLines, LineProblem

_REQUIRED = ("cwd", "originator", "cli_version")
_MODES = (None, "legacy", "paginated")
_STEP = 256
_ordinal = re.compile(rb'\{"timestamp":"[^"]{1,40}","ordinal":(\d{1,18}),')


def find_problems(lines: IndexedLines) -> list[LineProblem]:
    meta = header_meta(lines)
    if not meta:
        return []
    found: list[LineProblem] = []
    # An empty one is accepted: a session converted from a client that does not record folders has no `cwd`.
    missing = [name for name in _REQUIRED if not isinstance(meta.get(name), str)]
    if missing:
        found.append(LineProblem(None, "refused-header", f"the header lacks {' and '.join(missing)}"))
    if meta.get("history_mode") not in _MODES:
        found.append(LineProblem(None, "refused-header", f"unknown history mode {str(meta['history_mode'])[:40]!r}"))
    if is_paginated(meta):
        found += _ordinal_problems(lines)
    return found


def _ordinal_problems(lines: IndexedLines) -> Iterator[LineProblem]:
    headers = _header_ordinals(lines)
    before: int | None = None
    ordinal: int | None = None
    last = -1
    for node, ordinal in iter_ordinals(lines):
        last = node
        if ordinal is None:
            continue
        while before is not None and before + 1 in headers:
            before += 1
        if before is not None and ordinal <= before:
            sent = "its message is sent twice" if lines.types[node] == MESSAGE else "it is read twice"
            yield LineProblem(node, "duplicate-ordinal", f"ordinal {ordinal} after {before}: {sent}")
        elif before is not None and ordinal > before + 1:
            gone = f"ordinal {before + 1}" if ordinal == before + 2 else f"ordinals {before + 1} to {ordinal - 1}"
            yield LineProblem(node, "missing-ordinal", f"{gone} missing: what was there is not sent")
        before = ordinal if before is None else max(before, ordinal)
    if last >= 0 and ordinal is None:
        yield LineProblem(last, "no-ordinal", "the last line has no ordinal: the thread cannot be resumed")


def _header_ordinals(lines: IndexedLines) -> set[int]:
    """The ordinals of headers: the session's own, and those of the files that it continues."""
    nodes = [node for node, kind in enumerate(lines.types) if kind == META]
    found = [lines.header_fields.get("ordinal"), *(fields.get("ordinal") for fields in lines.fields(nodes))]
    return {ordinal for ordinal in found if type(ordinal) is int}


def iter_ordinals(lines: IndexedLines) -> Iterator[tuple[int, int | None]]:
    """The ordinal of each line except headers; None for a line without one."""
    count = len(lines.types)
    for start in range(0, count, _STEP):
        nodes = range(start, min(start + _STEP, count))
        for node, raw in zip(nodes, lines.iter_raw(nodes), strict=True):
            if lines.types[node] == META:
                continue
            found = _ordinal.match(raw)
            if found:
                yield node, int(found[1])
                continue
            ordinal = parse_object(raw).get("ordinal")
            yield node, ordinal if type(ordinal) is int else None
