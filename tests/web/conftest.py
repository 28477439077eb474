"""A server on a library of sample sessions, and a client that talks to it over a real socket."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sessiontree.app.workbench import Workbench
from sessiontree.library.library import Library
from sessiontree.web.app import build_app
from sessiontree.web.security import Access
from sessiontree.web.server import Server, bind
from tests.sample_home import home, library_clock


class Answer:
    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status, self.headers = response.status, response.headers
        self.text = response.read().decode()

    def json(self) -> Any:
        return json.loads(self.text)


class Site:
    """A running server, and a client with or without its cookie."""

    def __init__(self, library: Library, cwd: str, *, read_only: bool = False) -> None:
        self.library = library
        listener = bind("127.0.0.1", 0)
        self.port = listener.getsockname()[1]
        self.access = Access(self.port)
        self._server = Server(build_app(Workbench(library, cwd), self.access, read_only=read_only))
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [listener]}, daemon=True)
        self._thread.start()
        self.cookie = ""

    def connect(self, timeout: float = 60) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def headers(self, **more: str) -> dict[str, str]:
        names = {name.replace("_", "-"): value for name, value in more.items()}
        return {"accept": "text/html", **({"cookie": self.cookie} if self.cookie else {}), **names}

    def get(self, path: str, **headers: str) -> Answer:
        connection = self.connect()
        connection.request("GET", path, headers=self.headers(**headers))
        try:
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def post(self, path: str, fields: Any, **headers: str) -> Answer:
        connection = self.connect()
        origin = {"origin": f"http://127.0.0.1:{self.port}"}
        connection.request("POST", path, json.dumps(fields), headers=self.headers(**{**origin, **headers}))
        try:
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def login(self) -> None:
        answer = self.get(f"/?token={self.access.token}")
        assert answer.status == 303
        self.cookie = answer.headers["set-cookie"].partition(";")[0]

    def events(self, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """The server-sent events of a stream: names and fields."""
        connection = self.connect()
        connection.request("GET", path, headers=self.headers())
        response = connection.getresponse()
        name = ""
        deadline = time.monotonic() + 120
        try:
            while line := response.readline().decode().rstrip("\n"):
                assert time.monotonic() < deadline, "the event that a test waits for did not come"
                if line.startswith("event: "):
                    name = line.removeprefix("event: ")
                elif line.startswith("data: "):
                    yield name, json.loads(line.removeprefix("data: "))
                    response.readline()
                elif line.startswith(":"):
                    response.readline()
        finally:
            connection.close()

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join(60)
        assert not self._thread.is_alive()


def until(condition: Callable[[], Any]) -> Any:
    """Wait for something to happen, however slow the machine is."""
    deadline = time.monotonic() + 60
    while not (found := condition()):
        assert time.monotonic() < deadline, "this did not happen"
        time.sleep(0.02)
    return found


__all__ = ["home", "library_clock"]


@pytest.fixture
def library(home: Path) -> Iterator[Library]:
    with Library() as library:
        library.refresh()
        yield library


@pytest.fixture
def site(library: Library, home: Path) -> Iterator[Site]:
    site = Site(library, str(home / "projects" / "shop"))
    yield site
    site.close()


@pytest.fixture
def known(site: Site) -> Site:
    """A client that has logged in."""
    site.login()
    return site
