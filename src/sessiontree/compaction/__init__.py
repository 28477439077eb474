"""Compaction: replace the older part of a session with a summary, so that long sessions fit into a model's context
window.

    compact(session)                       summarize the older part
    compact(session, dry_run=True)         the same without writing
    undo(session)                          switch to the entry before the last compaction
    should_compact(session, window)        whether a policy asks for a compaction
    make_room(session, window)             prune or compact, if needed
    after_overflow(session)                compact after the provider rejected a request as too long
    prune(session), restore(session)       remove old tool outputs from the context, and add them again

The parts, each replaceable:

    `policies`                   when: Reserve, Table, Share, Ratio, Manual
    `token_estimate`             how large: Pi's arithmetic, a measured estimate, or any tokenizer
    `cut_point`, `strategies`    what to keep, decided on `context_units`, which are the same for every dialect
    `prompts`, `sections`, `touched_files`    what a summary contains
    `summarizers`, `extractive`  who writes it: a callable from Request to Summary
    `hooks`                      see, cancel or supply a summary before it is written

Failures raise `CompactionError` (or `SummaryError`) before anything is written.
"""

from sessiontree.compaction.compact import Compacted, CompactionPlan, Undone, compact, prepare, undo
from sessiontree.compaction.extractive import EXTRACTIVE, ExtractiveSummarizer
from sessiontree.compaction.hooks import Cancel, Hook, PendingSummary, SuppliedSummary
from sessiontree.compaction.policies import (
    POLICIES,
    Manual,
    Policy,
    Ratio,
    Reserve,
    Share,
    Table,
    Window,
    is_due,
    policy_of,
)
from sessiontree.compaction.prune_outputs import Pruned, prune, restore
from sessiontree.compaction.strategies import STRATEGIES, Strategy
from sessiontree.compaction.summarizers import (
    Answer,
    Complete,
    ModelSummarizer,
    Request,
    Summarizer,
    Summary,
    find_summarizer,
)
from sessiontree.compaction.token_estimate import MEASURED, PI, Estimator, Size, Tokenizer, tokenizer_estimator
from sessiontree.compaction.touched_files import FileLists
from sessiontree.compaction.triggers import after_overflow, make_room, measure, should_compact

__all__ = [
    "EXTRACTIVE",
    "MEASURED",
    "PI",
    "POLICIES",
    "STRATEGIES",
    "Answer",
    "Cancel",
    "Compacted",
    "CompactionPlan",
    "Complete",
    "Estimator",
    "ExtractiveSummarizer",
    "FileLists",
    "Hook",
    "Manual",
    "ModelSummarizer",
    "PendingSummary",
    "Policy",
    "Pruned",
    "Ratio",
    "Request",
    "Reserve",
    "Share",
    "Size",
    "Strategy",
    "Summarizer",
    "Summary",
    "SuppliedSummary",
    "Table",
    "Tokenizer",
    "Undone",
    "Window",
    "after_overflow",
    "compact",
    "find_summarizer",
    "is_due",
    "make_room",
    "measure",
    "policy_of",
    "prepare",
    "prune",
    "restore",
    "should_compact",
    "tokenizer_estimator",
    "undo",
]
