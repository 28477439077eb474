"""Compare the contexts of every branch of many files with what Pi or oh-my-pi rebuilds, in one process of the program.

The current entry, the messages with every known field, and the settings must be equal, for the file as it is and after
selecting each other leaf. In a file with a line that we read differently on purpose (`ON_PURPOSE`), the program is
asked again without the oddity: the difference is known only if it then disappears.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

from acceptance.cases import Case, Outcome, compare_state
from acceptance.comparison import JsonObject, differences
from acceptance.histories import NoHistoryError, Request, histories
from acceptance.sources import Source
from acceptance.trees import GENERATORS
from sessiontree import Session
from sessiontree.core.entries import Problem
from sessiontree.core.jsonio import parse_object
from sessiontree.core.messages import CustomText, Message, parse_message
from sessiontree.dialects.contract import is_metadata_id

Program: TypeAlias = Literal["pi", "omp"]

FILES_PER_PROCESS = 250

ON_PURPOSE = {
    "not-an-object": "the program treats JSON values that are not objects as entries, or fails on them",
    "not-an-entry": "the program treats objects without a type as entries",
    "fused-records": "the program loses all records on a line with several",
    "glued-stub": "the program loses a record that follows the start of another one on its line",
    "torn-tail": "the program loses a record that is followed by the start of another one on its line",
    "nul-run": "the program loses a record after NUL bytes on its line",
    "undecodable": "the program loses a record that is followed by other bytes on its line",
    "bom": "the program refuses a file with a byte order mark",
}
"""By kind of problem: what a program does with such a line. We read or skip it, see docs/how-it-works.md."""

_NOTES = "experimental_context_notes"


def try_generated(program: Program, seeds: Sequence[int], folder: Path) -> Iterator[Outcome]:
    """Try generated sessions of a program's own dialect; the seed is in the name of each."""
    for start in range(0, len(seeds), FILES_PER_PROCESS):
        part = folder / f"{program}-{start}"
        part.mkdir(parents=True)
        sources = []
        for seed in seeds[start : start + FILES_PER_PROCESS]:
            sources.append(Source(program, part / f"generated-{seed}.jsonl"))
            sources[-1].path.write_bytes(GENERATORS[program](seed))
        yield from try_files(program, sources, part)


def try_files(program: Program, sources: Sequence[Source], folder: Path) -> Iterator[Outcome]:
    """Try files of a program's own dialect."""
    found = _compare(program, sources, folder / "as-they-are")
    odd = {
        at: folder / "sound" / source.path.name for at, source in enumerate(sources) if found[at] and _oddity(source)
    }
    for at, path in odd.items():
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(_without_odd_lines(sources[at]))
    again = _compare(program, [Source(program, path) for path in odd.values()], folder / "again")
    still = dict(zip(odd, again, strict=True))
    for at, (source, difference) in enumerate(zip(sources, found, strict=True)):
        case = Case(source, program)
        if not difference:
            yield Outcome(case, "ok")
        elif at in still and not still[at]:
            yield Outcome(case, "known", _oddity(source), difference)
        else:
            yield Outcome(case, "differs", "", difference)


def _compare(program: Program, sources: Sequence[Source], folder: Path) -> list[list[str]]:
    """The differences of each file; empty where there are none."""
    sessions = [source.opened() for source in sources]
    # Entries of version 1 have no ids, so no leaf can be named; their files have one branch.
    leaves = [[] if session.header.version < 2 else session.leaves() for session in sessions]
    requests = [Request(source.path, chosen) for source, chosen in zip(sources, leaves, strict=True)]
    rebuilt = histories(program, requests, folder)
    return [_differences(session, history) for session, history in zip(sessions, rebuilt, strict=True)]


def _differences(session: Session, rebuilt: JsonObject | NoHistoryError) -> list[str]:
    if isinstance(rebuilt, NoHistoryError):
        return [str(rebuilt)]
    found = _differences_at(session, session.leaf, rebuilt)
    for leaf, history in rebuilt["branches"].items():
        different = [history["error"]] if "error" in history else _differences_at(session, leaf, history)
        found += [f"at {leaf}: {line}" for line in different]
    return found


def _differences_at(session: Session, leaf: str | None, rebuilt: JsonObject) -> list[str]:
    ours = list(session.context(leaf).messages)
    theirs = [parse_message(message) for message in rebuilt["messages"]]
    here, there = compare_state(session, rebuilt, leaf)
    theirs = [_recorded_notes(message, ours[at] if at < len(ours) else None) for at, message in enumerate(theirs)]
    return differences([*map(repr, ours), *here], [*map(repr, theirs), *there])


def _recorded_notes(message: Message, ours: Message | None) -> Message:
    """A message as it is recorded: oh-my-pi adds its own words to context notes."""
    match message, ours:
        case CustomText(custom_type=kind, content=str(text)), CustomText(content=str(recorded)) if kind == _NOTES:
            return ours if _folded(recorded) in _folded(text) else message
        case _:
            return message


def _folded(text: str) -> str:
    return " ".join(text.split())


def _oddity(source: Source) -> str:
    """What the program does with the first odd line of a file; empty without one."""
    data = source.path.read_bytes()
    return next((ON_PURPOSE[found.kind] for found in source.opened().problems if _is_odd(found, data)), "")


def _is_odd(problem: Problem, data: bytes) -> bool:
    # A line with nothing but the start of a record, or bytes that are not JSON, is skipped by every reader.
    is_skipped = problem.kind in ("torn-tail", "undecodable") and data[: problem.start].endswith(b"\n")
    return problem.kind in ON_PURPOSE and not is_skipped


def _without_odd_lines(source: Source) -> bytes:
    """The records of a file as we read them, each on its own line."""
    session = source.opened()
    head = [line for line in source.path.read_bytes().split(b"\n") if parse_object(line).get("type") == "session"]
    ids = session.journal.tree.ids
    slots = [node for node, id in enumerate(ids) if is_metadata_id(id)]
    entries = [node for node, id in enumerate(ids) if not is_metadata_id(id)]
    lines = (*session.journal.iter_raw(slots), *head[:1], *session.journal.iter_raw(entries))
    return b"".join(line + b"\n" for line in lines)
