"""Benchmark of the web page: 50 clients watch 8 growing sessions in a library of 10,000."""

from __future__ import annotations

import http.client
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from benchmarks.results import Result, megabytes, milliseconds
from sessiontree.session.open import create
from sessiontree.session.session import Session
from sessiontree.web.site import key_of

SESSIONS, CLIENTS, GROWING, ENTRIES, LISTS = 10_000, 50, 8, 60, 60


def web(_rounds: int) -> list[Result]:
    """Every client gets every entry once and in order; the list takes at most 20 ms of CPU, the server 200 MB."""
    with tempfile.TemporaryDirectory(prefix="sessiontree-web-") as scratch:
        home = Path(scratch)
        growing = _write_library(home)
        server, port, cookie = _start(home)
        try:
            _wait_for_list(port, cookie)
            received = _watch(port, cookie, growing)
            costs = sorted(_list_cost(server.pid, port, cookie, number) for number in range(LISTS))
            peak = _peak(server.pid)
        finally:
            server.terminate()
            server.wait(30)
    wanted = [list(range(3, 3 + ENTRIES))] * CLIENTS
    wrong = sum(one != other for one, other in zip(received, wanted, strict=True))
    name = f"{CLIENTS} clients, {GROWING} growing sessions, {SESSIONS:,} in the library"
    p95 = costs[int(len(costs) * 0.95)]
    return [
        Result(f"{name}: clients without all entries in order", str(wrong), "", wrong, bound=0),
        Result(f"{name}: CPU of the list, p95", milliseconds(p95), "", p95 * 1000, bound=20, unit="ms"),
        Result(f"{name}: memory", megabytes(peak), "", peak / 1e6, bound=200, unit="MB"),
    ]


def _write_library(home: Path) -> list[Session]:
    line = '{{"type":"{}","id":"{}","parentId":{},"timestamp":"2026-02-16T10:00:0{}.000Z",{}}}\n'
    folder = home / ".pi" / "agent" / "sessions" / "--work--"
    folder.mkdir(parents=True)
    for number in range(SESSIONS - GROWING):
        id = f"019c0000-0000-7000-8000-{number:012x}"
        text = '"message":{{"role":"{}","content":[{{"type":"text","text":"message {} about {}"}}],"timestamp":1}}'
        topic = f"topic {number % 97} and {number}"
        lines = [
            f'{{"type":"session","version":3,"id":"{id}","timestamp":"2026-02-16T10:00:00.000Z",'
            f'"cwd":"/work/p{number % 40}"}}\n',
            line.format("message", "a", "null", 1, text.format("user", 1, topic)),
            line.format("message", "b", '"a"', 2, text.format("assistant", 2, topic)),
        ]
        (folder / f"2026-02-16T10-00-00-000Z_{id}.jsonl").write_text("".join(lines))
    growing = []
    for number in range(GROWING):
        session = create("/work", home=str(home / ".local" / "share" / "sessiontree"))
        session.rename(f"growing {number}")
        session.append("user", "start")
        session.append("assistant", "yes")
        session.flush()
        growing.append(session)
    return growing


def _start(home: Path) -> tuple[subprocess.Popen[str], int, str]:
    environment = {"HOME": str(home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
    command = [sys.executable, "-m", "sessiontree", "serve"]
    server = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True, cwd=home)
    assert server.stderr is not None
    found = re.search(r":(\d+)/\?token=(\S+)", server.stderr.readline())
    assert found is not None
    threading.Thread(target=server.stderr.read, daemon=True).start()
    port = int(found[1])
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", f"/?token={found[2]}")
    cookie = connection.getresponse().headers["set-cookie"].partition(";")[0]
    connection.close()
    return server, port, cookie


def _get(port: int, cookie: str, path: str) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    connection.request("GET", path, headers={"cookie": cookie})
    text = connection.getresponse().read().decode()
    connection.close()
    return text


def _wait_for_list(port: int, cookie: str) -> None:
    deadline = time.monotonic() + 300
    while f'data-total="{SESSIONS}"' not in _get(port, cookie, "/rows"):
        assert time.monotonic() < deadline, "the library was not read"
        time.sleep(0.5)


def _watch(port: int, cookie: str, growing: list[Session]) -> list[list[int]]:
    """The numbers of the entries that each client received, while all sessions grow."""
    received: list[list[int]] = [[] for _ in range(CLIENTS)]
    ready = threading.Barrier(CLIENTS + 1)

    def client(number: int) -> None:
        key = key_of(growing[number % GROWING].location)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        connection.request("GET", f"/s/{key}/events?from=3", headers={"cookie": cookie})
        response = connection.getresponse()
        ready.wait()
        while len(received[number]) < ENTRIES:
            line = response.readline()
            if line.startswith(b'data: {"node"'):
                received[number].append(json.loads(line[6:])["node"])
                if number % 10 == 9:
                    time.sleep(0.05)  # a slow client
        connection.close()

    clients = [threading.Thread(target=client, args=(number,)) for number in range(CLIENTS)]
    for one in clients:
        one.start()
    ready.wait()
    for number in range(ENTRIES):
        for session in growing:
            session.append("user" if number % 2 else "assistant", f"entry {number} " + "words " * 50)
        time.sleep(0.05)
    for one in clients:
        one.join(120)
    return received


def _list_cost(pid: int, port: int, cookie: str, number: int) -> float:
    """CPU seconds of the server for one page of the list."""
    path = ("/", "/rows?start=50", f"/rows?q=p{number % 40}", "/rows?sort=size", "/rows?group=project")[number % 5]
    before = _cpu(pid)
    _get(port, cookie, path if number % 5 != 2 else f"/rows?q=project:p{number % 40}")
    return _cpu(pid) - before


def _cpu(pid: int) -> float:
    nanoseconds = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        nanoseconds += int(Path(f"/proc/{pid}/task/{task}/schedstat").read_text().split()[0])
    return nanoseconds / 1e9


def _peak(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+)", status)
    assert found is not None
    return int(found[1]) * 1024
