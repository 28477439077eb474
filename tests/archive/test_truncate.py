"""Truncated Claude Code and Neovate sessions: the client sees the same context, and restore brings everything back."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sessiontree
from sessiontree.archive.archive_home import Home
from sessiontree.archive.restore import restore
from sessiontree.archive.truncate import POINTER, TruncatePlan, plan_truncate, truncate
from sessiontree.errors import UsageError
from sessiontree.repair import examine
from sessiontree.session.session import Session
from tests.archive.conftest import Command
from tests.archive.machine import archived_lines, current_lines, home_of, kill_at_each_step
from tests.builders import examples, json_line
from tests.dialects import test_neovate as neovate
from tests.dialects.test_claude_tail_scan import SESSION, answer, boundary, transcript, user

CORPUS = Path(__file__).parents[1] / "corpus" / "claude"


def put(tmp: Path, lines: list[bytes], agent: str = "claude") -> Path:
    folder = tmp / "user" / (".claude/projects/-work-a" if agent == "claude" else ".neovate/projects/work-a")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{SESSION}.jsonl"
    path.write_bytes(b"".join(lines))
    return path


def as_lines(entries: list[dict[str, Any]]) -> list[bytes]:
    return [json_line(entry) for entry in entries]


def client_view(session: Session) -> object:
    """The context that the client sees, and the metadata of a session."""
    context = session.context()
    about = (session.id, session.cwd, session.header.timestamp, session.name, session.given_name, session.git_branch)
    return (list(context.messages), context.sources, context.state, session.leaf, about, session.config)


def check_reduced(tmp: Path, path: Path) -> TruncatePlan:
    """Truncate a session, check the rest, continue it, and restore it."""
    home, before = home_of(tmp), path.read_bytes()
    session = sessiontree.open(path)
    view_before, findings = client_view(session), {finding.rule for finding in examine(session)}
    plan, item = truncate(home.archive, session, min_size=0)
    after = sessiontree.open(path)
    assert client_view(after) == view_before
    assert {finding.rule for finding in examine(after)} <= findings
    if item is None:
        assert path.read_bytes() == before
        return plan
    assert path.stat().st_size == plan.after
    (pointer,) = (one for one in map(json.loads, path.read_bytes().splitlines()) if POINTER in json.dumps(one))
    assert pointer["entry"]["data"] == {"sha256": item.sha256, "size": len(before), "entries": len(session)}
    restore(home.archive, item)
    assert path.read_bytes() == before
    return plan


@pytest.mark.parametrize("kept", [0, 1, 4])
def test_claude_code_sees_the_same_after_its_last_compaction(tmp_path: Path, kept: int) -> None:
    path = put(tmp_path, as_lines(transcript(kept=kept)))
    plan = check_reduced(tmp_path, path)
    assert plan.is_same
    assert plan.after < plan.before / 3


@pytest.mark.parametrize("name", ["12_compacted", "17_interactive_summarize_from_here"])
def test_sessions_of_the_real_client_read_the_same(tmp_path: Path, name: str) -> None:
    check_reduced(tmp_path, put(tmp_path, [(CORPUS / f"{name}.jsonl").read_bytes()]))


def test_truncating_without_a_compaction_is_rejected(tmp_path: Path) -> None:
    claude = put(tmp_path, as_lines(transcript()[:80]))
    other = put(tmp_path, [neovate.message("a", None, "q"), neovate.answer("b", "a", "r")], "neovate")
    for path in (claude, other):
        before = path.read_bytes()
        with pytest.raises(UsageError, match="without a compaction"):
            truncate(home_of(tmp_path).archive, sessiontree.open(path), min_size=0)
        assert path.read_bytes() == before
    assert home_of(tmp_path).archive.items() == []


def test_metadata_stays_and_repeated_lines_are_removed(tmp_path: Path) -> None:
    lines = transcript()
    meta = [
        {"type": "custom-title", "customTitle": "mine", "sessionId": SESSION},
        {"type": "tag", "tag": "older", "sessionId": SESSION},
        {"type": "tag", "tag": "newer", "sessionId": SESSION},
        {"type": "permission-mode", "permissionMode": "plan", "sessionId": SESSION},
        {"type": "summary", "summary": "s", "leafUuid": "a3"},
        {"type": "api-request-blob", "sha": "0", "data": "x" * 500},
        {"type": "file-history-snapshot", "messageId": "u1", "snapshot": {"messageId": "u1"}},
        {"type": "file-history-snapshot", "messageId": "a39", "snapshot": {"messageId": "a39"}},
        {"type": "something-new", "sessionId": SESSION},
    ]
    path = put(tmp_path, as_lines([*lines[:10], *meta, *lines[10:]]))
    session = sessiontree.open(path)
    session.label("a39", "kept")
    session.label("a3", "gone")
    session.close()
    check_reduced(tmp_path, path)
    truncate(home_of(tmp_path).archive, sessiontree.open(path), min_size=0)
    left = [json.loads(line) for line in path.read_bytes().splitlines()]
    kinds = [line["type"] for line in left]
    assert [line["tag"] for line in left if line["type"] == "tag"] == ["newer"]
    assert "api-request-blob" not in kinds
    assert [line["messageId"] for line in left if line["type"] == "file-history-snapshot"] == ["a39"]
    assert {"custom-title", "permission-mode", "summary", "something-new"} <= set(kinds)
    assert sessiontree.open(path).labels == {"a39": "kept"}


def test_parents_that_were_removed_are_not_referred_to_any_more(tmp_path: Path) -> None:
    path = put(tmp_path, as_lines(transcript(kept=4)))
    truncate(home_of(tmp_path).archive, sessiontree.open(path), min_size=0)
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    ids = {line.get("uuid") for line in lines}
    assert {line.get("parentUuid") for line in lines} <= ids | {None}
    assert sessiontree.open(path).problems == []


def test_the_session_can_be_continued_and_keeps_added_lines_when_it_is_undone(tmp_path: Path) -> None:
    home, path = home_of(tmp_path), put(tmp_path, as_lines(transcript()))
    before = path.read_bytes()
    _, item = truncate(home.archive, sessiontree.open(path), min_size=0)
    session = sessiontree.open(path)
    session.append("user", "and on")
    session.close()
    assert item is not None
    restore(home.archive, item)
    assert path.read_bytes().startswith(before)
    assert "and on" in str(sessiontree.open(path).context().messages[-1])


def compacted_neovate(turns: int = 30) -> list[bytes]:
    lines = [neovate.config(summary="a title")]
    last = None
    for turn in range(turns):
        lines.append(neovate.message(f"u{turn}", last, f"question {turn}"))
        lines.append(neovate.answer(f"a{turn}", f"u{turn}", f"answer {turn} " + "x" * 200))
        lines.append(json_line({"type": "snapshot", "messageId": f"a{turn}", "trackedFileBackups": {}}))
        last = f"a{turn}"
    lines += [neovate.message("d", "u3", "another branch"), neovate.compaction("c"), neovate.message("p", "c", "after")]
    return [*lines, neovate.answer("q", "p", "done")]


def test_neovate_sees_the_same_after_its_last_compaction(tmp_path: Path) -> None:
    path = put(tmp_path, compacted_neovate(), "neovate")
    plan = check_reduced(tmp_path, path)
    assert plan.after < plan.before / 4
    truncate(home_of(tmp_path).archive, sessiontree.open(path), min_size=0)
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert lines[0]["type"] == "config", "Neovate looks for its settings in the first line"
    assert lines[-1]["type"] == "message", "Neovate takes the uuid of the last line for a parent"
    assert [line.get("uuid") for line in lines if line["type"] == "message"] == ["u0", "c", "p", "q"]


def test_a_process_killed_while_truncating_leaves_every_line(tmp_path: Path, stride: int) -> None:
    lines = as_lines(transcript())

    def find(here: Path) -> Path:
        return next(here.glob("user/.claude/projects/*/*.jsonl"))

    def act(home: Home) -> None:
        truncate(home.archive, sessiontree.open(find(Path(home.folder).parent)), min_size=0)

    def check(here: Path) -> None:
        home, path = home_of(here), find(here)
        assert {line.rstrip(b"\n") for line in lines} <= current_lines(home) | archived_lines(home)
        assert len(sessiontree.open(path).context().messages) == 5
        for item in home.archive.items():
            restore(home.archive, item)
        assert path.read_bytes() == b"".join(lines)

    assert kill_at_each_step(tmp_path, lambda here: put(here, lines), act, check, stride) > 15


def test_the_command_reports_its_plan_or_why_it_is_impossible(tmp_path: Path, command: Command) -> None:
    path = put(tmp_path, [*as_lines(transcript())])
    with pytest.raises(UsageError, match="50,000,000"):
        command("shrink", str(path), "--to-tail")
    filler = json_line({"type": "api-request-blob", "data": "x" * 1_000_000})
    lines = as_lines(transcript())
    path = put(tmp_path, [*lines[:2], *[filler] * 52, *lines[2:]])
    before = path.read_bytes()
    shown = command("shrink", str(path), "--to-tail")
    assert "everything but the tail" in shown.out
    assert path.read_bytes() == before
    done = command("shrink", str(path), "--to-tail", "--yes", "--json").json
    assert done["sameContext"] is True
    assert path.stat().st_size == done["after"] < 10_000
    command("restore", done["item"])
    assert path.read_bytes() == before


# Any transcript

steps = st.lists(
    st.sampled_from(["turn", "turn", "rewind", "compact", "compact_keeping", "title", "pin", "explicit", "progress"]),
    min_size=3,
    max_size=24,
)


def grown(choices: list[str]) -> list[dict[str, Any]]:
    """A transcript after a sequence of user actions; it ends with a compaction and a turn."""
    lines: list[dict[str, Any]] = []
    path: list[str] = []
    for at, choice in enumerate([*choices, "compact_keeping", "turn"]):
        second, last = 60 * at, path[-1] if path else None
        match choice:
            case "turn":
                lines += [user(f"u{at}", last, second, f"q{at}"), answer(f"a{at}", f"u{at}", second + 1, f"r{at}")]
                path += [f"u{at}", f"a{at}"]
            case "rewind":
                del path[len(path) // 2 :]
            case "compact" | "compact_keeping" if last is not None:
                kept = path[-2:] if choice == "compact_keeping" else []
                lines.append(boundary(f"b{at}", last, second, kept, f"s{at}"))
                lines.append(user(f"s{at}", f"b{at}", second + 1, f"summary {at}", isCompactSummary=True))
                path = [f"b{at}", f"s{at}"]
            case "title":
                lines.append({"type": "custom-title", "customTitle": f"title {at}", "sessionId": SESSION})
            case "pin" | "explicit" if last is not None:
                pin = {"type": "last-prompt", "leafUuid": last, "sessionId": SESSION}
                lines.append(pin | ({"explicit": True} if choice == "explicit" else {}))
            case "progress" if last is not None:
                fields = {"toolUseID": "t", "data": {"type": "bash_progress"}}
                lines.append({**user(f"p{at}", last, second, ""), "type": "progress", **fields})
                path.append(f"p{at}")
            case _:
                continue
    return lines


@examples(60)
@given(steps)
def test_any_compacted_transcript_reads_the_same(choices: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = put(Path(folder), as_lines(grown(choices)))
        session = sessiontree.open(path)
        try:
            plan_truncate(session, min_size=0)
        except UsageError:
            first = session.path_ids()[:1]
            assert not first or session.type_of(first[0]) != "compaction"
            return
        check_reduced(Path(folder), path)


@examples(40)
@given(st.lists(st.sampled_from(["turn", "turn", "fork", "compact", "title", "snapshot", "label"]), max_size=20))
def test_any_compacted_session_of_neovate_reads_the_same(choices: list[str]) -> None:
    lines = [neovate.config()]
    path: list[str] = []
    for at, choice in enumerate([*choices, "compact", "turn"]):
        last = path[-1] if path else None
        match choice:
            case "turn":
                lines += [neovate.message(f"u{at}", last, f"q{at}"), neovate.answer(f"a{at}", f"u{at}", f"r{at}")]
                path += [f"u{at}", f"a{at}"]
            case "fork":
                del path[len(path) // 2 :]
            case "compact":
                lines.append(neovate.compaction(f"c{at}", f"summary {at}"))
                path = [f"c{at}"]
            case "title":
                lines.append(neovate.title(f"title {at}"))
            case "snapshot":
                lines.append(json_line({"type": "snapshot", "messageId": last, "trackedFileBackups": {}}))
            case _:
                continue
    with tempfile.TemporaryDirectory() as folder:
        check_reduced(Path(folder), put(Path(folder), lines, "neovate"))
