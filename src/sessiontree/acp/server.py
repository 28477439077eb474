"""Serve one client on stdin and stdout, until it closes them or ends."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from sessiontree.acp.agent import Agent
from sessiontree.acp.connection import Connection, Log
from sessiontree.app.start import StartOptions
from sessiontree.app.workbench import Workbench


def serve(workbench: Workbench, options: StartOptions, log: Log, *, allows_unstable: bool = False) -> None:
    """Serve on stdin and stdout. Only the protocol is written to stdout: all other output goes to stderr."""
    sys.stdout.flush()
    writer = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    asyncio.run(_serve(sys.stdin.fileno(), writer, workbench, options, log, allows_unstable=allows_unstable))


async def _serve(
    reader: int, writer: int, workbench: Workbench, options: StartOptions, log: Log, *, allows_unstable: bool
) -> None:
    connection = Connection(reader, writer, log)
    agent = Agent(workbench, options, connection, log, allows_unstable=allows_unstable)
    serving = asyncio.ensure_future(connection.serve(agent))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, serving.cancel)
    try:
        await asyncio.wait([serving])
    finally:
        await agent.close()
        await connection.close()
