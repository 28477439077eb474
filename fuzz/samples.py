"""Sound sessions of each dialect, and the check of a damaged copy.

Sessions in lines are checked in memory (`check_mutant`): no untouched line may be lost. Documents and databases are
written to a file and read as any client's file: either the session is read, or an error names the file.
"""

from __future__ import annotations

import json
import tarfile
import tempfile
from collections import defaultdict
from pathlib import Path

from msgspec import Struct
from tests.library.world import World
from tests.mutations import Mutant, check_mutant, read_journal
from tests.search.four_agents import OPENCODE_DATABASE, OPENCODE_SESSION, opencode

import sessiontree
from sessiontree import plugins
from sessiontree.dialects.contract import Dialect
from sessiontree.dialects.storage import Rows
from sessiontree.errors import SessionTreeError
from sessiontree.session.journal import Journal
from sessiontree.session.open import detect
from sessiontree.sources import open_source
from sessiontree.sources.items import iter_items
from sessiontree.stores.contract import SessionRef

TESTS = Path(__file__).parents[1] / "tests"
LARGEST = 60_000
"""Larger files are read as often in the time of many smaller ones."""


class Sample(Struct, frozen=True):
    dialect: Dialect
    name: str
    data: bytes
    in_file: bool = False
    """Whether the source of the dialect reads a file: a document, a database, or records that it normalizes."""

    def check(self, mutant: Mutant, folder: Path) -> None:
        if not self.in_file:
            check_mutant(self.dialect, self.data, mutant)
            return
        path = folder / self.name
        path.write_bytes(mutant.data)
        try:
            check_file(self.dialect, path)
        finally:
            path.unlink()


def check_file(dialect: Dialect, path: Path) -> None:
    """Read every session of a file. Only our own errors may occur."""
    storage = dialect.storage(str(path))
    try:
        refs = [SessionRef(str(path))]
        if isinstance(storage, Rows):
            refs = [stat.ref for stat in iter_items(str(path), storage, 1, dialect.name)]
    except SessionTreeError:
        return
    for ref in refs:
        try:
            journal = Journal(open_source(ref, dialect), dialect)
            journal.refresh()
        except SessionTreeError:
            continue
        read_journal(journal, dialect)


def load_samples() -> dict[str, list[Sample]]:
    """By dialect: the files of the corpus, and of the goldens."""
    found: dict[str, list[Sample]] = defaultdict(list)
    for path in sorted((TESTS / "corpus").rglob("*.jsonl")):
        if path.stat().st_size:
            dialect = detect(path.read_bytes()[: 64 * 1024], str(path))
            found[dialect.name].append(Sample(dialect, path.name, path.read_bytes()))
    for name in ("codex", "qwen"):
        dialect = plugins.load("dialects", name)
        for path in sorted((TESTS / "goldens" / name).glob("[0-9]*/*.jsonl")):
            if path.stat().st_size < LARGEST:
                found[name].append(Sample(dialect, path.name, path.read_bytes()))
    found["gemini"] = _gemini_samples()
    found["opencode"] = _opencode_samples()
    return found


def _gemini_samples() -> list[Sample]:
    dialect = plugins.load("dialects", "gemini")
    found: list[Sample] = []
    for packed in sorted((TESTS / "goldens" / "gemini-cli").glob("*.tar.gz")):
        with tarfile.open(packed) as archive:
            for member in archive.getmembers():
                if "/chats/session-" in member.name and member.size < LARGEST:
                    file = archive.extractfile(member)
                    assert file is not None
                    found.append(Sample(dialect, Path(member.name).name, file.read(), in_file=True))
    return found


def _opencode_samples() -> list[Sample]:
    """A database, an export of it, and lines of it."""
    dialect = plugins.load("dialects", "opencode")
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder))
        opencode(world)
        path = world.home / OPENCODE_DATABASE
        session = sessiontree.open(f"{path}#{OPENCODE_SESSION}")
        converted = sessiontree.convert(session, "opencode", cwd="/work")
        lines = b"".join(converted.lines)
        messages = [json.loads(line) for line in lines.splitlines()]
        document = json.dumps({"info": messages[0]["info"], "messages": messages[1:]}).encode()
        return [
            Sample(dialect, "opencode.db", path.read_bytes(), in_file=True),
            Sample(dialect, f"{OPENCODE_SESSION}.json", document, in_file=True),
            Sample(dialect, "lines", lines),
        ]
