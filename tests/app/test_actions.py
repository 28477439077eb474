"""Every action is planned without a write, does what its plan says, goes stale, and is undone."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

import sessiontree
from sessiontree.agent.workspace import Workspace
from sessiontree.app.actions.compact import plan_compact
from sessiontree.app.actions.contract import ActionPlan
from sessiontree.app.actions.convert import plan_convert
from sessiontree.app.actions.export import plan_export
from sessiontree.app.actions.leave_out import plan_leave_out, plan_take_in
from sessiontree.app.actions.merge import plan_merge, plan_pick
from sessiontree.app.actions.names import plan_label, plan_rename
from sessiontree.app.actions.repair import plan_repair_of
from sessiontree.app.actions.rewind import open_checkpoints, plan_rewind
from sessiontree.app.actions.table import ACTIONS, Subject
from sessiontree.app.actions.tags import find_tags, plan_pin, plan_tag
from sessiontree.archive.archive_home import Home
from sessiontree.archive.restore import restore
from sessiontree.branches.summarize import SummaryOptions
from sessiontree.compaction import Summary, find_summarizer
from sessiontree.compaction.summarizers import Request as SummaryRequest
from sessiontree.conversion.install import Request
from sessiontree.core.messages import ToolResult
from sessiontree.errors import ConflictError, ExistsError, ReadOnlyError, UsageError
from sessiontree.repair import examine
from sessiontree.session.session import Session
from sessiontree.settings import Compaction, Settings
from sessiontree.stores.memory import MemoryStore
from tests.branches.worlds import World, check_pairs_are_whole, context_texts
from tests.builders import opened

DIALECTS = ("native", "claude")
SMALL = Settings(compaction=Compaction(keep_recent_tokens=10))


class Bench:
    """A session with two branches, in a home folder of its own; the second branch is the active one."""

    def __init__(self, dialect: str, folder: Path) -> None:
        self.folder = folder
        self.world = World(dialect, folder / "sessions")
        self.project = folder / "project"
        self.project.mkdir()
        session = sessiontree.open(self.world.path, home=folder / "home")
        home = Home(
            str(folder / "home"), environment={"HOME": str(folder)}, roots={dialect: [str(folder / "sessions")]}
        )
        self.subject = Subject(session, home, SMALL, Workspace(str(self.project)))

    @property
    def session(self) -> Session:
        return self.subject.session

    def files(self) -> dict[str, bytes]:
        """Every file in the folder, but for locks."""
        found = (path for path in self.folder.rglob("*") if path.is_file() and not path.name.endswith("lock"))
        return {str(path): path.read_bytes() for path in found}

    def change_a_file(self) -> str:
        """Let a tool create a file; returns the entry before that."""
        before = self.session.leaf
        assert before is not None
        path = str(self.project / "note.md")
        checkpoints = open_checkpoints(self.session, Workspace(str(self.project)))
        state = checkpoints.store(path)
        Path(path).write_text("hello\n")
        checkpoints.record({path: state}, "write", "c1")
        return before


@pytest.fixture(params=DIALECTS)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    return Bench(request.param, tmp_path)


def rewind_bench(bench: Bench) -> dict[str, Any]:
    return {"entry": bench.change_a_file()}


def pruned_bench(bench: Bench) -> dict[str, Any]:
    """Plan to remove the branch that is not active: its first entry is the child of the fork."""
    path = bench.session.path_ids(bench.world.one)
    return {"entry": path[path.index(bench.world.fork) + 1]}


def renamed_bench(bench: Bench) -> dict[str, Any]:
    bench.session.rename("Before")
    return {"name": "A  name"}


Arguments = Callable[[Bench], dict[str, Any]]

CASES: dict[str, Arguments] = {
    "switch": lambda bench: {"entry": bench.world.one, "summarize": True},
    "label": lambda bench: {"entry": bench.world.fork, "text": "here"},
    "rename": renamed_bench,
    "fork": lambda bench: {"entry": bench.world.one},
    "merge": lambda bench: {"entry": bench.world.one},
    "pick": lambda bench: {"entries": [bench.world.one]},
    "compact": lambda bench: {},
    "leave-out": lambda bench: {"entries": [bench.world.fork]},
    "rewind": rewind_bench,
    "tag": lambda bench: {"add": ["work", "urgent"]},
    "pin": lambda bench: {},
    "export": lambda bench: {"path": str(bench.folder / "out.html")},
    "convert": lambda bench: {"to": "pi", "branch": "all", "path": str(bench.folder / "new.jsonl")},
    "prune": pruned_bench,
    "archive": lambda bench: {},
}
"""The actions that change something in a sound session."""

APPENDING = ("switch", "label", "rename", "merge", "pick", "compact", "leave-out", "rewind")


def planned(bench: Bench, name: str) -> ActionPlan[Any]:
    arguments = CASES[name](bench)
    if ACTIONS[name].why_not(bench.subject) is not None:
        pytest.skip(f"{name} does not work on {bench.session.dialect.name} sessions")
    return ACTIONS[name].plan(bench.subject, **arguments)


@pytest.mark.parametrize("name", CASES)
def test_a_plan_writes_nothing_and_is_json(bench: Bench, name: str) -> None:
    arguments = CASES[name](bench)
    if ACTIONS[name].why_not(bench.subject) is not None:
        pytest.skip(f"{name} does not work on {bench.session.dialect.name} sessions")
    before = bench.files()
    shown = ACTIONS[name].plan(bench.subject, **arguments).describe()
    assert bench.files() == before
    assert json.loads(msgspec.json.encode(shown))["action"] == name
    assert shown.title
    assert shown.nothing is None
    assert shown.final is None


@pytest.mark.parametrize("name", [name for name in CASES if name != "compact"])
def test_what_was_done_is_undone(bench: Bench, name: str) -> None:
    plan = planned(bench, name)
    before, messages = bench.files(), list(bench.session.context().messages)
    names = (bench.session.given_name, bench.session.labels)
    done = plan.do()
    assert bench.files() != before
    assert done.undo is not None
    assert json.loads(msgspec.json.encode(done.undo.describe()))["title"]
    done.undo.do()
    after = bench.files()
    if name in APPENDING:  # the current entry, labels and names are restored, not the bytes
        now = sessiontree.open(bench.world.path)
        assert list(now.context().messages) == messages
        assert (now.given_name, now.labels) == names
        assert after[str(bench.world.path)].startswith(before[str(bench.world.path)])
        after[str(bench.world.path)] = before[str(bench.world.path)]
    left = {path: data for path, data in after.items() if "/home/" not in path}
    assert left == {path: data for path, data in before.items() if "/home/" not in path}
    assert bench.subject.home.archive.items() == []
    assert not find_tags(bench.subject.home.tags, bench.session).tags


@pytest.mark.parametrize("name", [name for name in CASES if name not in ("tag", "pin", "rename", "label")])
def test_a_plan_goes_stale_when_another_process_writes(bench: Bench, name: str) -> None:
    plan = planned(bench, name)
    with sessiontree.open(bench.world.path) as other:
        other.append("user", "One more thing.")
    before = bench.files()
    with pytest.raises(ConflictError, match="plan it again"):
        plan.do()
    assert bench.files() == before


@pytest.mark.parametrize("name", [name for name in CASES if name not in ("tag", "pin", "export", "convert", "fork")])
def test_a_plan_is_carried_out_once(bench: Bench, name: str) -> None:
    plan = planned(bench, name)
    plan.do()
    before = bench.files()
    with pytest.raises(UsageError, match="plan it again"):
        plan.do()
    assert bench.files() == before


@pytest.mark.parametrize("name", [name for name in APPENDING if name not in ("rename", "label")])
def test_an_undo_goes_stale_when_the_session_continues(bench: Bench, name: str) -> None:
    done = planned(bench, name).do()
    bench.session.append("user", "Go on.")
    leaf = bench.session.leaf
    assert done.undo is not None
    with pytest.raises(ConflictError, match="plan it again"):
        done.undo.do()
    assert bench.session.leaf == leaf


def test_names_and_labels_go_stale_only_when_another_process_changed_them(bench: Bench) -> None:
    entry = bench.session.path_ids()[0]
    plans = [plan_rename(bench.session, "mine"), plan_label(bench.session, entry, "mine")]
    late = [plan_rename(bench.session, "too late"), plan_label(bench.session, entry, "too late")]
    with sessiontree.open(bench.world.path) as other:
        other.append("user", "One more thing.")
    for plan in plans:
        plan.do()
    assert (bench.session.given_name, bench.session.labels[entry]) == ("mine", "mine")
    for plan in late:
        with pytest.raises(ConflictError, match="plan it again"):
            plan.do()


def test_a_plan_that_several_threads_carry_out_is_carried_out_once(bench: Bench) -> None:
    plan = planned(bench, "merge")

    def try_it(_: int) -> bool:
        try:
            plan.do()
        except UsageError:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(try_it, range(8))) == 1


def test_every_action_has_a_case_or_a_test_of_its_own() -> None:
    others = {"diff", "undo-compaction", "take-in", "undo-rewind", "repair"}
    others |= {"keep-lane", "merge-lanes", "drop-lanes"}  # test_lane_actions
    assert set(ACTIONS) == {*CASES, *others}
    assert all(name == action.name for name, action in ACTIONS.items())


def test_a_table_names_what_a_session_lacks(tmp_path: Path) -> None:
    home = Home(str(tmp_path / "home"))
    memory = sessiontree.create(str(tmp_path), home="memory:table-test", appear="now")
    assert "separate files" in (ACTIONS["archive"].why_not(Subject(memory, home)) or "")
    subject = Subject(World("claude", tmp_path).opened(), home)
    assert ACTIONS["archive"].why_not(subject) is None
    assert "format" in (ACTIONS["leave-out"].why_not(subject) or "")
    assert "no agent" in (ACTIONS["rewind"].why_not(subject) or "")
    assert ACTIONS["merge"].why_not(subject) is None


# What the plan shows is what is written


def test_a_merge_writes_the_summary_that_was_shown_and_asks_once(bench: Bench) -> None:
    asked: list[SummaryRequest] = []

    class Counting:
        name = "counting"

        def __call__(self, request: SummaryRequest) -> Summary:
            asked.append(request)
            return Summary(f"## Goal\nanswer {len(asked)}")

    plan = plan_merge(bench.session, bench.world.one, options=SummaryOptions(summarizer=Counting()))
    merged = plan.do().result
    assert len(asked) == 1
    assert merged.summary == plan.expected.summary
    assert any("answer 1" in text for text in context_texts(bench.session))
    assert bench.session.leaf == merged.entry


def test_a_switch_shows_its_summary_and_becomes_the_current_entry(bench: Bench) -> None:
    leaf = bench.session.leaf
    plan = ACTIONS["switch"].plan(bench.subject, entry=bench.world.one, summarize=True)
    done = plan.do().result
    assert done.summary.splitlines() == list(plan.describe().lines)
    assert bench.session.leaf == done.entry
    assert done.left == leaf
    plain = ACTIONS["switch"].plan(bench.subject, entry=bench.world.other)
    assert plain.describe().nothing is None
    plain.do()
    assert bench.session.leaf == bench.world.other
    assert ACTIONS["switch"].plan(bench.subject, entry=bench.world.other).describe().nothing


def test_a_first_name_is_final_and_the_plan_says_so(bench: Bench) -> None:
    plan = ACTIONS["rename"].plan(bench.subject, name=" A  name ")
    assert "no name before" in (plan.describe().final or "")
    done = plan.do()
    assert (done.result, done.undo) == ("A name", None)


def test_a_pick_copies_a_call_with_its_results_and_the_plan_counts_them(bench: Bench) -> None:
    calls = bench.session.path_ids(bench.world.one)[-3]
    plan = plan_pick(bench.session, [calls])
    shown = plan.describe()
    assert shown.data["messages"] == 3
    plan.do()
    check_pairs_are_whole(bench.session, bench.session.leaf)


def test_a_repeated_merge_plans_nothing_and_does_nothing(bench: Bench) -> None:
    plan_merge(bench.session, bench.world.one).do()
    again = plan_merge(bench.session, bench.world.one)
    before = bench.files()
    assert "already merged" in (again.describe().nothing or "")
    assert again.do().undo is None
    assert bench.files() == before


def test_a_comparison_has_nothing_to_do(bench: Bench) -> None:
    before = bench.files()
    plan = ACTIONS["diff"].plan(bench.subject, entry=bench.world.one)
    shown = plan.describe()
    assert shown.nothing
    assert [side["leaf"] for side in shown.data["sides"]] == [bench.session.leaf, bench.world.one]
    assert plan.do().undo is None
    assert bench.files() == before


def test_a_compaction_writes_the_summary_that_was_shown(bench: Bench) -> None:
    plan = plan_compact(bench.session, SMALL, instructions="the parser")
    done = plan.do().result
    assert done.summary == plan.expected.summary
    assert any(plan.expected.summary in text for text in context_texts(bench.session))


@pytest.mark.parametrize("dialect", ["native", "pi"])
def test_a_compaction_is_undone_at_once_and_also_after_more_messages(dialect: str, tmp_path: Path) -> None:
    bench = Bench(dialect, tmp_path)
    before = bench.session.context().messages
    undo = plan_compact(bench.session, SMALL).do().undo
    assert undo is not None
    undo.do()
    assert sessiontree.open(bench.world.path).context().messages == before
    plan_compact(bench.session, SMALL).do()
    bench.session.append("user", "Go on.")
    plan = ACTIONS["undo-compaction"].plan(bench.subject)
    assert "1 message" in plan.describe().warnings[0]
    done = plan.do()
    assert bench.session.context().messages == before
    assert done.undo is not None
    done.undo.do()
    assert context_texts(bench.session)[-1] == "Go on."


@pytest.mark.parametrize("dialect", ["native", "pi"])
def test_a_call_is_left_out_with_its_results_and_taken_in_again(dialect: str, tmp_path: Path) -> None:
    bench = Bench(dialect, tmp_path)
    session = bench.session
    before = session.context()
    results = [
        id for id, message in zip(before.sources, before.messages, strict=True) if isinstance(message, ToolResult)
    ]
    plan = plan_leave_out(session, results[:1])
    assert len(plan.entries) == 3
    plan.do()
    assert not set(plan.entries) & set(session.context().sources)
    assert not any(isinstance(message, ToolResult) for message in session.context().messages)
    taken = plan_take_in(session, [plan.entries[0]])
    assert taken.entries == plan.entries
    taken.do()
    assert session.context().messages == before.messages
    assert sessiontree.open(bench.world.path).context().messages == before.messages


def test_entries_that_are_not_in_the_context_cannot_be_left_out_or_taken_in(tmp_path: Path) -> None:
    bench = Bench("native", tmp_path)
    with pytest.raises(UsageError, match="is not in the context"):
        plan_leave_out(bench.session, [bench.world.one])
    with pytest.raises(UsageError, match="was not left out"):
        plan_take_in(bench.session, [bench.world.fork])
    with pytest.raises(UsageError, match="claude sessions cannot"):
        plan_leave_out(sessiontree.open(World("claude", tmp_path / "c").path), [bench.world.fork])


def test_a_rewind_of_files_alone_keeps_the_conversation(bench: Bench) -> None:
    entry = bench.change_a_file()
    leaf = bench.session.leaf
    plan = plan_rewind(bench.session, Workspace(str(bench.project)), entry)
    assert any("-hello" in line for line in plan.describe().lines)
    done = plan.choose("files").do()
    assert not (bench.project / "note.md").exists()
    assert bench.session.context().messages == bench.session.context(leaf).messages
    undo = ACTIONS["undo-rewind"].plan(bench.subject)
    assert undo.describe().final
    undo.do()
    assert (bench.project / "note.md").read_text() == "hello\n"
    assert done.undo is not None
    with pytest.raises(ConflictError):
        done.undo.do()


def test_tags_that_another_process_changed_are_not_overwritten(bench: Bench) -> None:
    tags = bench.subject.home.tags
    plan = plan_tag(tags, bench.session, add=["a"])
    plan_pin(tags, bench.session).do()
    with pytest.raises(ConflictError, match="plan it again"):
        plan.do()
    assert find_tags(tags, bench.session).tags == ()
    plan = plan_tag(tags, bench.session, add=[" new   tag ", "b", "b"], remove=["c"])
    assert plan.do().result.tags == ("new tag", "b")
    assert find_tags(tags, bench.session).pinned
    assert plan_tag(tags, bench.session, add=["b"], remove=["c"]).describe().nothing
    assert plan_pin(tags, bench.session).describe().nothing
    with pytest.raises(UsageError, match="cannot be empty"):
        plan_tag(tags, bench.session, add=["  "])


def test_an_export_that_was_edited_is_not_deleted_by_undo(bench: Bench) -> None:
    path = bench.folder / "out.md"
    done = plan_export(bench.session, str(path), branch="all", redact=True).do()
    assert done.result.size == path.stat().st_size
    path.write_text("mine")
    assert done.undo is not None
    with pytest.raises(ConflictError, match="nothing was deleted"):
        done.undo.do()
    assert path.read_text() == "mine"
    with pytest.raises(ExistsError):
        plan_export(bench.session, str(path))
    with pytest.raises(UsageError, match="unknown extension"):
        plan_export(bench.session, str(bench.folder / "out.doc"))


def test_a_converted_session_is_removed_with_its_related_files(tmp_path: Path) -> None:
    bench = Bench("claude", tmp_path)
    related = bench.world.path.with_suffix("") / "subagents"
    related.mkdir(parents=True)
    name = related / "agent-x.jsonl"
    name.write_bytes(b'{"type":"user","isSidechain":true,"uuid":"u","message":{"role":"user","content":"x"}}\n')
    session = sessiontree.open(bench.world.path)
    out = tmp_path / "copies" / "copy.jsonl"
    done = plan_convert(session, Request("claude", branch="all", out=str(out))).do()
    assert len(done.result) > 0
    assert done.undo is not None
    done.undo.do()
    assert list((tmp_path / "copies").iterdir()) == []


def test_a_pruned_branch_is_gone_from_the_session_that_the_action_returns(bench: Bench) -> None:
    arguments = pruned_bench(bench)
    done = ACTIONS["prune"].plan(bench.subject, **arguments).do()
    assert done.session is not None
    assert bench.world.one not in done.session
    assert bench.world.other in done.session
    assert done.undo is not None
    restored = done.undo.do().session
    assert restored is not None
    assert bench.world.one in restored


def test_a_restore_that_happened_elsewhere_makes_the_undo_stale(bench: Bench) -> None:
    done = ACTIONS["archive"].plan(bench.subject).do()
    assert not bench.world.path.exists()
    restore(bench.subject.home.archive, done.result.item)
    assert done.undo is not None
    with pytest.raises(ConflictError, match="no longer in the archive"):
        done.undo.do()


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_repair_in_place_is_undone_byte_for_byte(dialect: str, tmp_path: Path) -> None:
    path = World(dialect, tmp_path).path
    damaged = path.read_bytes() + b'{"type":"mess'
    path.write_bytes(damaged)
    session = sessiontree.open(path)
    plan = plan_repair_of(session)
    shown = plan.describe()
    assert path.read_bytes() == damaged
    assert [change["rule"] for change in shown.data["changes"]] == ["torn-tail"]
    done = plan.do()
    assert path.read_bytes() == damaged[: -len(b'{"type":"mess')]
    assert done.session is not None
    assert not [finding for finding in examine(done.session) if finding.rule.id == "torn-tail"]
    assert done.undo is not None
    done.undo.do()
    assert path.read_bytes() == damaged


def test_a_repair_into_a_new_file_is_undone_by_deleting_it(tmp_path: Path) -> None:
    path = World("native", tmp_path).path
    path.write_bytes(path.read_bytes() + b'{"type":"mess')
    out = tmp_path / "repaired.jsonl"
    done = plan_repair_of(sessiontree.open(path), str(out)).do()
    assert out.exists()
    assert done.undo is not None
    done.undo.do()
    assert not out.exists()


def test_a_repaired_session_that_continued_is_not_overwritten_by_undo(tmp_path: Path) -> None:
    path = World("native", tmp_path).path
    path.write_bytes(path.read_bytes() + b'{"type":"mess')
    done = plan_repair_of(sessiontree.open(path)).do()
    with sessiontree.open(path) as other:
        other.append("user", "Go on.")
    after = path.read_bytes()
    assert done.undo is not None
    with pytest.raises(ConflictError, match="changed since it was repaired"):
        done.undo.do()
    assert path.read_bytes() == after


def test_a_sound_session_needs_no_repair(bench: Bench) -> None:
    before = bench.files()
    plan = ACTIONS["repair"].plan(bench.subject)
    assert plan.describe().nothing == "nothing to repair"
    assert plan.do().undo is None
    assert bench.files() == before


def test_a_read_only_session_is_planned_only_to_be_shown(tmp_path: Path) -> None:
    world = World("native", tmp_path)
    newer = world.before.replace(b'"version":3', b'"version":99', 1)
    session = opened(MemoryStore(newer))
    assert session.read_only
    assert plan_merge(session, world.one, dry_run=True).expected.summary
    with pytest.raises(ReadOnlyError):
        plan_merge(session, world.one)
    with pytest.raises(ReadOnlyError):
        plan_compact(session, SMALL)
    assert find_summarizer().name == "extractive"
    assert os.listdir(tmp_path) == [world.path.name]
