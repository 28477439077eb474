"""Map tool calls of one agent to another agent's tools, where both have a tool that does the same.

A call is parsed into an intent (`Read`, `Bash`, `Edit` ...) and rendered for the target. So each agent has one table of
tools, and pairs of agents need no code of their own.

    intents    what a call requests, independent of the agent
    arguments  strict parser of a call's arguments
    shared     the table of an agent's tools, and helpers for what several agents have in common
    claude, pi, omp, neovate  one agent each: the parsers and renderers of its calls, its table of tools
    mapping    maps one agent's call to another's

Rules of this package:

* A call is mapped only when the target's tool would do the same with the new arguments. Otherwise the result is None
  and the caller keeps the call: an unusual call in a history is harmless, a wrong one is not.
* An argument that we do not know, or of an unexpected type, makes a call unmappable.
* A tool's defaults (timeout, amount and order of output, ignored files) are not arguments. They are never written out,
  since the model never gave them.
* Every spelling that a version of an agent has had is parsed; only the current one is rendered.
"""

from sessiontree.conversion.tools.intents import Bash, Intent
from sessiontree.conversion.tools.mapping import (
    FileArgument,
    FileUse,
    Mapped,
    file_argument,
    find_file,
    find_intent,
    find_intent_type,
    map_call,
    map_name,
    share_tools,
)

__all__ = [
    "Bash",
    "FileArgument",
    "FileUse",
    "Intent",
    "Mapped",
    "file_argument",
    "find_file",
    "find_intent",
    "find_intent_type",
    "map_call",
    "map_name",
    "share_tools",
]
