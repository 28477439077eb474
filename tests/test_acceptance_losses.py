"""The changes of a file by which the acceptance run checks that Claude Code itself loses history."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from acceptance.cases import LOSSES, REFUSALS
from acceptance.comparison import NOTHING_RECORDED, loses_history

WITHOUT_SUBAGENTS, *CHANGES = (*REFUSALS.values(), *LOSSES.values())
WITHOUT_PARENTS, WITHOUT_BOUNDARIES, WITHOUT_ANCHORS, AS_OUTPUT, WITHOUT_DAMAGE = CHANGES


def line(uuid: str, parent: str | None, type: str = "user", **fields: Any) -> bytes:
    return json.dumps({"type": type, "uuid": uuid, "parentUuid": parent, **fields}).encode() + b"\n"


def boundary(uuid: str, parent: str | None = None, **fields: Any) -> bytes:
    return line(uuid, parent, "system", subtype="compact_boundary", **fields)


FILE = [line("a", None), boundary("B", "a"), line("b", "B"), boundary("C", "b"), line("n", "C", "attachment")]


def test_only_boundaries_that_no_user_or_assistant_line_follows_are_left_out() -> None:
    assert WITHOUT_BOUNDARIES(FILE) == [*FILE[:3], FILE[4]]


def test_only_boundaries_that_no_user_or_assistant_line_follows_become_roots() -> None:
    parents = [json.loads(raw)["parentUuid"] for raw in WITHOUT_PARENTS(FILE)]
    assert parents == [None, "a", "B", None, "C"]


def test_lines_of_subagents_are_left_out_and_their_pins_stay() -> None:
    pin = b'{"type":"last-prompt","leafUuid":"s"}\n'
    assert WITHOUT_SUBAGENTS([FILE[0], line("s", "a", isSidechain=True), pin]) == [FILE[0], pin]


def test_anchors_are_removed_from_such_boundaries_with_their_parents() -> None:
    metadata = {"preTokens": 9, "preservedMessages": {"anchorUuid": "a", "uuids": ["b"]}}
    changed = WITHOUT_ANCHORS([*FILE[:3], boundary("C", "b", compactMetadata=metadata)])
    last = json.loads(changed.pop())
    assert changed == FILE[:3]
    assert (last["parentUuid"], last["compactMetadata"]) == (
        None,
        {"preTokens": 9, "preservedMessages": {"anchorUuid": "missing", "uuids": ["b"]}},
    )


def test_prompts_typed_in_between_become_output_of_commands() -> None:
    typed = line("q", "a", "attachment", attachment={"type": "queued_command", "prompt": "typed"})
    first, changed = AS_OUTPUT([FILE[0], typed])
    fields = json.loads(changed)
    assert first == FILE[0]
    assert (fields["type"], fields["subtype"], fields["content"]) == ("system", "local_command", "typed")


def test_other_attachments_become_output_of_commands_if_their_text_is_recorded_for_the_user() -> None:
    texts = [{"content": "one"}, {"content": "two"}]
    fields: dict[str, Any] = {"attachment": {"type": "date"}, "rendered": texts}
    for_user, for_system = (line("n", "a", "attachment", **fields, renderedRole=role) for role in ("user", "system"))
    changed, same = AS_OUTPUT([for_user, for_system])
    assert json.loads(changed)["content"] == "one\ntwo"
    assert same == for_system


def test_lines_that_are_not_json_objects_are_left_out() -> None:
    torn = FILE[0][: FILE[0].index(b":") + 1] + b"\n"
    assert WITHOUT_DAMAGE([torn, *FILE]) == FILE


def test_a_history_is_lost_if_it_has_fewer_lines_or_no_result_for_a_call() -> None:
    history = ["user: go", "assistant calls Read c1: {}", "result of c1: out", "assistant: done"]
    unrecorded = [*history[:2], f"error of c1: {NOTHING_RECORDED}", history[3]]
    assert loses_history(history, history[:3])
    assert loses_history(history, unrecorded)
    assert not loses_history(unrecorded, history)
    assert not loses_history(history, [history[3], *history[:3]])


@pytest.mark.parametrize("change", [WITHOUT_SUBAGENTS, *CHANGES])
def test_a_file_without_such_lines_stays_as_it_is(change: Callable[[Sequence[bytes]], list[bytes]]) -> None:
    assert change(FILE[:3]) == FILE[:3]
