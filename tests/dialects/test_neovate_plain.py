"""The short way for ordinary messages: the same lines as when each is said, heard again and compared."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree.conversion.walk import iter_items
from sessiontree.dialects.canonical import CanonicalEntry, LossNote
from sessiontree.dialects.neovate import NEOVATE, drafts
from sessiontree.dialects.neovate.content import Call
from sessiontree.dialects.neovate.places import derived_uuid
from sessiontree.dialects.neovate.plain import plain_draft
from tests.building import TIME, examples, opened
from tests.conversion.conversations import everything
from tests.dialects.sessions import START, Told, chained, conversations, texts

CORPUS = sorted((Path(__file__).parents[1] / "corpus").glob("*/*.jsonl"))

NOW = 1771236001000
TOKENS = {"input": 10, "output": 5, "cacheRead": 3, "cacheWrite": 0, "totalTokens": 15}


def written(found: list[Told]) -> tuple[list[bytes], list[LossNote]]:
    """All lines of some items, and all notes about them."""
    encoder = NEOVATE.encoder(START)
    lines, notes = list(encoder.prologue()), []
    ids: dict[str | None, str | None] = {None: None}
    last: str | None = None
    for item, parent in found:
        made = encoder.encode(item, ids.get(parent))
        last = ids[item.id] = made.id
        lines += made.lines
        notes += made.notes
    return [*lines, *encoder.epilogue(last)], notes


def written_exactly(found: list[Told]) -> tuple[list[bytes], list[LossNote]]:
    """The same without the short way: each line is said, heard again and compared."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drafts, "plain_draft", lambda *_: None)
        return written(found)


# Which messages go the short way


def of_role(role: str, content: Any, **fields: Any) -> CanonicalEntry:
    message = {"role": role, "content": content, "timestamp": 1, **fields}
    return CanonicalEntry("message", {"message": message, "sessiontree": {"tools": {"agent": "pi"}}}, "e1", TIME)


def is_plain(item: CanonicalEntry) -> bool:
    call = Call("read", {}) if item.fields["message"]["role"] == "toolResult" else None
    return plain_draft(item, "a line", TIME, {}, call) is not None


THINKING = {"type": "thinking", "thinking": "hm", "thinkingSignature": "s"}
TEXT = {"type": "text", "text": "hello"}
CALL = {"type": "toolCall", "id": "c1", "name": "read", "arguments": {"path": "a"}}
IMAGE = {"type": "image", "data": "aGVsbG8=", "mimeType": "image/png"}
RESULT = {"toolCallId": "c1", "toolName": "read", "isError": False}
ABOUT = {"provider": "anvil", "model": "swift", "usage": TOKENS, "stopReason": "stop", "api": "anvil"}


@pytest.mark.parametrize(
    "item",
    [
        of_role("user", "hello"),
        of_role("user", [{**TEXT, "textSignature": "s"}], timestamp=NOW),
        of_role("assistant", [THINKING, TEXT, CALL], **ABOUT),
        of_role("assistant", "hello", **ABOUT),
        of_role("assistant", [CALL, {**CALL, "id": "c2"}], **{**ABOUT, "usage": {**TOKENS, "cost": {"total": 1}}}),
        of_role("assistant", [], **{**ABOUT, "stopReason": "aborted"}),
        of_role("toolResult", [TEXT, TEXT], toolCallId="c1", toolName="read", isError=False),
        of_role("toolResult", [TEXT], toolCallId="c1", toolName="read", isError=True),
    ],
)
def test_ordinary_messages_go_the_short_way_to_the_same_lines(item: CanonicalEntry) -> None:
    assert is_plain(item)
    called = msgspec.structs.replace(of_role("assistant", [CALL], **ABOUT), id="e0")  # or a result would stray
    assert written(chained(called, item)) == written_exactly(chained(called, item))


@pytest.mark.parametrize(
    "item",
    [
        of_role("user", [IMAGE]),
        of_role("user", [TEXT, CALL]),
        of_role("user", "<bash-input>ls</bash-input>"),
        of_role("user", None),
        of_role("user", "hello", timestamp=1.0),
        of_role("assistant", [TEXT, THINKING], **ABOUT),
        of_role("assistant", [CALL, TEXT], **ABOUT),
        of_role("assistant", [{**THINKING, "redacted": True}], **ABOUT),
        of_role("assistant", [{**CALL, "arguments": "a"}], **ABOUT),
        of_role("assistant", [TEXT], **{**ABOUT, "provider": "a/b"}),
        of_role("assistant", [TEXT], model="swift"),
        of_role("toolResult", "done", toolCallId="c1", toolName="read", isError=False),
        of_role("toolResult", [TEXT], toolCallId="c1", toolName="", isError=False),
        of_role("toolResult", [TEXT], toolCallId="c1", toolName="read"),
        of_role("toolResult", [IMAGE], toolCallId="c1", toolName="read", isError=False),
        of_role("system", "be brief"),
    ],
)
def test_what_may_be_heard_differently_does_not(item: CanonicalEntry) -> None:
    assert not is_plain(item)


# Both ways come to the same


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_session_of_the_corpus_is_written_as_if_each_line_were_heard_again(path: Path) -> None:
    session = opened(path.read_bytes())
    found = list(iter_items(session, session.leaf, whole=True))
    assert written(found) == written_exactly(found)


def test_a_session_with_everything_is_written_as_if_each_line_were_heard_again() -> None:
    session = everything()
    found = list(iter_items(session, session.leaf, whole=True))
    assert written(found) == written_exactly(found)


def with_more(blocks: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    more = st.dictionaries(st.sampled_from(["cache", "thinkingSignature", "redacted", "a"]), odd, max_size=2)
    return st.builds(lambda block, fields: {**fields, **block}, blocks, more)


odd = st.one_of(texts, st.sampled_from([None, True, False, 0, 1, 1.0, -3, [], {}, {"a": [1.0]}]))
text_blocks = st.builds(lambda text: {"type": "text", "text": text}, texts)
thinking_blocks = st.builds(lambda text: {"type": "thinking", "thinking": text}, texts)
call_blocks = st.builds(
    lambda id, arguments: {"type": "toolCall", "id": id, "name": "read", "arguments": arguments},
    st.sampled_from(["c1", "c2", "", 3]),
    st.one_of(st.just({"path": "a", "limit": 1.0}), odd),
)
odd_blocks = st.one_of(odd, st.just(IMAGE), st.just({"type": "text"}), st.just({"type": "opaque", "data": "x"}))
spoken = st.one_of(
    texts,
    st.lists(st.one_of(with_more(text_blocks), odd_blocks), max_size=3),
    st.lists(with_more(text_blocks), max_size=2),
    st.sampled_from(["<bash-input>ls</bash-input>", "<bash-stdout>a</bash-stdout>", "<bash-", None, 3]),
)
answered = st.one_of(
    texts,
    st.lists(st.one_of(with_more(text_blocks), with_more(thinking_blocks), with_more(call_blocks), odd_blocks)),
    st.builds(lambda *blocks: list(blocks), with_more(thinking_blocks), text_blocks, call_blocks),
)
about_messages = st.fixed_dictionaries(
    {},
    optional={
        "provider": st.one_of(st.sampled_from(["anvil", "a/b", ""]), odd),
        "model": st.one_of(st.sampled_from(["swift", "swift/4", ""]), odd),
        "usage": st.one_of(
            st.just(TOKENS), st.just({**TOKENS, "cost": {"total": 1}}), st.just({**TOKENS, "input": 10.0}), odd
        ),
        "stopReason": st.one_of(st.sampled_from(["stop", "toolUse"]), odd),
        "timestamp": st.one_of(st.sampled_from([NOW, NOW + 1, float(NOW)]), odd),
        "toolCallId": st.one_of(st.sampled_from(["c1", "c2"]), odd),
        "toolName": st.one_of(st.just("read"), odd),
        "isError": st.one_of(st.booleans(), odd),
        "more": odd,
    },
)
around_messages = st.sampled_from(
    [
        {},
        {"sessiontree": {"tools": {"agent": "pi"}}},
        {"sessiontree": {}},
        {"sessiontree": None},
        {"sessiontree": {"message": {"a": 1}, "id": "x", "fields": {}}},
        {"sessiontree": {"neovate": {"lines": [{"set": {"ui": 1}}]}}},
        {"sessiontree": {"neovate": None}},
        {"parentSession": "p", "sessiontree": {"claude": 1}},
    ]
)


@st.composite
def rows(draw: st.DrawFn) -> list[Told]:
    """Messages, one behind the other, that are ordinary but for a few things."""
    items: list[CanonicalEntry] = []
    for number in range(draw(st.integers(1, 6))):
        role = draw(st.sampled_from(["user", "assistant", "assistant", "toolResult", "toolResult", "system"]))
        content = draw(answered if role == "assistant" else spoken)
        ordinary = {**ABOUT, **RESULT, "timestamp": NOW} if draw(st.booleans()) else {}
        said = {"role": role, "content": content, **ordinary, **draw(about_messages)}
        message = dict(draw(st.permutations(list(said.items()))))
        id = draw(st.sampled_from([f"e{number}", str(uuid.UUID(int=number + 1))]))
        time = draw(st.sampled_from([TIME, TIME, "2026-02-16T10:00:01Z", "2026-13-16T10:00:01.000Z", ""]))
        items.append(CanonicalEntry("message", {"message": message, **draw(around_messages)}, id, time))
    return chained(*items)


@examples(500)
@given(rows())
def test_any_messages_are_written_as_if_each_line_were_heard_again(found: list[Told]) -> None:
    assert written(found) == written_exactly(found)


@examples(150)
@given(conversations())
def test_any_conversation_is_written_as_if_each_line_were_heard_again(found: tuple[list[Told], str | None]) -> None:
    assert written(found[0]) == written_exactly(found[0])


@examples(50)
@given(texts)
def test_a_derived_uuid_is_one_of_version_5(name: str) -> None:
    space = uuid.uuid5(uuid.NAMESPACE_URL, "sessiontree:neovate")
    assert derived_uuid(name) == str(uuid.uuid5(space, name.encode("utf-8", "surrogatepass").hex()))
