"""Contract checks for the three protocols of a dialect, on sample files."""

from __future__ import annotations

import copy
import os
import random
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from sessiontree.compaction.strategies import STRATEGIES
from sessiontree.core.entries import Entry, Header, type_of
from sessiontree.core.jsonio import parse_json
from sessiontree.core.layout import lay_out
from sessiontree.core.lines import iter_lines
from sessiontree.core.messages import message_text, parse_message
from sessiontree.core.usage import model_of, response_key, usage_of
from sessiontree.dialects.canonical import CanonicalEntry, SessionMeta
from sessiontree.dialects.client import PastPrompt, PromptFile
from sessiontree.dialects.contract import (
    AS_CLIENT,
    UPDATE,
    Codec,
    Dialect,
    Envelope,
    Locations,
    ReadOptions,
    is_metadata_id,
)
from sessiontree.session.journal import Journal
from sessiontree.stores.memory import MemoryStore
from sessiontree.testing.contract import expect

_NO_SESSIONS = (b"\x7fELF\x02\x01\x01\x00\x00", b"# Notes\n\nText.\n", b'{"name":"x","version":"1.0"}\n', b"[1,2]\n")
_ENVIRONMENT = {"HOME": "/home/user"}
_META = SessionMeta("019c0000-0000-7000-8000-000000000000", "2026-01-01T00:00:00.000Z", "/work/project")

_Spoken: TypeAlias = list[tuple[str, str]]


def check_dialect(dialect: Dialect, samples: Iterable[bytes], *, cuts: int = 200, seed: int = 0) -> None:
    """Check the contract on complete session files of the dialect, each also cut and scrambled at random.

    A failure names the rule that does not hold, and what was found instead.
    """
    chance = random.Random(seed)
    count = 0
    for sample in samples:
        count += 1
        _check_format(dialect, sample)
        _check_codec(dialect, sample)
        _check_client(dialect, sample)
        for _ in range(cuts):
            _survives(dialect, sample[: chance.randrange(len(sample) + 1)])
            _survives(dialect, _scrambled(sample, chance))
    expect(count > 0, "a dialect is checked on at least one sample")
    _check_locations(dialect)
    if dialect.traits.one_line_per_entry:
        _rendered_entries_read_back(dialect)


def _read(dialect: Dialect, data: bytes) -> Journal:
    journal = Journal(MemoryStore(data), dialect)
    journal.refresh()
    return journal


# Format


def _check_format(dialect: Dialect, sample: bytes) -> None:
    expect(bool(dialect.name), "a dialect has a name")
    score = dialect.recognize(sample[: 64 * 1024])
    expect(0 < score <= 100, "`recognize` scores the dialect's own files with 1 to 100", score)
    for head in _NO_SESSIONS:
        expect(dialect.recognize(head) == 0, "`recognize` scores other files with 0", head)
    _block_and_line_decoding_agree(dialect, sample)
    _every_entry_parses(dialect, _read(dialect, sample), sample)
    _layout_is_stable(dialect, sample)


def _block_and_line_decoding_agree(dialect: Dialect, sample: bytes) -> None:
    for node, (_, line) in enumerate(iter_lines(sample)):
        columns = dialect.decode_block(memoryview(line + b"\n"), node)
        if columns is None:
            continue
        decoded = dialect.decode_line(parse_json(line), node)
        found = [*zip(columns.types, columns.ids, columns.parents, strict=True)]
        expect(found == [_row(decoded)], "`decode_block` and `decode_line` agree on a line", (line, found, decoded))
    blocks, lines = _read(dialect, sample), _read(_without_block_decoder(dialect), sample)
    for name, one, other in (
        ("types", blocks.types, lines.types),
        ("ids", blocks.tree.ids, lines.tree.ids),
        ("parents", [*blocks.tree.parents()], [*lines.tree.parents()]),
    ):
        different = next((pair for pair in zip(one, other, strict=True) if pair[0] != pair[1]), None)
        expect(different is None, f"blocks and single lines give the same {name}", different)


def _layout_is_stable(dialect: Dialect, sample: bytes) -> None:
    whole = lay_out(dialect.layout_columns(_read(dialect, sample)))
    ends = [start + len(line) + 1 for start, line in iter_lines(sample)]
    for end in ends[:: len(ends) // 16 + 1]:
        part = lay_out(dialect.layout_columns(_read(dialect, sample[:end])))
        is_same = (part.lanes, part.before) == (whole.lanes[: len(part)], whole.before[: len(part)])
        expect(is_same, "`layout_columns` of the first lines do not depend on later lines", end)


def _row(decoded: Envelope | Header | None) -> object:
    if not isinstance(decoded, Envelope):
        return decoded
    return (decoded.type, "", None) if decoded.is_metadata else (decoded.type, decoded.id, decoded.parent)


def _without_block_decoder(dialect: Dialect) -> Dialect:
    slow = copy.copy(dialect)
    vars(slow)["decode_block"] = lambda *_: None
    return slow


def _every_entry_parses(dialect: Dialect, journal: Journal, sample: bytes) -> None:
    nodes = range(len(journal))
    for node, entry in zip(nodes, journal.entries(nodes), strict=True):
        kind, id = journal.types[node], journal.tree.ids[node]
        expect(type_of(entry) == kind, "`parse` and `decode_line` give a line the same type", (kind, entry))
        expect(entry.id == id or is_metadata_id(id), "`parse` and `decode_line` give a line the same id", (id, entry))
        span, raw = journal.span(node), next(journal.iter_lines([node]))
        expect(sample[span.start : span.end] == raw, "an entry's raw bytes are those of the file", raw)
        used, parsed = dialect.parse_usage(raw), dialect.parse(raw)
        expect(_used(used) == _used(parsed), "`parse_usage` finds the usage that `parse` finds", (used, parsed))
    leaf = dialect.find_leaf(journal, AS_CLIENT)
    expect(leaf is None or leaf in nodes, "`find_leaf` returns a node or None", leaf)
    path = dialect.find_path(journal, leaf, AS_CLIENT)
    expect(set(path) <= set(nodes), "`find_path` returns nodes", path)
    expect(len(path) == len(set(path)), "`find_path` returns each node once", path)
    context = dialect.build_context(journal, leaf, AS_CLIENT)
    expect(len(context.messages) == len(context.sources), "`build_context` names an entry for each message")
    if len(journal):
        header = dialect.find_header(journal)
        expect(dialect.traits.has_header or header is not None, "`find_header` collects a header from the lines")


def _used(entry: Entry) -> object:
    return entry.id, usage_of(entry), response_key(entry), model_of(entry)


# Codec


def _check_codec(dialect: Dialect, sample: bytes) -> None:
    journal = _read(dialect, sample)
    leaf = dialect.find_leaf(journal, AS_CLIENT)
    nodes = dialect.find_history(journal, leaf, AS_CLIENT)
    entries = [*dialect.decode(journal, nodes)]
    ids = [entry.id for entry in entries]
    expect(len(ids) == len(set(ids)), "`decode` gives each entry its own id", ids)
    expect(all(entry.kind and entry.kind != UPDATE for entry in entries), "`decode` gives each entry a type", entries)
    _decoding_can_be_split(dialect, journal, nodes, ids)
    if not dialect.traits.is_writable:
        return
    _encoded_session_reads_back(dialect, entries)
    forked = b"".join(line + b"\n" for line in _fork_lines(dialect, journal, leaf))
    if entries and not dialect.traits.one_line_per_entry:
        expect(
            _spoken_in(dialect, forked) == _spoken(entries),
            "a fork has the messages of the history",
            _first_difference(_spoken_in(dialect, forked), _spoken(entries)),
        )


def _decoding_can_be_split(codec: Codec, journal: Journal, nodes: Sequence[int], expected: list[str]) -> None:
    parts: list[list[int]] = []
    for node in nodes:
        if parts and codec.must_decode_together(journal, parts[-1][-1], node):
            parts[-1].append(node)
        else:
            parts.append([node])
    found = [entry.id for part in parts for entry in codec.decode(journal, part)]
    rule = "`decode` gives the same entries in several calls, unless `must_decode_together`"
    expect(found == expected, rule, next((pair for pair in zip(found, expected, strict=False) if len({*pair}) > 1), ""))


def _encoded_session_reads_back(dialect: Dialect, entries: Sequence[CanonicalEntry]) -> None:
    encoder = dialect.encoder(_META)
    lines, parent = [*encoder.prologue()], None
    for entry in entries:
        encoded = encoder.encode(entry, parent)
        lines += encoded.lines
        parent = encoded.id
    lines += encoder.epilogue(parent)
    expect(not any(b"\n" in line for line in lines), "an encoded line has no LF")
    data = b"".join(line + b"\n" for line in lines)
    if not _spoken(entries):
        return
    expect(dialect.recognize(data[: 64 * 1024]) > 0, "`recognize` accepts what the encoder writes", lines[0])
    found = _spoken_in(dialect, data)
    rule = "an encoded session decodes to the same messages"
    expect(found == _spoken(entries), rule, _first_difference(found, _spoken(entries)))
    _encoder_continues(dialect, data)


def _encoder_continues(dialect: Dialect, data: bytes) -> None:
    journal = _read(dialect, data)
    leaf = dialect.find_leaf(journal, AS_CLIENT)
    prompt = {"role": "user", "content": "One more question", "timestamp": 1}
    entry = CanonicalEntry("message", {"message": prompt}, timestamp="2026-01-02T00:00:00.000Z")
    encoded = dialect.encoder(_META, journal).encode(entry, None if leaf is None else journal.tree.ids[leaf])
    expect(encoded.rewrite is None, "appending a prompt does not rewrite the file")
    longer = data + b"".join(line + b"\n" for line in encoded.lines)
    spoken = [*_spoken_in(dialect, data), ("user", "One more question")]
    found = _spoken_in(dialect, longer)
    expect(found == spoken, "an appended prompt is the last message", _first_difference(found, spoken))
    journal = _read(dialect, longer)
    expect(encoded.id in journal.tree.node_of, "the encoder returns the id of the entry", encoded.id)


def _fork_lines(dialect: Dialect, journal: Journal, leaf: int | None) -> Iterable[bytes]:
    return () if dialect.traits.one_line_per_entry else dialect.encode_fork(journal, leaf, _META)


def _spoken_in(dialect: Dialect, data: bytes) -> _Spoken:
    journal = _read(dialect, data)
    nodes = dialect.find_history(journal, dialect.find_leaf(journal, AS_CLIENT), AS_CLIENT)
    return _spoken([*dialect.decode(journal, nodes)])


def _spoken(entries: Sequence[CanonicalEntry]) -> _Spoken:
    """Role and text of each message."""
    messages = [entry.fields.get("message") for entry in entries if entry.kind == "message"]
    parsed = [parse_message(message) for message in messages if isinstance(message, dict)]
    return [(message.role, message_text(message)) for message in parsed]


def _first_difference(found: _Spoken, expected: _Spoken) -> object:
    for number in range(max(len(found), len(expected))):
        one, other = found[number : number + 1], expected[number : number + 1]
        if one != other:
            return {"message": number, "found": one, "expected": other}
    return ""


# Locations


def _check_locations(locations: Locations) -> None:
    roots = locations.session_roots(_ENVIRONMENT)
    expect(all(map(os.path.isabs, roots)), "session roots are absolute paths", roots)
    expect(roots == locations.session_roots(dict(_ENVIRONMENT)), "session roots depend on the environment alone", roots)
    if not locations.traits.is_writable:
        return
    destination = locations.destination(_META, _ENVIRONMENT)
    if destination.install:
        return  # the client keeps its sessions elsewhere, and the file is only for its import command
    path = destination.path
    root = next((root for root in roots if path.startswith(root.rstrip("/") + "/")), None)
    expect(root is not None, "new sessions are below a session root", (path, roots))
    if root is not None:
        file = locations.classify_file(root, os.path.relpath(path, root))
        expect(file is not None and file.kind == "session", "`classify_file` accepts the path of a new session", path)
        expect(locations.classify_file(root, "notes.txt") is None, "`classify_file` refuses other files", "notes.txt")


# Damage


# The client


def _check_client(dialect: Dialect, sample: bytes) -> None:
    client, journal = dialect.client, _read(dialect, sample)
    nodes = set(range(len(journal)))
    expect(bool(client.name), "a client has a name")
    known = sorted(STRATEGIES)
    expect(client.compaction_strategy in known, f"its strategy is one of {known}", client.compaction_strategy)
    redundant = client.find_redundant_lines(journal)
    expect(redundant <= nodes, "redundant lines are lines of the file", redundant - nodes)
    path = dialect.find_path(journal, dialect.find_leaf(journal, AS_CLIENT), AS_CLIENT)
    kept = client.find_kept_lines(journal, path, ())
    expect(kept is None or set(path) <= kept <= nodes, "a truncated file keeps the path, and lines of the file", kept)
    expect(all(map(os.path.isabs, client.find_backups(journal).values())), "copies of files have absolute paths")
    copies = [copy for backups in client.file_history(journal) for copy in backups.files.values() if copy is not None]
    expect(all(map(os.path.isabs, copies)), "copies of files have absolute paths")
    days = client.retention_days("/home/user/sessions/project/s.jsonl", lambda _: None)
    expect(days is None or days >= 0, "a retention is a number of days", days)
    if isinstance(client.prompt_history, PromptFile):
        for data in (*_NO_SESSIONS, sample):
            prompts = list(client.prompt_history.parse(data))
            expect(all(isinstance(prompt, PastPrompt) for prompt in prompts), "a history has prompts", prompts)


def _survives(dialect: Dialect, data: bytes) -> None:
    """Check that no bytes make the dialect raise an error."""
    dialect.recognize(data)
    journal = _read(dialect, data)
    journal.entries(range(len(journal)))
    journal.problems()
    for read_options in (AS_CLIENT, ReadOptions(recovered=True), ReadOptions(as_of="timestamps")):
        leaf = dialect.find_leaf(journal, read_options)
        dialect.find_path(journal, leaf, read_options)
        dialect.build_context(journal, leaf, read_options)
    facts = dialect.facts(journal)
    _ = facts.title, facts.given_title, facts.config, facts.git_branch, facts.session_ids, facts.related_files
    _ = facts.client_notes


def _scrambled(sample: bytes, chance: random.Random) -> bytes:
    """Overwrite some bytes and duplicate a chunk at random."""
    data = bytearray(sample)
    for _ in range(chance.randrange(1, 6)):
        if data:
            data[chance.randrange(len(data))] = chance.randrange(256)
    start, end = sorted(chance.randrange(len(data) + 1) for _ in range(2))
    chunk = data[start:end][:200]
    at = chance.randrange(len(data) + 1)
    return bytes(data[:at] + chunk + data[at:])


def _rendered_entries_read_back(dialect: Dialect) -> None:
    header = Header(id=_META.id, version=dialect.traits.version, timestamp=_META.timestamp, cwd="/x")
    fields = {
        "message": {"role": "user", "content": '日本語 \ud83d \x00 " \n', "timestamp": 1},
        "unknown": [1, {"a": None}],
    }
    line = dialect.render_entry("message", "abcd1234", None, "2026-01-01T00:00:01.000Z", fields)
    expect(b"\n" not in line, "a rendered entry is one line", line)
    journal = _read(dialect, dialect.render_header(header) + b"\n" + line + b"\n")
    expect(
        journal.header is not None and journal.header.id == header.id, "a rendered header reads back", journal.header
    )
    expect(journal.tree.ids == ["abcd1234"], "a rendered entry reads back", journal.tree.ids)
