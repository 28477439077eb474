"""Start the server: bind the port, print the link, run until interrupted."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
import webbrowser
from collections.abc import Callable

import uvicorn
from msgspec import Struct

from sessiontree.app.workbench import Workbench
from sessiontree.errors import NotFoundError, UsageError
from sessiontree.stores.contract import TokenRepository
from sessiontree.web.app import build_app
from sessiontree.web.security import LOOPBACK, Access, Gate, ServerNames
from sessiontree.web.users import UserGate


class ServeOptions(Struct, frozen=True):
    host: str = "127.0.0.1"
    port: int = 0
    open_browser: bool = False
    read_only: bool = False
    tls_cert: str | None = None
    tls_key: str | None = None
    no_tls: bool = False
    """Whether other machines may connect without encryption."""
    users: bool = False
    """Whether users log in with tokens of a database."""


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def exposure(options: ServeOptions, holder: str = "the link", what: str = "all sessions") -> str | None:
    """What a server that other machines can reach exposes to the holder of a link or token; None for loopback."""
    if is_loopback(options.host):
        return None
    power = f"read {what}" if options.read_only else f"read and change {what}"
    if not options.read_only and not options.users:
        power += ", and run an agent's tools"
    how = "over TLS" if options.tls_cert else f"UNENCRYPTED: everyone on the network can read {holder} and the sessions"
    return f"other machines can reach {options.host}: anyone with {holder} can {power} ({how})"


class Listener(Struct, frozen=True):
    """A port that is listened on, and the names that browsers use for it."""

    socket: socket.socket
    port: int
    names: tuple[str, ...]
    address: str
    is_encrypted: bool


def listen(options: ServeOptions) -> Listener:
    """Bind the port; `UsageError` for options that would expose more than was asked for."""
    if (options.tls_cert is None) != (options.tls_key is None):
        raise UsageError("TLS needs both --tls-cert and --tls-key")
    if not is_loopback(options.host) and options.tls_cert is None and not options.no_tls:
        raise UsageError(
            f"--host {options.host} lets other machines connect: pass --tls-cert and --tls-key, or --no-tls if "
            "everyone on the network may read the link and all sessions"
        )
    for file in filter(None, (options.tls_cert, options.tls_key)):
        if not os.path.isfile(file):
            raise NotFoundError(f"{file}: no such file")
    bound = bind(options.host, options.port)
    port: int = bound.getsockname()[1]
    tls = options.tls_cert is not None
    names = LOOPBACK if is_loopback(options.host) else (*LOOPBACK, *_own_names(options.host))
    shown = options.host if options.host not in ("0.0.0.0", "::") else names[-1]  # noqa: S104 - compared, not bound
    address = f"{'https' if tls else 'http'}://{f'[{shown}]' if ':' in shown and shown[0] != '[' else shown}:{port}/"
    return Listener(bound, port, names, address, tls)


def serve(
    workbench: Workbench,
    options: ServeOptions,
    notify: Callable[[str], None],
    report: Callable[[str], None] | None = None,
) -> None:
    """Serve one user until interrupted. `notify` prints a line for the user; `report` gets the first link instead."""
    listener = listen(options)
    access = Access(listener.port, listener.names, tls=listener.is_encrypted)
    warning = exposure(options)
    if warning is not None:
        notify(f"warning: {warning}")

    def print_link(text: str) -> None:
        notify(f"{text}: {listener.address}?token={access.token}")

    access.on_login = lambda: print_link("Opened. For another browser")
    if report is None:
        print_link("Open this link (it works once)")
    else:
        report(f"{listener.address}?token={access.token}")
    if options.open_browser:
        webbrowser.open(f"{listener.address}?token={access.token}")
    app = build_app(workbench, access, read_only=options.read_only)
    Server(app, options.tls_cert, options.tls_key).run(sockets=[listener.socket])


def serve_users(
    repository: TokenRepository,
    options: ServeOptions,
    notify: Callable[[str], None],
    report: Callable[[str], None] | None = None,
) -> None:
    """Serve the users of a database until interrupted, each with a token."""
    repository.tokens()  # a database that has none yet, or that cannot be reached, is an error now
    listener = listen(options)
    warning = exposure(options, "a token", "the sessions of its tenant")
    if warning is not None:
        notify(f"warning: {warning}")
    if report is None:
        notify(f"Users log in with their tokens at {listener.address}")
    else:
        report(listener.address)
    if options.open_browser:
        webbrowser.open(listener.address)
    names = ServerNames(listener.port, listener.names, tls=listener.is_encrypted)
    gate = UserGate(repository, names, read_only=options.read_only)
    Server(gate, options.tls_cert, options.tls_key).run(sockets=[listener.socket])


_ACCEPT_SECONDS = 0.05
"""Time for connections in progress to be accepted, so that they are closed too: browsers open some in advance."""


class Server(uvicorn.Server):
    """A server that ends its event streams before it waits for open requests."""

    def __init__(self, app: Gate | UserGate, tls_cert: str | None = None, tls_key: str | None = None) -> None:
        self._stop_streams = app.stop
        super().__init__(
            uvicorn.Config(
                app,
                log_level="warning",
                access_log=False,
                server_header=False,
                ws="none",
                lifespan="on",
                timeout_graceful_shutdown=5,
                ssl_certfile=tls_cert,
                ssl_keyfile=tls_key,
            )
        )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for listener in self.servers:
            listener.close()  # first: a browser connects again as soon as its stream ends
        self._stop_streams()
        await asyncio.sleep(_ACCEPT_SECONDS)
        await super().shutdown(sockets)
        for connection in list(self.server_state.connections):  # their requests did not end in time
            connection.transport.abort()
        await asyncio.sleep(0)  # the event loop closes their sockets


def bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise UsageError(f"cannot listen on {host}:{port}: {error.strerror}; choose another --port") from None
    listener.listen(128)
    return listener


def _own_names(host: str) -> tuple[str, ...]:
    """The names that browsers of other machines use: the address itself, or that of this machine."""
    if host not in ("0.0.0.0", "::"):  # noqa: S104 - compared, not bound
        return (f"[{host}]" if ":" in host else host,)
    name = socket.gethostname()
    try:
        addresses = {str(found[4][0]) for found in socket.getaddrinfo(name, None)}
    except OSError:
        addresses = set()
    return (name, *(f"[{each}]" if ":" in each else each for each in sorted(addresses)))
