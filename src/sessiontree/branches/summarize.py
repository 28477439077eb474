"""Summarize a branch: choose the messages for the summarizer, and call it.

The newest messages count most: they are taken from the end until the budget is used up, with tool results shortened. A
summary (of a compaction or another branch) that exceeds the budget is still included unless the budget is nearly used
up, because it replaces many messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from sessiontree.branches.branch_delta import BranchDelta, apply_edits, message_of
from sessiontree.branches.file_conflicts import files_of
from sessiontree.compaction import hooks as hook_calls
from sessiontree.compaction.hooks import Cancel, Hook, PendingSummary
from sessiontree.compaction.policies import RESERVE
from sessiontree.compaction.prompts import RESULT_LENGTH, shorten
from sessiontree.compaction.summarizers import Request, Summarizer, find_summarizer
from sessiontree.compaction.token_estimate import PI, Estimator
from sessiontree.compaction.touched_files import FileLists
from sessiontree.core.messages import (
    BashExecution,
    BranchSummaryText,
    CompactionSummary,
    Image,
    Message,
    System,
    Text,
    ToolResult,
    Usage,
    blocks_of,
)
from sessiontree.errors import CompactionError
from sessiontree.session.session import Session

_USUAL_WINDOW = 128_000


def budget_of(reserve: int, window: int = _USUAL_WINDOW) -> int:
    """Token budget for a branch in a prompt, with a reserve for the answer."""
    return max(window - reserve, 0)


BUDGET = budget_of(RESERVE)
"""Default budget, for an unknown model."""

_NEARLY_FULL = 0.9


class SummaryOptions(Struct, frozen=True):
    """How `leave` and `merge` summarize a branch."""

    instructions: str | None = None
    only_instructions: bool = False
    summarizer: Summarizer | None = None
    """None for the built-in summarizer, which needs no model."""
    hooks: Sequence[Hook] = ()
    budget: int = BUDGET

    @property
    def writer(self) -> Summarizer:
        return find_summarizer() if self.summarizer is None else self.summarizer


class SummaryResult(Struct, frozen=True):
    """Summary of a branch."""

    text: str
    files: FileLists
    by: str
    usage: Usage | None = None
    from_hook: bool = False
    details: Any = None
    """Details from a hook."""
    reports: tuple[str, ...] = ()
    """Failures of hooks."""

    def fields(self, heading: str) -> dict[str, Any]:
        """Fields of a `branch_summary`, without its origin."""
        if self.from_hook:
            fields: dict[str, Any] = {"summary": self.text}
            if self.details is not None:
                fields["details"] = self.details
        else:
            fields = {
                "summary": f"{heading}\n\n{self.text}{self.files.text()}",
                "details": {**self.files.details(), "summarizer": self.by},
            }
        if self.usage is not None:
            fields["usage"] = msgspec.to_builtins(self.usage)
        return {**fields, "fromHook": self.from_hook}


def summarize_branch(side: BranchDelta, session: Session, options: SummaryOptions) -> SummaryResult:
    """Summarize a branch with a hook or the summarizer. The summary will be written to `session`."""
    messages = newest_messages(side, options.budget)
    files = files_of(side)
    pending = PendingSummary(session, "branch", messages, files=files, instructions=options.instructions)
    decision = hook_calls.call_before(options.hooks, pending)
    if isinstance(decision.verdict, Cancel):
        raise CompactionError(f"{session.location}: no summary was written: {decision.verdict.reason}")
    if decision.verdict is not None:
        return SummaryResult(
            decision.verdict.summary,
            files,
            by="hook",
            from_hook=True,
            details=decision.verdict.details,
            reports=decision.reports,
        )
    request = Request(
        "branch",
        messages,
        instructions=options.instructions,
        only_instructions=options.only_instructions,
        files=files,
        agent=side.session.dialect.name,
    )
    made = options.writer(request)
    reports = (*decision.reports, *made.reports)
    return SummaryResult(made.text, files, made.by or options.writer.name, made.usage, reports=reports)


def newest_messages(side: BranchDelta, budget: int, estimate: Estimator = PI) -> list[Message]:
    """The newest messages of a branch that fit the budget, in order."""
    taken: list[Message] = []
    total = 0
    for item in reversed(apply_edits(side.items)):
        message = message_of(item)
        if message is None or isinstance(message, System):
            continue
        message = _shorten_result(message)
        tokens = estimate(message)
        if total + tokens > budget:
            if isinstance(message, CompactionSummary | BranchSummaryText) and total < budget * _NEARLY_FULL:
                taken.append(message)
            break
        taken.append(message)
        total += tokens
    taken.reverse()
    return taken


def _shorten_result(message: Message) -> Message:
    match message:
        case ToolResult():
            content = tuple(
                Text(shorten(block.text, RESULT_LENGTH)) if isinstance(block, Text) else block
                for block in blocks_of(message.content)
                if not isinstance(block, Image)
            )
            return msgspec.structs.replace(message, content=content)
        case BashExecution():
            return msgspec.structs.replace(message, output=shorten(message.output, RESULT_LENGTH))
        case _:
            return message
