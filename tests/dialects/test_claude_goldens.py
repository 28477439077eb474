"""Claude Code: the requests that the real client 2.1.325 sent for each golden, and the dialect contract."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sessiontree.core.messages import ToolResult
from sessiontree.dialects.claude import CLAUDE
from sessiontree.providers import render
from sessiontree.session.open import open_store
from sessiontree.session.session import Session
from sessiontree.sources.detect import detect
from sessiontree.stores.memory import MemoryStore
from sessiontree.testing.dialects import check_dialect
from tests.builders import THOROUGH

CORPUS = Path(__file__).parent.parent / "corpus" / "claude"
GOLDENS = sorted(CORPUS.glob("*.jsonl"))
CHECK_PROMPT = "RESUME-CHECK-PROMPT"
REMINDER = "<system-reminder>"

each_golden = pytest.mark.parametrize("golden", GOLDENS, ids=lambda golden: golden.stem)


def opened(golden: Path) -> Session:
    return open_store(MemoryStore(golden.read_bytes()))


def expected_messages(golden: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(golden.with_suffix(".expected.json").read_text())["messages"]
    return found


def outline(messages: list[dict[str, Any]]) -> list[tuple[str, list[tuple[Any, ...]]]]:
    """Return roles and blocks, without whitespace at the ends, the prompt of the check and the client's own reminders.

    Results are in the order of their calls, as `providers` sends them; the client sends them as they arrived.
    """
    turns: list[tuple[str, list[tuple[Any, ...]]]] = []
    calls: list[str] = []
    for message in messages:
        blocks = [outlines for block in blocks_in(message["content"]) if (outlines := outline_of(block)) is not None]
        if not blocks:
            continue
        calls += [block[1] for block in blocks if block[0] == "tool_use"]
        blocks.sort(key=lambda block: calls.index(block[1]) if block[0] == "tool_result" else len(calls))
        if turns and turns[-1][0] == message["role"]:
            turns[-1][1].extend(blocks)
        else:
            turns.append((message["role"], blocks))
    return turns


def blocks_in(content: Any) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def outline_of(block: dict[str, Any]) -> tuple[Any, ...] | None:
    match block["type"]:
        case "text":
            text = block["text"].strip()
            return None if text == CHECK_PROMPT or text.startswith(REMINDER) else ("text", text)
        case "thinking":
            return "thinking", block["thinking"].strip(), block["signature"]
        case "tool_use":
            return "tool_use", block["id"], block["name"], block["input"]
        case "tool_result":
            outlines = [outline_of(inner) for inner in blocks_in(block["content"])]
            return "tool_result", block["tool_use_id"], bool(block.get("is_error")), outlines
        case _:
            return tuple(block.items())


def result_ids(messages: list[dict[str, Any]]) -> Iterator[str]:
    for message in messages:
        for block in blocks_in(message["content"]):
            if block["type"] == "tool_result":
                yield block["tool_use_id"]


@each_golden
def test_the_model_is_sent_what_the_real_client_sent_with_results_in_the_order_of_their_calls(golden: Path) -> None:
    rendered = render(opened(golden).context().messages, "anthropic")
    assert outline(rendered.messages) == outline(expected_messages(golden))


@each_golden
def test_results_in_the_context_are_in_the_order_the_real_client_sent_them(golden: Path) -> None:
    messages = opened(golden).context().messages
    ours = [message.tool_call_id for message in messages if isinstance(message, ToolResult)]
    assert ours == list(result_ids(expected_messages(golden)))


@each_golden
def test_nothing_is_lost_or_added_by_a_recovered_reading_of_a_healthy_file(golden: Path) -> None:
    session = opened(golden)
    assert CLAUDE.find_reparentings(session.journal) == []


@each_golden
def test_a_golden_is_recognized(golden: Path) -> None:
    assert detect(golden.read_bytes()[: 64 * 1024], golden.name) is CLAUDE


@each_golden
def test_the_session_has_the_id_the_real_client_gave_it(golden: Path) -> None:
    expected = json.loads(golden.with_suffix(".expected.json").read_text())["session_id"]
    assert opened(golden).id == expected


def test_there_are_goldens() -> None:
    assert len(GOLDENS) >= 13


def test_the_dialect_keeps_its_contract_on_every_golden() -> None:
    check_dialect(CLAUDE, [golden.read_bytes() for golden in GOLDENS], cuts=40 if THOROUGH else 8)
