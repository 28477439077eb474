"""One open session: its controller, the prompt in progress, and the questions to the user.

A session is loaded without a controller, so that it can be read without a model. The controller is opened by the first
prompt. Then the user is asked about approvals and a model that only the session file claims, as in every chat.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import os
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, get_args

from sessiontree.acp.connection import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    Connection,
    ConnectionClosedError,
    Log,
    RpcError,
)
from sessiontree.acp.requests import (
    AudioContent,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
)
from sessiontree.acp.updates import CallIds, CallRenderer, RunUpdates, Update, modes_of, note_update
from sessiontree.agent.approval import Question, Reply
from sessiontree.agent.async_bridge import in_thread, uncancelled
from sessiontree.agent.controller import Controller
from sessiontree.agent.events import AgentEnd, Failed, TurnEnd
from sessiontree.agent.tool_calls import PendingCall, Resolution, pending_calls
from sessiontree.agent.tools.tool_table import runnable_call
from sessiontree.app.context_use import measure_context
from sessiontree.app.start import StartOptions, open_controller
from sessiontree.chat.event_printer import describe_call
from sessiontree.core.entries import ApprovalMode
from sessiontree.core.jsonio import JsonObject
from sessiontree.errors import UsageError

StopReason: TypeAlias = Literal["end_turn", "max_tokens", "max_turn_requests", "cancelled"]

_ONCE, _ALWAYS, _NO = "once", "always", "no"
_YES_OR_NO = (("Yes", _ONCE, "allow_once"), ("No", _NO, "reject_once"))


class Chat:
    """An open session. Also the `Approver` of its runs."""

    def __init__(
        self,
        id: str,
        options: StartOptions,
        connection: Connection,
        log: Log,
        *,
        shows_notices: bool = False,
        notes: Sequence[str] = (),
    ) -> None:
        """`notes` are messages for the user that the first prompt shows."""
        self.id = id
        self._options, self._connection, self._log = options, connection, log
        self._shows_notices = shows_notices
        self._notes = list(notes)
        self._controller: Controller | None = None
        self._opening: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[Controller] | None = None
        self._closing = asyncio.Event()
        self._turn: asyncio.Task[StopReason] | None = None
        self.call_ids = CallIds()
        self._updates: RunUpdates | None = None
        self._title = ""
        self._mode: ApprovalMode = options.approval or "default"

    @property
    def modes(self) -> JsonObject:
        return modes_of(self._mode)

    # The controller

    async def open(self) -> Controller:
        """The controller; opened by the first call. A failure is raised, and the next call tries again."""
        if self._controller is not None:
            return self._controller
        if self._ready is None:
            if not os.path.isdir(self._options.cwd):
                raise UsageError(f"{self._options.cwd}: the working folder does not exist")
            self._ready = asyncio.get_running_loop().create_future()
            self._opening = asyncio.ensure_future(self._hold(self._ready))
        try:
            return await asyncio.shield(self._ready)
        except asyncio.CancelledError:
            if self._controller is None and self._opening is not None:
                self._opening.cancel()
                # Until it has ended, the next prompt would wait for the same start, and be cancelled with it.
                await uncancelled(asyncio.wait([self._opening]))
            raise

    async def _hold(self, ready: asyncio.Future[Controller]) -> None:
        """Keep the controller open until the session is closed. The task that starts MCP servers has to stop them."""
        try:
            async with open_controller(self._options, self, self._confirm) as started:
                controller = self._controller = started.controller
                self._notes += started.notes
                self._title = controller.state.title
                ready.set_result(controller)
                await self._closing.wait()
        except asyncio.CancelledError:
            ready.cancel()
        except Exception as error:  # noqa: BLE001 - raised by `open`
            if ready.done():
                self._log(f"{self.id}: closing the session failed: {error}")
            else:
                ready.set_exception(error)
        finally:
            self._controller = self._ready = None

    async def close(self) -> None:
        """Interrupt the prompt in progress, and free everything."""
        self.cancel()
        if self._turn is not None:
            await asyncio.wait([self._turn])
        self._closing.set()
        if self._opening is not None:
            if self._controller is None:
                self._opening.cancel()
            await asyncio.wait([self._opening])

    # Settings

    async def set_mode(self, mode: str) -> None:
        if mode not in get_args(ApprovalMode):
            raise RpcError(INVALID_PARAMS, f"no mode is named {mode!r}; modes: {', '.join(get_args(ApprovalMode))}")
        controller = await self.open()
        await controller.choose_mode(mode)  # type: ignore[arg-type]  # compared above
        self._mode = controller.state.approval

    async def rename(self, title: str) -> None:
        """Name a session that exists only in this process until its first prompt."""
        controller = await self.open()
        await controller.rename(title)
        self._title = controller.state.title

    @property
    def is_draft(self) -> bool:
        """Whether the session has no file yet."""
        return self._controller is not None and self._controller.session.is_pending

    # Prompts

    async def prompt(self, blocks: Sequence[ContentBlock]) -> StopReason:
        if self._turn is not None:
            raise RpcError(INVALID_REQUEST, "a prompt is in progress in this session; wait for its end, or cancel it")
        turn = self._turn = asyncio.ensure_future(self._run(blocks))
        try:
            try:
                # Shielded: `cancel` interrupts the run, so that it records its unfinished calls.
                return await asyncio.shield(turn)
            except asyncio.CancelledError:
                self.cancel()  # the request or the turn was cancelled, or the connection is closing
                with contextlib.suppress(asyncio.CancelledError):
                    await uncancelled(asyncio.wait([turn]))
                if not turn.cancelled() and turn.exception() is not None:
                    self._log(f"{self.id}: the prompt was cancelled: {turn.exception()}")
                return "cancelled"
        finally:
            self._turn = None

    def cancel(self) -> None:
        """Interrupt the prompt in progress, even while it waits for the user's answer."""
        if self._turn is None:
            return
        if self._controller is None or not self._controller.interrupt():
            self._turn.cancel()

    async def _run(self, blocks: Sequence[ContentBlock]) -> StopReason:
        controller = await self.open()
        await self._send_notes()
        await self._send_mode()
        text = compose_prompt(controller, blocks)
        pending = await self._decide_pending(controller) if controller.state.pending else None
        if self._updates is None:
            self._updates = RunUpdates(self._calls(controller), self.call_ids, shows_notices=self._shows_notices)
        updates = self._updates
        end: AgentEnd | None = None
        kind, stop = "", ""
        async with contextlib.aclosing(controller.send(text, pending=pending)) as events:
            async for event in events:
                for update in updates.render(event):
                    await self._update(update)
                match event:
                    case TurnEnd():
                        stop = event.stop_reason
                        await self._send_usage(controller)
                    case Failed():
                        kind = event.kind
                    case AgentEnd():
                        end = event
        await self._send_notes()
        await self._send_mode()
        await self._send_title(controller)
        assert end is not None
        return _stop_reason(end, stop, kind)

    async def _send_notes(self) -> None:
        """Show messages about the session: in the client, and in its log."""
        controller = self._controller
        if controller is not None and controller.state.notice:
            self._notes.append(controller.state.notice)
            controller.store.set(notice="")
        notes, self._notes = self._notes, []
        for note in notes:
            self._log(f"{self.id}: {note}")
            await self._update(note_update(note, as_notice=self._shows_notices))

    async def _send_mode(self) -> None:
        """Report a mode that the user accepted with the session."""
        controller = self._controller
        if controller is not None and controller.state.approval != self._mode:
            self._mode = controller.state.approval
            await self._update({"sessionUpdate": "current_mode_update", "currentModeId": self._mode})

    async def _send_title(self, controller: Controller) -> None:
        title = controller.state.title
        if title and title != self._title:
            self._title = title
            await self._update({"sessionUpdate": "session_info_update", "title": title})

    async def _send_usage(self, controller: Controller) -> None:
        """Report the size of the context, if the window of the model is known."""
        window = controller.model.facts.window
        if window:
            used = await in_thread(measure_context, controller)
            await self._update({"sessionUpdate": "usage_update", "used": used.tokens, "size": window})

    async def _update(self, update: Update) -> None:
        await self._connection.notify("session/update", {"sessionId": self.id, "update": update})

    # Questions

    async def ask(self, question: Question) -> Reply:
        """Ask for the approval of a call (`Approver`)."""
        options = [("Allow once", _ONCE, "allow_once"), ("Reject", _NO, "reject_once")]
        if question.may_always:
            options.insert(1, (f"Always allow {question.tool} in this session", _ALWAYS, "allow_always"))
        controller = self._controller
        assert controller is not None
        id = self.call_ids.find(question.call_id) if question.call_id else self._question_id()
        return await self._request(self._calls(controller).asked(question, id), options)

    def _calls(self, controller: Controller) -> CallRenderer:
        return CallRenderer(controller.session.dialect.name, controller.cwd)

    async def _confirm(self, question: str) -> bool:
        """Ask a yes-or-no question about settings that a session file contains."""
        call: JsonObject = {"toolCallId": self._question_id(), "title": question, "kind": "other", "status": "pending"}
        return (await self._request(call, _YES_OR_NO)).answer != "no"

    async def _decide_pending(self, controller: Controller) -> dict[str, Resolution]:
        """Ask about each call of an earlier run without a result. Nothing is run again without the user's choice."""
        session, tools = controller.session, controller.tools
        found: dict[str, Resolution] = {}
        for pending in await in_thread(pending_calls, session):
            can_run = runnable_call(pending.call, session.dialect.name, tools) is not None
            found[pending.call.id] = "run" if can_run and await self._wants_run(pending) else "skip"
        return found

    async def _wants_run(self, pending: PendingCall) -> bool:
        state = "it had started to change files" if pending.had_begun else "it may have completed"
        title = f"No result of an earlier call ({state}): {describe_call(pending.call)}"
        call: JsonObject = {"toolCallId": self._question_id(), "title": title, "kind": "other", "status": "pending"}
        options = (("Run it again", _ONCE, "allow_once"), ("Record it as not run", _NO, "reject_once"))
        return (await self._request(call, options)).answer != "no"

    def _question_id(self) -> str:
        return self.call_ids.start("question")

    async def _request(self, call: JsonObject, options: Sequence[tuple[str, str, str]]) -> Reply:
        shown = [{"optionId": id, "name": name, "kind": kind} for name, id, kind in options]
        params = {"sessionId": self.id, "toolCall": call, "options": shown}
        try:
            answer = await self._connection.request("session/request_permission", params)
        except RpcError as error:
            return Reply("no", f"the client could not ask the user: {error.message}")
        except ConnectionClosedError:
            return Reply("no", "the client has ended")
        outcome = answer.get("outcome") if isinstance(answer, dict) else None
        return self._reply(outcome if isinstance(outcome, dict) else {}, {id for _, id, _ in options})

    def _reply(self, outcome: dict[str, Any], offered: set[str]) -> Reply:
        if outcome.get("outcome") == "cancelled":
            self.cancel()
            return Reply("no", "the prompt was cancelled")
        chosen = outcome.get("optionId")
        if outcome.get("outcome") != "selected" or chosen not in offered:
            return Reply("no", "the client chose none of the options")
        match chosen:
            case "once":
                return Reply("once")
            case "always":
                return Reply("always")
            case _:
                return Reply("no")


def compose_prompt(controller: Controller, blocks: Sequence[ContentBlock]) -> str:
    """A prompt as the user would type it: images and long resources are pasted, links are named."""
    parts: list[str] = []
    for block in blocks:
        match block:
            case TextContent():
                parts.append(block.text)
            case ImageContent():
                parts.append(controller.paste_image(_decoded(block.data)))
            case ResourceLink():
                parts.append(f"[@{block.name or block.uri}]({block.uri})")
            case EmbeddedResource(resource=resource) if resource.text is not None:
                parts.append(f"\n[{resource.uri}]\n{controller.paste_text(resource.text)}\n")
            case EmbeddedResource(resource=resource) if (resource.mime_type or "").startswith("image/"):
                parts.append(controller.paste_image(_decoded(resource.blob or "")))
            case EmbeddedResource(resource=resource):
                parts.append(f"[{resource.uri}] (binary content that models cannot read)")
            case AudioContent():
                raise RpcError(INVALID_PARAMS, "audio is not supported; see promptCapabilities")
    text = "".join(parts)
    if not text.strip():
        raise RpcError(INVALID_PARAMS, "the prompt is empty")
    return text


def _decoded(data: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise RpcError(INVALID_PARAMS, "an image is not valid base64") from None


def _stop_reason(end: AgentEnd, stop: str, kind: str) -> StopReason:
    match end.reason:
        case "interrupted":
            return "cancelled"
        case "limit":
            return "max_turn_requests"
        case "error":
            raise RpcError(INTERNAL_ERROR, end.why or "the run failed", {"kind": kind} if kind else None)
        case _:
            return "max_tokens" if stop == "length" else "end_turn"
