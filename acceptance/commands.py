"""Sessions that our commands changed: `append` and `compact` on files of Pi and oh-my-pi, and on native files.

After each command, the program that reads the file sends one more prompt in it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import sessiontree
from acceptance.cases import Case, Outcome
from acceptance.histories import NoHistoryError
from acceptance.programs import Name
from acceptance.sources import CORPUS, MODEL, Dialect, Source
from acceptance.turns import check_prompt

SECONDS = 60.0
SESSIONS = Path(__file__).parent / "sessions"
"""A session that Pi 1.5.0 wrote, talking to a scripted model, and one with a context edit, written by hand."""

_ANSWER = {
    "role": "assistant",
    **MODEL,
    "content": [{"type": "text", "text": "Our answer."}],
    "stopReason": "stop",
}


@dataclass(frozen=True, slots=True)
class Subject:
    """A session file that our commands change, and the programs that then read it."""

    name: str
    dialect: Dialect
    write: Callable[[Path], None]
    programs: tuple[Name, ...]


def _copy(original: Path) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        path.write_bytes(original.read_bytes())

    return write


def _convert_to_native(name: str, dialect: Dialect) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        session = sessiontree.open(CORPUS / name, dialect=dialect)
        path.write_bytes(b"".join(sessiontree.convert(session, "native", cwd=str(path.parent)).lines))

    return write


def _write_readme_example(path: Path) -> None:
    with sessiontree.create(cwd=str(path.parent), path=path, home=path.parent / "home") as session:
        question = session.append("user", "Sort this list.")
        session.append("assistant", [{"type": "text", "text": "Quicksort?"}])
        other = session.branch(at=question.id)
        other.append("assistant", [{"type": "text", "text": "Merge sort!"}])


SUBJECTS = [
    Subject("real session", "pi", _copy(SESSIONS / "pi-real-session.jsonl"), ("pi",)),
    Subject("context edit", "pi", _copy(SESSIONS / "pi-context-edit.jsonl"), ("pi",)),
    Subject("linear", "omp", _copy(CORPUS / "pi-family" / "01_linear.jsonl"), ("omp",)),
    Subject("Pi session", "omp", _copy(SESSIONS / "pi-real-session.jsonl"), ("omp",)),
    Subject("readme example", "native", _write_readme_example, ("pi", "omp")),
    Subject("from Claude Code", "native", _convert_to_native("claude/03_parallel.jsonl", "claude"), ("pi", "omp")),
    Subject("from Neovate", "native", _convert_to_native("neovate/old_tool_result.jsonl", "neovate"), ("pi", "omp")),
]


def try_commands(programs: Sequence[Name], folder: Path) -> Iterator[Outcome]:
    """Try each subject in each program: after `append`, and after `compact`."""
    for subject in SUBJECTS:
        for program in programs:
            if program in subject.programs:
                yield _try_subject(subject, program, folder / f"{program}-{subject.dialect}-{subject.name}")


def _try_subject(subject: Subject, program: Name, folder: Path) -> Outcome:
    folder.mkdir(parents=True)
    path = folder / f"commands {subject.name}.jsonl"
    subject.write(path)
    _set_cwd(path, folder)
    case = Case(Source(subject.dialect, path), program, is_unconverted=subject.dialect != program)
    print(f"{case.row} in {program}", file=sys.stderr, flush=True)
    try:
        for number, command in enumerate(("append", "compact")):
            _append(path, folder)
            if command == "compact":
                _run(["compact", str(path), "--summarizer", "extractive", "--keep", "1"], folder)
            found = check_prompt(case, f"Prompt after {command}.", folder / f"home-{number}")
            if found:
                return Outcome(case, "differs", f"after {command}", found)
    except NoHistoryError as error:
        return Outcome(case, "differs", "", [str(error)])
    return Outcome(case, "ok")


def _set_cwd(path: Path, folder: Path) -> None:
    """Name a working folder that exists in the header: Pi resumes only there."""
    first, _, rest = path.read_bytes().partition(b"\n")
    path.write_bytes(json.dumps({**json.loads(first), "cwd": str(folder)}).encode() + b"\n" + rest)


def _append(path: Path, folder: Path) -> None:
    _run(["append", str(path), "user", "Our prompt: 请翻译 🌲"], folder)
    _run(["append", str(path)], folder, json.dumps(_ANSWER))


def _run(arguments: Sequence[str], folder: Path, given: str = "") -> None:
    home = str(folder / "sessiontree-home")
    environment = {"PATH": os.defpath, "LANG": "C.UTF-8", "HOME": home, "SESSIONTREE_HOME": home}
    done = subprocess.run(
        [sys.executable, "-m", "sessiontree", *arguments],
        input=given,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"sessiontree {arguments[0]} failed with {done.returncode}: {done.stderr}")
