"""Leave entries out of the context, and include them again.

A `context_edit` without a replacement removes an entry from the context; one with its own content takes it in again.
The entries stay in the file. A tool call is left out with its results and a result with its call: providers refuse one
without the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from sessiontree.app.actions.contract import ActionPlan, Description, Done, MovePlan, unchanged
from sessiontree.compaction.prune_outputs import can_prune
from sessiontree.core.entries import ContextEdit, Entry, MessageEntry
from sessiontree.core.ids import timestamp
from sessiontree.core.messages import ToolResult, tool_calls
from sessiontree.dialects.canonical import CanonicalEntry
from sessiontree.errors import UsageError
from sessiontree.session.session import Session
from sessiontree.views.text import plural


class LeaveOutPlan(ActionPlan[tuple[str, ...]]):
    """Context edits for some entries; the result is the ids of the edited entries."""

    action: ClassVar[str] = "leave-out"
    _verb = "leave out of the context"

    def __init__(self, session: Session, entries: Sequence[str], replacements: Sequence[Any]) -> None:
        super().__init__(unchanged(session))
        self._session, self.entries, self._replacements = session, tuple(entries), replacements

    def describe(self) -> Description:
        title = f"{self._verb}: {plural(len(self.entries), 'entry', 'entries')}"
        return Description(self.action, title, self.entries, data={"entries": list(self.entries)})

    def _carry_out(self) -> Done[tuple[str, ...]]:
        session, before = self._session, self._session.leaf
        session.append_all(
            [
                CanonicalEntry("context_edit", {"targetId": id, "replacement": replacement}, timestamp=timestamp())
                for id, replacement in zip(self.entries, self._replacements, strict=True)
            ]
        )
        return Done(self.entries, MovePlan(session, before, f"undo {self.action}"), session)


class TakeInPlan(LeaveOutPlan):
    action = "take-in"
    _verb = "take into the context again"


def plan_leave_out(session: Session, entries: Sequence[str]) -> LeaveOutPlan:
    """Plan to leave entries of the current context out of it."""
    _check_edits(session)
    context = set(session.context().sources)
    for id in entries:
        if id not in context:
            raise UsageError(f"{session.location}: {id} is not in the context")
    chosen = [id for id in _with_partners(session, entries) if id in context]
    return LeaveOutPlan(session, chosen, [None] * len(chosen))


def plan_take_in(session: Session, entries: Sequence[str]) -> TakeInPlan:
    """Plan to take entries that were left out, or replaced by a shorter text, into the context again."""
    _check_edits(session)
    edited = {entry.target_id for entry in session.path() if isinstance(entry, ContextEdit)}
    for id in entries:
        if id not in edited:
            raise UsageError(f"{session.location}: {id} was not left out of the context")
    chosen = [id for id in _with_partners(session, entries) if id in edited]
    lines = session.journal.resolved_fields([node for id in chosen if (node := session.node_of(id)) is not None])
    return TakeInPlan(session, chosen, [{"content": _content(line)} for line in lines])


def _content(line: dict[str, Any]) -> Any:
    """The content of an entry. A summary has none; any replacement takes it in again."""
    message = line.get("message", line)
    return message.get("content", "")


def _check_edits(session: Session) -> None:
    if not can_prune(session):
        raise UsageError(
            f"{session.location}: {session.dialect.name} sessions cannot leave entries out of the context; "
            "compact it instead"
        )


def _with_partners(session: Session, entries: Sequence[str]) -> list[str]:
    """Entries with those that have the results of their calls or the calls of their results, in path order."""
    path = session.path()
    calls = {entry.id: _call_ids(entry) for entry in path}
    chosen, missing = set(entries), set(entries)
    while missing:
        wanted = set().union(*(calls.get(id, frozenset()) for id in missing))
        missing = {id for id, ids in calls.items() if ids & wanted} - chosen
        chosen |= missing
    return [entry.id for entry in path if entry.id in chosen]


def _call_ids(entry: Entry) -> frozenset[str]:
    """The ids of the calls that an entry makes or answers."""
    if not isinstance(entry, MessageEntry):
        return frozenset()
    made = (call.id for message in entry.messages for call in tool_calls(message))
    answered = (message.tool_call_id for message in entry.messages if isinstance(message, ToolResult))
    return frozenset((*made, *answered))
