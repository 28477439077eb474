"""Both decoders of a line, the fast one and the careful one, extract the same texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree.dialects import texts
from sessiontree.dialects.texts import Line
from sessiontree.library.roots import dialect_named
from sessiontree.search.file_chunks import CHUNK_BITS, iter_lines, read_chunk
from sessiontree.search.text_extractor import read_line
from sessiontree.search.tokenizer import Terms, joined_texts
from sessiontree.stores.file import FileStore

CORPUS = sorted((Path(__file__).parent.parent / "corpus").rglob("*.jsonl"))
AGENTS = ("native", "pi", "omp", "claude", "neovate")

plain_text = st.text(st.sampled_from('ab Zé漢🌿"\\/\n\t\r\b\f_u0{}[]<'), max_size=12)
anything: st.SearchStrategy[Any] = st.recursive(
    plain_text | st.none() | st.integers() | st.booleans(),
    lambda inner: st.lists(inner) | st.dictionaries(plain_text, inner),
)
block = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "thinking", "tool_use", "tool_result", "toolCall", "image", "document"])},
    optional={
        "text": plain_text,
        "thinking": plain_text,
        "id": plain_text | st.integers(),
        "name": plain_text,
        "input": anything,
        "content": anything,
    },
)
content = plain_text | st.lists(block | anything, max_size=3) | block | anything
line = st.fixed_dictionaries(
    {"type": st.sampled_from(["user", "assistant", "message", "system", "custom", "attachment", "summary"])},
    optional={
        "message": st.fixed_dictionaries(
            {"role": plain_text | st.sampled_from(["user", "assistant"])}, optional={"content": content}
        ),
        "content": content,
        "summary": anything,
        "uuid": plain_text,
        "isMeta": st.booleans(),
    },
)


def fields_of(found: list[Line]) -> list[object]:
    return [
        (
            one.id,
            one.time,
            one.model,
            [(text.kind, text.role, text.text, text.tool, text.call, text.is_error) for text in one.texts],
        )
        for one in found
    ]


def both_ways(raw: bytes, agent: str, monkeypatch: pytest.MonkeyPatch) -> tuple[list[object], list[object]]:
    quickly = fields_of(read_line(raw, agent))
    with monkeypatch.context() as patch:
        patch.setattr(texts, "_decode_ordinary", texts._decode_odd)
        return quickly, fields_of(read_line(raw, dialect_named(agent)))


def test_both_decoders_agree_on_lines_of_real_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    for path in CORPUS:
        for raw in path.read_bytes().splitlines():
            for agent in AGENTS:
                quickly, carefully = both_ways(raw, agent, monkeypatch)
                assert quickly == carefully


@given(line=line, agent=st.sampled_from(AGENTS), is_ascii=st.booleans())
def test_both_decoders_agree_on_any_line(line: dict[str, Any], agent: str, is_ascii: bool) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        quickly, carefully = both_ways(json.dumps(line, ensure_ascii=is_ascii).encode(), agent, monkeypatch)
    assert quickly == carefully


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize(
    "broken", ["half of an emoji: \ud83d", "\udc80 a byte that is not UTF-8", "two halves: \ude00\ud83d"]
)
def test_a_text_with_half_a_character_is_searchable(agent: str, broken: str) -> None:
    session = ("parentUuid", "sessionId", "uuid") if agent in ("claude", "neovate") else ("parentId", "session", "id")
    ids = dict(zip(session, (None, "s", "11111111-1111-4111-8111-111111111111"), strict=True))
    kind = "user" if agent == "claude" else "message"
    message = {"role": "user", "content": f"needle {broken}"}
    fields = {"type": kind, **ids, "timestamp": "2026-01-01T00:00:00.000Z", "message": message}
    if agent == "neovate":
        fields |= message
    for raw in (json.dumps(fields).encode(), json.dumps(fields, ensure_ascii=False).encode("utf-8", "surrogatepass")):
        (found,) = read_line(raw, agent)
        (text,) = found.texts
        assert (text.kind, text.role) == ("prompt", "user")
        assert text.text.startswith("needle ")
        assert b"needle" in joined_texts([text.raw])[0]


@given(plain_text=st.lists(plain_text, max_size=4), is_ascii=st.booleans())
def test_joined_texts_have_the_same_words_as_unescaped_ones(plain_text: list[str], is_ascii: bool) -> None:
    raws = [json.dumps(text, ensure_ascii=is_ascii).encode() for text in plain_text]
    unescaped = "\n".join(plain_text).encode()
    joined, is_escaped = joined_texts(raws)
    assert set(Terms().of(joined, is_escaped=is_escaped).split()) == set(Terms().of(unescaped).split())


@given(lengths=st.lists(st.integers(0, 3 << CHUNK_BITS), max_size=12), is_ended=st.booleans())
def test_every_line_is_in_the_chunk_that_it_begins_in(
    lengths: list[int], is_ended: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("chunks") / "lines"
    path.write_bytes(b"\n".join(b"x" * length for length in lengths) + b"\n" * is_ended)
    size = path.stat().st_size
    store = FileStore(path)
    lines = list(iter_lines(store, 0, size))
    for chunk in range(2 + (size >> CHUNK_BITS)):
        start, block = read_chunk(store, chunk)
        inside = [(offset, raw) for offset, raw in lines if offset >> CHUNK_BITS == chunk]
        assert block == b"".join(raw for _, raw in inside)
        assert not inside or start == inside[0][0]
