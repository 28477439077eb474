"""Provider data of a block survives encoding into one text field and decoding."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree.models.endpoints import Api
from sessiontree.models.signatures import (
    NONE,
    Mark,
    parse_call,
    parse_text,
    parse_thinking,
    render_call,
    render_text,
    render_thinking,
)

words = st.none() | st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1)
APIS: tuple[Api, ...] = ("anthropic-messages", "openai-responses", "openai-completions", "google-generative-ai")


@given(words, words, st.none() | st.sampled_from(["commentary", "final_answer"]), st.text())
def test_openai_data_with_an_id_survives_a_round_trip(
    id: str | None, signature: str | None, phase: str | None, text: str
) -> None:
    api: Api = "openai-responses"
    assert parse_thinking(api, render_thinking(api, Mark(id, signature), text)) == (Mark(id, signature) if id else NONE)
    assert parse_text(api, render_text(api, Mark(id, None, phase))) == (Mark(id, None, phase) if id else NONE)
    assert parse_call(api, render_call(api, Mark(id))) == Mark(id)


@given(words)
def test_signatures_of_other_providers_are_unchanged(signature: str | None) -> None:
    for api in ("anthropic-messages", "google-generative-ai"):
        for parse, written in (
            (parse_thinking, render_thinking(api, Mark(signature=signature), "x")),
            (parse_text, render_text(api, Mark(signature=signature))),
            (parse_call, render_call(api, Mark(signature=signature))),
        ):
            assert written == signature
            assert parse(api, written) == Mark(signature=signature)


def test_a_reasoning_item_is_written_in_the_providers_form() -> None:
    written = render_thinking("openai-responses", Mark("rs_1", "abc"), "日本")
    assert written is not None
    assert written.isascii()
    assert json.loads(written) == {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "日本"}],
        "encrypted_content": "abc",
    }


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("damaged", ["", "{", "[]", '{"id": 5}', "null"])
def test_values_from_other_programs_do_no_harm(api: Api, damaged: str) -> None:
    for parse in (parse_thinking, parse_text, parse_call):
        mark = parse(api, damaged)
        assert not mark or damaged in (mark.signature, mark.id)
