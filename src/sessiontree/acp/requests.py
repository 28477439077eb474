"""Parameters of requests and notifications, with the protocol's names. Unknown fields are ignored."""

from __future__ import annotations

import os
from typing import Any, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from sessiontree.acp.connection import INVALID_PARAMS, RpcError
from sessiontree.agent.mcp_client import McpServer
from sessiontree.core.jsonio import JsonObject

PROTOCOL_VERSION = 1


class Params(Struct, frozen=True, rename="camel"):
    """Base class of parameters."""


class Initialize(Params, frozen=True):
    protocol_version: int
    client_capabilities: JsonObject | None = None
    client_info: JsonObject | None = None

    @property
    def shows_notices(self) -> bool:
        """Whether the client shows notices outside of the conversation."""
        session = (self.client_capabilities or {}).get("session")
        return isinstance(session, dict) and isinstance(session.get("notices"), dict)


class SessionSetup(Params, frozen=True):
    """What `session/new`, `load`, `resume` and `fork` have in common."""

    cwd: str
    additional_directories: tuple[str, ...] | None = None
    mcp_servers: tuple[JsonObject, ...] | None = None

    def check(self) -> None:
        """Check that all folders are absolute paths, as the protocol requires."""
        for folder in (self.cwd, *self.added):
            if not os.path.isabs(folder):
                raise RpcError(INVALID_PARAMS, f"{folder!r}: not an absolute path")

    @property
    def added(self) -> tuple[str, ...]:
        return self.additional_directories or ()

    def servers(self) -> tuple[dict[str, McpServer], list[str]]:
        """The MCP servers that are programs, and the names of others, which are not supported."""
        found: dict[str, McpServer] = {}
        others: list[str] = []
        for fields in self.mcp_servers or ():
            name = str(fields.get("name") or "server")
            try:
                server = msgspec.convert(fields, _StdioServer)
            except msgspec.ValidationError:
                others.append(name)
            else:
                found[name] = McpServer(server.command, server.args, {each.name: each.value for each in server.env})
        return found, others


class _Variable(Struct, frozen=True):
    name: str
    value: str


class _StdioServer(Struct, frozen=True):
    command: str
    args: tuple[str, ...] = ()
    env: tuple[_Variable, ...] = ()


class NewSession(SessionSetup, frozen=True):
    pass


class ExistingSession(SessionSetup, frozen=True, kw_only=True):
    session_id: str


class ListSessions(Params, frozen=True):
    cwd: str | None = None
    cursor: str | None = None
    archived: str | None = None


class NamedSession(Params, frozen=True):
    session_id: str


class SetMode(Params, frozen=True):
    session_id: str
    mode_id: str


class SetTitle(Params, frozen=True):
    session_id: str
    title: str


class TextContent(Params, frozen=True, tag_field="type", tag="text"):
    text: str


class ImageContent(Params, frozen=True, tag_field="type", tag="image"):
    data: str
    mime_type: str = ""


class AudioContent(Params, frozen=True, tag_field="type", tag="audio"):
    data: str = ""


class ResourceLink(Params, frozen=True, tag_field="type", tag="resource_link"):
    uri: str
    name: str = ""


class ResourceContents(Params, frozen=True):
    uri: str = ""
    text: str | None = None
    blob: str | None = None
    mime_type: str | None = None


class EmbeddedResource(Params, frozen=True, tag_field="type", tag="resource"):
    resource: ResourceContents


ContentBlock: TypeAlias = TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource


class Prompt(Params, frozen=True):
    session_id: str
    prompt: tuple[ContentBlock, ...]


ParamsT = TypeVar("ParamsT", bound=Params)


def parse_params(params: Any, type: type[ParamsT]) -> ParamsT:
    """Validate parameters; `RpcError` names the field that is wrong."""
    try:
        return msgspec.convert({} if params is None else params, type)
    except (msgspec.ValidationError, RecursionError, UnicodeEncodeError) as error:
        raise RpcError(INVALID_PARAMS, f"invalid parameters: {error}") from None
