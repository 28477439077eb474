"""One grammar of durations for options, filters and limits."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from sessiontree.cli.library_options import parse_since
from sessiontree.core.durations import parse_age, parse_duration
from sessiontree.errors import UsageError
from sessiontree.explore.plan_parser import parse_bounds
from sessiontree.search.query_parser import parse

DAY = 86_400.0
KNOWN = {
    "90s": 90.0,
    "3m": 180.0,
    "3min": 180.0,
    "12h": 43_200.0,
    "1.5d": 1.5 * DAY,
    "2w": 14 * DAY,
    "6mo": 180 * DAY,
    "2y": 730 * DAY,
}


def since_option(text: str) -> float:
    return time.time() - parse_since(text) / 1000


def since_filter(text: str) -> float:
    since = parse(f"since:{text}").filters.since
    assert since is not None
    return time.time() - since / 1000


def budget(text: str) -> float:
    seconds = parse_bounds([text], 1, 0).seconds
    assert seconds is not None
    return seconds


def duration(text: str) -> float:
    found = parse_duration(text)
    assert found is not None
    return found.seconds


@pytest.mark.parametrize("parse_text", [since_option, since_filter, budget, duration])
@pytest.mark.parametrize("text", KNOWN)
def test_a_duration_means_the_same_everywhere(parse_text: Callable[[str], float], text: str) -> None:
    assert parse_text(text) == pytest.approx(KNOWN[text], abs=30)


@pytest.mark.parametrize("text", ["6M", "6", "m", "-3d", "3 d", "3x", "1e3d", ""])
def test_everything_else_is_not_a_duration(text: str) -> None:
    assert parse_duration(text) is None
    with pytest.raises(UsageError, match="--since"):
        parse_since(text)


@pytest.mark.parametrize(
    "text", ["yesterday", "today", "2026-11", "2026-11-01", "2026-11-01T09:30", "2026-11-01T09:30Z"]
)
def test_a_day_and_a_time_mean_the_same_in_options_and_searches(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert since_option(text) == pytest.approx(since_filter(text), abs=30)
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(("text", "meaning"), [("6m", "6 minutes"), ("1min", "1 minute"), ("30s", "30 seconds")])
def test_a_short_time_is_refused_as_an_age_with_its_meaning(text: str, meaning: str) -> None:
    with pytest.raises(UsageError, match=f"means {meaning}; for months write "):
        parse_age(text)
