"""A damaged line to the records and the damage in it.

Programs that die or race while writing leave several shapes behind: two records on one line, the stub of a record
with a whole record glued to it, runs of NUL bytes where a file system lost a page, a line cut short. `salvage` finds
every record that is still whole and names the bytes between them. It decides nothing about their meaning: whether an
object is a record at all is for the dialect to say.

The time it takes is linear in the line's length, whatever the line holds: each failed attempt is charged against a
budget, and when that is spent the rest is damage.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Literal

from msgspec import Struct

from sessiontree.core.jsonio import parse_json, tolerant_decoder

PieceKind = Literal["record", "value", "nul-run", "bom", "damage"]

BOM = b"\xef\xbb\xbf"

# Scanning happens on the bytes as Latin-1 text: one character a byte, so offsets stay true and bad UTF-8 is read over.
_blank = re.compile(r"[ \t\r\n]*")
_nuls = re.compile(r"[\x00 \t\r\n]*\x00[\x00 \t\r\n]*")
_object_start = re.compile(r'\{\s*"')
# What follows an object that is a part of another one: such an object may look like a record, but is only quoted.
_inside = re.compile(r"\s*[,\]}]")
_WINDOWS = (4096, 256 * 1024, 0)
_LONGEST_TOKEN = 16
_COST_OF_ERROR = 64
_BUDGET_PER_BYTE = 16
_FREE_BUDGET = 1 << 20


class Piece(Struct, frozen=True):
    """A run of bytes in a line: a whole record with its decoded fields, a lone value, or what is left."""

    start: int
    end: int
    kind: PieceKind
    value: Any = None


def salvage(raw: bytes, is_record: Callable[[dict[str, Any]], bool]) -> list[Piece]:
    """Cut a line into records and damage, in order; white space between them belongs to neither."""
    text = raw.decode("latin-1")
    pieces: list[Piece] = []
    budget = _BUDGET_PER_BYTE * len(text) + _FREE_BUDGET
    at = 0
    if raw.startswith(BOM):
        pieces.append(Piece(0, len(BOM), "bom"))
        at = len(BOM)
    while True:
        nuls = _nuls.match(text, at)
        if nuls:
            pieces.append(Piece(at, nuls.end(), "nul-run"))
            at = nuls.end()
        at = _end_of(_blank, text, at)
        if at >= len(text):
            return pieces
        end, _, value = _try(text, at)
        if isinstance(value, dict):
            pieces.append(_record(raw, at, end))
            at = end
            continue
        if end and not pieces and _end_of(_blank, text, end) == len(text):
            pieces.append(Piece(at, end, "value", value))
            return pieces
        start, budget = _next_record(text, at + 1, is_record, budget)
        pieces.extend(_damage(text, at, start))
        at = start


def _record(raw: bytes, start: int, end: int) -> Piece:
    try:
        return Piece(start, end, "record", parse_json(raw[start:end]))
    except ValueError:  # nested so deeply that it decodes here and not there
        return Piece(start, end, "damage")


def _end_of(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at


def _try(text: str, at: int) -> tuple[int, int, Any]:
    """Decode at a place: (its end, what it cost, the value), with end 0 when there is no JSON value.

    Tried on a small part of the line first, then on larger ones: most attempts fail within a few characters, and a
    decoder's error costs as much as all that is before it.
    """
    cost = 0
    for window in _WINDOWS:
        part = text[at : at + window] if window else text[at:]
        is_rest = at + len(part) == len(text)
        try:
            value, end = tolerant_decoder().raw_decode(part)
        except json.JSONDecodeError as error:
            cost += error.pos + _COST_OF_ERROR
            ran_out = error.pos >= len(part) - _LONGEST_TOKEN or error.msg.startswith("Unterminated")
            if error.msg.startswith("Unterminated"):
                cost += len(part) - error.pos
            if is_rest or not ran_out:
                return 0, cost, None
        except RecursionError:
            return 0, cost + len(part), None
        else:
            return at + end, cost + end, value
    return 0, cost, None


def _next_record(text: str, at: int, is_record: Callable[[dict[str, Any]], bool], budget: int) -> tuple[int, int]:
    """The next place where a whole record starts (or the end of the line), and what is left of the budget."""
    while budget > 0:
        candidate = _object_start.search(text, at)
        if candidate is None:
            break
        at = candidate.start()
        end, cost, value = _try(text, at)
        budget -= cost
        if isinstance(value, dict) and is_record(value) and not _inside.match(text, end):
            return at, budget
        at = end or at + 1  # inside a whole object that is no record there is no record either
    return len(text), budget


def _damage(text: str, start: int, end: int) -> list[Piece]:
    """Bytes between records, with a run of NULs at their end told apart."""
    stripped = text[start:end].rstrip("\x00 \t\r\n")
    cut = start + len(stripped)
    pieces = [Piece(start, cut, "damage")] if cut > start else []
    if "\x00" in text[cut:end]:
        pieces.append(Piece(cut, end, "nul-run"))
    return pieces
