"""Builds sessions of every agent with a unique word in every kind of text."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.library.world import IDS, World, clock

Lines = list[dict[str, Any]]

NEEDLES = {
    "first prompt": "needleprompt",
    "answer": "needleanswer",
    "thinking": "needlethinking",
    "tool input": "needleinput",
    "tool output": "needleoutput",
    "summary": "needlesummary",
    "title": "needletitle",
    "dead branch": "needledead",
    "before a compaction": "needlebefore",
    "sub-agent": "needlesub",
    "a Chinese pair": "潮汐",
    "one character": "鯨",
    "Korean": "돌고래",
    "emoji": "🦑",
    "half an identifier": "NeedleHalf",
    "escaped": "nädelöhr",
}
"""Kind of place -> the word there."""

QUERIES = {**NEEDLES, "half an identifier": "half", "escaped": "NADELOHR"}
MIXED = "the 観測潮汐表 shows 鯨だ and 돌고래를 with 🦑 in getNeedleHalf(x)"


def shape_session(world: World, dialect: str) -> Path:
    """A session in the format that Pi, oh-my-pi and native share."""
    folders = {
        "native": "st/sessions/tides-0123456789",
        "pi": ".pi/agent/sessions/--work--",
        "omp": ".omp/agent/sessions/--work--",
    }
    header: dict[str, Any] = {"type": "session", "version": 3, "id": IDS[1], "timestamp": clock(0), "cwd": "/work"}
    header |= {"native": {"sessiontree": 1}, "pi": {}, "omp": {"title": "named needletitle", "titleSource": "user"}}[
        dialect
    ]
    lines: Lines = [header]

    def entry(id: str, parent: str | None, kind: str, **fields: Any) -> None:
        lines.append({"type": kind, "id": id, "parentId": parent, "timestamp": clock(len(lines)), **fields})

    def add_message(id: str, parent: str | None, role: str, content: Any, **fields: Any) -> None:
        entry(id, parent, "message", message={"role": role, "content": content, "timestamp": 1, **fields})

    call = {"type": "toolCall", "id": "call_1", "name": "read", "arguments": {"path": "src/needleinput.py"}}
    add_message("a0000001", None, "user", [{"type": "text", "text": "say needleprompt"}])
    add_message("a0000002", "a0000001", "assistant", [{"type": "text", "text": "needledead"}], model="granite-2")
    add_message(
        "a0000003",
        "a0000001",
        "assistant",
        [{"type": "thinking", "thinking": "needlethinking"}, call],
        model="granite-2",
    )
    add_message(
        "a0000004",
        "a0000003",
        "toolResult",
        [{"type": "text", "text": "a\tneedleoutput\nb"}],
        toolCallId="call_1",
        toolName="read",
        isError=True,
    )
    add_message("a0000005", "a0000004", "assistant", [{"type": "text", "text": "needlebefore"}], model="granite-2")
    add_message("a0000006", "a0000005", "user", "go on")
    entry("a0000007", "a0000006", "compaction", summary="needlesummary", firstKeptEntryId="a0000006", tokensBefore=9)
    add_message("a0000008", "a0000007", "assistant", [{"type": "text", "text": "needleanswer"}], model="granite-2")
    add_message("a0000009", "a0000008", "user", MIXED)
    add_message("a000000a", "a0000009", "user", "and nädelöhr")
    if dialect != "omp":
        entry("a000000b", "a000000a", "session_info", name="needletitle")
    path = world.put(f"{folders[dialect]}/2026-02-16T10-00-00-000Z_{IDS[1]}.jsonl", _bytes(lines))
    if dialect == "omp":
        inside: Lines = [{**header, "id": IDS[2], "title": "inner"}]
        inside.append(
            {
                "type": "message",
                "id": "b0000001",
                "parentId": None,
                "timestamp": clock(1),
                "message": {"role": "user", "content": "needlesub", "timestamp": 1},
            }
        )
        world.put(f"{folders[dialect]}/2026-02-16T10-00-00-000Z_{IDS[1]}/agent-1.jsonl", _bytes(inside))
    return path


def claude_session(world: World) -> Path:
    lines: Lines = []
    around = {"isSidechain": False, "cwd": "/work", "sessionId": IDS[1], "gitBranch": "main", "version": "2.1.325"}

    def line(kind: str, uuid: str, parent: str | None, **fields: Any) -> None:
        stamped = {"uuid": uuid, "timestamp": clock(len(lines))}
        lines.append({"parentUuid": parent, **around, "type": kind, **fields, **stamped})

    def answer(uuid: str, parent: str, block: dict[str, Any]) -> None:
        message = {"id": f"msg_{uuid}", "role": "assistant", "model": "swift-4", "content": [block], "usage": {}}
        line("assistant", uuid, parent, message=message)

    def prompt(uuid: str, parent: str | None, content: Any, **fields: Any) -> None:
        line("user", uuid, parent, message={"role": "user", "content": content}, **fields)

    call = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "cat needleinput"}}
    output = "a\tneedleoutput\nb"
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": output, "is_error": True}
    prompt("u1", None, "say needleprompt")
    answer("u2", "u1", {"type": "text", "text": "needledead"})
    answer("u3", "u1", {"type": "thinking", "thinking": "needlethinking", "signature": "c2ln"})
    answer("u4", "u3", call)
    prompt("u5", "u4", [result], toolUseResult={"stdout": output})
    answer("u6", "u5", {"type": "text", "text": "needlebefore"})
    metadata = {"trigger": "manual", "preTokens": 9}
    line("system", "u7", None, subtype="compact_boundary", logicalParentUuid="u6", compactMetadata=metadata)
    prompt("u8", "u7", "needlesummary", isCompactSummary=True)
    answer("u9", "u8", {"type": "text", "text": "needleanswer"})
    prompt("u10", "u9", MIXED)
    queued = {"type": "queued_command", "prompt": "needlequeued"}
    line("attachment", "u11", "u10", attachment=queued)
    rendered = [{"content": "needleattached"}]
    line("attachment", "u12", "u11", attachment={"type": "file"}, rendered=rendered, renderedRole="user")
    prompt("u13", "u12", "and nädelöhr")
    lines.append({"type": "custom-title", "customTitle": "needletitle", "sessionId": IDS[1]})
    path = world.put(f".claude/projects/-work/{IDS[1]}.jsonl", _bytes(lines))
    inside = {**around, "isSidechain": True, "agentId": "a1"}
    world.put(
        f".claude/projects/-work/{IDS[1]}/subagents/agent-a1.jsonl",
        _bytes(
            [
                {
                    "parentUuid": None,
                    **inside,
                    "type": "user",
                    "message": {"role": "user", "content": "needlesub"},
                    "uuid": "s1",
                    "timestamp": clock(3),
                }
            ]
        ),
    )
    return path


def neovate_session(world: World) -> Path:
    lines: Lines = [
        {"type": "config", "config": {"approvalMode": "default", "approvalTools": [], "summary": "old name"}}
    ]

    def line(uuid: str, parent: str | None, role: str, content: Any, **fields: Any) -> None:
        around = {"type": "message", "timestamp": clock(len(lines)), "sessionId": "abcd1234"}
        lines.append({"parentUuid": parent, "uuid": uuid, "role": role, "content": content, **fields, **around})

    line("n1", None, "user", "say needleprompt")
    line("n2", "n1", "assistant", [{"type": "text", "text": "needledead"}], model="anvil/granite-2")
    call = {"type": "tool_use", "id": "call_1", "name": "read", "input": {"file_path": "src/needleinput.py"}}
    line("n3", "n1", "assistant", [{"type": "reasoning", "text": "needlethinking"}, call], model="anvil/granite-2")
    result = {"llmContent": "a\tneedleoutput\nb", "isError": True}
    part = {"type": "tool-result", "toolCallId": "call_1", "toolName": "read", "result": result}
    line("n4", "n3", "tool", [part])
    line("n5", "n4", "assistant", [{"type": "text", "text": "needlebefore"}], model="anvil/granite-2")
    line("n6", None, "user", "needlesummary", uiContent="Chat history compacted successfully.")
    line("n7", "n6", "assistant", [{"type": "text", "text": "needleanswer"}], model="anvil/granite-2")
    line("n8", "n7", "user", MIXED)
    line("n9", "n8", "user", "and nädelöhr")
    lines.append({"type": "custom-title", "customTitle": "needletitle", "timestamp": clock(30)})
    path = world.put(".neovate/projects/work/abcd1234.jsonl", _bytes(lines))
    inside = [{**lines[1], "content": "needlesub", "uuid": "x1"}]
    world.put(".neovate/projects/work/agent-abcd9999.jsonl", _bytes(inside))
    return path


SESSIONS: dict[str, Callable[[World], Path]] = {
    "native": lambda world: shape_session(world, "native"),
    "pi": lambda world: shape_session(world, "pi"),
    "omp": lambda world: shape_session(world, "omp"),
    "claude": claude_session,
    "neovate": neovate_session,
}

WITHOUT = {("native", "sub-agent"), ("pi", "sub-agent")}
"""Places that a format lacks: these two have no sub-agent transcripts."""


def _bytes(lines: Lines) -> bytes:
    """One record per line; umlauts are escaped, as some writers do."""
    rendered = []
    for line in lines:
        text = json.dumps(line, ensure_ascii=False)
        rendered.append(json.dumps(line) if "nädel" in text else text)
    return "".join(f"{line}\n" for line in rendered).encode()
