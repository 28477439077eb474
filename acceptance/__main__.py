"""Let real programs read our sessions, and compare. Exits with 1 if one differs, with 3 if no program could run."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path

from acceptance import network, programs
from acceptance.cases import Case, Outcome, iter_cases, try_case_safely
from acceptance.commands import try_commands
from acceptance.conversions import try_conversions
from acceptance.generated import random_seed, try_generated
from acceptance.live_samples import SAMPLE_AGENTS
from acceptance.live_transcripts import try_live
from acceptance.matrix import Matrix, render_matrix, run_matrix
from acceptance.programs import Name
from acceptance.progress import log, log_difference, timed
from acceptance.results import describe, exit_code, render_generated, render_table
from acceptance.sources import iter_sources
from acceptance.turns import try_turns

MATRIX = "matrix"
PROGRAMS: list[Name] = ["claude", "pi", "omp", "codex", "opencode", "gemini", "qwen"]
WITH_TURNS = frozenset({"claude", "pi", "omp"})
"""Programs that continue a file at any path, and whose sessions are generated."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m acceptance", description=__doc__)
    parser.add_argument("--only", choices=[*PROGRAMS, MATRIX], help="run one program, or only the matrix of all agents")
    parser.add_argument("--case", metavar="TEXT", default="", help="only sessions whose name contains this")
    parser.add_argument("--as-is", action="store_true", help="only files that a program opens unchanged, no conversion")
    parser.add_argument("--generated", metavar="N", type=int, help="only N generated sessions for each program")
    parser.add_argument("--converted", metavar="N", type=int, help="only N generated sessions of each agent, converted")
    parser.add_argument("--live", metavar="N", type=int, help="only N sessions that Claude Code writes in random steps")
    parser.add_argument("--seed", metavar="S", type=int, help="the seed of the first generated session")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--keep", action="store_true", help="keep the scratch folder")
    parser.add_argument("--agents", metavar="NAMES", help="with --only matrix: only these agents, joined by commas")
    parser.add_argument("--pinned", action="store_true", help="do not try newer versions of the programs")
    options = parser.parse_args()

    only = options.only if options.live is None else "claude"
    wanted = [name for name in PROGRAMS if only in (None, name)]
    missing: dict[Name, str | None] = {name: _reason_missing(name) for name in wanted}
    if network.namespace() is None:
        log("Network namespaces are not available: programs run with a proxy that does not exist.")
    scratch = Path(tempfile.mkdtemp(prefix="sessiontree-acceptance-"))
    try:
        installed = [name for name in wanted if missing[name] is None]
        outcomes: list[Outcome] = []
        matrix = _run_matrix(options, scratch / MATRIX)
        if options.only == MATRIX:
            assert matrix is not None
            print(render_matrix(matrix))
            return 0 if matrix.is_ok() else 1
        if options.generated is None and options.converted is None and options.live is None:
            sources = [source for source in iter_sources(scratch) if options.case in source.name]
            with timed("corpus and our own sessions"):
                outcomes = _try_all(list(iter_cases(sources, installed, conversions=not options.as_is)), scratch)
            if not options.as_is and options.case in "turns":
                with_turns = [name for name in installed if name in WITH_TURNS]
                with timed("turns"):
                    outcomes += _together(lambda name: try_turns([name], scratch / "turns"), with_turns)
            if not options.as_is and options.case in "commands":
                with timed("commands"):
                    outcomes += _together(lambda name: try_commands([name], scratch / "commands"), installed)
        generated: dict[str, list[Outcome]] = {}
        if not options.case and not options.as_is:
            seed = random_seed() if options.seed is None else options.seed
            if options.live is not None:
                with timed("sessions that Claude Code writes"):
                    generated["claude, live"] = try_live(scratch / "live", count=options.live, seed=seed)
                installed = []
            for name in installed:
                if options.converted is None and name not in WITH_TURNS:
                    continue
                if options.converted is None:
                    with timed(f"generated sessions, {name}"):
                        generated[name] = try_generated(name, scratch, count=options.generated, seed=seed)
                    continue
                with timed(f"converted sessions, {name}"):
                    place = scratch / "converted" / name
                    generated[f"{name}, converted"] = try_conversions(name, place, count=options.converted, seed=seed)
    finally:
        if options.keep:
            log(f"Kept {scratch}")
        else:
            shutil.rmtree(scratch, ignore_errors=True)
    if options.json:
        print(json.dumps(describe(outcomes, missing, generated), indent=2, ensure_ascii=False))
    else:
        print(render_table(outcomes, missing))
        print(render_generated(generated))
        if matrix is not None:
            print(render_matrix(matrix))
    code = exit_code([*outcomes, *chain.from_iterable(generated.values())], missing)
    return 1 if code == 0 and matrix is not None and not matrix.is_ok() else code


def _run_matrix(options: argparse.Namespace, folder: Path) -> Matrix | None:
    """Run the matrix, unless the options select something else."""
    selects_other = options.case or options.as_is or options.generated or options.converted or options.live
    if selects_other or options.only not in (None, MATRIX):
        return None
    agents = [agent for agent in SAMPLE_AGENTS if options.agents is None or agent in options.agents.split(",")]
    with timed("matrix"):
        return run_matrix(folder, agents, newer=not options.pinned)


def _reason_missing(name: Name) -> str | None:
    try:
        log(f"{programs.install(name).title} is installed in {programs.folder()}")
    except programs.NotInstalledError as error:
        log(f"{name} could not be installed: {error}")
        return str(error)
    return None


def _try_all(cases: Sequence[Case], scratch: Path) -> list[Outcome]:
    outcomes: list[Outcome] = []
    with ThreadPoolExecutor(network.WORKERS) as pool:
        for outcome in pool.map(lambda case: try_case_safely(case, _folder(case, scratch)), cases):
            outcomes.append(outcome)
            log(f"{len(outcomes)} of {len(cases)}: {outcome.case.row} in {outcome.case.program}: {outcome.status}")
            if outcome.status == "differs":  # shown at once, because the table comes much later
                log_difference(outcome)
    return outcomes


def _folder(case: Case, scratch: Path) -> Path:
    return scratch / case.program / case.row.replace(", ", "-").replace(" ", "-")


def _together(attempt: Callable[[Name], Iterable[Outcome]], names: Sequence[Name]) -> list[Outcome]:
    """Try programs at the same time, each with one session after the other."""
    with ThreadPoolExecutor(network.WORKERS) as pool:
        return list(chain.from_iterable(pool.map(lambda name: list(attempt(name)), names)))


if __name__ == "__main__":
    sys.exit(main())
