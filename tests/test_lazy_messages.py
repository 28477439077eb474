"""Lazily decoded messages behave like a tuple, and each is decoded once."""

from __future__ import annotations

import pytest

from sessiontree.core.messages import LazyMessages, Message, User

SIZE = 150
ALL = tuple(User(content=str(at)) for at in range(SIZE))


def lazy(asked: list[range] | None = None, size: int = SIZE) -> LazyMessages:
    def load(positions: range) -> list[Message]:
        if asked is not None:
            asked.append(positions)
        return [ALL[at] for at in positions]

    return LazyMessages(size, load)


def test_counting_messages_decodes_none() -> None:
    asked: list[range] = []
    assert len(lazy(asked)) == SIZE
    assert asked == []


def test_a_message_is_decoded_once_with_its_neighbors() -> None:
    asked: list[range] = []
    messages = lazy(asked)
    assert messages[-1] is messages[SIZE - 1] is ALL[-1]
    assert len(asked) == 1
    assert SIZE - 1 in asked[0]
    assert 0 not in asked[0]


def test_each_message_is_decoded_once() -> None:
    asked: list[range] = []
    messages = lazy(asked)
    assert list(messages) == list(ALL)
    assert tuple(reversed(messages)) == ALL[::-1]
    assert [at for positions in asked for at in positions] == list(range(SIZE))


def test_it_behaves_like_a_tuple() -> None:
    messages = lazy()
    assert messages == ALL
    assert messages == ALL
    assert messages == list(ALL)
    assert messages == lazy()
    assert messages != ALL[:-1]
    assert messages != "text"
    assert messages[3:140:40] == ALL[3:140:40]
    assert messages[-2:] == ALL[-2:]
    assert ALL[70] in messages
    assert messages.index(ALL[149]) == 149
    assert hash(messages) == hash(ALL)
    assert repr(messages) == repr(ALL)
    assert lazy(size=0) == ()


@pytest.mark.parametrize("at", [SIZE, -SIZE - 1])
def test_an_index_beyond_its_ends_raises(at: int) -> None:
    with pytest.raises(IndexError):
        lazy()[at]


def test_a_part_is_decoded_on_first_access_and_only_once() -> None:
    asked: list[range] = []
    messages = lazy(asked)
    part = messages.part(20, 90)
    assert (len(part), asked) == (70, [])
    assert part == ALL[20:90]
    assert part[0] is messages[20]
    assert len({at for step in asked for at in step}) == sum(map(len, asked))


def test_a_sample_is_spread_over_all_messages_in_groups_that_are_decoded_together() -> None:
    asked: list[range] = []
    messages = lazy(asked)
    places = messages.sample(3)
    assert places[0] == 0
    assert places[-1] > SIZE // 2
    assert len(places) < SIZE // 2
    assert [messages[at] for at in places] == [ALL[at] for at in places]
    assert sorted(at for step in asked for at in step) == places
