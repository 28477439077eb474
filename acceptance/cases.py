"""Which session goes to which program, and how each case ended.

Where the session is in the program's own dialect, the program gets the file as it is, and must rebuild exactly what we
say. So must Pi and oh-my-pi with native files, which have their shape. Otherwise, and for native files once more, the
session is converted, and the program must rebuild the same conversation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias, assert_never

from msgspec.structs import replace

import sessiontree
from acceptance.comparing import JsonObject, answered, both_lines, differences
from acceptance.histories import NoHistoryError, check_resumes, claude_history, omp_history, pi_history
from acceptance.programs import Name
from acceptance.sources import Source
from sessiontree import Session
from sessiontree.conversion.tools import map_call
from sessiontree.core.messages import Assistant, Block, Message, ToolCall, blocks_of, parse_message
from sessiontree.providers import render
from sessiontree.views.json import describe_state

Status: TypeAlias = Literal["ok", "differs", "known"]
BranchChoice: TypeAlias = Literal["active", "all"]

OF_THE_NATIVE_SHAPE: tuple[Name, ...] = ("pi", "omp")
"""Programs that open native files themselves."""

# Where a program is known to do worse than we, with the reason. Such a difference is shown, but is none of ours.
KNOWN: dict[tuple[str, Name], str] = {
    ("pi 29_self_parent", "pi"): "Pi runs in a circle where an entry is its own parent",
    ("pi 41_title_slot", "pi"): "Pi does not know the title line that oh-my-pi puts before the header",
    ("pi 17_models_roles", "pi"): "Pi does not read the field in which oh-my-pi names the model",
}


@dataclass(frozen=True, slots=True)
class Case:
    source: Source
    program: Name
    branch: BranchChoice = "active"
    """Which branches a conversion takes along; the program must stand on the active one either way."""
    is_unconverted: bool = False
    """Whether a native file is given to a program that reads its shape."""

    @property
    def as_it_is(self) -> bool:
        """Whether the program gets the file of the source itself."""
        return self.source.dialect == self.program or self.is_unconverted

    @property
    def row(self) -> str:
        more = ", as it is" if self.is_unconverted else ", all branches" if self.branch == "all" else ""
        return self.source.name + more


@dataclass(frozen=True, slots=True)
class Outcome:
    case: Case
    status: Status
    reason: str = ""
    difference: list[str] = field(default_factory=list)


def iter_cases(sources: list[Source], programs: list[Name], *, conversions: bool) -> Iterator[Case]:
    """Every program with every session. Only healthy ones are converted, twice if they have several branches."""
    for source in sources:
        healthy = conversions and source.is_healthy()
        for program in programs:
            case = Case(source, program)
            if case.as_it_is or healthy:
                yield case
            if source.dialect == "native" and program in OF_THE_NATIVE_SHAPE:
                yield Case(source, program, is_unconverted=True)
            if healthy and not case.as_it_is and len(source.opened().leaves()) > 1:
                yield Case(source, program, "all")


def try_case(case: Case, folder: Path) -> Outcome:
    """Let the program read the session, and compare."""
    folder.mkdir(parents=True)
    known = KNOWN.get((case.source.name, case.program))
    if case.as_it_is:
        path = case.source.path
    else:
        path = converted(case.source, case.program, folder, case.branch)
    try:
        rebuilt = _rebuilt(case.program, path, folder / "run")
        if case.program != "claude" and (case.is_unconverted or not case.as_it_is):
            check_resumes(case.program, path, folder / "resumed")
    except NoHistoryError as error:
        return Outcome(case, "known" if known else "differs", known or "", [str(error)])
    ours, theirs = _compared(case, case.source.opened(), rebuilt)
    if ours == theirs:
        return Outcome(case, "ok")
    known = known or _difference_in_the_rules(case, ours, theirs, rebuilt)
    reason = known or _where_to_look(case, path, rebuilt)
    return Outcome(case, "known" if known else "differs", reason, differences(ours, theirs))


def converted(source: Source, target: Name, folder: Path, branch: BranchChoice = "active") -> Path:
    """The session of a source in the dialect of another program, as a file in `folder`."""
    path = folder / source.path.name
    # Pi resumes a session only in a working folder that exists.
    done = sessiontree.convert(source.opened(), target, branch=branch, cwd=str(folder))
    with path.open("wb") as file:
        file.writelines(done.lines)
    return path


def in_words_of(case: Case, messages: Sequence[Message]) -> list[Message]:
    """Messages with their tool calls in the words of the program, where it has words for them."""

    def worded(block: Block) -> Block:
        if not isinstance(block, ToolCall):
            return block
        mapped = map_call(block.name, block.arguments, case.source.dialect, case.program)
        return ToolCall(block.id, mapped.name, mapped.arguments) if mapped else block

    return [
        replace(message, content=tuple(map(worded, blocks_of(message.content))))
        if isinstance(message, Assistant)
        else message
        for message in messages
    ]


def _rebuilt(program: Name, path: Path, scratch: Path) -> JsonObject:
    match program:
        case "claude":
            return {"messages": claude_history(path, scratch)}
        case "pi":
            return pi_history(path, scratch)
        case "omp":
            return omp_history(path, scratch)
        case _:
            assert_never(program)


def _compared(
    case: Case, session: Session, rebuilt: JsonObject, *, in_its_words: bool = False
) -> tuple[list[str], list[str]]:
    """What we say and what the program rebuilt, as lines. `in_its_words`: the session names the program's tools."""
    messages = session.context().messages
    theirs = [] if case.program == "claude" else [parse_message(message) for message in rebuilt["messages"]]
    if case.as_it_is and case.program != "claude":
        here, there = _standing(session, rebuilt)
        return [*map(repr, messages), *here], [*map(repr, theirs), *there]
    meant = list(messages) if in_its_words or case.as_it_is else in_words_of(case, messages)
    ours = render(meant, "anthropic").messages
    sent = rebuilt["messages"] if case.program == "claude" else render(theirs, "anthropic").messages
    # A conversion leaves out what another model thought.
    return both_lines(ours, sent, [*meant, *theirs], thinking=case.as_it_is)


def _difference_in_the_rules(case: Case, ours: Sequence[str], theirs: Sequence[str], rebuilt: JsonObject) -> str | None:
    """Whether it differs only because programs make different things of the same entries."""
    if case.as_it_is and (case.source.dialect, case.program) != ("native", "omp"):
        return None
    if answered(ours) == answered(theirs):
        return "each program has its own way with calls that have no result"
    if case.source.dialect in ("pi", "omp", "native"):
        # Claude Code leaves out as little as Pi.
        rules = "omp" if case.program == "omp" else "pi"
        ours, theirs = _compared(case, sessiontree.open(case.source.path, dialect=rules), rebuilt)
        if answered(ours) == answered(theirs):
            return f"of the same entries, {case.program} leaves out other turns than {case.source.dialect}"
    return None


def _where_to_look(case: Case, path: Path, rebuilt: JsonObject) -> str:
    """For a conversion: whether we read the file that it gave as the program does."""
    if case.as_it_is:
        return ""
    ours, theirs = _compared(case, sessiontree.open(path, dialect=case.program), rebuilt, in_its_words=True)
    if ours == theirs:
        return "we read the converted file as the program does, so look at the conversion"
    return "we read the converted file otherwise than the program, so look at the reading, too"


def _standing(session: Session, told: JsonObject) -> tuple[list[str], list[str]]:
    """Where a session stands and what is set there, by us and by the program."""
    state = describe_state(session.context().state)
    pairs = [
        ("thinking level", state["thinkingLevel"], told["thinkingLevel"]),
        ("model", state["model"], told["model"]) if "model" in told else ("models", state["models"], told["models"]),
    ]
    if session.header.version > 1:  # before, entries had no ids, and each reader makes its own
        stands = _behind_bookkeeping(session, session.leaf)
        pairs.append(("leaf", stands, _behind_bookkeeping(session, told["leaf"])))
    return [f"{name}: {ours}" for name, ours, _ in pairs], [f"{name}: {theirs}" for name, _, theirs in pairs]


def _behind_bookkeeping(session: Session, leaf: str | None) -> str | None:
    """Where a leaf leads when what only keeps books is passed over, as in native files: to Pi it is a link."""
    quiet = {*session.dialect.bookkeeping, "leaf"} if session.dialect.name == "native" else set()
    while leaf is not None and session.type_of(leaf) in quiet:
        leaf = session.parent(leaf)
    return leaf
