"""Costs that were not recorded: estimated from dated prices, or unknown, and the same in every command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import sessiontree
from sessiontree.core.usage import UnpricedUsage
from sessiontree.models.cost_estimate import cost_total, describe_cost, price_source
from tests.cli.conftest import Run
from tests.cli.conftest import run as run  # the fixture

KNOWN = UnpricedUsage("claude-sonnet-4-5", 1_000_000, 100_000, 2_000_000)
UNKNOWN = UnpricedUsage("a-model-of-nobody", 10)


def test_a_cost_is_recorded_estimated_partial_or_unknown_and_never_zero() -> None:
    assert cost_total(0.5, []).text() == "0.50"
    assert cost_total(0.0, [KNOWN]).text() == "~5.10"  # 3 for the input, 1.5 for the output, 0.6 for the cache
    assert cost_total(0.5, [KNOWN]).text() == "~5.60"
    assert cost_total(0.5, [UNKNOWN]).text() == ">0.50"
    assert cost_total(0.0, [UNKNOWN]).text() == "?"
    assert cost_total(0.0, []).text() == "?"
    assert cost_total(0.000001, []).text() == "<0.01"


def test_an_estimate_names_the_date_and_source_of_its_prices() -> None:
    date, source = price_source()
    assert date.startswith("20")
    shown = describe_cost(cost_total(0.0, [KNOWN]))
    assert date in shown
    assert source in shown


def answer(model: str, **usage: Any) -> dict[str, Any]:
    content = [{"type": "text", "text": "Yes."}]
    return {"role": "assistant", "content": content, "model": model, "stopReason": "stop", "usage": usage}


@pytest.mark.parametrize(
    ("model", "cost", "text", "kind"),
    [
        ("claude-sonnet-4-5", None, "~0.33", "estimated"),
        ("claude-sonnet-4-5", {"total": 0.25}, "0.25", "recorded"),
        ("a-model-of-nobody", None, "?", "unknown"),
    ],
)
def test_list_info_and_stats_agree(
    run: Run, tmp_path: Path, model: str, cost: dict[str, float] | None, text: str, kind: str
) -> None:
    with sessiontree.create(tmp_path, home=tmp_path / "home") as session:
        session.append("user", "Hello?")
        usage = {"input": 100_000, "output": 2_000, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 102_000}
        session.append(answer(model, **usage, **({"cost": cost} if cost else {})))
    (listed,) = run("list", "--all", "--json").json["sessions"]
    told = run("info", session.id, "--json").json
    counted = run("stats", "--all", "--json").json["totals"]
    assert {one["costKind"] for one in (listed, told, counted)} == {kind}
    recorded = 0.25 if kind == "recorded" else None  # unknown is not 0
    assert [listed["cost"], told["usage"]["cost"], counted["cost"]] == [recorded] * 3
    assert len({one["estimatedCost"] for one in (listed, told, counted)}) == 1
    for command in (("list", "--all"), ("stats", "--all")):
        assert f" {text} " in run(*command, width=160).out
    shown = run("info", session.id).out
    assert "0.0000" not in shown
    assert text.strip("~") in shown or "unknown" in shown


def test_the_cost_of_answers_without_usage_is_unknown_and_not_zero(run: Run, tmp_path: Path) -> None:
    with sessiontree.create(tmp_path, home=tmp_path / "home") as session:
        session.append("user", "Hello?")
        session.append({**answer("claude-sonnet-4-5"), "usage": None})
    listing = run("list", "--all", "--json").json
    told = run("info", session.id, "--json").json
    for costs in (listing["sessions"][0], listing["totals"], {**told, **told["usage"]}):
        assert (costs["cost"], costs["estimatedCost"], costs["costKind"]) == (None, None, "unknown")
