"""Several users of one server, each with a token from the database they share.

A token is bound to a tenant, and to reading or writing. A form exchanges it for a cookie, so it is in one request body
and in no URL. Each tenant has its own library, whose statements run with the role of the tenant. Every request
asks the database whether the token is still valid; so does a stream of events before it sends more.

Users do not own this machine: no agent runs for them here, and no file of it is shown or written.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncIterator
from http import HTTPStatus
from urllib.parse import parse_qs

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope, Send

from sessiontree.app.workbench import Workbench
from sessiontree.errors import SessionTreeError
from sessiontree.library.library import Library
from sessiontree.settings import Settings
from sessiontree.stores.contract import AccessToken, TokenRepository
from sessiontree.web.app import SiteApp, run_lifespan
from sessiontree.web.security import RateLimit, RefusedError, ServerNames, SourceGate, redirect
from sessiontree.web.site import Site

MAX_COOKIES = 10_000
_COOKIE_SECONDS = 7 * 86_400.0
_MAX_SITES = 64
"""Libraries that are kept open; beyond that, the least recently used ones are closed."""
_CHECK_SECONDS = 1.0
"""How often a response that takes long asks whether its token is still valid."""
_FORM = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>sessiontree</title><link rel="icon" href="data:,"></head>
<body><main><h1>sessiontree</h1><p>{message}</p>
<form method="post" action="/login"><label>Token <input type="password" name="token" autocomplete="current-password"
required autofocus></label> <button type="submit">Log in</button></form></main></body></html>
"""


class _Login:
    """A browser that has logged in."""

    def __init__(self, token: str) -> None:
        self.token = token
        """The id of its token."""
        self.until = time.monotonic() + _COOKIE_SECONDS
        self.limit = RateLimit()


class Logins:
    """The cookies of one server. Only their hashes are kept, and they end with the server."""

    def __init__(self, repository: TokenRepository) -> None:
        self._repository = repository
        self._lock = threading.Lock()
        self._logins: OrderedDict[bytes, _Login] = OrderedDict()

    def login(self, text: str) -> str | None:
        """Exchange the text of a token for the value of a cookie; None if it is wrong or was revoked. Blocking."""
        token = self._repository.check_token(text.strip())
        if token is None:
            return None
        cookie = secrets.token_urlsafe(32)
        with self._lock:
            self._logins[_key(cookie)] = _Login(token.id)
            while len(self._logins) > MAX_COOKIES:
                self._logins.popitem(last=False)
        return cookie

    def logout(self, cookie: str) -> None:
        with self._lock:
            self._logins.pop(_key(cookie), None)

    def limit_of(self, cookie: str) -> RateLimit | None:
        """The limit of requests of one browser, so that no user can use up that of all others."""
        found = self._find(cookie)
        return None if found is None else found.limit

    def check(self, cookie: str) -> AccessToken | None:
        """The token of a browser as the database has it now; None if it was revoked. Blocking."""
        found = self._find(cookie)
        token = None if found is None else self._repository.find_token(found.token)
        if token is None:
            self.logout(cookie)
        return token

    def _find(self, cookie: str) -> _Login | None:
        with self._lock:
            found = self._logins.get(_key(cookie)) if cookie else None
        return None if found is None or found.until < time.monotonic() else found


def _key(cookie: str) -> bytes:
    return hashlib.sha256(cookie.encode()).digest()


class _TenantSite:
    """The library of one tenant, for users who read it, or for users who change it."""

    def __init__(self, home: str, *, read_only: bool) -> None:
        # The operator's own settings are not used: they name models, which cost money.
        self.library = Library(home, only_home=True)
        workbench = Workbench(self.library, "/", Settings())
        self.app = SiteApp(Site(workbench, read_only=read_only, is_shared=True))
        self.requests = 0

    async def close(self) -> None:
        self.app.stop()
        await self.app.close()
        await run_in_threadpool(self.library.close)


class UserGate(SourceGate):
    """The gate of a server with several users, and their sites."""

    def __init__(self, repository: TokenRepository, names: ServerNames, *, read_only: bool = False) -> None:
        super().__init__(names)
        self._repository, self._read_only = repository, read_only
        self._logins = Logins(repository)
        self._sites: OrderedDict[tuple[str, bool], _TenantSite] = OrderedDict()
        self._opening = asyncio.Lock()

    async def live(self, _scope: Scope, receive: Receive, send: Send) -> None:
        await run_lifespan(receive, send, lambda: None, self._close)

    def stop(self) -> None:
        for site in self._sites.values():
            site.app.stop()

    async def _close(self) -> None:
        for site in self._sites.values():
            await site.close()

    def limit_of(self, scope: Scope) -> RateLimit:
        return self._logins.limit_of(self._names.cookie_of(scope)) or super().limit_of(scope)

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        cookie = self._names.cookie_of(scope)
        match scope["method"], scope["path"]:
            case "POST", "/login":
                await self._login(receive, send)
                return
            case "POST", "/logout":
                self._logins.logout(cookie)
                await redirect(send, "/", self._names.cookie(""))
                return
        token = await self._check(cookie)
        if token is None:
            if "text/html" not in Headers(scope=scope).get("accept", ""):
                raise RefusedError(HTTPStatus.UNAUTHORIZED, "a token is required; reload the page to log in")
            await _show_form(send, HTTPStatus.UNAUTHORIZED, "Enter your token.")
            return
        async with self._using(token) as site:
            with contextlib.suppress(_RevokedError):
                await site.app.routes(scope, receive, self._while_valid(send, cookie))

    async def _login(self, receive: Receive, send: Send) -> None:
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        given = parse_qs(body.decode("latin-1")).get("token", [""])
        try:
            cookie = await run_in_threadpool(self._logins.login, given[0])
        except SessionTreeError:
            raise _unavailable() from None
        if cookie is None:
            await _show_form(send, HTTPStatus.FORBIDDEN, "This token is wrong, or was revoked.")
        else:
            await redirect(send, "/", self._names.cookie(cookie))

    async def _check(self, cookie: str) -> AccessToken | None:
        try:
            return await run_in_threadpool(self._logins.check, cookie)
        except SessionTreeError:  # without an answer of the database, no request is allowed
            raise _unavailable() from None

    def _while_valid(self, send: Send, cookie: str) -> Send:
        """Send as long as the token is valid: a stream of events may be open for days."""
        checked = time.monotonic()

        async def guarded(message: Message) -> None:
            nonlocal checked
            if message.get("more_body") and time.monotonic() - checked > _CHECK_SECONDS:
                if await self._check(cookie) is None:
                    raise _RevokedError
                checked = time.monotonic()
            await send(message)

        return guarded

    @contextlib.asynccontextmanager
    async def _using(self, token: AccessToken) -> AsyncIterator[_TenantSite]:
        """The site of a token, which stays open while a request uses it."""
        read_only = self._read_only or token.scope != "write"
        # One lock for all: no site is opened twice, or closed while another request is about to use it.
        async with self._opening:
            site = self._sites.get((token.tenant, read_only))
            if site is None:
                home = self._repository.home_of(token.tenant)
                site = await run_in_threadpool(_TenantSite, home, read_only=read_only)
                self._sites[token.tenant, read_only] = site
                site.app.start()
            self._sites.move_to_end((token.tenant, read_only))
            site.requests += 1
            for key, other in list(self._sites.items())[:-_MAX_SITES]:
                if not other.requests:
                    del self._sites[key]
                    await other.close()
        try:
            yield site
        finally:
            site.requests -= 1


class _RevokedError(OSError):
    """A token was revoked while a response was sent. Starlette ends a response whose connection fails like this."""


def _unavailable() -> RefusedError:
    return RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, "the database cannot be reached; try again")


async def _show_form(send: Send, status: HTTPStatus, message: str) -> None:
    body = _FORM.format(message=message).encode()
    headers = [(b"content-type", b"text/html; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status.value, "headers": headers})
    await send({"type": "http.response.body", "body": body})
