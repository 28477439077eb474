"""Sessions in OpenCode's SQLite database (since 1.2), as lines in the form of its export.

    {"info": {"id": "ses_...", ...}}                                   the session
    {"info": {"id": "msg_...", "role": ...}, "parts": [...], ...}      each message with its parts

Fields that the export does not have:

* `compaction` on the summary of a compaction: its request's `tail_start_id`. The request is another message.
* `previous`: the message before, where parts of a lost message are between the two;
* `lost`: only parts of the message are left, and OpenCode ignores them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sessiontree.core.jsonio import parse_json, parse_object, render_json
from sessiontree.dialects.storage import Outline, Rows

_MODEL_PARTS = frozenset({"reasoning", "step-finish", "step-start", "tool"})
"""Types of parts that only answers have."""

# Times and counts of the last message are parts of the stamp: while an answer is streamed, the session's own time does
# not change. All of this comes from indexes, or is one row per session.
_SESSIONS = """
SELECT s.id AS item, s.time_updated AS modified, s.parent_id AS parent,
  CASE WHEN s.parent_id IS NULL THEN 'session' ELSE 'subagent' END AS kind,
  s.time_updated || ' ' || (SELECT count(*) FROM message WHERE session_id = s.id) || ' ' || coalesce((
    SELECT m.id || ' ' || m.time_updated || ' ' || (
      SELECT count(*) || ' ' || coalesce(max(p.time_updated), 0) FROM part p WHERE p.message_id = m.id
    ) FROM message m WHERE m.session_id = s.id ORDER BY m.time_created DESC, m.id DESC LIMIT 1
  ), '') AS stamp
FROM session s
"""

_PART = "json_insert({0}.data, '$.id', {0}.id, '$.sessionID', {0}.session_id, '$.messageID', {0}.message_id)"
# Any other value (SQLite takes a BLOB for binary JSON) makes a query fail, or would be ignored without a report.
_OBJECT = "(CASE WHEN typeof({0}) = 'text' AND json_valid({0}) THEN json_type({0}) = 'object' ELSE 0 END)"
_TEXT_COLUMNS = {
    "id": "id",
    "slug": "slug",
    "projectID": "project_id",
    "directory": "directory",
    "parentID": "parent_id",
    "title": "title",
    "version": "version",
}
_TIME_COLUMNS = {
    "created": "time_created",
    "updated": "time_updated",
    "compacting": "time_compacting",
    "archived": "time_archived",
}
# JSON cannot hold a BLOB, so each value gets the type that its column should have.
_SESSION_INFO = f"""json_object(
  {", ".join(f"'{name}', CAST(s.{column} AS TEXT)" for name, column in _TEXT_COLUMNS.items())},
  'time', json_object({", ".join(f"'{name}', CAST(s.{column} AS INTEGER)" for name, column in _TIME_COLUMNS.items())}),
  'revert', CASE WHEN {_OBJECT.format("s.revert")} THEN json(s.revert) END
)"""

# A row that is not JSON is repaired from the event that wrote it, if this version of OpenCode records events.
_LINES = f"""
WITH lost(id, time_created) AS (
  SELECT message_id, min(time_created) FROM part
  WHERE session_id = :item AND message_id NOT IN (SELECT id FROM message WHERE session_id = :item)
  GROUP BY message_id
), has_lost(yes) AS (SELECT EXISTS (SELECT 1 FROM lost))
SELECT 0 AS kind, s.id AS id, 0 AS time_created, {_SESSION_INFO} AS data, NULL AS parts, NULL AS broken,
  NULL AS salvaged, NULL AS tail, NULL AS previous
FROM session s WHERE s.id = :item
UNION ALL
SELECT 1, m.id, m.time_created, CAST(m.data AS TEXT),
  (SELECT group_concat({_PART.format("p")}) FROM (
    SELECT * FROM part WHERE message_id = m.id AND {_OBJECT.format("data")} ORDER BY id
  ) p),
  (SELECT json_group_array(json_array(p.id, CAST(p.data AS TEXT), {{part_event}})) FROM part p
    WHERE p.message_id = m.id AND NOT {_OBJECT.format("p.data")}),
  CASE WHEN NOT {_OBJECT.format("m.data")} THEN {{message_event}} END,
  CASE WHEN {_OBJECT.format("m.data")} AND json_type(m.data, '$.summary') = 'true' THEN (
    SELECT json_object('tail_start_id', json_extract(r.data, '$.tail_start_id')) FROM part r
    WHERE r.message_id = json_extract(m.data, '$.parentID') AND {_OBJECT.format("r.data")}
      AND json_extract(r.data, '$.type') = 'compaction'
  ) END,
  CASE WHEN (SELECT yes FROM has_lost) THEN lag(m.id) OVER (ORDER BY m.time_created, m.id) END
FROM message m WHERE m.session_id = :item
UNION ALL
SELECT 1, l.id, l.time_created, NULL,
  (SELECT group_concat({_PART.format("p")}) FROM (
    SELECT * FROM part WHERE message_id = l.id AND {_OBJECT.format("data")} ORDER BY id
  ) p),
  (SELECT json_group_array(json_array(p.id, CAST(p.data AS TEXT), NULL)) FROM part p
    WHERE p.message_id = l.id AND NOT {_OBJECT.format("p.data")}),
  NULL, NULL, NULL
FROM lost l
ORDER BY kind, time_created, id
"""  # noqa: S608 - constants

_PART_EVENT = """(SELECT json_extract(e.data, '$.part') FROM event e
  WHERE e.aggregate_id = p.session_id AND e.type LIKE 'message.part.updated%' AND json_valid(e.data)
    AND json_extract(e.data, '$.part.id') = p.id ORDER BY e.seq DESC LIMIT 1)"""
_MESSAGE_EVENT = """(SELECT json_extract(e.data, '$.info') FROM event e
  WHERE e.aggregate_id = m.session_id AND e.type LIKE 'message.updated%' AND json_valid(e.data)
    AND json_extract(e.data, '$.info.id') = m.id ORDER BY e.seq DESC LIMIT 1)"""

# The first prompt and the last one, and the last message without its parts: an answer may be large.
_OUTLINE = f"""
WITH first(id, data) AS (
  SELECT id, data FROM message WHERE session_id = :item ORDER BY time_created, id LIMIT 1
), last(id, data, time_created) AS (
  SELECT id, data, time_created FROM message WHERE session_id = :item ORDER BY time_created DESC, id DESC LIMIT 1
), prompt(id) AS (
  SELECT CASE WHEN {_OBJECT.format("data")} THEN coalesce(json_extract(data, '$.parentID'), id) END FROM last
)
SELECT {_SESSION_INFO} AS info, {{usage}},
  (SELECT count(*) FROM message WHERE session_id = s.id) AS messages,
  f.id AS first_id, f.data AS first_data, (
    SELECT group_concat({_PART.format("p")}) FROM part p
    WHERE p.message_id = f.id AND {_OBJECT.format("p.data")}
      AND json_extract(p.data, '$.type') = 'text'
  ) AS first_parts,
  (SELECT id FROM message WHERE id = (SELECT id FROM prompt)) AS prompt_id,
  (SELECT data FROM message WHERE id = (SELECT id FROM prompt)) AS prompt_data, (
    SELECT group_concat({_PART.format("p")}) FROM part p
    WHERE p.message_id = (SELECT id FROM prompt) AND {_OBJECT.format("p.data")}
      AND json_extract(p.data, '$.type') = 'text'
  ) AS prompt_parts,
  l.id AS last_id, l.data AS last_data, l.time_created AS last_time
FROM session s, first f, last l WHERE s.id = :item
"""  # noqa: S608 - constants
_USAGE = (
    "s.cost AS cost, s.tokens_input AS tokens_input, s.tokens_output AS tokens_output, "
    "s.tokens_reasoning AS tokens_reasoning, s.tokens_cache_read AS cache_read, s.tokens_cache_write AS cache_write"
)


def _build_lines(row: tuple[Any, ...]) -> bytes | Sequence[bytes]:
    kind, id, created, data, parts, broken, salvaged, tail, previous = row
    if kind == 0:
        return b'{"info":%b}' % data.encode("utf-8", "surrogatepass")
    extra: dict[str, Any] = {}
    others: list[bytes] = []
    parts = parts or ""
    for part_id, raw, event in parse_json((broken or "[]").encode("utf-8", "surrogatepass")):
        if not isinstance(event, dict):
            others.append(_one_line(raw))
        else:
            parts = _with_part(parts, part_id, event)
            # OpenCode has an error for the row, so it is reported although nothing is lost here.
            others.append(b"[damaged: part %b is not JSON; read from the event that wrote it]" % _one_line(part_id))
    info = parse_object((data or "").encode("utf-8", "surrogatepass"))
    if data is None:
        extra["lost"] = True
    elif not isinstance(info.get("role"), str):
        others.append(_one_line(data))
        info = parse_object((salvaged or "").encode("utf-8", "surrogatepass"))
    if not isinstance(info.get("role"), str):
        info = {"role": _guessed_role(parts), "time": {"created": created}}
    if previous is not None:
        extra["previous"] = previous
    if tail is not None:
        extra["compaction"] = parse_object(tail.encode("utf-8", "surrogatepass"))
    return [message_line({**info, "id": id}, parts, extra), *others]


def message_line(info: Mapping[str, Any], parts: str, extra: Mapping[str, Any]) -> bytes:
    """A message as a line; `parts` are JSON objects separated by commas."""
    rest = b"".join(b",%b:%b" % (render_json(name), render_json(value)) for name, value in extra.items())
    return b'{"info":%b,"parts":[%b]%b}' % (render_json(info), parts.encode("utf-8", "surrogatepass"), rest)


def _one_line(raw: object) -> bytes:
    """A row that is not JSON, as a line that is not JSON either."""
    return b" ".join(str(raw).encode("utf-8", "replace").split()) or b"\x00"


def _with_part(parts: str, id: str, event: dict[str, Any]) -> str:
    found = parse_json(f"[{parts}]".encode("utf-8", "surrogatepass"))
    found.append({**event, "id": id})
    found.sort(key=lambda part: str(part.get("id")) if isinstance(part, dict) else "")
    return render_json(found)[1:-1].decode("utf-8", "surrogatepass")


def _guessed_role(parts: str) -> str:
    try:
        found = parse_json(f"[{parts}]".encode("utf-8", "surrogatepass"))
    except ValueError:
        found = []
    types = {part.get("type") for part in found if isinstance(part, dict)}
    return "user" if _MODEL_PARTS.isdisjoint(kind for kind in types if isinstance(kind, str)) else "assistant"


def _build_outline(row: Mapping[str, Any]) -> Outline | None:
    lines = [b'{"info":%b}' % row["info"].encode("utf-8", "surrogatepass")]
    infos: dict[str, dict[str, Any]] = {}
    for name in ("first", "prompt", "last"):
        id, data = row[f"{name}_id"], row[f"{name}_data"]
        if id is None or id in infos:
            continue
        info = infos[id] = parse_object((data or "").encode("utf-8", "surrogatepass"))
        if not isinstance(info.get("role"), str):
            return None
        if name != "last":
            lines.append(message_line({**info, "id": id}, row[f"{name}_parts"] or "", {}))
    last = infos[row["last_id"]]
    model = last.get("modelID")
    return Outline(
        lines,
        row["messages"],
        row["last_time"],
        model if isinstance(model, str) else None,
        input=row.get("tokens_input") or 0,
        output=(row.get("tokens_output") or 0) + (row.get("tokens_reasoning") or 0),
        cached=row.get("cache_read") or 0,
        cache_written=row.get("cache_write") or 0,
        cost=row.get("cost") or 0.0,
    )


DATABASE = Rows(
    sessions=_SESSIONS,
    lines=(
        _LINES.format(part_event=_PART_EVENT, message_event=_MESSAGE_EVENT),
        _LINES.format(part_event="NULL", message_event="NULL"),
    ),
    line=_build_lines,
    outline=(_OUTLINE.format(usage=_USAGE), _OUTLINE.format(usage="0 AS cost")),
    outline_of=_build_outline,
)
