"""Hooks of embedders and extensions, called before and after a summary is written.

Before: a hook sees the messages, and may cancel or supply the summary; the first one that does decides. A supplied
summary is recorded as such (`fromHook`). After: every hook is called. A failing hook is reported and otherwise ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from sessiontree.compaction.touched_files import FileLists
from sessiontree.core.messages import Message
from sessiontree.session.session import Session


class PendingSummary(Struct, frozen=True):
    """A summary that is about to be written."""

    session: Session
    kind: str
    """`compaction` or `branch`."""
    messages: Sequence[Message]
    """The messages that the summary replaces or, for a branch, describes."""
    turn_prefix: Sequence[Message] = ()
    """First part of a turn that is split."""
    previous_summary: str | None = None
    first_kept: str | None = None
    """The first entry that is kept; None if none is."""
    tokens_before: int = 0
    files: FileLists = FileLists()
    instructions: str | None = None


class Cancel(Struct, frozen=True):
    """Do not write a summary."""

    reason: str = "a hook canceled it"


class SuppliedSummary(Struct, frozen=True):
    """A hook's decision: use this summary, and call no summarizer."""

    summary: str
    details: Any = None
    keep_nothing: bool = False
    """The summary replaces everything, including what would be kept."""


class Hook:
    """Base class with two empty methods to override. They may block, and raise."""

    def before(self, pending: PendingSummary) -> Cancel | SuppliedSummary | None:
        """Called before a summary is written."""

    def after(self, done: Any) -> None:
        """Called with the result when it is in the file."""


class HookDecision(Struct, frozen=True):
    """The decision of the hooks, and reports of failures."""

    verdict: Cancel | SuppliedSummary | None
    reports: tuple[str, ...] = ()


def call_before(hooks: Sequence[Hook], pending: PendingSummary) -> HookDecision:
    """Call the hooks until one decides."""
    reports: list[str] = []
    for hook in hooks:
        try:
            verdict = hook.before(pending)
        except Exception as error:  # noqa: BLE001 - a failing extension must not prevent the compaction
            reports.append(_report(hook, "before", error))
            continue
        if isinstance(verdict, SuppliedSummary) and not verdict.summary.strip():
            reports.append(f"{_name(hook)} supplied an empty summary; it was ignored")
        elif verdict is not None:
            return HookDecision(verdict, tuple(reports))
    return HookDecision(None, tuple(reports))


def call_after(hooks: Sequence[Hook], done: Any) -> tuple[str, ...]:
    """Call all hooks after the write, and return reports of failures."""
    reports: list[str] = []
    for hook in hooks:
        try:
            hook.after(done)
        except Exception as error:  # noqa: BLE001 - the summary is written, so a failing extension is only reported
            reports.append(_report(hook, "after", error))
    return tuple(reports)


def _report(hook: Hook, when: str, error: Exception) -> str:
    return f"{_name(hook)} failed in {when}(): {type(error).__name__}: {error}"


def _name(hook: Hook) -> str:
    return f"the hook {type(hook).__name__}"
