"""Sub-agents are shown inside of the calls that started them."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

import sessiontree
from sessiontree.export import BranchSelection, Redactor, export
from tests.export.subagents import ID, session_with_branch, session_with_own_session, write_transcript


def page_of(path: str | Path, branch: BranchSelection = "active") -> str:
    with sessiontree.open(path) as session:
        return b"".join(export(session, "html", branch=branch)).decode()


def call_in(page: str) -> str:
    """The element of the call, up to its result."""
    return page[page.index('<details class="call"') : page.index('<div class="result">')]


@pytest.mark.parametrize("branch", ["active", "all"])
def test_a_sub_agent_in_a_file_is_inside_of_its_call(tmp_path: Path, branch: BranchSelection) -> None:
    call = call_in(page_of(write_transcript(tmp_path), branch))
    assert "<summary>Sub-agent: look into it" in call
    assert "the nested <strong>answer</strong>" in call


@pytest.mark.parametrize("branch", ["active", "all"])
def test_a_sub_agent_on_a_branch_is_inside_of_its_call_and_not_abandoned(
    tmp_path: Path, branch: BranchSelection
) -> None:
    session = session_with_branch(tmp_path, tmp_path / "home")
    page = page_of(session.location, branch)
    call = call_in(page)
    assert "the nested <strong>answer</strong>" in call
    assert "abandoned" not in call
    assert page.count("the nested <strong>answer</strong>") == 1
    assert "(not in this page)" not in page
    name = re.search(r'<details class="subagent" id="(branch-\d+)">', call)
    assert name is not None
    assert f'href="#{name[1]}"' in page[page.index("<nav") :]


def test_secrets_of_a_sub_agent_are_masked(tmp_path: Path) -> None:
    path = write_transcript(tmp_path)
    nested = tmp_path / ID / "subagents" / "agent-a1.jsonl"
    nested.write_bytes(nested.read_bytes().replace(b"the nested **answer**", b"password=hunter2"))
    with sessiontree.open(path) as session:
        page = b"".join(export(session, "html", redactor=Redactor())).decode()
    assert "Sub-agent: look" in page
    assert "hunter2" not in page


@pytest.mark.parametrize("agent", ["../../secret", "/etc/passwd", "a1\0", "x/../../subagents/agent-a1"])
def test_a_transcript_can_name_no_other_file(tmp_path: Path, agent: str) -> None:
    folder = tmp_path / "project"
    path = write_transcript(folder, agent=agent)
    data = (folder / ID / "subagents" / "agent-a1.jsonl").read_bytes()
    (tmp_path / "secret.jsonl").write_bytes(data)
    (folder / "secret.jsonl").write_bytes(data)
    assert "the nested" not in page_of(path)


def test_a_sub_agent_of_another_session_and_a_link_are_not_shown(tmp_path: Path) -> None:
    assert "the nested" not in page_of(write_transcript(tmp_path / "one", id="0190aaaa-0000-4000-8000-00000000000b"))
    path = write_transcript(tmp_path / "two")
    place = tmp_path / "two" / ID / "subagents" / "agent-a1.jsonl"
    os.rename(place, tmp_path / "elsewhere.jsonl")
    place.symlink_to(tmp_path / "elsewhere.jsonl")
    assert "the nested" not in page_of(path)


@pytest.mark.parametrize("dialect", ["native", "pi", "claude", "neovate"])
def test_sub_agents_in_sessions_of_their_own_are_inside_of_their_calls(tmp_path: Path, dialect: str) -> None:
    home = tmp_path / "home"
    session = session_with_own_session(tmp_path, home, dialect)
    with sessiontree.open(session.location, home=home) as opened:
        page = b"".join(export(opened, "html")).decode()
    calls = page.split('<details class="call"')[1:]
    assert len(calls) == 2
    for call, words in zip(calls, ("first", "second"), strict=True):  # both have the same id, as some servers give them
        assert f"<summary>Sub-agent: look into the {words}" in call
        assert call.count(f"the {words} <strong>answer</strong>") == 1


def test_a_sub_agent_that_many_calls_name_is_shown_once(tmp_path: Path) -> None:
    path = write_transcript(tmp_path)
    _prompt, call, result = path.read_bytes().splitlines(keepends=True)
    again = (call + result).replace(b"toolu_1", b"toolu_2").replace(b'"u3"', b'"u5"').replace(b"u2", b"u4")
    path.write_bytes(path.read_bytes() + again.replace(b'"parentUuid":"u1"', b'"parentUuid":"u3"'))
    page = page_of(path)
    assert page.count('<details class="call"') == 2
    assert page.count("Sub-agent: look into it") == 1
