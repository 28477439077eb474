"""Tasks of child processes. Run as `python -m tests.durability.children TASK ARGUMENTS`.

A child prints an unbuffered line for each call that has *returned*; its parent may kill it at any time.
"""

from __future__ import annotations

import os
import sys
import time

import sessiontree
from sessiontree.stores.blobs import FileBlobs


def report(text: str) -> None:
    os.write(1, text.encode() + b"\n")


def append_forever(path: str, writer: str) -> None:
    session = sessiontree.open(path, durability="system")
    branch = session.branch()
    number = 0
    while True:
        entry = branch.append("user", f"{writer} {number} " + "x" * (number * 7919 % 5000))
        report(entry.id)
        number += 1


def append_some(path: str, writer: str, count: str) -> None:
    """Wait for a line on stdin, append, and report all ids and then the longest wait in seconds."""
    session = sessiontree.open(path, durability="system")
    branch = session.branch()
    report("ready")
    sys.stdin.readline()
    ids, longest = [], 0.0
    for number in range(int(count)):
        start = time.monotonic()
        ids.append(branch.append("user", f"{writer} {number}").id)
        longest = max(longest, time.monotonic() - start)
    report("\n".join([*ids, str(longest)]))


def fork_forever(path: str) -> None:
    session = sessiontree.open(path)
    while True:
        report(session.fork().location)


def create_forever(home: str) -> None:
    while True:
        session = sessiontree.create(cwd="/", home=home)
        session.append({"type": "model_change", "provider": "p", "modelId": "m"})
        session.append("user", "hello " * 2000)
        report(session.location)


def put_blobs_forever(folder: str) -> None:
    blobs = FileBlobs(folder)
    number = 0
    while True:
        report(blobs.put(f"{number} ".encode() * 20_000))
        number += 1


def migrate_forever(path: str, pristine: str) -> None:
    with open(pristine, "rb") as file:
        old = file.read()
    while True:
        sessiontree.open(path).migrate()
        report("migrated")
        replacement = path + ".next"
        with open(replacement, "wb") as file:
            file.write(old)
        os.replace(replacement, path)


def install_forever(path: str, home: str, to: str) -> None:
    from sessiontree.conversion.install import Request, carry_out, make_plan

    environment = {"HOME": home, "SESSIONTREE_HOME": os.path.join(home, "sessiontree")}
    session = sessiontree.open(path)
    while True:
        plan = make_plan(session, Request(to, branch="all"), environment)
        report(carry_out(session, plan).location)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
