"""The interface of tools: a name, a schema for arguments, a plan to show for approval, and a run with a result.

`Tools` is a collection of them: those of entry points, and those added at run time, such as the tools of MCP servers.

Arguments come from a model: they are untrusted and often wrong. `StructTool` validates them with a struct; an invalid
argument raises `ArgumentsError`, whose message describes the expected schema to the model.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Protocol, TypeAlias, TypeVar, runtime_checkable

import msgspec
from msgspec import Struct

from sessiontree.agent.workspace import ResolvedPath, Workspace
from sessiontree.core.jsonio import JsonObject, render_json
from sessiontree.core.messages import Image
from sessiontree.errors import PathError, UsageError
from sessiontree.secrets.environment import Mask

if TYPE_CHECKING:
    from sessiontree.agent.loop import Run

from sessiontree import plugins
from sessiontree.errors import NotFoundError
from sessiontree.stores.contract import BlobStore

Changes: TypeAlias = Literal["nothing", "files", "anything"]
"""What running a tool may change: nothing, the files its plan names, or anything at all."""
_name = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
"""Names that every provider accepts."""


class ArgumentsError(UsageError):
    """Invalid arguments, or a request that cannot be fulfilled; the message is for the model."""


class ToolOutput(Struct, frozen=True):
    """The result of a call, as it is written to the session."""

    text: str
    is_error: bool = False
    details: JsonObject = {}
    """For front ends and other programs; not sent to the model."""
    images: tuple[Image, ...] = ()


class FileWrite(Struct, frozen=True):
    """The planned content of a file, and its current one."""

    target: ResolvedPath
    data: bytes
    old: bytes | None = None
    """None if the file does not exist yet."""
    permissions: int | None = None
    """Of the existing file."""


class Plan(Struct, frozen=True):
    """What a call is going to do."""

    title: str
    """One line: the command, or the action and the file."""
    changes: Changes = "nothing"
    """What this call may change; nothing for a command that only reads."""
    reads: tuple[ResolvedPath, ...] = ()
    writes: tuple[FileWrite, ...] = ()
    command: str | None = None


class ToolContext(Struct, frozen=True):
    """The environment of a call."""

    workspace: Workspace
    environment: Mapping[str, str] = os.environ
    """The user's variables. Their secrets are masked in output, and removed for commands of a model."""
    allowed_secrets: tuple[str, ...] = ()
    """Secret variables that commands may have, by the user's choice."""
    outputs: str | BlobStore | None = None
    """The session's folder or blobs for output that is too long for a result; without either, it is truncated."""
    mask: Mask | None = None
    update: Callable[[str], None] | None = None
    """Receives output while the tool runs."""
    call_id: str = ""
    approved: Plan | None = None
    """The plan that was approved; the tool must do exactly that, or nothing."""
    sandbox: bool = True
    """Whether commands that need no approval run in a sandbox, where the system has one."""
    run: Run | None = None
    """The run of the call. A tool that starts runs of its own charges their usage to it."""

    def masked(self) -> Mask:
        return self.mask if self.mask is not None else Mask(self.environment)


@runtime_checkable
class Tool(Protocol):
    """A tool that a model can call.

    Contract:
    * `plan` changes nothing and is fast. It raises `ArgumentsError` for invalid arguments.
    * `run` does what `plan` returned. Mistakes of the model are an output with `is_error`, not an exception. When its
      task is cancelled, it stops what it started and lets `CancelledError` pass.
    * `changes` is an upper bound; the plan of a call may be stricter.
    """

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def changes(self) -> Changes: ...

    @property
    def schema(self) -> JsonObject:
        """The JSON schema of the arguments, of type object."""
        ...

    def plan(self, arguments: JsonObject, context: ToolContext) -> Plan: ...

    async def run(self, arguments: JsonObject, context: ToolContext) -> ToolOutput: ...


ArgumentsT = TypeVar("ArgumentsT", bound=Struct)


class StructTool(Generic[ArgumentsT]):
    """Base class of tools whose arguments are a struct. Subclasses define the attributes, `prepare` and `carry_out`."""

    name: ClassVar[str]
    description: ClassVar[str]
    changes: ClassVar[Changes] = "nothing"
    Arguments: type[ArgumentsT]

    @functools.cached_property
    def schema(self) -> JsonObject:
        return schema_of(self.Arguments)

    def plan(self, arguments: JsonObject, context: ToolContext) -> Plan:
        with _failures_as_arguments(self.name):
            return self.prepare(self.parse(arguments), context)

    async def run(self, arguments: JsonObject, context: ToolContext) -> ToolOutput:
        try:
            with _failures_as_arguments(self.name):
                return await self.carry_out(self.parse(arguments), context)
        except ArgumentsError as error:
            return ToolOutput(str(error), is_error=True)

    def parse(self, arguments: JsonObject) -> ArgumentsT:
        """Validate arguments. Numbers and booleans may be strings; null means not given."""
        given = {name: value for name, value in arguments.items() if value is not None}
        try:
            return msgspec.convert(given, self.Arguments, strict=False)
        except (msgspec.ValidationError, UnicodeEncodeError, RecursionError) as error:
            raise ArgumentsError(f"{self.name}: {error}. Expected: {_expected(self.schema)}") from None

    def prepare(self, arguments: ArgumentsT, context: ToolContext) -> Plan:
        raise NotImplementedError

    async def carry_out(self, arguments: ArgumentsT, context: ToolContext) -> ToolOutput:
        raise NotImplementedError


@contextlib.contextmanager
def _failures_as_arguments(name: str) -> Iterator[None]:
    """Convert errors of paths and the file system to `ArgumentsError`."""
    try:
        yield
    except PathError as error:
        raise ArgumentsError(f"{name}: {error}") from None
    except FileNotFoundError as error:
        raise ArgumentsError(f"{name}: {error.filename}: no such file or folder") from None
    except OSError as error:
        raise ArgumentsError(f"{name}: {error.filename or ''}: {error.strerror or error}") from None


def schema_of(arguments: type[Struct]) -> JsonObject:
    """The JSON schema of a struct as providers require it: one object, with nested structs in place of references.

    Only a struct that contains itself cannot be inlined; it is defined once, in `$defs`.
    """
    (schema,), components = msgspec.json.schema_components([arguments], ref_template=_REFERENCE)
    recursive: set[str] = set()
    name = _referenced(schema)
    assert name is not None
    found = _inlined(components[name], components, (name,), recursive)
    found.pop("title", None)
    found.pop("description", None)
    found["additionalProperties"] = False
    definitions: JsonObject = {}
    while missing := sorted(recursive - definitions.keys()):
        for other in missing:
            definitions[other] = _inlined(components[other], components, (other,), recursive)
    return {**found, "$defs": definitions} if definitions else found


_REFERENCE = "#/$defs/{name}"


def _referenced(schema: JsonObject) -> str | None:
    """The name of the component that a schema refers to."""
    reference = schema.get("$ref")
    return reference.removeprefix(_REFERENCE.format(name="")) if isinstance(reference, str) else None


def _inlined(schema: Any, components: JsonObject, inside: tuple[str, ...], recursive: set[str]) -> Any:
    """A schema with its references inlined, except those to the components that contain it (`inside`)."""
    if isinstance(schema, list):
        return [_inlined(item, components, inside, recursive) for item in schema]
    if not isinstance(schema, dict):
        return schema
    name = _referenced(schema)
    if name in inside:
        recursive.add(name)
        return dict(schema)
    inner = {key: _inlined(value, components, inside, recursive) for key, value in schema.items() if key != "$ref"}
    if name is None:
        return inner
    return {**_inlined(components[name], components, (*inside, name), recursive), **inner}


def _expected(schema: JsonObject) -> str:
    """A schema on one line."""
    required = schema.get("required", [])
    parts = []
    for name, about in schema.get("properties", {}).items():
        kind = about.get("type") or "/".join(str(option.get("type")) for option in about.get("anyOf", []))
        parts.append(f"{name}: {kind}{'' if name in required else ' (optional)'}")
    return "{" + ", ".join(parts) + "}"


def same_writes(left: Sequence[FileWrite], right: Sequence[FileWrite]) -> bool:
    """Whether two plans write the same content to the same paths, over the same content."""
    return [(w.target.path, w.data, w.old) for w in left] == [(w.target.path, w.data, w.old) for w in right]


def short(value: object, limit: int = 80) -> str:
    """A value on one line of limited length."""
    text = " ".join((value if isinstance(value, str) else render_json(value).decode()).split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


class Tools:
    """Tools by name, in the order they were added."""

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        for tool in tools:
            self.add(tool)

    def add(self, tool: Tool) -> None:
        """Add a tool; `UsageError` if its name is invalid or taken."""
        if not _name.match(tool.name):
            raise UsageError(f"{tool.name!r} is not a valid tool name: use at most 64 letters, digits, '_' and '-'")
        if tool.name in self._tools:
            raise UsageError(f"two tools are named {tool.name!r}")
        self._tools[tool.name] = tool

    def remove(self, name: str) -> None:
        self._tools.pop(name, None)

    def find(self, name: str) -> Tool | None:
        return self._tools.get(name)

    def __getitem__(self, name: str) -> Tool:
        tool = self._tools.get(name)
        if tool is None:
            raise NotFoundError(f"no tool is named {name!r}; available: {', '.join(self._tools) or 'none'}")
        return tool

    def __iter__(self) -> Iterator[Tool]:
        return iter(list(self._tools.values()))

    def __len__(self) -> int:
        return len(self._tools)

    @property
    def names(self) -> list[str]:
        return list(self._tools)


def load_tools(names: Iterable[str] | None = None) -> Tools:
    """Load the tools of all installed packages, or only those of the given names."""
    tools = Tools()
    for name in plugins.names("tools") if names is None else names:
        tool = plugins.load("tools", name)
        if not isinstance(tool, Tool):
            raise UsageError(f"the entry point {name!r} in sessiontree.tools is not a tool: {tool!r}")
        tools.add(tool)
    return tools
