"""A session with every kind of entry, and helpers to export it."""

from __future__ import annotations

from typing import Any

from sessiontree.export import BranchSelection, Format, Redactor, export
from sessiontree.session.session import Session
from tests.builders import entry, header, message_line, opened

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="


def message(id: str, parent: str | None, role: str, content: Any, **fields: Any) -> bytes:
    return entry("message", id, parent, message={"role": role, "content": content, "timestamp": 1000, **fields})


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def call(id: str, name: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "toolCall", "id": id, "name": name, "arguments": arguments}


USAGE = {"input": 10, "output": 20, "cacheRead": 30, "cacheWrite": 0, "totalTokens": 60, "cost": {"total": 0.5}}

EVERYTHING = b"".join(
    [
        header(sessiontree=1, title="A parser"),
        entry("model_change", "e1", None, provider="anvil", modelId="swift-4"),
        entry("thinking_level_change", "e2", "e1", thinkingLevel="high"),
        message("e3", "e2", "user", "first question"),
        message(
            "e4",
            "e3",
            "assistant",
            [
                {"type": "thinking", "thinking": "a hidden thought"},
                text("I look."),
                call("c1", "bash", command="ls -l"),
            ],
            model="swift-4",
            usage=USAGE,
        ),
        message("e5", "e4", "toolResult", [text("no such file")], toolCallId="c1", toolName="bash", isError=True),
        message("e6", "e5", "assistant", [text("a fork stands here")]),
        message_line("b1", "e6", "the road not taken"),
        message_line("b2", "b1", "what came of it", role="assistant"),
        entry("leaf", "l1", "e6", targetId="e6"),
        entry("branch_summary", "e7", "e6", fromId="b2", summary="the other road was long"),
        message(
            "e8",
            "e7",
            "user",
            [
                text("look at this"),
                {"type": "image", "data": PIXEL, "mimeType": "image/png"},
                {"type": "image", "data": "PHN2Zz4=", "mimeType": "image/svg+xml"},
            ],
        ),
        message("e9", "e8", "bashExecution", None, command="make", output="it broke", exitCode=2),
        entry("custom_message", "e10", "e9", customType="reminder", content="an extension speaks", display=True),
        entry("compaction", "e11", "e10", summary="all of it in short", firstKeptEntryId="e8", tokensBefore=1234),
        entry("label", "e12", "e11", targetId="e6", label="the fork"),
        b"these bytes belong to no entry\n",
        message("e13", "e11", "assistant", [text("the end")], errorMessage="it was cut off"),
    ]
)


def exported(
    data: bytes | Session, format: Format, branch: BranchSelection = "active", redactor: Redactor | None = None
) -> str:
    session = data if isinstance(data, Session) else opened(data)
    return b"".join(export(session, format, branch=branch, redactor=redactor)).decode()
