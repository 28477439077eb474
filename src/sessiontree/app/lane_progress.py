"""Results of lanes while they run, for front ends that poll them."""

from __future__ import annotations

import threading
from typing import TypeAlias

from sessiontree.explore.compare import Result, changed_files, lane_result
from sessiontree.explore.lane import Lane
from sessiontree.explore.state import ExplorationLike
from sessiontree.explore.worktrees import LaneWorktrees
from sessiontree.git.trees import FileChange

_Files: TypeAlias = tuple[tuple[FileChange, ...] | None, str]


class LaneProgress:
    """Reads the files of a lane again only when the lane has changed. Safe for several threads."""

    def __init__(self, worktrees: LaneWorktrees | None) -> None:
        self._worktrees = worktrees
        self._lock = threading.Lock()
        self._files: dict[str, tuple[tuple[object, ...], _Files]] = {}

    def results(self, exploration: ExplorationLike) -> list[Result]:
        """The results of all lanes so far. Blocking: asks git about lanes that have changed."""
        return [lane_result(lane, *self._changed(lane)) for lane in exploration.lanes]

    def _changed(self, lane: Lane) -> _Files:
        stamp = (lane.leaf, lane.state, lane.verdict)
        with self._lock:
            known = self._files.get(lane.start)
            if known is None or known[0] != stamp:
                known = self._files[lane.start] = (stamp, changed_files(lane, self._worktrees))
            return known[1]
