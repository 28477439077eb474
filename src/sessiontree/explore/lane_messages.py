"""Messages between lanes.

    sender     … ── assistant with the call ── send ── result ── …
    receiver   … ── result ── message, before the next request ── assistant ── …

A message is delivered when the receiver's branch has an entry that names the `send` entry. So it survives a crash and
arrives once: an undelivered message is delivered when the receiver is resumed. A lane that has ended receives nothing
more; the sender of an unread message gets a notice. A delivered message is marked as written by another agent.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, Struct

from sessiontree.agent.async_bridge import in_thread, uncancelled
from sessiontree.agent.events import Event
from sessiontree.agent.loop import Run
from sessiontree.agent.tools.base import ArgumentsError, Plan, StructTool, Tool, ToolContext, ToolOutput, short
from sessiontree.core.entries import Custom, CustomMessage
from sessiontree.core.jsonio import JsonObject
from sessiontree.errors import SessionTreeError
from sessiontree.explore.events import Delivered
from sessiontree.explore.exploration import Exploration
from sessiontree.explore.lane import ENDED, Job, Lane
from sessiontree.explore.records import INBOX, SentMessage, record_of

EVERYONE = "*"
MAX_TEXT = 8_000
"""Characters of one message."""
MAX_SENDS = 200
"""Messages that one lane may send."""
MAX_SECONDS = 300.0
"""How long one call may wait for a message."""
_MAX_LISTED = 20
_ENTRY_TYPES = ("custom", "custom_message")
"""Types of entries that may be a message or its delivery."""


class SendArguments(Struct, frozen=True, forbid_unknown_fields=True):
    to: Annotated[str, Meta(min_length=1, description="the name or number of a lane, or * for all others")]
    text: Annotated[str, Meta(min_length=1, max_length=MAX_TEXT, description="what it should know")]


class InboxArguments(Struct, frozen=True, forbid_unknown_fields=True):
    wait: Annotated[
        float, Meta(ge=0, le=MAX_SECONDS, description="seconds to wait for a new message, if there is none")
    ] = 0.0


class LaneMessage(Struct, frozen=True):
    """A message that was sent."""

    id: str
    """Of its `send` entry."""
    node: int
    """Position of that entry in the file: lanes that start later are not among the receivers."""
    sender: int
    name: str
    to: str
    text: str


class LaneMessages:
    """A hook that lets the lanes of an exploration send each other messages."""

    def __init__(self) -> None:
        self._messages: list[LaneMessage] = []
        self._delivered: dict[int, set[str]] = {}
        self._returned: set[str] = set()
        """Messages that an ended lane did not read, and whose sender got a notice."""
        self._read = self._scanned = 0
        self._lock = threading.Lock()
        self._arrived: dict[int, asyncio.Event] = {}

    def tools(self, exploration: Exploration, lane: Lane) -> Sequence[Tool]:
        return SendTool(self, exploration, lane), InboxTool(self, exploration, lane)

    async def before_request(self, exploration: Exploration, lane: Lane, run: Run) -> None:  # noqa: ARG002 - of a hook
        if not self._messages and not self._has_changes(exploration):
            return
        for message in await uncancelled(in_thread(self._deliver, exploration, lane)):
            exploration.emit(lane, Delivered(message.name, message.text))

    def _has_changes(self, exploration: Exploration) -> bool:
        """Whether there are unread entries that could be messages. Reads only their types."""
        types = exploration.session.journal.types
        start, until = self._scanned, len(types)
        if any(kind in types[start:until] for kind in _ENTRY_TYPES):
            return True
        self._scanned = until
        return False

    async def handle_event(self, exploration: Exploration, lane: Lane, event: Event) -> None:
        """Messages are entries, not events."""

    async def after_end(self, exploration: Exploration, lane: Lane) -> Sequence[Job]:  # noqa: ARG002 - of a hook
        self._wake()  # a lane may be waiting for a message that no lane is left to send
        return ()

    def undelivered(self, exploration: Exploration, lane: Lane) -> list[LaneMessage]:
        """Messages to a lane that were not delivered yet, in the order they were sent. Blocking."""
        self._refresh(exploration)
        begun = exploration.session.node_of(lane.start) or 0
        delivered = self._delivered.get(lane.number, set())
        return [
            message
            for message in self._messages
            if message.sender != lane.number
            and message.node > begun
            and message.id not in delivered
            and _is_for(exploration, message, lane)
        ]

    def delivered(self, exploration: Exploration, lane: Lane) -> list[LaneMessage]:
        """Messages that a lane has received, in the order they were sent. Blocking."""
        self._refresh(exploration)
        delivered = self._delivered.get(lane.number, set())
        return [message for message in self._messages if message.id in delivered]

    async def send(self, exploration: Exploration, lane: Lane, to: str, text: str) -> list[Lane]:
        """Send a message from a lane to another, or to all others that have not ended; returns the receivers."""
        await in_thread(self._refresh, exploration)
        if sum(message.sender == lane.number for message in self._messages) >= MAX_SENDS:
            raise ArgumentsError(f"send: the limit of {MAX_SENDS} messages of this lane is reached")
        others = [other for other in exploration.lanes if other is not lane]
        if to == EVERYONE:
            receivers = [other for other in others if other.state not in ENDED]
            if not receivers:
                raise ArgumentsError("send: no other lane is running; not sent")
        else:
            receivers = [_find_receiver(exploration, lane, to)]
            to = _unambiguous_name(exploration, receivers[0])
        await lane.write(SentMessage(to, text))
        self._wake()
        return receivers

    async def wait(self, exploration: Exploration, lane: Lane, seconds: float) -> list[LaneMessage]:
        """Undelivered messages of a lane; waits for one while another lane could still send it."""
        until = time.monotonic() + seconds
        arrived = self._arrived.setdefault(lane.number, asyncio.Event())
        while True:
            arrived.clear()  # before reading, so that a message sent meanwhile is not missed
            found = await in_thread(self.undelivered, exploration, lane)
            left = until - time.monotonic()
            is_alone = all(other is lane or other.state in ENDED for other in exploration.lanes)
            if found or left <= 0 or is_alone:
                return found
            try:
                await asyncio.wait_for(arrived.wait(), left)
            except TimeoutError:
                continue

    def _wake(self) -> None:
        for arrived in self._arrived.values():
            arrived.set()

    def _deliver(self, exploration: Exploration, lane: Lane) -> list[LaneMessage]:
        found = self.undelivered(exploration, lane)
        for message in found:
            heading = f"[Message from the lane {message.name!r}, which is another agent, not the user]"
            details = {"from": message.sender, "name": message.name, "send": message.id}
            _append(lane, f"{heading}\n\n{message.text[:MAX_TEXT]}", details)
        for message in self._unread(exploration, lane):
            notice = f"[The lane {message.to!r} ended before it read your message: {short(message.text)}]"
            _append(lane, notice, {"unread": message.id})
        return found

    def _unread(self, exploration: Exploration, sender: Lane) -> list[LaneMessage]:
        """Messages from a lane to one other that ended without reading them, unless the sender got a notice."""
        ended = [lane for lane in exploration.lanes if lane.state in ENDED]
        return [
            message
            for lane in ended
            for message in self.undelivered(exploration, lane)
            if message.sender == sender.number and message.to != EVERYONE and message.id not in self._returned
        ]

    def _refresh(self, exploration: Exploration) -> None:
        """Read the entries written since the last call."""
        with self._lock:
            session, log = exploration.session, exploration.log
            until = len(session)  # before `refresh`: an entry that is appended in between is in no lane yet
            log.refresh()
            ids = session.journal.tree.ids
            for node in range(self._read, until):
                if session.journal.types[node] not in _ENTRY_TYPES:
                    continue
                lane = log.lane_of(ids[node])
                if lane is None or lane.plan != exploration.plan_id:
                    continue
                entry = session.entry(ids[node])
                if isinstance(entry, CustomMessage) and entry.custom_type == INBOX and isinstance(entry.details, dict):
                    self._delivered.setdefault(lane.record.number, set()).add(str(entry.details.get("send")))
                    self._returned.add(str(entry.details.get("unread")))
                elif isinstance(entry, Custom) and isinstance(sent := record_of(entry), SentMessage):
                    record = lane.record
                    self._messages.append(LaneMessage(entry.id, node, record.number, record.name, sent.to, sent.text))
            self._read = self._scanned = until


def _append(lane: Lane, text: str, details: JsonObject) -> None:
    """Append a message to a lane: it is part of the next request."""
    message = {"customType": INBOX, "content": text, "display": True, "details": details}
    lane.branch.append({"type": "custom_message", **message})


def _find_receiver(exploration: Exploration, lane: Lane, to: str) -> Lane:
    try:
        found = exploration.lane(to)
    except SessionTreeError as error:
        raise ArgumentsError(f"send: {error}") from None
    if found is lane:
        raise ArgumentsError("send: that is your own lane")
    if found.state in ENDED:
        raise ArgumentsError(f"send: the lane {found.name!r} has ended ({found.state}); not sent")
    return found


def _unambiguous_name(exploration: Exploration, lane: Lane) -> str:
    """The name of a lane, or its number where the name could mean another lane."""
    same = [other for other in exploration.lanes if lane.name in (other.name, str(other.number))]
    return lane.name if same == [lane] and lane.name != EVERYONE else str(lane.number)


def _is_for(exploration: Exploration, message: LaneMessage, lane: Lane) -> bool:
    if message.to == EVERYONE:
        return True
    try:
        return exploration.lane(message.to) is lane
    except SessionTreeError:
        return False


class SendTool(StructTool[SendArguments]):
    name = "send"
    description = (
        "Send a message to another lane, an agent that works on the same task in parallel, or with * to all others. It "
        "is read before that lane's next step. `inbox` lists the lanes."
    )
    Arguments = SendArguments

    def __init__(self, messages: LaneMessages, exploration: Exploration, lane: Lane) -> None:
        self._messages, self._exploration, self._lane = messages, exploration, lane

    def prepare(self, arguments: SendArguments, context: ToolContext) -> Plan:  # noqa: ARG002 - of a tool
        return Plan(f"send to {short(arguments.to, 40)}: {short(arguments.text)}")

    async def carry_out(self, arguments: SendArguments, context: ToolContext) -> ToolOutput:  # noqa: ARG002 - of a tool
        receivers = await self._messages.send(self._exploration, self._lane, arguments.to.strip(), arguments.text)
        return ToolOutput(f"sent to {', '.join(lane.name for lane in receivers)}")


class InboxTool(StructTool[InboxArguments]):
    name = "inbox"
    description = (
        "List the other lanes and the messages from them. `wait` is how many seconds to wait for a new one. New "
        "messages also arrive without this, before your next step."
    )
    Arguments = InboxArguments

    def __init__(self, messages: LaneMessages, exploration: Exploration, lane: Lane) -> None:
        self._messages, self._exploration, self._lane = messages, exploration, lane

    def prepare(self, arguments: InboxArguments, context: ToolContext) -> Plan:  # noqa: ARG002 - of a tool
        return Plan("look for messages" + (f", wait {arguments.wait:g} s" if arguments.wait else ""))

    async def carry_out(self, arguments: InboxArguments, context: ToolContext) -> ToolOutput:  # noqa: ARG002 - of a tool
        exploration, lane = self._exploration, self._lane
        new = await self._messages.wait(exploration, lane, arguments.wait)
        earlier = await in_thread(self._messages.delivered, exploration, lane)
        lines = ["Lanes:"]
        for other in exploration.lanes:
            you = " (you)" if other is lane else ""
            lines.append(f"  {other.number} {other.name}{you}: {other.state}; {short(other.record.prompt)}")
        lines.append(f"New messages: {len(new)}" + (", they follow." if new else "."))
        if earlier:
            lines.append(f"Earlier messages: {len(earlier)}.")
            lines += [f"  from {message.name}: {short(message.text)}" for message in earlier[-_MAX_LISTED:]]
        return ToolOutput("\n".join(lines), details={"new": len(new), "earlier": len(earlier)})
