"""Access control of the web page.

* A request needs the cookie that a one-time token was exchanged for, or that of a user (`users`). The cookie is
  HttpOnly and SameSite=Strict.
* `Host` has to be one of our own names: a site that resolves its name to 127.0.0.1 (DNS rebinding) is refused.
* A request that changes something needs an `Origin` of ours; requests that other sites started are always refused.
* Bodies, the rate of requests and the number of open streams are limited.
* Every response has a content security policy that allows only our own files, and no inline script or style.
"""

from __future__ import annotations

import hmac
import secrets
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from http import HTTPStatus
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import cookie_parser
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
MAX_BODY = 256 * 1024
REQUESTS_PER_SECOND = 100.0
BURST = 400.0
MAX_WRONG_TOKENS = 20
"""Wrong tokens after which none is accepted until the server is started again."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "x-frame-options": "DENY",
}
_SAFE_METHODS = ("GET", "HEAD")


class ServerNames:
    """The names that a server answers for, and its cookies."""

    def __init__(self, port: int, names: tuple[str, ...] = LOOPBACK, *, tls: bool = False) -> None:
        self._scheme = "https" if tls else "http"
        default = 443 if tls else 80
        self.hosts = {f"{name}:{port}".lower() for name in names} | ({*names} if port == default else set())
        self.cookie_name = f"sessiontree_{port}"
        self._tls = tls

    def is_own_origin(self, origin: str) -> bool:
        scheme, _, host = origin.partition("://")
        return scheme == self._scheme and host.lower() in self.hosts

    def cookie(self, value: str) -> str:
        """The header that sets the cookie; with an empty value, the one that removes it."""
        flags = "; HttpOnly; SameSite=Strict; Path=/" + ("; Secure" if self._tls else "")
        return f"{self.cookie_name}={value}{flags}{'' if value else '; Max-Age=0'}"

    def cookie_of(self, scope: Scope) -> str:
        """The value of the cookie of a request; empty without one."""
        return cookie_parser(Headers(scope=scope).get("cookie", "")).get(self.cookie_name, "")


class Access(ServerNames):
    """The link of a server with one user, and the cookie that it is exchanged for."""

    def __init__(self, port: int, names: tuple[str, ...] = LOOPBACK, *, tls: bool = False) -> None:
        super().__init__(port, names, tls=tls)
        self._secret = secrets.token_urlsafe(32)
        self._lock = threading.Lock()
        self._token = secrets.token_urlsafe(24)
        self._wrong = 0
        self.on_login: Callable[[], None] | None = None
        """Called when a token was used, which makes a new one."""

    @property
    def token(self) -> str:
        """The token that the next browser can use, once."""
        return self._token

    def login(self, token: str) -> str | None:
        """Exchange a token for the cookie; None if it is wrong or was used already."""
        with self._lock:
            if self._wrong >= MAX_WRONG_TOKENS:
                return None
            if not hmac.compare_digest(token.encode(), self._token.encode()):
                self._wrong += 1
                return None
            self._token = secrets.token_urlsafe(24)
        if self.on_login is not None:
            self.on_login()
        return self.cookie(self._secret)

    def is_known(self, cookie: str) -> bool:
        return hmac.compare_digest(cookie.encode(), self._secret.encode())


class RefusedError(HTTPException):
    """A refused request. As an `HTTPException`, it gets the same response if it is raised inside a route."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(status.value, f"sessiontree: {reason}\n")


class RateLimit:
    """A token bucket for all requests together."""

    def __init__(self, rate: float = REQUESTS_PER_SECOND, burst: float = BURST) -> None:
        self._rate, self._burst = rate, burst
        self._left, self._at = burst, time.monotonic()

    def take(self) -> bool:
        now = time.monotonic()
        self._left = min(self._burst, self._left + (now - self._at) * self._rate)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


class SourceGate(ABC):
    """Middleware that refuses what is not allowed, before any route sees it. Subclasses check the user."""

    def __init__(self, names: ServerNames, limit: RateLimit | None = None) -> None:
        self._names = names
        self._limit = limit or RateLimit()

    @abstractmethod
    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request whose source is allowed; `RefusedError` if its user is not."""

    @abstractmethod
    async def live(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the ASGI lifespan: start with the server, and end with it."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.live(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # no WebSocket is served: the connection is closed
        guarded = _with_headers(send)
        try:
            self._check_source(scope)
            await self.answer(scope, _limited(receive), guarded)
        except RefusedError as refusal:
            await refuse(guarded, refusal)

    def limit_of(self, _scope: Scope) -> RateLimit:
        """The limit that a request counts against."""
        return self._limit

    def _check_source(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        if headers.get("host", "").lower() not in self._names.hosts:
            raise RefusedError(HTTPStatus.MISDIRECTED_REQUEST, "this server does not answer for that host name")
        if not self.limit_of(scope).take():
            raise RefusedError(HTTPStatus.TOO_MANY_REQUESTS, "too many requests; try again in a second")
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
        if origin is not None and not self._names.is_own_origin(origin):
            raise RefusedError(HTTPStatus.FORBIDDEN, "requests from other sites are refused")
        is_navigation = headers.get("sec-fetch-mode") == "navigate"
        if site not in ("same-origin", "none") and not (is_navigation and scope["method"] == "GET"):
            raise RefusedError(HTTPStatus.FORBIDDEN, "requests from other sites are refused")
        if scope["method"] not in _SAFE_METHODS and origin is None:
            raise RefusedError(HTTPStatus.FORBIDDEN, "a request that changes something needs an Origin header")
        if int(headers.get("content-length") or 0) > MAX_BODY:
            raise _too_large()


class Gate(SourceGate):
    """The gate of a server with one user: the link is exchanged for a cookie, and every request needs that."""

    def __init__(
        self, app: ASGIApp, access: Access, limit: RateLimit | None = None, stop: Callable[[], None] = lambda: None
    ) -> None:
        """`stop` ends what does not end by itself; the server calls it before it waits for open requests."""
        super().__init__(access, limit)
        self._app, self._access = app, access
        self.stop = stop

    async def live(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        cookie = self._login(scope)
        if cookie is not None:
            await redirect(send, scope["path"], cookie)
            return
        if not self._is_known(scope):
            raise RefusedError(HTTPStatus.UNAUTHORIZED, "open the link that `sessiontree serve` printed")
        await self._app(scope, receive, send)

    def _login(self, scope: Scope) -> str | None:
        """The cookie for a request with a valid token."""
        query = parse_qs(scope["query_string"].decode("latin-1")).get("token")
        if not query or scope["method"] != "GET":
            return None
        cookie = self._access.login(query[0])
        if cookie is None and not self._is_known(scope):
            raise RefusedError(
                HTTPStatus.FORBIDDEN, "this link is wrong or was already used; the server prints a new one"
            )
        return cookie

    def _is_known(self, scope: Scope) -> bool:
        return self._access.is_known(self._access.cookie_of(scope))


def _with_headers(send: Send) -> Send:
    async def guarded(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers[name] = value
            headers.setdefault("cache-control", "no-store")
        await send(message)

    return guarded


def _limited(receive: Receive) -> Receive:
    """Bodies without a length are also limited."""
    size = 0

    async def limited() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > MAX_BODY:
            raise _too_large()
        return message

    return limited


def _too_large() -> RefusedError:
    return RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the request is larger than {MAX_BODY:,} bytes")


async def redirect(send: Send, path: str, cookie: str) -> None:
    headers = [(b"location", path.encode("latin-1", "replace") or b"/"), (b"set-cookie", cookie.encode())]
    await send({"type": "http.response.start", "status": HTTPStatus.SEE_OTHER.value, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


async def refuse(send: Send, refusal: RefusedError) -> None:
    body = refusal.detail.encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": refusal.status_code, "headers": headers})
    await send({"type": "http.response.body", "body": body})
