"""Contract checks for `Dialect`, on sample files."""

from __future__ import annotations

import random
from collections.abc import Iterable

from sessiontree.core.entries import Header, type_of
from sessiontree.core.jsonio import parse_json
from sessiontree.core.lines import iter_lines
from sessiontree.dialects.contract import Dialect, ReadOptions
from sessiontree.session.journal import Journal
from sessiontree.stores.memory import MemoryStore
from sessiontree.testing.contract import expect


def check_dialect(dialect: Dialect, samples: Iterable[bytes], *, cuts: int = 200, seed: int = 0) -> None:
    """Check the contract on complete session files of the dialect, each also cut and scrambled at random."""
    chance = random.Random(seed)
    count = 0
    for sample in samples:
        count += 1
        _recognizes_its_own(dialect, sample)
        _block_and_line_decoding_agree(dialect, sample)
        _every_entry_parses(dialect, sample)
        for _ in range(cuts):
            _survives(dialect, sample[: chance.randrange(len(sample) + 1)])
            _survives(dialect, _scrambled(sample, chance))
    expect(count > 0, "a dialect is checked on at least one sample")
    if dialect.one_line_per_entry:
        _rendered_entries_read_back(dialect)


def _recognizes_its_own(dialect: Dialect, sample: bytes) -> None:
    score = dialect.recognize(sample[: 64 * 1024])
    expect(0 < score <= 100, "a dialect recognizes its own files with 1 to 100", score)
    expect(dialect.recognize(b"\x7fELF\x02\x01\x01\x00\x00") == 0, "and does not recognize a program")


def _block_and_line_decoding_agree(dialect: Dialect, sample: bytes) -> None:
    for _, line in iter_lines(sample):
        columns = dialect.decode_block(memoryview(line + b"\n"))
        if columns is None:
            continue
        envelope = dialect.envelope(parse_json(line))
        found = (columns.types, columns.ids, columns.parents)
        expected = ([envelope.type], ["" if envelope.is_metadata else envelope.id], [envelope.parent])
        expect(found == expected, "decode_block and envelope agree on a line", (found, expected))


def _every_entry_parses(dialect: Dialect, sample: bytes) -> None:
    journal = Journal(MemoryStore(sample), dialect)
    journal.refresh()
    nodes = range(len(journal))
    for node, entry in zip(nodes, journal.entries(nodes), strict=True):
        expect(type_of(entry) == journal.types[node], "an entry's value and its envelope have the same type", entry)
        expect(entry.id == journal.tree.ids[node] or journal.tree.ids[node].startswith("@"), "and the same id", entry)
        span = journal.span(node)
        raw = next(journal.iter_raw([node]))
        expect(sample[span.start : span.end] == raw, "an entry's raw bytes are those of the file", raw)
    leaf = dialect.find_leaf(journal, ReadOptions())
    expect(leaf is None or 0 <= leaf < len(journal), "the leaf is a node or None", leaf)


def _survives(dialect: Dialect, data: bytes) -> None:
    """Check that no bytes make the dialect raise an error."""
    dialect.recognize(data)
    journal = Journal(MemoryStore(data), dialect)
    journal.refresh()
    journal.entries(range(len(journal)))
    journal.problems()
    for read_options in (ReadOptions(), ReadOptions(recovered=True), ReadOptions(as_of="timestamps")):
        leaf = dialect.find_leaf(journal, read_options)
        dialect.find_path(journal, leaf, read_options)
        dialect.build_context(journal, leaf, read_options)
    dialect.find_title(journal)


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
    header = Header(
        id="019c0000-0000-7000-8000-000000000000",
        version=dialect.version,
        timestamp="2026-01-01T00:00:00.000Z",
        cwd="/x",
    )
    fields = {
        "message": {"role": "user", "content": '日本語 \ud83d \x00 " \n', "timestamp": 1},
        "unknown": [1, {"a": None}],
    }
    line = dialect.render_entry("message", "abcd1234", None, "2026-01-01T00:00:01.000Z", fields)
    expect(b"\n" not in line, "a rendered entry is one line", line)
    journal = Journal(MemoryStore(dialect.render_header(header) + b"\n" + line + b"\n"), dialect)
    journal.refresh()
    expect(
        journal.header is not None and journal.header.id == header.id, "a rendered header reads back", journal.header
    )
    expect(journal.tree.ids == ["abcd1234"], "a rendered entry reads back", journal.tree.ids)
