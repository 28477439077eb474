"""Arguments in any order: options may come before, between and after positional arguments."""

from __future__ import annotations

from itertools import permutations

import pytest

from sessiontree.cli.commands import COMMANDS
from sessiontree.cli.parser import parse
from sessiontree.errors import UsageError


@pytest.mark.parametrize("order", list(permutations((["--at", "abcd1234"], ["--json"], ["s.jsonl"]))))
def test_options_of_append_may_be_anywhere(order: tuple[list[str], ...]) -> None:
    words = [word for part in order for word in part]
    for at in range(len(words) + 1):
        if at and words[at - 1] == "--at":
            continue  # there its value has to stand
        if at <= words.index("s.jsonl"):
            continue  # the session comes first among the arguments without a name
        options = parse(["append", *words[:at], "user", "hello", *words[at:]])
        assert (options.session, options.role, options.text) == ("s.jsonl", "user", "hello")
        assert (options.at, options.json) == ("abcd1234", True)


def test_text_that_looks_like_an_option_is_given_after_two_hyphens() -> None:
    options = parse(["append", "s.jsonl", "--json", "user", "--", "--not-an-option"])
    assert (options.role, options.text) == ("user", "--not-an-option")


@pytest.mark.parametrize("command", COMMANDS)
def test_unknown_options_are_refused(command: str) -> None:
    with pytest.raises(UsageError):
        parse([command, "--no-such-option"])
