"""The methods of the protocol: sessions are listed, opened, forked and archived; prompts go to open ones."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

import msgspec

from sessiontree import __version__
from sessiontree.acp.chat import Chat
from sessiontree.acp.connection import INVALID_PARAMS, METHOD_NOT_FOUND, NOT_FOUND, Connection, Log, RpcError
from sessiontree.acp.requests import (
    PROTOCOL_VERSION,
    ExistingSession,
    Initialize,
    ListSessions,
    NamedSession,
    NewSession,
    Prompt,
    SessionSetup,
    SetMode,
    SetTitle,
    parse_params,
)
from sessiontree.acp.session_index import ARCHIVED, DELETED, SessionIndex
from sessiontree.acp.updates import Update, replay
from sessiontree.agent.async_bridge import in_thread, uncancelled
from sessiontree.app.actions.archive import RestorePlan
from sessiontree.app.start import StartOptions, is_unsaved_demo
from sessiontree.app.workbench import Workbench
from sessiontree.archive.archive import ArchivedSession
from sessiontree.core.jsonio import JsonObject
from sessiontree.errors import NotFoundError
from sessiontree.library.summary import MAX_TITLE, cut_at_word
from sessiontree.session.session import Session
from sessiontree.settings import load_settings
from sessiontree.views.text import one_line

_REPLAYED_AT_ONCE = 64
"""Updates of a replay that are rendered in one step."""

Handler: TypeAlias = Callable[[Any], Awaitable[JsonObject]]


class Agent:
    """The methods that one client calls (`Methods`), and its open sessions."""

    def __init__(
        self,
        workbench: Workbench,
        options: StartOptions,
        connection: Connection,
        log: Log,
        *,
        allows_unstable: bool = False,
    ) -> None:
        """`options` are those of every session; the client adds the session and its folders.

        With `allows_unstable`, methods outside the protocol's stable version are also offered.
        """
        self._workbench, self._options = workbench, options
        self._connection, self._log = connection, log
        self._allows_unstable = allows_unstable
        self._index = SessionIndex(workbench)
        self._chats: dict[str, Chat] = {}
        self._shows_notices = False
        self._methods: dict[str, Handler] = {
            "initialize": self._initialize,
            "authenticate": self._authenticate,
            "session/new": self._new,
            "session/load": self._load,
            "session/resume": self._resume,
            "session/list": self._list,
            "session/close": self._close,
            "session/delete": self._delete,
            "session/set_mode": self._set_mode,
            "session/prompt": self._prompt,
        }
        if allows_unstable:
            self._methods |= {
                "session/fork": self._fork,
                "session/set_title": self._set_title,
                "session/archive": self._archive,
                "session/unarchive": self._unarchive,
            }

    async def call(self, method: str, params: Any) -> JsonObject:
        handler = self._methods.get(method)
        if handler is None:
            raise RpcError(METHOD_NOT_FOUND, f"no method is named {one_line(method)}")
        return await handler(params)

    async def notify(self, method: str, params: Any) -> None:
        if method == "session/cancel":
            chat = self._chats.get(parse_params(params, NamedSession).session_id)
            if chat is not None:
                chat.cancel()

    async def close(self) -> None:
        """Interrupt all prompts, and close all sessions."""
        chats, self._chats = self._chats, {}
        await asyncio.gather(*(chat.close() for chat in chats.values()))

    # The connection

    async def _initialize(self, params: Any) -> JsonObject:
        given = parse_params(params, Initialize)
        self._shows_notices = given.shows_notices
        session: JsonObject = {"list": {}, "resume": {}, "close": {}, "delete": {}, "additionalDirectories": {}}
        if self._allows_unstable:
            session |= {"fork": {}, "title": {}, "archive": {}}
        return {
            "protocolVersion": PROTOCOL_VERSION,
            "agentInfo": {"name": "sessiontree", "title": "sessiontree", "version": __version__},
            "authMethods": [],
            "agentCapabilities": {
                "loadSession": True,
                "promptCapabilities": {"image": True, "audio": False, "embeddedContext": True},
                "mcpCapabilities": {"http": False, "sse": False},
                "sessionCapabilities": session,
            },
        }

    async def _authenticate(self, _: Any) -> JsonObject:
        raise RpcError(
            INVALID_PARAMS,
            "no login is needed: keys of providers are read from the environment, such as ANTHROPIC_API_KEY",
        )

    # Sessions

    async def _new(self, params: Any) -> JsonObject:
        given = parse_params(params, NewSession)
        chat = await self._chat("", given, None)
        controller = await chat.open()
        chat.id = controller.session.id
        self._chats[chat.id] = chat
        return {"sessionId": chat.id, "modes": chat.modes}

    async def _load(self, params: Any) -> JsonObject:
        """Open a session, and send its history before the answer."""
        given = parse_params(params, ExistingSession)
        session = await self._open(given)
        try:
            updates = replay(session, given.cwd, self._chats[given.session_id].call_ids)
            while part := await in_thread(_next_part, updates):
                for update in part:
                    await self._connection.notify("session/update", {"sessionId": given.session_id, "update": update})
        finally:
            await uncancelled(in_thread(session.close))
        return {"modes": self._chats[given.session_id].modes}

    async def _resume(self, params: Any) -> JsonObject:
        given = parse_params(params, ExistingSession)
        session = await self._open(given)
        await uncancelled(in_thread(session.close))
        return {"modes": self._chats[given.session_id].modes}

    async def _open(self, given: ExistingSession) -> Session:
        """Add a session to the open ones; returns it for reading."""
        given.check()
        await self._close_chat(given.session_id)
        summary = await in_thread(self._index.find, given.session_id)
        session = await in_thread(self._workbench.open_session, summary)
        self._chats[given.session_id] = await self._chat(given.session_id, given, summary.ref)
        return session

    async def _fork(self, params: Any) -> JsonObject:
        given = parse_params(params, ExistingSession)
        given.check()
        ref, id = await uncancelled(in_thread(self._forked, given.session_id))
        self._chats[id] = await self._chat(id, given, ref)
        return {"sessionId": id, "modes": self._chats[id].modes}

    def _forked(self, id: str) -> tuple[str, str]:
        """Fork a session; returns the reference and the id of the new one."""
        done = self._workbench.plan("fork", self._index.find(id)).do()
        forked: Session = done.result.session
        try:
            return str(forked.ref), forked.id
        finally:
            forked.close()
            if done.session is not None:
                done.session.close()

    async def _list(self, params: Any) -> JsonObject:
        given = parse_params(params, ListSessions)
        if given.cwd is not None and not os.path.isabs(given.cwd):
            raise RpcError(INVALID_PARAMS, f"cwd {given.cwd!r}: not an absolute path")
        archived = given.archived if self._allows_unstable else None
        return await in_thread(
            lambda: self._index.page(given.cwd, given.cursor, archived, shows_archive=self._allows_unstable)
        )

    async def _close(self, params: Any) -> JsonObject:
        id = parse_params(params, NamedSession).session_id
        if not await self._close_chat(id):
            raise RpcError(NOT_FOUND, f"no open session has the id {one_line(id)}")
        return {}

    async def _close_chat(self, id: str) -> bool:
        chat = self._chats.pop(id, None)
        if chat is not None:
            await chat.close()
        return chat is not None

    async def _delete(self, params: Any) -> JsonObject:
        """Move a session to the archive, where it can be restored from."""
        id = parse_params(params, NamedSession).session_id
        if await self._close_draft(id):
            return {}
        archived = await uncancelled(in_thread(self._move_to_archive, id, DELETED))
        return {"_meta": {"sessiontree": {"restore": f"sessiontree restore {archived.item.id}"}}}

    async def _close_draft(self, id: str) -> bool:
        """Close a session; returns whether it was a draft, of which nothing was written."""
        chat = self._chats.get(id)
        was_draft = chat is not None and chat.is_draft
        await self._close_chat(id)
        return was_draft

    def _move_to_archive(self, id: str, why: str) -> ArchivedSession:
        session = self._workbench.open_session(self._index.find(id))
        try:
            plan = self._workbench.plan("archive", session, why=why)
        finally:
            session.close()
        moved: ArchivedSession = plan.do().result
        return moved

    async def _archive(self, params: Any) -> JsonObject:
        id = parse_params(params, NamedSession).session_id
        if not await self._close_draft(id):
            await uncancelled(in_thread(self._archive_known, id))
        return {}

    def _archive_known(self, id: str) -> None:
        """Archive a session, unless it is archived already."""
        try:
            self._move_to_archive(id, ARCHIVED)
        except NotFoundError:
            if self._index.find_archived(id) is None:
                raise

    async def _unarchive(self, params: Any) -> JsonObject:
        await uncancelled(in_thread(self._restore, parse_params(params, NamedSession).session_id))
        return {}

    def _restore(self, id: str) -> None:
        item = self._index.find_archived(id)
        if item is None:
            self._index.find(id)  # not archived: nothing to do, unless it does not exist
        else:
            RestorePlan(self._workbench.home, item).do()

    async def _set_title(self, params: Any) -> JsonObject:
        given = parse_params(params, SetTitle)
        title = cut_at_word(one_line(given.title), MAX_TITLE)
        if not title:
            raise RpcError(INVALID_PARAMS, "the title is empty")
        chat = self._chats.get(given.session_id)
        if chat is not None and chat.is_draft:
            await chat.rename(title)
        else:
            await uncancelled(in_thread(self._rename, given.session_id, title))
        return {"title": title}

    def _rename(self, id: str, title: str) -> None:
        session = self._workbench.open_session(self._index.find(id))
        try:
            self._workbench.plan("rename", session, name=title).do()
        finally:
            session.close()

    async def _chat(self, id: str, given: SessionSetup, ref: str | None) -> Chat:
        """A session with the folders and servers of the client. Its controller is not open yet."""
        given.check()
        servers, unsupported = given.servers()
        loaded = await in_thread(load_settings, given.cwd, self._options.home)
        notes = [str(notice) for notice in loaded.warnings]
        notes += [f"MCP server {name}: only servers started as programs are supported" for name in unsupported]
        options = msgspec.structs.replace(
            self._options,
            cwd=given.cwd,
            settings=loaded.settings,
            session=ref,
            in_memory=self._options.in_memory
            or (ref is None and is_unsaved_demo(self._options.model, loaded.settings)),
            added=(*self._options.added, *given.added),
            mcp_servers=servers,
        )
        return Chat(id, options, self._connection, self._log, shows_notices=self._shows_notices, notes=notes)

    # Open sessions

    async def _set_mode(self, params: Any) -> JsonObject:
        given = parse_params(params, SetMode)
        await self._find_open(given.session_id).set_mode(given.mode_id)
        return {}

    async def _prompt(self, params: Any) -> JsonObject:
        given = parse_params(params, Prompt)
        return {"stopReason": await self._find_open(given.session_id).prompt(given.prompt)}

    def _find_open(self, id: str) -> Chat:
        chat = self._chats.get(id)
        if chat is None:
            raise RpcError(NOT_FOUND, f"no open session has the id {one_line(id)}; load or resume it first")
        return chat


def _next_part(updates: Any) -> Sequence[Update]:
    return list(itertools.islice(updates, _REPLAYED_AT_ONCE))
