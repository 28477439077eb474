"""Continue one file in turns: our library appends, the real program continues it with a prompt, and so on.

In every turn the program must send what our context contains before its prompt, and afterwards our context must contain
its prompt and the answer. No entry of an earlier turn may be missing at the end.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import sessiontree
from acceptance.cases import READS_NATIVE, Case, Outcome
from acceptance.comparison import both_lines, differences
from acceptance.histories import NoHistoryError, claude_place, send_prompt
from acceptance.model_server import ANSWER
from acceptance.programs import Name
from acceptance.sources import Dialect, Source, answer, call, result, text
from sessiontree import Session
from sessiontree.core.messages import message_text
from sessiontree.providers import render

TURNS = 8


def try_turns(programs: Sequence[Name], folder: Path) -> Iterator[Outcome]:
    """Try each program with a file of its own dialect, and with a native one if it reads those."""
    for program in programs:
        dialects: tuple[Dialect, ...] = (program, "native") if program in READS_NATIVE else (program,)
        for dialect in dialects:
            place = folder / f"{program}-{dialect}"
            place.mkdir(parents=True)
            path = _start(program, dialect, place)
            case = Case(Source(dialect, path), program, is_unconverted=dialect != program)
            try:
                found = _take_turns(case, place)
            except NoHistoryError as error:
                found = [str(error)]
            yield Outcome(case, "differs" if found else "ok", "continued in turns" if found else "", found)


def _start(program: Name, dialect: Dialect, folder: Path) -> Path:
    """A file in a dialect with one turn, where the program finds it."""
    session = sessiontree.create(cwd=str(folder), in_memory=True)
    session.append("user", "The first prompt.")
    answer(session, text("The first answer."))
    made = sessiontree.convert(session, dialect, cwd=str(folder))
    # Claude Code finds a session by its id, the others by their path.
    path = claude_place(folder, made.meta.id) if program == "claude" else folder / "turns.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(made.lines))
    return path


def _take_turns(case: Case, folder: Path) -> list[str]:
    """The differences of the first turn that has any; empty if there are none."""
    for turn in range(1, TURNS + 1):
        with case.source.opened() as session:
            _append(session, turn)
        print(f"{case.row} in {case.program}, turn {turn} of {TURNS}", file=sys.stderr, flush=True)
        # oh-my-pi caches the address of the model server, which is another one in every run.
        home = folder if case.program == "claude" else folder / f"home-{turn}"
        found = check_prompt(case, f"Prompt {turn} for the program.", home)
        if found:
            return [f"turn {turn}:", *found]
    return []


def check_prompt(case: Case, prompt: str, home: Path) -> list[str]:
    """Send a prompt with the program, in the file itself; returns the differences.

    The program must send our context before it, we must read its prompt and its answer, and no entry may be lost.
    """
    home.mkdir(exist_ok=True)
    with case.source.opened() as session:
        ids, context = set(session.ids), session.context().messages
        known = {found.kind for found in session.problems}
    sent = send_prompt(case.program, case.source.path, prompt, home)
    ours, theirs = both_lines(render(context, "anthropic").messages, sent, context)
    if ours != theirs:
        return differences(ours, theirs)
    session = case.source.opened()
    lost = ids - set(session.ids)
    if lost:
        return [f"lost {sorted(lost)}"]
    after = [message_text(message) for message in session.context().messages]
    problems = {found.kind for found in session.problems} - known
    if after[-2:] != [prompt, ANSWER] or problems:
        return [f"we read {after[-2:]}, problems: {sorted(problems)}"]
    return []


def _append(session: Session, turn: int) -> None:
    """Our turn: a prompt and an answer; in some turns calls, a branch that is left, or a compaction."""
    asked = session.append("user", f"Our prompt {turn}: 请翻译 🌲").id
    if turn % 2:
        calls = [call(f"toolu_{turn}_{at}", "read", path=f"{at}.txt") for at in range(turn % 3 + 1)]
        answer(session, text("Looking."), *calls)
        for made in calls:
            result(session, made["id"], "read", text(f"alpha {turn}"))
    answer(session, text(f"Our answer {turn}."))
    if turn == 3:
        session.append("user", "A branch that is left.")
        answer(session, text("Never mind."))
        session.move(asked)
        answer(session, text("Another answer."))
    if turn == 5:
        kept = {"firstKeptEntryId": asked, "tokensBefore": 1_000}
        session.append({"type": "compaction", "summary": "What was said before.", **kept})
