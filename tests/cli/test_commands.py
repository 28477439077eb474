"""Each command with valid and invalid input: stdout, stderr and exit code."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import sessiontree
from sessiontree.library import Library
from sessiontree.views.listing import describe_summary
from tests.cli.conftest import Run

CORPUS = Path(__file__).parents[1] / "corpus" / "pi-family"


def test_new_prints_the_path_of_the_created_file(run: Run) -> None:
    ran = run("new", "--cwd", "/tmp", "--name", "a name")
    path = ran.out.strip()
    assert (ran.code, ran.err) == (0, "")
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    session = sessiontree.open(path)
    assert (session.cwd, session.name) == ("/tmp", "a name")


def test_new_json_has_id_and_path(run: Run, tmp_path: Path) -> None:
    made = run("new", "--path", str(tmp_path / "x.jsonl"), "--id", "my-session", "--json").json
    assert made["id"] == "my-session"
    assert made["path"] == str(tmp_path / "x.jsonl")
    again = run("new", "--path", str(tmp_path / "x.jsonl"))
    assert again.code == 1
    assert "not touched" in again.err


def test_append_takes_role_and_text_and_prints_the_new_id(run: Run, session: str) -> None:
    ran = run("append", session, "user", "more")
    assert ran.code == 0
    entry = sessiontree.open(session).entry(ran.out.strip())
    assert entry == sessiontree.open(session).path()[-1]


def test_append_reads_text_or_json_entries_from_stdin(run: Run, session: str) -> None:
    run("append", session, "user", "-", stdin="from\nstdin 日本\n")
    result = run("append", session, "--json", stdin='{"type":"custom_message","customType":"n","content":"note"}').json
    assert [entry["type"] for entry in result["entries"]] == ["custom_message"]
    two = run("append", session, stdin='{"role":"user","content":"a"}\n{"role":"assistant","content":[]}\n')
    assert len(two.lines) == 2
    texts = [message["text"] for message in run("context", session, "--json").json["messages"]]
    assert texts[-4:] == ["from\nstdin 日本", "note", "a", ""]


@pytest.mark.parametrize("bad", ["not json", "[1]", "3", '{"type":"session"}', "{}", '{"a":1}\nnope'])
def test_append_refuses_invalid_entries_and_writes_nothing(run: Run, session: str, bad: str) -> None:
    before = Path(session).read_bytes()
    ran = run("append", session, stdin=bad)
    assert ran.code == 2
    assert ran.err.count("\n") == 1
    assert Path(session).read_bytes() == before


def test_show_prints_the_active_path_and_all_prints_everything(run: Run, session: str) -> None:
    shown = run("show", session)
    assert "保留 argparse" in shown.out
    assert "click" not in shown.out
    everything = run("show", session, "--all").out
    assert "click" in everything
    assert "not on the active path" in everything


def test_show_all_marks_salvaged_fragments(run: Run) -> None:
    ran = run("show", str(CORPUS / "33_malformed_middle.jsonl"), "--all")
    assert 'damaged (undecodable) · line 4 · bytes 672-713\n   {"type":"message","id":"3","parentId":"2"' in ran.out
    assert ran.code == 0
    assert ran.err.count("\n") == 1
    assert "33_malformed_middle.jsonl:4 byte 672: undecodable" in ran.err


def test_tree_draws_a_column_per_branch_with_label_and_leaf(run: Run, session: str) -> None:
    rows = run("tree", session).lines
    assert [row[:4] for row in rows] == ["● " + rows[0][2:4], "●─╮ ", "○ │ ", "  ● "]
    assert "[which?]" in rows[1]
    assert "◀ here" in rows[3]
    assert "保留 argparse" in rows[3]


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_tree_rows_fit_the_terminal_also_with_wide_characters(run: Run, session: str, width: int) -> None:
    from wcwidth import wcswidth

    run("append", session, "user", "保留这个非常长的中文文本" * 30)
    for row in run("tree", session, width=width).lines:
        assert wcswidth(row) <= width


def test_parallel_calls_of_claude_code_are_drawn_in_one_line_and_not_as_branches(run: Run) -> None:
    corpus = Path(__file__).parent.parent / "corpus" / "claude"
    rows = run("tree", str(corpus / "03_parallel.jsonl")).out.splitlines()
    assert len(rows) == 10
    assert all(row.startswith("● ") for row in rows)
    assert "◀ here" in rows[-1]
    rows = run("tree", str(corpus / "15_interactive_rewind_rename_bash.jsonl")).out.splitlines()
    beginnings = [row[:4] for row in rows]
    fork = beginnings.index("●─╮ ")
    # One branch was left, with its own parallel calls in line.
    assert beginnings[fork + 1 :] == ["○ │ "] * 12 + ["  ● "] * 2
    assert all(row.startswith("● ") for row in rows[:fork])


def test_tree_json_has_every_node(run: Run, session: str) -> None:
    nodes = run("tree", session, "--json").json["nodes"]
    keys = {"id", "parent", "type", "role", "label", "depth", "active"}
    assert all(keys <= set(node) for node in nodes)
    messages = [node for node in nodes if node["type"] == "message"]
    assert [(node["role"], node["depth"], node["active"]) for node in messages] == [
        ("user", 0, True),
        ("assistant", 1, True),
        ("user", 2, False),
        ("user", 2, True),
    ]
    assert {node["label"] for node in nodes} == {None, "which?"}


def test_context_json_has_the_documented_fields(run: Run, session: str) -> None:
    shown = run("context", session, "--json").json
    assert set(shown) >= {"dialect", "session", "leaf", "path", "messages", "state", "problems"}
    assert shown["dialect"] == "native"
    assert shown["path"][-1] == shown["leaf"]
    assert set(shown["messages"][0]) == {"role", "text", "toolCalls", "toolCallId", "isError"}
    assert set(shown["state"]) >= {"thinkingLevel", "model", "models", "mode", "rules"}
    assert shown["problems"] == []


def test_context_of_another_leaf(run: Run, session: str) -> None:
    shown = run("context", session, "--json", "--leaf", "which?").json
    assert [message["text"] for message in shown["messages"]] == ["Add a --json flag.", "Which library?"]


def test_context_lists_problems_with_line_and_bytes(run: Run) -> None:
    shown = run("context", str(CORPUS / "33_malformed_middle.jsonl"), "--json").json
    (problem,) = shown["problems"]
    assert (problem["line"], problem["start"], problem["end"], problem["kind"]) == (4, 672, 713, "undecodable")
    assert problem["action"]


def test_context_in_the_formats_of_providers(run: Run) -> None:
    path = str(CORPUS / "25_error_toolcall_turn.jsonl")
    anthropic = run("context", path, "--json", "--as", "anthropic").json["messages"]
    assert [message["role"] for message in anthropic] == ["user", "assistant", "user"]
    assert {"type": "tool_use", "id": "c1", "name": "read", "input": {"path": "a"}} in anthropic[1]["content"]
    openai = run("context", path, "--json", "--as", "openai").json["messages"]
    assert [item.get("type") for item in openai] == ["message", "function_call", "function_call_output", "message"]
    chat = run("context", path, "--json", "--as", "openai-chat").json["messages"]
    assert [message["role"] for message in chat] == ["user", "assistant", "tool", "user"]


def test_context_as_native_has_the_messages_of_the_client(run: Run) -> None:
    shown = run("context", str(CORPUS / "07_compaction_multi.jsonl"), "--json", "--as", "native").json
    first, second = shown["messages"][:2]
    assert (first["role"], first["summary"], first["text"]) == ("compactionSummary", "S2", "S2")
    assert (second["role"], second["content"], second["text"]) == ("assistant", [{"type": "text", "text": "a1"}], "a1")


def test_branch_switches_durably_and_root_starts_over(run: Run, session: str) -> None:
    assert run("branch", session, "--root").code == 0
    assert sessiontree.open(session).leaf is None
    first = sessiontree.open(session).ids[1]
    assert run("branch", session, first[:6], "--json").json["leaf"] == first
    assert run("branch", session, "which?", "--before").out.strip() == first


def test_label_lists_sets_and_clears(run: Run, session: str) -> None:
    first = sessiontree.open(session).ids[1]
    run("label", session, first, "起点")
    assert run("label", session, "--json").json["labels"][first] == "起点"
    run("label", session, "起点", "--clear")
    assert first not in run("label", session, "--json").json["labels"]
    assert run("label", session, first).code == 2


def test_fork_creates_a_session_that_records_its_origin(run: Run, session: str) -> None:
    made = run("fork", session, "--at", "which?", "--cwd", "/tmp", "--json").json
    forked = sessiontree.open(made["path"])
    assert forked.cwd == "/tmp"
    assert forked.header.forked_from is not None
    assert forked.header.forked_from.session == sessiontree.open(session).id
    assert run("show", made["id"]).code == 0


def test_the_description_in_a_sessions_settings_is_shown(run: Run, session: str, tmp_path: Path) -> None:
    with sessiontree.open(session) as opened:
        opened.set_config(summary="Everything about\nthe parser")
    assert run("info", session, "--json").json["description"] == "Everything about the parser"
    assert "about        Everything about the parser" in run("info", session).out
    with Library(tmp_path / "home", environment={}) as library:
        (listed,) = [describe_summary(one) for one in library.everything() if one.id == opened.id]
    assert (listed["title"], listed["description"]) == ("解析器", "Everything about the parser")


def test_info_shows_the_first_problems_of_a_badly_damaged_session(run: Run, session: str) -> None:
    with open(session, "ab") as file:
        file.write(b"garbage\n" * 1025)
    lines = [line for line in run("info", session).lines if line.startswith("problem ")]
    assert len(lines) == 20
    assert "1,005 more; --json has all" in run("info", session).lines[-1]
    assert len(run("info", session, "--json").json["problems"]) == 1025


def test_info_shows_facts_about_a_session(run: Run, session: str) -> None:
    facts = run("info", session, "--json").json
    assert (facts["name"], facts["branches"], facts["messages"]) == ("解析器", 2, 4)
    assert "解析器" in run("info", session).out
    assert "old-version" in run("info", str(CORPUS / "37_v1.jsonl")).out


def test_a_command_that_writes_to_an_old_file_upgrades_it_and_says_so_once(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "old.jsonl"
    old = (CORPUS / "37_v1.jsonl").read_bytes()
    path.write_bytes(old)
    assert run("context", str(path)).code == 0
    assert path.read_bytes() == old
    first, second = run("append", str(path), "user", "more"), run("append", str(path), "user", "and more")
    (backup,) = tmp_path.glob("*.bak")
    assert backup.read_bytes() == old
    assert first.err.splitlines() == [f"sessiontree: {path}: upgraded from version 1 to 3; the old file is {backup}"]
    assert (first.code, second.code, second.err) == (0, 0, "")


def test_migrate_keeps_a_backup(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "v1.jsonl"
    old = (CORPUS / "37_v1.jsonl").read_bytes()
    path.write_bytes(old)
    backup = run("migrate", str(path)).out.strip()
    assert Path(backup).read_bytes() == old
    assert json.loads(path.read_text().splitlines()[0])["version"] == 3
    again = run("migrate", str(path))
    assert (again.code, again.out) == (0, "")


def test_a_session_is_found_by_id_and_by_prefix(run: Run, session: str) -> None:
    id = sessiontree.open(session).id
    assert run("info", id, "--json").json["id"] == id
    assert run("info", id[:13], "--json").json["id"] == id


def test_an_ambiguous_prefix_is_refused_with_the_candidates(run: Run) -> None:
    run("new", "--id", "abcdefgh-1")
    run("new", "--id", "abcdefgh-2")
    ran = run("info", "abcdefgh")
    assert ran.code == 2
    assert "abcdefgh-1" in ran.err
    assert "abcdefgh-2" in ran.err


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["no-such-command"], 2),
        (["show"], 2),
        (["context", "x.jsonl", "--as", "nothing"], 2),
        (["show", "missing.jsonl"], 1),
        (["show", "no/such/file.jsonl", "--json"], 1),
        (["show", "deadbeef00"], 1),
        (["show", "x" * 5000], 1),
        (["tree", "/"], 1),
        (["context", str(CORPUS / "01_linear.jsonl"), "--leaf", "nowhere"], 1),
        (["append", str(CORPUS / "39_version_99.jsonl"), "user", "x"], 1),
        (["show", "/etc/hostname"], 3),
        (["show", __file__], 3),
    ],
)
def test_invalid_input_gives_one_line_and_the_right_exit_code(run: Run, arguments: list[str], code: int) -> None:
    ran = run(*arguments)
    assert ran.code == code
    assert ran.out == ""
    assert ran.err.startswith("sessiontree: ")
    assert ran.err.count("\n") == 1


HOSTILE = "a\x1b[31mred\x1b]0;title\x07\x9b2J\x08\x08\r\x00\u202eback\u2066 b"


def test_control_sequences_from_session_content_never_reach_the_terminal(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    session = sessiontree.create(cwd="/" + HOSTILE.replace("\x00", ""), path=path)
    session.append("user", HOSTILE)
    session.append(
        role="assistant",
        model=HOSTILE,
        content=[{"type": "toolCall", "id": HOSTILE, "name": HOSTILE, "arguments": {HOSTILE: HOSTILE}}],
    )
    session.append(role="toolResult", toolName=HOSTILE, toolCallId=HOSTILE, content=[{"type": "text", "text": HOSTILE}])
    session.append({"type": "message", "message": {"role": HOSTILE, "content": HOSTILE}})
    session.append({"type": HOSTILE, "x": HOSTILE})
    session.label(session.ids[0], HOSTILE)
    session.rename(HOSTILE)
    last, first = session.leaf, session.ids[0]
    session.close()
    hostile = {"type": "message", "id": HOSTILE, "parentId": last, "timestamp": HOSTILE}
    hostile["message"] = {"role": "user", "content": "said under an id that is none"}
    again = {**hostile, "id": f"{HOSTILE}2", "parentId": HOSTILE}
    with path.open("ab") as file:
        file.write(f"{json.dumps(hostile)}\n{json.dumps(again)}\n{json.dumps({**again, 'id': 'c0ffee00'})}\n".encode())
        file.write(b"torn " + HOSTILE.encode("utf-8", "surrogatepass"))
    for command in (
        ["show"],
        ["show", "--all"],
        ["tree"],
        ["tree", "--all"],
        ["context"],
        ["info"],
        ["label"],
        ["branches"],
        ["doctor"],
        ["diff", first, "c0ffee00"],
        ["export", "--format", "text", "--branch", "all"],
        ["merge", "c0ffee00", "--dry-run"],
    ):
        ran = run(command[0], str(path), *command[1:])
        assert ran.code == (3 if command == ["doctor"] else 0), (command, ran.err)
        for forbidden in "\x1b\x07\x08\x00\x9b\u202e\u2066\r":
            assert forbidden not in ran.out, (command, forbidden)
            assert forbidden not in ran.err, (command, forbidden)
    ran = run("show", str(path), "--leaf", HOSTILE.replace("\x00", ""))
    assert "\x1b" not in ran.err


def test_a_closed_pipe_is_not_an_error(session: str) -> None:
    big = sessiontree.open(session)
    for number in range(3000):
        big.append("user", f"line {number} " * 20)
    done = subprocess.run(
        f"{sys.executable} -m sessiontree show {session} | head -1",
        shell=True,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.startswith("── user".encode())
    assert done.stderr == b""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a disk that is always full is a device of Linux")
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_failed_write_is_reported_in_one_line(session: str, options: list[str]) -> None:
    with open("/dev/full", "wb") as full:
        command = [sys.executable, "-m", "sessiontree", "show", session, *options]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "No space left on device" in done.stderr


def test_a_closed_stdout_is_not_an_error(session: str) -> None:
    command = f"{sys.executable} -m sessiontree tree {session} >&-"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("agent", ["native", "pi", "omp", "claude"])
def test_every_command_counts_the_same_branches(run: Run, tmp_path: Path, agent: str) -> None:
    with sessiontree.create("/", home=str(tmp_path / "home"), appear="now") as session:
        session.rename("parser")  # a root next to the first prompt
        first = session.append("user", "Which way?")
        session.append("assistant", "Left.")
        session.append_entry({"type": "custom", "customType": "bookmark", "data": {}})
        session.branch(first.id).append("assistant", "Right.")
        path = session.location
    copied = run("convert", path, "--to", agent, "--branch", "all", "--install", "--json").json["path"]
    assert len(run("branches", copied, "--json").json["branches"]) == 2
    assert run("info", copied, "--json").json["branches"] == 2
    listed = run("list", "--all", "--json").json["sessions"]
    assert [summary["branches"] for summary in listed if summary["path"] == copied] == [2]
    assert "2 branches" in run("open", copied).out
    assert "- branches: 2\n" in run("export", copied).out
