"""State shared by all requests: the workbench, open sessions, templates, and plans waiting for confirmation."""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections import OrderedDict
from hashlib import blake2b
from typing import Any

from markupsafe import Markup
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import HTMLResponse

from sessiontree.app.actions.contract import ActionPlan
from sessiontree.app.workbench import Workbench
from sessiontree.errors import NotFoundError
from sessiontree.export.html.environment import build_environment
from sessiontree.library.summary import Summary
from sessiontree.models.cost_estimate import describe_cost
from sessiontree.views.listing import age, amount, dollars, session_cost
from sessiontree.web.open_sessions import OpenSession, OpenSessions

_HERE = os.path.dirname(__file__)
MAX_PLANS = 64
_PLAN_SECONDS = 900.0


class WaitingPlan(Struct, frozen=True):
    plan: ActionPlan[Any]
    ref: str
    """The session it changes; empty for an item of the archive."""
    until: float


class Site:
    """One server's data. Methods may be called from any thread."""

    def __init__(self, workbench: Workbench, *, read_only: bool = False, is_shared: bool = False) -> None:
        """`is_shared`: users who do not own this machine use it. No agent runs here for them, and no file is used."""
        self.workbench = workbench
        self.read_only, self.is_shared = read_only, is_shared
        self.sessions = OpenSessions(workbench)
        self._lock = threading.Lock()
        self._plans: OrderedDict[str, WaitingPlan] = OrderedDict()
        self._keys: tuple[tuple[Summary, ...], dict[str, Summary]] | None = None
        self._tags: tuple[float, tuple[dict[str, tuple[str, ...]], frozenset[str]]] | None = None
        self.templates = build_environment(os.path.join(_HERE, "templates"))
        self.templates.globals |= {
            "read_only": read_only,
            "is_shared": is_shared,
            "key_of": key_of,
            "cost_of": session_cost,
        }
        self.templates.filters |= {"amount": amount, "age": lambda time_ms: age(time_ms, time.time())}
        self.templates.filters |= {"cost_words": describe_cost, "dollars": dollars}

    def render(self, name: str, /, **values: Any) -> HTMLResponse:
        return HTMLResponse(self.templates.get_template(name).render(**values))

    def fragment(self, name: str, macro: str, *arguments: Any) -> Markup:
        """Render one macro of a template."""
        rendered: Markup = getattr(self.templates.get_template(name).module, macro)(*arguments)
        return rendered

    # Sessions

    def known(self) -> tuple[Summary, ...]:
        return self.workbench.library.snapshot().sessions

    def find(self, key: str) -> Summary:
        """The session of an address. Addresses are hashes of references: only sessions of the library have one."""
        sessions = self.known()
        with self._lock:
            if self._keys is None or self._keys[0] is not sessions:
                self._keys = (sessions, {key_of(summary.ref): summary for summary in sessions})
            found = self._keys[1].get(key)
        if found is None:
            raise NotFoundError("no such session: it was moved, archived or deleted; reload the list")
        return found

    def summary_of(self, request: Request) -> Summary:
        return self.find(request.path_params["key"])

    def tags(self) -> tuple[dict[str, tuple[str, ...]], frozenset[str]]:
        """Tags and pins; read again after a second, or when an action changed them."""
        now = time.monotonic()
        with self._lock:
            if self._tags is not None and now - self._tags[0] < 1:
                return self._tags[1]
        found = self.workbench.read_tags()
        with self._lock:
            self._tags = (now, found)
        return found

    def changed(self, ref: str) -> None:
        """Forget what is known about a session that an action changed."""
        with self._lock:
            self._tags = None
        if ref:
            self.sessions.forget(ref)

    # Plans

    def keep_plan(self, plan: ActionPlan[Any], ref: str) -> str:
        """Keep a plan until it is confirmed; returns its id."""
        id = secrets.token_urlsafe(12)
        with self._lock:
            self._plans[id] = WaitingPlan(plan, ref, time.monotonic() + _PLAN_SECONDS)
            while len(self._plans) > MAX_PLANS:
                self._plans.popitem(last=False)
        return id

    def take_plan(self, id: str) -> WaitingPlan:
        with self._lock:
            found = self._plans.pop(id, None)
        if found is None or found.until < time.monotonic():
            raise NotFoundError("this plan has expired or was already carried out; plan it again")
        return found

    def close(self) -> None:
        self.sessions.close()


def key_of(ref: str) -> str:
    """The address of a session."""
    return blake2b(ref.encode("utf-8", "surrogatepass"), digest_size=9).hexdigest()


def cached(opened: OpenSession, name: str, compute: Any) -> Any:
    """A result that stays valid until the session changes."""
    found = opened.cached.get(name)
    if found is None or found[0] != opened.state:
        found = opened.cached[name] = (opened.state, compute())
    return found[1]
