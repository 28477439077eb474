"""Tool calls of one agent in another agent's words, where both have a tool that does the same thing.

A call is first read into a meaning (`Read`, `Bash`, `Edit` ...) and then worded for the target, so an agent is one
table of tools and never a list of pairs.

    meanings   what a call asks for, whoever asked
    arguments  reading what was given, and giving up on what we do not understand
    shared     the form of a table, and what several agents have in common
    claude, pi, omp, neovate  one agent each: reading its calls, wording them, the table of its tools
    mapping    the tables together: from one agent's words to another's

Rules of this package:

* A call is mapped only when the target's tool would do the same thing with the new arguments. In every other case the
  answer is None and the caller keeps the call as it is: an odd call in a history is harmless, a wrong one is not.
* An argument that we do not know, or of a type that we do not expect, makes the call unmappable.
* What a tool does when nothing is said is its own affair and no argument: its default timeout, how much it shows, in
  which order, whether it shows ignored files. We never write such a default out, since the model never said it.
* Every spelling that a version of an agent has had is read; only the current one is written.
"""

from sessiontree.conversion.tools.intents import Bash, Meaning
from sessiontree.conversion.tools.mapping import (
    FileArgument,
    FileUse,
    Mapped,
    file_argument,
    find_file,
    find_meaning,
    find_purpose,
    map_call,
    map_name,
    share_tools,
)

__all__ = [
    "Bash",
    "FileArgument",
    "FileUse",
    "Mapped",
    "Meaning",
    "file_argument",
    "find_file",
    "find_meaning",
    "find_purpose",
    "map_call",
    "map_name",
    "share_tools",
]
