"""Map a call from one agent to another: parse it into an intent, then render that."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from sessiontree.conversion.tools.arguments import Arguments, NoEquivalentError, as_object
from sessiontree.conversion.tools.claude import CLAUDE
from sessiontree.conversion.tools.intents import Bash, Edit, Intent, Read, Write
from sessiontree.conversion.tools.neovate import NEOVATE
from sessiontree.conversion.tools.omp import OMP
from sessiontree.conversion.tools.pi import PI
from sessiontree.conversion.tools.shared import AgentTools

FileUse: TypeAlias = Literal["read", "write", "edit"]
_FILE_USES: dict[type[Intent], FileUse] = {Read: "read", Write: "write", Edit: "edit"}

# Native sessions are written with Pi's tools.
_AGENTS: dict[str, AgentTools] = {"claude": CLAUDE, "pi": PI, "omp": OMP, "neovate": NEOVATE, "native": PI}


class FileArgument(Struct, frozen=True):
    """The argument of a tool that names the file it works on."""

    use: FileUse
    key: str
    extract_path: Callable[[str], str]

    def find_in(self, arguments: Mapping[str, Any]) -> tuple[FileUse, str] | None:
        path = arguments.get(self.key)
        file = self.extract_path(path) if isinstance(path, str) else ""
        return (self.use, file) if file else None


class Mapped(Struct, frozen=True):
    """A call for the target. `changed` lists what was left out or changed because the target has no argument for it."""

    name: str
    arguments: dict[str, Any]
    changed: tuple[str, ...] = ()


def map_call(name: str, arguments: Mapping[str, Any], source: str, target: str) -> Mapped | None:
    """The equivalent call for the target; None when there is none, and the caller keeps the call unchanged.

    Agents that share their tools, such as pi and native, need no mapping, so the result is None for them too.
    """
    agents = _find_pair(source, target)
    if agents is None:
        return None
    ours, theirs = agents
    try:
        intent, changed = _parse(name, arguments, ours)
        new_name, new_arguments, lost = _render(intent, theirs)
    except NoEquivalentError:
        return None
    if isinstance(intent, Bash) and intent.timeout_ms is not None and ours.timeout_unit != theirs.timeout_unit:
        changed.append(f"timeout in {ours.timeout_unit} became {theirs.timeout_unit}")
    changed += lost
    return Mapped(new_name, new_arguments, tuple(dict.fromkeys(changed)) if changed else ())


def map_name(name: str, source: str, target: str) -> str | None:
    """The name of the target's equivalent tool; None when it has none.

    For results whose call is unknown. A result with a known call takes the name that `map_call` gave the call, which is
    the old one if the call's arguments had no equivalent.
    """
    agents = _find_pair(source, target)
    if agents is None:
        return None
    ours, theirs = agents
    tool = ours.find_by_name(name)
    if tool is None or not tool.is_unambiguous:
        return None
    equivalent = theirs.find_current(tool.intent)
    return None if equivalent is None else equivalent.name


def share_tools(one: str, other: str) -> bool:
    """Whether two agents have the same tools under the same names."""
    return one == other or (one in _AGENTS and _AGENTS[one] is _AGENTS.get(other))


def find_intent(name: str, arguments: Mapping[str, Any], agent: str) -> Intent | None:
    """The intent of an agent's call; None when no intent can express it."""
    tools = _AGENTS.get(agent)
    if tools is None:
        return None
    try:
        return _parse(name, arguments, tools)[0]
    except NoEquivalentError:
        return None


def find_intent_type(name: str, agent: str) -> type[Intent] | None:
    """The intent type of an agent's tool, whatever its arguments; None when there is no such tool."""
    tools = _AGENTS.get(agent)
    tool = None if tools is None else tools.find_by_name(name)
    return None if tool is None else tool.intent


def find_file(name: str, arguments: Mapping[str, Any], agent: str) -> tuple[FileUse, str] | None:
    """The file that an agent's call reads, writes or edits, as named in the call; None for any other call.

    Works for more calls than `map_call`: the other arguments do not matter.
    """
    found = file_argument(name, agent)
    return None if found is None else found.find_in(arguments)


def file_argument(name: str, agent: str) -> FileArgument | None:
    """The argument of an agent's tool that names its file; None for a tool that does not work on a file."""
    tools = _AGENTS.get(agent)
    tool = None if tools is None else tools.find_by_name(name)
    use = None if tool is None else _FILE_USES.get(tool.intent)
    return None if tools is None or use is None else FileArgument(use, tools.path_key, tools.extract_path)


def _find_pair(source: str, target: str) -> tuple[AgentTools, AgentTools] | None:
    ours, theirs = _AGENTS.get(source), _AGENTS.get(target)
    if ours is None or theirs is None or ours is theirs:
        return None
    return ours, theirs


def _parse(name: str, given: Mapping[str, Any], agent: AgentTools) -> tuple[Intent, list[str]]:
    """Parse a call into its intent, and notes about what the intent leaves out."""
    tool = agent.find_by_name(name)
    if tool is None:
        raise NoEquivalentError
    arguments = Arguments(as_object(given), null_is_absent=agent.null_is_absent)
    intent = tool.parse(arguments)
    arguments.finish()
    return intent, arguments.notes


def _render(intent: Intent, agent: AgentTools) -> tuple[str, dict[str, Any], tuple[str, ...]]:
    """The tool's name, its arguments, and what the agent has no argument for."""
    tool = agent.find_current(type(intent))
    if tool is None or tool.render is None:
        raise NoEquivalentError
    arguments, lost = tool.render(intent)
    return tool.name, arguments, lost
