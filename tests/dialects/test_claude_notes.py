"""Claude Code's metadata lines about a session: tag, agent, pull requests, summaries of branches, replaced results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import sessiontree
from sessiontree.branches.list import list_branches
from sessiontree.branches.tips import count_tips
from sessiontree.cli import main
from sessiontree.core.messages import message_text

ID = "0a000000-0000-4000-8000-00000a000000"


def line(id: str, parent: str | None, role: str, content: Any, second: int) -> dict[str, Any]:
    message = {"role": role, "content": content, **({"id": f"r{second}", "model": "m"} if role == "assistant" else {})}
    own = {"uuid": id, "parentUuid": parent, "sessionId": ID, "cwd": "/work/p", "version": "2.1.0"}
    return {"type": role, **own, "timestamp": f"2026-01-01T00:00:{second:02}.000Z", "message": message}


CALL = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls"}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "A HUGE OUTPUT"}
LINES = [
    {"type": "summary", "summary": "Summary of another file", "leafUuid": "elsewhere"},
    {"type": "summary", "summary": "The first attempt", "leafUuid": "b"},
    {"type": "summary", "summary": "The second attempt", "leafUuid": "e"},
    line("a", None, "user", "start", 1),
    line("b", "a", "assistant", [{"type": "text", "text": "first"}], 2),
    line("c", "a", "user", "again", 3),
    line("d", "c", "assistant", [CALL], 4),
    line("e", "d", "user", [RESULT], 5),
    {"type": "tag", "tag": "old", "sessionId": ID},
    {"type": "tag", "tag": "wip", "sessionId": ID},
    {"type": "agent-setting", "agentSetting": "reviewer", "sessionId": ID},
    {"type": "pr-link", "prNumber": 12, "prUrl": "https://example.org/pull/12", "sessionId": ID},
    {"type": "pr-link", "prNumber": 12, "prUrl": "https://example.org/pull/12", "sessionId": ID},
    {"type": "content-replacement", "sessionId": ID, "replacements": [{"toolUseId": "toolu_1", "content": "[cut]"}]},
]


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SESSIONTREE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    path = tmp_path / "claude" / "projects" / "-work-p" / f"{ID}.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("".join(json.dumps(fields) + "\n" for fields in LINES))
    return path


def test_notes_of_the_client_are_read(path: Path) -> None:
    with sessiontree.open(str(path)) as session:
        notes = session.client_notes
        assert notes.tags == ("wip",)
        assert notes.agent == "reviewer"
        assert notes.pull_requests == ("https://example.org/pull/12",)
        assert notes.branch_summaries == {"b": "The first attempt", "e": "The second attempt"}
        assert notes.replacements == 1


def test_an_empty_tag_removes_the_tag(path: Path) -> None:
    with path.open("a") as file:
        file.write(json.dumps({"type": "tag", "tag": "", "sessionId": ID}) + "\n")
    with sessiontree.open(str(path)) as session:
        assert session.client_notes.tags == ()


def test_a_branch_has_the_summary_that_the_client_wrote_for_its_end(path: Path) -> None:
    with sessiontree.open(str(path)) as session:
        assert {branch.leaf: branch.name for branch in list_branches(session)} == {
            "b": "The first attempt",
            "e": "The second attempt",
        }
        assert session.name == "The second attempt"


def test_recorded_replacements_are_not_applied_as_in_the_client(path: Path) -> None:
    with sessiontree.open(str(path)) as session:
        assert "A HUGE OUTPUT" in [message_text(message) for message in session.context().messages]


def test_info_shows_them(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["tag", str(path), "mine"])
    capsys.readouterr()
    main(["info", str(path)])
    shown = capsys.readouterr().out
    for expected in ("mine, wip", "reviewer", "https://example.org/pull/12", "1 tool result", "b: The first attempt"):
        assert expected in shown
    main(["info", str(path), "--json"])
    facts = json.loads(capsys.readouterr().out)
    assert facts["tags"] == ["mine", "wip"]
    assert facts["branchSummaries"]["e"] == "The second attempt"
    assert (facts["agentSetting"], facts["contentReplacements"]) == ("reviewer", 1)


def test_lists_show_and_filter_tags_of_the_client_and_of_the_user(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["tag", str(path), "mine", "--json"])
    assert json.loads(capsys.readouterr().out)["clientTags"] == ["wip"]
    main(["tag", str(path)])
    assert capsys.readouterr().out.split() == ["mine", "wip"]
    main(["list", "--all", "--json", "--tag", "wip"])
    (session,) = json.loads(capsys.readouterr().out)["sessions"]
    assert session["tags"] == ["mine", "wip"]
    assert session["agentSetting"] == "reviewer"
    assert session["pullRequests"] == ["https://example.org/pull/12"]
    main(["list", "--all", "--json", "--tag", "mine"])
    assert len(json.loads(capsys.readouterr().out)["sessions"]) == 1
    main(["list", "--all", "--json", "--tag", "other"])
    assert json.loads(capsys.readouterr().out)["sessions"] == []
    main(["list", "--all"])
    assert "mine wip" in capsys.readouterr().out


@pytest.mark.parametrize("words", ["wip", "reviewer", "pull/12", "first attempt"])
def test_search_finds_them(path: Path, capsys: pytest.CaptureFixture[str], words: str) -> None:
    main(["search", "--json", words])
    assert ID in capsys.readouterr().out


NOTIFICATION = "<task-notification>\n<status>completed</status>\n</task-notification>"
MARKED = (
    "<system-reminder>\nThis is an automatic notification. The user did not write it.\n\n"
    f"{NOTIFICATION}\n</system-reminder>"
)
ORIGIN = {"origin": {"kind": "task-notification"}}


def with_notifications(path: Path) -> Path:
    """A transcript with notifications: as a prompt, as blocks, queued during a turn, and one that a person typed."""
    queued = {"type": "queued_command", "prompt": NOTIFICATION, "commandMode": "task-notification", **ORIGIN}
    attachment = {**line("q", "c", "user", "", 3), "type": "attachment", "attachment": queued}
    del attachment["message"]
    lines = [
        line("a", None, "user", "start", 1),
        line("b", "a", "assistant", [{"type": "text", "text": "working"}], 2),
        {**line("c", "b", "user", NOTIFICATION, 3), **ORIGIN},
        attachment,
        {**line("d", "q", "user", [{"type": "text", "text": NOTIFICATION}], 4), **ORIGIN},
        {**line("e", "d", "user", NOTIFICATION, 5), "origin": {"kind": "human"}},
        line("f", "e", "assistant", [{"type": "text", "text": "done"}], 6),
    ]
    path.write_text("".join(json.dumps(fields) + "\n" for fields in lines))
    return path


def test_notifications_of_tasks_are_marked_as_not_from_the_user(path: Path) -> None:
    with sessiontree.open(str(with_notifications(path))) as session:
        texts = [message_text(message) for message in session.context().messages]
    assert texts == ["start", "working", MARKED, MARKED, MARKED, NOTIFICATION, "done"]


@pytest.mark.parametrize("agent", ["pi", "native", "neovate", "codex"])
def test_notifications_stay_marked_in_other_agents_and_on_the_way_back(path: Path, tmp_path: Path, agent: str) -> None:
    texts: list[list[str]] = []
    source = str(with_notifications(path))
    for target in (agent, "claude"):
        copy = str(tmp_path / f"{target}.jsonl")
        assert main(["convert", source, "--to", target, "--out", copy]) == 0
        with sessiontree.open(copy) as session:
            texts.append([message_text(message) for message in session.context().messages])
        source = copy
    for found in texts:
        joined = "\n".join(found)
        assert joined.count(MARKED) == 3
        assert joined.count("<system-reminder>") == 3
        assert joined.count(NOTIFICATION) == 4


def test_a_branch_ends_at_the_current_entry_even_if_a_line_of_a_sub_agent_follows_it(tmp_path: Path) -> None:
    progress = {**line("p", "c", "user", "", 4), "type": "progress", "data": {"type": "bash_progress"}}
    of_sub_agent = {**line("x", "e", "user", "side", 7), "isSidechain": True}
    lines = [
        line("a", None, "user", "start", 1),
        line("c", "a", "assistant", [CALL], 2),
        progress,
        line("d", "c", "user", [RESULT], 5),
        line("e", "d", "assistant", [{"type": "text", "text": "done"}], 6),
        {"type": "last-prompt", "lastPrompt": "start", "leafUuid": "e", "sessionId": ID},
        of_sub_agent,
    ]
    path = tmp_path / f"{ID}.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with sessiontree.open(path) as session:
        assert session.leaf == "e"
        assert [branch.leaf for branch in list_branches(session)] == ["e"]
        assert count_tips(session) == 1
