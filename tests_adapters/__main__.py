"""Run the tests of each adapter in an environment of its own, with the pinned and the newest version of its framework.

    python -m tests_adapters [NAME...]

A folder here with an `adapter.toml` is an adapter: `package` is its framework, `version` the pinned version, `extra`
the extra of this package (default: the folder's name with hyphens; empty for none), `requirements` what its tests need
besides pytest, `options` options of pytest, `sdist` the start of the SHA-256 of the framework's sdist, if that contains
tests to run. Environments are kept in `scratch/adapters`, so only the first run installs anything.

Two environments are tested at a time; the output of each is printed when it ends. The newest version is tested if it is
not the pinned one. If it cannot be installed for this Python, the last lines name it with the reason. A pinned version
that cannot be installed fails.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests_adapters.environments import NotInstalledError, newest_version
from tests_adapters.runs import Run

_AT_A_TIME = 2


def main(names: list[str]) -> None:
    known = sorted(path.parent.name for path in Path(__file__).parent.glob("*/adapter.toml"))
    unknown = set(names) - set(known)
    if unknown:
        sys.exit(f"no adapter {', '.join(sorted(unknown))}; known: {', '.join(known)}")
    chosen = [name for name in known if not names or name in names]
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        runs = [run for found in pool.map(_runs, chosen) for run in found]
        # The suites of the SDKs take longest. Started first, they do not run alone at the end.
        runs.sort(key=lambda run: "sdist" not in run.adapter)
        passed = [*pool.map(Run.passes, runs)]
    for run, is_passed in zip(runs, passed, strict=True):
        result = "FAILED" if not is_passed else "SKIPPED, cannot be installed" if run.reason else "passed"
        print(f"{run.name}: {result}{f': {run.reason}' if run.reason else ''}")
    if not all(passed):
        sys.exit(1)


def _runs(folder: str) -> list[Run]:
    """The pinned version, and the newest one if it is another."""
    pinned = Run(folder)
    try:
        newest = newest_version(pinned.adapter["package"])
    except NotInstalledError as error:
        unknown = Run(folder, "newest")
        unknown.reason = str(error)
        return [pinned, unknown]
    return [pinned] if newest == pinned.version else [pinned, Run(folder, newest)]


if __name__ == "__main__":
    main(sys.argv[1:])
