"""Where embedders and extensions come in: before a summary is written, and after.

Before: a hook sees what would be summarised, and may let it be, cancel it, or supply the summary itself; the first one
that does not let it be decides. What was supplied is recorded as such (`fromHook`). After: every hook is told. A hook
that fails is reported and otherwise passed over: the built-in way goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from sessiontree.compaction.touched_files import FileLists
from sessiontree.core.messages import Message
from sessiontree.session.session import Session


class Occasion(Struct, frozen=True):
    """What would be summarised."""

    session: Session
    kind: str
    """`compaction` or `branch`."""
    messages: Sequence[Message]
    """Those whose place the summary takes, or for a branch, those that are left."""
    turn_prefix: Sequence[Message] = ()
    """The beginning of a turn that is cut."""
    previous_summary: str | None = None
    first_kept: str | None = None
    """The entry from which on all is kept; None when nothing is."""
    tokens_before: int = 0
    files: FileLists = FileLists()
    instructions: str | None = None


class Cancel(Struct, frozen=True):
    """Leave the session as it is."""

    reason: str = "a hook cancelled it"


class Supply(Struct, frozen=True):
    """Take this for the summary."""

    summary: str
    details: Any = None
    keep_nothing: bool = False
    """The summary stands for everything, whatever would have been kept."""


class Hook:
    """Both do nothing; take what you need. They may take their time, and raise."""

    def before(self, occasion: Occasion) -> Cancel | Supply | None:
        """Called when it is known what would be summarised, and nothing has been done."""

    def after(self, done: Any) -> None:
        """Called with what was done, when it is in the file."""


class Heard(Struct, frozen=True):
    """What hooks came to, and what went wrong in them."""

    verdict: Cancel | Supply | None
    reports: tuple[str, ...] = ()


def ask(hooks: Sequence[Hook], occasion: Occasion) -> Heard:
    """What the hooks want to happen."""
    reports: list[str] = []
    for hook in hooks:
        try:
            verdict = hook.before(occasion)
        except Exception as error:  # noqa: BLE001 - whatever an extension raises, the built-in way goes on
            reports.append(_report(hook, "before", error))
            continue
        if isinstance(verdict, Supply) and not verdict.summary.strip():
            reports.append(f"{_name(hook)} supplied an empty summary; it was not taken")
        elif verdict is not None:
            return Heard(verdict, tuple(reports))
    return Heard(None, tuple(reports))


def tell(hooks: Sequence[Hook], done: Any) -> tuple[str, ...]:
    """Tell every hook what was done; what went wrong in them."""
    reports: list[str] = []
    for hook in hooks:
        try:
            hook.after(done)
        except Exception as error:  # noqa: BLE001 - it is done, and no extension can undo it by failing
            reports.append(_report(hook, "after", error))
    return tuple(reports)


def _report(hook: Hook, when: str, error: Exception) -> str:
    return f"{_name(hook)} failed {when} it: {type(error).__name__}: {error}"


def _name(hook: Hook) -> str:
    return f"the hook {type(hook).__name__}"
