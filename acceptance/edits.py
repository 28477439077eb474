"""Change generated transcripts with our own operations: append, branch, move, compact and undo a compaction.

After each one, the file must give the history that was intended: the one at the chosen entry, and what was appended.
The program then must rebuild the same.
"""

from __future__ import annotations

import random
from collections.abc import Container
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sessiontree
from acceptance.comparison import both_lines, differences, drops_open_calls
from sessiontree import Session
from sessiontree.compaction import undo
from sessiontree.core.messages import Assistant, Message, ToolResult, tool_calls
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


@dataclass(frozen=True, slots=True)
class Intended:
    """The history that an operation should give."""

    messages: list[Message]
    notes: list[Message] = field(default_factory=list)
    """The system lines and attachments of the history that the entry which was continued ends with. The client sends
    them after the other lines of their response as long as the history ends there, and in their place later."""


def _apply(rng: random.Random, session: Session, operation: str, text: str) -> Intended | None:
    """Apply one operation; returns the history it should give, or None where it is refused or changes nothing."""
    entries = [id for id in session.ids if _is_possible_leaf(session, id)]
    if not entries:
        return None
    match operation:
        case "append":
            before, notes = _messages(session, session.leaf), _notes_at_end(session, session.leaf)
            session.append("user", text)
            return Intended([*before, session.context().messages[-1]], notes)
        case "branch":
            branch = session.branch(rng.choice(entries))
            before, notes = _messages(session, branch.leaf), _notes_at_end(session, branch.leaf)
            branch.append("user", text)
            return Intended([*before, branch.context().messages[-1]], notes)
        case "move":
            target = rng.choice([*entries, *_boundaries(session), None])
            before, notes = ([], []) if target is None else (_messages(session, target), _notes_at_end(session, target))
            session.move(target)
            return Intended(before, notes)
        case "compact":
            compacted = _compact(rng, session, text)
            return None if compacted is None else Intended(compacted)
        case _:
            try:
                undone = undo(session)
            except SessionTreeError:
                return None
            return Intended(list(session.context(undone.leaf).messages))


def _messages(session: Session, leaf: str | None) -> list[Message]:
    """The history up to an entry, without the system lines and attachments that the client sends only after the last
    entry: they are beside it, and the next entry does not follow them."""
    above: set[str] = set()
    at = leaf
    while at is not None and at not in above:
        above |= {at, *_preserved(session, at)}
        at = session.parent(at)
    context = session.context(leaf)
    found = list(zip(context.messages, context.sources, strict=True))
    beside: list[tuple[Message, str]] = []
    while found and found[-1][1] not in above and session.fields(found[-1][1])["type"] in ("system", "attachment"):
        beside.append(found.pop())
    # Those of a response with calls stay, in file order.
    found += sorted(
        (line for line in beside if _stays(session, line[1], above)), key=lambda line: _place(session, line)
    )
    return [message for message, _ in found]


def _notes_at_end(session: Session, leaf: str | None) -> list[Message]:
    """The messages of system lines and attachments at the end of the path to an entry."""
    notes: set[str] = set()
    at = leaf
    while at is not None and at not in notes and session.fields(at)["type"] in ("system", "attachment"):
        notes.add(at)
        at = _parent(session, at)
    context = session.context(leaf)
    return [message for message, id in zip(context.messages, context.sources, strict=True) if id in notes]


def _preserved(session: Session, id: str) -> list[str]:
    """The lines that a boundary lists as preserved: they are on its path, wherever they are in the file."""
    if session.type_of(id) != "compaction":
        return []
    listed = session.fields(id).get("compactMetadata", {}).get("preservedMessages", {}).get("uuids", [])
    return [line for line in listed if isinstance(line, str)]


def _anchor(session: Session, id: str) -> str | None:
    anchor: str | None = session.fields(id).get("compactMetadata", {}).get("preservedMessages", {}).get("anchorUuid")
    return anchor


def _place(session: Session, line: tuple[Message, str]) -> int:
    return session.ids.index(line[1])


def _stays(session: Session, id: str, path: Container[str]) -> bool:
    """Whether the client also sends a line beside the path when the path goes on.

    It then is in a row of notes after a line of a response with calls, and nothing else follows a line of the row.
    """
    row = [id]
    above = _parent(session, id)
    while above is not None and _is_note(session, above):
        if above not in path:
            row.append(above)
        above = _parent(session, above)
    response = _response_with_calls(session, above)
    if response is None:
        return False
    while row:
        below = _children(session, row.pop())
        notes = [child for child in below if _is_note(session, child)]
        if len(notes) > 1 or any(_response_with_calls(session, child) != response for child in below - set(notes)):
            return False
        row += [note for note in notes if not row]
    return True


def _is_note(session: Session, id: str) -> bool:
    fields = session.fields(id)
    is_prompt = fields["type"] == "user" and not _calls(fields, "tool_use_id")
    return fields["type"] in ("system", "attachment") or (is_prompt and fields.get("isMeta") is True)


def _response_with_calls(session: Session, id: str | None) -> str | None:
    """The id of the response that a shard or a result belongs to, if the response has calls."""
    if id is None:
        return None
    fields = session.fields(id)
    response, answered = fields.get("message", {}).get("id"), _calls(fields, "tool_use_id")
    calls: dict[str | None, set[str]] = {}
    for line in map(session.fields, session.ids):
        if line.get("type") == "assistant" and (made := _calls(line, "id")):
            calls.setdefault(line["message"].get("id"), set()).update(made)
    if fields["type"] == "assistant":
        return response if response in calls else None
    return next((response for response, made in calls.items() if answered & made), None)


def _calls(fields: dict[str, Any], name: str) -> set[str]:
    content = fields.get("message", {}).get("content")
    blocks = content if isinstance(content, list) else []
    return {block[name] for block in blocks if block["type"] in ("tool_use", "tool_result") and name in block}


def _parent(session: Session, id: str) -> str | None:
    parent = session.parent(id)
    while parent is not None and session.type_of(parent) == "progress":
        parent = session.parent(parent)
    for boundary in _boundaries(session)[-1:]:
        # The lines that it preserves are between its anchor and what follows that.
        anchor, preserved = _anchor(session, boundary), _preserved(session, boundary)
        if preserved and parent == anchor and id not in preserved:
            return preserved[-1]
    return parent


def _children(session: Session, id: str) -> set[str]:
    found: set[str] = set()
    for child in session.children(id):
        if session.parent(child) != id:
            continue  # a later line with its uuid has another parent
        found |= _children(session, child) if session.type_of(child) == "progress" else {child}
    return found


def _is_possible_leaf(session: Session, id: str) -> bool:
    fields = session.fields(id)
    return session.type_of(id) == "message" and "uuid" in fields and fields.get("isSidechain") is not True


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
    kept = [message for message, old, _ in messages[first:] if not old]
    # A result can follow a later prompt than its call. It is lost with the call.
    calls = {call.id for message in kept if isinstance(message, Assistant) for call in tool_calls(message)}
    lost = [message for message in kept if isinstance(message, ToolResult) and message.tool_call_id not in calls]
    return [*summary[:1], *(message for message in kept if message not in lost)]


def _check(path: Path, intended: Intended, operation: str) -> None:
    session = sessiontree.open(path, dialect="claude")
    found = _messages(session, session.leaf)
    wanted = intended.messages
    if all(note in found for note in intended.notes):
        wanted, found = [[message for message in one if message not in intended.notes] for one in (wanted, found)]
    ours, theirs = both_lines(
        render(wanted, "anthropic").messages, render(found, "anthropic").messages, [*wanted, *found]
    )
    # The calls of the last turn that have no result are no longer sent when a prompt follows them. They are sent again
    # when the last prompt was the summary that a new one replaces.
    is_sent_again = operation == "compact" and drops_open_calls(theirs, ours)
    if ours != theirs and not is_sent_again and not drops_open_calls(ours, theirs):
        raise WrongHistoryError("\n".join([f"after {operation}:", *differences(ours, theirs)]))
