"""Sessions of Codex, OpenCode, Gemini CLI and Qwen Code with twenty words, one in each place that a search must find.

The conversation is the same in all four: calls, a summary of what was before, and a turn that was taken back.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.library.world import World, clock

Record = dict[str, Any]

THREAD = "019c0001-0000-7000-8000-000000000001"
CHILD = "019c0001-0000-7000-8000-000000000002"
SESSION = "23c9d07a-b8a9-4d00-aab1-cb91be59c9d0"
OPENCODE_SESSION, OPENCODE_CHILD = "ses_e1cd69a3dffe21P69fMfXhTJAU", "ses_e1cd69a3dffe21P69fMfXhTJAV"

WORDS = {
    "needleprompt": ("prompt", "compacted"),
    "needlethinking": ("thinking", "compacted"),
    "needlelooking": ("answer", "compacted"),
    "needleinput": ("input", "compacted"),
    "needlecommand": ("input", "compacted"),
    "needleoutput": ("output", "compacted"),
    "needlefailure": ("output", "compacted"),
    "needlebefore": ("answer", "compacted"),
    "needledeadprompt": ("prompt", "abandoned"),
    "needledead": ("answer", "abandoned"),
    "needlesummary": ("summary", "active"),
    "潮汐": ("prompt", "active"),
    "돌고래": ("prompt", "active"),
    "🦑": ("prompt", "active"),
    "half": ("prompt", "active"),
    "NADELOHR": ("prompt", "active"),
    "needleanswer": ("answer", "active"),
    "needletitle": ("title", "active"),
    "needlesub": ("prompt", "active"),
    "needlesubanswer": ("answer", "active"),
}
"""Query -> the kind of the text that it finds, and the state of its branch."""
MIXED = "the 観測潮汐表 with 돌고래를 and 🦑 in getNeedleHalf(x), nädelöhr"


def codex(world: World) -> None:
    lines: list[Record] = []

    def add(kind: str, **payload: Any) -> None:
        lines.append({"timestamp": clock(len(lines)), "type": kind, "payload": payload})

    def item(**payload: Any) -> None:
        add("response_item", **payload)

    def say(role: str, text: str) -> None:
        kind = "output_text" if role == "assistant" else "input_text"
        item(type="message", role=role, content=[{"type": kind, "text": text}])

    def start(id: str, **more: Any) -> None:
        add("session_meta", id=id, timestamp=clock(0), cwd="/work", originator="x", cli_version="0.166.0", **more)

    start(THREAD)
    say("user", "<environment_context>needlecontext")
    say("user", "say needleprompt")
    item(type="reasoning", summary=[{"type": "summary_text", "text": "needlethinking"}], encrypted_content=None)
    say("assistant", "needlelooking")
    for id, command, output in (
        ("c1", "cat src/needleinput.py", "a\tneedleoutput"),
        ("c2", "grep needlecommand", "Process exited with code 2\nOutput:\nneedlefailure"),
    ):
        item(type="function_call", name="exec_command", arguments=json.dumps({"cmd": command}), call_id=id)
        item(type="function_call_output", call_id=id, output=output)
    say("assistant", "needlebefore")
    say("user", "needledeadprompt")
    say("assistant", "needledead")
    add("event_msg", type="thread_rolled_back", num_turns=1)
    history = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "the summary"}]}]
    add("compacted", message="needlesummary", replacement_history=history)
    say("user", MIXED)
    say("assistant", "needleanswer")
    add("event_msg", type="agent_message", message="needleanswer")
    folder = Path(".codex/sessions/2026/02/16")
    world.put(folder / f"rollout-2026-02-16T10-00-00-{THREAD}.jsonl", lines)
    world.put(".codex/session_index.jsonl", [{"id": THREAD, "thread_name": "named needletitle"}])
    lines.clear()
    start(CHILD, parent_thread_id=THREAD, source={"subagent": "review"})
    say("user", "needlesub")
    say("assistant", "needlesubanswer")
    world.put(folder / f"rollout-2026-02-16T10-30-00-{CHILD}.jsonl", lines)


def qwen(world: World) -> None:
    lines: list[Record] = []

    def add(id: str, parent: str | None, kind: str, **fields: Any) -> None:
        base = {"uuid": id, "parentUuid": parent, "sessionId": SESSION, "timestamp": clock(len(lines)), "type": kind}
        lines.append({**base, "cwd": "/work", "version": "0.24.4", **fields})

    def say(id: str, parent: str | None, kind: str, *parts: Record) -> None:
        role = "model" if kind == "assistant" else "user"
        add(id, parent, kind, message={"role": role, "parts": [*parts]})

    say("r0", None, "user", {"text": "say needleprompt"})
    calls = [
        {"functionCall": {"id": "c1", "name": "read_file", "args": {"file_path": "src/needleinput.py"}}},
        {"functionCall": {"id": "c2", "name": "run_shell_command", "args": {"command": "grep needlecommand"}}},
    ]
    say("r1", "r0", "assistant", {"text": "needlethinking", "thought": True}, {"text": "needlelooking"}, *calls)
    response: Record = {"id": "c1", "name": "read_file", "response": {"output": "a\tneedleoutput"}}
    say("r2", "r1", "tool_result", {"functionResponse": response})
    response = {"id": "c2", "name": "run_shell_command", "response": {"error": "needlefailure"}}
    say("r3", "r2", "tool_result", {"functionResponse": response})
    say("r4", "r3", "assistant", {"text": "needlebefore"})
    say("r5", "r4", "user", {"text": "needledeadprompt"})
    say("r6", "r5", "assistant", {"text": "needledead"})
    add("r7", "r4", "system", subtype="rewind", systemPayload={"truncatedCount": 2})
    history = [{"role": "user", "parts": [{"text": "needlesummary"}]}]
    add("r8", "r7", "system", subtype="chat_compression", systemPayload={"compressedHistory": history})
    say("r9", "r8", "user", {"text": MIXED})
    telemetry = {"uiEvent": {"response_text": "needleanswer"}}
    add("r10", "r9", "system", subtype="ui_telemetry", systemPayload=telemetry)
    say("r11", "r10", "assistant", {"text": "needleanswer"})
    add("r12", "r11", "system", subtype="custom_title", systemPayload={"customTitle": "named needletitle"})
    world.put(f".qwen/projects/-work/chats/{SESSION}.jsonl", lines)
    lines.clear()
    say("s0", None, "user", {"text": "needlesub"})
    say("s1", "s0", "assistant", {"text": "needlesubanswer"})
    world.put(f".qwen/projects/-work/subagents/{SESSION}/agent-a1.jsonl", lines)


def gemini(world: World) -> None:
    start = {"sessionId": SESSION, "projectHash": "ab" * 32, "startTime": clock(0), "lastUpdated": clock(0)}
    lines: list[Record] = [{**start, "kind": "main"}]

    def message(id: str, kind: str, content: Any, **fields: Any) -> Record:
        return {"id": id, "timestamp": clock(len(lines)), "type": kind, "content": content, **fields}

    def call(id: str, name: str, arguments: Record, response: Record) -> Record:
        result = [{"functionResponse": {"id": id, "name": name, "response": response}}]
        status = "error" if "error" in response else "success"
        return {"id": id, "name": name, "args": arguments, "result": result, "status": status}

    calls = [
        call("c1", "read_file", {"file_path": "src/needleinput.py"}, {"output": "a\tneedleoutput"}),
        call("c2", "run_shell_command", {"command": "grep needlecommand"}, {"error": "needlefailure"}),
    ]
    thoughts = [{"subject": "First", "description": "needlethinking", "timestamp": clock(1)}]
    lines.append(message("m0", "user", [{"text": "say needleprompt"}]))
    lines.append(message("m1", "gemini", "needlelooking", thoughts=thoughts, toolCalls=calls, model="granite"))
    lines.append(message("m2", "gemini", "needlebefore", model="granite"))
    lines.append(message("m3", "user", [{"text": "needledeadprompt"}]))
    lines.append(message("m4", "gemini", "needledead", model="granite"))
    lines.append({"$rewindTo": "m3"})
    summary = message("m5", "user", [{"text": "<state_snapshot>needlesummary</state_snapshot>"}])
    lines.append({"$set": {"messages": [summary, message("m6", "gemini", "Got it.")]}})
    lines.append(message("m7", "user", [{"text": MIXED}]))
    lines.append(message("m8", "gemini", "needleanswer", model="granite"))
    lines.append({"$set": {"summary": "named needletitle"}})
    world.put(f".gemini/tmp/work/chats/session-2026-02-16T10-00-{SESSION[:8]}.jsonl", lines)
    lines[:] = [{**start, "sessionId": "agent-1", "kind": "subagent"}]
    lines.append(message("s0", "user", [{"text": "needlesub"}]))
    lines.append(message("s1", "gemini", "needlesubanswer", model="granite"))
    world.put(f".gemini/tmp/work/chats/{SESSION}/agent-1.jsonl", lines)


TABLES = """
CREATE TABLE session (id text PRIMARY KEY, project_id text NOT NULL, parent_id text, slug text NOT NULL,
  directory text NOT NULL, title text NOT NULL, version text NOT NULL, cost real DEFAULT 0 NOT NULL,
  tokens_input integer DEFAULT 0 NOT NULL, tokens_output integer DEFAULT 0 NOT NULL,
  tokens_reasoning integer DEFAULT 0 NOT NULL, tokens_cache_read integer DEFAULT 0 NOT NULL,
  tokens_cache_write integer DEFAULT 0 NOT NULL, revert text, time_created integer NOT NULL,
  time_updated integer NOT NULL, time_compacting integer, time_archived integer);
CREATE TABLE message (id text PRIMARY KEY, session_id text NOT NULL, time_created integer NOT NULL,
  time_updated integer NOT NULL, data text NOT NULL);
CREATE TABLE part (id text PRIMARY KEY, message_id text NOT NULL, session_id text NOT NULL,
  time_created integer NOT NULL, time_updated integer NOT NULL, data text NOT NULL);
CREATE TABLE event (id text PRIMARY KEY, aggregate_id text NOT NULL, seq integer NOT NULL, type text NOT NULL,
  data text NOT NULL);
CREATE INDEX message_session ON message (session_id, time_created, id);
CREATE INDEX part_message ON part (message_id, id);
CREATE INDEX part_session ON part (session_id);
"""
OPENCODE_DATABASE = ".local/share/opencode/opencode.db"


def opencode(world: World) -> None:
    path = world.home / OPENCODE_DATABASE
    path.parent.mkdir(parents=True)
    with closing(sqlite3.connect(path)) as database, database:
        database.executescript(TABLES)
        add_opencode_session(database, OPENCODE_SESSION)


def add_opencode_session(database: sqlite3.Connection, session: str, child: str = OPENCODE_CHILD) -> None:
    """Add the session with its sub-agent. Ids of messages contain the end of the session's id."""
    start = 1_771_236_000_000
    count = 0

    def add_session(id: str, parent: str | None, title: str, revert: Record | None = None) -> None:
        names = "id, project_id, parent_id, slug, directory, title, version, revert, time_created, time_updated"
        values = (id, "p", parent, "slug", "/work", title, "1.18.33", revert and json.dumps(revert), start, start + 99)
        database.execute(f"INSERT INTO session ({names}) VALUES (?,?,?,?,?,?,?,?,?,?)", values)

    def message_id(number: int, id: str) -> str:
        return f"msg_{number:012x}{id[-14:]}"

    def add(id: str, role: str, *parts: Record, **fields: Any) -> str:
        nonlocal count
        count += 1
        time = start + count
        data: Record = {"role": role, "time": {"created": time}, **fields}
        if role == "assistant":
            data |= {"parentID": message_id(count - 1, id), "modelID": "granite", "providerID": "p", "cost": 0}
        name = message_id(count, id)
        database.execute("INSERT INTO message VALUES (?,?,?,?,?)", (name, id, time, time, json.dumps(data)))
        for at, part in enumerate(parts):
            row = (f"prt_{count:010x}{at:02x}{id[-14:]}", name, id, time, time, json.dumps(part))
            database.execute("INSERT INTO part VALUES (?,?,?,?,?,?)", row)
        return name

    def text(words: str) -> Record:
        return {"type": "text", "text": words}

    def tool(id: str, name: str, arguments: Record, **ended: Any) -> Record:
        times = {"start": start, "end": start + 1}
        state = {"status": "error" if "error" in ended else "completed", "input": arguments, "time": times, **ended}
        return {"type": "tool", "tool": name, "callID": id, "state": state}

    add(session, "user", text("say needleprompt"))
    thought = {"type": "reasoning", "text": "needlethinking", "time": {"start": start, "end": start}}
    calls = [
        tool("c1", "read", {"filePath": "src/needleinput.py"}, output="a\tneedleoutput"),
        tool("c2", "bash", {"command": "grep needlecommand"}, error="needlefailure"),
    ]
    add(session, "assistant", thought, text("needlelooking"), *calls)
    add(session, "assistant", text("needlebefore"))
    add(session, "user", {"type": "compaction", "auto": False})
    add(session, "assistant", text("needlesummary"), summary=True, mode="compaction", finish="stop")
    add(session, "user", text(MIXED))
    add(session, "assistant", text("needleanswer"))
    reverted = add(session, "user", text("needledeadprompt"))
    add(session, "assistant", text("needledead"))
    add_session(session, None, "named needletitle", {"messageID": reverted})
    add_session(child, session, "inner")
    add(child, "user", text("needlesub"))
    add(child, "assistant", text("needlesubanswer"))


BUILDERS: dict[str, Callable[[World], None]] = {
    "codex": codex,
    "opencode": opencode,
    "gemini": gemini,
    "qwen": qwen,
}
