"""Named branches, user turns and stored usage of a session, read from its lines.

A branch other than `main` starts with a `custom` entry that names it; everything below that entry belongs to the
branch, until another such entry. The tip of a branch is its last entry, or the last one in it that was made the current
entry. All of this is computed once for each line, so that a new entry or a new branch costs the same in a long session
as in a short one.
"""

from __future__ import annotations

from array import array
from typing import Any

import msgspec
from msgspec import Struct

from sessiontree.adapters.openai_items import NAME
from sessiontree.core.entries import PASSIVE_TYPES
from sessiontree.core.jsonio import JsonObject, parse_object
from sessiontree.core.tree import Tree
from sessiontree.dialects.passthrough import passthrough_of
from sessiontree.session.journal import Journal

MAIN = "main"
BRANCH = f"{NAME}.branch"
"""The `customType` of the first entry of a branch, and of one that deletes a branch."""
CLEAR = f"{NAME}.clear"
"""The `customType` of an entry that ends all branches."""
_NONE = -1


class Branch(Struct):
    """A branch of the session that was created, by its name, with its last entry."""

    name: str
    tip: int = _NONE
    created_at: str = ""


class _Message(Struct):
    role: str = ""


class _Line(Struct):
    message: _Message | None = None


_decode_line = msgspec.json.Decoder(_Line).decode


class BranchIndex:
    """Grows with a session's journal; nodes are entries by their number in file order."""

    def __init__(self, journal: Journal | None) -> None:
        """None is for a session that does not exist yet."""
        self._journal = journal
        self.tree = Tree() if journal is None else journal.tree
        self.branches: dict[str, Branch] = {MAIN: Branch(MAIN)}
        self.used_names: set[str] = {MAIN}
        """Names are never used twice: an object in another process may still be on a branch that was deleted."""
        self.clears = 0
        """Number of times that all branches were ended."""
        self.usage: dict[tuple[str, str], JsonObject] = {}
        """Usage by branch and by the id of the turn's user message."""
        self._branch_of: list[str] = []
        self._messages = array("q")
        """By node: the number of messages on its path."""
        self._turn = array("q")
        """By node: the last user message on its path."""
        self._number: dict[int, int] = {}
        """By user message: the number of its turn, from 1."""
        self._before: dict[int, int] = {}
        """By user message: the one before it on its path."""
        self._jump: dict[int, int] = {}
        """By user message: one further up, so that any turn is found in a few steps (a skew-binary skip list)."""

    def update(self) -> None:
        """Index the lines that were added since the last call."""
        journal = self._journal
        if journal is None:
            return
        first = len(self._branch_of)
        nodes = range(first, len(journal))
        parents, types = journal.tree.parents(), journal.types
        wanted = [node for node in nodes if types[node] in ("message", "custom", "usage")]
        raws = dict(zip(wanted, journal.iter_raw(wanted), strict=True)) if wanted else {}
        for node in nodes:
            parent = parents[node]
            above = _NONE if parent is None or parent >= node else parent
            self._add(node, types[node], above, raws.get(node, b""))

    def _add(self, node: int, kind: str, parent: int, raw: bytes) -> None:
        branch = MAIN if parent == _NONE else self._branch_of[parent]
        is_user = False
        if kind == "message":
            is_user = _role(raw) == "user"
        elif kind == "custom":
            branch = self._apply_record(node, branch, parse_object(raw))
        elif kind == "usage":
            self._keep_usage(parse_object(raw))
        elif kind == "leaf" and branch in self.branches:
            self.branches[branch].tip = parent
        self._branch_of.append(branch)
        self._messages.append((0 if parent == _NONE else self._messages[parent]) + (kind == "message"))
        before = _NONE if parent == _NONE else self._turn[parent]
        self._turn.append(node if is_user else before)
        if is_user:
            self._add_turn(node, before)
        if kind not in PASSIVE_TYPES and kind != "leaf" and branch in self.branches:
            self.branches[branch].tip = node

    def _add_turn(self, node: int, before: int) -> None:
        self._number[node] = 1 if before == _NONE else self._number[before] + 1
        self._before[node] = before
        over = _NONE if before == _NONE else self._jump[before]
        far = _NONE if over == _NONE else self._jump[over]
        number = self._number
        # Two jumps of the same length in a row become one, so that jumps grow with the number of turns.
        if over != _NONE and number[before] - number[over] == number[over] - (0 if far == _NONE else number[far]):
            self._jump[node] = far
        else:
            self._jump[node] = before

    def _apply_record(self, node: int, branch: str, fields: JsonObject) -> str:
        """Apply a `custom` entry; returns the branch that it belongs to."""
        kind, data = fields.get("customType"), fields.get("data")
        if kind == CLEAR:
            self.branches = {MAIN: Branch(MAIN)}
            self.usage.clear()
            self.clears += 1
        name = data.get("name") if isinstance(data, dict) else None
        if kind != BRANCH or not isinstance(data, dict) or not isinstance(name, str):
            return branch
        if data.get("deleted"):
            self.branches.pop(name, None)
            return branch
        known = self.branches.setdefault(name, Branch(name, created_at=str(fields.get("timestamp") or "")))
        known.tip = node
        self.used_names.add(name)
        return name

    def _keep_usage(self, fields: JsonObject) -> None:
        found = passthrough_of(fields).get(NAME)
        if isinstance(found, dict) and isinstance(found.get("branch"), str) and isinstance(found.get("turn"), str):
            self.usage[found["branch"], found["turn"]] = found

    # Queries

    def tip_of(self, name: str) -> str | None:
        """The id of the last entry of a branch; None before the first entry."""
        return self._id(self.branches[name].tip)

    def branch_of(self, id: str | None) -> str:
        """The branch that an entry belongs to."""
        return MAIN if id is None else self._branch_of[self.tree.node_of[id]]

    def message_count(self, name: str) -> int:
        tip = self.branches[name].tip
        return 0 if tip == _NONE else self._messages[tip]

    def turn_count(self, name: str) -> int:
        turn = self._last_turn(name)
        return 0 if turn == _NONE else self._number[turn]

    def last_turn(self, name: str) -> str | None:
        """The id of the last user message of a branch."""
        return self._id(self._last_turn(name))

    def find_turn(self, name: str, number: int) -> str | None:
        """The id of the user message of a turn on a branch."""
        node = self._last_turn(name)
        if number < 1:
            return None
        while node != _NONE and self._number[node] > number:
            jump = self._jump[node]
            node = jump if jump != _NONE and self._number[jump] >= number else self._before[node]
        return self._id(node) if node != _NONE and self._number[node] == number else None

    def turns(self, name: str) -> list[tuple[int, str]]:
        """Number and id of each user message of a branch, the first one first."""
        found: list[tuple[int, str]] = []
        node = self._last_turn(name)
        while node != _NONE:
            found.append((self._number[node], self.tree.ids[node]))
            node = self._before[node]
        return found[::-1]

    def turn_number(self, id: str) -> int:
        """The number of the turn that an entry belongs to; 0 before the first user message."""
        turn = self._turn[self.tree.node_of[id]]
        return 0 if turn == _NONE else self._number[turn]

    def usage_by_turn(self, name: str) -> dict[int, dict[str, Any]]:
        """Usage of the turns that are still on a branch."""
        found: dict[int, dict[str, Any]] = {}
        for (branch, turn), usage in self.usage.items():
            node = self.tree.node_of.get(turn)
            number = None if node is None else self._number.get(node)
            if branch == name and number is not None and self.find_turn(name, number) == turn:
                found[number] = usage
        return dict(sorted(found.items()))

    def _last_turn(self, name: str) -> int:
        branch = self.branches.get(name)
        return _NONE if branch is None or branch.tip == _NONE else self._turn[branch.tip]

    def _id(self, node: int) -> str | None:
        return None if node == _NONE else self.tree.ids[node]


def _role(raw: bytes) -> str:
    try:
        message = _decode_line(raw).message
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""
    return "" if message is None else message.role
