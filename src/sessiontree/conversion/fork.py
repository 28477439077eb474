"""Fork a session at an entry chosen by the user. Choosing a prompt forks before it and returns its text for editing."""

from __future__ import annotations

import os

from msgspec import Struct

from sessiontree.conversion.convert import Report
from sessiontree.conversion.install import (
    Request,
    carry_out,
    convert_into,
    copy_related_folder,
    find_destination,
    make_plan,
)
from sessiontree.core.entries import CustomMessage, MessageEntry
from sessiontree.core.messages import User, text_of
from sessiontree.dialects import DEFAULT_DIALECT
from sessiontree.dialects.canonical import SessionMeta
from sessiontree.errors import UsageError
from sessiontree.session.reader import CURRENT, Current
from sessiontree.session.session import Session, copy_settings
from sessiontree.sources import is_line_file
from sessiontree.stores.contract import SessionStore
from sessiontree.stores.read_only import ReadOnlyStore


class Forked(Struct, frozen=True):
    """A fork: the new session, the entry it ends with, and the text of the chosen prompt."""

    session: Session
    at: str | None
    prompt: str | None = None
    report: Report | None = None
    """The report of the conversion, if the fork has another dialect."""


def fork(
    session: Session,
    at: str | None = None,
    *,
    before: bool | None = None,
    to: str | None = None,
    cwd: str | None = None,
    store: SessionStore | None = None,
) -> Forked:
    """Start a new session with the history up to an entry; by default, up to the current entry.

    If `at` is a prompt, the fork ends before it, and `prompt` has its text; the first prompt gives an empty session.
    `before` overrides this for any entry. `to` is the dialect of the fork; by default that of the session, or the
    native one for a client whose sessions cannot be written.
    """
    leaf, prompt = find_end(session, at, before)
    if to is None:
        to = session.dialect.name if session.dialect.traits.is_writable else DEFAULT_DIALECT
    if to == session.dialect.name and is_line_file(session.ref.name, session.dialect):
        forked = session.fork(leaf, cwd=cwd, store=store)
        copy_related_folder(session, forked.location)
        return Forked(forked, session.leaf if isinstance(leaf, Current) else leaf, prompt)
    end = session.leaf if isinstance(leaf, Current) else leaf
    request = Request(to, at=end, fork=True, cwd=cwd, out=None if store is None else store.location)
    # A fork is written to a file, where another client can find it, only if its origin is one.
    place = (session if store is None else store).ref
    if place.is_file or place.item:
        plan = make_plan(session, request)
        forked, report = carry_out(session, plan), plan.report
    else:
        forked, report = convert_into(session, request, store)
    copy_settings(forked, session)
    return Forked(forked, end, prompt, report)


def is_only_readable(session: Session) -> bool:
    """Whether the storage of a session's client can only be read, while a copy of the session can be written."""
    return session.dialect.why_read_only(session.journal) is not None or isinstance(
        session.journal.store, ReadOnlyStore
    )


def writable_fork_dialect(session: Session) -> str | None:
    """The dialect for a fork that can be written; None if that is the dialect of the session."""
    if not isinstance(session.journal.store, ReadOnlyStore):
        return None
    meta = SessionMeta(session.id, session.header.timestamp, session.cwd, origin=session.location)
    destination = find_destination(session.dialect, meta, os.environ)
    return None if is_line_file(destination.path, session.dialect) else DEFAULT_DIALECT


def find_end(session: Session, at: str | None, before: bool | None) -> tuple[str | Current | None, str | None]:
    """The last entry of the fork, and the text of the prompt after it."""
    if at is None:
        if before:
            raise UsageError("choose the entry to fork before")
        return CURRENT, None
    entry = session.entry(at)
    prompt: str | None = None
    match entry:
        case MessageEntry(message=User(content=content)) | CustomMessage(content=content):
            prompt = text_of(content)
        case _:
            pass
    if before is None:
        before = prompt is not None
    return (_before(session, at), prompt) if before else (at, None)


def _before(session: Session, id: str) -> str | None:
    """The entry before another one; None for the first."""
    path = session.path_ids(id)
    return path[-2] if len(path) > 1 else None
