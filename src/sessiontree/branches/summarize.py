"""A branch as a summary: what of it a summarizer is shown, and who writes it.

The newest messages count most. They are taken from the end back until the budget is full; tool results are shortened
first. A summary that stands in the way (of a compaction, of another branch) is still taken if there is some room left,
since it stands for much more than itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from sessiontree.branches.branch_delta import Side, edited, message_of
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
    """How many tokens of a branch a summarizer is shown, with so many left free for its answer."""
    return max(window - reserve, 0)


BUDGET = budget_of(RESERVE)
"""As much as that is, when neither the model's window nor a reserve is known."""

_NEARLY_FULL = 0.9


class Ask(Struct, frozen=True):
    """How a summary shall be made."""

    instructions: str | None = None
    only_instructions: bool = False
    summarizer: Summarizer | None = None
    """None: the one that needs no model."""
    hooks: Sequence[Hook] = ()
    budget: int = BUDGET

    @property
    def writer(self) -> Summarizer:
        return find_summarizer() if self.summarizer is None else self.summarizer


class Summed(Struct, frozen=True):
    """A branch as a summary."""

    text: str
    files: FileLists
    by: str
    usage: Usage | None = None
    from_hook: bool = False
    details: Any = None
    """What a hook wants to be kept with it."""
    reports: tuple[str, ...] = ()
    """What went wrong in hooks."""

    def fields(self, heading: str) -> dict[str, Any]:
        """The fields of a `branch_summary` but for where it comes from."""
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


def sum_up(side: Side, session: Session, ask: Ask) -> Summed:
    """The summary of a branch, by a hook or by the summarizer. `session` is where it shall be written."""
    messages = newest_messages(side, ask.budget)
    files = files_of(side)
    occasion = PendingSummary(session, "branch", messages, files=files, instructions=ask.instructions)
    heard = hook_calls.call_before(ask.hooks, occasion)
    if isinstance(heard.verdict, Cancel):
        raise CompactionError(f"{session.location}: no summary was made: {heard.verdict.reason}")
    if heard.verdict is not None:
        return Summed(
            heard.verdict.summary,
            files,
            by="hook",
            from_hook=True,
            details=heard.verdict.details,
            reports=heard.reports,
        )
    request = Request(
        "branch",
        messages,
        instructions=ask.instructions,
        only_instructions=ask.only_instructions,
        files=files,
        agent=side.session.dialect.name,
    )
    made = ask.writer(request)
    return Summed(made.text, files, ask.writer.name, made.usage, reports=heard.reports)


def newest_messages(side: Side, budget: int, estimate: Estimator = PI) -> list[Message]:
    """What a summarizer is shown of a branch: as much of its end as fits, in the order of the conversation."""
    taken: list[Message] = []
    total = 0
    for item in reversed(edited(side.items)):
        message = message_of(item)
        if message is None or isinstance(message, System):
            continue
        message = _shortened(message)
        tokens = estimate(message)
        if total + tokens > budget:
            if isinstance(message, CompactionSummary | BranchSummaryText) and total < budget * _NEARLY_FULL:
                taken.append(message)
            break
        taken.append(message)
        total += tokens
    taken.reverse()
    return taken


def _shortened(message: Message) -> Message:
    """A result cut to the length that a summarizer is shown."""
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
