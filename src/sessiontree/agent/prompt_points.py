"""The prompts of a branch as they were typed, and the entry to move to when one is selected."""

from __future__ import annotations

from msgspec import Struct

from sessiontree.core.entries import CONTEXT_TYPES, CONVERSATION_TYPES, CustomMessage, Entry, MessageEntry
from sessiontree.core.messages import User, text_of
from sessiontree.library.summary import cut_at_word
from sessiontree.session.session import Session

PREVIEW = 80
"""Characters of a prompt in a list of prompts."""


class ForkPoint(Struct, frozen=True):
    """A prompt before which the session can be forked."""

    id: str
    preview: str
    time: str


def find_fork_points(session: Session) -> list[ForkPoint]:
    """The prompts on the current branch, newest first."""
    return [
        ForkPoint(entry.id, cut_at_word(_typed_text(session, entry), PREVIEW), entry.timestamp)
        for entry in reversed(session.path())
        if isinstance(entry, MessageEntry) and isinstance(entry.message, User)
    ]


def selection_target(session: Session, entry: str) -> tuple[str | None, str | None]:
    """The leaf to move to when an entry is selected, and the prompt to return to the input."""
    found = session.entry(entry)
    is_prompt = isinstance(found, CustomMessage) or (
        isinstance(found, MessageEntry) and isinstance(found.message, User)
    )
    if not is_prompt:
        return entry, None
    before = session.path_ids(entry)[:-1]
    has_messages = any(session.type_of(id) in CONTEXT_TYPES for id in before)  # not only a choice of model
    return (before[-1] if has_messages else None), typed_prompt(session, entry)


def visible_entry(session: Session, entry: str | None) -> str | None:
    """The entry, or the nearest one before it that trees show: not a change of model, thinking level or mode."""
    ids = session.path_ids(entry) if entry is not None else []
    return next((id for id in reversed(ids) if session.type_of(id) in CONVERSATION_TYPES), None)


def typed_prompt(session: Session, entry: str) -> str:
    """A prompt as it was typed."""
    return _typed_text(session, session.entry(entry))


def _typed_text(session: Session, entry: Entry) -> str:
    if isinstance(entry, CustomMessage):
        return text_of(entry.content)
    if not isinstance(entry, MessageEntry) or not isinstance(entry.message, User):
        return ""
    message = session.fields(entry.id).get("message")
    typed = message.get("displayText") if isinstance(message, dict) else None
    return typed if isinstance(typed, str) else text_of(entry.message.content)
