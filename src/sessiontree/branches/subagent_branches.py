"""Sub-agents of our agent: the record they start with, and those on branches of their caller's session."""

from __future__ import annotations

from typing import Any

import msgspec

from sessiontree.core.entries import Custom, Entry
from sessiontree.core.jsonio import Value
from sessiontree.session.reader import Reader

TASK_TOOL = "task"
"""Name of the tool that starts sub-agents."""
TASK = "sessiontree.task"
"""Type of the `custom` entry that a sub-agent starts with."""


class SubagentRecord(Value, frozen=True):
    """The first entry of a sub-agent."""

    call: str
    """The tool call it works for."""
    description: str
    model: str
    answer: str | None = None
    """The entry with the call."""
    session: str | None = None
    """The session with that entry, if it is another one."""


def parse_subagent(entry: Entry) -> SubagentRecord | None:
    """Decode the record in an entry; None if no sub-agent starts there."""
    if not isinstance(entry, Custom) or entry.custom_type != TASK:
        return None
    try:
        return msgspec.convert(entry.data, SubagentRecord)
    except msgspec.ValidationError:
        return None


def subagent_entry(record: SubagentRecord) -> dict[str, Any]:
    return {"type": "custom", "customType": TASK, "data": msgspec.to_builtins(record)}


def subagent_at(session: Reader, id: str) -> SubagentRecord | None:
    return parse_subagent(session.entry(id)) if session.type_of(id) == "custom" else None


def find_subagent_branches(session: Reader) -> dict[str, int]:
    """The first entries of sub-agents on branches of a session, by the id of their call; the last if there are several.

    Reads only entries that extensions wrote.
    """
    journal = session.journal
    nodes = [node for node, kind in enumerate(journal.types) if kind == "custom"]
    found: dict[str, int] = {}
    for node, entry in zip(nodes, journal.entries(nodes), strict=True):
        record = parse_subagent(entry)
        if record is not None and record.session in (None, session.id):
            found[record.call] = node
    return found


def last_entry_from(session: Reader, node: int) -> int:
    """The last entry of the branch that starts at an entry: of several children, the newest is followed."""
    tree, passive = session.journal.tree, session.dialect.traits.passive_types
    while following := [child for child in tree.children(node) if session.journal.types[child] not in passive]:
        node = following[-1]
    return node
