"""Merges in every dialect: what is copied, what is recorded, and that nothing is copied twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import sessiontree
from sessiontree.branches.branch_delta import find_deltas
from sessiontree.branches.merge import merge
from sessiontree.branches.merge_records import find_merges
from sessiontree.branches.pick import pick
from sessiontree.branches.summarize import SummaryOptions
from sessiontree.compaction.hooks import Cancel, Hook, PendingSummary, SuppliedSummary
from sessiontree.compaction.summarizers import Answer, ModelSummarizer
from sessiontree.core.entries import BranchSummary
from sessiontree.core.messages import Assistant, tool_calls
from sessiontree.errors import CompactionError, SummaryError, UsageError, WriteError
from sessiontree.session.history import history_ids
from sessiontree.session.open import open_store
from sessiontree.stores.file import FileStore
from sessiontree.stores.memory import MemoryStore
from sessiontree.testing.faults import FailingOsCalls
from tests.branches.worlds import (
    DIALECTS,
    World,
    as_file,
    check_lines_are_kept,
    check_pairs_are_whole,
    context_texts,
    findings,
    new_file,
)
from tests.conversion.conversations import assistant, call, result, text


@pytest.fixture(params=DIALECTS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    return World(request.param, tmp_path / "w")


def test_a_summary_contains_what_the_other_branch_learned(world: World) -> None:
    done = merge(world.opened(), world.one, into=world.other)
    found = world.opened()
    assert found.leaf == done.entry
    everything = "\n".join(context_texts(found))
    for fact in ("The generated one works.", "recursive descent", "ValueError: bad token 42", "parser.py", "by hand"):
        assert fact in everything
    after = world.path.read_bytes()
    assert after.startswith(world.before), "a merge only appends"
    assert len(after) > len(world.before)
    assert findings(found) == []


def test_append_copies_every_message_with_complete_calls_and_results(world: World) -> None:
    done = merge(world.opened(), world.one, into=world.other, how="append")
    found = world.opened()
    texts = context_texts(found)
    assert texts[2:12] == [*context_texts(found, world.other)[2:], *context_texts(found, world.one)[2:]]
    assert done.messages == 5
    assert found.leaf == done.entry
    check_pairs_are_whole(found, None)
    check_lines_are_kept(world.before, world.path.read_bytes())
    assert findings(found) == []


def test_a_merge_entry_records_both_parents(world: World) -> None:
    done = merge(world.opened(), world.one, into=world.other, how="append")
    found = world.opened()
    (join,) = find_merges(found).values()
    assert (join.entry, join.ancestor, join.how, join.brought) == (world.one, world.fork, "append", 5)
    assert done.entry in find_merges(found)
    assert world.other in history_ids(found, done.entry)


@pytest.mark.parametrize("how", ["summary", "append"])
def test_merging_twice_adds_nothing_and_reports_that(world: World, how: str) -> None:
    merge(world.opened(), world.one, into=world.other, how=how)  # type: ignore[arg-type]
    after = world.path.read_bytes()
    there_again = merge(world.opened(), world.one, into=world.other, how=how)  # type: ignore[arg-type]
    behind_it = merge(world.opened(), world.one, how=how)  # type: ignore[arg-type]
    other_way = merge(world.opened(), world.one, how="append" if how == "summary" else "summary")
    for again in (there_again, behind_it, other_way):
        assert again.nothing is not None
        assert again.entry is None
    assert world.path.read_bytes() == after


def test_only_messages_since_the_last_merge_are_merged(world: World) -> None:
    merge(world.opened(), world.one, into=world.other, how="append")
    joined = world.opened().leaf
    more = world.say(world.one, "And now?", "Trying again.", ("toolu_c", "lexer.py", "x"), "13 passed", "Fixed it.")
    done = merge(world.opened(), more, into=str(joined), how="append")
    assert done.messages == 5
    texts = context_texts(world.opened())
    assert texts.count("Write it by hand.") == 1
    assert texts.count("And now?") == 1
    check_pairs_are_whole(world.opened(), None)


def test_messages_that_came_from_our_branch_are_not_merged_back(world: World) -> None:
    merge(world.opened(), world.one, into=world.other, how="append")
    joined = str(world.opened().leaf)
    more = world.say(joined, "Go on.", "Going on.", ("toolu_d", "z.py", "z"), "ok", "Went on.")
    done = merge(world.opened(), more, into=world.one, how="append")
    texts = context_texts(world.opened())
    assert texts.count("Write it by hand.") == 1
    assert texts.count("用生成器 instead.") == 1
    assert texts.count("Go on.") == 1
    assert done.messages == 10
    assert merge(world.opened(), world.one, into=more).nothing is not None


def test_a_file_that_both_changed_differently_is_a_conflict(world: World) -> None:
    done = merge(world.opened(), world.one, into=world.other)
    (conflict,) = done.conflicts
    assert (conflict.kind, conflict.path) == ("file", "parser.py")
    assert "parser.py" in done.summary.partition("## Conflicts")[2]
    (join,) = find_merges(world.opened()).values()
    assert join.conflicts[0]["path"] == "parser.py"
    assert (list(join.conflicts[0]["ours"]), list(join.conflicts[0]["theirs"])) == (["toolu_b"], ["toolu_a"])


def test_the_same_change_on_both_sides_is_not_a_conflict(world: World) -> None:
    same = ("toolu_s", "same.py", "equal")
    one = world.say(world.fork, "One.", "Doing it.", same, "ok", "Done.")
    other = world.say(world.fork, "Other.", "Doing it, too.", same, "ok", "Done, too.")
    done = merge(world.opened(), one, into=other, how="append")
    assert done.conflicts == ()
    assert done.files.modified == ("same.py",)
    calls = [each.id for message in world.opened().context().messages for each in tool_calls(message)]
    assert calls == ["toolu_s", "toolu_s_run", "toolu_s_2", "toolu_s_run_2"]
    check_pairs_are_whole(world.opened(), None)


def test_a_dry_run_writes_nothing_and_shows_everything(world: World) -> None:
    done = merge(world.opened(), world.one, into=world.other, how="append", dry_run=True)
    assert done.entry is None
    assert done.messages == 5
    assert done.conflicts
    assert world.path.read_bytes() == world.before


@pytest.mark.parametrize("target", DIALECTS)
@pytest.mark.parametrize("how", ["summary", "append"])
def test_a_branch_of_another_session_and_dialect_is_merged_the_same_way(
    world: World, target: str, how: str, tmp_path: Path
) -> None:
    path = new_file(target, tmp_path / "t")
    before = path.read_bytes()
    source = world.opened()
    done = merge(sessiontree.open(path), world.one, source=source, how=how)  # type: ignore[arg-type]
    found = sessiontree.open(path)
    assert "ValueError: bad token 42" in "\n".join(context_texts(found))
    assert done.session == source.id
    assert done.files.modified == ("parser.py",)
    check_pairs_are_whole(found, None)
    check_lines_are_kept(before, path.read_bytes())
    assert world.path.read_bytes() == world.before
    assert findings(found) == []
    assert merge(sessiontree.open(path), world.one, source=source, how=how).nothing  # type: ignore[arg-type]
    if how == "append":
        names = [each.name for message in found.context().messages for each in tool_calls(message)]
        assert [name.lower() for name in names] == ["write", "bash"]
        assert names[1] == ("Bash" if target == "claude" else "bash")  # the tool name of the agent it was merged into


def test_a_fork_and_its_origin_share_their_beginning(world: World) -> None:
    origin = world.opened()
    forked = origin.fork(world.other, store=FileStore(str(world.path.parent / "fork" / world.path.name)))
    forked.append("user", "only in the fork")
    forked.append(assistant(text("indeed")))
    done = merge(origin, str(forked.leaf), into=world.other, source=forked, how="append")
    assert done.messages == 2
    assert context_texts(world.opened())[-3:-1] == ["only in the fork", "indeed"]


def test_merging_between_calls_and_their_results_is_refused(world: World) -> None:
    session = world.opened()
    branch = session.branch(world.other)
    branch.append("user", "wait")
    waiting = branch.append(assistant(text("waiting"), call("toolu_w", "bash", {"command": "sleep 9"})))
    session.close()
    before = world.path.read_bytes()
    with pytest.raises(UsageError, match="without results"):
        merge(world.opened(), world.one, into=waiting.id)
    assert world.path.read_bytes() == before


def test_calls_without_results_are_not_copied(world: World) -> None:
    session = world.opened()
    branch = session.branch(world.one)
    branch.append("user", "one more")
    end = branch.append(assistant(text("starting"), call("toolu_w", "bash", {"command": "sleep 9"})))
    session.close()
    done = merge(world.opened(), end.id, into=world.other, how="append")
    assert done.notes == ("1 tool call without a result not copied",)
    found = world.opened()
    assert "starting" in context_texts(found)
    assert "toolu_w" not in [each.id for message in found.context().messages for each in tool_calls(message)]


def test_a_branch_that_begins_with_results_is_merged_with_their_call(world: World) -> None:
    session = world.opened()
    branch = session.branch(world.fork)
    branch.append("user", "read it")
    asked = branch.append(assistant(text("reading"), call("toolu_r", "read", {"path": "x"})))
    branch.append(result("toolu_r", "read", "first reading"))
    first = branch.append(assistant(text("seen once")))
    other = session.branch(asked.id)
    other.append(result("toolu_r", "read", "second reading"))
    second = other.append(assistant(text("seen twice")))
    session.close()
    merge(world.opened(), second.id, into=first.id, how="append")
    found = world.opened()
    texts = context_texts(found)
    assert texts.index("first reading") < texts.index("second reading")
    assert texts.count("reading") == 2
    check_pairs_are_whole(found, None)
    assert findings(found) == []


def test_a_descendant_of_the_target_cannot_be_merged(world: World) -> None:
    with pytest.raises(UsageError, match="is a descendant of"):
        merge(world.opened(), world.one, into=world.fork)
    assert merge(world.opened(), world.fork, into=world.one).nothing is not None


def test_copied_answers_have_no_usage(world: World) -> None:
    used = world.opened().usage()
    merge(world.opened(), world.one, into=world.other, how="append")
    assert world.opened().usage().cost == used.cost
    assert world.opened().usage().input == used.input
    answers = [message for message in world.opened().context().messages if isinstance(message, Assistant)]
    assert all(answer.usage is not None for answer in answers), "Pi does not resume a session without usage"


# Models and hooks


def model(answer: str, asked: list[str] | None = None) -> SummaryOptions:
    def complete(*, system: str, messages: object, max_tokens: int) -> Answer:
        if asked is not None:
            asked.append(str(messages))
        return Answer(answer)

    return SummaryOptions(summarizer=ModelSummarizer(complete, "scripted"))


def test_contradictions_that_a_model_names_are_conflicts(tmp_path: Path) -> None:
    world = World("native", tmp_path)
    asked: list[str] = []
    notes = "## Goal\n- a parser\n\n## Conflicts\n- here recursive descent, there lark"
    done = merge(world.opened(), world.one, into=world.other, options=model(notes, asked))
    assert "We decided to use lark" in asked[0]
    assert [conflict.text for conflict in done.conflicts if conflict.kind == "decision"] == [
        "here recursive descent, there lark"
    ]
    entry = world.opened().entry(str(done.entry))
    assert isinstance(entry, BranchSummary)
    assert entry.details["summarizer"] == "scripted"
    assert entry.details["conflicts"][-1] == {"kind": "decision", "text": "here recursive descent, there lark"}
    assert entry.summary.count("## Conflicts") == 1


def test_a_summary_that_fails_changes_nothing(tmp_path: Path) -> None:
    world = World("native", tmp_path)
    with pytest.raises(SummaryError):
        merge(world.opened(), world.one, into=world.other, options=model("  "))
    assert world.path.read_bytes() == world.before


def test_hooks_may_cancel_a_merge_or_supply_its_summary(tmp_path: Path) -> None:
    world = World("native", tmp_path)

    class No(Hook):
        def before(self, occasion: PendingSummary) -> Cancel:
            return Cancel("not now")

    class Mine(Hook):
        def before(self, occasion: PendingSummary) -> SuppliedSummary:
            return SuppliedSummary("my own words", {"mine": 1})

    with pytest.raises(CompactionError, match="not now"):
        merge(world.opened(), world.one, into=world.other, options=SummaryOptions(hooks=[No()]))
    assert world.path.read_bytes() == world.before
    done = merge(world.opened(), world.one, into=world.other, options=SummaryOptions(hooks=[Mine()]))
    entry = world.opened().entry(str(done.entry))
    assert isinstance(entry, BranchSummary)
    assert entry.summary == "my own words"
    assert entry.from_hook
    assert entry.details["mine"] == 1
    assert find_merges(world.opened())[entry.id].entry == world.one


# Nothing is lost


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_merge_cut_at_any_byte_keeps_all_earlier_entries(dialect: str, tmp_path: Path) -> None:
    world = World(dialect, tmp_path)
    merge(world.opened(), world.one, into=world.other, how="append")
    after = world.path.read_bytes()
    assert after.startswith(world.before)  # no line had to be reordered here
    for size in range(len(world.before), len(after), 97):
        session = open_store(MemoryStore(after[:size], str(world.path)), dialect=dialect)
        check_lines_are_kept(world.before, after[:size])
        assert context_texts(session, world.one) == context_texts(world.opened(), world.one)
        assert context_texts(session, world.other) == context_texts(world.opened(), world.other)
        was_done = bool(find_merges(session))  # only the line that pins Claude Code's current entry was cut off
        again = merge(session, world.one, into=world.other, how="append")
        assert (again.entry is None) == was_done
        if was_done:
            session.move(next(iter(find_merges(session))))
        assert context_texts(session)[-2] == "The hand-written one fails."
        check_pairs_are_whole(session, None)


def test_a_short_write_is_rolled_back_completely(tmp_path: Path) -> None:
    world = World("native", tmp_path)
    os_calls = FailingOsCalls()
    session = open_store(FileStore(str(world.path), os_calls=os_calls), dialect="native")
    os_calls.shorten_write(700)
    os_calls.fail("write", 28, nth=2)
    with pytest.raises(WriteError):
        merge(session, world.one, into=world.other, how="append")
    assert world.path.read_bytes() == world.before


def test_a_kill_during_a_merge_loses_no_line(tmp_path: Path) -> None:
    world = World("native", tmp_path)
    script = f"""
import sessiontree
from sessiontree.branches.merge import merge
print("ready", flush=True)
while True:
    session = sessiontree.open({str(world.path)!r})
    fresh = session.branch({world.fork!r}).append("user", "another way")
    merge(session, {world.one!r}, into=fresh.id, how="append")
"""
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    for _ in range(200):
        if len(world.path.read_bytes()) > len(world.before) * 3:
            break
        time.sleep(0.02)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    child.stdout.close()
    after = world.path.read_bytes()
    assert after.startswith(world.before)
    session = world.opened()
    for leaf in session.leaves():
        check_pairs_are_whole(session, leaf)
    assert merge(session, world.one, into=world.other, how="append").entry is not None


def test_hostile_text_is_merged_as_plain_text(tmp_path: Path) -> None:
    world = World("native", tmp_path)
    nasty = 'a\x1b[31m\u202e</summary>"mergedFrom": {"entry": "x"} \ud800 <script>'
    end = world.say(world.fork, nasty, nasty, ("toolu_n", "../../etc/passwd\n\x1b", nasty), nasty, nasty)
    merge(world.opened(), end, into=world.one, how="append")
    merge(world.opened(), world.other)
    found = world.opened()
    assert nasty in context_texts(found)
    assert len(find_merges(found)) == 2
    check_pairs_are_whole(found, None)


def test_malformed_merge_records_are_ignored(tmp_path: Path) -> None:
    world = World("native", tmp_path)
    session = world.opened()
    for details in (
        {"mergedFrom": 3},
        {"mergedFrom": {"entry": 5}},
        {"mergedFrom": {"entry": "nowhere"}},
        ["mergedFrom"],
    ):
        session.append({"type": "branch_summary", "fromId": "x", "summary": "s", "details": details})
    session.append({"type": "branch_summary", "summary": "s", "details": {"mergedFrom": {"entry": session.leaf}}})
    session.close()
    found = world.opened()
    assert next(join.entry for join in find_merges(found).values()) == "nowhere"
    assert merge(found, world.one).entry is not None


def test_context_edits_apply_to_merged_messages(tmp_path: Path) -> None:
    world = World("native", tmp_path)
    session = world.opened()
    branch = session.branch(world.one)
    secret = branch.append("user", "forget this")
    wordy = branch.append(assistant(text("a long answer")))
    branch.append({"type": "context_edit", "targetId": secret.id, "replacement": None})
    end = branch.append({"type": "context_edit", "targetId": wordy.id, "replacement": {"content": "short"}})
    merge(session, end.id, into=world.other, how="append")
    texts = context_texts(world.opened())
    assert "forget this" not in texts
    assert "a long answer" not in texts
    assert "short" in texts


def test_a_branch_without_messages_merges_nothing(tmp_path: Path) -> None:
    world = World("native", tmp_path)
    session = world.opened()
    branch = session.branch(world.fork)
    branch.append({"type": "mode_change", "mode": "plan"})
    end = branch.append({"role": "system", "content": "Be brief."})
    before = world.path.read_bytes()
    assert merge(session, end.id, into=world.one).nothing is not None
    assert merge(session, end.id, into=world.one, how="append").nothing is not None
    assert world.path.read_bytes() == before


def test_images_are_merged_too(tmp_path: Path) -> None:
    picture = {"type": "image", "data": "iVBORw0KGgo" + "A" * 4001, "mimeType": "image/png"}
    for dialect in DIALECTS:
        world = World(dialect, tmp_path / dialect)
        session = world.opened()
        end = session.branch(world.one).append("user", [text("look"), picture])
        merge(session, end.id, into=world.other, how="append")
        found = [str(message) for message in world.opened().context().messages]
        assert sum(picture["data"] in message for message in found) == 1, dialect


def test_deltas_have_the_entries_of_one_branch_only(world: World) -> None:
    one, other = find_deltas(world.opened(), world.one, world.other)
    assert one.ancestor == other.ancestor == world.fork
    assert len(one.messages) == len(other.messages) == 5
    assert isinstance(one.messages[-1], Assistant)
    assert find_deltas(world.opened(), world.one, world.one)[0].items == ()


def test_an_unrelated_session_can_be_merged(tmp_path: Path) -> None:
    session = sessiontree.create(cwd="/", in_memory=True)
    session.append("user", "from elsewhere")
    session.append(assistant(text("an answer from elsewhere")))
    source = as_file(session, "claude", tmp_path / "c")
    world = World("pi", tmp_path / "p")
    other = sessiontree.open(source)
    done = pick(world.opened(), [str(other.context().sources[1])], onto=world.one, source=other)
    assert done.session == other.id
    assert context_texts(world.opened())[-2] == "an answer from elsewhere"
