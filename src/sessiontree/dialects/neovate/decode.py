"""Decode Neovate's lines into canonical entries.

Lines are decoded in groups that form one entry or belong to the same results: a command with its output, or a message
of the role `tool` with the lines that had to wait for it. To preserve fields beyond the canonical form, the entry is
encoded again, and its difference to the lines is carried under `neovate`. A line that only repeats something (a copy of
a kept message, a generated result) decodes to nothing; its id becomes an alias of the entry before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from sessiontree.core.ids import iso_time
from sessiontree.dialects.canonical import CanonicalEntry
from sessiontree.dialects.contract import IndexedLines
from sessiontree.dialects.defaults import iter_resolved
from sessiontree.dialects.neovate.content import (
    Call,
    body_of,
    calls_of,
    decode_bodies,
    decode_result,
    encode_entry,
    encode_result,
    is_command,
    is_output,
    message_entry,
    normalize_result,
)
from sessiontree.dialects.neovate.metadata_lines import (
    MARKS,
    Split,
    find_metadata_lines,
    marks_in,
    marks_of,
    parse_split,
)
from sessiontree.dialects.neovate.records import is_result, metadata_entry, parts, string
from sessiontree.dialects.passthrough import PASSTHROUGH, json_delta, passthrough_of, restore_entry, with_carried_data


class _Line(Struct, frozen=True):
    """A decoded line: its node, its fields, and its body without our marks."""

    node: int
    id: str
    fields: dict[str, Any]
    body: dict[str, Any]
    marks: dict[str, Any]

    @property
    def timestamp(self) -> str:
        return iso_time(self.fields.get("timestamp"))


def decode_entries(lines: IndexedLines, nodes: Sequence[int]) -> Iterator[CanonicalEntry]:
    decoder = _GroupDecoder(lines)
    waiting: CanonicalEntry | None = None  # the last entry, because a later line may add an alias to it
    for group in _iter_groups(_iter_lines(lines, nodes)):
        for entry in decoder.decode_group(group):
            if waiting is not None:
                yield waiting
            waiting = entry
        if waiting is not None and decoder.alias_ids:
            waiting = msgspec.structs.replace(waiting, aliases=(*waiting.aliases, *decoder.alias_ids))
    if waiting is not None:
        yield waiting


def must_decode_together(lines: IndexedLines, node: int, child: int) -> bool:
    """Whether a line is in one group with the line before it, or is only an alias of the entry before."""
    before, line = (_line(lines, *found) for found in zip((node, child), lines.fields([node, child]), strict=True))
    if line.marks.keys() & {"part", "copy", "result"} or _has_only_fillers(line):
        return True
    if metadata_entry(line.fields):
        return "result" in line.fields
    return is_output(line.body) and (is_command(before.body) or is_output(before.body))


def _has_only_fillers(line: _Line) -> bool:
    """Whether all results of a line are generated or copied from another branch."""
    passthroughs = line.marks.get("results")
    return isinstance(passthroughs, list) and all(
        isinstance(passthrough, dict) and _is_filler(passthrough) for passthrough in passthroughs
    )


def _is_filler(passthrough: dict[str, Any]) -> bool:
    """Whether a result is generated, or a copy of one on another branch."""
    return bool(passthrough.get("filler") or passthrough.get("copy"))


def _iter_lines(lines: IndexedLines, nodes: Sequence[int]) -> Iterator[_Line]:
    for node, fields in iter_resolved(lines, nodes):
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
        if group and not _belongs_to(group, line):
            yield group
            group = []
        group.append(line)
    if group:
        yield group


def _belongs_to(group: list[_Line], line: _Line) -> bool:
    """Whether a line belongs to the group before it."""
    first = group[0]
    if "result" in line.marks or (metadata_entry(line.fields) and "result" in line.fields):
        return first.body.get("role") == "tool"
    if line.marks.get("part"):
        return is_command(first.body)
    # Output that Neovate wrote follows its command; on our own lines, `part` marks it.
    return (
        is_command(first.body)
        and PASSTHROUGH not in first.fields
        and PASSTHROUGH not in line.fields
        and is_output(line.body)
    )


def _waiting_groups(waiting: list[_Line]) -> list[list[_Line]]:
    """Group the lines that wait for results; the lines of one command form one group."""
    groups: list[list[_Line]] = []
    for line in waiting:
        if groups and line.marks.get("part"):
            groups[-1].append(line)
        else:
            groups.append([line])
    return groups


class _GroupDecoder:
    """Decodes one group after the other, and remembers the tool calls that later results answer."""

    def __init__(self, lines: IndexedLines) -> None:
        self._lines = lines
        self._calls: dict[str, Call] = {}
        self.alias_ids: tuple[str, ...] = ()
        """Ids of the last group's lines that are aliases of its last entry, or of the one before if it has none."""

    def decode_group(self, group: list[_Line]) -> list[CanonicalEntry]:
        first = group[0]
        self.alias_ids = ()
        split = parse_split(first.fields)
        if split is not None:
            return self._decode_split(first, split)
        if metadata_entry(first.fields):
            return [_decode_metadata(first)]
        if first.marks.get("copy"):
            self.alias_ids = (first.id,)
            return []
        if any(is_result(part) for part in parts(first.body.get("content"))):
            return self._decode_results_group(group)
        return [self._message(group)]

    def _message(self, group: list[_Line]) -> CanonicalEntry:
        first = group[0]
        bodies = [line.body for line in group]
        is_root = not string(first.fields, "parentUuid")
        decoded = decode_bodies(bodies, first.id, first.timestamp, is_root=is_root)
        decoded = msgspec.structs.replace(decoded, aliases=tuple(line.id for line in group[1:]))
        if first.body.get("role") == "assistant":
            self._calls = calls_of(first.body)
        entry = _restore(decoded, passthrough_of(first.fields))
        encoded = encode_entry(entry)
        return with_carried_data(entry, MARKS, _client_data([] if encoded is None else encoded.bodies, bodies))

    # Results

    def _decode_results_group(self, group: list[_Line]) -> list[CanonicalEntry]:
        """Decode the results of a line and the entries between them, except for those that splits decode to."""
        decoded = self._decode_turn(group)
        decoded = decoded[max(find_metadata_lines(self._lines).splits_of(group[0].id), default=0) :]
        # The next line follows the last entry, whichever line that was decoded from.
        ids = {entry.id for entry in decoded[:-1]}
        self.alias_ids = tuple(line.id for line in group if line is group[-1] or line.id not in ids)
        if len(decoded) == 1 and decoded[0].id == group[0].id:
            self.alias_ids = ()
        return decoded

    def _decode_split(self, line: _Line, split: Split) -> list[CanonicalEntry]:
        """Decode the entries of a turn that belong to a split: those after the split before it."""
        metadata = find_metadata_lines(self._lines)
        found = [self._lines.tree.node_of.get(split.of)]
        found += [
            metadata.by_id[id].node if id in metadata.by_id else self._lines.tree.node_of.get(id) for id in split.lines
        ]
        group = list(_iter_lines(self._lines, [node for node in found if node is not None]))
        before = max((at for at in metadata.splits_of(split.of) if at < split.at), default=0)
        decoded = self._decode_turn(group)[before : split.at] if group else []
        self.alias_ids = (line.id,)
        return decoded

    def _decode_turn(self, group: list[_Line]) -> list[CanonicalEntry]:
        first, *waiting = group
        entries = self._results(first)
        later = [
            (_position(lines[0]), entry) for lines in _waiting_groups(waiting) for entry in self.decode_group(lines)
        ]
        decoded: list[CanonicalEntry] = []
        for number, entry in enumerate(entries):
            decoded += [*(other for at, other in later if at == number), entry]
        decoded += [other for at, other in later if not 0 <= at < len(entries)]
        return decoded

    def _results(self, line: _Line) -> list[CanonicalEntry]:
        found = parts(line.body.get("content"))
        results = [normalize_result(part) for part in found if is_result(part)]
        rest = [part for part in found if not is_result(part)]
        passthroughs = line.marks.get("results")
        known = (
            passthroughs
            if isinstance(passthroughs, list) and len(passthroughs) == len(results)
            else [{}] * len(results)
        )
        line_fields = {name: value for name, value in line.body.items() if name not in ("role", "content")}
        if not self._calls.keys() >= {string(part, "toolCallId") for part in results}:
            self._calls = calls_before(self._lines, line.node)
        entries: list[CanonicalEntry] = []
        for number, (part, passthrough) in enumerate(zip(results, known, strict=True), 1):
            if isinstance(passthrough, dict) and not _is_filler(passthrough):
                entry = self._result(line, part, passthrough, _numbered(line.id, number))
                entries.append(
                    with_carried_data(entry, MARKS, _result_client_data(self._call(part), entry, part, line_fields))
                )
                line_fields = {}
        if rest:
            body = {**line.body, "role": "user", "content": rest}
            numbered = msgspec.structs.replace(line, id=_numbered(line.id, len(results) + 1), body=body)
            entries.append(self._message([numbered]))
        return entries

    def _result(self, line: _Line, part: dict[str, Any], passthrough: dict[str, Any], id: str) -> CanonicalEntry:
        return _restore(message_entry(decode_result(part), id, line.timestamp), passthrough)

    def _call(self, part: dict[str, Any]) -> Call:
        return self._calls.get(string(part, "toolCallId"), Call())


def calls_before(lines: IndexedLines, node: int) -> dict[str, Call]:
    """The calls that a line of results may answer: those of the response above it, skipping other results."""
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
    """The unanswered calls at a node that is a response or one of its results."""
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
            string(normalize_result(part), "toolCallId") for part in parts(fields.get("content")) if is_result(part)
        }
        at = lines.tree.parent(at)
    return {id: call for id, call in calls.items() if id not in answered}


def _decode_metadata(line: _Line) -> CanonicalEntry:
    """The entry on one of our metadata lines."""
    inside = metadata_entry(line.fields)
    fields = {name: value for name, value in inside.items() if name != "type"}
    id = string(line.fields, "id")
    entry = CanonicalEntry(inside["type"], fields, id or line.id, line.timestamp, (line.id,) if id else ())
    passthrough = passthrough_of(line.fields)
    return restore_entry(entry, passthrough) if passthrough else entry


def _restore(decoded: CanonicalEntry, passthrough: dict[str, Any]) -> CanonicalEntry:
    """Restore the entry that a line was encoded from."""
    marks = marks_in(passthrough)
    found = {name: value for name, value in passthrough.items() if name != MARKS}
    entry = restore_entry(decoded, found | _older_parts(decoded, marks))
    timestamp = marks.get("timestamp")
    return msgspec.structs.replace(entry, timestamp=timestamp) if isinstance(timestamp, str) else entry


def _older_parts(decoded: CanonicalEntry, marks: dict[str, Any]) -> dict[str, Any]:
    """Parts of passthrough data that older versions stored among the marks."""
    found: dict[str, Any] = {name: marks[name] for name in ("blocks", "order") if name in marks}
    if marks.get("plain") is True:
        found["text"] = True
    if "without" in marks:
        found["without"] = {"message" if "message" in decoded.fields else "item": marks["without"]}
    return found


def _client_data(encoded: list[dict[str, Any]], bodies: list[dict[str, Any]]) -> dict[str, Any]:
    """The difference between some lines and the lines that their entry would be encoded to."""
    if len(encoded) != len(bodies):
        return {"bodies": bodies} if encoded else {}
    deltas = [json_delta(*pair) for pair in zip(encoded, bodies, strict=True)]
    return {"lines": deltas} if any(delta is not None for delta in deltas) else {}


def _result_client_data(
    call: Call, entry: CanonicalEntry, part: dict[str, Any], line_fields: dict[str, Any]
) -> dict[str, Any]:
    message = entry.fields.get("message")
    encoded = encode_result(message, call).bodies if isinstance(message, dict) else []
    return _client_data(encoded, [part]) | ({"around": line_fields} if line_fields else {})


def _numbered(id: str, number: int) -> str:
    return id if number == 1 else f"{id}.{number}"


def _position(line: _Line) -> int:
    """Number of results before a line; -1 if unknown."""
    found = line.fields.get("result") if metadata_entry(line.fields) else line.marks.get("result")
    return found if isinstance(found, int) and not isinstance(found, bool) else -1
