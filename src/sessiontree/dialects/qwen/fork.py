"""Fork a session like Qwen Code's `/branch`: records keep their uuids, and each names the one it is a copy of."""

from __future__ import annotations

from collections.abc import Iterator

from sessiontree.core.jsonio import parse_object, render_json_line
from sessiontree.dialects.canonical import SessionMeta
from sessiontree.dialects.claude.locations import generate_uuid
from sessiontree.dialects.contract import IndexedLines
from sessiontree.dialects.qwen.encoder import VERSION
from sessiontree.dialects.qwen.locations import session_id

_STEP = 256


def encode_fork(lines: IndexedLines, leaf: int | None, meta: SessionMeta) -> Iterator[bytes]:
    new = session_id(meta.id)
    nodes = lines.tree.path(leaf)
    last: str | None = None
    for start in range(0, len(nodes), _STEP):
        for raw in lines.iter_raw(nodes[start : start + _STEP]):
            fields = parse_object(raw)
            # The chain becomes linear, as in the client: a parent that is missing there would hide what precedes it.
            fields |= {"sessionId": new, "parentUuid": last, "cwd": meta.cwd or fields.get("cwd", "")}
            last = str(fields["uuid"])
            if meta.forked_from is not None:
                fields["forkedFrom"] = {"sessionId": meta.forked_from.session, "messageUuid": last}
            yield render_json_line(fields)
    if not meta.title and nodes:
        return
    title = f"{meta.title} (Branch)" if meta.title else ""
    yield render_json_line(
        {
            "uuid": generate_uuid(b"sessiontree:qwen", f"{new} title"),
            "parentUuid": last,
            "sessionId": new,
            "timestamp": meta.timestamp,
            "type": "system",
            "cwd": meta.cwd,
            "version": VERSION,
            "subtype": "custom_title",
            "systemPayload": {"customTitle": title, "titleSource": "auto"},
        }
    )
