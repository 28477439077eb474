"""Lines of Neovate in canonical form, one item for each entry.

Lines are taken in groups that make one entry or stand around the same results: a command with its output, a message of
the role `tool` with what had to wait for it. What a line says beyond canonical form rides along with its item, under
`neovate`: the item is said again, and what the line has more is kept as the difference. A line that repeats what is
told elsewhere (a copy of what a compaction kept, a result that was made up) tells nothing; its id means the item
before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from sessiontree.dialects.canonical import CanonicalEntry
from sessiontree.dialects.contract import IndexedLines
from sessiontree.dialects.neovate.content import Call, calls_of, say, say_result
from sessiontree.dialects.neovate.content_decoder import (
    body_of,
    hear_item,
    hear_result,
    heard_message,
    in_new_form,
    is_command,
    is_output,
)
from sessiontree.dialects.neovate.deltas import difference
from sessiontree.dialects.neovate.metadata_lines import Split, asides_in, marks_of, split_of
from sessiontree.dialects.neovate.records import is_result, own_entry, parts, string
from sessiontree.dialects.neovate.riding import as_it_was, with_extras
from sessiontree.dialects.passthrough import PASSTHROUGH, passthrough_of, restore_entry

_STEP = 256


class _Line(Struct, frozen=True):
    """A line in hand: its node, its fields, and its body without marks of ours."""

    node: int
    id: str
    fields: dict[str, Any]
    body: dict[str, Any]
    marks: dict[str, Any]

    @property
    def timestamp(self) -> str:
        return string(self.fields, "timestamp")


def decode_entries(lines: IndexedLines, nodes: Sequence[int]) -> Iterator[CanonicalEntry]:
    """The items of some nodes of a history."""
    told = _Telling(lines)
    waiting: CanonicalEntry | None = None
    for group in _iter_groups(_iter_lines(lines, nodes)):
        for entry in told.iter_items(group):
            if waiting is not None:
                yield waiting
            waiting = entry
        if waiting is not None and told.silent_ids:
            waiting = msgspec.structs.replace(waiting, aliases=(*waiting.aliases, *told.silent_ids))
    if waiting is not None:
        yield waiting


def must_decode_together(lines: IndexedLines, node: int, child: int) -> bool:
    """Whether a line is told in one group with the one before it, or tells nothing and means the item before."""
    before, line = (_line(lines, *found) for found in zip((node, child), lines.fields([node, child]), strict=True))
    if line.marks.keys() & {"part", "copy", "result"} or _is_made_up(line):
        return True
    if own_entry(line.fields):
        return "result" in line.fields
    return is_output(line.body) and (is_command(before.body) or is_output(before.body))


def _is_made_up(line: _Line) -> bool:
    """Whether no result of a line was given by anyone on this branch."""
    passthroughs = line.marks.get("results")
    return isinstance(passthroughs, list) and all(
        isinstance(passthrough, dict) and _is_silent(passthrough) for passthrough in passthroughs
    )


def _is_silent(passthrough: dict[str, Any]) -> bool:
    """Whether a result was made up, or is told on another branch."""
    return bool(passthrough.get("filler") or passthrough.get("copy"))


def _iter_lines(lines: IndexedLines, nodes: Sequence[int]) -> Iterator[_Line]:
    for start in range(0, len(nodes), _STEP):
        step = nodes[start : start + _STEP]
        for node, fields in zip(step, lines.resolved_fields(step), strict=True):
            yield _line(lines, node, fields)


def _line(lines: IndexedLines, node: int, fields: dict[str, Any]) -> _Line:
    marks = marks_of(fields)
    body = body_of(fields)
    if marks.get("forked"):
        body.pop("forkedFrom", None)
    return _Line(node, lines.tree.ids[node], fields, body, marks)


def _iter_groups(found: Iterator[_Line]) -> Iterator[list[_Line]]:
    group: list[_Line] = []
    for line in found:
        if group and not _joins(group, line):
            yield group
            group = []
        group.append(line)
    if group:
        yield group


def _joins(group: list[_Line], line: _Line) -> bool:
    """Whether a line belongs to the ones before it."""
    first = group[0]
    if "result" in line.marks or (own_entry(line.fields) and "result" in line.fields):
        return first.body.get("role") == "tool"
    if line.marks.get("part"):
        return is_command(first.body)
    # Output of Neovate's own follows its command; a command of ours knows its lines.
    return (
        is_command(first.body)
        and PASSTHROUGH not in first.fields
        and PASSTHROUGH not in line.fields
        and is_output(line.body)
    )


def _waiting_groups(waited: list[_Line]) -> list[list[_Line]]:
    """Lines that waited for results, those of one command together."""
    groups: list[list[_Line]] = []
    for line in waited:
        if groups and line.marks.get("part"):
            groups[-1].append(line)
        else:
            groups.append([line])
    return groups


class _Telling:
    """What has to be known from one group to the next: the calls that results answer."""

    def __init__(self, lines: IndexedLines) -> None:
        self._lines = lines
        self._calls: dict[str, Call] = {}
        self.silent_ids: tuple[str, ...] = ()
        """Ids of the last group's lines that mean its last item, or the one before if it has none."""

    def iter_items(self, group: list[_Line]) -> list[CanonicalEntry]:
        first = group[0]
        self.silent_ids = ()
        split = split_of(first.fields)
        if split is not None:
            return self._before_split(first, split)
        if own_entry(first.fields):
            return [_aside(first)]
        if first.marks.get("copy"):
            self.silent_ids = (first.id,)
            return []
        if any(is_result(part) for part in parts(first.body.get("content"))):
            return self._around_results(group)
        return [self._message(group)]

    def _message(self, group: list[_Line]) -> CanonicalEntry:
        first = group[0]
        bodies = [line.body for line in group]
        is_root = not string(first.fields, "parentUuid")
        heard = hear_item(bodies, first.id, first.timestamp, is_root=is_root)
        heard = msgspec.structs.replace(heard, aliases=tuple(line.id for line in group[1:]))
        if first.body.get("role") == "assistant":
            self._calls = calls_of(first.body)
        entry = as_it_was(heard, passthrough_of(first.fields))
        said = say(entry)
        return with_extras(entry, _extras([] if said is None else said.bodies, bodies))

    # Results

    def _around_results(self, group: list[_Line]) -> list[CanonicalEntry]:
        """The results of a line, and what stood between them when it was written, but for what splits tell of it."""
        told = self._turn(group)
        told = told[max(asides_in(self._lines).splits_of(group[0].id), default=0) :]
        ids = {entry.id for entry in told[:-1]}  # what follows the last line follows the last item, whosever line it is
        self.silent_ids = tuple(line.id for line in group if line is group[-1] or line.id not in ids)
        if len(told) == 1 and told[0].id == group[0].id:
            self.silent_ids = ()
        return told

    def _before_split(self, line: _Line, split: Split) -> list[CanonicalEntry]:
        """The items of a turn that a split tells: those behind the split before it."""
        asides = asides_in(self._lines)
        found = [self._lines.tree.node_of.get(split.of)]
        found += [
            asides.by_id[id].node if id in asides.by_id else self._lines.tree.node_of.get(id) for id in split.lines
        ]
        group = list(_iter_lines(self._lines, [node for node in found if node is not None]))
        before = max((at for at in asides.splits_of(split.of) if at < split.at), default=0)
        told = self._turn(group)[before : split.at] if group else []
        self.silent_ids = (line.id,)
        return told

    def _turn(self, group: list[_Line]) -> list[CanonicalEntry]:
        first, *waited = group
        entries = self._results(first)
        later = [(_position(lines[0]), entry) for lines in _waiting_groups(waited) for entry in self.iter_items(lines)]
        told: list[CanonicalEntry] = []
        for number, entry in enumerate(entries):
            told += [*(other for at, other in later if at == number), entry]
        told += [other for at, other in later if not 0 <= at < len(entries)]
        return told

    def _results(self, line: _Line) -> list[CanonicalEntry]:
        found = parts(line.body.get("content"))
        results = [in_new_form(part) for part in found if is_result(part)]
        rest = [part for part in found if not is_result(part)]
        passthroughs = line.marks.get("results")
        known = (
            passthroughs
            if isinstance(passthroughs, list) and len(passthroughs) == len(results)
            else [{}] * len(results)
        )
        around = {name: value for name, value in line.body.items() if name not in ("role", "content")}
        if not self._calls.keys() >= {string(part, "toolCallId") for part in results}:
            self._calls = calls_before(self._lines, line.node)
        entries: list[CanonicalEntry] = []
        for number, (part, passthrough) in enumerate(zip(results, known, strict=True), 1):
            if isinstance(passthrough, dict) and not _is_silent(passthrough):
                entry = self._result(line, part, passthrough, _numbered(line.id, number))
                entries.append(with_extras(entry, _extras_of_result(self._call(part), entry, part, around)))
                around = {}
        if rest:
            body = {**line.body, "role": "user", "content": rest}
            numbered = msgspec.structs.replace(line, id=_numbered(line.id, len(results) + 1), body=body)
            entries.append(self._message([numbered]))
        return entries

    def _result(self, line: _Line, part: dict[str, Any], passthrough: dict[str, Any], id: str) -> CanonicalEntry:
        return as_it_was(heard_message(hear_result(part), id, line.timestamp), passthrough)

    def _call(self, part: dict[str, Any]) -> Call:
        return self._calls.get(string(part, "toolCallId"), Call())


def calls_before(lines: IndexedLines, node: int) -> dict[str, Call]:
    """The calls that a line of results may answer: those of the assistant above it, other results between them."""
    above = lines.tree.parent(node)
    seen: set[int] = set()
    while above is not None and above not in seen:
        seen.add(above)
        (fields,) = lines.fields([above])
        if fields.get("role") == "assistant":
            return calls_of(fields)
        if not any(is_result(part) for part in parts(fields.get("content"))):
            break
        above = lines.tree.parent(above)
    return {}


def open_calls(lines: IndexedLines, node: int) -> dict[str, Call]:
    """The calls that nothing on the way to a node has answered, if it is an answer or one of its results."""
    (fields,) = lines.fields([node])
    if fields.get("role") == "assistant":
        return calls_of(fields)
    answered: set[str] = set()
    calls = calls_before(lines, node)
    at: int | None = node
    while calls and at is not None:
        (fields,) = lines.fields([at])
        if fields.get("role") == "assistant":
            break
        answered |= {
            string(in_new_form(part), "toolCallId") for part in parts(fields.get("content")) if is_result(part)
        }
        at = lines.tree.parent(at)
    return {id: call for id, call in calls.items() if id not in answered}


def _aside(line: _Line) -> CanonicalEntry:
    """The entry on a line of our own."""
    inside = own_entry(line.fields)
    fields = {name: value for name, value in inside.items() if name != "type"}
    id = string(line.fields, "id")
    entry = CanonicalEntry(inside["type"], fields, id or line.id, line.timestamp, (line.id,) if id else ())
    passthrough = passthrough_of(line.fields)
    return restore_entry(entry, passthrough) if passthrough else entry


def _extras(said: list[dict[str, Any]], bodies: list[dict[str, Any]]) -> dict[str, Any]:
    """What some lines say beyond their item."""
    if len(said) != len(bodies):
        return {"bodies": bodies} if said else {}
    deltas = [difference(*pair) for pair in zip(said, bodies, strict=True)]
    return {"lines": deltas} if any(delta is not None for delta in deltas) else {}


def _extras_of_result(
    call: Call, entry: CanonicalEntry, part: dict[str, Any], around: dict[str, Any]
) -> dict[str, Any]:
    message = entry.fields.get("message")
    said = say_result(message, call).bodies if isinstance(message, dict) else []
    return _extras(said, [part]) | ({"around": around} if around else {})


def _numbered(id: str, number: int) -> str:
    return id if number == 1 else f"{id}.{number}"


def _position(line: _Line) -> int:
    """How many results a line stood behind; -1 when it does not say."""
    found = line.fields.get("result") if own_entry(line.fields) else line.marks.get("result")
    return found if isinstance(found, int) and not isinstance(found, bool) else -1
