"""The agents' tables together, and a call taken from one of them to another: read into a meaning, then worded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from sessiontree.conversion.tools.arguments import Arguments, NoEquivalentError, as_object
from sessiontree.conversion.tools.claude import CLAUDE
from sessiontree.conversion.tools.intents import Bash, Edit, Meaning, Read, Write
from sessiontree.conversion.tools.neovate import NEOVATE
from sessiontree.conversion.tools.omp import OMP
from sessiontree.conversion.tools.pi import PI
from sessiontree.conversion.tools.shared import AgentTools

FileUse: TypeAlias = Literal["read", "write", "edit"]
_FILE_USES: dict[type[Meaning], FileUse] = {Read: "read", Write: "write", Edit: "edit"}

# Native sessions are written with Pi's tools.
_AGENTS: dict[str, AgentTools] = {"claude": CLAUDE, "pi": PI, "omp": OMP, "neovate": NEOVATE, "native": PI}


class FileArgument(Struct, frozen=True):
    """Where the calls of a tool name the file that they are about."""

    use: FileUse
    key: str
    file_in: Callable[[str], str]

    def found_in(self, arguments: Mapping[str, Any]) -> tuple[FileUse, str] | None:
        path = arguments.get(self.key)
        file = self.file_in(path) if isinstance(path, str) else ""
        return (self.use, file) if file else None


class Mapped(Struct, frozen=True):
    """A call in the target's words. `changed` says what the target cannot say, so that it was left out or changed."""

    name: str
    arguments: dict[str, Any]
    changed: tuple[str, ...] = ()


def map_call(name: str, arguments: Mapping[str, Any], source: str, target: str) -> Mapped | None:
    """The same call in the target agent's words; None when there is no true equivalent (the caller keeps it as it is).

    Agents that share their tools, such as pi and native, need no mapping, so the answer is None for them too.
    """
    agents = _find_pair(source, target)
    if agents is None:
        return None
    ours, theirs = agents
    try:
        meaning, changed = _parse(name, arguments, ours)
        new_name, new_arguments, not_said = _word(meaning, theirs)
    except NoEquivalentError:
        return None
    if isinstance(meaning, Bash) and meaning.timeout_ms is not None and ours.timeout_unit != theirs.timeout_unit:
        changed.append(f"timeout in {ours.timeout_unit} became {theirs.timeout_unit}")
    changed += not_said
    return Mapped(new_name, new_arguments, tuple(dict.fromkeys(changed)) if changed else ())


def map_name(name: str, source: str, target: str) -> str | None:
    """What the target calls the tool of this name; None when it has none.

    For results whose call is not known. A result whose call is known takes the name that `map_call` gave the call,
    which stays the old one where the call's arguments had no equivalent.
    """
    agents = _find_pair(source, target)
    if agents is None:
        return None
    ours, theirs = agents
    tool = ours.find_by_name(name)
    if tool is None or not tool.sure_by_name:
        return None
    equivalent = theirs.find_current(tool.means)
    return None if equivalent is None else equivalent.name


def share_tools(one: str, other: str) -> bool:
    """Whether two agents call the same tools by the same names."""
    return one == other or (one in _AGENTS and _AGENTS[one] is _AGENTS.get(other))


def find_meaning(name: str, arguments: Mapping[str, Any], agent: str) -> Meaning | None:
    """What a call of this agent asks for; None when it cannot be said in the canonical form."""
    tools = _AGENTS.get(agent)
    if tools is None:
        return None
    try:
        return _parse(name, arguments, tools)[0]
    except NoEquivalentError:
        return None


def find_purpose(name: str, agent: str) -> type[Meaning] | None:
    """What this agent's tool of a name is for, whatever a call of it says; None when it has no such tool."""
    tools = _AGENTS.get(agent)
    tool = None if tools is None else tools.find_by_name(name)
    return None if tool is None else tool.means


def find_file(name: str, arguments: Mapping[str, Any], agent: str) -> tuple[FileUse, str] | None:
    """The file that a call of this agent reads, writes or edits, as the call names it; None when it does none of that.

    More calls tell this than have an equivalent: what the tool is to do with the file does not matter here.
    """
    way = file_argument(name, agent)
    return None if way is None else way.found_in(arguments)


def file_argument(name: str, agent: str) -> FileArgument | None:
    """How calls of this agent's tool of a name tell their file; None when it reads, writes and edits none."""
    tools = _AGENTS.get(agent)
    tool = None if tools is None else tools.find_by_name(name)
    use = None if tool is None else _FILE_USES.get(tool.means)
    return None if tools is None or use is None else FileArgument(use, tools.path_key, tools.file_in)


def _find_pair(source: str, target: str) -> tuple[AgentTools, AgentTools] | None:
    ours, theirs = _AGENTS.get(source), _AGENTS.get(target)
    if ours is None or theirs is None or ours is theirs:
        return None
    return ours, theirs


def _parse(name: str, given: Mapping[str, Any], agent: AgentTools) -> tuple[Meaning, list[str]]:
    """What a call asks for, and what of it the canonical form do not say."""
    tool = agent.find_by_name(name)
    if tool is None:
        raise NoEquivalentError
    arguments = Arguments(as_object(given), null_is_absent=agent.null_is_absent)
    meaning = tool.parse(arguments)
    arguments.finish()
    return meaning, arguments.notes


def _word(meaning: Meaning, agent: AgentTools) -> tuple[str, dict[str, Any], tuple[str, ...]]:
    """The tool's name, its arguments, and what the agent cannot say."""
    tool = agent.find_current(type(meaning))
    if tool is None or tool.word is None:
        raise NoEquivalentError
    arguments, not_said = tool.word(meaning)
    return tool.name, arguments, not_said
