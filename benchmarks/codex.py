"""Benchmarks of Codex's rollouts: open and context against json.loads, and memory where compactions repeat the history.

Rollouts of tens of gigabytes exist. Most of one is `compacted` records, each with the whole history that replaces what
was before it. So memory must not grow with their number.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, BinaryIO

from msgspec import Struct

from benchmarks.claude import open_and_decode, open_and_peek
from benchmarks.generate import generated_file, scratch_folder
from benchmarks.results import Outcome, Result, Skipped, megabytes, milliseconds
from benchmarks.texts import Texts
from benchmarks.timing import best_of, peak_memory

_OPEN = "import sys, sessiontree; context = sessiontree.open(sys.argv[1]).context(); context.messages[-1]"
_IMPORT = "import sessiontree"
_TIME = "2026-01-05T08:00:00.000Z"
_THREAD = "019c0001-0000-7000-8000-000000000001"
_GIGABYTE = 1_000_000_000


class RolloutShape(Struct, frozen=True):
    """The size of a rollout, and the size of the history in each `compacted` record; 0 for none."""

    size: int = 100_000_000
    compacted: int = 0
    seed: int = 1


def rollout(shape: RolloutShape) -> Path:
    """The rollout of a shape; generated on first use."""
    return generated_file("rollout", __file__, shape, write_rollout)


def write_rollout(file: BinaryIO, shape: RolloutShape) -> None:
    """Turns with a prompt, reasoning, a call with its result and an answer, as Codex writes them in legacy mode."""
    texts = Texts(Random(shape.seed))
    meta = {"id": _THREAD, "timestamp": _TIME, "cwd": "/work", "originator": "x", "cli_version": "0.166.0"}
    written = file.write(_line("session_meta", {**meta, "source": "cli"}))
    number = 0
    while written < shape.size:
        number += 1
        for kind, payload in _turn(texts, number):
            written += file.write(_line(kind, payload))
        if shape.compacted:
            history = [_message("user", texts.prose(4000)) for _ in range(shape.compacted // 4000)]
            written += file.write(_line("compacted", {"message": "So far.", "replacement_history": history}))


def _turn(texts: Texts, number: int) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "event_msg", {"type": "task_started", "turn_id": f"turn-{number}", "model_context_window": 258_400}
    yield "turn_context", {"turn_id": f"turn-{number}", "cwd": "/work", "approval_policy": "never", "model": "any"}
    yield "response_item", _message("user", texts.prose(300))
    summary = [{"type": "summary_text", "text": texts.prose(200)}]
    secret = {"encrypted_content": texts.signature(1200)}
    yield "response_item", {"type": "reasoning", "id": f"rs_{number}", "summary": summary, **secret}
    arguments = json.dumps({"cmd": texts.code(200)})
    call = {"name": "exec_command", "arguments": arguments, "call_id": f"call_{number}"}
    yield "response_item", {"type": "function_call", "id": f"fc_{number}", **call}
    output = texts.output(4000)
    yield "response_item", {"type": "function_call_output", "call_id": f"call_{number}", "output": output}
    answer = texts.prose(800)
    yield "response_item", _message("assistant", answer)
    yield "event_msg", {"type": "agent_message", "message": answer}
    used = {"input_tokens": 100, "cached_input_tokens": 0, "output_tokens": 20, "total_tokens": 120}
    yield "event_msg", {"type": "token_count", "info": {"last_token_usage": used, "total_token_usage": used}}


def _message(role: str, text: str) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def _line(kind: str, payload: dict[str, Any]) -> bytes:
    return json.dumps({"timestamp": _TIME, "type": kind, "payload": payload}, ensure_ascii=False).encode() + b"\n"


def load_rollout(path: Path) -> list[Any]:
    """Decode every line with json.loads, and keep the items."""
    with open(path, "rb") as file:
        lines = [json.loads(line) for line in file]
    return [line["payload"] for line in lines if line["type"] == "response_item"]


def against_loader(rounds: int) -> list[Result]:
    """Open + context of 100 MB costs at most a third of decoding every line, and 60 MB more than the interpreter."""
    path = rollout(RolloutShape())
    best = best_of(
        rounds,
        {
            "ours": lambda: open_and_peek(path),
            "all": lambda: open_and_decode(path),
            "theirs": lambda: load_rollout(path),
        },
    )
    compared = milliseconds(best["theirs"])
    name = "Codex, 100 MB, against a json.loads loader"
    before = peak_memory(_IMPORT)
    over = peak_memory(_OPEN, path) - before
    about = f"{megabytes(before)} for the interpreter and the package"
    return [
        Result(name, milliseconds(best["ours"]), compared, best["ours"] / best["theirs"], bound=0.33),
        Result(f"{name}, every message decoded", milliseconds(best["all"]), compared, best["all"] / best["theirs"]),
        Result("Codex, 100 MB, memory over the interpreter", megabytes(over), about, over / 1e6, bound=60, unit="MB"),
    ]


def repeated_compactions(rounds: int) -> list[Outcome]:  # noqa: ARG001 - memory is not noisy
    """Open + context of rollouts that are mostly `compacted` records: at most 150 MB, whatever their size."""
    return [_peak(size) for size in (1, 5)]


def _peak(gigabytes: int) -> Outcome:
    shape = RolloutShape(gigabytes * _GIGABYTE, compacted=4_000_000)
    name = f"Codex, {gigabytes} GB of repeated compactions, peak memory"
    if shutil.disk_usage(scratch_folder()).free < 2 * shape.size:
        return Skipped(name, f"needs {2 * gigabytes} GB of free disk")
    peak = peak_memory(_OPEN, rollout(shape))
    return Result(name, megabytes(peak), "nothing", peak / 1e6, bound=150, unit="MB")
