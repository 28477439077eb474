"""Find the complete records in a damaged line.

Programs that die or race while writing leave several kinds of damage: two records on one line, the start of a record
directly before a complete record, a truncated line, or a run of NUL bytes where a file system lost a page. `salvage`
finds every complete record and classifies the bytes between them. The dialect decides which objects are records.

The time is linear in the length of the line, whatever it contains: each failed attempt uses part of a budget, and when
the budget is exhausted, the rest of the line counts as damage.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Literal

import msgspec
from msgspec import Struct

from sessiontree.core.jsonio import parse_json, structural_error, tolerant_decoder

PieceKind = Literal["record", "value", "nul-run", "bom", "damage"]

BOM = b"\xef\xbb\xbf"

# The bytes are scanned as Latin-1 text: one character per byte, so character offsets are byte offsets, and invalid
# UTF-8 does not stop the JSON decoder.
_BLANKS = b" \t\r\n"
_BLANK = re.compile(r"[ \t\r\n]*")
_NULS = re.compile(r"[\x00 \t\r\n]*\x00[\x00 \t\r\n]*")
# An object starts with a key. Reject a short first string without a colon after it here: a decoding error takes much
# longer than this check.
_KEY = r'"(?![^"\\]{0,64}(?:"\s*(?:[^:\s]|\Z)|\Z))'
_OBJECT_START = re.compile(rf"\{{\s*{_KEY}")
# Matches what follows an object nested in another one. Such an object may look like a record: agents often print
# session files in tool output. But it is only data of the enclosing object, which is damaged.
_INSIDE_ANOTHER = re.compile(r"\s*[,\]}]")
# Matches the beginning of a JSON value that is not an object.
_OTHER_VALUE = re.compile(r'["\[\-0-9]|true|false|null|NaN|Infinity')
_VALUE_START = re.compile(rf"\{{\s*(?:}}|{_KEY})|{_OTHER_VALUE.pattern}")
# Sizes of the slices given to the decoder, 0 for the rest of the line: see `_try_decode`.
_WINDOWS = (4096, 256 * 1024, 0)
_LONGEST_TOKEN = 16
_ERROR_COST = 64
_BUDGET_PER_BYTE = 16
_FREE_BUDGET = 1 << 20
_MAX_BUDGET = 100_000_000
"""About five seconds. Only lines of more than 6 MB that consist of broken objects use it up."""


_decode = msgspec.json.Decoder().decode


class Piece(Struct, frozen=True):
    """A run of bytes in a line: a complete record with its decoded fields, another JSON value, or damage."""

    start: int
    end: int
    kind: PieceKind
    value: Any = None


class _Attempt(Struct, frozen=True):
    """An attempt to decode a value."""

    end: int
    """Where the value ends; 0 if there is none."""
    cost: int
    value: Any = None
    is_exact: bool = False
    """Whether the value was decoded from bytes, and not from Latin-1 text."""


_NOTHING = _Attempt(0, 0)


def salvage(raw: bytes, is_record: Callable[[dict[str, Any]], bool]) -> list[Piece]:
    """Split a line into records and damage, in order; whitespace between them belongs to neither."""
    text = raw.decode("latin-1")
    pieces: list[Piece] = []
    budget = min(_BUDGET_PER_BYTE * len(text) + _FREE_BUDGET, _MAX_BUDGET)
    at = 0
    if raw.startswith(BOM):
        pieces.append(Piece(0, len(BOM), "bom"))
        at = len(BOM)
    while True:
        nuls = _NULS.match(text, at)
        if nuls:
            pieces.append(Piece(at, nuls.end(), "nul-run"))
            at = nuls.end()
        at = _end_of(_BLANK, text, at)
        if at >= len(text):
            return pieces
        if text.find("}", at) < 0 and not _OTHER_VALUE.match(text, at):  # no record ends here, the most common damage
            pieces.extend(_damage(text, at, len(text)))
            return pieces
        # A decoding error takes longer than everything else, so avoid it where the first bytes predict it.
        found = _try_decode(raw, text, at) if _VALUE_START.match(text, at) else _NOTHING
        if isinstance(found.value, dict):
            pieces.append(_record(raw, at, found))
            at = found.end
            continue
        if found.end and not pieces and _end_of(_BLANK, text, found.end) == len(text):
            pieces.append(Piece(at, found.end, "value", found.value))  # a number or a list, and nothing else
            return pieces
        start, found, budget = _next_record(raw, text, at + 1, is_record, budget)
        pieces.extend(_damage(text, at, start))
        at = start
        if found.end:
            pieces.append(_record(raw, start, found))
            at = found.end


def _record(raw: bytes, start: int, found: _Attempt) -> Piece:
    if found.is_exact:
        return Piece(start, found.end, "record", found.value)
    try:
        return Piece(start, found.end, "record", parse_json(raw[start : found.end]))
    except ValueError:  # nested so deeply that only one of the two decoders accepts it
        return Piece(start, found.end, "damage")


def _end_of(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at


def _try_decode(raw: bytes, text: str, at: int) -> _Attempt:
    """Try to decode a JSON value at an offset."""
    # Most damage lacks a delimiter. The strict decoder reports that in a quarter of the tolerant one's time.
    start = raw[at : at + _WINDOWS[0]]
    try:
        value = _decode(start)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        failed = structural_error(error, start)
        if failed is not None:
            return _Attempt(0, failed + _ERROR_COST)
    else:
        if at + len(start) == len(raw) and isinstance(value, dict):
            return _Attempt(at + len(start.rstrip(_BLANKS)), len(start), value, is_exact=True)
    # A decoding error computes line and column from all the text before it. Most attempts fail within a few
    # characters, so a small slice is tried first, and a larger one only if the value did not fit into it.
    cost = 0
    for window in _WINDOWS:
        part = text[at : at + window] if window else text[at:]
        is_rest = at + len(part) == len(text)
        try:
            value, end = tolerant_decoder().raw_decode(part)
        except json.JSONDecodeError as error:
            cost += error.pos + _ERROR_COST
            ran_out = error.pos >= len(part) - _LONGEST_TOKEN or error.msg.startswith("Unterminated")
            if error.msg.startswith("Unterminated"):
                cost += len(part) - error.pos
            if is_rest or not ran_out:
                return _Attempt(0, cost)
        except RecursionError:
            return _Attempt(0, cost + len(part))
        else:
            return _Attempt(at + end, cost + end, value)
    return _Attempt(0, cost)


def _next_record(
    raw: bytes, text: str, at: int, is_record: Callable[[dict[str, Any]], bool], budget: int
) -> tuple[int, _Attempt, int]:
    """Start of the next complete record (or the end of the line), the record, and the remaining budget."""
    while budget > 0:
        candidate = _OBJECT_START.search(text, at)
        if candidate is None:
            break
        at = candidate.start()
        found = _try_decode(raw, text, at)
        budget -= found.cost
        if isinstance(found.value, dict) and is_record(found.value) and not _INSIDE_ANOTHER.match(text, found.end):
            return at, found, budget
        at = found.end or at + 1  # a complete object that is not a record does not contain records either
    return len(text), _NOTHING, budget


def _damage(text: str, start: int, end: int) -> list[Piece]:
    """Classify the bytes between records; a run of NULs at their end is a separate piece."""
    stripped = text[start:end].rstrip("\x00 \t\r\n")
    cut = start + len(stripped)
    pieces = [Piece(start, cut, "damage")] if cut > start else []
    if "\x00" in text[cut:end]:
        pieces.append(Piece(cut, end, "nul-run"))
    return pieces
