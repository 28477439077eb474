"""Explorations on the page: started, watched, steered, decided about, undone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sessiontree.library.library import Library
from sessiontree.session.open import create
from sessiontree.session.session import Session
from sessiontree.web.site import key_of
from tests.explore.explored import Explored
from tests.explore.repos import make_repository
from tests.web.conftest import Site, until


@pytest.fixture
def session(home: Path, library: Library) -> Session:
    project = make_repository(home / "projects" / "lanes")
    session = create(str(project), home=library.home)
    session.rename("Two lanes")
    session.append("user", "question")
    session.append("assistant", "answer")
    session.flush()
    library.refresh()
    return session


def script(tmp_path: Path, *turns: dict[str, Any]) -> str:
    path = tmp_path / "script.json"
    path.write_text(json.dumps({"turns": turns}))
    return f"scripted:{path}"


def write(path: str, content: str = "hello\n") -> dict[str, Any]:
    return {"name": "write", "arguments": {"path": path, "content": content}}


class Lanes:
    """The lanes of an exploration on the page."""

    def __init__(self, site: Site, session: Session) -> None:
        self.site, self.session = site, session
        self.base = f"/s/{key_of(session.location)}"
        self.run = ""

    def start(self, **fields: Any) -> None:
        answer = self.site.post(f"{self.base}/explore", fields)
        assert answer.status == 200, answer.text
        self.run = answer.json()["run"]

    def boards(self) -> Iterator[str]:
        """What the page shows, whenever it changes."""
        for name, fields in self.site.events(f"{self.base}/explore/{self.run}/events"):
            if name == "board":
                yield fields["html"]

    def until(self, *words: str) -> str:
        """The first board that contains some words."""
        boards = self.boards()
        try:
            return next(board for board in boards if all(word in board for word in words))
        finally:
            boards.close()  # type: ignore[attr-defined]

    def decide(self, action: str, **arguments: Any) -> dict[str, Any]:
        """Plan a decision and carry it out; returns the plan and the answer."""
        plan = self.site.post(f"{self.base}/plan", {"action": action, "arguments": {"run": self.run, **arguments}})
        assert plan.status == 200, plan.text
        return {**plan.json(), **self.site.post("/do", {"plan": plan.json()["plan"]}).json()}


@pytest.fixture
def lanes(known: Site, session: Session) -> Lanes:
    return Lanes(known, session)


def test_lanes_are_started_watched_kept_and_the_decision_undone(lanes: Lanes, tmp_path: Path) -> None:
    project = Path(lanes.session.cwd)
    model = script(tmp_path, {"text": "", "toolCalls": [write("x.txt")]}, {"text": "Written by a lane."})
    lanes.start(prompts="write it", models=[model], count=2, check="test -f x.txt")
    board = lanes.until("2 lanes, 2 ended</p>")
    for shown in ("check passed", "1 file +1 -0", "Written by a lane.", "tokens", ">Keep<"):
        assert board.count(shown) == 2, shown
    assert "+hello" in lanes.site.get(f"{lanes.base}/explore/{lanes.run}/diff?lane=2").text
    assert "Written by a lane." in lanes.site.get(f"{lanes.base}?run={lanes.run}&lane=2").text
    assert not (project / "x.txt").exists()
    done = lanes.decide("keep-lane", lane="2")
    assert "1 file of the project will change:" in done["lines"]
    assert (project / "x.txt").read_text() == "hello\n"
    assert "done (kept)" in lanes.until("(left)")
    assert lanes.site.post("/do", {"plan": done["undo"]}).status == 200
    assert not (project / "x.txt").exists()
    board = lanes.until("(left)")
    assert board.count("done (left)") == 2


def test_a_lane_asks_on_the_page_and_takes_messages(lanes: Lanes, tmp_path: Path) -> None:
    command = {"name": "bash", "arguments": {"command": "echo hi > outside.txt"}}
    lanes.start(prompts="go", models=[script(tmp_path, {"text": "", "toolCalls": [command]}, {"text": "Finished."})])
    board = lanes.until("data-question=", 'data-stop="1"')
    assert lanes.site.post(f"{lanes.base}/explore/{lanes.run}/steer/1", {"text": "be quick"}).status == 200
    question = re.search('data-question="([^"]+)"', board)
    assert question is not None
    reply = {"id": question[1], "answer": "no"}
    assert lanes.site.post(f"{lanes.base}/explore/{lanes.run}/answer", reply).status == 200
    board = lanes.until("1 lane, 1 ended</p>")
    assert "data-question=" not in board
    conversation = lanes.site.get(f"{lanes.base}?run={lanes.run}&lane=1").text
    assert "be quick" in conversation
    assert lanes.site.post(f"{lanes.base}/explore/{lanes.run}/steer/1", {"text": "more"}).status == 404


def test_running_lanes_are_stopped_one_by_one_and_together(lanes: Lanes, tmp_path: Path) -> None:
    slow = {"text": "word " * 4_000, "delay": 0.02, "piece": 5}
    lanes.start(prompts="first\nsecond\nthird", models=[script(tmp_path, slow)])
    lanes.until("word word")
    lanes.site.post(f"{lanes.base}/explore/{lanes.run}/stop", {"lane": 2})
    board = lanes.until("3 lanes, 1 ended · running</p>")
    assert re.search(r'<section class="lane stopped" id="lane-2"', board)
    lanes.site.post(f"{lanes.base}/explore/{lanes.run}/stop", {})
    board = lanes.until("3 lanes, 3 ended</p>")
    assert board.count('<section class="lane stopped"') == 3


@pytest.mark.slow
def test_lanes_of_another_process_are_watched_and_merged(known: Site, home: Path, library: Library) -> None:
    folder = home / "other"
    folder.mkdir()
    explored = Explored(folder, {"one": {"one.txt": "1\n"}, "two": {"two.txt": "2\n"}}, home=Path(library.home))
    library.refresh()
    lanes = Lanes(known, explored.session)
    page = known.get(f"{lanes.base}/explore").text
    run = re.search('data-run="([0-9a-f]{8})"', page)
    assert run is not None
    lanes.run = run[1]
    done = lanes.decide("merge-lanes", lanes=["1", "2"])
    assert (explored.project / "one.txt").exists()
    assert "done (merged)" in lanes.until("done (merged)")
    known.post("/do", {"plan": done["undo"]})
    until(lambda: not (explored.project / "one.txt").exists())
    assert lanes.decide("drop-lanes", lanes=["2"])["done"] is True
    assert "done (dropped)" in lanes.until("done (dropped)")


def test_a_read_only_server_shows_lanes_without_buttons(library: Library, home: Path) -> None:
    folder = home / "other"
    folder.mkdir()
    explored = Explored(folder, {"one": {"one.txt": "1\n"}}, home=Path(library.home))
    library.refresh()
    site = Site(library, str(home), read_only=True)
    try:
        site.login()
        base = f"/s/{key_of(explored.session.location)}"
        page = site.get(f"{base}/explore").text
        assert 'id="lane-1"' in page
        assert "<button" not in page
        assert site.post(f"{base}/explore", {"prompts": "go"}).status == 405
        assert site.post(f"{base}/explore/x/stop", {}).status == 404
    finally:
        site.close()


def test_a_session_whose_format_has_no_lanes_offers_a_fork(known: Site, library: Library) -> None:
    summary = library.find("Fix the flaky login test")
    page = known.get(f"/s/{key_of(summary.ref)}/explore").text
    assert "sessions cannot hold lanes" in page
    assert 'id="fork-here"' in page
    assert 'id="start-lanes"' not in page
