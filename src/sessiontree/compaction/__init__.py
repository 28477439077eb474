"""Compaction: a summary stands for the older part of a session, so that long sessions fit a model's window.

    compact(session)                       summarise the older part; what was written and what it changed
    compact(session, dry_run=True)         the same, and nothing is written
    undo(session)                          stand before the last compaction again
    should_compact(session, window)        is it time? by a policy
    make_room(session, window)             nothing, or prune, or compact: what is needed
    after_overflow(session)                the provider said the request is too long: once, then give up
    prune(session), restore(session)       take old outputs of tools out of the context, and put them back

The parts, each replaceable:

    when    `policies`      Reserve, Table, Share, Ratio, Manual: numbers in, a limit out
    how much `estimate`     Pi's arithmetic, a measured one, or any tokenizer
    where   `cut`, `strategies`   over plain values that `projection` makes of a session of any dialect
    what    `prompts`, `sections`, `files`
    by whom `summarizers`, `extractive`   a callable: Request in, Summary out
    and     `hooks`         see, cancel or supply a summary before it is written

Everything raises `CompactionError` (or `SummaryError`) before anything is written, and then the session is as it was.
"""

from sessiontree.compaction.compact import Compacted, Prepared, Undone, compact, prepare, undo
from sessiontree.compaction.extractive import EXTRACTIVE, ExtractiveSummarizer
from sessiontree.compaction.hooks import Cancel, Hook, Occasion, Supply
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
from sessiontree.compaction.token_estimate import MEASURED, PI, Estimator, Size, Tokenizer, counting
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
    "Complete",
    "Estimator",
    "ExtractiveSummarizer",
    "FileLists",
    "Hook",
    "Manual",
    "ModelSummarizer",
    "Occasion",
    "Policy",
    "Prepared",
    "Pruned",
    "Ratio",
    "Request",
    "Reserve",
    "Share",
    "Size",
    "Strategy",
    "Summarizer",
    "Summary",
    "Supply",
    "Table",
    "Tokenizer",
    "Undone",
    "Window",
    "after_overflow",
    "compact",
    "counting",
    "find_summarizer",
    "is_due",
    "make_room",
    "measure",
    "policy_of",
    "prepare",
    "prune",
    "restore",
    "should_compact",
    "undo",
]
