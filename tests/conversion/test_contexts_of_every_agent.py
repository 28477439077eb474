"""Generated sessions give the same context in every agent's format, also on the way through another one and back."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import groupby, product
from pathlib import Path

import pytest
from acceptance import transcripts, trees
from acceptance.comparison import NOTHING_RECORDED, both_lines, without_failed_turns

import sessiontree
from sessiontree import Session
from sessiontree.conversion.convert import BranchChoice
from sessiontree.conversion.install import Request, carry_out, make_plan
from sessiontree.conversion.walk import iter_entries
from sessiontree.core.messages import BashExecution, CompactionSummary, Message, parse_message
from sessiontree.dialects.contract import ReadOptions
from sessiontree.providers import render
from tests.builders import THOROUGH

AGENTS = ("claude", "pi", "omp", "neovate", "native", "codex", "opencode", "gemini", "qwen")
GENERATORS: dict[str, Callable[[int], bytes]] = {"claude": transcripts.generate, **trees.GENERATORS}
SESSIONS = 100 if THOROUGH else 2
TWO_STEPS = 100 if THOROUGH else 2
"""Sessions that go through two agents."""
LINEAR = frozenset({"codex", "gemini", "opencode"})
"""Agents whose sessions have no branches."""
SEED = 1000
DROP_FAILED = frozenset({"omp", "opencode", "pi"})
"""Agents that send no answers that failed."""

Sent = tuple[list[str], dict[str, str]]

_CALL = re.compile(r"assistant calls .*? (\S*): ", re.DOTALL)
_RESULT = re.compile(r"(?:error|result) of (\S*): (.*)", re.DOTALL)
_REPEATED_ID = re.compile(r"\b(toolu_\d+)_\d+\b")
"""The new id of a call that a session has twice."""
_REMINDER = re.compile(r"(?:user|summary): <system-reminder>")


def generated(agent: str, folder: Path, count: int) -> Iterator[Session]:
    """Sessions of an agent without problems, from the first seed on."""
    seed = SEED
    while count:
        path = folder / f"{agent}-{seed}.jsonl"
        path.write_bytes(GENERATORS[agent](seed))
        seed += 1
        # What only the provider of the agent can replay is not converted.
        session = sessiontree.open(path, dialect=agent, read_options=ReadOptions(provider_history=False))
        if not session.problems and any(message.role == "user" for message in session.context().messages):
            count -= 1
            yield session


def installed(session: Session, to: str, folder: Path, branch: BranchChoice = "active") -> Session:
    """Convert a session as `sessiontree convert` does it, which compares the result with the session."""
    folder.mkdir(parents=True)
    path = folder / ("session.json" if to == "opencode" else "session.jsonl")
    return carry_out(session, make_plan(session, Request(to, branch=branch, out=str(path))))


def check_same(session: Session, copy: Session, *others: str) -> None:
    """Compare the contexts of two sessions. `others` are the agents between the two."""
    drops_failed = not DROP_FAILED.isdisjoint({session.dialect.name, copy.dialect.name, *others})
    found: list[tuple[Sent, Sent]] = []
    # The text of a summary may be part of another text, so it counts as reworded only if that helps.
    for words, is_shortened in product(([], [*reworded(session)]), (False, True) if drops_failed else (False,)):
        both = [list(each.context().messages) for each in (session, copy)]
        ours, theirs = map(without_failed_turns, both) if is_shortened else both
        recorded = [*ours, *theirs, *words]
        here, there = both_lines(render(ours, "anthropic").messages, render(theirs, "anthropic").messages, recorded)
        found.append((sent(here), sent(there)))
        if found[-1][0] == found[-1][1]:
            return
    here_sent, there_sent = found[0]
    assert there_sent == here_sent


def reworded(session: Session) -> Iterator[Message]:
    """The messages that each agent introduces in its own words."""
    for entry, _ in iter_entries(session, session.leaf, all_branches=False):
        message = entry.fields.get("message")
        if entry.kind in ("compaction", "branch_summary"):
            yield CompactionSummary(summary=str(entry.fields.get("summary") or ""))
        elif isinstance(message, dict) and isinstance(found := parse_message(message), BashExecution):
            yield found


def sent(lines: list[str]) -> Sent:
    """What a model receives: texts and calls in their order, and the results by their calls.

    Calls without a result are left out, because agents treat them differently, and so are names of tools, and what
    looks like a reminder of Claude Code. Texts of the assistant that follow each other are one.
    """
    lines = [_REPEATED_ID.sub(r"\1", line) for line in lines]
    results = {found[1]: found[2] for line in lines if (found := _RESULT.match(line)) and found[2] != NOTHING_RECORDED}
    kept: list[str] = []
    for line in lines:
        call = _CALL.match(line)
        if call is not None:
            kept += [f"call {call[1]}"] if call[1] in results else []
        elif not _RESULT.match(line) and not _REMINDER.match(line):
            kept.append(line)
    joined: list[str] = []
    for is_answer, group in groupby(kept, lambda line: line.startswith("assistant: ")):
        texts = [line.removeprefix("assistant: ") for line in group]
        joined += ["assistant: " + "".join("".join(texts).split())] if is_answer else texts
    return joined, results


@pytest.mark.parametrize(
    ("target", "branch"),
    [*((target, "active") for target in AGENTS), *((target, "all") for target in AGENTS if target not in LINEAR)],
)
@pytest.mark.parametrize("source", GENERATORS)
def test_a_generated_session_gives_its_context_in_every_agent(
    source: str, target: str, branch: BranchChoice, tmp_path: Path
) -> None:
    for number, session in enumerate(generated(source, tmp_path, SESSIONS)):
        copy = installed(session, target, tmp_path / str(number), branch)
        check_same(session, copy)


@pytest.mark.parametrize(("source", "first"), list(product(GENERATORS, AGENTS)))
def test_a_converted_session_gives_the_same_context_in_a_second_agent_and_back(
    source: str, first: str, tmp_path: Path
) -> None:
    for number, session in enumerate(generated(source, tmp_path, TWO_STEPS)):
        second = AGENTS[(number + AGENTS.index(first)) % len(AGENTS)]
        there = installed(session, first, tmp_path / f"{number}-first")
        across = installed(there, second, tmp_path / f"{number}-second")
        check_same(session, across, first)
        back = installed(across, source, tmp_path / f"{number}-back")
        check_same(session, back, first, second)
