"""Conversions to and from agents whose sessions have no branches: the same conversation, and every word is found."""

from __future__ import annotations

import json
import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given

import sessiontree
from sessiontree import Session
from sessiontree.conversion.install import Request, carry_out, make_plan
from sessiontree.conversion.verify import first_difference
from sessiontree.core.messages import message_text
from sessiontree.errors import ReadOnlyError, UsageError
from sessiontree.library import Library
from sessiontree.repair import examine
from sessiontree.sources.detect import detect
from tests.builders import examples, opened
from tests.conversion.conversations import everything, sessions
from tests.dialects.packed_goldens import unpack
from tests.mutations import MUTATIONS, check_mutant

LINEAR = ("gemini", "opencode")
OTHERS = ("claude", "neovate", "omp", "pi", "native")
CORPUS = [path for path in sorted((Path(__file__).parents[1] / "corpus").glob("*/*.jsonl")) if path.stat().st_size]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("XDG_DATA_HOME", "OPENCODE_DB", "GEMINI_CLI_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SESSIONTREE_HOME", str(tmp_path / "ours"))
    monkeypatch.setenv("SESSIONTREE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "home"


def converted(session: Session, to: str) -> Session:
    return opened(b"".join(sessiontree.convert(session, to).lines), to)


def is_same(one: Session, other: Session) -> bool:
    return first_difference(one, one.leaf, other, all_branches=False) is None


@pytest.mark.parametrize("target", LINEAR)
@pytest.mark.parametrize("source", [*OTHERS, *LINEAR])
def test_a_branch_with_everything_survives_a_round_trip(source: str, target: str) -> None:
    there = converted(everything(), source)
    across = converted(there, target)
    assert is_same(there, across)
    assert is_same(there, converted(across, source))
    assert [finding.rule.id for finding in examine(across) if finding.rule.severity != "note"] == []


@pytest.mark.parametrize("target", LINEAR)
@examples(25)
@given(session=sessions())
def test_any_branch_survives_a_round_trip(target: str, session: Session) -> None:
    there = converted(session, target)
    assert is_same(session, there)
    assert is_same(session, converted(there, "native"))


@pytest.mark.parametrize("target", LINEAR)
def test_every_session_of_the_corpus_converts_and_back(target: str) -> None:
    for path in CORPUS:
        session = sessiontree.open(path)
        there = converted(session, target)
        assert is_same(session, there), path
        assert is_same(session, converted(there, session.dialect.name)), path


@pytest.mark.parametrize("target", LINEAR)
def test_all_branches_at_once_are_refused(target: str) -> None:
    with pytest.raises(UsageError, match="no branches"):
        sessiontree.convert(everything(), target, branch="all")


WORDS = {
    "prompt": "zebrafish",
    "answer": "quokkas",
    "thinking": "narwhals",
    "input": "axolotl",
    "output": "pangolin",
    "title": "capybara",
}


def planted(tmp_path: Path) -> Session:
    session = sessiontree.create(cwd=str(tmp_path), home=str(tmp_path / "elsewhere"))
    session.rename(f"The {WORDS['title']} question")
    session.append("user", f"Where is the {WORDS['prompt']}?")
    call = {"type": "toolCall", "id": "c1", "name": "bash", "arguments": {"command": f"ls {WORDS['input']}"}}
    thinking = {"type": "thinking", "thinking": f"Perhaps {WORDS['thinking']}."}
    session.append({"type": "message", "message": {"role": "assistant", "content": [thinking, call], "model": "m"}})
    result = {"role": "toolResult", "toolCallId": "c1", "toolName": "bash"}
    content = [{"type": "text", "text": WORDS["output"]}]
    session.append({"type": "message", "message": {**result, "content": content, "isError": False}})
    session.append("assistant", f"With the {WORDS['answer']}.")
    return session


def import_into_database(path: Path, export: dict[str, object]) -> None:
    """Insert an export into a database, as `opencode import` does."""
    info, messages = export["info"], export["messages"]
    assert isinstance(info, dict)
    assert isinstance(messages, list)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("DELETE FROM session")
        database.execute(
            "INSERT INTO session (id, project_id, slug, directory, title, version, time_created, time_updated)"
            " VALUES (?, 'p', ?, ?, ?, ?, ?, ?)",
            (*(info[name] for name in ("id", "slug", "directory", "title", "version")), *info["time"].values()),
        )
        for message in messages:
            id, time = message["info"]["id"], message["info"]["time"]["created"]
            row = (id, info["id"], time, time, json.dumps(message["info"]))
            database.execute("INSERT INTO message VALUES (?, ?, ?, ?, ?)", row)
            for part in message["parts"]:
                values = (part["id"], id, info["id"], time, time, json.dumps(part))
                database.execute("INSERT INTO part VALUES (?, ?, ?, ?, ?, ?)", values)


@pytest.mark.parametrize("target", LINEAR)
def test_every_kind_of_text_is_found_and_tool_calls_have_the_names_of_the_agent(tmp_path: Path, target: str) -> None:
    session = planted(tmp_path)
    plan = make_plan(session, Request(target))
    carry_out(session, plan)
    if plan.install:
        golden = unpack("opencode", "01-plain", tmp_path)
        database = golden.home / ".local/share/opencode/opencode.db"
        import_into_database(database, json.loads(Path(plan.path).read_text()))
    with Library() as library:
        (listed,) = [one for one in library.everything() if one.agent == target]
        assert (listed.title, listed.cwd) == (f"The {WORDS['title']} question", str(tmp_path))
        for kind, word in WORDS.items():
            hits = [hit.session.ref for hit in library.search(f"{word} in:{kind}")]
            assert hits == [listed.ref], (kind, hits)
    names = {"opencode": b'"tool":"bash"', "gemini": b'"name":"run_shell_command"'}
    assert names[target] in Path(plan.path).read_bytes()
    assert is_same(session, sessiontree.open(listed.ref))


@pytest.mark.parametrize("target", LINEAR)
def test_random_damage_to_lines_loses_no_undamaged_line(target: str) -> None:
    original = b"".join(sessiontree.convert(everything(), target).lines)
    dialect = detect(original[: 64 * 1024], "here")
    assert dialect.name == target
    chance = random.Random(target)
    for _ in range(6):
        for mutate in MUTATIONS:
            check_mutant(dialect, original, mutate(original, chance))


def test_parts_of_two_records_on_one_line_replace_no_intact_record() -> None:
    lines = [*sessiontree.convert(everything(), "gemini").lines]
    prompts = [at for at, line in enumerate(lines) if b'"type":"user"' in line]
    first, last = lines[prompts[0]], lines[prompts[-1]]
    torn, start = last[: last.index(b'"type"') - 9], first[: first.index(b'"type"') - 9]
    lines[prompts[-1]] = torn + b":6}}" + start + last[last.index(b'"type"') - 9 :]
    found = opened(b"".join(lines), "gemini")
    assert first.strip() in {raw.strip() for raw in found.journal.iter_raw(range(len(found.ids)))}


@pytest.mark.parametrize("target", ["codex", "gemini", "opencode", "qwen"])
def test_a_command_of_the_user_is_sent_by_agents_that_record_none_and_comes_back(target: str) -> None:
    session = sessiontree.create(cwd="/work", in_memory=True)
    session.append("user", "look")
    session.append("bashExecution", command="ls -1", output="a.txt", exitCode=0)
    session.append("user", "and?")
    there = converted(session, target)
    sent = "\n".join(message_text(message) for message in there.context().messages)
    assert "ls -1" in sent
    assert "a.txt" in sent
    assert is_same(session, converted(there, "native"))


PI_FAMILY = Path(__file__).parents[1] / "corpus" / "pi-family"


@pytest.mark.parametrize("name", ["23_aborted_turn", "25_error_toolcall_turn"])
@pytest.mark.parametrize("target", LINEAR)
def test_a_session_with_failed_answers_that_were_never_sent_is_converted_without_them(
    tmp_path: Path, name: str, target: str
) -> None:
    source = sessiontree.open(PI_FAMILY / f"{name}.jsonl", dialect="omp")
    plan = make_plan(source, Request(target, cwd=str(tmp_path)))
    made = carry_out(source, plan)
    texts = [message_text(message) for message in source.context().messages]
    assert "\n".join(message_text(message) for message in made.context().messages).split() == " ".join(texts).split()
    assert "failed answers that were not sent" in [line.what for line in plan.report.notes]
    assert is_same(source, converted(made, "omp"))


def test_a_summary_that_a_later_one_covers_is_not_sent_by_opencode(tmp_path: Path) -> None:
    source = sessiontree.open(PI_FAMILY / "07_compaction_multi.jsonl", dialect="pi")
    plan = make_plan(source, Request("opencode", cwd=str(tmp_path)))
    sent = [message_text(message) for message in carry_out(source, plan).context().messages]
    assert [text for text in sent if text in ("S1", "S2")] == ["S2"]
    assert "summaries that a later one covers" in [line.what for line in plan.report.notes]


@pytest.mark.parametrize("agent", LINEAR)
@pytest.mark.parametrize("role", ["user", "assistant"])
def test_an_append_to_a_session_that_can_only_be_read_fails(
    agent: str, role: Literal["user", "assistant"], tmp_path: Path
) -> None:
    source = everything()
    path = tmp_path / ("session.json" if agent == "opencode" else "session.jsonl")
    session = carry_out(source, make_plan(source, Request(agent, out=str(path))))
    before = path.read_bytes()
    assert "sessiontree fork" in (session.read_only or "")
    with pytest.raises(ReadOnlyError, match="sessiontree fork"):
        session.append(role, "hello")
    assert path.read_bytes() == before
