"""Pick entries, leave a branch with a summary, list and compare branches, in every dialect."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import sessiontree
from sessiontree.branches.branch_delta import find_deltas
from sessiontree.branches.diff import diff
from sessiontree.branches.leave import leave
from sessiontree.branches.list import list_branches
from sessiontree.branches.merge import merge
from sessiontree.branches.merge_records import find_merges
from sessiontree.branches.open_files import find_writers
from sessiontree.branches.pick import pick
from sessiontree.branches.summarize import SummaryOptions, newest_messages
from sessiontree.compaction.hooks import Cancel, Hook, PendingSummary
from sessiontree.compaction.summarizers import Request, Summary
from sessiontree.core.entries import BranchSummary
from sessiontree.core.messages import BranchSummaryText, ToolResult, message_text, tool_calls
from sessiontree.errors import CompactionError, NotFoundError, SummaryError, UsageError
from tests.branches.worlds import (
    DIALECTS,
    World,
    check_lines_are_kept,
    check_pairs_are_whole,
    context_texts,
    findings,
)
from tests.conversion.conversations import assistant, text


@pytest.fixture(params=DIALECTS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    return World(request.param, tmp_path / "w")


def source_of(world: World, words: str) -> str:
    """The entry on the first branch with this text."""
    context = world.opened().context(world.one)
    return next(
        source
        for source, message in zip(context.sources, context.messages, strict=True)
        if words in message_text(message)
    )


# Pick


def test_a_result_is_picked_with_its_call_and_the_other_results(world: World) -> None:
    done = pick(world.opened(), [source_of(world, "ValueError")], onto=world.other)
    found = world.opened()
    assert context_texts(found)[7:10] == [
        "We decided to use recursive descent, because it is small.",
        "written",
        "E   ValueError: bad token 42",
    ]
    assert done.messages == 3
    assert found.leaf == done.entry
    check_pairs_are_whole(found, None)
    check_lines_are_kept(world.before, world.path.read_bytes())
    assert findings(found) == []


def test_picked_entries_keep_the_order_of_the_conversation(world: World) -> None:
    wanted = [source_of(world, "fails"), source_of(world, "Write it by hand")]
    pick(world.opened(), wanted, onto=world.other)
    assert context_texts(world.opened())[7:9] == ["Write it by hand.", "The hand-written one fails."]


def test_picking_twice_adds_nothing(world: World) -> None:
    wanted = [source_of(world, "fails")]
    pick(world.opened(), wanted, onto=world.other)
    after = world.path.read_bytes()
    assert pick(world.opened(), wanted).nothing is not None
    assert pick(world.opened(), wanted, onto=world.other).nothing is not None
    assert pick(world.opened(), [world.other]).nothing is not None, "entries on the path are not picked"
    assert world.path.read_bytes() == after


def test_a_merge_adds_only_what_was_not_picked_before(world: World) -> None:
    pick(world.opened(), [source_of(world, "fails")], onto=world.other)
    done = merge(world.opened(), world.one, how="append")
    assert done.messages == 4
    assert context_texts(world.opened()).count("The hand-written one fails.") == 1
    assert merge(world.opened(), world.one, how="append").nothing is not None


def test_entries_of_several_branches_can_be_picked_at_once(world: World) -> None:
    third = world.say(world.fork, "Third way.", "Trying.", ("toolu_t", "t.py", "t"), "ok", "Third done.")
    pick(world.opened(), [world.one, third], onto=world.fork)
    texts = context_texts(world.opened())
    assert "The hand-written one fails." in texts
    assert "Third done." in texts
    check_pairs_are_whole(world.opened(), None)


def test_entries_without_a_message_cannot_be_picked(tmp_path: Path) -> None:
    world = World("native", tmp_path)
    session = world.opened()
    mode = session.branch(world.one).append({"type": "mode_change", "mode": "plan"})
    before = world.path.read_bytes()
    with pytest.raises(UsageError, match="only messages can be picked"):
        pick(session, [mode.id], onto=world.other)
    with pytest.raises(UsageError, match="not on the path"):
        pick(session, [world.one], onto=world.fork, branch=world.other)
    with pytest.raises(NotFoundError):
        pick(session, ["nowhere"], onto=world.other)
    assert world.path.read_bytes() == before


# Leaving a branch


def test_the_summary_of_a_branch_is_the_first_entry_of_the_new_one(world: World) -> None:
    leaf = world.opened().leaf
    left = leave(world.opened(), world.fork)
    found = world.opened()
    assert left.left == leaf
    assert found.leaf == left.entry
    assert context_texts(found)[:2] == ["Fix the parser.", "Which way?"]
    assert len(context_texts(found)) == 3
    for fact in ("lark", "parser.py", "用生成器 instead."):
        assert fact in context_texts(found)[2]
    check_lines_are_kept(world.before, world.path.read_bytes())
    assert findings(found) == []
    found.append("user", "on")
    assert context_texts(world.opened())[-1] == "on"


def test_the_summary_is_an_entry_in_pis_form_with_files_and_origin(tmp_path: Path) -> None:
    world = World("pi", tmp_path)
    left = leave(world.opened(), world.fork)
    entry = world.opened().entry(str(left.entry))
    assert isinstance(entry, BranchSummary)
    assert entry.parent_id == world.fork
    assert entry.from_id == left.left
    assert entry.details["modifiedFiles"] == ["parser.py"]
    assert entry.from_hook is False


def test_leaving_a_branch_without_messages_is_a_plain_move(world: World) -> None:
    before_it = world.opened().leaf
    left = leave(world.opened(), str(before_it))
    assert left.entry is None
    assert world.path.read_bytes() == world.before


def test_files_of_nested_summaries_are_included(tmp_path: Path) -> None:
    world = World("native", tmp_path)
    first = leave(world.opened(), world.fork)
    session = world.opened()
    session.append("user", "and now something else")
    second = leave(session, world.fork)
    assert first.files.modified == second.files.modified == ("parser.py",)
    assert "lark" in second.summary


def test_the_newest_messages_come_first_and_results_are_shortened(tmp_path: Path) -> None:
    world = World("native", tmp_path)
    session = world.opened()
    end = world.say(world.fork, "Q" * 400, "A", ("toolu_x", "x.py", "x"), "R" * 50_000, "the end")
    side, _ = find_deltas(world.opened(), end, world.one)
    everything = newest_messages(side, 100_000)
    results = [message for message in everything if isinstance(message, ToolResult)]
    assert len(message_text(results[1])) < 2_100
    few = newest_messages(side, 20)
    assert [message_text(message) for message in few] == ["the end"]
    session.close()


def test_a_summary_on_the_branch_is_included_even_if_it_hardly_fits(tmp_path: Path) -> None:
    world = World("native", tmp_path)
    session = world.opened()
    branch = session.branch(world.fork)
    branch.append({"type": "branch_summary", "fromId": world.one, "summary": "S" * 4_000})
    end = branch.append("user", "short")
    side, _ = find_deltas(session, end.id, world.one)
    shown = newest_messages(side, 500)
    assert isinstance(shown[0], BranchSummaryText)


def test_a_failure_leaves_the_session_unchanged(tmp_path: Path) -> None:
    world = World("native", tmp_path)

    class Failing:
        name = "failing"

        def __init__(self, error: BaseException) -> None:
            self.error = error

        def __call__(self, request: Request, /) -> Summary:
            raise self.error

    class No(Hook):
        def before(self, occasion: PendingSummary) -> Cancel:
            return Cancel("no")

    with pytest.raises(SummaryError):
        leave(world.opened(), world.fork, SummaryOptions(summarizer=Failing(SummaryError("no answer"))))
    with pytest.raises(KeyboardInterrupt):
        leave(world.opened(), world.fork, SummaryOptions(summarizer=Failing(KeyboardInterrupt())))
    with pytest.raises(CompactionError):
        leave(world.opened(), world.fork, SummaryOptions(hooks=[No()]))
    assert world.path.read_bytes() == world.before


def test_instructions_reach_the_summarizer(tmp_path: Path) -> None:
    world = World("native", tmp_path)
    asked: list[Request] = []

    class Listening:
        name = "listening"

        def __call__(self, request: Request, /) -> Summary:
            asked.append(request)
            return Summary("heard")

    leave(world.opened(), world.fork, SummaryOptions("keep the errors", only_instructions=True, summarizer=Listening()))
    (request,) = asked
    assert (request.kind, request.instructions, request.only_instructions) == ("branch", "keep the errors", True)
    assert request.files.modified == ("parser.py",)
    assert context_texts(world.opened())[-1].endswith("</modified-files>")


# Listing and comparing


def test_every_branch_is_listed_with_its_name_and_distance(world: World) -> None:
    session = world.opened()
    session.label(world.one, "手写")
    session.move(world.other)
    session.close()
    found = list_branches(world.opened())
    assert len(found) == 2
    active, other = found
    assert active.is_active
    assert not other.is_active
    assert other.name == "手写"
    assert other.ahead.messages >= 4
    assert other.behind.messages >= 4
    assert other.ancestor == world.fork
    assert other.tokens > 20
    assert world.opened().find_entry("手写") == world.one


def test_a_merged_branch_lists_its_merge_entries(world: World) -> None:
    done = merge(world.opened(), world.one, into=world.other)
    merged = {branch.leaf: branch.merged_into for branch in list_branches(world.opened())}
    assert merged[world.one] == (done.entry,)


def test_a_diff_lists_both_branches_separately(world: World) -> None:
    found = diff(world.opened(), world.one, world.other)
    assert found.ancestor == world.fork
    assert found.one.asked == ("Write it by hand.",)
    assert found.other.asked == ("用生成器 instead.",)
    assert found.one.final == "The hand-written one fails."
    assert {name.lower(): count for name, count in found.one.tools.items()} == {"write": 1, "bash": 1}
    assert found.one.files.modified == found.other.files.modified == ("parser.py",)
    assert [conflict.path for conflict in found.conflicts] == ["parser.py"]
    assert found.one.used.requests == 2
    assert found.one.context_tokens > 0


def test_two_sessions_can_be_compared(tmp_path: Path) -> None:
    one, other = World("claude", tmp_path / "a"), World("pi", tmp_path / "b")
    found = diff(one.opened(), one.one, other.other, other_session=other.opened())
    assert found.ancestor is None
    assert (found.one.dialect, found.other.dialect) == ("claude", "pi")
    assert found.other.final == "The generated one works."


def test_processes_that_have_the_file_open_for_writing_are_listed(tmp_path: Path) -> None:
    world = World("native", tmp_path)
    assert find_writers(str(world.path)) == []
    script = (
        f"import sessiontree, sys; s = sessiontree.open({str(world.path)!r}); s.append('user', 'mine');"
        "print('open', flush=True); sys.stdin.read()"
    )
    child = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"open\n"
        writers = find_writers(str(world.path))
        assert writers is not None
        assert [writer.pid for writer in writers] == [child.pid]
    finally:
        child.communicate(b"")


def test_merge_records_survive_a_conversion(world: World) -> None:
    merge(world.opened(), world.one, into=world.other)
    made = sessiontree.convert(world.opened(), "native", branch="all")
    store = world.path.parent / "converted.jsonl"
    store.write_bytes(b"".join(made.lines))
    (join,) = find_merges(sessiontree.open(store)).values()
    assert join.how == "summary"


def test_several_entries_are_written_at_once_or_not_at_all(world: World) -> None:
    from sessiontree.dialects.canonical import CanonicalEntry

    session = world.opened()
    items = [
        CanonicalEntry("message", {"message": {"role": "user", "content": "one more"}}),
        CanonicalEntry("message", {"message": assistant(text("and one"))}),
    ]
    ids = session.append_all(items, world.one)
    assert context_texts(world.opened())[-2:] == ["one more", "and one"]
    assert world.opened().leaf == session.leaf == ids[-1]
    with pytest.raises(NotFoundError):
        session.append_all(items, "nowhere")
    assert [call.id for message in session.context().messages for call in tool_calls(message)] == [
        "toolu_a",
        "toolu_a_run",
    ]
