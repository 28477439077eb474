"""Approval: the table of modes, read-only commands, and settings of the session."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

import sessiontree
from sessiontree.agent.approval import Allow, Approvals, Ask, Deny, Reply, decide
from sessiontree.agent.tool_calls import ToolRunner
from sessiontree.agent.tools.base import Plan, ToolOutput, Tools, load_tools
from sessiontree.agent.tools.bash import find_read_paths
from sessiontree.agent.workspace import Workspace
from sessiontree.core.entries import ApprovalMode
from sessiontree.core.messages import ToolCall
from tests.agent.builders import Workplace

ROOT = Path(__file__).parents[1]
CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "read inside": ("read", {"path": "a.txt"}),
    "read outside": ("read", {"path": "/etc/hostname"}),
    "read secrets": ("read", {"path": ".env"}),
    "write inside": ("write", {"path": "new.txt", "content": "x"}),
    "write outside": ("write", {"path": "../outside.txt", "content": "x"}),
    "write guarded": ("write", {"path": ".git/hooks/pre-commit", "content": "x"}),
    "edit inside": ("edit", {"path": "a.txt", "old_text": "a", "new_text": "b"}),
    "bash reads": ("bash", {"command": "cat a.txt"}),
    "bash reads outside": ("bash", {"command": "cat ../x"}),
    "bash": ("bash", {"command": "touch x"}),
    "grep": ("grep", {"pattern": "x"}),
    "grep outside": ("grep", {"pattern": "x", "path": "/"}),
}
PASSING = {
    ("default", ()): {"read inside", "bash reads", "grep"},
    ("default", ("edit",)): {"read inside", "bash reads", "grep", "edit inside"},
    ("default", ("bash", "write", "read", "grep")): {"read inside", "bash reads", "grep", "bash", "write inside"},
    ("autoEdit", ()): {"read inside", "bash reads", "grep", "write inside", "edit inside"},
    ("autoEdit", ("bash",)): {"read inside", "bash reads", "grep", "write inside", "edit inside", "bash"},
    ("yolo", ()): set(CALLS),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize(("mode", "approved"), PASSING)
def test_the_table_of_modes(mode: ApprovalMode, approved: tuple[str, ...], name: str, place: Workplace) -> None:
    (place.project / "a.txt").write_text("a")
    tool, arguments = CALLS[name]
    plan = load_tools()[tool].plan(arguments, place.context)
    decision = decide(tool, plan, mode, approved)
    assert isinstance(decision, Allow if name in PASSING[mode, approved] else Ask)


@pytest.mark.parametrize("name", CALLS)
def test_plan_mode_denies_every_change_also_by_approved_tools(name: str, place: Workplace) -> None:
    (place.project / "a.txt").write_text("a")
    tool, arguments = CALLS[name]
    plan = load_tools()[tool].plan(arguments, place.context)
    decision = decide(tool, plan, "plan", (tool,))
    assert isinstance(decision, Deny) == (plan.changes != "nothing")


def test_a_sub_agent_plans_too_if_its_caller_does(place: Workplace) -> None:
    caller = sessiontree.create(place.project, in_memory=True)
    sub_agent = sessiontree.create(place.project, in_memory=True)
    Approvals(caller).set_mode("plan")
    Approvals(sub_agent).inherit(Approvals(caller))
    assert Approvals(sub_agent).mode == "plan"


def test_questions_that_are_asked_each_time_cannot_be_approved_for_the_session(place: Workplace) -> None:
    for name in ("write outside", "write guarded", "read secrets", "read outside", "bash reads outside"):
        tool, arguments = CALLS[name]
        decision = decide(tool, load_tools()[tool].plan(arguments, place.context), "autoEdit", (tool,))
        assert isinstance(decision, Ask)
        assert not decision.question.may_always
        assert decision.question.reasons


READING = [
    "ls",
    "ls -la",
    "ls -la src",
    "cat a.txt b.txt",
    "head -n 5 a.txt",
    "tail -5 a.txt",
    "grep -n pattern a.txt",
    "wc -l a.txt",
    "pwd",
    "git status",
    "git log --oneline -5",
    "git diff --stat",
    "git show --stat HEAD",
    "echo hello",
]
NOT_READING = [
    "",
    " ",
    "rm a.txt",
    "cat a.txt > b.txt",
    "cat a.txt; rm b",
    "cat a.txt && rm b",
    "cat a.txt | sh",
    "cat $(rm x)",
    "cat `rm x`",
    "cat $HOME/x",
    "cat ~/x",
    "ls *",
    "cat 'a.txt'",
    'cat "a"',
    "cat a\nrm b",
    "cat a\trm",
    "cat\\ a",
    "A=b ls",
    "./ls",
    "/bin/ls",
    "find . -delete",
    "sort -o x a.txt",
    "tail -f a.txt",
    "grep -r x .",
    "grep -f patterns a.txt",
    "git",
    "git -c core.pager=x log",
    "git push",
    "git branch new",
    "git log --output=x",
    "git diff --ext-diff",
    "git diff --no-index a b",
    "git grep -O x",
    "sudo ls",
    "env",
    "ls --color=always",
    "date -s 12:00",
    "cat < a",
    "cat <(ls)",
    "cat a &",
    "cat {a,b}",
    "cat a#b",
    "ls !",
    "cat ａ",
    "file -f list",
]


@pytest.mark.parametrize("command", READING)
def test_plainly_read_only_commands_are_recognized(command: str, tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    assert find_read_paths(command, Workspace(tmp_path)) is not None


@pytest.mark.parametrize("command", NOT_READING)
def test_every_other_command_needs_approval(command: str, tmp_path: Path) -> None:
    assert find_read_paths(command, Workspace(tmp_path)) is None


def test_a_read_only_command_lists_paths_outside(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", tmp_path / "project"], check=True)
    (tmp_path / "project" / "link").symlink_to("/etc/passwd")
    workspace = Workspace(tmp_path / "project")
    for command in ("cat ../x", "cat /etc/passwd", "cat link", "git log ../..", "ls .."):
        places = find_read_paths(command, workspace)
        assert places is not None
        assert not all(place.is_inside for place in places), command


def test_git_needs_approval_if_the_repository_makes_it_run_programs(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    assert find_read_paths("git status", Workspace(tmp_path)) is not None
    for setting in ("core.fsmonitor", "filter.x.clean", "diff.external", "gpg.ssh.program"):
        subprocess.run(["git", "-C", tmp_path, "config", setting, "evil"], check=True)
        assert find_read_paths("git status", Workspace(tmp_path)) is None
        subprocess.run(["git", "-C", tmp_path, "config", "--unset", setting], check=True)


def test_outputs_of_commands_may_be_read_but_not_changed(place: Workplace, tmp_path: Path) -> None:
    context = msgspec.structs.replace(place.context, workspace=Workspace(place.project, readable=(str(place.outputs),)))
    path = str(place.outputs / "bash-1.txt")
    tools = load_tools()
    assert isinstance(decide("read", tools["read"].plan({"path": path}, context), "default"), Allow)
    assert isinstance(decide("write", tools["write"].plan({"path": path, "content": ""}, context), "autoEdit"), Ask)


def test_an_unexpected_exception_of_a_tool_becomes_a_result(place: Workplace) -> None:
    class Broken:
        name, description, changes = "broken", "breaks", "nothing"
        schema = msgspec.json.schema(dict)

        def plan(self, arguments: dict[str, Any], context: object) -> Plan:
            return Plan("break") if arguments else 1 / 0  # type: ignore[return-value]

        async def run(self, arguments: dict[str, Any], context: object) -> ToolOutput:
            raise LookupError("what was that")

    calls = ToolRunner(Tools([Broken()]), place.context, place.approvals)  # type: ignore[list-item]
    for arguments in ({}, {"x": 1}):
        output = asyncio.run(calls.call(ToolCall("1", "broken", arguments)))
        assert output.is_error
        assert output.text.startswith("broken failed: ")


def test_the_question_shows_the_command_or_the_diff(place: Workplace) -> None:
    (place.project / "a.txt").write_text("one\n")
    place.answers.reply = Reply("no", "use b.txt")
    output = place.call("edit", path="a.txt", old_text="one", new_text="two")
    (question,) = place.answers.questions
    assert question.title == "edit a.txt"
    assert "-one\n+two\n" in question.preview
    assert question.reasons == ("it changes files",)
    assert question.call_id == "call-1"
    assert output.is_error
    assert output.text == "edit was not run: use b.txt. Nothing was changed."
    assert output.details == {"denied": True}
    assert (place.project / "a.txt").read_text() == "one\n"
    place.call("bash", command="touch x")
    assert place.answers.questions[1].preview == "touch x"
    assert not (place.project / "x").exists()


def test_without_a_user_everything_is_denied(place: Workplace) -> None:
    calls = ToolRunner(load_tools(), place.context, place.approvals)
    output = asyncio.run(calls.call(ToolCall("1", "bash", {"command": "touch x"})))
    assert "no user is present to approve it" in output.text
    assert not (place.project / "x").exists()


def test_always_applies_to_the_rest_of_the_session_and_once_accepted_after_resuming(place: Workplace) -> None:
    place.session.append("user", "hi")
    place.answers.reply = Reply("always")
    place.call("bash", command="touch one")
    place.call("bash", command="touch two")
    assert len(place.answers.questions) == 1
    place.approvals.set_mode("autoEdit")
    resumed = Approvals(sessiontree.open(place.session.location, home=place.home))
    assert (resumed.mode, resumed.tools, resumed.in_force) == ("default", (), None)
    assert resumed.claimed == "mode autoEdit; approved: bash"
    resumed.accept()
    assert (resumed.mode, resumed.tools, resumed.claimed) == ("autoEdit", ("bash",), None)
    assert resumed.in_force == "mode autoEdit; approved: bash"
    resumed.revoke("bash")
    resumed.set_mode("default")
    assert Approvals(sessiontree.open(place.session.location, home=place.home)).claimed is None


def test_always_means_once_for_calls_that_are_asked_each_time(place: Workplace) -> None:
    place.answers.reply = Reply("always")
    place.call("write", path="../outside.txt", content="x")
    assert place.approvals.tools == ()
    assert (place.project.parent / "outside.txt").read_text() == "x"


@pytest.mark.parametrize(
    "sample",
    ["claude/01_plain.jsonl", "neovate/fork.jsonl", "pi-family/01_linear.jsonl"],
    ids=["claude", "neovate", "pi"],
)
def test_sessions_of_other_agents_store_approvals_too(sample: str, tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    shutil.copy(ROOT / "corpus" / sample, path)
    approvals = Approvals(sessiontree.open(path, home=tmp_path))
    approvals.set_mode("autoEdit")
    approvals.approve("bash", "edit")
    resumed = Approvals(sessiontree.open(path, home=tmp_path))
    assert resumed.claimed == "mode autoEdit; approved: bash, edit"
    resumed.accept()
    assert (resumed.mode, resumed.tools) == ("autoEdit", ("bash", "edit"))


def test_an_unknown_tool_and_wrong_arguments_become_results(place: Workplace) -> None:
    assert "no tool is named 'fly'" in place.call("fly").text
    wrong = place.call("read", file="x")
    assert wrong.is_error
    assert "Expected: {path: string" in wrong.text
    assert not place.answers.questions


def test_two_concurrent_changes_of_one_file_are_both_applied(place: Workplace) -> None:
    place.approvals.set_mode("yolo")
    (place.project / "f").write_text("a\nb\n")

    async def both() -> list[bool]:
        calls = [ToolCall(str(n), "edit", {"path": "f", "old_text": o, "new_text": o * 2}) for n, o in enumerate("ab")]
        return [output.is_error for output in await asyncio.gather(*map(place.calls.call, calls))]

    assert asyncio.run(both()) == [False, False]
    assert (place.project / "f").read_text() == "aa\nbb\n"
