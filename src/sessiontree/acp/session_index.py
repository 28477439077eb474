"""Find sessions by the ids of the protocol, and list them in pages.

The protocol's id of a session is its own. Where several have the same id (copies of a file), it is their reference.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Literal, TypeAlias, get_args

import msgspec
from msgspec import Struct

from sessiontree.acp.connection import INVALID_PARAMS, RpcError
from sessiontree.app.workbench import Workbench
from sessiontree.archive.catalog import ArchiveItem
from sessiontree.core.jsonio import JsonObject
from sessiontree.errors import AmbiguousError, NotFoundError
from sessiontree.library.summary import Summary
from sessiontree.paths import is_same_folder
from sessiontree.views.text import one_line

PAGE = 100
"""How many sessions a page has."""
_SCAN_SECONDS = 2.0
"""How long the first page waits for new sessions; those found later are in the next list."""

ArchiveFilter: TypeAlias = Literal["exclude", "include", "only"]
ARCHIVED = "archive"
"""The reason in the catalog of sessions that a client archived. Deleted ones have another, and are not listed."""
DELETED = "delete"


class _Position(Struct, frozen=True, array_like=True):
    """The last session of a page. Sessions that are added meanwhile do not shift the next page."""

    recency: int
    id: str


class _Row(Struct, frozen=True):
    position: _Position
    cwd: str
    fields: JsonObject


class SessionIndex:
    """All sessions of a workbench. The methods block, and are called in threads."""

    def __init__(self, workbench: Workbench) -> None:
        self._workbench = workbench

    def find(self, id: str) -> Summary:
        """Find a session by its id or reference; scans the disk if it is not known yet."""
        found = self._known(id) or self._refreshed(id)
        if len(found) > 1:
            refs = tuple(summary.ref for summary in found)
            raise AmbiguousError(
                f"{len(found)} sessions have the id {one_line(id)}; use one of: {', '.join(refs)}", refs
            )
        if not found:
            archived = self.find_archived(id)
            hint = f"it is in the archive: `sessiontree restore {archived.id}` restores it" if archived else ""
            raise NotFoundError(f"no session has the id {one_line(id)}; {hint or 'session/list lists all'}")
        return found[0]

    def _known(self, id: str) -> list[Summary]:
        snapshot = self._workbench.library.snapshot()
        by_ref = snapshot.find(id)
        if by_ref is not None:
            return [by_ref] if os.path.exists(by_ref.ref) or not by_ref.is_file else []
        found = [summary for summary in snapshot.sessions if summary.id == id and summary.kind == "session"]
        found = [summary for summary in found if not summary.is_file or os.path.exists(summary.ref)]
        # Some clients leave files without messages that have the id of another one.
        return [summary for summary in found if summary.health != "empty"] or found

    def _refreshed(self, id: str) -> list[Summary]:
        self._workbench.library.refresh()
        return self._known(id)

    def find_archived(self, id: str) -> ArchiveItem | None:
        """The newest archive item of a session that was moved there."""
        items = self._workbench.home.items()
        return next(
            (item for item in reversed(items) if item.kind == "moved" and id in (item.session, item.path)), None
        )

    def page(self, cwd: str | None, cursor: str | None, archived: str | None, *, shows_archive: bool) -> JsonObject:
        """A page of `session/list`, the most recent sessions first."""
        after = None if cursor is None else _parse_cursor(cursor)
        if archived is not None and archived not in get_args(ArchiveFilter):
            raise RpcError(INVALID_PARAMS, f"archived: expected exclude, include or only, not {archived!r}")
        if after is None:
            self._scan()
        rows: list[_Row] = []
        if archived != "only":
            rows += self._sessions(shows_archive=shows_archive)
        if shows_archive and archived in ("only", "include"):
            rows += self._archived()
        if cwd is not None:
            same = {folder for folder in {row.cwd for row in rows} if folder and is_same_folder(folder, cwd)}
            rows = [row for row in rows if row.cwd in same]
        rows.sort(key=lambda row: _key(row.position))
        if after is not None:
            rows = [row for row in rows if _key(row.position) > _key(after)]
        page: JsonObject = {"sessions": [row.fields for row in rows[:PAGE]]}
        return page if len(rows) <= PAGE else {**page, "nextCursor": _render_cursor(rows[PAGE - 1].position)}

    def _scan(self) -> None:
        """Look for new sessions, but not for longer than a user would wait."""
        snapshot = self._workbench.library.snapshot()
        snapshot.follow()
        snapshot.join(_SCAN_SECONDS)

    def _sessions(self, *, shows_archive: bool) -> Iterator[_Row]:
        known = [
            summary
            for summary in self._workbench.library.snapshot().sessions
            if summary.kind == "session" and summary.health not in ("empty", "draft")
        ]
        counts = Counter(summary.id for summary in known)
        more = {"archived": False} if shows_archive else {}
        for summary in known:
            id = summary.id if counts[summary.id] == 1 else summary.ref
            yield self._row(id, summary.cwd, summary.title, summary.recency, {**_about(summary), **more})

    def _archived(self) -> Iterator[_Row]:
        items = [item for item in self._workbench.home.items() if item.kind == "moved" and item.why == ARCHIVED]
        counts = Counter(item.session for item in items)
        for item in items:
            id = item.session if counts[item.session] == 1 else item.path
            when = datetime.fromisoformat(item.when)
            meta = {"_meta": {"sessiontree": {"agent": item.agent, "restore": f"sessiontree restore {item.id}"}}}
            yield self._row(id, item.cwd, item.title, round(1000 * when.timestamp()), {**meta, "archived": True})

    def _row(self, id: str, cwd: str, title: str, recency: int, more: JsonObject) -> _Row:
        fields: JsonObject = {
            "sessionId": id,
            "cwd": cwd if os.path.isabs(cwd) else self._workbench.cwd,
            "title": one_line(title) or None,
            "updatedAt": datetime.fromtimestamp(recency / 1000, UTC).isoformat(timespec="milliseconds"),
            **more,
        }
        return _Row(_Position(recency, id), cwd, fields)


def _about(summary: Summary) -> JsonObject:
    """Facts that the protocol has no fields for."""
    about = {"agent": summary.agent, "ref": summary.ref, "messages": summary.messages, "model": summary.model}
    return {"_meta": {"sessiontree": {name: value for name, value in about.items() if value is not None}}}


def _key(position: _Position) -> tuple[int, str]:
    return -position.recency, position.id


def _render_cursor(position: _Position) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(position)).decode("ascii")


def _parse_cursor(cursor: str) -> _Position:
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(cursor.encode("ascii")), type=_Position)
    except (ValueError, binascii.Error, msgspec.MsgspecError):
        raise RpcError(INVALID_PARAMS, "cursor: not issued by this agent; list from the start") from None
