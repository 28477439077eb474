"""Which options of `explore` belong together: what would be left out of account in silence is refused before."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, Final

from sessiontree.cli.parser import Options
from sessiontree.errors import UsageError

PARALLEL, MAX_DEPTH, MAX_LANES = 4, 2, 16
APPROVAL: Final = "autoEdit"
"""What holds for a new exploration if nothing is said."""

_GO_ON = frozenset({"budget", "check", "fork_on", "approval", "keep_worktrees", "which", "instructions", "summarizer"})
_ACTIONS = {
    "resume": _GO_ON,
    "again": _GO_ON,
    "compare": frozenset({"which"}),
    "keep": frozenset({"which", "keep_worktrees", "no_files"}),
    "merge": frozenset({"which", "keep_worktrees", "instructions", "summarizer"}),
    "drop": frozenset({"which", "keep_worktrees"}),
    "diff": frozenset({"which"}),
    "lists": frozenset[str](),
}
"""What may be done with an exploration that is there, and what else may be said then."""
_BEGIN = frozenset(
    {
        "prompt",
        "prompts",
        "n",
        "model",
        "at",
        "budget",
        "parallel",
        "check",
        "fork_on",
        "fork_on_denied",
        "fork_on_repeats",
        "fork_below",
        "max_depth",
        "max_lanes",
        "approval",
        "no_worktrees",
        "keep_worktrees",
        "instructions",
        "summarizer",
    }
)
_ALL = tuple(sorted(_BEGIN | _GO_ON | {"no_files"}))
_NAMES = {"prompt": "TEXT", "lists": "--list", "which": "--run"}
_COMMANDS = "check", "fork_on"
_ONCE = "resume", "compare"
"""The actions that may be given the exploration themselves."""


class Once(argparse.Action):
    """An option that names one thing: who names two means something else."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        if getattr(namespace, self.dest) is not None:
            parser.error(f"{option_string} was given twice, and can be about one only")
        setattr(namespace, self.dest, values)


def check_options(options: Options) -> None:
    """Raise if something is said that has no meaning, by itself or beside the rest."""
    for name in _COMMANDS:
        if _is_given(options, name) and not getattr(options, name).strip():
            raise UsageError(f"explore: the command of {_name(name)} is empty; name one, or leave it out")
    action = next((name for name in _ACTIONS if _is_given(options, name)), None)
    fitting = _BEGIN if action is None else _ACTIONS[action]
    if action in _ONCE and getattr(options, action):
        fitting -= {"which"}
    unfit = [_name(name) for name in _ALL if name not in fitting and _is_given(options, name)]
    if unfit:
        beside = "when a new exploration begins" if action is None else f"beside {_name(action)}"
        raise UsageError(
            f"explore: {', '.join(unfit)} {'has' if len(unfit) == 1 else 'have'} no meaning {beside}; leave "
            f"{'it' if len(unfit) == 1 else 'them'} out. Nothing was done"
        )


def _is_given(options: Options, name: str) -> bool:
    value = getattr(options, name)
    return value is not None and value is not False and value != []


def _name(name: str) -> str:
    return _NAMES.get(name) or "--" + name.replace("_", "-")
