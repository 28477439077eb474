"""A dialect of another package says what its client does, and every package acts on it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import ClassVar

import pytest

from sessiontree import plugins
from sessiontree.archive.candidates import Candidate
from sessiontree.archive.clean import find_expiring
from sessiontree.compaction.strategies import find_strategy
from sessiontree.compaction.touched_files import FileLists, files_in
from sessiontree.conversion import tool_mapping
from sessiontree.conversion.tool_mapping import Mapped, map_call, map_name
from sessiontree.core.ids import now_ms
from sessiontree.core.jsonio import parse_json, parse_object
from sessiontree.core.messages import Assistant, ToolCall
from sessiontree.dialects.client import Client, PastPrompt, PromptDatabase, PromptFile
from sessiontree.dialects.contract import Dialect, IndexedLines
from sessiontree.dialects.texts import Text, TextLine, TextReader, add_text
from sessiontree.dialects.tool_intents import Read
from sessiontree.dialects.tool_table import Arguments, Rendered, Tool, ToolTable
from sessiontree.library.roots import Root
from sessiontree.search import text_extractor
from sessiontree.search.prompt_import import history_files, read_history_file
from sessiontree.search.text_extractor import read_line
from sessiontree.testing import ContractError, check_dialect

DAY = 86_400_000


def parse_peek(arguments: Arguments) -> Read:
    return Read(arguments.path("file"))


def render_peek(read: Read) -> Rendered:
    return {"file": read.path}, ()


def read_squawk(line: TextLine, texts: list[Text]) -> None:
    add_text(texts, "title", "", bytes(line.title))


class ParrotTexts(TextReader):
    readers: ClassVar = {**TextReader.readers, "squawk": read_squawk}


def parse_prompts(data: bytes) -> Iterator[PastPrompt]:
    for fields in map(parse_object, data.splitlines()):
        yield PastPrompt(fields.get("text"), fields.get("cwd"), time=fields.get("time"))


def query_prompts(database: sqlite3.Connection) -> Iterator[PastPrompt]:
    for (text,) in database.execute("SELECT text FROM prompts"):
        yield PastPrompt(text, is_dated=False)


class ParrotClient(Client):
    name = "Parrot"
    compaction_strategy = "replace"
    prompt_history: ClassVar[PromptFile | PromptDatabase] = PromptFile("prompts.jsonl", parse_prompts)
    tools = ToolTable(Tool("peek", Read, parse_peek, render_peek), timeout_unit="seconds", path_key="file")
    texts = ParrotTexts()

    def retention_days(self, location: str, read: Callable[[str], bytes | None]) -> int | None:
        return int(read(os.path.join(os.path.dirname(location), "days")) or 10)


@pytest.fixture
def parrot(monkeypatch: pytest.MonkeyPatch) -> Iterator[Dialect]:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "parrot"))
    caches = (tool_mapping.tools_of, tool_mapping.tool_tables, text_extractor._rules_of)
    dialect: Dialect = plugins.load("dialects", "parrot")
    monkeypatch.setattr(type(dialect), "client", ParrotClient())
    for cache in caches:
        cache.cache_clear()
    yield dialect
    for cache in caches:
        cache.cache_clear()


def test_calls_of_its_tools_are_mapped_to_those_of_other_clients_and_back(parrot: Dialect) -> None:
    assert map_call("peek", {"file": "a.py"}, "parrot", "claude") == Mapped("Read", {"file_path": "a.py"})
    assert map_call("Read", {"file_path": "a.py"}, "claude", "parrot") == Mapped("peek", {"file": "a.py"})
    assert map_call("Read", {"file_path": "a.py", "unknown": 1}, "claude", "parrot") is None
    assert map_name("peek", "parrot", "claude") == "Read"


def test_files_of_its_calls_are_known_in_sessions_of_every_client(parrot: Dialect) -> None:
    message = Assistant(content=(ToolCall("c1", "peek", {"file": "a.py"}),))
    assert files_in([message], "parrot") == FileLists(read=("a.py",))
    assert files_in([message], "claude") == FileLists(read=("a.py",))


def test_its_sessions_are_compacted_with_its_own_strategy(parrot: Dialect) -> None:
    assert find_strategy(None, parrot).name == "replace"
    assert find_strategy("recent", parrot).name == "recent"


def test_its_own_types_of_lines_are_searched(parrot: Dialect) -> None:
    raw = b'{"type":"squawk","id":"x1","title":"a cracker"}'
    for dialect in ("parrot", parrot):
        ((line,),) = (read_line(raw, dialect),)
        assert [(text.kind, text.text) for text in line.texts] == [("title", "a cracker")]
    assert read_line(raw, "native") == []


def test_prompts_are_imported_from_its_history_file(parrot: Dialect, tmp_path: Path) -> None:
    root = tmp_path / "chats"
    root.mkdir()
    assert history_files([Root(str(root), ("parrot",))]) == []
    file = tmp_path / "prompts.jsonl"
    file.write_bytes(b'{"text":"hello","cwd":"/w","time":5}\n{"text":"no time"}\n{"time":6}\n')
    assert history_files([Root(str(root), ("parrot",))]) == [("parrot", str(file))]
    found = read_history_file("parrot", str(file))
    assert [(prompt.prompt, prompt.cwd, prompt.agent, prompt.time) for prompt in found.prompts] == [
        ("hello", "/w", "parrot", 5)
    ]
    assert found.unreadable == 2


def test_prompts_are_imported_from_its_database(
    parrot: Dialect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ParrotClient, "prompt_history", PromptDatabase("prompts.db", query_prompts))
    file = tmp_path / "prompts.db"
    with closing(sqlite3.connect(file)) as database:
        database.execute("CREATE TABLE prompts (text)")
        database.execute("INSERT INTO prompts VALUES ('hello')")
        database.commit()
    found = read_history_file("parrot", str(file))
    assert [(prompt.prompt, prompt.time) for prompt in found.prompts] == [("hello", None)]
    file.write_bytes(b"not a database")
    assert read_history_file("parrot", str(file)).unreadable == 1


def test_sessions_that_it_will_delete_soon_are_found(parrot: Dialect, tmp_path: Path) -> None:
    path = tmp_path / "s1.jsonl"
    path.write_bytes(b"{}\n")
    candidate = Candidate(str(path), "parrot", "s1", active=0)
    assert find_expiring([candidate], [], now_ms() + 2 * DAY) == []
    assert find_expiring([candidate], [], now_ms() + 4 * DAY) == [candidate]
    (tmp_path / "days").write_bytes(b"90")
    assert find_expiring([candidate], [], now_ms() + 4 * DAY) == []


class Hoarder(ParrotClient):
    def find_kept_lines(
        self, lines: IndexedLines, path: Sequence[int], models: Iterable[str | None]
    ) -> set[int] | None:
        return set()


class Guesser(ParrotClient):
    compaction_strategy = "guess"


class Careless(ParrotClient):
    prompt_history = PromptFile("prompts.jsonl", lambda data: [PastPrompt(parse_json(data)["text"])])


SAMPLE = b'{"session":"s1","start":"2026-01-01T00:00:00.000Z"}\n{"id":"m1","who":"user","text":"hello"}\n'


def test_the_contract_check_includes_the_client(parrot: Dialect, monkeypatch: pytest.MonkeyPatch) -> None:
    check_dialect(parrot, [SAMPLE], cuts=1)
    monkeypatch.setattr(type(parrot), "client", Hoarder())
    with pytest.raises(ContractError, match="a truncated file keeps the path"):
        check_dialect(parrot, [SAMPLE], cuts=1)
    monkeypatch.setattr(type(parrot), "client", Guesser())
    with pytest.raises(ContractError, match="its strategy is one of"):
        check_dialect(parrot, [SAMPLE], cuts=1)
    monkeypatch.setattr(type(parrot), "client", Careless())
    with pytest.raises(ValueError, match="Expecting value"):
        check_dialect(parrot, [SAMPLE], cuts=1)
