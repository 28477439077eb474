"""Messages between lanes: what one sends stands on its own branch, and on the other's when it has come.

    sender     … ── answer with the call ── send ── result ── …
    receiver   … ── result ── message, before the model is asked the next time ── answer ── …

A message is delivered when its receiver's branch has an entry that names the `send` entry. So it survives the end of a
process, and comes once: what was sent and is not there yet is delivered when the receiver is resumed. Lanes that have
ended hear nothing more; who sent one something that it did not read is told. Messages are texts of a model: who
receives one is told that, too.
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
from sessiontree.explore.records import INBOX, Send, record_of

EVERYONE = "*"
MOST_TEXT = 8_000
"""Characters of one message."""
MOST_SENDS = 200
"""Messages that one lane may send."""
MOST_SECONDS = 300.0
"""How long one call may wait for a message."""
_LISTED = 20
_MESSAGES = ("custom", "custom_message")
"""The types of entries that may be one, or say that one was delivered."""


class SendArguments(Struct, frozen=True, forbid_unknown_fields=True):
    to: Annotated[str, Meta(min_length=1, description="the name or number of a lane, or * for all others")]
    text: Annotated[str, Meta(min_length=1, max_length=MOST_TEXT, description="what it should know")]


class InboxArguments(Struct, frozen=True, forbid_unknown_fields=True):
    wait: Annotated[
        float, Meta(ge=0, le=MOST_SECONDS, description="seconds to wait for something new, if nothing is there")
    ] = 0.0


class Letter(Struct, frozen=True):
    """Something that was sent."""

    id: str
    """Of its `send` entry."""
    number: int
    """Of that entry in the file: who began later was not meant."""
    sender: int
    name: str
    to: str
    text: str


class Talking:
    """Lets the lanes of one exploration send messages to each other; one of its hooks."""

    def __init__(self) -> None:
        self._letters: list[Letter] = []
        self._delivered: dict[int, set[str]] = {}
        self._returned: set[str] = set()
        """What was not read by a lane that has ended, and whose sender knows."""
        self._seen = self._glanced = 0
        self._lock = threading.Lock()
        self._news: dict[int, asyncio.Event] = {}

    def tools(self, exploration: Exploration, lane: Lane) -> Sequence[Tool]:
        return SendTool(self, exploration, lane), InboxTool(self, exploration, lane)

    async def before_request(self, exploration: Exploration, lane: Lane, run: Run) -> None:  # noqa: ARG002 - of a hook
        if not self._letters and not self._has_news(exploration):
            return
        for letter in await uncancelled(in_thread(self._deliver, exploration, lane)):
            exploration.tell(lane, Delivered(letter.name, letter.text))

    def _has_news(self, exploration: Exploration) -> bool:
        """Whether there is anything to look at that could be a message. Takes no time."""
        types = exploration.session.journal.types
        start, until = self._glanced, len(types)
        if any(kind in types[start:until] for kind in _MESSAGES):
            return True
        self._glanced = until
        return False

    async def heard(self, exploration: Exploration, lane: Lane, event: Event) -> None:
        """Nothing that happens on a lane is a message."""

    async def ended(self, exploration: Exploration, lane: Lane) -> Sequence[Job]:  # noqa: ARG002 - of a hook
        self._wake()  # whoever waits may be waiting for nobody now
        return ()

    def due(self, exploration: Exploration, lane: Lane) -> list[Letter]:
        """What was sent to a lane and has not been delivered, in the order it was sent. For a thread."""
        self._look(exploration)
        begun = exploration.session.node_of(lane.start) or 0
        here = self._delivered.get(lane.number, set())
        return [
            letter
            for letter in self._letters
            if letter.sender != lane.number
            and letter.number > begun
            and letter.id not in here
            and _is_for(exploration, letter, lane)
        ]

    def delivered(self, exploration: Exploration, lane: Lane) -> list[Letter]:
        """What a lane has been told, in the order it was sent. For a thread."""
        self._look(exploration)
        here = self._delivered.get(lane.number, set())
        return [letter for letter in self._letters if letter.id in here]

    async def send(self, exploration: Exploration, lane: Lane, to: str, text: str) -> list[Lane]:
        """Send something from a lane to another, or to all others that have not ended; to whom it went."""
        await in_thread(self._look, exploration)
        if sum(letter.sender == lane.number for letter in self._letters) >= MOST_SENDS:
            raise ArgumentsError(f"send: the lane has sent {MOST_SENDS} messages, and may send no more")
        others = [one for one in exploration.lanes if one is not lane]
        if to == EVERYONE:
            meant = [one for one in others if one.state not in ENDED]
            if not meant:
                raise ArgumentsError("send: no other lane is at work, so nobody would read it")
        else:
            meant = [_found(exploration, lane, to)]
            to = _name_of(exploration, meant[0])
        await exploration.write(lane, Send(to, text))
        self._wake()
        return meant

    async def wait(self, exploration: Exploration, lane: Lane, seconds: float) -> list[Letter]:
        """What is due for a lane; if nothing is, wait for something, or until no other lane could send anything."""
        until = time.monotonic() + seconds
        news = self._news.setdefault(lane.number, asyncio.Event())
        while True:
            news.clear()
            due = await in_thread(self.due, exploration, lane)
            left = until - time.monotonic()
            alone = all(one is lane or one.state in ENDED for one in exploration.lanes)
            if due or left <= 0 or alone:
                return due
            try:
                await asyncio.wait_for(news.wait(), left)
            except TimeoutError:
                continue

    def _wake(self) -> None:
        for news in self._news.values():
            news.set()

    def _deliver(self, exploration: Exploration, lane: Lane) -> list[Letter]:
        due = self.due(exploration, lane)
        for letter in due:
            said = f"[Message from the lane {letter.name!r}, which is another agent, not the user]"
            details = {"from": letter.sender, "name": letter.name, "send": letter.id}
            _put(lane, f"{said}\n\n{letter.text[:MOST_TEXT]}", details)
        for letter in self._unread(exploration, lane):
            said = f"[The lane {letter.to!r} ended before it read your message: {short(letter.text)}]"
            _put(lane, said, {"unread": letter.id})
        return due

    def _unread(self, exploration: Exploration, sender: Lane) -> list[Letter]:
        """What a lane sent to one other that ended without having read it, and does not know of yet."""
        ended = [lane for lane in exploration.lanes if lane.state in ENDED]
        return [
            letter
            for lane in ended
            for letter in self.due(exploration, lane)
            if letter.sender == sender.number and letter.to != EVERYONE and letter.id not in self._returned
        ]

    def _look(self, exploration: Exploration) -> None:
        """Take in what was sent and delivered since the last look."""
        with self._lock:
            session, book = exploration.session, exploration.book
            until = len(session)
            book.look()
            ids = session.journal.tree.ids
            for node in range(self._seen, until):
                if session.journal.types[node] not in _MESSAGES:
                    continue
                lane = book.lane_of(ids[node])
                if lane is None or lane.plan != exploration.plan_id:
                    continue
                entry = session.entry(ids[node])
                if isinstance(entry, CustomMessage) and entry.custom_type == INBOX and isinstance(entry.details, dict):
                    self._delivered.setdefault(lane.record.number, set()).add(str(entry.details.get("send")))
                    self._returned.add(str(entry.details.get("unread")))
                elif isinstance(entry, Custom) and isinstance(sent := record_of(entry), Send):
                    record = lane.record
                    self._letters.append(Letter(entry.id, node, record.number, record.name, sent.to, sent.text))
            self._seen = self._glanced = until


def _put(lane: Lane, text: str, details: JsonObject) -> None:
    """Put something before a lane: it is part of the next request."""
    message = {"customType": INBOX, "content": text, "display": True, "details": details}
    lane.branch.append({"type": "custom_message", **message})


def _found(exploration: Exploration, lane: Lane, to: str) -> Lane:
    try:
        found = exploration.lane(to)
    except SessionTreeError as error:
        raise ArgumentsError(f"send: {error}") from None
    if found is lane:
        raise ArgumentsError("send: that is your own lane")
    if found.state in ENDED:
        raise ArgumentsError(f"send: the lane {found.name!r} has ended ({found.state}) and would not read it; not sent")
    return found


def _name_of(exploration: Exploration, lane: Lane) -> str:
    """What a lane is called in a record: its name, or where that could mean another one, its number."""
    same = [one for one in exploration.lanes if lane.name in (one.name, str(one.number))]
    return lane.name if same == [lane] and lane.name != EVERYONE else str(lane.number)


def _is_for(exploration: Exploration, letter: Letter, lane: Lane) -> bool:
    if letter.to == EVERYONE:
        return True
    try:
        return exploration.lane(letter.to) is lane
    except SessionTreeError:
        return False


class SendTool(StructTool[SendArguments]):
    name = "send"
    description = (
        "Send a message to another lane, an agent that works on the same task at the same time, or with * to all "
        "others. It is read before that lane's next step. `inbox` lists the lanes."
    )
    Arguments = SendArguments

    def __init__(self, talking: Talking, exploration: Exploration, lane: Lane) -> None:
        self._talking, self._exploration, self._lane = talking, exploration, lane

    def prepare(self, arguments: SendArguments, context: ToolContext) -> Plan:  # noqa: ARG002 - of a tool
        return Plan(f"send to {short(arguments.to, 40)}: {short(arguments.text)}")

    async def carry_out(self, arguments: SendArguments, context: ToolContext) -> ToolOutput:  # noqa: ARG002 - of a tool
        meant = await self._talking.send(self._exploration, self._lane, arguments.to.strip(), arguments.text)
        return ToolOutput(f"sent to {', '.join(one.name for one in meant)}")


class InboxTool(StructTool[InboxArguments]):
    name = "inbox"
    description = (
        "List the other lanes and the messages that came from them. With `wait`, wait so many seconds for a new one. "
        "New messages come by themselves before your next step, also without this."
    )
    Arguments = InboxArguments

    def __init__(self, talking: Talking, exploration: Exploration, lane: Lane) -> None:
        self._talking, self._exploration, self._lane = talking, exploration, lane

    def prepare(self, arguments: InboxArguments, context: ToolContext) -> Plan:  # noqa: ARG002 - of a tool
        return Plan("look for messages" + (f", wait {arguments.wait:g} s" if arguments.wait else ""))

    async def carry_out(self, arguments: InboxArguments, context: ToolContext) -> ToolOutput:  # noqa: ARG002 - of a tool
        exploration, lane = self._exploration, self._lane
        due = await self._talking.wait(exploration, lane, arguments.wait)
        earlier = await in_thread(self._talking.delivered, exploration, lane)
        lines = ["Lanes:"]
        for one in exploration.lanes:
            yours = " (you)" if one is lane else ""
            lines.append(f"  {one.number} {one.name}{yours}: {one.state}; {short(one.record.prompt)}")
        lines.append(f"New messages: {len(due)}" + (", they follow." if due else "."))
        if earlier:
            lines.append(f"Earlier messages: {len(earlier)}.")
            lines += [f"  from {letter.name}: {short(letter.text)}" for letter in earlier[-_LISTED:]]
        return ToolOutput("\n".join(lines), details={"new": len(due), "earlier": len(earlier)})
