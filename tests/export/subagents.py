"""Sessions with sub-agents: in a file of its own, and on a branch of the session."""

from __future__ import annotations

from pathlib import Path

from sessiontree.core.jsonio import render_json
from sessiontree.session.open import create
from sessiontree.session.session import Session

ID = "0190aaaa-0000-4000-8000-000000000009"


def write_transcript(folder: Path, *, agent: str = "a1", id: str = ID) -> Path:
    """Write a Claude Code transcript that names a sub-agent, and the transcript of that sub-agent."""

    def line(uuid: str, parent: str | None, role: str, content: object, **fields: object) -> bytes:
        message = {"role": role, "content": content, "id": f"msg-{uuid}"}
        shared = {"sessionId": ID, "cwd": "/work/nested", "timestamp": "2026-02-16T10:00:00.000Z", "version": "2.1.0"}
        return (
            render_json({"type": role, "uuid": uuid, "parentUuid": parent, "message": message, **shared, **fields})
            + b"\n"
        )

    call = {"type": "tool_use", "id": "toolu_1", "name": "Task", "input": {"prompt": "look into it"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "found"}
    (folder / ID / "subagents").mkdir(parents=True)
    path = folder / f"{ID}.jsonl"
    path.write_bytes(
        line("u1", None, "user", "delegate this")
        + line("u2", "u1", "assistant", [call])
        + line("u3", "u2", "user", [result], toolUseResult={"agentId": agent})
    )
    nested = {"isSidechain": True, "agentId": "a1", "sessionId": id}
    (folder / ID / "subagents" / "agent-a1.jsonl").write_bytes(
        line("s1", None, "user", "look into it", **nested)
        + line("s2", "s1", "assistant", [{"type": "text", "text": "the nested **answer**"}], **nested)
    )
    return path


def session_with_branch(cwd: Path, home: Path) -> Session:
    """A native session whose sub-agent works on a branch of it."""
    session = create(str(cwd), home=str(home))
    session.append("user", "delegate this")
    call = {"type": "toolCall", "id": "c1", "name": "task", "arguments": {"prompt": "look into it"}}
    session.append("assistant", [call])
    asked = session.leaf
    record = {"call": "c1", "description": "about it", "model": "m"}
    start = session.branch(asked).append({"type": "custom", "customType": "sessiontree.task", "data": record})
    branch = session.branch(start.id)
    branch.append({"type": "reset_boundary"})
    branch.append("user", "look into it")
    branch.append("assistant", "the nested **answer**")
    session.move(asked)
    session.append("toolResult", "found", toolCallId="c1", toolName="task", isError=False)
    session.append("assistant", "it was found")
    session.flush()
    return session
