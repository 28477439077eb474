"""Commands need bounded memory for huge sessions, and linear time for hostile ones."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import sessiontree
from sessiontree.branches import context_sizes, tips
from sessiontree.branches import list as branch_list
from sessiontree.branches.tips import count_tips
from sessiontree.compaction.token_estimate import context_size
from sessiontree.conversion.install import Request, carry_out, make_plan
from sessiontree.core import salvage as salvage_module
from sessiontree.core.jsonio import iter_json
from sessiontree.core.messages import CACHED_BYTES, MAX_KEPT, LazyMessages, Message, User
from sessiontree.dialects.claude import parallel_calls
from sessiontree.dialects.contract import ReadOptions
from sessiontree.library.session_stats import read_stats
from sessiontree.repair import examine
from sessiontree.session.history import history_links
from sessiontree.views.session_facts import describe_session

HEADER = (
    b'{"type":"session","version":3,"id":"huge","timestamp":"2026-01-01T00:00:00.000Z","cwd":"/","sessiontree":1}\n'
)
TIME = "2026-01-01T00:00:00.000Z"
BODY = "a line of a file that a tool has read; " * 2560
"""100 KB."""
LINES = 1200
"""More than `MAX_KEPT` together."""
MAX_PEAK = 110_000_000

_RUN = """
import sys
from sessiontree.cli import main
main(sys.argv[1:])
sys.stdout.flush()
with open("/proc/self/status") as status:
    print(next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM")), file=sys.stderr)
"""


def native_line(id: str, parent: str | None, text: str, **message: object) -> bytes:
    body = {"role": "user", "content": text, **message}
    fields = {"type": "message", "id": id, "parentId": parent, "timestamp": TIME, "message": body}
    return json.dumps(fields).encode() + b"\n"


def claude_line(id: str, parent: str | None, text: str, role: str = "user") -> bytes:
    fields = {"parentUuid": parent, "isSidechain": False, "type": role, "uuid": id, "sessionId": "s", "cwd": "/"}
    content = text if role == "user" else [{"type": "text", "text": text}]
    message = {"role": role, "content": content, **({} if role == "user" else {"id": f"msg_{id}"})}
    return json.dumps({**fields, "timestamp": TIME, "message": message}).encode() + b"\n"


def neovate_line(id: str, parent: str | None, text: str, role: str = "user") -> bytes:
    fields = {"parentUuid": parent, "uuid": id, "role": role, "content": text, "type": "message", "timestamp": TIME}
    return json.dumps({**fields, "sessionId": "s"}).encode() + b"\n"


Line = Callable[..., bytes]


@pytest.fixture(scope="module", params=["native", "claude"])
def huge(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("huge") / f"{request.param}.jsonl"
    line = native_line if request.param == "native" else claude_line
    with open(path, "wb") as file:
        file.write(HEADER if request.param == "native" else b"")
        for number in range(LINES):
            id = f"00000000-0000-4000-8000-{number:012x}"
            file.write(line(id, f"00000000-0000-4000-8000-{number - 1:012x}" if number else None, BODY))
    assert path.stat().st_size > MAX_KEPT
    yield path
    path.unlink()


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="needs Linux's peak memory of a process")
@pytest.mark.parametrize(
    "command",
    [
        "info",
        "tree",
        "branches",
        "doctor",
        "show",
        "show --json",
        "context",
        "context --json",
        "context --as anthropic",
        "context --as openai",
        "context --as openai-chat",
        "export --format md",
        "export --format html",
        "export --format json",
        "export --format jsonl",
        "export --format text",
    ],
)
def test_a_command_does_not_hold_the_bodies_of_a_huge_session_in_memory(
    command: str, huge: Path, tmp_path: Path
) -> None:
    name, *options = command.split()
    environment = {**os.environ, "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", _RUN, name, str(huge), *options],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=True,
        env=environment,
    )
    assert int(done.stderr.split()[-1]) < MAX_PEAK


def write_transcript(path: Path, rounds: int) -> int:
    """Write a transcript whose first response has two calls, and the others one; returns the number of its lines."""
    lines: list[bytes] = []
    parent: str | None = None

    def add(role: str, parent: str | None, content: object, **message: object) -> str:
        id = f"00000000-0000-4000-8000-{len(lines):012x}"
        fields = {"parentUuid": parent, "isSidechain": False, "type": role, "uuid": id, "sessionId": "s", "cwd": "/"}
        body = {"role": role, "content": content, **message}
        lines.append(json.dumps({**fields, "timestamp": TIME, "message": body}).encode() + b"\n")
        return id

    for number in range(rounds):
        parent = add("user", parent, "go on")
        ends: list[str] = []
        for at in range(1 if number else 2):
            call = f"toolu_{number:020}{at}"
            block = {"type": "tool_use", "id": call, "name": "Read", "input": {}}
            parent = add("assistant", parent, [block], id=f"msg_{number:020}")
            ends.append(add("user", parent, [{"type": "tool_result", "tool_use_id": call, "content": "x"}]))
        parent = ends[-1]
    path.write_bytes(b"".join(lines))
    return len(lines)


def test_the_index_of_a_transcript_takes_few_bytes_for_each_line(tmp_path: Path) -> None:
    path = tmp_path / "transcript.jsonl"
    count = write_transcript(path, 6000)
    sessiontree.open(path).context()  # so that nothing is imported below
    tracemalloc.start()
    try:
        reader = sessiontree.open(path)
        reader.journal.read()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held / count < 395, "one class of summaries for all kinds of lines takes 418"


def test_statistics_need_little_memory_for_each_response(tmp_path: Path) -> None:
    count = 3000
    path = tmp_path / "responses.jsonl"
    with open(path, "wb") as file:
        file.write(HEADER)
        for number in range(count):
            call = {"type": "toolCall", "id": f"call_{number:030}", "name": "read", "arguments": {"path": "a.py"}}
            usage = {"input": number, "output": 5, "cacheRead": 0, "cacheWrite": 0, "totalTokens": number + 5}
            answer = {"content": [call], "usage": usage, "model": "m", "stopReason": "toolUse"}
            file.write(native_line(f"a{number:07x}", None, "", role="assistant", **answer))
    reader = sessiontree.open(path)
    tracemalloc.start()
    try:
        stats = read_stats(reader, 0)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert stats.counted.usage.input == sum(range(count))
    assert peak / count < 1300, "keeping the decoded entries takes 1.8 KB each"


@pytest.mark.slow
def test_the_messages_of_a_huge_context_are_the_same_as_those_of_its_lines(huge: Path) -> None:
    messages = sessiontree.open(huge).context().messages
    assert isinstance(messages, LazyMessages)
    assert len(messages) == LINES
    assert all(isinstance(message, User) for message in messages)
    assert messages[0] == messages[0]
    assert messages[-1] == messages[LINES - 1]


def test_messages_beyond_the_capacity_are_dropped_and_decoded_again() -> None:
    asked: list[range] = []
    size = CACHED_BYTES // 4

    def load(positions: range) -> list[Message]:
        asked.append(positions)
        return [User(content=str(at)) for at in positions]

    messages = LazyMessages(40, load, lambda positions: [size] * len(positions), capacity=5 * size)
    assert [message.content for message in messages if isinstance(message, User)] == [str(at) for at in range(40)]
    assert max(map(len, asked)) == 1
    assert sum(message is not None for message in messages._found) == 4
    assert messages[0] == User(content="0")
    assert asked[-1] == range(1)


def test_json_in_pieces_is_the_same_as_json_at_once() -> None:
    fields = {"a": 1, "list": [1, {"b": "é"}], "empty": [], "none": None}
    pieces = {**fields, "list": iter(fields["list"]), "empty": iter(())}  # type: ignore[call-overload]
    assert json.loads(b"".join(iter_json(pieces))) == fields
    assert b"".join(iter_json({})) == b"{}"


# Linear time


def grows_linearly(work: Callable[[int], Callable[[], object]], small: int) -> bool:
    """Whether four times as much takes about four times as long, and not sixteen times."""

    def seconds(size: int) -> float:
        run = work(size)
        times = []
        for _ in range(3):
            start = time.process_time()
            run()
            times.append(time.process_time() - start)
        return min(times)

    return seconds(4 * small) < 8 * seconds(small)


def branched(path: Path, count: int, line: Line = native_line) -> Path:
    """A path of `count` messages, and a branch of two messages from each of them."""
    with open(path, "wb") as file:
        file.write(HEADER if line is native_line else b"")
        for number in range(count):
            file.write(line(f"a{number:07x}", f"a{number - 1:07x}" if number else None, "hello"))
        for number in range(count):
            file.write(line(f"b{number:07x}", f"a{number:07x}", "hi", role="assistant"))
            file.write(line(f"c{number:07x}", f"b{number:07x}", "and more"))
    return path


BRANCHED: dict[str, Line] = {"native": native_line, "omp": native_line, "claude": claude_line, "neovate": neovate_line}


def compacted(path: Path, count: int) -> Path:
    """A path on which every second entry is a compaction that keeps the one before it."""
    with open(path, "wb") as file:
        file.write(HEADER)
        for number in range(count):
            id, parent = f"a{number:07x}", f"c{number - 1:07x}" if number else None
            file.write(native_line(id, parent, "hello"))
            fields = {"type": "compaction", "id": f"c{number:07x}", "parentId": id, "timestamp": TIME, "summary": "s"}
            file.write(json.dumps({**fields, "firstKeptEntryId": id, "tokensBefore": 1}).encode() + b"\n")
    return path


def compacted_transcript(path: Path, count: int, preserving: bool) -> Path:
    """A transcript of Claude Code with a compaction after each answer, which may preserve the answer."""
    transcript = Transcript(count)
    end: str | None = None
    for _ in range(count):
        answer = transcript.add_response(transcript.add_prompt(end))
        end = transcript.add_compaction(answer, preserving)
    transcript.add_prompt(end)
    return transcript.save(path)


def preserving_transcript(path: Path, count: int, shape: str) -> Path:
    """A transcript of Claude Code with branches, and one or many compactions that preserve lines."""
    transcript = Transcript(count)

    def turn(parent: str | None) -> str:
        content = [{"type": "text", "text": "hi"}]
        message: dict[str, object] = {"role": "assistant", "id": f"m{len(transcript.lines)}", "content": content}
        return transcript.add("assistant", transcript.add_prompt(parent), message)

    end = transcript.add_compaction(turn(None), True) if shape == "before" else None
    ends: list[str] = []
    for _ in range(count):
        ends.append(end := turn(end))
        if shape == "all along the way":
            end = transcript.add_compaction(end, True)
    if shape == "between":  # the branches continue lines that the compaction hides
        turn(transcript.add_compaction(ends[-1], True))
    for end in ends:
        branch = turn(end)
        if shape == "in each branch":
            turn(transcript.add_compaction(branch, True))
    if shape == "after":
        transcript.add_compaction(ends[-1], True)
    return transcript.save(path)


@pytest.mark.parametrize("shape", ["before", "between", "after", "all along the way", "in each branch"])
def test_branches_of_a_transcript_with_preserving_compactions_take_linear_time(shape: str, tmp_path: Path) -> None:
    def work(size: int) -> Callable[[], object]:
        session = sessiontree.open(preserving_transcript(tmp_path / f"{size}.jsonl", size, shape), dialect="claude")
        assert count_tips(session) >= size
        return lambda: branch_list.list_branches(session)

    assert grows_linearly(work, 150)


@pytest.mark.parametrize("preserving", [False, True])
def test_a_transcript_of_many_compactions_takes_linear_time(preserving: bool, tmp_path: Path) -> None:
    def work(size: int) -> Callable[[], object]:
        path = compacted_transcript(tmp_path / f"{size}.jsonl", size, preserving)
        return lambda: branch_list.list_branches(sessiontree.open(path, dialect="claude"))

    assert grows_linearly(work, 200)


def noted_transcript(path: Path, count: int, shape: str) -> Path:
    """A transcript of Claude Code with many system lines after a response, most of them off the path."""
    transcript = Transcript(1)
    answer = parent = transcript.add_response(transcript.add_prompt(None))
    for _ in range(count):
        if shape == "between progress lines":
            parent = transcript.add("progress", parent)
        note = transcript.add("system", parent, subtype="informational", content="a note", level="info")
        if shape == "after notes on the path":
            transcript.add("system", note, subtype="informational", content="a note", level="info")
        parent = answer if shape == "side by side" else parent if shape == "between progress lines" else note
    if shape == "after notes on the path":
        answer = parent
    if shape != "at the end":
        transcript.add_prompt(transcript.add_response(answer))
    return transcript.save(path)


@pytest.mark.parametrize(
    "shape", ["in a row", "side by side", "between progress lines", "after notes on the path", "at the end"]
)
def test_a_transcript_with_many_system_lines_beside_its_path_takes_linear_time(shape: str, tmp_path: Path) -> None:
    def work(size: int) -> Callable[[], object]:
        path = noted_transcript(tmp_path / f"{size}.jsonl", size, shape)

        def run() -> None:
            session = sessiontree.open(path, dialect="claude")
            assert len(session.context().messages) > 2
            branch_list.list_branches(session)

        return run

    assert grows_linearly(work, 500)


@pytest.mark.parametrize("dialect", BRANCHED)
def test_listing_branches_takes_linear_time(dialect: str, tmp_path: Path) -> None:
    def work(size: int) -> Callable[[], object]:
        path = branched(tmp_path / f"{size}.jsonl", size, BRANCHED[dialect])
        session = sessiontree.open(path, dialect=dialect)
        return lambda: branch_list.list_branches(session)

    assert grows_linearly(work, 500)


@pytest.mark.slow
@pytest.mark.parametrize(("source", "target", "count"), [("claude", "native", 300), ("native", "claude", 800)])
def test_converting_every_branch_takes_linear_time(source: str, target: str, count: int, tmp_path: Path) -> None:
    def work(size: int) -> Callable[[], object]:
        path = branched(tmp_path / f"{size}.jsonl", size, BRANCHED[source])

        def run() -> None:
            session = sessiontree.open(path, dialect=source)
            request = Request(target, out=str(tmp_path / "out.jsonl"), branch="all")
            carry_out(session, make_plan(session, request)).close()
            (tmp_path / "out.jsonl").unlink()

        return run

    assert grows_linearly(work, count)


@pytest.mark.parametrize("dialect", BRANCHED)
def test_describing_a_session_with_many_branches_takes_linear_time(dialect: str, tmp_path: Path) -> None:
    def work(size: int) -> Callable[[], object]:
        path = branched(tmp_path / f"{size}.jsonl", size, BRANCHED[dialect])
        session = sessiontree.open(path, dialect=dialect)
        assert count_tips(session) == size
        return lambda: describe_session(session)

    assert grows_linearly(work, 1000)


def test_examining_compactions_takes_linear_time(tmp_path: Path) -> None:
    def work(size: int) -> Callable[[], object]:
        session = sessiontree.open(compacted(tmp_path / f"{size}.jsonl", size))
        return lambda: examine(session)

    assert grows_linearly(work, 1000)


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"mess\x00age","id":"%d garbage \xff\xfe',
        b'{garbage {%d} {"type": {"a":"x"}} }{ 1',
        b'{"{"%d"{"{"}"{"',
        b'x"y}{%d "a" } { "b": } {"c":"d" {',
    ],
)
def test_lines_of_garbage_take_little_more_time_than_trying_to_decode_them(line: bytes, tmp_path: Path) -> None:
    lines = [line % number for number in range(20_000)]
    path = tmp_path / "garbage.jsonl"
    path.write_bytes(HEADER + b"\n".join([*lines, native_line("00000001", None, "hello")]))

    def decode() -> None:
        for line in lines:
            with pytest.raises(ValueError):
                json.loads(line.decode("latin-1"))

    def seconds(work: Callable[[], object]) -> float:
        start = time.process_time()
        work()
        return time.process_time() - start

    best = min(seconds(lambda: sessiontree.open(path)) for _ in range(3))
    assert best < 5 * min(seconds(decode) for _ in range(3))
    session = sessiontree.open(path)
    assert (len(session), len(session.fragments)) == (1, len(lines))


def processor_seconds(path: Path) -> float:
    start = time.process_time()
    sessiontree.open(path)
    return time.process_time() - start


def test_decoder_errors_in_one_line_have_a_fixed_limit() -> None:
    attempts = 0

    def decode(raw: bytes, text: str, at: int) -> salvage_module._Attempt:
        nonlocal attempts
        attempts += 1
        return salvage_module._Attempt(0, 1000)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(salvage_module, "_try_decode", decode)
        pieces = salvage_module.salvage(b'{"a":{x} ' * 2_000_000, lambda fields: True)
    assert [piece.kind for piece in pieces] == ["damage"]
    assert attempts <= 100_001


@pytest.mark.slow
def test_a_torn_line_of_100_megabytes_takes_less_than_ten_seconds(tmp_path: Path) -> None:
    path = tmp_path / "torn.jsonl"
    path.write_bytes(HEADER + b'{"type":"message","message":{"content":"' + b'{"a":{x} ' * 11_000_000)
    assert processor_seconds(path) < 10


# The same results


def mixed_session(path: Path) -> Path:
    """Branches with compactions, resets, usage, labels and entries without a time."""
    with open(path, "wb") as file:
        file.write(HEADER)
        usage = {"input": 10, "output": 5, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 15}
        for number in range(60):
            id, parent = f"a{number:07x}", f"a{number - (7 if number % 9 == 8 else 1):07x}" if number else None
            fields: dict[str, object] = {"id": id, "parentId": parent, "timestamp": TIME if number % 5 else ""}
            match number % 13:
                case 5:
                    kept = f"a{max(0, number - 3):07x}"
                    fields |= {"type": "compaction", "summary": "s" * number, "firstKeptEntryId": kept}
                    fields["tokensBefore"] = 1
                case 9:
                    fields |= {"type": "reset_boundary"}
                case 11:
                    fields |= {"type": "label", "targetId": f"a{number - 2:07x}", "label": f"label {number}"}
                case 3:
                    message = {"role": "assistant", "content": [{"type": "text", "text": "yes"}], "usage": usage}
                    fields |= {"type": "message", "message": {**message, "stopReason": "stop"}}
                case _:
                    fields |= {"type": "message", "message": {"role": "user", "content": "word " * number}}
            file.write(json.dumps(fields).encode() + b"\n")
    return path


@pytest.mark.parametrize("dialect", ["native", "pi"])
def test_branches_by_links_are_those_by_histories(
    dialect: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in (mixed_session(tmp_path / "mixed.jsonl"), branched(tmp_path / "branched.jsonl", 20)):
        session = sessiontree.open(path, dialect=dialect)
        for leaf in [session.leaf, *session.leaves()]:
            session.move(leaf)
            found = branch_list.list_branches(session)
            with monkeypatch.context() as patch:
                for module in (tips, branch_list):
                    patch.setattr(module, "history_links", lambda session: None)
                assert branch_list.list_branches(session) == found
                assert count_tips(session) in (len(found), len(found) - 1)


@pytest.mark.parametrize("dialect", ["native", "pi"])
def test_the_size_of_a_context_is_the_same_whether_it_is_built_or_added_up(dialect: str, tmp_path: Path) -> None:
    session = sessiontree.open(mixed_session(tmp_path / "mixed.jsonl"), dialect=dialect)
    sizes = context_sizes.ContextSizes(session, history_links(session))
    for node, id in enumerate(session.ids):
        assert sizes.tokens(node) == context_size(session.context(id).messages).tokens


CORPUS = sorted((Path(__file__).parent / "corpus").rglob("*.jsonl"))


def branches_by_histories(session: sessiontree.Session, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    with monkeypatch.context() as patch:
        patch.setattr(branch_list, "history_links", lambda session: None)
        return list(branch_list.list_branches(session))


def test_branches_of_real_files_by_links_are_those_by_histories(monkeypatch: pytest.MonkeyPatch) -> None:
    by_dialect: dict[str, int] = {}
    for path in CORPUS:
        with suppress(sessiontree.SessionTreeError):
            session = sessiontree.open(path)
            assert branch_list.list_branches(session) == branches_by_histories(session, monkeypatch), path
            name = session.dialect.name
            by_dialect[name] = by_dialect.get(name, 0) + (history_links(session) is not None)
    assert min(by_dialect.values()) > 0, "some files of each dialect have links"


class Transcript:
    """A transcript of Claude Code with branches, parallel calls, progress and compactions at random places."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines: list[dict[str, object]] = []
        self.ends: list[str] = []
        """Lines after which a conversation may continue."""

    def uuid(self, number: int) -> str:
        return f"{number:08x}-0000-4000-8000-000000000000"

    def add(self, kind: str, parent: str | None, message: dict[str, object] | None = None, **fields: object) -> str:
        uuid = self.uuid(len(self.lines))
        line = {"type": kind, "uuid": uuid, "parentUuid": parent, "sessionId": "s", "isSidechain": False, "cwd": "/"}
        time = f"2026-01-01T00:{len(self.lines) // 60:02}:{len(self.lines) % 60:02}.000Z"
        self.lines.append({**line, "timestamp": time, **({"message": message} if message else {}), **fields})
        return uuid

    def add_prompt(self, parent: str | None) -> str:
        return self.add("user", parent, {"role": "user", "content": "x" * self.random.randrange(40)})

    def add_response(self, parent: str) -> str:
        """A response of several shards with a call each; the conversation continues after one of the results."""
        rng, id = self.random, f"msg_{len(self.lines)}"
        usage = {"input_tokens": len(self.lines), "output_tokens": 3}
        shards: list[tuple[str, str]] = []
        for number in range(rng.randrange(1, 4)):
            call = {"type": "tool_use", "id": f"{id}_{number}", "name": "Read", "input": {"file_path": "a.py"}}
            body: dict[str, object] = {"role": "assistant", "id": id, "model": "m", "content": [call]}
            parent = self.add("assistant", parent, {**body, **({"usage": usage} if rng.random() < 0.5 else {})})
            shards.append((parent, f"{id}_{number}"))
        results = []
        for shard, called in shards:
            if rng.random() < 0.2:
                shard = self.add("progress", shard)
            if rng.random() < 0.995:
                content = {"type": "tool_result", "tool_use_id": called, "content": "y" * rng.randrange(40)}
                results.append(self.add("user", shard, {"role": "user", "content": [content]}))
        return rng.choice(results or [parent])

    def add_compaction(self, parent: str, preserving: bool = False) -> str:
        metadata: dict[str, object] = {"trigger": "manual", "preTokens": 1}
        if preserving:
            metadata["preservedMessages"] = {"anchorUuid": self.uuid(len(self.lines) + 1), "uuids": [parent]}
        fields = {"subtype": "compact_boundary", "logicalParentUuid": parent, "compactMetadata": metadata}
        boundary = self.add("system", None, None, content="", **fields)
        return self.add("user", boundary, {"role": "user", "content": "a summary"}, isCompactSummary=True)

    def save(self, path: Path) -> Path:
        path.write_text("".join(json.dumps(line) + "\n" for line in self.lines))
        return path

    def write(self, path: Path, preserving: bool = False) -> Path:
        self.ends.append(self.add_prompt(None))
        for _ in range(25):
            rng = self.random
            parent = self.ends[-1] if rng.random() < 0.7 else rng.choice(self.ends)
            if rng.random() < 0.1:
                self.ends.append(self.add_compaction(parent, preserving and rng.random() < 0.7))
                continue
            answer = self.add_response(self.add_prompt(parent))
            self.ends.append(self.add("assistant", answer, {"role": "assistant", "id": f"end_{answer}", "content": []}))
        return self.save(path)


def test_branches_of_random_transcripts_by_links_are_those_by_histories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    linked = 0
    for seed in range(40):
        session = sessiontree.open(Transcript(seed).write(tmp_path / f"{seed}.jsonl"), dialect="claude")
        assert branch_list.list_branches(session) == branches_by_histories(session, monkeypatch), seed
        linked += history_links(session) is not None
    assert linked > 10


class PreservingTranscript(Transcript):
    """The same with compactions that preserve other lines than the last one, and with lines that follow these."""

    def add_compaction(self, parent: str, preserving: bool = False) -> str:
        if not preserving:
            return super().add_compaction(parent)
        rng, path = self.random, self._find_path(parent)
        count = rng.randrange(1, min(6, len(path)) + 1)
        kept = path[-count:] if rng.random() < 0.8 else sorted(rng.sample(path, count), key=path.index)
        anchor = self.uuid(len(self.lines) + (rng.random() < 0.7))
        named: dict[str, object] = {"preservedMessages": {"anchorUuid": anchor, "uuids": kept}}
        if rng.random() < 0.5:
            named = {"preservedSegment": {"anchorUuid": anchor, "headUuid": kept[0], "tailUuid": kept[-1]}}
        fields = {"subtype": "compact_boundary", "logicalParentUuid": parent, "compactMetadata": named}
        boundary = self.add("system", None, None, content="", **fields)
        summary = self.add("user", boundary, {"role": "user", "content": "a summary"}, isCompactSummary=True)
        if rng.random() < 0.3:
            self.ends.append(rng.choice(kept))
        return rng.choice([summary, summary, summary, kept[-1]])

    def _find_path(self, end: str) -> list[str]:
        lines = {line["uuid"]: line for line in self.lines}
        found: list[str] = []
        at: object = end
        while isinstance(at, str):
            if lines[at]["type"] != "progress":
                found.append(at)
            at = lines[at]["parentUuid"]
        return found[::-1]


def test_branches_of_transcripts_that_preserve_random_lines_by_links_are_those_by_histories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    preserving = 0
    for seed in range(30):
        path = PreservingTranscript(seed).write(tmp_path / f"{seed}.jsonl", preserving=True)
        session = sessiontree.open(path, dialect="claude")
        assert branch_list.list_branches(session) == branches_by_histories(session, monkeypatch), seed
        links = history_links(session)
        if links is not None and links.preserved:
            preserving += 1
            for node in map(session.journal.tree.node_of.__getitem__, session.leaves()):
                if session.journal.types[node] == "progress":
                    continue
                history = session.dialect.find_history(session.journal, node, session.read_options)
                assert node in links.hidden or links.history(node) == history, (seed, node)
    assert preserving > 8


def test_branches_of_transcripts_with_our_own_entries_by_links_are_those_by_histories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    linked = 0
    for seed in range(20):
        rng, path = random.Random(seed), Transcript(seed).write(tmp_path / f"{seed}.jsonl")
        with sessiontree.open(path, dialect="claude") as session:
            for _ in range(6):
                session.label(rng.choice(session.leaves()), "a name")
                session.append({"type": "custom", "customType": "x", "data": {}})
                if rng.random() < 0.4:
                    session.append("user", "more")
        session = sessiontree.open(path, dialect="claude")
        assert branch_list.list_branches(session) == branches_by_histories(session, monkeypatch), seed
        links = history_links(session)
        if links is not None:
            linked += 1
            for node in map(session.journal.tree.node_of.__getitem__, session.leaves()):
                if session.journal.types[node] == "progress":
                    continue
                history = session.dialect.find_history(session.journal, node, session.read_options)
                assert node in links.hidden or links.history(node) == history, (seed, node)
    assert linked > 5


@pytest.mark.parametrize("recovered", [False, True])
def test_parallel_lines_by_an_index_are_those_by_a_search(
    recovered: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def histories(path: Path, searches: int) -> list[list[int]]:
        monkeypatch.setattr(parallel_calls, "MAX_SEARCHES", searches)
        session = sessiontree.open(path, dialect="claude")
        read_options = ReadOptions(recovered=recovered)
        return [session.dialect.find_history(session.journal, node, read_options) for node in range(len(session))]

    monkeypatch.setattr(parallel_calls, "_SHORT", 1)
    for seed in range(6):
        path = Transcript(seed).write(tmp_path / f"{seed}.jsonl", preserving=seed % 2 == 1)
        if seed % 3 == 0:  # without response ids
            path.write_text(re.sub(r'"id": "msg_\d+", ', "", path.read_text()))
        assert histories(path, 0) == histories(path, 1_000_000), seed
