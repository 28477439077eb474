"""Random damage to session files, and what must hold for whatever comes out.

Each mutation says which bytes of the original it touched, so that a check can demand every line that was not touched.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator

from msgspec import Struct

from sessiontree.core.lines import iter_lines
from sessiontree.dialects.contract import Dialect, Envelope, ReadOptions
from sessiontree.session.journal import Journal
from sessiontree.stores.memory import MemoryStore


class Mutant(Struct, frozen=True):
    """Damaged bytes, and the ranges of the original that the damage touched."""

    name: str
    data: bytes
    touched: tuple[tuple[int, int], ...]


def flip_bytes(data: bytes, chance: random.Random) -> Mutant:
    changed = bytearray(data)
    places = sorted(chance.randrange(len(data)) for _ in range(chance.randrange(1, 8)))
    for place in places:
        changed[place] = chance.randrange(256)
    return Mutant("flip", bytes(changed), tuple((place, place + 1) for place in places))


def cut_tail(data: bytes, chance: random.Random) -> Mutant:
    end = chance.randrange(len(data) + 1)
    return Mutant("cut", data[:end], ((end, len(data)),))


def lose_piece(data: bytes, chance: random.Random) -> Mutant:
    start = chance.randrange(len(data))
    end = min(len(data), start + chance.randrange(1, 400))
    return Mutant("lose", data[:start] + data[end:], ((start, end),))


def insert_noise(data: bytes, chance: random.Random) -> Mutant:
    at = chance.randrange(len(data) + 1)
    noise = chance.choice(
        [b"\x00" * chance.randrange(1, 5000), chance.randbytes(chance.randrange(1, 200)), b"\n\n", b"{", b'"']
    )
    return Mutant("insert", data[:at] + noise + data[at:], ((max(at - 1, 0), at + 1),))


def splice_piece(data: bytes, chance: random.Random) -> Mutant:
    """A piece of the file once more in the middle of another line, as two writers without a lock leave it."""
    start = chance.randrange(len(data))
    piece = data[start : start + chance.randrange(1, 600)].replace(b"\n", b"")
    at = chance.randrange(len(data) + 1)
    return Mutant("splice", data[:at] + piece + data[at:], ((max(at - 1, 0), at + 1),))


def join_lines(data: bytes, chance: random.Random) -> Mutant:
    """One line break lost: two records on one line."""
    breaks = [at for at, byte in enumerate(data) if byte == 0x0A]
    if not breaks:
        return Mutant("join", data, ())
    at = chance.choice(breaks)
    return Mutant("join", data[:at] + data[at + 1 :], ())


def shuffle_lines(data: bytes, chance: random.Random) -> Mutant:
    lines = data.splitlines(keepends=True)
    body = [line if line.endswith(b"\n") else line + b"\n" for line in lines[1:]]
    chance.shuffle(body)
    return Mutant("shuffle", b"".join([*lines[:1], *body]), ())


MUTATIONS: tuple[Callable[[bytes, random.Random], Mutant], ...] = (
    flip_bytes,
    cut_tail,
    lose_piece,
    insert_noise,
    splice_piece,
    join_lines,
    shuffle_lines,
)


def check_mutant(dialect: Dialect, original: bytes, mutant: Mutant) -> None:
    """Nothing raises, and no line that the damage left alone is lost."""
    journal = Journal(MemoryStore(mutant.data), dialect)
    journal.refresh()
    found = set(journal.iter_raw(range(len(journal))))
    found |= {fragment.raw for fragment in journal.fragments}
    if journal.header_span is not None:
        found.add(mutant.data[journal.header_span.start : journal.header_span.end])
    found = {raw.strip() for raw in found}
    for line in untouched_lines(original, mutant):
        assert line.strip() in found or _is_joined(line, journal, dialect), (mutant.name, line[:200])
    read_journal(journal, dialect)


def read_journal(journal: Journal, dialect: Dialect) -> None:
    """Read everything that depends on a session's lines: entries, problems, contexts by every rule, facts."""
    journal.entries(range(len(journal)))
    journal.problems()
    for read_options in (
        ReadOptions(),
        ReadOptions(recovered=True),
        ReadOptions(as_of="timestamps"),
        ReadOptions(snips=True),
    ):
        leaf = dialect.find_leaf(journal, read_options)
        dialect.build_context(journal, leaf, read_options)
    dialect.find_reparentings(journal)
    _ = dialect.facts(journal).title


def _is_joined(line: bytes, journal: Journal, dialect: Dialect) -> bool:
    """Whether a line was joined with others of its id, as a dialect may do: each of its texts is in the result."""
    if not dialect.traits.repeated_id_adds:
        return False
    decoded = dialect.decode_line(json.loads(line), 0)
    nodes = [node for node, id in enumerate(journal.tree.ids) if isinstance(decoded, Envelope) and id == decoded.id]
    raws = b"".join(journal.iter_raw(nodes))
    return bool(nodes) and all(json.dumps(text)[1:-1].encode() in raws for text in _texts(json.loads(line)))


def _texts(value: object) -> Iterator[str]:
    match value:
        case {"text": str(text)}:
            yield text
        case dict():
            for inner in value.values():
                yield from _texts(inner)
        case list():
            for inner in value:
                yield from _texts(inner)


def untouched_lines(original: bytes, mutant: Mutant) -> list[bytes]:
    """The sound lines of the original that the damage did not reach, their line breaks included."""
    lines = []
    for start, line in iter_lines(original):
        end = start + len(line) + 1
        # Damage at the break before a line may glue something to its front.
        if (
            line.strip()
            and line[:1] == b"{"
            and not any(low < end and high > start - 1 for low, high in mutant.touched)
        ):
            lines.append(line)
    return lines
