"""A word anywhere in a session of Codex or Qwen Code is found, with its kind and the state of its branch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.library.world import World, clock

THREAD = "019c0001-0000-7000-8000-000000000001"
CHILD = "019c0001-0000-7000-8000-000000000002"
SESSION = "23c9d07a-b8a9-4d00-aab1-cb91be59c9d0"
KINDS = {
    "needleprompt": ("prompt", "compacted"),
    "needleanswer": ("answer", "active"),
    "needlethinking": ("thinking", "compacted"),
    "needleinput": ("input", "compacted"),
    "needleoutput": ("output", "compacted"),
    "needlesummary": ("summary", "active"),
    "needledead": ("answer", "abandoned"),
    "needlesub": ("prompt", "active"),
    "needletitle": ("title", "active"),
}
Lines = list[dict[str, Any]]


def codex(world: World) -> None:
    lines: Lines = []

    def add(kind: str, **payload: Any) -> None:
        lines.append({"timestamp": clock(len(lines)), "type": kind, "payload": payload})

    def say(role: str, text: str) -> None:
        kind = "output_text" if role == "assistant" else "input_text"
        add("response_item", type="message", role=role, content=[{"type": kind, "text": text}])

    def start(id: str, **more: Any) -> None:
        add("session_meta", id=id, timestamp=clock(0), cwd="/work", originator="x", cli_version="0.166.0", **more)

    start(THREAD)
    say("user", "<environment_context>needlecontext")
    say("user", "say needleprompt")
    summary = [{"type": "summary_text", "text": "needlethinking"}]
    add("response_item", type="reasoning", summary=summary, encrypted_content=None)
    arguments = json.dumps({"cmd": "cat needleinput.py"})
    add("response_item", type="function_call", name="exec_command", arguments=arguments, call_id="c1")
    add("response_item", type="function_call_output", call_id="c1", output="a\tneedleoutput")
    say("user", "left")
    say("assistant", "needledead")
    add("event_msg", type="thread_rolled_back", num_turns=1)
    history = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "the summary"}]}]
    add("compacted", message="needlesummary", replacement_history=history)
    say("user", "go on")
    say("assistant", "needleanswer")
    add("event_msg", type="agent_message", message="needleanswer")
    add("sessiontree", type="session_info", name="named needletitle")
    folder = Path(".codex/sessions/2026/02/16")
    world.put(folder / f"rollout-2026-02-16T10-00-00-{THREAD}.jsonl", lines)
    lines.clear()
    start(CHILD, parent_thread_id=THREAD, source={"subagent": "review"})
    say("user", "needlesub")
    world.put(folder / f"rollout-2026-02-16T10-30-00-{CHILD}.jsonl", lines)


def qwen(world: World) -> None:
    lines: Lines = []

    def add(id: str, parent: str | None, kind: str, **fields: Any) -> None:
        base = {"uuid": id, "parentUuid": parent, "sessionId": SESSION, "timestamp": clock(len(lines)), "type": kind}
        lines.append({**base, "cwd": "/work", "version": "0.24.4", **fields})

    def say(id: str, parent: str | None, kind: str, *parts: dict[str, Any]) -> None:
        role = "model" if kind == "assistant" else "user"
        add(id, parent, kind, message={"role": role, "parts": [*parts]})

    say("r0", None, "user", {"text": "say needleprompt"})
    call = {"functionCall": {"id": "c1", "name": "read_file", "args": {"file_path": "needleinput.py"}}}
    say("r1", "r0", "assistant", {"text": "needlethinking", "thought": True}, call)
    response = {"id": "c1", "name": "read_file", "response": {"output": "a\tneedleoutput"}}
    say("r2", "r1", "tool_result", {"functionResponse": response})
    say("r3", "r2", "assistant", {"text": "needledead"})
    add("r4", "r2", "system", subtype="rewind", systemPayload={"truncatedCount": 1})
    history = [{"role": "user", "parts": [{"text": "needlesummary"}]}]
    add("r5", "r4", "system", subtype="chat_compression", systemPayload={"compressedHistory": history})
    say("r6", "r5", "user", {"text": "go on"})
    telemetry = {"uiEvent": {"response_text": "needleanswer"}}
    add("r7", "r6", "system", subtype="ui_telemetry", systemPayload=telemetry)
    say("r8", "r7", "assistant", {"text": "needleanswer"})
    add("r9", "r8", "system", subtype="custom_title", systemPayload={"customTitle": "named needletitle"})
    world.put(f".qwen/projects/-work/chats/{SESSION}.jsonl", lines)
    lines.clear()
    say("s0", None, "user", {"text": "needlesub"})
    world.put(f".qwen/projects/-work/subagents/{SESSION}/agent-a1.jsonl", lines)


@pytest.mark.parametrize("build", [codex, qwen], ids=lambda build: str(build.__name__))
def test_a_word_in_every_kind_of_text_is_found_once(build: Any, tmp_path: Path) -> None:
    world = World(tmp_path)
    build(world)
    found = {}
    with world.library() as library:
        for word in KINDS:
            hits = list(library.search(word, refresh="all"))
            assert len(hits) == 1, (word, [(hit.kind, hit.entry) for hit in hits])
            found[word] = (hits[0].kind, hits[0].branch)
        assert {hit.session.agent for hit in library.search("needleprompt")} == {build.__name__}
    assert found == KINDS


def test_a_thread_is_found_by_the_name_that_codex_keeps_in_another_file(tmp_path: Path) -> None:
    world = World(tmp_path)
    codex(world)
    world.put(".codex/session_index.jsonl", [{"id": THREAD, "thread_name": "quarterly pelican"}])
    with world.library() as library:
        library.refresh()
        assert library.find("quarterly pelican").id == THREAD
