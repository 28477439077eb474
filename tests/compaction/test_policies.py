"""Policies: exact limits, and Neovate's thresholds for every window size in its table."""

from __future__ import annotations

import pytest

from sessiontree.compaction import Manual, Policy, Ratio, Reserve, Share, Table, Window, is_due

NEOVATE = [
    (32768, 4096, 25805, 25600),
    (64000, 8000, 51200, 44801),
    (65536, 8192, 51610, 45876),
    (128000, 16384, 102400, 89601),
    (131072, 8192, 110592, 91751),
    (200000, 8192, 172628, 140001),
    (200000, 32000, 160000, 140001),
    (256000, 32000, 216000, 179201),
    (1000000, 32000, 960000, 700001),
]
"""Window, output, and the smallest context that Neovate was measured to compact: up to 0.25.0, and since."""


@pytest.mark.parametrize(("window", "output", "old", "new"), NEOVATE)
def test_neovates_thresholds_are_the_measured_ones(window: int, output: int, old: int, new: int) -> None:
    known = Window(window, output)
    for policy, least in ((Table(), old), (Share(), new)):
        assert is_due(policy, least, known)
        assert not is_due(policy, least - 1, known)


def test_an_answer_counts_for_32000_tokens_at_most() -> None:
    assert Table().limit(Window(300_000, 100_000)) == Table().limit(Window(300_000, 32_000))


@pytest.mark.parametrize("policy", [Table(), Share()])
def test_neovates_rules_never_compact_a_small_context(policy: Policy) -> None:
    assert not is_due(policy, 25_599, Window(8_000, 4_000))


def test_an_empty_window_is_never_full() -> None:
    assert Share().limit(Window(0)) is None


def test_a_reserve_is_left_free_and_a_model_may_have_its_own() -> None:
    policy = Reserve(10_000, {"anthropic/swift-4": 40_000})
    assert is_due(policy, 95_000, Window(100_000))
    assert not is_due(policy, 89_000, Window(100_000))
    assert not is_due(policy, 90_000, Window(100_000))
    assert is_due(policy, 60_001, Window(100_000, model="anthropic/swift-4"))
    assert Reserve().limit(Window(200_000)) == 200_000 - 16_384


def test_a_ratio_is_a_share_of_the_window_and_manual_never_compacts() -> None:
    assert is_due(Ratio(0.5), 50_001, Window(100_000))
    assert not is_due(Ratio(0.5), 50_000, Window(100_000))
    assert not is_due(Manual(), 10**9, Window(100_000))
