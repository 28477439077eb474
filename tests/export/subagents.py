"""Sessions with sub-agents: in a separate file, on a branch of the session, and in separate sessions."""

from __future__ import annotations

import asyncio
from pathlib import Path

from sessiontree.agent.loop import run
from sessiontree.conversion.install import Request, carry_out, make_plan
from sessiontree.core.jsonio import render_json
from sessiontree.explore.task_tool import TaskTool
from sessiontree.models import ScriptedModel
from sessiontree.models.scripted import ScriptCall
from sessiontree.session.open import create
from sessiontree.session.session import Session
from tests.agent.runs import turn

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


def session_with_own_session(folder: Path, home: Path, dialect: str) -> Session:
    """A session with two calls of the same id, whose sub-agents have separate sessions."""
    folder.mkdir(parents=True, exist_ok=True)
    session = create(str(folder), home=str(home))
    session.append("user", "delegate this")
    session.flush()
    if dialect != "native":
        session = carry_out(
            session, make_plan(session, Request(dialect, at=session.leaf, out=str(folder / f"{ID}.jsonl")))
        )
    for words in ("first", "second"):
        arguments = {"description": words, "prompt": f"look into the {words}", "mode": "session"}
        asks = turn(None, ScriptCall("task", arguments, id="call_0"), when=f"the {words} part")
        model = ScriptedModel([asks, turn(f"the {words} **answer**", when="look into"), turn("done")])
        tools = [TaskTool(home=str(home))]
        asyncio.run(run(session, f"the {words} part", model=model, tools=tools).finish())
    session.flush()
    return session
