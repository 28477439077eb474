"""Facts about models, a user's additions to them, and the cost of a request."""

from __future__ import annotations

from pathlib import Path

import pytest

from sessiontree.core.messages import Usage
from sessiontree.errors import DamagedError, NotFoundError
from sessiontree.models import Facts, Prices, cost_of, find_facts, read_facts


def test_every_packaged_model_has_a_window_that_holds_its_answer_and_prices() -> None:
    facts = read_facts()
    assert len(facts) > 50
    for name, known in facts.items():
        assert known.source == name
        assert known.window >= 4_000, name
        assert known.output > 0, name
        assert known.prices.input is not None, name
        assert known.prices.output is not None, name
        assert known.prices.output >= known.prices.input > 0, name


def test_a_model_is_found_by_its_name_with_and_without_the_date() -> None:
    plain = find_facts("anthropic", "claude-haiku-4-5")
    assert (plain.window, plain.output) == (200_000, 64_000)
    assert find_facts("anthropic", "claude-haiku-4-5-20990101") == plain
    assert find_facts("openai", "gpt-5-2099-01-01").source == "openai/gpt-5"


def test_the_same_model_elsewhere_has_its_window_but_not_its_prices() -> None:
    elsewhere = find_facts("openai-compatible", "anthropic/claude-haiku-4-5")
    assert (elsewhere.window, elsewhere.is_known) == (200_000, True)
    assert elsewhere.prices == Prices()


def test_the_facts_of_an_unknown_model_are_marked_as_a_guess() -> None:
    guess = find_facts("ollama", "something-new")
    assert guess == Facts()
    assert not guess.is_known


def test_a_users_file_adds_models_and_overrides_field_by_field(tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    file.write_text(
        '{"models": {"ollama/mine": {"window": 8192}, "openai/gpt-5": {"prices": {"input": 9}, "future": 1}}}'
    )
    facts = read_facts(str(file))
    assert find_facts("ollama", "mine", facts).window == 8192
    changed, packaged = facts["openai/gpt-5"], read_facts()["openai/gpt-5"]
    assert changed.prices.input == 9
    assert (changed.window, changed.prices.output) == (packaged.window, packaged.prices.output)


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"models": {"x/y": {"window": "big"}}}', '{"models": {"no-provider": {}}}']
)
def test_an_invalid_file_is_reported(tmp_path: Path, text: str) -> None:
    file = tmp_path / "mine.json"
    file.write_text(text)
    with pytest.raises(DamagedError, match=r"mine\.json"):
        read_facts(str(file))
    with pytest.raises(NotFoundError, match="setting `models`"):
        read_facts(str(tmp_path / "none.json"))


def test_cost_is_the_sum_over_used_tokens_and_unknown_without_a_price() -> None:
    prices = Prices(3, 15, 0.3, 3.75)
    cost = cost_of(Usage(1_000_000, 100_000, 2_000_000, 10_000), prices)
    assert cost is not None
    assert (cost.input, cost.output, cost.cache_read, cost.cache_write) == pytest.approx((3, 1.5, 0.6, 0.0375))
    assert cost.total == pytest.approx(5.1375)
    assert cost_of(Usage(5, 5, 5), Prices(1, 1)) is None
    assert cost_of(Usage(5, 5), Prices(1, 1)) is not None
    assert cost_of(Usage(), Prices()) is None
