"""What child processes do in these tests. Run as `python -m tests.durability.children WHAT ARGUMENTS`.

A child tells on stdout, one unbuffered line each, what has *returned*; its parent may kill it at any moment.
"""

from __future__ import annotations

import os
import sys

import sessiontree
from sessiontree.stores.blobs import FileBlobs


def tell(text: str) -> None:
    os.write(1, text.encode() + b"\n")


def append_forever(path: str, writer: str) -> None:
    session = sessiontree.open(path, durability="system")
    branch = session.branch()
    number = 0
    while True:
        entry = branch.append("user", f"{writer} {number} " + "x" * (number * 7919 % 5000))
        tell(entry.id)
        number += 1


def append_some(path: str, writer: str, count: str) -> None:
    session = sessiontree.open(path, durability="system")
    branch = session.branch()
    for number in range(int(count)):
        tell(branch.append("user", f"{writer} {number}").id)


def fork_forever(path: str) -> None:
    session = sessiontree.open(path)
    while True:
        tell(session.fork().location)


def create_forever(home: str) -> None:
    while True:
        session = sessiontree.create(cwd="/", home=home)
        session.append({"type": "model_change", "provider": "p", "modelId": "m"})
        session.append("user", "hello " * 2000)
        tell(session.location)


def put_blobs_forever(folder: str) -> None:
    blobs = FileBlobs(folder)
    number = 0
    while True:
        tell(blobs.put(f"{number} ".encode() * 20_000))
        number += 1


def migrate_forever(path: str, pristine: str) -> None:
    with open(pristine, "rb") as file:
        old = file.read()
    while True:
        sessiontree.open(path).migrate()
        tell("migrated")
        beside = path + ".next"
        with open(beside, "wb") as file:
            file.write(old)
        os.replace(beside, path)


def install_forever(path: str, home: str, to: str) -> None:
    from sessiontree.conversion.install import Request, carry_out, make_plan

    environment = {"HOME": home, "SESSIONTREE_HOME": os.path.join(home, "sessiontree")}
    session = sessiontree.open(path)
    while True:
        plan = make_plan(session, Request(to, branch="all"), environment)
        tell(carry_out(session, plan).location)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
