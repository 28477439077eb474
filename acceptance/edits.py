"""Change generated transcripts with our own operations: append, branch, move, compact and undo a compaction.

After each one, the file must give the history that was intended: the one at the chosen entry, and what was appended.
The program then must rebuild the same.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import sessiontree
from acceptance.comparison import both_lines, differences, drops_open_calls
from sessiontree import Session
from sessiontree.compaction import undo
from sessiontree.core.messages import Message
from sessiontree.errors import SessionTreeError
from sessiontree.providers import render

OPERATIONS = ("append", "append", "branch", "branch", "branch", "move", "compact", "undo")


class WrongHistoryError(Exception):
    """The file gives another history than the one that was intended."""


def edit_transcript(path: Path, seed: int) -> None:
    """Apply some operations to a transcript, always the same ones for a seed."""
    rng = random.Random(f"edit {seed}")
    for number in range(rng.randint(1, 3)):
        operation = rng.choice(OPERATIONS)
        with sessiontree.open(path, dialect="claude") as session:
            intended = _apply(rng, session, operation, f"E{number}")
        if intended is not None:
            _check(path, intended, operation)


def _apply(rng: random.Random, session: Session, operation: str, text: str) -> list[Message] | None:
    """Apply one operation; returns the history it should give, or None where it is refused or changes nothing."""
    entries = [id for id in session.ids if _is_possible_leaf(session, id)]
    if not entries:
        return None
    match operation:
        case "append":
            before = _messages(session, session.leaf)
            session.append("user", text)
            return [*before, session.context().messages[-1]]
        case "branch":
            branch = session.branch(rng.choice(entries))
            before = _messages(session, branch.leaf)
            branch.append("user", text)
            return [*before, branch.context().messages[-1]]
        case "move":
            target = rng.choice([*entries, *_boundaries(session), None])
            before = [] if target is None else _messages(session, target)
            session.move(target)
            return before
        case "compact":
            return _compact(rng, session, text)
        case _:
            try:
                undone = undo(session)
            except SessionTreeError:
                return None
            return list(session.context(undone.leaf).messages)


def _messages(session: Session, leaf: str | None) -> list[Message]:
    """The history up to an entry, without the system lines and attachments that the client sends only after the last
    entry: they are beside it, and the next entry does not follow them."""
    above: set[str] = set()
    at = leaf
    while at is not None and at not in above:
        above.add(at)
        at = session.parent(at)
    context = session.context(leaf)
    found = list(zip(context.messages, context.sources, strict=True))
    while found and found[-1][1] not in above and session.fields(found[-1][1])["type"] in ("system", "attachment"):
        found.pop()
    return [message for message, _ in found]


def _is_possible_leaf(session: Session, id: str) -> bool:
    return session.type_of(id) == "message" and session.fields(id).get("isSidechain") is not True


def _boundaries(session: Session) -> list[str]:
    return [id for id in session.ids if session.type_of(id) == "compaction"]


def _compact(rng: random.Random, session: Session, text: str) -> list[Message] | None:
    context = session.context()
    # A summary is never kept: the new one replaces it.
    is_summary = [session.fields(id).get("isCompactSummary") is True for id in context.sources]
    messages = list(zip(context.messages, is_summary, context.sources, strict=True))
    # The output of a command can be between a call and its result, where nothing is cut.
    is_line = [session.fields(id)["type"] == "user" for id in context.sources]
    prompts = [
        at for at, (message, old, _) in enumerate(messages) if message.role == "user" and is_line[at] and not old
    ]
    if not prompts:
        return None
    first = rng.choice(prompts)
    fields = {"summary": text, "firstKeptEntryId": messages[first][2], "tokensBefore": 10}
    session.append({"type": "compaction", **fields})
    summary = [message for message in session.context().messages if text in str(message)]
    return [*summary[:1], *(message for message, old, _ in messages[first:] if not old)]


def _check(path: Path, intended: Sequence[Message], operation: str) -> None:
    session = sessiontree.open(path, dialect="claude")
    found = _messages(session, session.leaf)
    wanted = render(list(intended), "anthropic").messages
    ours, theirs = both_lines(wanted, render(found, "anthropic").messages, [*intended, *found])
    # The calls of the last turn that have no result are no longer sent when a prompt follows them.
    if ours != theirs and not drops_open_calls(ours, theirs):
        raise WrongHistoryError("\n".join([f"after {operation}:", *differences(ours, theirs)]))
