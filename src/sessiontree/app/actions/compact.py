"""Compact a session with its settings, and undo the last compaction."""

from __future__ import annotations

from sessiontree.app.actions.contract import ActionPlan, Description, Done, MovePlan, unchanged
from sessiontree.app.summaries import configured_summarizer
from sessiontree.compaction import Compacted, Undone, policy_of
from sessiontree.compaction.compact import PreparedCompaction, find_undo, prepare_compaction, write_compaction
from sessiontree.compaction.summarizers import Summarizer
from sessiontree.core.jsonio import JsonObject
from sessiontree.session.session import Session
from sessiontree.settings import Settings
from sessiontree.views.text import plural


class CompactPlan(ActionPlan[Compacted]):
    """A compaction with its summary."""

    action = "compact"

    def __init__(self, session: Session, prepared: PreparedCompaction) -> None:
        super().__init__(unchanged(session))
        self._session, self._prepared = session, prepared

    @property
    def expected(self) -> Compacted:
        """The result that `do` will have, except for the new entry."""
        return self._prepared.found

    def describe(self) -> Description:
        found = self.expected
        messages = plural(len(found.plan.summarized) + len(found.plan.turn_prefix), "message")
        title = f"summarize {messages}: {found.tokens_before:,} -> about {found.tokens_after:,} tokens"
        return Description(
            self.action, title, tuple(found.summary.splitlines()), found.reports, data=compaction_fields(found)
        )

    def _carry_out(self) -> Done[Compacted]:
        session, before = self._session, self._session.leaf
        compacted = write_compaction(session, self._prepared)
        return Done(compacted, MovePlan(session, before, "undo compact"), session)


def plan_compact(
    session: Session,
    settings: Settings,
    *,
    instructions: str | None = None,
    keep: int | None = None,
    strategy: str | None = None,
    window: int | None = None,
    summarizer: Summarizer | None = None,
    dry_run: bool = False,
) -> CompactPlan:
    """Plan a compaction. The summary is written now, and shown as it will be.

    Everything that is not given comes from the settings, with those for the session's model. With `dry_run`, read-only
    sessions are accepted: the plan can only be shown.
    """
    # Finding the model decodes the whole context, so it is only done if settings differ by model.
    chosen = settings.compaction.for_model(_model_of(session) if settings.compaction.model_overrides else None)
    prepared = prepare_compaction(
        session,
        instructions=instructions or chosen.instructions,
        keep=chosen.keep_recent_tokens if keep is None else keep,
        strategy=strategy,
        policy=policy_of(chosen),
        window=window,
        summarizer=summarizer or configured_summarizer(settings),
        dry_run=dry_run,
    )
    return CompactPlan(session, prepared)


def _model_of(session: Session) -> str | None:
    """The session's current model, as "provider/model"."""
    model = session.context().state.model
    return None if model is None else f"{model.provider}/{model.model_id}"


class UndoCompactionPlan(ActionPlan[Undone]):
    """The undo of a compaction, even one from long ago. Messages since then stay in the file, on a branch."""

    action = "undo-compaction"

    def __init__(self, session: Session, compaction: str | None) -> None:
        super().__init__(unchanged(session))
        self._session = session
        self.expected = find_undo(session, session.leaf, compaction)

    def describe(self) -> Description:
        where = self.expected.leaf or "before the first entry"
        left = self.expected.left
        stay = f"{plural(left, 'message')} after the compaction stay on a separate branch"
        title = f"undo compaction {self.expected.compaction}: switch to {where}"
        return Description(self.action, title, warnings=(stay,) if left else (), data=undone_fields(self.expected))

    def _carry_out(self) -> Done[Undone]:
        session, before = self._session, self._session.leaf
        session.move(self.expected.leaf)
        return Done(self.expected, MovePlan(session, before, "revert undo of the compaction"), session)


def plan_undo_compaction(session: Session, compaction: str | None = None) -> UndoCompactionPlan:
    """Plan to switch to the entry before the last compaction, or before the named one.

    `CompactionError` if there is none, or if the last one is the agent's own and not named.
    """
    return UndoCompactionPlan(session, compaction)


def compaction_fields(compacted: Compacted) -> JsonObject:
    """A compaction as JSON; before it is written, without the new entry."""
    plan = compacted.plan
    return {
        "done": compacted.entry is not None,
        "entry": compacted.entry.id if compacted.entry is not None else None,
        "strategy": plan.strategy,
        "summarizer": compacted.summarizer,
        "tokensBefore": compacted.tokens_before,
        "tokensAfter": compacted.tokens_after,
        "piTokensBefore": plan.tokens_before,
        "firstKept": plan.first_kept,
        "kept": len(plan.kept),
        "summarised": len(plan.summarized),
        "turnPrefix": len(plan.turn_prefix),
        "isSplitTurn": plan.is_split_turn,
        "readFiles": list(plan.files.read),
        "modifiedFiles": list(plan.files.modified),
        "summary": compacted.summary,
        "reports": list(compacted.reports),
    }


def undone_fields(undone: Undone) -> JsonObject:
    return {
        "leaf": undone.leaf,
        "undone": undone.compaction,
        "leftBehind": undone.left,
        "leafBefore": undone.leaf_before,
    }
