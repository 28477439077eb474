"""The matrix: a session of each agent, resumed by its own program and, converted, by every other one.

Each session is made by its real program in this run (`live_samples`), converted and installed as `resume --in` does it,
and resumed with one more prompt. The request must contain the session's texts, its calls as real calls, and their
results, in the same order and nothing else. A newer version of a program than the pinned one is tried, too: the run
reports it loudly if it behaves differently.
"""

from __future__ import annotations

import re
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias, cast

from acceptance import drivers, network, programs
from acceptance.cases import WITHOUT_ERRORS, install_session
from acceptance.comparison import JsonObject, both_lines, differences, joined_answers
from acceptance.drivers import Agent
from acceptance.expectations import expected_messages
from acceptance.histories import sent_history
from acceptance.live_samples import (
    SAMPLE_AGENTS,
    Sample,
    SampleAgent,
    check_sample,
    make_project,
    make_sample,
    resumable,
)
from acceptance.programs import NotInstalledError, Program
from sessiontree import Session
from sessiontree.conversion.install import Request, carry_out, make_plan
from sessiontree.conversion.launch import branches_for
from sessiontree.plugins import load
from sessiontree.providers import render

Status: TypeAlias = Literal["ok", "known", "differs", "read back", "could not run"]

NOT_INSTALLABLE: Mapping[SampleAgent, str] = {
    "neovate": "its package is in no registry; sessions are converted to its format and read back by our own reader"
}
REPEATS_RESULTS: Mapping[SampleAgent, str] = {
    "gemini": "Gemini CLI stores each result twice and sends it again with every resume; we read it once"
}


@dataclass(frozen=True, slots=True)
class Cell:
    """How a program resumed the session of an agent."""

    source: SampleAgent
    target: SampleAgent
    status: Status
    reason: str = ""
    difference: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Matrix:
    """The outcome of a run. `versions` are the titles of the programs, or why they could not run."""

    cells: list[Cell] = field(default_factory=list)
    contract: dict[SampleAgent, str] = field(default_factory=dict)
    """By agent: "ok", or the rule of a dialect that its live sample breaks."""
    versions: dict[SampleAgent, str] = field(default_factory=dict)
    newer: list[str] = field(default_factory=list)
    """A line for each newer version of a program."""
    seconds: float = 0.0

    def is_ok(self) -> bool:
        """Whether everything that could run agrees. A newer version fails nothing: the pinned ones decide."""
        return all(cell.status != "differs" for cell in self.cells) and set(self.contract.values()) <= {"ok"}


def run_matrix(folder: Path, agents: Sequence[SampleAgent] = SAMPLE_AGENTS, *, newer: bool = True) -> Matrix:
    """Run all pairs of agents."""
    start = time.monotonic()
    matrix = Matrix()
    project = make_project(folder / "project")
    found: dict[Agent, Program] = {}
    for agent in agents:
        if agent in NOT_INSTALLABLE:
            matrix.versions[agent] = f"could not run: {NOT_INSTALLABLE[agent]}"
            continue
        try:
            found[cast(Agent, agent)] = _install(cast(Agent, agent))
            matrix.versions[agent] = found[cast(Agent, agent)].title
        except NotInstalledError as error:
            matrix.versions[agent] = f"could not run: {error}"
    samples = _make_samples(matrix, agents, found, folder / "samples", project)
    targets = {agent: found.get(cast(Agent, agent)) for agent in agents}
    matrix.cells += _resume_all(samples, targets, folder / "resumed", project)
    if newer:
        matrix.newer += _try_newer(matrix, samples, [*found], folder / "newer", project)
    matrix.seconds = time.monotonic() - start
    return matrix


def render_matrix(matrix: Matrix) -> str:
    """A row for each session, a column for each program, and what is needed to understand the rest."""
    targets = list(matrix.versions)
    statuses = {(cell.source, cell.target): cell.status for cell in matrix.cells}
    rows = [["session of", *targets, "contract"]]
    rows += [
        [source, *(statuses.get((source, target), "") for target in targets), matrix.contract.get(source, "")[:20]]
        for source in targets
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [" | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines.insert(1, "-+-".join("-" * width for width in widths))
    lines += ["", *(f"{agent}: {title}" for agent, title in matrix.versions.items())]
    for cell in matrix.cells:
        if cell.status == "differs":
            lines += ["", f"{cell.source} in {cell.target} differs: {cell.reason}"]
            lines += [f"    {line}" for line in cell.difference]
    lines += [f"{cell.source} in {cell.target}: {cell.reason}" for cell in matrix.cells if cell.status == "known"]
    lines += [f"{agent} breaks the contract: {rule}" for agent, rule in matrix.contract.items() if rule != "ok"]
    counts = {status: sum(cell.status == status for cell in matrix.cells) for status in statuses.values()}
    lines += ["", ", ".join(f"{count} {status}" for status, count in counts.items()) + f", {matrix.seconds:.0f} s"]
    return "\n".join([*lines, *matrix.newer])


def _install(agent: Agent, version: str | None = None) -> Program:
    return drivers.sessiontree_itself() if agent == "native" else programs.install(agent, version)


def _make_samples(
    matrix: Matrix, agents: Sequence[SampleAgent], found: Mapping[Agent, Program], folder: Path, project: Path
) -> list[Sample]:
    def make(agent: SampleAgent) -> Sample | str:
        try:
            return make_sample(agent, lambda wanted: found[wanted], folder / agent, project)
        except Exception as error:  # noqa: BLE001 - the sessions of the other agents are tried nevertheless
            return f"{type(error).__name__}: {error}"

    wanted = [agent for agent in agents if agent in found or agent in NOT_INSTALLABLE]
    samples: list[Sample] = []
    with ThreadPoolExecutor(network.WORKERS) as pool:
        for agent, made in zip(wanted, pool.map(make, wanted), strict=True):
            if isinstance(made, str):
                matrix.cells.append(Cell(agent, agent, "differs", f"no session was made: {made}"))
                _log(f"{agent}: no session was made: {made}")
                continue
            samples.append(made)
            try:
                check_sample(made)
                matrix.contract[agent] = "ok"
            except AssertionError as error:
                matrix.contract[agent] = str(error)
            _log(f"{agent}: session made, contract: {matrix.contract[agent]}")
    return samples


def _resume_all(
    samples: Sequence[Sample], targets: Mapping[SampleAgent, Program | None], folder: Path, project: Path
) -> Iterator[Cell]:
    pairs = [(sample, target) for sample in samples for target in targets]
    with ThreadPoolExecutor(network.WORKERS) as pool:
        cells = pool.map(lambda pair: _resume(pair[0], pair[1], targets[pair[1]], folder, project), pairs)
        for number, cell in enumerate(cells, 1):
            _log(f"{number} of {len(pairs)}: {cell.source} in {cell.target}: {cell.status}")
            yield cell


def _resume(sample: Sample, target: SampleAgent, program: Program | None, folder: Path, project: Path) -> Cell:
    home = folder / f"{sample.agent}-in-{target}"
    try:
        if target in NOT_INSTALLABLE:
            return _read_back(sample, target, home, project)
        if program is None:
            return Cell(sample.agent, target, "could not run")
        sent = _sent(sample, cast(Agent, target), program, home, project)
    except Exception as error:  # noqa: BLE001 - a cell that breaks must not hide how the others end
        return Cell(sample.agent, target, "differs", f"{type(error).__name__}: {error}")
    ours, theirs = compare_sent(sample, cast(Agent, target), sent)
    if ours == theirs:
        return Cell(sample.agent, target, "ok")
    if target in REPEATS_RESULTS and sample.agent == target and ours == _without_repeated_results(theirs):
        return Cell(sample.agent, target, "known", REPEATS_RESULTS[target])
    return Cell(sample.agent, target, "differs", "", differences(ours, theirs))


def _sent(sample: Sample, target: Agent, program: Program, home: Path, project: Path) -> list[JsonObject]:
    """The history that a program sends for a session: its own one in a copy of the home, or a converted one."""
    if sample.agent == target:
        # Codex keeps absolute paths in its databases, and would continue the original; it can do without them.
        shutil.copytree(sample.home, home, symlinks=True, ignore=shutil.ignore_patterns("*.sqlite*"))
        session = resumable(sample).replace(str(sample.home), str(home))
    else:
        session = install_session(sample.session, target, program, home, project).resume[-1]
    return sent_history(target, program, session, home, project)


def compare_sent(sample: Sample, target: Agent, sent: Sequence[JsonObject]) -> tuple[list[str], list[str]]:
    """The history of a session, with the tools that it has in the target, and the history of a request, as lines."""
    if sample.agent == target:
        meant = joined_answers(sample.session.context().messages)
    else:
        meant = expected_messages(sample.session, target)
    ours, theirs = both_lines(render(meant, "anthropic").messages, sent, meant)
    if target in WITHOUT_ERRORS:
        ours = [re.sub(r"\Aerror of ", "result of ", line) for line in ours]
    return ours, theirs


def _without_repeated_results(lines: Sequence[str]) -> list[str]:
    """Lines without results that are in them before: the same text for the same call."""
    found: list[str] = []
    for line in lines:
        if not (line.startswith(("result of ", "error of ")) and line in found):
            found.append(line)
    return found


def _read_back(sample: Sample, target: SampleAgent, home: Path, project: Path) -> Cell:
    """Convert a session for a program that cannot be installed, and compare it with what our reader finds."""
    environment = drivers.environment("native", home)
    session = sample.session
    if sample.agent == target:
        return Cell(sample.agent, target, "read back")
    request = Request(target, branches_for(load("dialects", target)), cwd=str(project))
    plan = make_plan(session, request, environment)
    converted: Session = carry_out(session, plan)
    meant = expected_messages(session, target)
    read = render(joined_answers(converted.context().messages), "anthropic").messages
    ours, theirs = both_lines(render(meant, "anthropic").messages, read, meant)
    if ours == theirs:
        return Cell(sample.agent, target, "read back")
    return Cell(sample.agent, target, "differs", "read back", differences(ours, theirs))


def _try_newer(
    matrix: Matrix, samples: Sequence[Sample], agents: Sequence[Agent], folder: Path, project: Path
) -> Iterator[str]:
    """Resume every session in the newest version of each program, where it is not the pinned one."""
    before = {(cell.source, cell.target): cell.status for cell in matrix.cells}
    for agent in agents:
        if agent == "native":
            continue
        try:
            version = programs.newest(agent)
            if version == programs.PINNED[agent]:
                continue
            program = programs.install(agent, version)
        except NotInstalledError as error:
            yield f"The newest version of {agent} could not be installed: {error}"
            continue
        cells = list(_resume_all(samples, {agent: program}, folder / agent, project))
        different = [cell for cell in cells if cell.status != before[cell.source, agent]]
        if not different:
            yield f"{program.title} is newer than {programs.PINNED[agent]} and behaves the same: {len(cells)} sessions"
            continue
        names = ", ".join(f"{cell.source} ({cell.status})" for cell in different)
        yield f"!!! {program.title} BEHAVES DIFFERENTLY from {programs.PINNED[agent]}, with sessions of: {names}"
        for cell in different:
            yield from (f"!!!     {line}" for line in [cell.reason, *cell.difference] if line)


def _log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
