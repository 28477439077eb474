"""A session of each agent, made by the real program in this run: texts, parallel calls, a failed call, two processes.

The model's part is in the prompts (`directives`); the tools are the program's own and really run. Neovate cannot be
installed, so its session is one that we convert.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from acceptance import drivers
from acceptance.agent_sessions import without_our_data
from acceptance.directives import LOOKING, make_call
from acceptance.drivers import Agent
from acceptance.programs import Program
from acceptance.sources import Source
from sessiontree import Session
from sessiontree.conversion.install import Request, carry_out, make_plan
from sessiontree.core.messages import Assistant, ToolCall, ToolResult, User, message_blocks, message_text
from sessiontree.library import Library
from sessiontree.plugins import load
from sessiontree.stores.contract import read_bytes
from sessiontree.testing import check_dialect

SampleAgent: TypeAlias = Agent | Literal["neovate"]
SAMPLE_AGENTS: tuple[SampleAgent, ...] = (
    *("claude", "pi", "omp", "neovate", "codex", "opencode", "gemini", "qwen"),
    "native",
)

SECONDS = 120.0
CUTS = 20
ANSWERS = ("Two files: 你好 🌲", "Both were read.", "One worked.\n\nThe other one failed.")
CALLS = 4


class SampleError(Exception):
    """A program did not make the session that it was asked for."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A session in the home of its agent."""

    agent: SampleAgent
    home: Path
    source: Source

    @property
    def session(self) -> Session:
        return self.source.opened()


@dataclass(frozen=True, slots=True)
class Tools:
    """The names of an agent's tools to read a file and to run a command, and of their first argument."""

    read: str
    path: str
    shell: str
    command: str = "command"
    more: tuple[tuple[str, object], ...] = ()


TOOLS: Mapping[Agent, Tools] = {
    "claude": Tools("Read", "file_path", "Bash"),
    "pi": Tools("read", "path", "bash"),
    "omp": Tools("read", "path", "bash"),
    "codex": Tools("exec_command", "cmd", "exec_command", "cmd"),
    "opencode": Tools("read", "filePath", "bash", more=(("description", "Runs it"),)),
    "gemini": Tools("read_file", "file_path", "run_shell_command"),
    "qwen": Tools("read_file", "file_path", "run_shell_command", more=(("is_background", False),)),
    "native": Tools("read", "path", "bash"),
}


def make_project(folder: Path) -> Path:
    """The folder in which all programs work."""
    folder.mkdir(parents=True)
    (folder / "a.txt").write_text("alpha one\n  indented\n")
    (folder / "b.txt").write_text('beta 三 🚀\n\t"quoted" \\ and more\n')
    return folder


def make_sample(agent: SampleAgent, program: Callable[[Agent], Program], home: Path, project: Path) -> Sample:
    """Let the program of an agent make a session in a new home."""
    if agent == "neovate":
        native = make_sample("native", program, home / "native", project)
        return _encode(native, agent, home / "neovate", project)
    for number, prompt in enumerate(_prompts(agent, project)):
        at = None if number == 0 else resumable(find_sample(agent, home))
        result = drivers.send(agent, program(agent), prompt, home, project, SECONDS, at)
        if result.exit_code != 0:
            raise SampleError(f"exit code {result.exit_code}: {(result.stderr or result.stdout)[-300:]}")
    sample = find_sample(agent, home)
    _check(sample)
    return sample


def check_sample(sample: Sample) -> None:
    """Check the contract of the sample's dialect on the sample."""
    store = sample.session.journal.store
    check_dialect(load("dialects", sample.agent), [read_bytes(store, 0, store.size())], cuts=CUTS)


def find_sample(agent: Agent | Literal["neovate"], home: Path) -> Sample:
    """The only session of an agent in a home."""
    with Library(environment=_environment(agent, home)) as library:
        # A resumed session of Gemini CLI leaves a second file without messages.
        found = [summary.ref for summary in library.sessions(agent=agent) if summary.health != "empty"]
    if len(found) != 1:
        raise SampleError(f"expected one session in {home}, found {found}")
    return Sample(agent, home, Source(agent, Path(found[0])))


def _environment(agent: SampleAgent, home: Path) -> dict[str, str]:
    known = drivers.environment("native" if agent == "neovate" else agent, home)
    return {**known, "XDG_CACHE_HOME": str(home / "sessiontree-cache")}


def resumable(sample: Sample) -> str:
    """How a program finds the session: by its id, Pi and our chat by its path."""
    return str(sample.source.path) if sample.agent in ("pi", "native") else sample.session.id


def _prompts(agent: Agent, project: Path) -> list[str]:
    tools = TOOLS[agent]
    paths = [str(project / name) for name in ("a.txt", "b.txt")]
    if tools.read == tools.shell:
        reads = [make_call(tools.shell, **{tools.command: f"cat {path}"}) for path in paths]
    else:
        reads = [make_call(tools.read, **{tools.path: path}) for path in paths]
    shells = [make_call(tools.shell, **{tools.command: text}, **dict(tools.more)) for text in ("echo ran", "exit 3")]
    return [
        f"What is in this folder? [[SAY {ANSWERS[0]}]]",
        f"Read both files. {' '.join(reads)} [[SAY {ANSWERS[1]}]]",
        f"Run two commands. {' '.join(shells)} [[SAY {ANSWERS[2]}]]",
    ]


def _encode(sample: Sample, agent: Literal["neovate"], home: Path, project: Path) -> Sample:
    plan = make_plan(sample.session, Request(agent, cwd=str(project)), _environment(agent, home))
    carry_out(sample.session, plan)
    path = Path(plan.path)
    path.write_bytes(without_our_data(path.read_bytes(), agent))
    found = find_sample(agent, home)
    _check(found)
    return found


def _check(sample: Sample) -> None:
    """We read the session as it was scripted: nothing is compared with a session that we read as an empty one."""
    messages = sample.session.context().messages
    answers = [message_text(message).strip() for message in messages if isinstance(message, Assistant)]
    kept = [text for text in answers if text and text != LOOKING]
    calls = [block for message in messages for block in message_blocks(message) if isinstance(block, ToolCall)]
    results = [message for message in messages if isinstance(message, ToolResult)]
    asked = [message for message in messages if isinstance(message, User) and "[[SAY " in message_text(message)]
    problems = sample.session.problems
    if kept != list(ANSWERS) or len(asked) != len(ANSWERS) or problems:
        raise SampleError(f"read as {kept}, {len(asked)} prompts, problems: {problems}")
    # Results of parallel calls are recorded in the order in which they end.
    if len(calls) != CALLS or {call.id for call in calls} != {result.tool_call_id for result in results}:
        raise SampleError(f"{len(calls)} calls and {len(results)} results were read; expected {CALLS} of each")
