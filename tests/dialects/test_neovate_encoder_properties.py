"""Neovate's encoder: any entry and any conversation is encoded, decoded again, and loaded by Neovate."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree.conversion.walk import iter_entries
from sessiontree.dialects.canonical import CanonicalEntry
from sessiontree.dialects.contract import AS_CLIENT
from sessiontree.dialects.neovate import NEOVATE
from sessiontree.repair import examine
from sessiontree.session.session import Session
from tests.builders import examples
from tests.dialects.neovate_sessions import (
    META,
    PIXEL,
    Writer,
    answer,
    call,
    continued,
    entry,
    journal,
    loaded,
    message_entry,
    plain,
    result,
    sent,
    text,
    user,
    written,
)


@pytest.mark.parametrize(
    "item",
    [
        CanonicalEntry("message", {}, "x"),
        CanonicalEntry("message", {"message": None}, "x"),
        CanonicalEntry("message", {"message": {}}, "x"),
        user("x", None),
        user("x", {"no": "content"}),
        user("x", [None, 5, "text", {"type": None}]),
        answer("x", text("t"), provider=5, model=None, usage="none"),
        answer("x", {"type": "toolCall", "id": 5, "name": None}),
        result("x", "1", "text", toolName=None),
        result("x", "1", None, toolCallId=5),
        entry("compaction", "x"),
        entry("compaction", "x", summary=5, firstKeptEntryId=5),
        entry("label", "x", targetId=5),
        entry("config", "x", config=5),
        entry("leaf", "x", targetId=5),
        user("x", [{"type": "text", "text": "\ud83d"}], cost=float("nan")),
        CanonicalEntry("custom", {"type": "other", "data": 10**30}, "x", "no time"),
    ],
)
@pytest.mark.parametrize("is_new", [True, False])
def test_nothing_that_an_entry_holds_makes_an_encoder_fail(item: CanonicalEntry, is_new: bool) -> None:
    writer = Writer().chain(user("a"))
    if not is_new:
        writer = continued(writer)
    writer.chain(item, user("z"), parent=writer.ids.get("a") or writer.messages[-1]["uuid"])
    if is_new:
        writer.end("z")
    assert loaded(writer.data)[-1]["uuid"] == writer.ids["z"]


def test_nesting_too_deep_for_json_is_dropped_and_noted() -> None:
    deep: Any = "x"
    for _ in range(100_000):
        deep = [deep]
    writer = Writer().chain(user("a"), entry("custom", "b", data=deep), user("c")).end("c")
    assert [note.kind for note in writer.notes] == ["dropped"]
    assert len(loaded(writer.data)) == 2


words = st.text(max_size=8) | st.sampled_from(["", "中文", "🙂", "lone \ud83d", "</bash-stdout>", "\u2028\x00"])
images = st.fixed_dictionaries({"type": st.just("image"), "data": st.just(PIXEL), "mimeType": st.just("image/png")})
texts = st.builds(text, words)
thoughts = st.builds(
    lambda message_entry, more: {"type": "thinking", "thinking": message_entry, **more},
    words,
    st.sampled_from([{}, {"thinkingSignature": "s"}, {"redacted": True}]),
)
odd_blocks = st.sampled_from(
    [
        {"type": "new", "x": 1},
        {"type": "redactedThinking", "data": "d"},
        {"type": "text", "text": "t", "textSignature": "s"},
    ]
)
contents = words | st.lists(texts | images | odd_blocks, max_size=3)


def between(id: str, asked: list[str]) -> st.SearchStrategy[CanonicalEntry]:
    """What may come after an answer: results in any order, missing or twice, and anything else among them."""
    results = st.builds(
        lambda call, content, failed: result(id, call, content, isError=failed),
        st.sampled_from([*asked, *asked, "nowhere"]),
        contents | st.just([text("x")]),
        st.booleans(),
    )
    others = st.one_of(
        st.builds(lambda words: entry("custom", id, data=words), words),
        st.builds(lambda content: user(id, content), contents),
        st.builds(lambda words: entry("branch_summary", id, summary=words, fromId="root"), words),
        st.builds(lambda content: entry("custom_message", id, customType="x", content=content), contents),
        st.builds(lambda words: message_entry(id, {"role": "bashExecution", "command": words, "output": words}), words),
        st.builds(lambda words: message_entry(id, {"role": "system", "content": words}), words),
        st.builds(lambda words: answer(id, text(words)), words),
        st.builds(lambda words: entry("compaction", id, summary=words, tokensBefore=7), words),
    )
    return st.one_of(results, results, others)


@st.composite
def conversations(draw: st.DrawFn) -> list[tuple[CanonicalEntry, str | None]]:
    """Entries with their parents: parents before children, the last entry on the active branch."""
    made: list[tuple[CanonicalEntry, str | None]] = []
    starts: list[str | None] = [None]
    number = 0

    def put(item: CanonicalEntry, parent: str | None) -> str:
        made.append((item, parent))
        return item.id

    def new_id() -> str:
        nonlocal number
        number += 1
        return draw(st.sampled_from([f"i{number}", f"00000000-0000-4000-8000-{number:012d}"]))

    at: str | None = None
    for turn in range(draw(st.integers(1, 4))):
        if draw(st.integers(0, 3)) == 0:
            at = draw(st.sampled_from(starts))
        at = put(user(new_id(), draw(contents), **draw(st.sampled_from([{}, {"extra": 1}]))), at)
        before = at
        if draw(st.booleans()):
            at = put(entry("mode_change", new_id(), mode="x"), at)
        asked = [f"c{turn}.{call}" for call in range(draw(st.integers(0, 3)))]
        blocks = draw(st.lists(texts | thoughts | odd_blocks | images, max_size=3)) + [call(id, n=turn) for id in asked]
        about = draw(st.sampled_from([{}, {"api": "x", "usage": {"input": 1}}, {"provider": None, "model": "a/b"}]))
        answered = answer(new_id(), *draw(st.permutations(blocks)), **about)
        at = put(answered, at)
        starts += [before, at]
        for _ in range(draw(st.integers(0, 6))):
            at = put(draw(between(new_id(), asked)), at)
            starts.append(at)
            if draw(st.integers(0, 5)) == 0:
                at = draw(st.sampled_from(starts))
        match draw(st.integers(0, 5)):
            case 0:
                kept = draw(st.sampled_from([None, before, answered.id]))
                bound = {} if kept is None else {"firstKeptEntryId": kept}
                at = put(entry("compaction", new_id(), summary=draw(words), tokensBefore=7, **bound), at)
                starts.append(at)
            case 1:
                fields = {"role": "bashExecution", "command": draw(words), "output": draw(words)}
                at = put(
                    message_entry(
                        new_id(), {**fields, **draw(st.sampled_from([{}, {"exitCode": 2, "cancelled": True}]))}
                    ),
                    at,
                )
                starts.append(at)
            case 2:
                at = put(entry("custom_message", new_id(), customType="x", content=draw(contents)), at)
            case 3:
                put(entry("label", new_id(), targetId=before, label=draw(words)), at)
            case _:
                pass
    put(user(new_id(), "the last one"), at)
    return made


def path_to(made: list[tuple[CanonicalEntry, str | None]], id: str | None) -> list[CanonicalEntry]:
    known = {item.id: (item, parent) for item, parent in made}
    path: list[CanonicalEntry] = []
    while id is not None:
        item, id = known[id]
        path.append(item)
    return path[::-1]


def ends(made: list[tuple[CanonicalEntry, str | None]]) -> list[str]:
    inner = {parent for _, parent in made}
    return [item.id for item, _ in made if item.id not in inner]


def parents(session: Session) -> dict[str, str | None]:
    """The parent of each entry, as in a conversion: an id refers to the last entry that has it."""
    found: dict[str, str | None] = {}
    meant: dict[str, str] = {}
    for item, parent in iter_entries(session, session.leaf, all_branches=True):
        found[item.id] = None if parent is None else meant[parent]
        meant.update(dict.fromkeys((item.id, *item.aliases), item.id))
    return found


@examples(150)
@given(made=conversations())
def test_any_conversation_is_decoded_as_it_was_encoded_and_the_client_loads_all_of_it(
    made: list[tuple[CanonicalEntry, str | None]],
) -> None:
    writer = Writer()
    for item, parent in made:
        writer.add(item, parent)
    writer.end(made[-1][0].id)
    assert plain(writer.decoded()) == plain(path_to(made, made[-1][0].id))
    for end in ends(made):
        if end not in ("", made[-1][0].id):
            assert plain(writer.decoded(end)) == plain(path_to(made, end))
    assert parents(writer.session) == {item.id: parent for item, parent in made}
    path = writer.session.path_ids()
    owned = loaded(writer.data)
    assert [line["uuid"] for line in owned] == path
    for line in writer.messages:
        sent(line)
    assert {finding.rule.id for finding in examine(writer.session)} <= {"lone-surrogate"}


@examples(60)
@given(made=conversations())
def test_any_conversation_can_be_appended_to_an_existing_file(
    made: list[tuple[CanonicalEntry, str | None]],
) -> None:
    writer = Writer(META, written(user("first")).data)
    root = writer.messages[0]["uuid"]
    for item, parent in made:
        writer.add(item, root if parent is None else parent)
    decoded = [item for item in plain(writer.decoded()) if item[0] != "custom_message"]
    wanted = [item for item in plain(path_to(made, made[-1][0].id)) if item[0] != "custom_message"]
    assert [item[1] for item in decoded[1:] if item[0] == "message"] == [
        item[1] for item in wanted if item[0] == "message"
    ]
    assert loaded(writer.data)[-1]["uuid"] == writer.ids[made[-1][0].id]
    assert [line["uuid"] for line in loaded(writer.data)] == writer.session.path_ids()
    assert {finding.rule.id for finding in examine(writer.session)} <= {"lone-surrogate", "unanswered-tool-call"}


@examples(150)
@given(made=conversations())
def test_histories_by_links_are_those_of_each_line(made: list[tuple[CanonicalEntry, str | None]]) -> None:
    writer = Writer()
    for item, parent in made:
        writer.add(item, parent)
    writer.end(made[-1][0].id)
    found = journal(writer.data)
    links = NEOVATE.find_history_links(found, AS_CLIENT)
    assert links is not None
    for node in range(len(found)):
        history = [] if node in links.hidden else links.history(node)
        assert history == NEOVATE.find_history(found, node, AS_CLIENT)
