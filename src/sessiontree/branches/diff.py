"""Compare two branches: the prompts, answers, tool calls, files, usage and last message of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec import Struct

from sessiontree.branches.branch_delta import BranchDelta, find_session_deltas
from sessiontree.branches.file_conflicts import FileConflict, files_of, find_file_conflicts
from sessiontree.compaction.token_estimate import context_size
from sessiontree.compaction.touched_files import FileLists
from sessiontree.core.ids import IdPrefixes
from sessiontree.core.messages import Assistant, Message, ToolResult, User, message_text, tool_calls
from sessiontree.core.usage import UsageTotals, total_usage
from sessiontree.session.history import history_nodes
from sessiontree.session.reader import Reader


class SideFacts(Struct, frozen=True):
    """Facts about a branch after it diverged from the other."""

    session: str
    dialect: str
    leaf: str | None
    id_prefixes: IdPrefixes
    name: str | None
    """Label of its last entry."""
    entries: int
    messages: int
    asked: tuple[str, ...]
    answered: tuple[str, ...]
    final: str
    """Last text of the assistant."""
    tools: dict[str, int]
    """Number of calls by tool, the most frequent first."""
    failed: int
    """Number of failed calls."""
    files: FileLists
    context_tokens: int
    """Size of the context at its end, including the shared part."""
    used: UsageTotals
    """Usage of its requests, without the shared part."""
    last_time: str
    nodes: tuple[int, ...] = ()
    """Its entries, by their numbers in the session."""


class Diff(Struct, frozen=True):
    """Two branches and their common ancestor."""

    ancestor: str | None
    shared: int
    """Number of entries up to the ancestor."""
    one: SideFacts
    other: SideFacts
    conflicts: tuple[FileConflict, ...]
    """Files that both changed differently."""

    @property
    def is_one_branch(self) -> bool:
        """Whether both sides end at the same entry, so that there is nothing to compare."""
        return self.ancestor is not None and self.one.leaf == self.other.leaf == self.ancestor

    @property
    def continuation(self) -> SideFacts | None:
        """The side that continues the other one; None if the branches diverge."""
        if self.ancestor is None or self.is_one_branch:
            return None
        if self.one.leaf == self.ancestor:
            return self.other
        return self.one if self.other.leaf == self.ancestor else None


def diff(session: Reader, one: str, other: str, *, other_session: Reader | None = None) -> Diff:
    """Compare two branches, of one session or of two."""
    second: Reader = session if other_session is None else other_session
    left, right = find_session_deltas(session, one, second, other)
    shared = 0 if left.ancestor is None else len(history_nodes(session, left.ancestor))
    return Diff(left.ancestor, shared, _facts(left), _facts(right), tuple(find_file_conflicts(left, right)))


def _facts(side: BranchDelta) -> SideFacts:
    session, messages = side.session, side.messages
    assert side.leaf is not None
    entries = side.entries()
    answered = _texts(messages, Assistant)
    tools = Counter(call.name for message in messages for call in tool_calls(message))
    times = [entry.timestamp for entry in entries if entry.timestamp]
    return SideFacts(
        session=session.id,
        dialect=session.dialect.name,
        leaf=side.leaf,
        id_prefixes=session.id_prefixes,
        name=session.labels.get(side.leaf),
        entries=len(entries),
        messages=len(messages),
        asked=_texts(messages, User),
        answered=answered,
        final=answered[-1] if answered else "",
        tools=dict(tools.most_common()),
        failed=sum(isinstance(message, ToolResult) and message.is_error for message in messages),
        files=files_of(side),
        context_tokens=context_size(session.context(side.leaf).messages).tokens,
        used=total_usage(entries),
        last_time=times[-1] if times else "",
        nodes=side.nodes,
    )


def _texts(messages: Sequence[Message], kind: type[User] | type[Assistant]) -> tuple[str, ...]:
    found = (message_text(message).strip() for message in messages if isinstance(message, kind))
    return tuple(text for text in found if text)
