"""Generated sessions of every agent, for conversions.

Claude Code, Pi and oh-my-pi have generators. A session of any other agent is one of those, converted. Data that only
we write is removed from it, so that it reads like one of its agent's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any

from acceptance import transcripts, trees
from acceptance.sources import Dialect, Source
from sessiontree.conversion.install import Request, carry_out, make_plan
from sessiontree.conversion.launch import branches_for
from sessiontree.conversion.restatement import RESTATED_NOTE
from sessiontree.core.jsonio import parse_object, render_json
from sessiontree.dialects.passthrough import PASSTHROUGH
from sessiontree.plugins import load
from sessiontree.providers.turns import to_turn

GENERATORS: Mapping[Dialect, Callable[[int], bytes]] = {
    "claude": transcripts.generate,
    "pi": trees.generate,
    "omp": trees.generate_omp,
}
AGENTS: tuple[Dialect, ...] = (*GENERATORS, "codex", "opencode", "gemini", "qwen", "neovate", "native")

OUR_TYPES = f"{PASSTHROUGH}."
"""The start of the custom types of entries that only we write."""
_LINKS = (("uuid", "parentUuid"), ("id", "parentId"))
_REFERENCES = ("parentUuid", "parentId", "targetId")


def iter_sessions(dialect: Dialect, folder: Path, seed: int) -> Iterator[Source]:
    """Generate sessions without problems, from a seed on, without end."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in count(seed):
        source = _generate(dialect, number, folder) if dialect in GENERATORS else _derive(dialect, number, folder)
        if source is not None and _is_useful(source):
            yield source


def _generate(dialect: Dialect, seed: int, folder: Path) -> Source:
    source = Source(dialect, folder / f"generated-{seed}.jsonl")
    source.path.write_bytes(GENERATORS[dialect](seed))
    return source


def _derive(dialect: Dialect, seed: int, folder: Path) -> Source | None:
    """Convert a generated session to a dialect; None if it has problems, or if the copy repeats its messages."""
    origins = folder / "origins"
    origins.mkdir(exist_ok=True)
    origin = _generate(list(GENERATORS)[seed % len(GENERATORS)], seed, origins)
    if not _is_useful(origin):
        return None
    path = folder / f"generated-{seed}{'.json' if dialect == 'opencode' else '.jsonl'}"
    session = origin.opened(dialect)
    request = Request(dialect, branch=branches_for(load("dialects", dialect)), out=str(path))
    plan = make_plan(session, request)
    if any(note.what == RESTATED_NOTE.what for note in plan.report.notes):
        return None  # an agent repeats no messages
    carry_out(session, plan)
    path.write_bytes(without_our_data(path.read_bytes(), dialect))
    return Source(dialect, path)


def _is_useful(source: Source) -> bool:
    """Whether a session has no problems, and something to send: Gemini CLI and OpenCode store nothing else."""
    messages = source.opened().context().messages
    turns = (message for message in messages if message.role in ("user", "assistant"))
    return source.is_healthy() and any(to_turn(message, []) is not None for message in turns)


def without_our_data(data: bytes, dialect: Dialect) -> bytes:
    """Remove from a converted session what its agent would not have written."""
    if dialect == "opencode":  # one document
        return render_json(_without_passthrough(parse_object(data)))
    lines = list(map(parse_object, data.splitlines()))
    # The mark in the header of a native session is part of its format.
    kept = [lines.pop(0)] if dialect == "native" else []
    parents: dict[str, Any] = {}
    """Lines that are removed -> their parents."""
    for line in lines:
        if _is_ours(line):
            for id, parent in _LINKS:
                # A line of Neovate that is not in the tree repeats the uuid of the message before it.
                if parent in line:
                    parents[str(line.get(id))] = line[parent]
            continue
        line = _without_passthrough(line)
        for name in _REFERENCES:
            while line.get(name) in parents:
                line[name] = parents[line[name]]
        kept.append(line)
    return b"".join(render_json(line) + b"\n" for line in kept)


def _is_ours(line: dict[str, Any]) -> bool:
    """Whether a line is one that only we write: with passthrough data alone, or with an entry of our own type."""
    return PASSTHROUGH in (line.get("type"), line.get("subtype")) or str(line.get("customType")).startswith(OUR_TYPES)


def _without_passthrough(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_passthrough(each) for name, each in value.items() if name != PASSTHROUGH}
    return [_without_passthrough(each) for each in value] if isinstance(value, list) else value
