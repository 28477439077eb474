"""Fork a session at an entry chosen by the user. Choosing a prompt forks before it and returns its text for editing."""

from __future__ import annotations

from msgspec import Struct

from sessiontree.conversion.install import Request, carry_out, copy_related_folder, make_plan
from sessiontree.conversion.report import Report
from sessiontree.core.entries import CustomMessage, MessageEntry
from sessiontree.core.messages import User, text_of
from sessiontree.errors import UsageError
from sessiontree.session.reader import CURRENT, Current
from sessiontree.session.session import Session, copy_settings
from sessiontree.stores.file import FileStore


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
    store: FileStore | None = None,
) -> Forked:
    """Start a new session with the history up to an entry; by default, up to the current entry.

    If `at` is a prompt, the fork ends before it, and `prompt` has its text; the first prompt gives an empty session.
    `before` overrides this for any entry. `to` is the dialect of the fork; by default that of the session.
    """
    leaf, prompt = _find_end(session, at, before)
    if to is None or to == session.dialect.name:
        forked = session.fork(leaf, cwd=cwd, store=store)
        copy_related_folder(session, forked.location)
        return Forked(forked, session.leaf if isinstance(leaf, Current) else leaf, prompt)
    end = session.leaf if isinstance(leaf, Current) else leaf
    out = None if store is None else store.location
    plan = make_plan(session, Request(to, at=end, fork=True, cwd=cwd, out=out))
    forked = carry_out(session, plan)
    copy_settings(forked, session)
    return Forked(forked, end, prompt, plan.report)


def _find_end(session: Session, at: str | None, before: bool | None) -> tuple[str | Current | None, str | None]:
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
