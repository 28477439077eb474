"""Conversions from every dialect to every other and back: the same conversation, and a report of losses."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given

import sessiontree
from sessiontree import Session
from sessiontree.conversion.verify import first_difference
from sessiontree.conversion.walk import iter_entries
from sessiontree.providers import render
from sessiontree.repair import examine
from tests.builders import examples, opened
from tests.conversion.conversations import everything, sessions

DIALECTS = ("claude", "neovate", "omp", "pi", "native")
PAIRS = [(source, target) for source in DIALECTS for target in DIALECTS]
CORPUS = sorted((Path(__file__).parents[1] / "corpus").glob("*/*.jsonl"))
TRANSCRIPTS = [path for path in CORPUS if path.parent.name.startswith("claude")]


def converted(session: Session, to: str) -> Session:
    return opened(b"".join(sessiontree.convert(session, to, branch="all").lines), to)


def content_of(session: Session) -> list[object]:
    """The canonical entries of a session, sorted, without the data that differs in each file."""
    items = [
        (item.kind, item.id, parent, {name: value for name, value in item.fields.items() if name != "sessiontree"})
        for item, parent in iter_entries(session, session.leaf, all_branches=True)
        if item.kind != "leaf"
    ]
    return sorted(items, key=lambda item: (item[1], str(item)))


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_everything_survives_a_round_trip(source: str, target: str) -> None:
    there = converted(everything(), source)
    across = converted(there, target)
    assert first_difference(there, there.leaf, across, all_branches=True) is None
    back = converted(across, source)
    assert content_of(back) == content_of(there)


@pytest.mark.parametrize("target", DIALECTS)
def test_a_converted_session_has_the_same_labels_and_name(target: str) -> None:
    session = everything()
    there = converted(session, target)
    assert there.given_name == "the last line"
    assert sorted(there.labels.values()) == ["the question"]
    back = converted(there, "native")
    assert (back.labels, back.given_name) == (session.labels, session.given_name)


@pytest.mark.parametrize("target", DIALECTS)
def test_doctor_finds_nothing_in_a_converted_session(target: str) -> None:
    findings = examine(converted(everything(), target))
    assert [finding.rule.id for finding in findings if finding.rule.severity != "note"] == []


@pytest.mark.parametrize("target", DIALECTS)
@examples(25)
@given(session=sessions())
def test_any_conversation_survives_a_round_trip(target: str, session: Session) -> None:
    there = converted(session, target)
    assert first_difference(session, session.leaf, there, all_branches=True) is None
    assert content_of(converted(there, "native")) == content_of(session)


def sent_by(session: Session) -> object:
    return render(session.context().messages, "anthropic").messages


@pytest.mark.parametrize("target", DIALECTS)
@examples(25)
@given(session=sessions())
def test_repeated_round_trips_add_nothing_to_the_context(target: str, session: Session) -> None:
    there = converted(session, target)
    back = converted(there, "native")
    for _ in range(3):
        there_again = converted(back, target)
        back_again = converted(there_again, "native")
        assert sent_by(there_again) == sent_by(there)
        assert sent_by(back_again) == sent_by(back)
        there, back = there_again, back_again


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_round_trips_of_transcripts_add_no_preamble_to_their_summaries(path: Path) -> None:
    first = converted(sessiontree.open(path), "native")
    again = converted(converted(first, "claude"), "native")
    last = converted(converted(again, "claude"), "native")
    assert sent_by(first) == sent_by(again) == sent_by(last)


@pytest.mark.parametrize("target", DIALECTS)
@pytest.mark.parametrize("path", CORPUS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_session_of_the_corpus_converts_to_every_dialect_and_back(path: Path, target: str) -> None:
    session = sessiontree.open(path)
    there = converted(session, target)
    assert first_difference(session, session.leaf, there, all_branches=True) is None
    back = converted(there, session.dialect.name)
    assert first_difference(session, session.leaf, back, all_branches=True) is None


@pytest.mark.parametrize("target", DIALECTS)
def test_the_report_is_stored_in_the_target_and_not_converted_again(target: str) -> None:
    there = b"".join(sessiontree.convert(everything(), target, branch="all").lines)
    assert there.count(b"sessiontree.conversion") == 1
    assert b'"carried"' in there
    back = b"".join(sessiontree.convert(opened(there, target), "native", branch="all").lines)
    assert back.count(b"sessiontree.conversion") == 1


def test_sub_agents_and_spilled_output_are_copied_with_a_fork(tmp_path: Path) -> None:
    source = next(path for path in CORPUS if path.stem == "08_subagent")
    place = tmp_path / f"{sessiontree.open(source).id}.jsonl"
    place.write_bytes(source.read_bytes())
    subagents = place.with_suffix("") / "subagents"
    subagents.mkdir(parents=True)
    (subagents / "agent-a1.jsonl").write_text("{}\n")
    forked = sessiontree.fork(sessiontree.open(place)).session
    assert (Path(forked.location).with_suffix("") / "subagents" / "agent-a1.jsonl").read_text() == "{}\n"
