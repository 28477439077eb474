"""A new session for a sub-agent. `branches.subagent_sessions` finds it again."""

from __future__ import annotations

import os

from sessiontree import plugins
from sessiontree.agent.approval import Approvals
from sessiontree.core.entries import ForkOrigin
from sessiontree.core.ids import new_session_id, timestamp
from sessiontree.dialects import DEFAULT_DIALECT
from sessiontree.dialects.canonical import SessionMeta
from sessiontree.dialects.contract import Dialect
from sessiontree.paths import home as default_home
from sessiontree.session.open import open_store
from sessiontree.session.session import Session
from sessiontree.stores.repositories import open_repository


def create_subagent_session(origin: Session, name: str, home: str | None = None) -> Session:
    """Create an empty session that names its origin and has the same approvals. Blocking."""
    created = (
        origin.fork(None) if origin.dialect.traits.one_line_per_entry else _new_native(origin, home or default_home())
    )
    created.rename(name)
    Approvals(created).inherit(Approvals(origin))
    return created


def _new_native(origin: Session, root: str) -> Session:
    """A native session, for callers whose format has no empty sessions."""
    native: Dialect = plugins.load("dialects", DEFAULT_DIALECT)
    cwd = origin.cwd or os.getcwd()
    start = SessionMeta(
        new_session_id(),
        timestamp(),
        cwd,
        forked_from=ForkOrigin(origin.id, None),
        origin=origin.location,
        large_content="inline",
    )
    repository = origin.repository if origin.ref.home else open_repository(root)
    store = repository.new(start.id, timestamp=start.timestamp, cwd=cwd)
    store.create(line + b"\n" for line in native.encoder(start).prologue())
    return open_store(store, repository=repository)
