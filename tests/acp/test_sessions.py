"""Sessions of all agents: listed in pages, replayed in order, resumed, forked, renamed, deleted and restored."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import sessiontree
from sessiontree.acp import session_index
from sessiontree.acp.session_index import SessionIndex
from sessiontree.app.workbench import Workbench
from sessiontree.library.library import Library
from sessiontree.models.scripted import ScriptTurn
from tests.acp.client import Client, RefusedError
from tests.acp.conftest import scripted

CLAUDE, PI, NATIVE = (f"0{number}a1c0de-5e55-7000-8000-00000000000{number}" for number in (1, 2, 5))


def steps(updates: list[dict]) -> list[tuple[str, ...]]:
    """What a user sees, in order: who, and the beginning of a text, or a call and its end."""
    found: list[tuple[str, ...]] = []
    for update in updates:
        match update["sessionUpdate"]:
            case "tool_call":
                found.append(("call", update["toolCallId"], update["kind"], update["title"]))
            case "tool_call_update":
                found.append(("result", update["toolCallId"], update["status"]))
            case kind:
                found.append((kind.removesuffix("_message_chunk"), update["content"]["text"][:20]))
    return found


def test_a_claude_session_is_replayed_in_order_with_its_calls_and_results(home: Path) -> None:
    with Client(home) as client:
        assert steps(client.load(CLAUDE, home)) == [
            ("user", "tests/test_login.py "),
            ("agent", "I'll read the test a"),
            ("call", "call_1", "read", "Read tests/test_login.py"),
            ("call", "call_2", "read", "Read app/session.py"),
            ("call", "call_3", "execute", "Bash git log --oneline -5 app/session.py"),
            ("result", "call_1", "completed"),
            ("result", "call_2", "completed"),
            ("result", "call_3", "completed"),
            ("agent", "The test sleeps exac"),
            ("user", "Inject the clock, pl"),
            ("call", "call_5", "edit", "Edit app/session.py"),
            ("result", "call_5", "completed"),
            ("call", "call_6", "execute", "Bash pytest -q tests/test_login.py --count 200"),
            ("result", "call_6", "completed"),
            ("agent", "Fixed: 200 runs with"),
        ]
        edit = next(update for update in client.updates if update.get("kind") == "edit")
        path = str(home / "projects/shop/app/session.py")
        diff = {"type": "diff", "path": path, "oldText": "time.time()", "newText": "self.clock()"}
        assert (edit["content"], edit["locations"]) == ([diff], [{"path": path}])


def test_a_pi_session_is_replayed_and_a_resumed_one_is_not(home: Path) -> None:
    with Client(home) as client:
        assert steps(client.load(PI, home)) == [
            ("user", "Add a --json flag to"),
            ("agent", "I'll read the parser"),
            ("call", "call_1", "read", "read parser.py"),
            ("result", "call_1", "completed"),
            ("agent", "It uses argparse. Sh"),
            ("user", "请保留 argparse。"),
            ("agent", "Done: one line added"),
        ]
        client.updates.clear()
        answer = client.call("session/resume", sessionId=PI, cwd=str(home))
        assert answer["modes"]["currentModeId"] == "default"
        assert client.updates == []


def test_thinking_images_and_commands_are_replayed_and_hostile_text_is_made_visible(home: Path, project: Path) -> None:
    session = sessiontree.create(project, home=home / ".local/share/sessiontree")
    image = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
    session.append({"role": "user", "content": [{"type": "text", "text": "a\x1b[2Jb\tc\u202e \ud800"}, image]})
    thinking = [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "Look."}]
    session.append({"role": "assistant", "content": thinking})
    session.append({"role": "bashExecution", "command": "make", "output": "done\n", "exitCode": 2})
    for number in (1, 2):  # a client that numbers its calls from 1 on
        call = {"type": "toolCall", "id": "1", "name": "un\nknown", "arguments": {"x": "\ud800"}}
        session.append({"role": "assistant", "content": [call]})
        session.append({"role": "toolResult", "toolCallId": "1", "toolName": "unknown", "content": f"result {number}"})
    session.close()
    with Client(home) as client:
        updates = client.load(session.id, project)
    assert updates[0]["content"]["text"] == "a␛[2Jb\tc\\u202e �"
    assert updates[1]["content"] == image
    assert (updates[2]["sessionUpdate"], updates[2]["content"]["text"]) == ("agent_thought_chunk", "Hm.")
    assert (updates[4]["kind"], updates[5]["status"]) == ("execute", "failed")
    calls = [update for update in updates if update.get("name") == "un known"]
    assert [call["toolCallId"] for call in calls] == ["1", "1#2"]
    results = [(update["toolCallId"], update["content"][0]["content"]["text"]) for update in (updates[-3], updates[-1])]
    assert results == [("1", "result 1"), ("1#2", "result 2")]


def test_long_texts_are_replayed_in_pieces_and_long_outputs_are_shortened(home: Path, project: Path) -> None:
    """Some clients read lines of at most 64 KB."""
    session = sessiontree.create(project, home=home / ".local/share/sessiontree")
    text, output = "words " * 20_000, "x" * 200_000
    session.append({"role": "user", "content": text})
    call = {"type": "toolCall", "id": "1", "name": "write", "arguments": {"path": "a", "content": output}}
    session.append({"role": "assistant", "content": [call]})
    session.append({"role": "toolResult", "toolCallId": "1", "toolName": "write", "content": output})
    session.close()
    with Client(home) as client:
        updates = client.load(session.id, project)
        assert client.text("user_message_chunk") == text
    assert max(len(json.dumps(update)) for update in updates) < 1 << 16
    assert updates[-1]["content"][0]["newText"].endswith("184,000 more characters; `sessiontree show` prints them")


def test_pages_follow_each_other_although_sessions_are_added_and_a_folder_selects(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_index, "PAGE", 2)
    with Library() as library:
        index = SessionIndex(Workbench(library, str(home)))

        def page(cwd: str | None = None, cursor: str | None = None) -> dict:
            return index.page(cwd, cursor, None, shows_archive=False)

        first = page()
        sessiontree.create(home, home=library.home).append({"role": "user", "content": "A new one."})
        second = page(cursor=first["nextCursor"])
        third = page(cursor=second["nextCursor"])
        assert "nextCursor" not in third
        listed = [row["sessionId"] for each in (first, second, third) for row in each["sessions"]]
        known = sorted(library.sessions(), key=lambda summary: -summary.recency)
        assert listed == [summary.id for summary in known if summary.title != "A new one."]
        assert page()["sessions"][0]["title"] == "A new one."
        shop = str(home / "projects/shop")
        (home / "link").symlink_to(shop)
        chosen = page(str(home / "link"))["sessions"]
        assert {row["cwd"] for row in chosen} == {shop}
        assert chosen[0]["sessionId"] == CLAUDE
        assert page(str(home / "projects"))["sessions"] == []


@pytest.mark.slow
def test_copies_with_one_id_are_listed_by_their_paths_and_loaded_by_them(home: Path) -> None:
    (original,) = home.glob(f".pi/**/*{PI}.jsonl")
    copy = original.with_name("copy.jsonl")
    copy.write_bytes(original.read_bytes())
    with Client(home) as client:
        listed = {row["sessionId"] for row in client.call("session/list")["sessions"]}
        assert {str(original), str(copy)} <= listed
        assert client.load(str(copy), home)
        with pytest.raises(RefusedError, match="2 sessions have the id") as refused:
            client.load(PI, home)
        assert refused.value.code == -32602


def test_a_deleted_session_is_in_the_archive_and_can_be_restored(home: Path) -> None:
    (file,) = home.glob(f".claude/**/{CLAUDE}.jsonl")
    content = file.read_bytes()
    with Client(home) as client:
        client.load(CLAUDE, home)
        undo = client.call("session/delete", sessionId=CLAUDE)["_meta"]["sessiontree"]["restore"]
        assert not file.exists()
        assert CLAUDE not in [row["sessionId"] for row in client.call("session/list")["sessions"]]
        with pytest.raises(RefusedError, match="it is in the archive: `sessiontree restore"):
            client.load(CLAUDE, home)
    assert sessiontree_command(home, *undo.split()[1:]) == 0
    assert file.read_bytes() == content


def sessiontree_command(home: Path, *arguments: str) -> int:
    from sessiontree.cli import main

    assert os.environ["HOME"] == str(home)
    return main(arguments)


def test_unfinished_methods_fork_rename_archive_and_restore(home: Path) -> None:
    with Client(home, "--unstable") as client:
        client.initialize()
        fork = client.call("session/fork", sessionId=PI, cwd=str(home))["sessionId"]
        assert fork != PI
        assert client.call("session/set_title", sessionId=fork, title="  A\n fork ") == {"title": "A fork"}
        with pytest.raises(RefusedError, match="empty"):
            client.call("session/set_title", sessionId=fork, title=" ")

        def listed(**filters: str) -> dict[str, tuple[str, bool]]:
            rows = client.call("session/list", **filters)["sessions"]
            return {row["sessionId"]: (row["title"], row["archived"]) for row in rows}

        assert listed()[fork] == ("A fork", False)
        assert steps(client.load(fork, home)) == steps(client.load(PI, home))
        client.call("session/archive", sessionId=fork)
        client.call("session/archive", sessionId=fork)
        assert fork not in listed()
        assert listed(archived="only", cwd=str(home / "projects/tools")) == {fork: ("A fork", True)}
        assert listed(archived="include").keys() == {*listed(), fork}
        client.call("session/unarchive", sessionId=fork)
        client.call("session/unarchive", sessionId=fork)
        assert listed()[fork] == ("A fork", False)
        for method in ("session/archive", "session/unarchive", "session/delete"):
            with pytest.raises(RefusedError) as refused:
                client.call(method, sessionId="unknown")
            assert refused.value.code == -32002
        with pytest.raises(RefusedError) as refused:
            client.call("session/list", archived="sometimes")
        assert refused.value.code == -32602


def test_a_new_session_has_no_file_before_its_first_prompt_and_can_be_deleted(home: Path, project: Path) -> None:
    with Client(home, "--unstable", "--model", scripted(project, ScriptTurn(text="Hello."))) as client:
        draft = client.new(project)
        assert client.call("session/set_title", sessionId=draft, title="Named early") == {"title": "Named early"}
        assert client.call("session/delete", sessionId=draft) == {}
        id = client.new(project)
        client.call("session/set_title", sessionId=id, title="Named early")
        client.prompt(id, "hi")
        rows = {row["sessionId"]: row for row in client.call("session/list", cwd=str(project))["sessions"]}
        assert rows.keys() == {id}
        assert rows[id]["title"] == "Named early"
        assert json.dumps(rows[id]["_meta"]["sessiontree"]["agent"]) == '"native"'
