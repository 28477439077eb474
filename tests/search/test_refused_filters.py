"""Filters with unknown values are refused, and all hits of a session can be reached."""

from __future__ import annotations

from pathlib import Path

import pytest

import sessiontree
from tests.cli.conftest import Run
from tests.cli.conftest import run as run  # the fixture


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("is:nice", "is: expects one of error, abandoned, pinned, not 'nice'"),
        ("in:body x", "in: expects one of prompt, answer"),
        ("since:banana", "since: expects an age"),
        ("agent:cladue x", "unknown agent 'cladue'; known: claude"),
        ("-role:usr x", "unknown role 'usr'; known: assistant"),
        ("session:zz x", "no session has an id that begins with 'zz'"),
        ("project:tidse x", "no session belongs to a project 'tidse'; known: tides"),
        ("tag:wpi x", "no session has the tag 'wpi'; known: wip"),
    ],
)
def test_an_unknown_value_is_refused_with_the_known_ones(run: Run, session: str, query: str, expected: str) -> None:
    assert run("tag", session, "wip").code == 0
    ran = run("search", "--", query)
    assert (ran.code, ran.out) == (2, "")
    assert expected in ran.err
    assert "unknown agent" in run("search", "x", "--agent", "cladue").err


@pytest.mark.parametrize("query", ["", "  "])
def test_an_empty_query_without_filters_is_refused(run: Run, session: str, query: str) -> None:
    ran = run("search", "--", query)
    assert (ran.code, ran.out) == (2, "")
    assert "nothing to search for" in ran.err
    for filters in (["since:7d"], [query, "--agent", "native"], [query, "--since", "7d"]):
        assert "otter" in run("search", *filters[1:], "--", filters[0]).out


@pytest.fixture
def session(tmp_path: Path) -> str:
    with sessiontree.create(tmp_path / "tides", home=tmp_path / "home") as session:
        for number in range(12):
            session.append("user", f"otter {number}")
    with sessiontree.create(tmp_path / "tides", home=tmp_path / "home") as other:
        other.append("user", "one otter")
    return session.id


def test_all_hits_of_a_session_can_be_reached(run: Run, session: str) -> None:
    shown = run("search", "otter").out
    (line,) = [line.strip() for line in shown.splitlines() if "more in this session" in line]
    assert line.startswith("9 more in this session: add session:")
    hint = line.rpartition(" ")[2]
    found = run("search", f"otter {hint}", "--json").json
    assert len(found["hits"]) == 12
    assert {hit["session"]["id"] for hit in found["hits"]} == {session}
    assert found["total"] == 12
    assert found["moreInSession"] == {}
    pages = [run("search", f"otter {hint}", "--limit", "5", "--offset", str(at), "--json").json for at in (0, 5, 10)]
    assert len({hit["entry"] for page in pages for hit in page["hits"]}) == 12
