"""A converted session gives the context of its source, for the current entry and for every branch, and back again."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from acceptance.comparison import SUMMARY, both_lines, without_open_calls
from hypothesis import given
from hypothesis import strategies as st

import sessiontree
from sessiontree import Session
from sessiontree.conversion.convert import BranchChoice
from sessiontree.conversion.walk import iter_entries
from sessiontree.core.entries import CONTEXT_TYPES
from sessiontree.core.messages import CompactionSummary, Message, message_text, parse_message
from sessiontree.dialects.contract import is_metadata_id
from sessiontree.providers import render
from tests.builders import examples, opened
from tests.conversion.conversations import assistant, result, sessions, text

DIALECTS = ("claude", "neovate", "omp", "pi", "native")
CORPUS = sorted((Path(__file__).parents[1] / "corpus").glob("*/*.jsonl"))
_CALL = re.compile(r" calls \S+ (\S+): .*")
_REMINDER = tuple(f"{start}<system-reminder>" for start in ("user: ", SUMMARY))

# Files whose context differs in another dialect on purpose.
ON_PURPOSE = {
    ("23_aborted_turn", "omp"): "oh-my-pi leaves failed turns out when it rebuilds a history, Pi when it sends one",
    ("25_error_toolcall_turn", "omp"): "oh-my-pi leaves failed turns out when it rebuilds a history",
    **dict.fromkeys(
        [("43_remote_compaction_replay_through", target) for target in DIALECTS if target != "omp"],
        "only oh-my-pi can replay what the provider stores, so the messages are sent instead",
    ),
}


def converted(session: Session, to: str, branch: BranchChoice = "all") -> Session:
    return opened(b"".join(sessiontree.convert(session, to, branch=branch).lines), to)


def compare(
    session: Session, leaf: str | None, there: Session, there_leaf: str | None, by_way_of: str | None = None
) -> tuple[list[str], list[str]]:
    """Two contexts as lines. Calls are compared by id, because each agent has its own names of tools.

    `by_way_of`: the dialect in between, if a conversion went to another one and back.
    """
    ours, theirs = session.context(leaf).messages, there.context(there_leaf).messages
    recorded = [*ours, *theirs, *_reworded(session)]
    both = both_lines(render(ours, "anthropic").messages, render(theirs, "anthropic").messages, recorded)
    here, copied = ([_normal_line(line) for line in lines] for lines in both)
    dialects = (session.dialect.name, there.dialect.name)
    # Such a text is the client's, whoever wrote it. So it is not sent from there, and may be absent from a context that
    # is restated on the way back.
    if "claude" in (*dialects, by_way_of):
        here, copied = ([line for line in lines if not line.startswith(_REMINDER)] for lines in (here, copied))
    if "omp" in dialects or "claude" in dialects:  # they leave calls without a result out
        here, copied = without_open_calls(here), without_open_calls(copied)
    return here, copied


def _normal_line(line: str) -> str:
    line = line.replace("<bash-stderr></bash-stderr>", "")
    return _CALL.sub(r" calls x \1: x", line)


def _reworded(session: Session) -> Iterator[Message]:
    """The messages that each agent introduces in its own words."""
    for entry, _ in iter_entries(session, session.leaf, all_branches=True):
        message = entry.fields.get("message")
        if entry.kind in ("compaction", "branch_summary"):
            # Lone surrogates are replaced when a context is rendered.
            summary = str(entry.fields.get("summary")).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            yield CompactionSummary(summary=summary)
        elif isinstance(message, dict) and message.get("role") == "bashExecution":
            yield parse_message(message)


def last_lines(session: Session) -> dict[str | None, str | None]:
    """By id of a canonical entry, the id of its last line."""
    node_of = session.journal.tree.node_of
    lines: dict[str | None, str | None] = {}
    for entry, parent in iter_entries(session, session.leaf, all_branches=True):
        own = [id for id in (entry.id, *entry.aliases) if id in node_of and not is_metadata_id(id)]
        # Several results may share a line with the id of the first; an entry that is not sent may have no line.
        lines[entry.id] = max(own, key=node_of.__getitem__) if own else lines.get(parent)
    return lines


def branch_ends(session: Session) -> list[str]:
    """The leaves of branches other than the current one, without damage that makes an id ambiguous."""
    current = session.dialect.find_history(session.journal, session.node_of(session.leaf), session.read_options)
    ids = session.journal.tree.ids
    return [id for id in session.leaves() if session.node_of(id) not in current and ids.count(id) == 1]


def last_entry(session: Session, leaf: str) -> str | None:
    """The last canonical entry of a branch that a context contains."""
    history = iter_entries(session, leaf, all_branches=False)
    return next((entry.id for entry, _ in reversed(list(history)) if entry.kind in CONTEXT_TYPES), None)


def check_contexts(session: Session, there: Session, by_way_of: str | None = None) -> None:
    """Compare the current contexts, and those of every other branch."""
    here, copied = compare(session, None, there, None, by_way_of)
    assert copied == here
    lines = last_lines(there)
    for leaf in branch_ends(session):
        end = last_entry(session, leaf)
        if end is not None and lines[end] is not None:
            here, copied = compare(session, leaf, there, lines[end], by_way_of)
            assert copied == here, f"branch {leaf}"


@pytest.mark.parametrize("target", DIALECTS)
@pytest.mark.parametrize("path", CORPUS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_session_of_the_corpus_gives_its_context_in_every_dialect(path: Path, target: str) -> None:
    if (path.stem, target) in ON_PURPOSE:
        pytest.skip(ON_PURPOSE[path.stem, target])
    session = sessiontree.open(path)
    here, copied = compare(session, None, converted(session, target, "active"), None)
    assert copied == here
    there = converted(session, target)
    check_contexts(session, there)
    check_contexts(session, converted(there, session.dialect.name), by_way_of=target)


@pytest.mark.slow
@pytest.mark.parametrize("source", DIALECTS)
@examples(200)
@given(session=sessions(), target=st.sampled_from(DIALECTS))
def test_any_session_gives_its_context_from_every_dialect_in_every_other(
    source: str, session: Session, target: str
) -> None:
    there = converted(session, source)
    check_contexts(session, there)
    across = converted(there, target)
    check_contexts(there, across)
    check_contexts(there, converted(across, source), by_way_of=target)
    here, copied = compare(there, None, converted(there, target, "active"), None)
    assert copied == here


REMINDER = {"role": "user", "content": "<system-reminder>not one</system-reminder>"}
WITHOUT_CLAUDE = [dialect for dialect in DIALECTS if dialect != "claude"]


def session_of(*entries: dict[str, Any]) -> Session:
    session = sessiontree.create(cwd="/src/project", in_memory=True)
    for entry in entries:
        session.append(entry)
    return session


@pytest.mark.parametrize("source", WITHOUT_CLAUDE)
def test_what_claude_code_sends_for_an_empty_answer_does_not_change_the_context_on_the_way_back(source: str) -> None:
    there = converted(session_of(assistant(), {"type": "compaction", "summary": ""}, REMINDER, assistant()), source)
    across = converted(there, "claude")
    assert "(no content)" in str(render(across.context().messages, "anthropic").messages)
    check_contexts(there, converted(across, source))


@pytest.mark.parametrize("summary", ["", "\r", " \n"])
@pytest.mark.parametrize("kind", ["compaction", "branch_summary"])
@pytest.mark.parametrize("target", DIALECTS)
def test_a_blank_summary_is_sent_in_no_dialect(target: str, kind: str, summary: str) -> None:
    prompt = {"role": "user", "content": "Hello"}
    session = session_of({"type": kind, "summary": summary, "fromId": "root"}, prompt, assistant(text("Hi.")))
    there = converted(session, target)
    assert compare(session, None, there, None)[1] == ["user: Hello", "assistant: Hi."]
    assert compare(session, None, converted(there, "native"), None)[1] == ["user: Hello", "assistant: Hi."]


@pytest.mark.parametrize("source", WITHOUT_CLAUDE)
def test_a_context_restated_from_claude_code_may_lack_texts_that_look_like_its_reminders(source: str) -> None:
    stray = result("call_gone", "read", "lost and found")
    there = converted(
        session_of({"role": "user", "content": "Hello"}, REMINDER, stray, assistant(text("I see."))), source
    )
    back = converted(converted(there, "claude"), source)
    check_contexts(there, back, by_way_of="claude")
    assert REMINDER["content"] in map(message_text, there.context().messages)
    kept = [entry.fields for entry, _ in iter_entries(back, back.leaf, all_branches=True)]
    assert REMINDER["content"] in str(kept)
