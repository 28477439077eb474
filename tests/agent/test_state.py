"""The observable state of an app."""

from __future__ import annotations

import msgspec
import pytest

from sessiontree.agent.live_context import ListPrefix
from sessiontree.agent.state import State, Store


def test_a_listener_gets_the_new_and_the_old_value() -> None:
    store = Store(State())
    received: list[tuple[str, str]] = []
    end = store.subscribe(lambda new, old: received.append((new.input, old.input)))
    assert store.set(input="a")
    assert store.get().input == "a"
    end()
    store.set(input="b")
    assert received == [("a", "")]
    end()


def test_no_listener_is_called_when_nothing_changed() -> None:
    store = Store(State(input="a", approved=("bash",)))
    received: list[object] = []
    store.subscribe(lambda *both: received.append(both))
    assert not store.set(input="a")
    assert not store.set(approved=("ba" + "sh",), input="a")
    assert received == []


def test_an_updater_function_makes_the_new_value_from_the_old_one() -> None:
    store = Store(State(input="a"))
    received: list[str] = []
    store.subscribe(lambda new, old: received.append(f"{old.input} -> {new.input}"))
    assert store.update(lambda state: msgspec.structs.replace(state, input=state.input + "b", verbose=True))
    assert not store.update(lambda state: state)
    assert not store.update(msgspec.structs.replace)
    assert (store.get().input, store.get().verbose, received) == ("ab", True, ["a -> ab"])


def test_a_listener_can_subscribe_to_some_fields() -> None:
    store = Store(State())
    received: list[str] = []
    store.subscribe(lambda new, _: received.append(new.title), "title", "leaf")
    store.set(input="a")
    store.set(title="T", input="b")
    store.set(leaf=None)
    assert received == ["T"]


def test_fields_that_change_together_cause_one_call() -> None:
    store = Store(State())
    seen: list[tuple[str, str | None]] = []
    store.subscribe(lambda new, _: seen.append((new.title, new.leaf)))
    store.set(title="T", leaf="x")
    assert seen == [("T", "x")]


def test_a_change_by_a_listener_is_reported_after_the_first_one() -> None:
    store = Store(State())
    order: list[str] = []

    def first(new: State, _: State) -> None:
        order.append(f"first {new.input}")
        if new.input == "a":
            store.set(input="b")

    store.subscribe(first)
    store.subscribe(lambda new, _: order.append(f"second {new.input}"))
    store.set(input="a")
    assert order == ["first a", "second a", "first b", "second b"]


def test_an_unknown_field_cannot_be_set() -> None:
    store = Store(State())
    with pytest.raises(TypeError):
        store.set(inptu="a")


def test_a_snapshot_of_a_growing_list_does_not_change() -> None:
    items = [1, 2, 3]
    snapshot = ListPrefix(items)
    items.append(4)
    assert list(snapshot) == [1, 2, 3]
    assert (snapshot[-1], snapshot[0], snapshot[1:], len(snapshot)) == (3, 1, [2, 3], 3)
    assert snapshot == [1, 2, 3]
    assert snapshot != ListPrefix(items)
    with pytest.raises(IndexError):
        snapshot[3]
