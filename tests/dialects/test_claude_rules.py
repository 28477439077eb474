"""Claude Code's rules on resume, measured: what client 2.1.325 sent for small transcripts.

Each line of `measured.txt` is a case: a transcript without the fields that do not matter, and what was sent.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sessiontree.providers import render
from sessiontree.session.open import open_store
from sessiontree.stores.memory import MemoryStore

CORPUS = Path(__file__).parent.parent / "corpus" / "claude-rules"
MEASURED = [json.loads(line) for line in (CORPUS / "measured.txt").read_text().splitlines()]
GOLDENS = sorted(CORPUS.glob("*.answers.txt"))

FILLERS = (
    "U:(no content)",
    "U:[Orphaned tool result removed due to con",
    "A:No response requested.",
    "U:(The record begins with the assistant. W",  # ours, before an answer that nothing precedes
)
RESULTS = ("U:result ", "U:err ")

ATTACHED = "U:The file "
"""Our text for an attached file, which the client sends as a reminder; the answers have no reminders."""


def sent_by_us(transcript: bytes) -> list[str]:
    messages = render(open_store(MemoryStore(transcript)).context().messages, "anthropic").messages
    return [outline_of(message["role"], block) for message in messages for block in blocks_in(message["content"])]


def blocks_in(content: Any) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def outline_of(role: str, block: dict[str, Any]) -> str:
    sender = role[0].upper()
    match block["type"]:
        case "text":
            return f"{sender}:{block['text'][:40]}"
        case "tool_use":
            return f"{sender}:use {block['id']}"
        case "tool_result":
            return f"{sender}:{'err' if block.get('is_error') else 'result'} {block['tool_use_id']}"
        case kind:
            return f"{sender}:{kind}"


def normal(outline: list[str]) -> list[str]:
    """Sort the results of each turn, and the texts of each answer before its calls; leave the client's fillers out.

    We keep the recorded order of an answer. `FILLERS` are what is sent where nothing is left of a message.
    """
    found: list[str] = []
    for part in (part.strip() for part in outline):
        if part in FILLERS:
            continue
        at = len(found)
        while at and _comes_before(part, found[at - 1]):
            at -= 1
        found.insert(at, part)
    return found


def _comes_before(part: str, other: str) -> bool:
    if part.startswith(RESULTS) and other.startswith(RESULTS):
        return part.split()[-1] < other.split()[-1]
    return part.startswith("A:") and not part.startswith(("A:use ", "A:thinking")) and other.startswith("A:use ")


@pytest.mark.parametrize("case", MEASURED, ids=lambda case: case["name"])
def test_a_transcript_is_read_as_the_client_reads_it(case: dict[str, Any]) -> None:
    transcript = b"".join(json.dumps(line).encode() + b"\n" for line in case["lines"])
    assert normal(sent_by_us(transcript)) == normal(case["sent"])


@pytest.mark.parametrize("answers", GOLDENS, ids=lambda answers: answers.name.removesuffix(".answers.txt"))
def test_a_golden_is_read_as_the_client_reads_it(answers: Path) -> None:
    (measured,) = [line for line in answers.read_text().splitlines() if line.startswith("Claude Code")]
    sent = [part[:42] for part in measured.partition(": ")[2].split(" | ")]
    transcript = (CORPUS / answers.name.replace(".answers.txt", ".jsonl")).read_bytes()
    # The recorded answers do not distinguish results from the client's notes about missing ones.
    ours = [part.replace("U:err ", "U:result ") for part in sent_by_us(transcript)]
    assert [part for part in ours if not part.startswith(ATTACHED)] == sent


def test_every_kind_of_case_was_recorded() -> None:
    assert len(MEASURED) > 290
    assert len(GOLDENS) == 7


BLOCKS: dict[str, dict[str, Any]] = {
    "t": {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
    "x": {"type": "text", "text": "text"},
    "c": {"type": "tool_use", "name": "Bash", "input": {}},
}
MEASURED_ORDERS = {
    "tcxc": "txcc",
    "xctc": "xtcc",
    "ctc": "tcc",
    "tctxc": "tctxc",
    "tcx": "txc",
    "tct": "tct",
    "cxct": "xtcc",
    "tctcx": "tctcx",
    "ctcx": "txcc",
    "xcxtc": "xxtcc",
    "txcxtxcx": "txxtxxcc",
}
"""Kinds of the blocks of a response, one on each line, and their order as the client sends them."""


@pytest.mark.parametrize("kinds", MEASURED_ORDERS)
def test_calls_are_sent_last_unless_blocks_of_thinking_would_come_together(kinds: str) -> None:
    lines: list[dict[str, Any]] = [{"type": "user", "message": {"role": "user", "content": "go"}}]
    for number, kind in enumerate(kinds):
        content = [{**BLOCKS[kind], "id": f"c{number}"} if kind == "c" else BLOCKS[kind]]
        message = {"id": "m1", "role": "assistant", "model": "claude-sonnet-4-5", "content": content}
        lines.append({"type": "assistant", "message": message})
    for number, line in enumerate(lines):
        line.update(uuid=str(number), parentUuid=str(number - 1) if number else None, sessionId="s")
        line.update(timestamp=f"2026-10-01T00:00:{number:02d}.000Z")
    transcript = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    _, answer, *_ = open_store(MemoryStore(transcript)).context().messages
    names = {"text": "x", "thinking": "t", "toolCall": "c"}
    assert "".join(names[block["type"]] for block in msgspec.to_builtins(answer.content)) == MEASURED_ORDERS[kinds]
