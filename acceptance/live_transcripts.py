"""Transcripts that Claude Code itself writes in random steps: tools in parallel, kills, compactions, forks, rewinds.

In some steps our own operations change the transcript, and the client goes on after them. A session is compared after
every step. The steps are chosen by the seed; what a killed process had written depends on time, so a difference cannot
always be made again. Its transcript is saved.
"""

from __future__ import annotations

import random
import shutil
from base64 import b64decode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal, TypeAlias

from acceptance import drivers, network
from acceptance.cases import Case, Outcome, failed_outcome, try_case_safely
from acceptance.directives import make_call
from acceptance.edits import WrongHistoryError, edit_transcript
from acceptance.live_samples import SECONDS, make_project
from acceptance.programs import folder, install
from acceptance.progress import log, log_difference
from acceptance.sources import Source
from acceptance.trees import PICTURE
from sessiontree.core.jsonio import parse_object, render_json

Step: TypeAlias = Literal["text", "tools", "kill", "compact", "fork", "rewind", "task", "edit"]

_STEPS: dict[Step, float] = {
    "text": 2,
    "tools": 3,
    "kill": 4,
    "compact": 1.5,
    "fork": 1,
    "rewind": 1.5,
    "task": 1,
    "edit": 2,
}
_HOOKS = {
    event: [{"hooks": [{"type": "command", "command": command}]}]
    for event, command in {
        "UserPromptSubmit": "echo context of the prompt",
        "PreToolUse": "true",
        "PostToolUse": "echo noticed >&2; exit 2",
        "Stop": "echo stopped",
    }.items()
}
"""Commands that the client runs in some sessions. Their output becomes attachments and system lines."""
_FILES = ("a.txt", "b.txt", "missing.txt", "picture.png")
_COMMANDS = ("echo hi", "ls", "cat a.txt", "sleep 0.3; echo late", "false", "seq 1 20000")


def try_live(scratch: Path, *, count: int, seed: int) -> list[Outcome]:
    """Let Claude Code write some sessions, and compare each after every step."""
    seeds = range(seed, seed + count)
    outcomes: list[Outcome] = []
    with ThreadPoolExecutor(network.WORKERS) as pool:
        for number, found in zip(seeds, pool.map(lambda seed: _compare_session(seed, scratch), seeds), strict=True):
            log(f"claude: session {number} of {seeds[-1]}: {', '.join(outcome.status for outcome in found)}")
            for outcome in found:
                if outcome.status == "differs":
                    log_difference(outcome)
                    _save(outcome.case.source.path)
            outcomes += found
    return outcomes


def _compare_session(seed: int, scratch: Path) -> list[Outcome]:
    return list(_LiveSession(seed, scratch / str(seed)).compare_steps())


def _save(transcript: Path) -> None:
    saved = folder() / "differences" / "claude" / transcript.name
    saved.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(transcript, saved)
    log(f"Saved {saved}")


class _LiveSession:
    """A session that the client writes in a home of its own."""

    def __init__(self, seed: int, place: Path) -> None:
        self._random = random.Random(seed)
        self._seed = seed
        self._place, self._home = place, place / "home"
        self._project = make_project(place / "project")
        (self._project / "picture.png").write_bytes(b64decode(PICTURE))
        self._transcript: Path | None = None
        if self._random.random() < 0.3:
            settings = self._home / ".claude" / "settings.json"
            settings.parent.mkdir(parents=True)
            settings.write_bytes(render_json({"hooks": _HOOKS}))

    def compare_steps(self) -> Iterator[Outcome]:
        for number in range(self._random.randint(3, 8)):
            step = self._choose_step()
            copy = self._place / f"live-{self._seed}-{number}-{step}.jsonl"
            case = Case(Source("claude", copy), "claude")
            wrong: WrongHistoryError | None = None
            try:
                self._take(step, number)
            except WrongHistoryError as error:
                wrong = error
            self._transcript = self._find_transcript()
            if self._transcript is None:
                continue  # it was killed before the first line
            shutil.copyfile(self._transcript, copy)
            if wrong is None:
                yield try_case_safely(case, self._place / f"compared-{number}")
            else:
                yield failed_outcome(case, wrong)

    def _find_transcript(self) -> Path | None:
        """The transcript that the client wrote last: a fork is another file."""
        found = (self._home / ".claude" / "projects").glob("*/*.jsonl")
        return max(found, key=lambda path: path.stat().st_mtime_ns, default=None)

    def _choose_step(self) -> Step:
        step = self._random.choices(list(_STEPS), list(_STEPS.values()))[0]
        needs_session = step in ("compact", "fork", "rewind", "edit")
        return "tools" if needs_session and self._transcript is None else step

    def _take(self, step: Step, number: int) -> None:
        if step == "edit":
            assert self._transcript is not None
            edit_transcript(self._transcript, self._random.randrange(1 << 30))
            return
        options: list[str] = []
        if self._transcript is not None:
            options += ["--resume", self._transcript.stem]
        if step == "rewind":
            options += self._rewind_options()
        if step == "fork":
            options.append("--fork-session")
        options += ["--output-format", "json", "--dangerously-skip-permissions", "--model", drivers.CLAUDE_MODEL]
        prompt = "/compact" if step == "compact" else self._prompt(step, number)
        command = [str(install("claude").binary), *options, "--print", prompt]
        drivers.run("claude", command, self._home, self._project, SECONDS)  # a killed one has no exit code to check

    def _rewind_options(self) -> list[str]:
        assert self._transcript is not None
        lines = map(parse_object, self._transcript.read_bytes().splitlines())
        answers = [line["uuid"] for line in lines if line.get("type") == "assistant" and not line.get("isSidechain")]
        options = ["--resume-session-at", self._random.choice(answers)] if answers else []
        return [*options, "--fork-session"] if self._random.random() < 0.5 else options

    def _prompt(self, step: Step, number: int) -> str:
        calls: list[str] = []
        if step != "text" and step != "task":
            calls = [self._call() for _ in range(self._random.randint(0, 4))]
        if step == "task":
            task = make_call("Agent", description="d", prompt=f"task {number}", subagent_type="general-purpose")
            calls = [task] * self._random.choice((1, 1, 2))
            calls += [self._call()] if self._random.random() < 0.5 else []
            self._random.shuffle(calls)
        if step == "kill":
            # The command's parent is the client. Results of other calls may be there by then, or not.
            seconds = self._random.choice((0, 0.3, 1))
            calls.insert(
                self._random.randint(0, len(calls)), make_call("Bash", command=f"sleep {seconds}; kill -9 $PPID")
            )
        thinking = "[[THINK hm]] " if self._random.random() < 0.3 else ""
        return f"P{number} {thinking}{' '.join(calls)} [[SAY answer {number}]]"

    def _call(self) -> str:
        read, choose = str(self._project), self._random.choice
        calls: tuple[Callable[[], str], ...] = (
            lambda: make_call("Read", file_path=f"{read}/{choose(_FILES)}"),
            lambda: make_call("Bash", command=choose(_COMMANDS)),
            lambda: make_call("Bash", command="sleep 0.2; echo background", run_in_background=True),
            lambda: make_call("Unknown", pattern="a"),
        )
        return choose(calls)()
