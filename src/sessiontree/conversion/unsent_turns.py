"""Leave out failed answers and thinking that the source's client does not send but the target would.

oh-my-pi leaves a failed or retried answer out of its contexts, with the results of its calls, unless a note about the
interruption follows it, and never sends some messages of its own. Claude Code shows its errors and never sends them.
A summary among the messages that a later compaction keeps is sent by OpenCode only. Other clients send whatever a
session holds. The original stays on the entry as passthrough data, and converting back restores it.

Gemini CLI does not send the thinking that it records, and the thinking of other models is not sent by Claude Code and
Codex. OpenCode sends it as text, so it gets such thinking as passthrough data.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sessiontree.conversion.context_edits import (
    is_left_out,
    is_removed_by_edit,
    leave_out,
    with_original_content,
)
from sessiontree.conversion.walk import iter_entries
from sessiontree.core.messages import Thinking, message_blocks
from sessiontree.dialects.canonical import CanonicalEntry, LossNote
from sessiontree.dialects.contract import Dialect
from sessiontree.dialects.passthrough import UNSENT_THINKING, with_carried_data
from sessiontree.session.reader import Reader

_FAILED = ("aborted", "error")
_UNSENT_NOTE = LossNote("aside", "messages that are never sent", "kept as data that is not sent")
_SUMMARY_NOTE = LossNote("aside", "summaries that a later one covers", "kept as data that is not sent")
_NOTE = LossNote("aside", "failed answers that were not sent", "kept as data that is not sent")
_THINKING_NOTE = LossNote("aside", "answers with thinking that was not sent", "it is kept as data that is not sent")


class UnsentTurns:
    """The failed answers of a session that are in no context of the converted branches."""

    def __init__(self, session: Reader, target: Dialect, leaf: str | None, *, all_branches: bool) -> None:
        self._session = session
        self._source, self._target = session.dialect.client, target.client
        self._is_needed = not target.client.drops_failed_turns
        self._leaves = session.leaves() if all_branches else ()
        self._leaf = leaf
        self._calls: set[str] = set()
        """The calls of the answers that were left out."""
        self._sent: set[str] | None = None
        self._covered: set[str] | None = None
        self._silent: set[str] | None = None
        self.are_mixed = False
        """Whether some failed answers are sent: then a client may send one on some branches only."""

    def apply(self, entry: CanonicalEntry) -> tuple[CanonicalEntry, Sequence[LossNote]]:
        """Return an entry as the target needs it: left out, or as it was before."""
        found, notes = self._apply_to_turn(with_carried_data(entry, UNSENT_THINKING, None))
        if self._target.sends_thinking_as_text and _has_thinking(found) and entry.id in self._unsent_thinking():
            return with_carried_data(found, UNSENT_THINKING, True), (*notes, _THINKING_NOTE)
        return found, notes

    def _apply_to_turn(self, entry: CanonicalEntry) -> tuple[CanonicalEntry, Sequence[LossNote]]:
        if is_left_out(entry) and not is_removed_by_edit(entry):
            entry = self._restored(entry)
        if self._source.never_sends(entry) and not self._target.never_sends(entry):
            return leave_out(entry), (_UNSENT_NOTE,)
        message = entry.fields.get("message")
        is_system = entry.kind == "message" and isinstance(message, dict) and message.get("role") == "system"
        if is_system and not self._target.hides_system_messages:
            return leave_out(entry), (_UNSENT_NOTE,)
        if entry.kind == "compaction" and self._target.sends_kept_summaries and entry.id in self._covered_summaries():
            return leave_out(entry), (_SUMMARY_NOTE,)
        if not self._is_needed or entry.kind != "message" or not isinstance(message, dict):
            return entry, ()
        is_answer = message.get("role") == "assistant"
        if is_answer and (message.get("stopReason") in _FAILED or message.get("retryRecovery")):
            if self._is_sent(entry):
                self.are_mixed = True
                return entry, ()
            self._calls.update(_call_ids(message.get("content")))
        else:
            call = message.get("toolCallId") if message.get("role") == "toolResult" else None
            if not isinstance(call, str) or call not in self._calls or self._is_sent(entry):
                return entry, ()
        return leave_out(entry), (_NOTE,)

    def _restored(self, entry: CanonicalEntry) -> CanonicalEntry:
        """Return a failed answer, its result or a message that was never sent; what an edit removed stays left out."""
        original = with_original_content(entry)
        message = original.fields.get("message")
        is_turn = isinstance(message, dict) and (
            message.get("role") in ("toolResult", "system")
            or message.get("stopReason") in _FAILED
            or message.get("retryRecovery")
        )
        return original if is_turn or self._target.never_sends(original) else entry

    def _covered_summaries(self) -> set[str]:
        """The compactions of the active branch among the entries that its last one keeps."""
        if self._covered is None:
            numbers: dict[str, int] = {}
            summaries: list[tuple[int, CanonicalEntry]] = []
            for number, (entry, _) in enumerate(iter_entries(self._session, self._leaf, all_branches=False)):
                numbers.update(dict.fromkeys((entry.id, *entry.aliases), number))
                if entry.kind == "compaction":
                    summaries.append((number, entry))
            first = numbers.get(str(summaries[-1][1].fields.get("firstKeptEntryId"))) if summaries else None
            self._covered = {entry.id for number, entry in summaries[:-1] if first is not None and number >= first}
        return self._covered

    def _unsent_thinking(self) -> set[str]:
        """The entries of the active branch whose thinking is not in its context.

        No client sends the entries before the first one in the context, so they do not count. A client that restates
        what a compaction keeps has these messages in the context as part of the compaction.
        """
        if self._silent is None:
            context = self._session.context(self._leaf)
            with_thinking = {
                source
                for source, message in zip(context.sources, context.messages, strict=True)
                if any(isinstance(block, Thinking) for block in message_blocks(message))
            }
            starts, last_compaction = set(context.sources), None
            for entry, _ in iter_entries(self._session, self._leaf, all_branches=False):
                if entry.kind == "compaction":
                    last_compaction = entry
            if last_compaction is not None and last_compaction.id not in with_thinking:
                starts.add(str(last_compaction.fields.get("firstKeptEntryId")))
            self._silent, has_started = set(), False
            for entry, _ in iter_entries(self._session, self._leaf, all_branches=False):
                ids = (entry.id, *entry.aliases)
                has_started = has_started or not starts.isdisjoint(ids)
                if has_started and with_thinking.isdisjoint(ids):
                    self._silent.add(entry.id)
        return self._silent

    def _is_sent(self, entry: CanonicalEntry) -> bool:
        if self._sent is None:  # few sessions have such answers
            leaves = {*self._leaves, *([] if self._leaf is None else [self._leaf])}
            self._sent = {source for leaf in leaves for source in self._session.context(leaf).sources}
        return not self._sent.isdisjoint((entry.id, *entry.aliases))


def _has_thinking(entry: CanonicalEntry) -> bool:
    message = entry.fields.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    blocks = content if isinstance(content, list) else ()
    return any(isinstance(block, dict) and block.get("type") == "thinking" for block in blocks)


def _call_ids(content: Any) -> set[str]:
    blocks = content if isinstance(content, list) else ()
    return {str(block.get("id")) for block in blocks if isinstance(block, dict) and block.get("type") == "toolCall"}
