"""Statistics of one whole session file: responses, tool calls, results and the files they used.

Only lines that may have one of these are decoded, one by one, and no texts are kept.

Sessions share lines: a fork begins with those of its origin, and a converted session has them in another format. So
that each item counts once, it has *keys*, and copies have at least one key in common:

* an entry has its id, or that of the entry it was converted from;
* a response with its own and its request's id (Claude Code: `message.id` and `requestId`) has both as one key. All of
  its lines and copies share it, even if a program gave the copied lines new ids;
* a call and its result have the id of the call.

Short ids, such as counters or a few random digits, repeat in other sessions. They are combined with the time of their
line, which copies keep. The key of a line without an id or a time is a hash of its bytes.

The statistics of a file are cached in three parts. `keys` find files that share lines. `Totals` are enough for a file
that shares none. `Details` list each item, for files that do share lines or of which only a period is wanted.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from hashlib import blake2b

import msgspec
from msgspec import Struct

from sessiontree.conversion.tool_mapping import find_file
from sessiontree.core.context import milliseconds
from sessiontree.core.entries import Entry, MessageEntry, UsageRecord
from sessiontree.core.jsonio import parse_json
from sessiontree.core.messages import Assistant, ToolCall, ToolResult, Usage, tool_calls
from sessiontree.core.usage import UnpricedUsage, larger_usage, response_key, unpriced_totals, usage_of, valid_count
from sessiontree.dialects.passthrough import PASSTHROUGH, passthrough_of
from sessiontree.dialects.tool_table import FileUse
from sessiontree.library import counts
from sessiontree.library.counts import Counted
from sessiontree.library.summary import replace_surrogates
from sessiontree.library.summary_reader import DAMAGE
from sessiontree.session.journal import Journal
from sessiontree.session.reader import Reader

KEY = 8
"""Bytes of a key: among a billion items, the chance of a collision is 1 in 40."""

FILE_USES: tuple[FileUse, ...] = ("read", "write", "edit")
NO_FILE = -1

_QUARTER = 15 * 60 * 1000
_LARGEST = 2**53
_LONG = 20
"""An id of this length is unique unless it was copied."""
_PASSTHROUGH_FIELD = f'"{PASSTHROUGH}"'.encode()
_request = re.compile(rb'"requestId"\s*:\s*"([^"\\]{1,200})"')
_uuid = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\Z")


class Numbers(Struct, array_like=True):
    """Counters. `input` was read fresh or written to the provider's cache; `cached` came out of it."""

    requests: int = 0
    input: float = 0
    output: float = 0
    cached: float = 0
    cost: float = 0.0
    priced: int = 0
    """Requests with a recorded cost."""
    calls: int = 0
    results: int = 0
    errors: int = 0
    """Results that are errors."""
    unpriced: tuple[UnpricedUsage, ...] = ()
    """By model, requests without a recorded cost."""

    @property
    def tokens(self) -> float:
        return self.input + self.output + self.cached

    @property
    def error_rate(self) -> float | None:
        """Share of results that are errors; None without results."""
        return self.errors / self.results if self.results else None

    def add(self, other: Numbers) -> None:
        self.requests += other.requests
        self.input += other.input
        self.output += other.output
        self.cached += other.cached
        self.cost += other.cost
        self.priced += other.priced
        self.calls += other.calls
        self.results += other.results
        self.errors += other.errors
        if other.unpriced:
            self.unpriced = unpriced_totals([*self.unpriced, *other.unpriced])


class Response(Struct, frozen=True, array_like=True, gc=False):
    """A response of a model. Times are milliseconds since 1970; `model` is an index into `Details.models`."""

    keys: bytes
    """One or more keys; copies have at least one in common."""
    at: int
    model: int
    input: float
    output: float
    cached: float
    cost: float | None

    @property
    def size(self) -> float:
        return self.input + self.output + self.cached


class Call(Struct, frozen=True, array_like=True, gc=False):
    keys: bytes
    at: int
    model: int
    file: int = NO_FILE
    """Index into `Details.files`."""
    use: int = 0
    """Index into `FILE_USES`."""


class Result(Struct, frozen=True, array_like=True, gc=False):
    keys: bytes
    at: int
    model: int
    is_error: bool


class Details(Struct, frozen=True, array_like=True):
    models: list[str]
    files: list[str]
    responses: list[Response]
    calls: list[Call]
    results: list[Result]


class Bucket(Struct, frozen=True, array_like=True):
    """Totals of one day and one model, with the first and last time in them.

    Days depend on the time zone: if these two times are still on the day, all between them are.
    """

    day: str
    model: str
    first: int
    last: int
    numbers: Numbers

    @property
    def is_current_day(self) -> bool:
        return day_of(self.first) == self.day == day_of(self.last)


class Damage(Struct, frozen=True, array_like=True):
    """Damage in a file: number of pieces, and the position of the first."""

    pieces: int
    line: int
    start: int
    kind: str


class Totals(Struct, frozen=True, array_like=True):
    buckets: list[Bucket]
    files: dict[str, tuple[int, int, int]]
    """Paths as in the calls: how often each was read, written and edited."""
    damage: Damage | None = None


class FileStats(Struct, frozen=True):
    """The statistics of one file."""

    keys: bytes
    totals: Totals
    details: Details
    counted: Counted


def read_stats(reader: Reader, default_time: int) -> FileStats:
    """Collect the statistics of a session. Entries without a time get `default_time`."""
    journal = reader.journal
    collector = _StatsCollector(reader.dialect.name, default_time)
    used: list[Entry] = []
    shadowed = reader.shadowed
    usage_mark = journal.dialect.traits.marks.usage
    for node, raw in _iter_counted(journal):
        entry = journal.dialect.parse(raw)
        keys = _keys_of(entry, raw)
        if not entry.id:
            entry = msgspec.structs.replace(entry, id=journal.tree.ids[node])
        collector.add_usage(entry, keys)
        if node not in shadowed:  # a later line with the same id replaces this one
            collector.add_tools(entry, keys)
        if usage_mark in raw:
            used.append(_without_texts(entry))
    details = collector.details()
    buckets, files = sum_up(details)
    totals = Totals(buckets, files, _damage(reader))
    return FileStats(b"".join(collector.keys), totals, details, counts.count_entries(reader, used))


def sum_up(details: Details) -> tuple[list[Bucket], dict[str, tuple[int, int, int]]]:
    """Sum up details: per day and model, and per file."""
    buckets: dict[tuple[str, int], Bucket] = {}

    def bucket(item: Response | Call | Result) -> Numbers:
        at = item.at
        key = (day_of(at), item.model)
        known = buckets.get(key)
        if known is None:
            known = buckets[key] = Bucket(key[0], details.models[item.model], at, at, Numbers())
        elif not known.first <= at <= known.last:
            widened = (min(at, known.first), max(at, known.last))
            known = buckets[key] = Bucket(known.day, known.model, *widened, known.numbers)
        return known.numbers

    for response in details.responses:
        numbers = bucket(response)
        numbers.requests += 1
        numbers.input += response.input
        numbers.output += response.output
        numbers.cached += response.cached
        if response.cost is not None:
            numbers.cost += response.cost
            numbers.priced += 1
        else:
            used = UnpricedUsage(details.models[response.model], response.input, response.output, response.cached)
            numbers.unpriced = unpriced_totals([*numbers.unpriced, used])
    files: dict[str, list[int]] = {}
    for call in details.calls:
        bucket(call).calls += 1
        if call.file != NO_FILE:
            files.setdefault(details.files[call.file], [0, 0, 0])[call.use] += 1
    for result in details.results:
        numbers = bucket(result)
        numbers.results += 1
        numbers.errors += result.is_error
    return list(buckets.values()), {file: (uses[0], uses[1], uses[2]) for file, uses in files.items()}


_days: dict[int, str] = {}


def day_of(at: int) -> str:
    """The local day of a time, as `2026-11-01`; empty if it is out of range."""
    quarter = at // _QUARTER  # in every time zone, midnight is at a multiple of 15 minutes
    day = _days.get(quarter)
    if day is None:
        try:
            day = time.strftime("%Y-%m-%d", time.localtime(at / 1000))
        except (ValueError, OverflowError, OSError):
            day = ""
        _days[quarter] = day
    return day


class _StatsCollector:
    """Collects the items of one session line by line."""

    def __init__(self, agent: str, default_time: int) -> None:
        self._agent = agent
        self._default_time = default_time
        self.keys: dict[bytes, None] = {}
        self._models = _StringTable()
        self._files = _StringTable()
        self._model = self._models.index_of("")
        self._model_of_call: dict[str, int] = {}
        self._responses: dict[str, tuple[dict[bytes, None], int, int, Usage]] = {}
        self._calls: dict[bytes, Call] = {}
        self._results: dict[bytes, Result] = {}

    def details(self) -> Details:
        responses = [_response(*found) for found in self._responses.values()]
        return Details(
            self._models.texts, self._files.texts, responses, list(self._calls.values()), list(self._results.values())
        )

    def add_usage(self, entry: Entry, keys: Sequence[bytes]) -> None:
        """Add usage, by the same rule as `total_usage`, so that the two sums always agree."""
        model = self._model_in(entry)
        usage = usage_of(entry)
        if usage is None:
            return
        self.keys.update(dict.fromkeys(keys))
        response = response_key(entry)
        known = self._responses.get(response)
        if known is None:
            self._responses[response] = (dict.fromkeys(keys), self._time(entry), model, usage)
            return
        all_keys, first, _, usage_before = known
        all_keys.update(dict.fromkeys(keys))
        usage = larger_usage(usage_before if response != entry.id else None, usage)
        self._responses[response] = (all_keys, first, model, usage)

    def add_tools(self, entry: Entry, keys: Sequence[bytes]) -> None:
        if not isinstance(entry, MessageEntry):
            return
        at: int | None = None
        for number, message in enumerate(entry.messages):
            if isinstance(message, Assistant):
                for index, call in enumerate(tool_calls(message)):
                    at = self._time(entry) if at is None else at
                    self._add_call(call, _call_key(b"call", call.id, keys[0], index), at)
            elif isinstance(message, ToolResult):
                at = self._time(entry) if at is None else at
                key = _call_key(b"result", message.tool_call_id, keys[0], number)
                model = self._model_of_call.get(message.tool_call_id, self._model)
                self._results[key] = Result(key, at, model, message.is_error)
        if at is not None:
            self.keys.update(dict.fromkeys(keys))

    def _add_call(self, call: ToolCall, key: bytes, at: int) -> None:
        model = self._model
        if call.id:
            self._model_of_call[call.id] = model
        found = find_file(call.name, call.arguments, self._agent)
        if found is None:
            self._calls[key] = Call(key, at, model)
        else:
            self._calls[key] = Call(key, at, model, self._files.index_of(found[1]), FILE_USES.index(found[0]))

    def _time(self, entry: Entry) -> int:
        """Time of the line, else of its message, else of the session."""
        at = milliseconds(entry.timestamp) if entry.timestamp else None
        if at is None and isinstance(entry, MessageEntry):
            sent = entry.message.timestamp
            at = int(sent) if sent is not None and abs(sent) < _LARGEST else None
        return self._default_time if at is None or not day_of(at) else at

    def _model_in(self, entry: Entry) -> int:
        """The model that an entry names, else that of the last response."""
        match entry:
            case MessageEntry(message=Assistant(model=str(model))) if model:
                self._model = self._models.index_of(model)
            case UsageRecord(model=str(model)) if model:
                return self._models.index_of(model)  # outside of the conversation: later calls do not belong to it
            case _:
                pass
        return self._model


class _StringTable:
    """Interned strings by index."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._numbers: dict[str, int] = {}

    def index_of(self, text: str) -> int:
        number = self._numbers.get(text)
        if number is None:
            number = self._numbers[text] = len(self.texts)
            self.texts.append(replace_surrogates(text))
        return number


def _iter_counted(journal: Journal) -> Iterator[tuple[int, bytes]]:
    """Entries that may have something to count, with their lines, in file order."""
    nodes = [node for node, kind in enumerate(journal.types) if kind in counts.USAGE_TYPES]
    marks = journal.dialect.traits.marks
    for node, raw in zip(nodes, journal.iter_raw(nodes), strict=True):
        if marks.usage in raw or any(mark in raw for mark in marks.tools):
            yield node, raw


def _keys_of(entry: Entry, raw: bytes) -> list[bytes]:
    """Keys of an entry, shared by all copies of its line (see the module docstring)."""
    keys = [_entry_key(entry, raw)]
    message = entry.message if isinstance(entry, MessageEntry) else None
    if isinstance(message, Assistant) and message.response_id:
        request = _request.search(raw)
        if request is not None:
            name = _bytes(message.response_id) + b" " + request[1]
            keys.insert(0, _key(name, "" if len(name) > 2 * _LONG else entry.timestamp))
    return keys


def _entry_key(entry: Entry, raw: bytes) -> bytes:
    id = (_id_before(raw) if _PASSTHROUGH_FIELD in raw else "") or entry.id
    if _uuid.match(id):
        return _key(b"", id)
    if id and entry.timestamp:
        return _key(_bytes(id), entry.timestamp)
    return blake2b(raw, digest_size=KEY).digest()


def _id_before(raw: bytes) -> str:
    """The id of the entry that this one was converted from; empty if it was not converted."""
    try:
        fields = parse_json(raw)
    except ValueError:
        return ""
    id = passthrough_of(fields).get("id") if isinstance(fields, dict) else None
    return id if isinstance(id, str) else ""


def _call_key(kind: bytes, id: str, line: bytes, index: int) -> bytes:
    return _key(kind, id) if len(id) >= _LONG else _key(line + kind, id or str(index))


def _key(first: bytes, other: str) -> bytes:
    return blake2b(b"%b\x00%b" % (first, _bytes(other)), digest_size=KEY).digest()


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _response(keys: dict[bytes, None], at: int, model: int, usage: Usage) -> Response:
    cost = None if usage.cost is None else valid_count(usage.cost.total)
    fresh = valid_count(usage.input) + valid_count(usage.cache_write)
    return Response(b"".join(keys), at, model, fresh, valid_count(usage.output), valid_count(usage.cache_read), cost)


def _without_texts(entry: Entry) -> Entry:
    """An entry without its texts: it is kept until the whole file is read."""
    if not isinstance(entry, MessageEntry) or not isinstance(entry.message, Assistant | ToolResult):
        return entry
    message = msgspec.structs.replace(entry.message, content=())
    return msgspec.structs.replace(entry, message=message, more_messages=())


def _damage(reader: Reader) -> Damage | None:
    """Parts of the file that were not read, and so not counted. Glued records are read."""
    broken = [fragment for fragment in reader.fragments if fragment.kind in DAMAGE]
    if not broken:
        return None
    return Damage(len(broken), broken[0].line, broken[0].start, broken[0].kind)
