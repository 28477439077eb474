"""What a tool is: a name, a schema of its arguments, a plan that can be shown, and a run that gives a result.

Arguments come from a model: they are untrusted and often wrong. `StructTool` checks them against a struct; what does
not fit becomes an `ArgumentsError` whose text tells the model what is expected.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
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

Changes: TypeAlias = Literal["nothing", "files", "anything"]
"""What running a tool may change: nothing, the files its plan names, or anything at all."""


class ArgumentsError(UsageError):
    """Arguments that do not fit, or ask for what cannot be done; the message is for the model."""


class ToolOutput(Struct, frozen=True):
    """The result of a call, as it goes into the session."""

    text: str
    is_error: bool = False
    details: JsonObject = {}
    """For front ends and other programs; a model is not sent them."""
    images: tuple[Image, ...] = ()


class FileWrite(Struct, frozen=True):
    """What a tool will put at a path, and what stands there now."""

    place: ResolvedPath
    data: bytes
    old: bytes | None = None
    """None when there is no file yet."""
    permissions: int | None = None
    """Of the file that is there."""


class Plan(Struct, frozen=True):
    """What a call will do, before it does anything."""

    title: str
    """One line: the command, or what is done to which file."""
    changes: Changes = "nothing"
    """What this very call may change; a command that only reads changes nothing."""
    reads: tuple[ResolvedPath, ...] = ()
    writes: tuple[FileWrite, ...] = ()
    command: str | None = None

    @property
    def places(self) -> tuple[ResolvedPath, ...]:
        return (*self.reads, *(write.place for write in self.writes))


class ToolContext(Struct, frozen=True):
    """What a tool is given to work with."""

    workspace: Workspace
    environment: Mapping[str, str] = os.environ
    """What is masked comes from here; commands of a model get it without its secrets."""
    allowed_secrets: tuple[str, ...] = ()
    """Secret variables that the user lets commands have."""
    outputs: str | None = None
    """The folder of the session for outputs that are too long to be told; without one, the rest is lost."""
    mask: Mask | None = None
    update: Callable[[str], None] | None = None
    """Hears what comes while the tool runs."""
    call_id: str = ""
    approved: Plan | None = None
    """The plan that was approved; a tool does that or nothing."""
    run: Run | None = None
    """The run that the call belongs to, for a tool that starts runs of its own: what they use counts for this one."""

    def masked(self) -> Mask:
        return self.mask if self.mask is not None else Mask(self.environment)


@runtime_checkable
class Tool(Protocol):
    """Something a model can call.

    Contract:
    * `plan` changes nothing, and is quick. It raises `ArgumentsError` for arguments that do not fit.
    * `run` does what `plan` says. It never raises for what the model did wrong: that is an output with `is_error`.
      When its task is cancelled it stops what it started, and lets `CancelledError` through.
    * `changes` is the most that any call may change; a plan may say less, never more.
    """

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def changes(self) -> Changes: ...

    @property
    def schema(self) -> JsonObject:
        """The JSON schema of the arguments: an object."""
        ...

    def plan(self, arguments: JsonObject, context: ToolContext) -> Plan: ...

    async def run(self, arguments: JsonObject, context: ToolContext) -> ToolOutput: ...


ArgumentsT = TypeVar("ArgumentsT", bound=Struct)


class StructTool(Generic[ArgumentsT]):
    """A tool whose arguments are a struct. A new one says its name and description, `prepare` and `carry_out`."""

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
        """The arguments, if they fit. Numbers and truth values may be written as texts; null means not given."""
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
    """What the system or a path refuses is told to the model like any other wrong argument."""
    try:
        yield
    except PathError as error:
        raise ArgumentsError(f"{name}: {error}") from None
    except FileNotFoundError as error:
        raise ArgumentsError(f"{name}: {error.filename}: there is no such file or folder") from None
    except OSError as error:
        raise ArgumentsError(f"{name}: {error.filename or ''}: {error.strerror or error}") from None


def schema_of(arguments: type[Struct]) -> JsonObject:
    """The schema of a struct as providers want it: one object, nothing to look up elsewhere."""
    (schema,), _ = msgspec.json.schema_components([arguments])
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    _, components = msgspec.json.schema_components([arguments])
    found = dict(components[name])
    found.pop("title", None)
    found.pop("description", None)
    found["additionalProperties"] = False
    return found


def _expected(schema: JsonObject) -> str:
    """A schema in one line."""
    required = schema.get("required", [])
    parts = []
    for name, about in schema.get("properties", {}).items():
        kind = about.get("type") or "/".join(str(one.get("type")) for one in about.get("anyOf", []))
        parts.append(f"{name}: {kind}{'' if name in required else ' (optional)'}")
    return "{" + ", ".join(parts) + "}"


async def in_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    """Wait for the disk without holding up everything else."""
    return await asyncio.to_thread(function, *arguments)


def same_writes(one: Sequence[FileWrite], other: Sequence[FileWrite]) -> bool:
    """Whether two plans put the same content at the same paths, over the same content."""
    return [(w.place.path, w.data, w.old) for w in one] == [(w.place.path, w.data, w.old) for w in other]


def short(value: object, limit: int = 80) -> str:
    """A value in one line of limited length."""
    text = " ".join((value if isinstance(value, str) else render_json(value).decode()).split())
    return text if len(text) <= limit else text[: limit - 1] + "…"
