"""What sessions have outside of their files: before one is deleted for good, the folders of its lanes go, saved."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec

from sessiontree.errors import SessionTreeError
from sessiontree.explore.cleanup import Left, take_all_away
from sessiontree.session.open import open as open_session

if TYPE_CHECKING:
    from sessiontree.archive.archive import Archive
    from sessiontree.archive.archive_home import Home
    from sessiontree.archive.catalog import Item
    from sessiontree.archive.clean import Plan

_SIGN = b"sessiontree.explore.plan"
"""What the file of a session with explorations has in it. Most have none, and need not be read as a tree."""
_STEP = 1 << 20


def take_lanes_away(home: Home, plan: Plan) -> tuple[Plan, list[str], list[str]]:
    """The plan without sessions whose lanes cannot be tidied up, where the work of lanes stays, and what failed."""
    refs: list[str] = []
    failed: list[str] = []
    staying: set[str] = set()
    for path, left in _looked_at(home, plan):
        refs += left.refs
        failed += [f"{path}: was not deleted: {why}" for why in left.failed]
        staying |= {path} if left.failed else set()
    chosen = tuple(one for one in plan.chosen if one.path not in staying)
    archived = tuple(item for item in plan.archived if item.path not in staying)
    return msgspec.structs.replace(plan, chosen=chosen, archived=archived), list(dict.fromkeys(refs)), failed


def _looked_at(home: Home, plan: Plan) -> Iterator[tuple[str, Left]]:
    for one in plan.chosen:
        if _has_lanes(_chunks(one.path)):
            yield one.path, _take_away(one.path, home.folder)
    for item in plan.archived:
        if item.kind == "moved" and _has_lanes(home.archive.objects.read(item.sha256)):
            yield item.path, _of_archived(home.archive, item, home.folder)


def _of_archived(archive: Archive, item: Item, home: str) -> Left:
    with tempfile.TemporaryDirectory(prefix="sessiontree-") as folder:
        path = os.path.join(folder, os.path.basename(item.path))
        archive.extract(item, path)
        return _take_away(path, home)


def _take_away(path: str, home: str) -> Left:
    try:
        with open_session(path, home=home) as session:
            return take_all_away(session, home)
    except SessionTreeError as error:
        return Left(failed=(str(error),))


def _chunks(path: str) -> Iterator[bytes]:
    with open(path, "rb") as file:
        yield from iter(lambda: file.read(_STEP), b"")


def _has_lanes(chunks: Iterable[bytes]) -> bool:
    end = b""
    for chunk in chunks:
        if _SIGN in end + chunk:
            return True
        end = chunk[-len(_SIGN) :]
    return False
