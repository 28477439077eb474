"""Decode a history into canonical entries: group the lines of each entry, which `decode_lines` then decodes.

The shards of a response are one entry, followed by its results; only lines that the model does not receive may come
between them. A shell command and its output are one entry, and so are a boundary and its summary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from sessiontree.core.entries import MESSAGE_TYPES
from sessiontree.dialects.canonical import CanonicalEntry
from sessiontree.dialects.claude import decode_lines
from sessiontree.dialects.claude.boundaries import Preserved, find_leaf_before, find_preserved
from sessiontree.dialects.claude.chain import Chain
from sessiontree.dialects.claude.decode_lines import CommonFields
from sessiontree.dialects.claude.history import find_earlier_history
from sessiontree.dialects.claude.index import LineSummary
from sessiontree.dialects.claude.path import find_earlier_path
from sessiontree.dialects.claude.records import PLAIN, Fields, is_tool_result, object_in, string_in
from sessiontree.dialects.contract import AS_CLIENT, IndexedLines, is_metadata_id
from sessiontree.dialects.defaults import iter_resolved
from sessiontree.dialects.passthrough import PART, PASSTHROUGH, passthrough_of

_LOOKAHEAD = 2
"""Maximum lines of one entry, except for responses: a command and its output, a boundary and its summary."""

_Line: TypeAlias = tuple[int, Fields]


class _Group(Struct, frozen=True):
    """An entry and the nodes of its lines."""

    entry: CanonicalEntry
    nodes: tuple[int, ...]

    @property
    def is_in_context(self) -> bool:
        return self.entry.kind in MESSAGE_TYPES

    @property
    def role(self) -> object:
        return object_in(self.entry.fields, "message").get("role")


def decode_entries(lines: IndexedLines, nodes: Sequence[int]) -> Iterator[CanonicalEntry]:
    """Decode the nodes of a history."""
    for group in _Decoder(lines).groups(nodes):
        yield group.entry


def find_common_fields(lines: IndexedLines) -> CommonFields:
    """Return the common fields of a session: those of its first chain line."""
    first = next((node for node, id in enumerate(lines.tree.ids) if not is_metadata_id(id)), None)
    return CommonFields() if first is None else CommonFields.of(lines.fields([first])[0])


def must_decode_together(lines: IndexedLines, node: int, child: int) -> bool:
    """Whether a line that follows another in a history may be part of the same entry, or a result of its calls."""
    if is_metadata_id(lines.tree.ids[child]) or lines.types[child] != "message":
        return True
    by_summary = _compare_summaries(lines, node, child)
    if by_summary is not None:
        return by_summary
    line, next_line = lines.fields([node, child])
    if next_line.get("type") == "assistant":
        if line.get("type") == "assistant":
            return _response_id(line) == _response_id(next_line) != ""
        return not _is_prompt(lines.types[node], line)  # a shard may follow results, and lines outside the context
    if _is_prompt("message", next_line):
        is_part = PART in passthrough_of(next_line)
        return lines.types[node] == "compaction" or decode_lines.is_command_input(line) or is_part
    return True


def _compare_summaries(lines: IndexedLines, node: int, child: int) -> bool | None:
    """Decide by the summaries created at open, without reading the lines; None when those do not suffice."""
    first, second = lines.notes[node], lines.notes[child]
    if not isinstance(second, LineSummary) or not isinstance(first, LineSummary):
        return None
    if not first.is_message or second.is_prompt:
        return None
    if not second.is_assistant:
        return True
    return first.response == second.response != "" if first.is_assistant else not first.is_prompt


def _is_prompt(kind: str, line: Fields) -> bool:
    return kind == "message" and line.get("type") not in ("assistant", PASSTHROUGH) and not _has_results(line)


def _response_id(line: Fields) -> str:
    return string_in(object_in(line, "message"), "id") or ""


def _has_results(line: Fields) -> bool:
    content = object_in(line, "message").get("content")
    return line.get("type") == "user" and isinstance(content, list) and any(map(is_tool_result, content))


def _find_tool_names(chain: Chain) -> dict[str, str]:
    """Return the tool of each call in a transcript."""
    nodes = [node for node, kind in enumerate(chain.types) if kind == "message" and chain.is_in_tree(node)]
    chain.load_summaries(nodes)
    summaries = (chain.summary(node) for node in nodes)
    return {call: tool for found in summaries for call, tool in zip(found.calls, found.tools, strict=True)}


class _Decoder:
    """Decodes lines in order. Holds back a response until no more shards of it can follow."""

    def __init__(self, lines: IndexedLines, *, finds_kept: bool = True) -> None:
        self._lines = lines
        self._finds_kept = finds_kept
        """Whether to find out what a compaction kept, which requires decoding the lines before it."""
        self._common = find_common_fields(lines)
        self._tool_names: dict[str, str] = {}
        self._shards: list[_Line] = []
        self._after_shards: list[_Group] = []

    def groups(self, nodes: Sequence[int]) -> Iterator[_Group]:
        last: _Group | None = None
        for found in self._iter_groups(nodes):
            if isinstance(found, _Group):
                if last is not None:
                    yield last
                last = found
            elif last is not None:  # a line without content of its own that belongs to the entry before it
                entry = replace(last.entry, aliases=(*last.entry.aliases, self._lines.tree.ids[found]))
                last = _Group(entry, (*last.nodes, found))
        if last is not None:
            yield last

    def _iter_groups(self, nodes: Sequence[int]) -> Iterator[_Group | int]:
        pending: list[_Line] = []
        for line in iter_resolved(self._lines, nodes):
            pending.append(line)
            if len(pending) == _LOOKAHEAD:
                yield from self._decode_next(pending)
        while pending:
            yield from self._decode_next(pending)
        yield from self._release()

    def _decode_next(self, pending: list[_Line]) -> Iterator[_Group | int]:
        """Decode the first pending line, and those after it that belong to it."""
        node, line = pending.pop(0)
        kind, passthrough = line.get("type"), passthrough_of(line)
        if PART in passthrough:
            yield from self._release()
            yield node
        elif kind == "assistant":
            yield from self._add_shard(node, line)
        elif self._lines.types[node] == "compaction" and kind != PASSTHROUGH:
            yield from self._release()
            yield from self._decode_boundary((node, line), pending)
        elif (
            pending
            and decode_lines.is_command_input(line)
            and PLAIN not in passthrough
            and self._is_command_output(line, pending[0][1])
        ):
            yield from self._release()
            yield self._decode_command((node, line), pending.pop(0))
        else:
            for entry in self._decode_line(node, line):
                yield from self._place(_Group(entry, (node,)))

    def _add_shard(self, node: int, line: Fields) -> Iterator[_Group]:
        response = _response_id(line)
        if not (self._shards and response and _response_id(self._shards[-1][1]) == response):
            yield from self._release()
        self._shards.append((node, line))
        content = object_in(line, "message").get("content")
        for block in content if isinstance(content, list) else ():
            if isinstance(block, dict) and block.get("type") == "tool_use":
                self._tool_names[string_in(block, "id") or ""] = string_in(block, "name") or ""

    def _release(self) -> Iterator[_Group]:
        """Decode the response that was held back, and yield it and everything that came after it."""
        if self._shards:
            entry = decode_lines.decode_response([line for _, line in self._shards], self._common)
            yield _Group(entry, tuple(node for node, _ in self._shards))
        yield from self._after_shards
        self._shards, self._after_shards = [], []

    def _place(self, group: _Group) -> Iterator[_Group]:
        # Results can come between two shards of a response; canonical form has them after the whole response.
        if group.is_in_context and group.role != "toolResult":
            yield from self._release()
        if self._shards:
            self._after_shards.append(group)
        else:
            yield group

    def _decode_line(self, node: int, line: Fields) -> Sequence[CanonicalEntry]:
        if line.get("type") == PASSTHROUGH:
            return [decode_lines.decode_metadata_entry(line, self._lines.tree.ids[node])]
        if _has_results(line):
            chain = Chain(self._lines)
            if not self._tool_names.keys() >= set(chain.summary(node).results):
                # Its call is in another part of the history, which is decoded by itself.
                self._tool_names = {**chain.once(_find_tool_names), **self._tool_names}
            return decode_lines.decode_results(line, self._common, self._tool_names)
        return [decode_lines.decode_user_line(line, self._common)]

    # Commands

    def _is_command_output(self, input_line: Fields, output_line: Fields) -> bool:
        passthrough = passthrough_of(output_line)
        if PART in passthrough:
            return True
        if PLAIN in passthrough:
            return False
        return decode_lines.decode_command(input_line, output_line, self._common) is not None

    def _decode_command(self, input_line: _Line, output_line: _Line) -> _Group:
        nodes = input_line[0], output_line[0]
        entry = decode_lines.decode_command(input_line[1], output_line[1], self._common)
        if entry is None:  # part of another entry that begins like a command
            entry = decode_lines.decode_prompt(input_line[1], self._common)
        return _Group(entry, nodes)

    # Compactions

    def _decode_boundary(self, boundary: _Line, pending: list[_Line]) -> Iterator[_Group]:
        node, line = boundary
        summary_line = pending.pop(0) if pending and pending[0][1].get("isCompactSummary") is True else None
        if summary_line is None and not pending and not passthrough_of(line):
            # Nothing follows it, so nothing was compacted.
            yield _Group(decode_lines.decode_hidden(line, self._common), (node,))
            return
        nodes = (node,) if summary_line is None else (node, summary_line[0])
        summary = summary_line[1] if summary_line else None
        if not self._finds_kept or passthrough_of(line):  # our own boundaries record what was kept
            yield _Group(decode_lines.decode_compaction(line, summary, self._common), nodes)
            return
        chain = Chain(self._lines)
        preserved = find_preserved(chain, node)
        if self._keeps_whole_path(chain, node, line, preserved):
            left_at = next(islice(chain.iter_links_before(node), 1), None)
            left_id = None if left_at is None else self._lines.tree.ids[left_at]
            yield _Group(decode_lines.decode_branch_summary(line, summary, self._common, left_id), nodes)
            return
        kept = self._groups_from_first_kept(chain, node, preserved)
        is_tail = all(is_kept for group, is_kept in kept if group.is_in_context)
        first = next((group.entry.id for group, _ in kept), None) if is_tail else None
        yield _Group(decode_lines.decode_compaction(line, summary, self._common, first), nodes)
        if not is_tail:
            # A canonical compaction keeps everything from a certain entry on. Here some of it was not kept, so the kept
            # entries are repeated after the summary. The client may have sent them before the summary.
            repeated = [group for group, is_kept in kept if is_kept and group.is_in_context]
            for number, group in enumerate(repeated, 1):
                # Children of the summary become children of the last repeated entry.
                aliases = (string_in(summary or {}, "uuid") or "",) if number == len(repeated) else ()
                id = f"{group.entry.id}+{string_in(line, 'uuid')}"
                yield _Group(replace(group.entry, id=id, aliases=aliases), group.nodes)

    def _keeps_whole_path(self, chain: Chain, node: int, line: Fields, preserved: Preserved) -> bool:
        """Whether a boundary preserves its complete path, with the summary at the end.

        "Summarize from here" writes such a boundary: it continues the path of the message before, and the summarized
        part has become an abandoned branch.
        """
        metadata = object_in(line, "compactMetadata")
        anchored = object_in(metadata, "preservedMessages") or object_in(metadata, "preservedSegment")
        if not preserved.nodes or anchored.get("anchorUuid") != line.get("uuid"):
            return False
        path = find_earlier_path(chain, find_leaf_before(chain, node), AS_CLIENT).nodes
        return all(is_kept for group, is_kept in self._groups_kept(path, preserved) if group.is_in_context)

    def _groups_from_first_kept(self, chain: Chain, node: int, preserved: Preserved) -> list[tuple[_Group, bool]]:
        """Return the entries before a boundary from the first kept one on, and whether each was kept."""
        if not preserved.nodes:
            return []
        history = find_earlier_history(chain, find_leaf_before(chain, node), AS_CLIENT, since=preserved.nodes)
        first = next((at for at, other in enumerate(history) if other in preserved.nodes), len(history))
        return self._groups_kept(history[first:], preserved)

    def _groups_kept(self, nodes: Sequence[int], preserved: Preserved) -> list[tuple[_Group, bool]]:
        groups = _Decoder(self._lines, finds_kept=False).groups(nodes)
        return [(group, not preserved.nodes.isdisjoint(group.nodes)) for group in groups]
