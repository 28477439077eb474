"""Taking a fork where a person points: choosing a prompt means "before it", and its text is handed back for editing."""

from __future__ import annotations

from msgspec import Struct

from sessiontree.conversion.install import Request, carry_out, copy_beside, make_plan
from sessiontree.conversion.report import Report
from sessiontree.core.entries import CustomMessage, MessageEntry
from sessiontree.core.messages import User, text_of
from sessiontree.errors import UsageError
from sessiontree.session.reader import CURRENT, Current
from sessiontree.session.session import Session, copy_settings
from sessiontree.stores.file import FileStore


class Forked(Struct, frozen=True):
    """A fork: the new session, where it was taken, and the text of the prompt that was chosen, to be edited."""

    session: Session
    at: str | None
    prompt: str | None = None
    report: Report | None = None
    """What was lost on the way, if the fork is of another dialect."""


def fork(
    session: Session,
    at: str | None = None,
    *,
    before: bool | None = None,
    to: str | None = None,
    cwd: str | None = None,
    store: FileStore | None = None,
) -> Forked:
    """A new session with the history up to an entry; by default, all that leads to where the session stands.

    Choosing a prompt means the history before it, and `prompt` holds its text; choosing the first one starts from
    nothing. `before` says otherwise for any entry. `to` names the dialect of the fork; by default it stays the same.
    """
    leaf, prompt = _chosen(session, at, before)
    if to is None or to == session.dialect.name:
        forked = session.fork(leaf, cwd=cwd, store=store)
        copy_beside(session, forked.location)
        return Forked(forked, session.leaf if isinstance(leaf, Current) else leaf, prompt)
    stands = session.leaf if isinstance(leaf, Current) else leaf
    out = None if store is None else store.location
    plan = make_plan(session, Request(to, at=stands, fork=True, cwd=cwd, out=out))
    forked = carry_out(session, plan)
    copy_settings(forked, session)
    return Forked(forked, stands, prompt, plan.report)


def _chosen(session: Session, at: str | None, before: bool | None) -> tuple[str | Current | None, str | None]:
    """Where the fork ends, and the prompt it is taken before."""
    if at is None:
        if before:
            raise UsageError("a fork before an entry needs the entry")
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
    """The entry that leads to another one; None when it is the first."""
    path = session.path_ids(id)
    return path[-2] if len(path) > 1 else None
