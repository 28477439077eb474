"""Sessions that do not record their working folder, as those of Neovate: clients find their copies, too."""

from __future__ import annotations

from pathlib import Path

import pytest

import sessiontree
from sessiontree.conversion.install import Request, carry_out, make_plan
from sessiontree.conversion.launch import plan_resumption
from tests.library.world import World, json_lines

AGENTS = ("claude", "codex", "gemini", "native", "neovate", "omp", "pi", "qwen")


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    world = World(tmp_path)
    for name, value in world.environment.items():
        monkeypatch.setenv(name, value)
    return world


def put_session(world: World, folder: str) -> Path:
    user = {"type": "message", "role": "user", "content": "hello", "uuid": "u1", "parentUuid": None}
    answer = {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "hi"}], "uuid": "u2"}
    lines = [user, {**answer, "parentUuid": "u1"}]
    return world.put(Path(".neovate/projects", folder, "0a1b2c3d.jsonl"), lines)


def project_folder(path: Path) -> str:
    return str(path).strip("/").replace("/", "-").replace("_", "-").lower()


def test_the_folder_is_the_one_in_the_records_of_the_client(world: World) -> None:
    project = world.home / "work"
    path = put_session(world, project_folder(project))
    assert sessiontree.open(path).cwd == ""
    world.put(".neovate/data.json", json_lines([{"projects": {str(project): {}}}]))
    session = sessiontree.open(path)
    assert session.cwd == str(project)
    resumption = plan_resumption(session)
    assert (resumption.cwd, resumption.plan) == (str(project), None)
    assert plan_resumption(session, "claude").cwd == str(project)


@pytest.mark.parametrize("agent", AGENTS)
def test_a_copy_of_a_session_without_a_folder_belongs_to_the_current_one(
    agent: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = world.home / "work"
    project.mkdir()
    monkeypatch.chdir(project)
    session = sessiontree.open(put_session(world, "elsewhere"))
    plan = make_plan(session, Request(agent))
    carry_out(session, plan)
    assert plan.cwd == str(project)
    assert [note.why for note in plan.report.notes if note.what == "folders"] == [
        f"the session records none; it becomes {project}"
    ]
    world.put(".neovate/data.json", json_lines([{"projects": {str(project): {}}}]))
    with world.library() as library:
        found = {summary.ref for summary in library.sessions(project=project)}
    assert found == {plan.path}


def test_a_session_without_a_folder_is_resumed_where_its_client_finds_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = world.home / "work"
    project.mkdir()
    monkeypatch.chdir(project)
    session = sessiontree.open(put_session(world, project_folder(project)))
    resumption = plan_resumption(session)
    assert (resumption.command, resumption.cwd) == (("neovate", "--resume", "0a1b2c3d"), str(project))
    assert resumption.plan is None
