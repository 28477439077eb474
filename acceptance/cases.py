"""Pairs of session and program, and their outcomes.

A session in the program's own dialect is given unchanged, and the program must rebuild exactly our history. So must Pi
and oh-my-pi for native files, whose format they read. Otherwise, and for native files in addition, the session is
converted, and the program must rebuild the same conversation.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, product
from pathlib import Path
from typing import Any, Literal, TypeAlias

import sessiontree
from acceptance import drivers
from acceptance.comparison import (
    JsonObject,
    both_lines,
    differences,
    joined_answers,
    joined_texts,
    loses_history,
    purposes,
    with_images_after_last_result,
    with_images_after_results,
    with_placeholders,
    with_repeated_ids,
    with_texts_before_calls,
    without_failed_turns,
    without_open_calls,
)
from acceptance.expectations import JOINED_TEXTS, expected_messages
from acceptance.histories import (
    SECONDS,
    NoHistoryError,
    Request,
    check_resumes,
    claude_history,
    histories,
    omp_history,
    pi_history,
    place_original,
    sent_history,
)
from acceptance.programs import Name, Program, install
from acceptance.requests import without_reminders
from acceptance.sources import Source
from sessiontree import Session
from sessiontree.branches.tips import find_tips, tip_of
from sessiontree.conversion.install import Plan, carry_out, make_plan
from sessiontree.conversion.install import Request as InstallRequest
from sessiontree.conversion.launch import branches_for
from sessiontree.conversion.walk import is_of_conversation, iter_entries
from sessiontree.core.jsonio import parse_object, render_json
from sessiontree.core.messages import Message, parse_message
from sessiontree.dialects.canonical import CanonicalEntry
from sessiontree.errors import InvalidEntryError
from sessiontree.plugins import load
from sessiontree.providers import render
from sessiontree.stores.file import FileStore
from sessiontree.views.json import describe_state

Status: TypeAlias = Literal["ok", "differs", "known"]
BranchChoice: TypeAlias = Literal["active", "all"]

READS_NATIVE: tuple[Name, ...] = ("pi", "omp")
"""Programs that open native files themselves."""
RESUMED: tuple[Name, ...] = ("codex", "opencode", "gemini", "qwen")
"""Programs that are given a session by our installation, and resume it by its id."""
SENDS: tuple[Name, ...] = ("claude", *RESUMED)
"""Programs whose history is that of a request; of the others, that which they rebuild."""
WITHOUT_ERRORS: tuple[Name, ...] = RESUMED
"""Programs that send results through an API that does not mark errors."""
LINEAR: tuple[Name, ...] = ("codex", "opencode", "gemini")
"""Programs whose sessions have no branches."""

DROP_FAILED_TURNS: tuple[Name, ...] = ("pi", "omp", "opencode")
"""Programs that do not send failed answers: oh-my-pi leaves them out of the history, the others out of each request."""

IMAGE_PLACEHOLDERS: dict[Name, str] = {"codex": "image content omitted because it could not be processed"}
"""What a program sends in the place of an image that cannot be decoded."""

SentForms: TypeAlias = Mapping[str, Callable[[Sequence[str]], list[str]]]
"""By the reason: lines of a history in the order in which an API sends them."""

_CHAT_API: SentForms = {
    "the images of parallel results after the last of them": with_images_after_last_result,
    "the texts of an answer before its calls": with_texts_before_calls,
    "the texts of an answer before its calls, and images after the results": (
        lambda lines: with_images_after_last_result(with_texts_before_calls(lines))
    ),
}
"""One text in an answer, before its calls. Images of results follow the last of them."""

SENT_FORMS: dict[Name, SentForms] = {
    "gemini": {"the images of a result and of the prompt after it alike": with_images_after_results},
    "opencode": _CHAT_API,
    "qwen": _CHAT_API,
}

MISSING = "missing"
"""A uuid that no line of a transcript has."""

# Known defects of the programs, with the reason. Such a difference is shown but does not fail the run.
KNOWN: dict[tuple[str, Name], str] = {
    ("pi 29_self_parent", "pi"): "Pi loops forever if an entry is its own parent",
    ("pi 41_title_slot", "pi"): "Pi does not support oh-my-pi's title line before the header",
    ("pi 17_models_roles", "pi"): "Pi does not read oh-my-pi's field for the model",
}


@dataclass(frozen=True, slots=True)
class Case:
    source: Source
    program: Name
    branch: BranchChoice = "active"
    """Which branches a conversion includes; the active one must be current in the program either way."""
    is_unconverted: bool = False
    """Whether a native file is given unchanged to a program that reads the native format."""

    @property
    def is_original(self) -> bool:
        """Whether the program gets the source file unchanged."""
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
    """Every program with every session. Only sound sessions are converted; twice if they have several branches."""
    for source in sources:
        healthy = conversions and source.is_healthy()
        for program in programs:
            case = Case(source, program)
            if case.is_original or healthy:
                yield case
            if source.dialect == "native" and program in READS_NATIVE:
                yield Case(source, program, is_unconverted=True)
            if healthy and not case.is_original and program not in LINEAR and len(source.opened().leaves()) > 1:
                yield Case(source, program, "all")


def try_case(case: Case, folder: Path) -> Outcome:
    """Let the program read the session, and compare."""
    folder.mkdir(parents=True)
    known = KNOWN.get((case.source.name, case.program))
    try:
        if case.program in RESUMED:
            path, id, home = _installed(case, folder)
            rebuilt = {"messages": sent_history(case.program, install(case.program), id, home, folder)}
        else:
            original = case.source.path if case.is_original else None
            path = original or convert(case.source, case.program, folder, case.branch)
            rebuilt = _rebuilt(case.program, path, folder / "run")
        if (case.program == "pi" or case.program == "omp") and (case.is_unconverted or not case.is_original):
            check_resumes(case.program, path, folder / "resumed")
    except NoHistoryError as error:
        if _has_no_conversation(case):
            return Outcome(case, "ok", "there is no conversation")
        known = known or _explain_loss(case, REFUSALS, folder / "again")
        return Outcome(case, "known" if known else "differs", known or "", [str(error)])
    ours, theirs = compare_history(case, case.source.opened(case.program), rebuilt)
    if ours == theirs:
        return _try_branches(case, path, folder / "select-in-turn") if case.branch == "all" else Outcome(case, "ok")
    known = known or find_rule_difference(case, ours, theirs, rebuilt)
    if not known and loses_history(ours, theirs):
        known = _explain_loss(case, LOSSES, folder / "again")
    reason = known or suspect(case, path, rebuilt)
    return Outcome(case, "known" if known else "differs", reason, differences(ours, theirs))


def try_case_safely(case: Case, folder: Path) -> Outcome:
    """Try a case; one that fails, such as a conversion that is refused, differs."""
    try:
        return try_case(case, folder)
    except Exception as error:  # noqa: BLE001 - a case that breaks must not hide how the others end
        return failed_outcome(case, error)


def failed_outcome(case: Case, error: Exception) -> Outcome:
    return Outcome(case, "differs", f"{type(error).__name__}: {error}")


def _has_no_conversation(case: Case) -> bool:
    """Whether nothing is to be sent, as of a session with nothing but thinking of another model."""
    if case.is_original:
        return not case.source.opened().context().messages
    nothing, sent = compare_history(case, case.source.opened(case.program), {"messages": []})
    return case.program not in ("pi", "omp") and nothing == sent


def _without_subagents(lines: Sequence[bytes]) -> list[bytes]:
    """Leave out the lines of sub-agents.

    Pins on them stay: they name a line that does not exist then, which has no effect, as they have none in our reading.
    Without them, earlier pins would count.
    """
    return [raw for raw in lines if parse_object(raw).get("isSidechain") is not True]


def _without_last_boundaries(lines: Sequence[bytes]) -> list[bytes]:
    """Leave out the boundaries that no user or assistant line follows."""
    return [raw for raw, is_last in _mark_last_boundaries(lines) if not is_last]


def _without_parents_of_last_boundaries(lines: Sequence[bytes]) -> list[bytes]:
    """Make the boundaries that no user or assistant line follows roots, as the client writes them."""
    return _change_last_boundaries(lines, lambda boundary: {**boundary, "parentUuid": None})


def _without_anchors_of_last_boundaries(lines: Sequence[bytes]) -> list[bytes]:
    """Make these boundaries roots whose anchor does not exist: the client then sends the lines that they preserve."""
    return _change_last_boundaries(lines, _without_anchor)


def _without_damaged_lines(lines: Sequence[bytes]) -> list[bytes]:
    """Leave out the lines that are not JSON objects."""
    return [raw for raw in lines if parse_object(raw)]


def _with_attachments_as_output(lines: Sequence[bytes]) -> list[bytes]:
    """Replace attachments, such as prompts that were typed in between, by output of commands with the same text."""
    return [
        render_json({**line, "type": "system", "subtype": "local_command", "content": text}) + b"\n"
        if (text := _attachment_text(line := parse_object(raw))) is not None
        else raw
        for raw in lines
    ]


def _attachment_text(line: JsonObject) -> str | None:
    """Return the text that Claude Code sends of an attachment, if it recorded that text for the user's role."""
    rendered = line.get("rendered")
    if not isinstance(rendered, list) or line.get("renderedRole") == "system":
        return _typed_prompt(line)
    texts = [part["content"] for part in rendered if isinstance(part, dict) and isinstance(part.get("content"), str)]
    return "\n".join(texts) if texts else _typed_prompt(line)


def _typed_prompt(line: JsonObject) -> str | None:
    """Return the prompt of a line that was typed while Claude Code worked, which it records as an attachment."""
    attachment = line.get("attachment")
    prompt = attachment.get("prompt") if isinstance(attachment, dict) else None
    return prompt if isinstance(prompt, str) else None


def _without_anchor(boundary: JsonObject) -> JsonObject:
    metadata = {
        name: {**value, "anchorUuid": MISSING} if isinstance(value, dict) and "anchorUuid" in value else value
        for name, value in boundary.get("compactMetadata", {}).items()
    }
    return {**boundary, "parentUuid": None, "compactMetadata": metadata}


def _change_last_boundaries(lines: Sequence[bytes], change: Callable[[JsonObject], JsonObject]) -> list[bytes]:
    return [
        render_json(changed) + b"\n" if is_last and (changed := change(line := parse_object(raw))) != line else raw
        for raw, is_last in _mark_last_boundaries(lines)
    ]


def _mark_last_boundaries(lines: Sequence[bytes]) -> list[tuple[bytes, bool]]:
    """Return lines, and whether each is a boundary that no user or assistant line follows."""
    fields = [parse_object(raw) for raw in lines]
    end = max((at for at, line in enumerate(fields) if line.get("type") in ("user", "assistant")), default=-1)
    return [
        (raw, at > end and line.get("subtype") == "compact_boundary")
        for at, (raw, line) in enumerate(zip(lines, fields, strict=True))
    ]


Change: TypeAlias = Callable[[Sequence[bytes]], list[bytes]]

REFUSALS: dict[str, Change] = {
    "Claude Code refuses a file if a line of a sub-agent is pinned, or is the end next to kept lines": (
        _without_subagents
    ),
}
"""Reasons why Claude Code refuses a file that we read, and what is changed in the file to check each of them."""

LOSSES: dict[str, Change] = {
    "Claude Code sends nothing of a file that ends with a boundary which names a parent": (
        _without_parents_of_last_boundaries
    ),
    "Claude Code sends nothing of a file that ends with a boundary which hides all other lines": (
        _without_last_boundaries
    ),
    "Claude Code sends nothing of a file that ends with a boundary which names a hidden anchor": (
        _without_anchors_of_last_boundaries
    ),
    "Claude Code joins an attachment with a result, and loses it if shards of another response are moved past it": (
        _with_attachments_as_output
    ),
    "Claude Code loses the last record after the start of another one that ends before a value": (
        _without_damaged_lines
    ),
}
"""Reasons why Claude Code sends only a part of the history that we read, or nothing; likewise."""


def _explain_loss(case: Case, changes: Mapping[str, Change], folder: Path) -> str | None:
    """Return the reason why Claude Code loses history: with that change of the file, it rebuilds our history."""
    if not case.is_original or case.program != "claude":
        return None
    lines = case.source.path.read_bytes().splitlines(keepends=True)
    for number, (reason, change) in enumerate(changes.items()):
        changed = change(lines)
        if changed != lines and _rebuilds_history(case, changed, folder / str(number)):
            return reason
    return None


def _typed_prompts(case: Case) -> list[str]:
    """Return the prompts of a transcript that were typed while Claude Code worked."""
    if not case.is_original:
        return []
    lines = map(parse_object, case.source.path.read_bytes().splitlines())
    return [prompt for line in lines if (prompt := _typed_prompt(line)) is not None]


def _rebuilds_history(case: Case, lines: Sequence[bytes], folder: Path) -> bool:
    """Whether a program rebuilds the history of a session from other lines."""
    folder.mkdir(parents=True)
    path = folder / case.source.path.name
    path.write_bytes(b"".join(lines))
    try:
        rebuilt = _rebuilt(case.program, path, folder / "run")
    except NoHistoryError:
        return False
    ours, theirs = compare_history(case, case.source.opened(case.program), rebuilt)
    return ours == theirs or bool(purposes(ours, theirs, rebuilt["messages"], _typed_prompts(case)))


def _try_branches(case: Case, path: Path, folder: Path) -> Outcome:
    """Select every other branch of a converted session in the program, and compare.

    Claude Code follows the current entry, so there we switch to each. The others have no branches in a file.
    """
    if case.program not in ("claude", "pi", "omp"):
        return Outcome(case, "ok")
    ends = branch_ends(case, path)
    lines = list(dict.fromkeys(chain.from_iterable(ends.values())))
    if case.program == "claude":
        branches = {line: _switched_history(path, line, folder / line) for line in lines}
        return compare_branches(case, ends, {"branches": branches})
    (rebuilt,) = histories(case.program, [Request(path, lines)], folder)
    if isinstance(rebuilt, NoHistoryError):
        return Outcome(case, "differs", "", [str(rebuilt)])
    return compare_branches(case, ends, rebuilt)


def _switched_history(path: Path, line: str, folder: Path) -> JsonObject:
    """What Claude Code rebuilds after `branch` has switched a copy of a transcript to a line, or else of a fork."""
    folder.mkdir(parents=True)
    copy = folder / path.name
    shutil.copyfile(path, copy)
    with sessiontree.open(copy, dialect="claude") as session:
        try:
            session.move(line)
        except InvalidEntryError:  # a metadata line: Claude Code cannot continue there, and the message offers a fork
            # By default, a fork goes into the user's own folder of the client.
            copy = folder / "fork.jsonl"
            session.fork(at=line, cwd=str(folder), store=FileStore(str(copy))).close()
    try:
        return {"messages": claude_history(copy, folder / "run")}
    except NoHistoryError as error:  # Claude Code resumes nothing if there is no conversation
        with sessiontree.open(copy, dialect="claude") as session:
            return {"error": str(error)} if session.context().messages else {"messages": []}


def branch_ends(case: Case, path: Path) -> dict[str, list[str]]:
    """The last lines of the branches in a converted file, by the leaves in its source.

    Several if leaves of the source have the same entries and different contexts, as the summary of a compaction and the
    last line that it keeps in Claude Code.
    """
    session = case.source.opened()
    lines = last_lines(sessiontree.open(path, dialect=case.program))
    entries = _context_entries(session)
    histories = {leaf: _history(session, leaf) for leaf in session.leaves()}
    ends = {leaf: _last_of(history, entries) for leaf, history in histories.items()}
    if not session.dialect.traits.one_line_per_entry:
        # A line without children may be beside a branch, as the progress of a tool: `branches` does not list it. Or it
        # is inside of the current one, as in Claude Code the summary before lines that were kept.
        tips = {session.journal.tree.ids[tip] for tip in find_tips(session)}
        inner = {id for id in histories.get(session.leaf or "", ()) if id != session.leaf}
        ends = {leaf: end for leaf, end in ends.items() if leaf not in inner and _tip(session, histories[leaf]) in tips}
    return {leaf: lines[end] for leaf, end in ends.items() if end in lines}


def compare_branches(case: Case, ends: Mapping[str, Sequence[str]], rebuilt: JsonObject) -> Outcome:
    """Compare the branches of a converted session with those that the program rebuilt."""
    session = case.source.opened(case.program)
    for leaf, lines in ends.items():
        found = [_compare_branch(case, session, leaf, rebuilt["branches"][line]) for line in lines]
        if None not in found:
            return Outcome(case, "differs", f"branch {leaf}", found[-1] or [])
    return Outcome(case, "ok")


def _compare_branch(case: Case, session: Session, leaf: str, history: JsonObject) -> list[str] | None:
    if "error" in history:
        return [str(history["error"])]
    ours, theirs = compare_history(case, session, history, leaf=leaf)
    if ours == theirs or find_rule_difference(case, ours, theirs, history, leaf) is not None:
        return None
    return differences(ours, theirs)


def last_lines(session: Session) -> dict[str | None, list[str]]:
    """By id of a canonical entry, the id of its line and the ends of contexts that are restated after it."""
    entries = iter_entries(session, session.leaf, all_branches=True)
    nodes = session.journal.tree.node_of
    lines: dict[str | None, list[str]] = {
        entry.id: [max((entry.id, *entry.aliases), key=lambda name: nodes.get(name, -1))] for entry, _ in entries
    }
    for leaf in session.leaves():
        restated: list[CanonicalEntry] = []
        history = [entry for entry, _ in iter_entries(session, leaf, all_branches=False, on_restated=restated.append)]
        if restated:
            end = next((entry.id for entry in reversed(history) if is_of_conversation(entry)), None)
            lines.setdefault(end, []).append(leaf)
    return lines


def _history(session: Session, leaf: str) -> list[str]:
    nodes = session.dialect.find_history(session.journal, session.node_of(leaf), session.read_options)
    return [session.journal.tree.ids[node] for node in nodes]


def _tip(session: Session, history: Sequence[str]) -> str | None:
    tip = tip_of(session, [session.journal.tree.node_of[id] for id in history])
    return None if tip is None else session.journal.tree.ids[tip]


def _last_of(history: Sequence[str], entries: Mapping[str, tuple[int, str]]) -> str | None:
    """The last canonical entry of a branch that belongs to the conversation. `entries` are the entries by line."""
    return max((entries[id] for id in history if id in entries), default=(0, None))[1]


def _context_entries(session: Session) -> dict[str, tuple[int, str]]:
    """By line: number and id of the canonical entry that it became a part of, if that belongs to the conversation."""
    found: dict[str, tuple[int, str]] = {}
    for number, (entry, _) in enumerate(iter_entries(session, session.leaf, all_branches=True), 1):
        if is_of_conversation(entry):
            found.update(dict.fromkeys((entry.id, *entry.aliases), (number, entry.id)))
    return found


def convert(source: Source, target: Name, folder: Path, branch: BranchChoice = "active") -> Path:
    """Convert a source to the dialect of a program; returns the file in `folder`."""
    path = folder / source.path.name
    session = source.opened()
    # Pi resumes a session only in a working folder that exists.
    carry_out(session, make_plan(session, InstallRequest(target, branch, cwd=str(folder), out=str(path))))
    return path


def _installed(case: Case, folder: Path) -> tuple[Path, str, Path]:
    """Give a session to a program's private home; returns the file, the session's id and the home."""
    home = folder / "home"
    if case.is_original:
        return case.source.path, place_original(case.program, case.source.path, home, folder), home
    plan = install_session(case.source.opened(), case.program, install(case.program), home, folder, case.branch)
    return Path(plan.path), plan.resume[-1], home


def install_session(
    session: Session,
    agent: drivers.Agent,
    program: Program,
    home: Path,
    project: Path,
    branch: BranchChoice | None = None,
) -> Plan:
    """Convert a session and install it in a program's home, as `resume --in` does."""
    request = InstallRequest(agent, branch or branches_for(load("dialects", agent)), cwd=str(project))
    plan = make_plan(session, request, drivers.environment(agent, home))
    carry_out(session, plan)
    if plan.install:
        result = drivers.run(agent, [str(program.binary), *plan.install[1:]], home, project, SECONDS)
        if result.exit_code != 0:
            raise NoHistoryError(f"not imported: {(result.stderr or result.stdout)[-300:]}")
    return plan


def _rebuilt(program: Name, path: Path, scratch: Path) -> JsonObject:
    match program:
        case "claude":
            return {"messages": claude_history(path, scratch)}
        case "pi":
            return pi_history(path, scratch)
        case "omp":
            return omp_history(path, scratch)
        case _:
            raise ValueError(f"{program} rebuilds no history of a file")


def compare_history(
    case: Case,
    session: Session,
    rebuilt: JsonObject,
    *,
    is_mapped: bool = False,
    leaf: str | None = None,
    failed_turns: bool = True,
) -> tuple[list[str], list[str]]:
    """Our history and the rebuilt one, as lines. `is_mapped`: the session already uses the program's tool names.

    Without `failed_turns`, answers that failed are left out of both.
    """
    theirs = [] if case.program in SENDS else [parse_message(message) for message in rebuilt["messages"]]
    theirs = theirs if failed_turns else without_failed_turns(theirs)
    if is_mapped or case.is_original:
        meant = list(session.context(leaf).messages)
        meant = meant if failed_turns else without_failed_turns(meant)
        if case.is_original and case.program not in SENDS:
            here, there = compare_state(session, rebuilt, session.leaf)
            return [*map(repr, meant), *here], [*map(repr, theirs), *there]
        return _compare_messages(case, meant, theirs, rebuilt, joined=case.program in RESUMED or not case.is_original)
    # A conversion may also restate the messages of a compaction in the words of the source. And where results are
    # recorded after a later answer, it has them directly after their calls, so that the answers are not joined.
    attempts: list[tuple[list[str], list[str]]] = []
    for joined, in_recorded_words in product((True, False), (False, True)):
        meant = expected_messages(
            session, case.program, leaf, in_recorded_words, joined=joined, failed_turns=failed_turns
        )
        attempts.append(_compare_messages(case, meant, theirs, rebuilt, joined=joined))
        if attempts[-1][0] == attempts[-1][1]:
            return attempts[-1]
    agreeing = (pair for pair in attempts if _without_open_calls(case, pair[0]) == _without_open_calls(case, pair[1]))
    return next(agreeing, attempts[1])


def _compare_messages(
    case: Case, meant: list[Message], theirs: list[Message], rebuilt: JsonObject, *, joined: bool
) -> tuple[list[str], list[str]]:
    if joined:
        meant, theirs = joined_answers(meant), joined_answers(theirs)
    ours = render(meant, "anthropic").messages
    ours = without_reminders(ours) if case.program == "claude" else ours
    sent = rebuilt["messages"] if case.program in SENDS else render(theirs, "anthropic").messages
    # A conversion drops the thinking of another model.
    ours_lines, sent_lines = both_lines(
        ours, sent, [*meant, *theirs], thinking=case.is_original and case.program == "claude"
    )
    if case.program in WITHOUT_ERRORS:
        ours_lines = [re.sub(r"\Aerror of ", "result of ", line) for line in ours_lines]
    return _as_joined(case, ours_lines), _as_joined(case, sent_lines)


def _without_open_calls(case: Case, lines: Sequence[str]) -> list[str]:
    return _as_joined(case, without_open_calls(lines))


def _as_joined(case: Case, lines: list[str]) -> list[str]:
    return joined_texts(lines) if case.program in JOINED_TEXTS else lines


def find_rule_difference(
    case: Case, ours: Sequence[str], theirs: Sequence[str], rebuilt: JsonObject, leaf: str | None = None
) -> str | None:
    """The reason, if the histories differ only because programs treat the same entries differently."""
    if case.program == "claude" and not case.is_original:
        theirs = with_repeated_ids(theirs, ours)
        if ours == theirs:
            return "calls that a session repeats have numbered ids in Claude Code"
    if case.program == "claude" and (found := purposes(ours, theirs, rebuilt["messages"], _typed_prompts(case))):
        return "; ".join(found)
    if case.is_original and (case.source.dialect, case.program) != ("native", "omp"):
        return None
    if _without_open_calls(case, ours) == _without_open_calls(case, theirs):
        return "programs treat calls without a result differently"
    if case.is_unconverted:  # the same file, read with the rules of oh-my-pi
        session = sessiontree.open(case.source.path, dialect=case.program)
        ours, theirs = compare_history(case, session, rebuilt, leaf=leaf)
        return "oh-my-pi drops calls without a result" if ours == theirs else None
    for reason, sent_form in SENT_FORMS.get(case.program, {}).items():
        # Before, too: images can be at the result that the program adds for a call without one, or follow it.
        here, there = (sent_form(_without_open_calls(case, sent_form(lines))) for lines in (ours, theirs))
        if _as_joined(case, here) == _as_joined(case, there):
            return f"{case.program} sends {reason}"
    if case.program in IMAGE_PLACEHOLDERS:
        messages = case.source.opened(case.program).context(leaf).messages
        if with_placeholders(ours, messages, IMAGE_PLACEHOLDERS[case.program]) == list(theirs):
            return f"{case.program} sends no images that cannot be decoded"
    if case.program in DROP_FAILED_TURNS:
        session = case.source.opened(case.program)
        ours, theirs = compare_history(case, session, rebuilt, leaf=leaf, failed_turns=False)
        if _without_open_calls(case, ours) == _without_open_calls(case, theirs):
            return f"{case.program} sends no failed answers"
    return None


def suspect(case: Case, path: Path, rebuilt: JsonObject) -> str:
    """For a conversion: which side to debug, by whether we read the converted file like the program."""
    if case.is_original:
        return ""
    ours, theirs = compare_history(case, sessiontree.open(path, dialect=case.program), rebuilt, is_mapped=True)
    if ours == theirs:
        return "we read the converted file like the program: check the conversion"
    return "we read the converted file differently from the program: check the decoder, too"


def compare_state(session: Session, rebuilt: JsonObject, leaf: str | None) -> tuple[list[str], list[str]]:
    """The current entry and the settings there, from us and from the program."""
    state = describe_state(session.context(leaf).state)
    pairs: list[tuple[str, Any, Any]] = [("thinking level", state["thinkingLevel"], rebuilt["thinkingLevel"])]
    if "model" in rebuilt:
        pairs.append(("model", state["model"], rebuilt["model"]))
    else:
        pairs.append(("models", sorted(state["models"].items()), sorted(rebuilt["models"].items())))
        pairs.append(("mode", state["mode"], rebuilt["mode"]))
        pairs.append(("rules", list(state["rules"]), rebuilt["injectedTtsrRules"]))
    if session.header.version > 1:  # entries of version 1 have no ids, so each reader generates its own
        pairs.append(("leaf", _skip_bookkeeping(session, leaf), _skip_bookkeeping(session, rebuilt["leaf"])))
    return [f"{name}: {ours}" for name, ours, _ in pairs], [f"{name}: {theirs}" for name, _, theirs in pairs]


def _skip_bookkeeping(session: Session, leaf: str | None) -> str | None:
    """The nearest ancestor that is not bookkeeping: in native files, Pi treats those entries as part of the path."""
    skipped = {*session.dialect.traits.bookkeeping, "leaf"} if session.dialect.name == "native" else set()
    while leaf is not None and session.type_of(leaf) in skipped:
        leaf = session.parent(leaf)
    return leaf
