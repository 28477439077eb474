"""Generated sessions give the same context in every agent's format, also on the way through another one and back."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from itertools import groupby, islice, product
from pathlib import Path

import pytest
from acceptance.agent_sessions import AGENTS, GENERATORS, iter_sessions
from acceptance.comparison import NOTHING_RECORDED, both_lines, without_failed_turns
from acceptance.sources import Dialect

import sessiontree
from sessiontree import Session
from sessiontree.conversion.convert import BranchChoice
from sessiontree.conversion.install import Request, carry_out, make_plan
from sessiontree.conversion.walk import iter_entries
from sessiontree.core.messages import BashExecution, CompactionSummary, Message, parse_message
from sessiontree.dialects.contract import ReadOptions
from sessiontree.library import Library
from sessiontree.providers import render
from tests.builders import THOROUGH
from tests.dialects.packed_goldens import FOLDER as GOLDENS
from tests.dialects.packed_goldens import cases_of, unpack

SESSIONS = 100 if THOROUGH else 2
DERIVED_SESSIONS = 30 if THOROUGH else 1
"""Sessions of each agent that has no generator of its own."""
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
_REPEATED_ID = re.compile(r"\b((?:toolu|call)_[0-9a-f]+(?:_open)?)_\d+\b")
"""The new id of a call that a session has twice."""
_STRAY_TOOL = re.compile(r"\bThe tool \S+ was(?= called; the call was not recorded)")
_NO_ERRORS = "<bash-stderr></bash-stderr>"
"""What Claude Code has after the output of a command, if there were no errors; Neovate has nothing there."""
_REMINDER = re.compile(r"(?:user|summary): <system-reminder>")


def generated(agent: Dialect, folder: Path, count: int) -> Iterator[Session]:
    """Sessions of an agent without problems, from the first seed on."""
    for source in islice(iter_sessions(agent, folder, SEED), count):
        # What only the provider of the agent can replay is not converted.
        yield sessiontree.open(source.path, dialect=agent, read_options=ReadOptions(provider_history=False))


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
    # OpenCode sends answers that were aborted after they had some content.
    shortened = (list, without_failed_turns, partial(without_failed_turns, sends_aborted=True))
    for words, shorten in product(([], [*reworded(session)]), shortened if drops_failed else (list,)):
        ours, theirs = (shorten(each.context().messages) for each in (session, copy))
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
    lines = [_STRAY_TOOL.sub("The tool was", _REPEATED_ID.sub(r"\1", line).replace(_NO_ERRORS, "")) for line in lines]
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
@pytest.mark.parametrize("source", AGENTS)
def test_a_generated_session_gives_its_context_in_every_agent(
    source: Dialect, target: str, branch: BranchChoice, tmp_path: Path
) -> None:
    count = SESSIONS if source in GENERATORS else DERIVED_SESSIONS
    for number, session in enumerate(generated(source, tmp_path, count)):
        copy = installed(session, target, tmp_path / str(number), branch)
        check_same(session, copy)


@pytest.mark.parametrize(("source", "first"), list(product(GENERATORS, AGENTS)))
def test_a_converted_session_gives_the_same_context_in_a_second_agent_and_back(
    source: Dialect, first: str, tmp_path: Path
) -> None:
    for number, session in enumerate(generated(source, tmp_path, TWO_STEPS)):
        second = AGENTS[(number + AGENTS.index(first)) % len(AGENTS)]
        there = installed(session, first, tmp_path / f"{number}-first")
        across = installed(there, second, tmp_path / f"{number}-second")
        check_same(session, across, first)
        back = installed(across, source, tmp_path / f"{number}-back")
        check_same(session, back, first, second)


def recorded_sessions(agent: str, case: str, folder: Path) -> Iterator[Session]:
    """The sessions of a real program in one of its goldens."""
    home = unpack(agent, case, folder).home
    environment = {"HOME": str(home), "XDG_CACHE_HOME": str(folder / "cache")}
    with Library(str(folder / "none"), environment=environment) as library:
        refs = [summary.ref for summary in library.sessions()]
    yield from map(sessiontree.open, refs)


def golden_files(agent: str) -> list[Path]:
    return sorted(GOLDENS.glob(f"{agent}/*/*.jsonl"))


def check_everywhere(session: Session, folder: Path) -> None:
    """Convert a session to every agent, with the active branch and with all of them."""
    for target, branch in product(AGENTS, ("active", "all")):
        if branch == "active" or target not in LINEAR:
            check_same(session, installed(session, target, folder / f"{target}-{branch}", branch))


@pytest.mark.parametrize("path", [*golden_files("codex"), *golden_files("qwen")], ids=lambda path: path.parent.name)
def test_a_session_of_codex_or_qwen_code_gives_its_context_in_every_agent(path: Path, tmp_path: Path) -> None:
    session = sessiontree.open(path)
    if session.context().messages:
        check_everywhere(session, tmp_path)


@pytest.mark.parametrize(
    ("agent", "case"), [(agent, case) for agent in ("gemini-cli", "opencode") for case in cases_of(agent)]
)
def test_a_session_of_gemini_cli_or_opencode_gives_its_context_in_every_agent(
    agent: str, case: str, tmp_path: Path
) -> None:
    for number, session in enumerate(recorded_sessions(agent, case, tmp_path)):
        check_everywhere(session, tmp_path / str(number))
