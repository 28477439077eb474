"""Generated sessions of one agent, converted to another: the program must rebuild the context of the source.

Only sessions without problems are converted, as everywhere. Each is converted with its active branch and, if it has
more, with all of them. One process of Pi or oh-my-pi reads all files; Claude Code needs one for each.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice
from pathlib import Path

from acceptance import network
from acceptance.agent_sessions import AGENTS, iter_sessions
from acceptance.cases import (
    Case,
    Outcome,
    branch_ends,
    compare_branches,
    compare_history,
    convert,
    failed_outcome,
    find_rule_difference,
    iter_cases,
    suspect,
    try_case_safely,
)
from acceptance.comparison import differences
from acceptance.histories import NoHistoryError, Request, histories
from acceptance.programs import Name
from acceptance.progress import show_progress


def try_conversions(program: Name, folder: Path, *, count: int, seed: int) -> list[Outcome]:
    """Convert sessions of the other agents to a program's dialect, and let it read them."""
    cases: list[Case] = []
    for dialect in AGENTS:
        if dialect != program:
            sources = list(islice(iter_sessions(dialect, folder / "sources" / dialect, seed), count))
            cases += [case for case in iter_cases(sources, [program], conversions=True) if not case.is_original]
    print(f"{program}: {len(cases)} conversions of generated sessions", file=sys.stderr, flush=True)
    if program not in ("pi", "omp"):
        with ThreadPoolExecutor(network.WORKERS) as pool:
            attempts = pool.map(lambda case: _try_alone(case, _folder(case, folder)), cases)
            return list(show_progress(program, attempts, len(cases)))
    return list(show_progress(program, _try_together(program, cases, folder), len(cases)))


def _folder(case: Case, folder: Path) -> Path:
    return folder / case.program / f"{case.source.dialect}-{case.source.path.stem}-{case.branch}"


def _try_alone(case: Case, folder: Path) -> Outcome:
    outcome = try_case_safely(case, folder)
    if outcome.status != "differs":  # a home of a program takes megabytes
        shutil.rmtree(folder, ignore_errors=True)
    return outcome


def _try_together(program: Name, cases: Sequence[Case], folder: Path) -> Iterator[Outcome]:
    """Let Pi or oh-my-pi read all converted files in one process. A conversion that fails is a case that differs."""
    assert program in ("pi", "omp")
    converted, requests, ends = [], [], []
    for case in cases:
        place = _folder(case, folder)
        place.mkdir(parents=True)
        try:
            path = convert(case.source, program, place, case.branch)
            leaves = branch_ends(case, path) if case.branch == "all" else {}
        except Exception as error:  # noqa: BLE001 - a case that breaks must not hide how the others end
            yield failed_outcome(case, error)
            continue
        converted.append(case)
        ends.append(leaves)
        requests.append(Request(path, list(chain.from_iterable(leaves.values()))))
    for case, request, leaves, rebuilt in zip(
        converted, requests, ends, histories(program, requests, folder / program / "run"), strict=True
    ):
        if isinstance(rebuilt, NoHistoryError):
            yield Outcome(case, "differs", "", [str(rebuilt)])
            continue
        ours, theirs = compare_history(case, case.source.opened(case.program), rebuilt)
        if ours == theirs:
            yield compare_branches(case, leaves, rebuilt)
            continue
        known = find_rule_difference(case, ours, theirs, rebuilt)
        reason = known or suspect(case, request.session, rebuilt)
        yield Outcome(case, "known" if known else "differs", reason, differences(ours, theirs))
