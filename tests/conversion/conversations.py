"""Conversations to convert: one with every feature, and generated ones."""

from __future__ import annotations

import base64
from typing import Any

from hypothesis import strategies as st

import sessiontree
from sessiontree import Session

PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(range(64))).decode()


def everything() -> Session:
    """A session with every kind of entry a conversation has, two branches and a compaction."""
    session = sessiontree.create(cwd="/src/日本語 project", in_memory=True)
    session.append({"type": "model_change", "provider": "anthropic", "modelId": "claude-opus-5"})
    session.append({"type": "thinking_level_change", "thinkingLevel": "high"})
    session.append("user", "Why does the parser drop the last line? 解析器为什么丢了最后一行 🙂")
    first = session.append(assistant(text("Let me look."), call("toolu_01", "read", {"path": "src/parser.py"})))
    session.append(result("toolu_01", "read", "def parse(data):\n    return data.split('\\n')[:-1]\n"))
    session.append(
        assistant(
            {"type": "thinking", "thinking": "split drops it", "thinkingSignature": "c2ln"},
            text("Two things to check."),
            call("toolu_02", "bash", {"command": "pytest -q", "timeout": 30}),
            call("toolu_03", "grep", {"pattern": "parse\\(", "path": "src"}),
        )
    )
    session.append(result("toolu_02", "bash", "1 failed\nE   AssertionError", is_error=True))
    session.append(result("toolu_03", "grep", "src/main.py:3: parse(data)"))
    asked = session.append(assistant(text("It slices off the last line. Shall I fix it?")))
    session.label(asked.id, "the question")
    session.append(
        {"role": "user", "content": [text("Look at this:"), {"type": "image", "data": PIXEL, "mimeType": "image/png"}]}
    )
    session.append(assistant(text("I see the red line.")))
    session.append(
        {
            "role": "bashExecution",
            "command": "git status",
            "output": "clean\n",
            "exitCode": 0,
            "cancelled": False,
            "truncated": False,
        }
    )
    session.append(
        {"type": "custom_message", "customType": "note", "content": "Remember the style guide.", "display": True}
    )
    kept = session.append("user", "Fix it, please.")
    session.append(
        assistant(text("Done."), call("toolu_04", "edit", {"path": "src/parser.py", "oldText": "[:-1]", "newText": ""}))
    )
    session.append(result("toolu_04", "edit", "ok"))
    session.append(
        {
            "type": "compaction",
            "summary": "The parser lost its last line; fixed.",
            "firstKeptEntryId": kept.id,
            "tokensBefore": 52_000,
        }
    )
    session.append("user", "And a test for it?")
    session.append(assistant(text("Written in tests/test_parser.py.")))
    other = session.branch(first.id)
    other.append(result("toolu_01", "read", "(the other reading)"))
    other.append(assistant(text("Another way to see it.")))
    session.rename("the last line")
    return session


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def call(id: str, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"type": "toolCall", "id": id, "name": name, "arguments": arguments}


def assistant(*blocks: dict[str, Any], model: str = "claude-opus-5") -> dict[str, Any]:
    has_calls = any(block["type"] == "toolCall" for block in blocks)
    return {
        "role": "assistant",
        "content": list(blocks),
        "api": "anthropic-messages",
        "provider": "anthropic",
        "model": model,
        "usage": {
            "input": 12,
            "output": 34,
            "cacheRead": 5,
            "cacheWrite": 6,
            "totalTokens": 57,
            "cost": {"input": 0.1, "output": 0.2, "cacheRead": 0.0, "cacheWrite": 0.0, "total": 0.3},
        },
        "stopReason": "toolUse" if has_calls else "stop",
    }


def result(id: str, name: str, words: str, *, is_error: bool = False) -> dict[str, Any]:
    return {"role": "toolResult", "toolCallId": id, "toolName": name, "content": [text(words)], "isError": is_error}


words = st.text(alphabet=st.characters(codec=None, exclude_characters="\x00"), max_size=30) | st.sampled_from(
    [
        "",
        " \r\n",
        "中文 テスト 한국어",
        "🙂👩‍👩‍👧",
        "lone \ud83d surrogate",
        "x" * 5_000,
        "<system-reminder>not one</system-reminder>",
    ]
)
names = st.sampled_from(["read", "write", "edit", "bash", "grep", "find", "ls", "unheard_of"])
arguments = st.dictionaries(st.sampled_from(["path", "command", "pattern", "content", "x"]), words, max_size=3)
images = st.just({"type": "image", "data": PIXEL, "mimeType": "image/png"})
text_blocks = st.builds(text, words)


@st.composite
def turns(draw: st.DrawFn, number: int) -> list[dict[str, Any]]:
    """A prompt, an answer with any number of calls, and their results."""
    prompt = draw(words | st.lists(text_blocks | images, min_size=1, max_size=3))
    calls = [call(f"call_{number}_{at}", draw(names), draw(arguments)) for at in range(draw(st.integers(0, 3)))]
    thinking = draw(st.lists(words.map(lambda text: {"type": "thinking", "thinking": text}), max_size=1))
    answer = assistant(*thinking, *draw(st.lists(text_blocks, max_size=2)), *calls)
    results = [result(made["id"], made["name"], draw(words), is_error=draw(st.booleans())) for made in calls]
    if len(results) > 1 and draw(st.booleans()):
        results.reverse()
    return [{"role": "user", "content": prompt}, answer, *results]


@st.composite
def sessions(draw: st.DrawFn) -> Session:
    """A session with some turns, branches anywhere, labels, and compactions that keep something or nothing."""
    session = sessiontree.create(cwd="/src/project", in_memory=True)
    ids: list[str] = []
    for number in range(draw(st.integers(1, 5))):
        if ids and draw(st.booleans()):
            session.move(draw(st.sampled_from(ids)))
        made = [session.append({"type": "message", "message": message}).id for message in draw(turns(number))]
        ids += [made[0], made[-1]]
        if draw(st.integers(0, 3)) == 0:
            session.label(draw(st.sampled_from(ids)), draw(words.filter(str.strip)))
        if draw(st.integers(0, 3)) == 0:
            kept = draw(st.sampled_from([None, made[0]]))
            fields = {"summary": draw(words), "tokensBefore": 1_000} | ({"firstKeptEntryId": kept} if kept else {})
            ids.append(session.append({"type": "compaction", **fields}).id)
    if draw(st.booleans()):
        session.move(draw(st.sampled_from(ids)))
    return session
