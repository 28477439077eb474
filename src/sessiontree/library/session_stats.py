"""Statistics of one whole session file: responses, tool calls, results and the files they used.

Only lines that may have one of these are decoded, one by one, and no texts are kept.

Sessions share lines: a fork begins with those of its origin, and a converted session has them in another format. So
that each item counts once, it has *keys*, and copies have at least one key in common:

* an entry has its id, or that of the entry it was converted from;
* an entry without an id has a hash of its line, which forks copy, and its id in the index, which conversions keep;
* usage on a line of its own (Codex) has the keys of the response before it, too;
* a response with its own and its request's id (Claude Code: `message.id` and `requestId`) has both as one key. All of
  its lines and copies share it, even if a program gave the copied lines new ids;
* a call and its result have the id of the call.

Short ids, such as counters or a few random digits, repeat in other sessions. They are combined with the time of their
line, those of calls with the time of their response, which copies keep. The key of a line without an id or a time is a
hash of its bytes.

The statistics of a file are cached in three parts. `keys` find files that share lines. `Totals` are enough for a file
that shares none. `Details` list each item, for files that do share lines or of which only a period is wanted.
"""

from __future__ import annotations

import re
import time
from array import array
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from sessiontree.core.entries import Entry, MessageEntry, ModelChange, UsageRecord, milliseconds
from sessiontree.core.jsonio import parse_json, replace_surrogates
from sessiontree.core.messages import Assistant, ToolCall, ToolResult, tool_calls
from sessiontree.core.usage import REQUEST, RESPONSE, USAGE_TYPES, UnpricedUsage, unpriced_totals
from sessiontree.dialects.contract import is_metadata_id
from sessiontree.dialects.passthrough import PASSTHROUGH, passthrough_of
from sessiontree.library import counts
from sessiontree.library.counts import Counted
from sessiontree.library.summary import DAMAGE
from sessiontree.session.journal import Journal
from sessiontree.session.reader import Reader

if TYPE_CHECKING:
    from sessiontree.dialects.tool_table import FileUse

KEY = 8
"""Bytes of a key: among a billion items, the chance of a collision is 1 in 40."""

FILE_USES: tuple[FileUse, ...] = ("read", "write", "edit")
NO_FILE = -1

_QUARTER = 15 * 60 * 1000
_LARGEST = 2**53
_LONG = 20
"""An id of this length is unique unless it was copied."""
_PASSTHROUGH_FIELD = f'"{PASSTHROUGH}"'.encode()
_encode = msgspec.msgpack.Encoder().encode
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
    details: bytes | bytearray
    """`Details` as MessagePack: most callers store them and need only the totals."""
    counted: Counted


def read_stats(reader: Reader, default_time: int) -> FileStats:
    """Collect the statistics of a session. Entries without a time get `default_time`."""
    journal = reader.journal
    counted = counts.count_entries(reader, Counted())  # first, because that needs much memory for a moment
    collector = _StatsCollector(reader.dialect.name, default_time)
    shadowed = reader.shadowed
    usage_mark, model_types = journal.dialect.traits.marks.usage, journal.dialect.traits.model_types
    for node, raw in _iter_counted(journal):
        is_model = journal.types[node] in model_types
        entry = journal.dialect.parse_usage(raw) if is_model else journal.dialect.parse(raw)
        keys = _keys_of(entry, raw, journal.tree.ids[node])
        collector.start(entry, keys)
        if not entry.id:
            entry = msgspec.structs.replace(entry, id=journal.tree.ids[node])
        has_usage = collector.add_usage(entry, keys, reports=usage_mark in raw)
        if node not in shadowed:  # a later line with the same id replaces this one
            collector.add_tools(entry, keys, are_known=has_usage)
    collector.drop_repeated()
    buckets, files = collector.sum_up()
    totals = Totals(buckets, files, _damage(reader))
    used = collector.used.facts()
    counted = msgspec.structs.replace(counted, usage=used.usage, model=used.model, seed=used.seed)
    return FileStats(collector.keys(), totals, collector.encode_details(), counted)


def sum_up(details: Details) -> tuple[list[Bucket], dict[str, tuple[int, int, int]]]:
    """Sum up details: per day and model, and per file."""
    return _sum_up(details.models, details.files, details.responses, details.calls, details.results)


def _sum_up(
    models: Sequence[str],
    file_names: Sequence[str],
    responses: Iterable[Response],
    calls: Iterable[Call],
    results: Iterable[Result],
) -> tuple[list[Bucket], dict[str, tuple[int, int, int]]]:
    buckets: dict[tuple[str, int], Bucket] = {}

    def bucket(item: Response | Call | Result) -> Numbers:
        at = item.at
        key = (day_of(at), item.model)
        known = buckets.get(key)
        if known is None:
            known = buckets[key] = Bucket(key[0], models[item.model], at, at, Numbers())
        elif not known.first <= at <= known.last:
            widened = (min(at, known.first), max(at, known.last))
            known = buckets[key] = Bucket(known.day, known.model, *widened, known.numbers)
        return known.numbers

    for response in responses:
        numbers = bucket(response)
        numbers.requests += 1
        numbers.input += response.input
        numbers.output += response.output
        numbers.cached += response.cached
        if response.cost is not None:
            numbers.cost += response.cost
            numbers.priced += 1
        else:
            used = UnpricedUsage(models[response.model], response.input, response.output, response.cached)
            numbers.unpriced = unpriced_totals([*numbers.unpriced, used])
    files: dict[str, list[int]] = {}
    for call in calls:
        bucket(call).calls += 1
        if call.file != NO_FILE:
            files.setdefault(file_names[call.file], [0, 0, 0])[call.use] += 1
    for result in results:
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
    """Collects the items of one session line by line, in columns: a session can have half a million items."""

    def __init__(self, agent: str, default_time: int) -> None:
        from sessiontree.conversion.tool_mapping import find_file  # imports more than stored statistics need

        self._find_file = find_file
        self._agent = agent
        self._default_time = default_time
        self._models = _StringTable()
        self._files = _StringTable()
        self._model = self._models.index_of("")
        self._open_calls: dict[str, tuple[int, bytes]] = {}
        """The models and keys of calls without a result so far."""
        self._response = _Response()
        self.used = counts.UsedEntries()
        """Usage by response; the next three columns have the same rows."""
        self._response_keys: list[bytes] = []
        self._response_times = array("q")
        self._response_models = array("i")
        self._line_keys = bytearray()
        """Keys of lines that have tool calls or results, and no usage."""
        self._calls = _ItemColumns("iib")
        self._results = _ItemColumns("ib")

    def keys(self) -> bytes:
        return b"".join(self._response_keys) + self._line_keys

    def drop_repeated(self) -> None:
        """Keep the last one of calls and results with the same key, at the position of the first one."""
        self._calls.drop_repeated()
        self._results.drop_repeated()

    def sum_up(self) -> tuple[list[Bucket], dict[str, tuple[int, int, int]]]:
        items = (self._iter_responses(), self._iter_calls(), self._iter_results())
        return _sum_up(self._models.texts, self._files.texts, *items)

    def encode_details(self) -> bytearray:
        """Encode `Details` item by item, dropping each item, so that little memory is needed besides the result."""
        data = bytearray(b"\x95")  # an array of five
        data += _encode(self._models.texts) + _encode(self._files.texts)
        _encode_array(len(self._response_keys), self._iter_responses(), data)
        self.used, self._response_keys = counts.UsedEntries(), []
        _encode_array(len(self._calls), self._iter_calls(), data)
        self._calls = _ItemColumns("")
        _encode_array(len(self._results), self._iter_results(), data)
        return data

    def _iter_responses(self) -> Iterator[Response]:
        usage = self.used.usage
        columns = zip(self._response_keys, self._response_times, self._response_models, strict=True)
        for row, (keys, at, model) in enumerate(columns):
            read, written, cached, cache_written, cost = usage.counts(row)
            yield Response(keys, at, model, read + cache_written, written, cached, cost)

    def _iter_calls(self) -> Iterator[Call]:
        for key, at, (model, file, use) in self._calls:
            yield Call(key, at, model, file, use)

    def _iter_results(self) -> Iterator[Result]:
        for key, at, (model, is_error) in self._results:
            yield Result(key, at, model, bool(is_error))

    def start(self, entry: Entry, keys: Sequence[bytes]) -> None:
        """Note which response an entry belongs to, before it gets the id that the index has for it."""
        message = entry.message if isinstance(entry, MessageEntry) else None
        if not isinstance(message, Assistant):
            if not self._response.name and not isinstance(entry, UsageRecord):
                self._response = _Response()
            return
        name = message.response_id or entry.id
        if name != self._response.name or not self._response.keys or self._response.is_counted:
            self._response = _Response(name, self._time(entry) if entry.timestamp else None)
        self._response.keys.extend(keys)

    def add_usage(self, entry: Entry, keys: Sequence[bytes], *, reports: bool) -> bool:
        """Add usage, by the same rule as `total_usage`, so that the two sums always agree; returns whether it has any.

        `reports` is whether the line has a field for usage.
        """
        model = self._model_in(entry)
        row = self.used.add(entry) if reports or isinstance(entry, ModelChange) else None
        if row is None:
            return False
        if isinstance(entry, UsageRecord) and entry.kind in (REQUEST, RESPONSE):
            keys = [*keys, *self._response.keys]
            self._response.is_counted = True
        if row == len(self._response_keys):
            self._response_keys.append(b"".join(dict.fromkeys(keys)))
            self._response_times.append(self._time(entry))
            self._response_models.append(model)
            return True
        known = self._response_keys[row]
        parts = {known[start : start + KEY] for start in range(0, len(known), KEY)}
        self._response_keys[row] = known + b"".join(key for key in dict.fromkeys(keys) if key not in parts)
        self._response_models[row] = model
        return True

    def add_tools(self, entry: Entry, keys: Sequence[bytes], *, are_known: bool) -> None:
        """Add tool calls and results. `are_known` is whether `keys` were added with the usage of the entry."""
        if not isinstance(entry, MessageEntry):
            return
        at: int | None = None
        for number, message in enumerate(entry.messages):
            if isinstance(message, Assistant):
                for index, call in enumerate(tool_calls(message)):
                    at = self._time(entry) if at is None else at
                    self._add_call(call, _call_key(b"call", call.id, self._response.moment or keys[0], index), at)
            elif isinstance(message, ToolResult):
                at = self._time(entry) if at is None else at
                # A result may have a line of its own in one format, and be on the line of the call in another.
                model, called = self._open_calls.pop(message.tool_call_id, (self._model, keys[0]))
                key = _call_key(b"result", message.tool_call_id, called, number)
                self._results.append(key, at, (model, message.is_error))
        if at is not None and not are_known:
            self._line_keys += b"".join(keys)

    def _add_call(self, call: ToolCall, key: bytes, at: int) -> None:
        model = self._model
        if call.id:
            self._open_calls[call.id] = (model, key)
        found = self._find_file(call.name, call.arguments, self._agent)
        if found is None:
            self._calls.append(key, at, (model, NO_FILE, 0))
        else:
            self._calls.append(key, at, (model, self._files.index_of(found[1]), FILE_USES.index(found[0])))

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
            case ModelChange(selector=str(model)):
                self._model = self._models.index_of(model)
            case UsageRecord(model=str(model)) if model:
                return self._models.index_of(model)  # outside of the conversation: later calls do not belong to it
            case _:
                pass
        return self._model


class _Response:
    """The response that the current line belongs to. Without a name, its lines follow each other."""

    def __init__(self, name: str = "", at: int | None = None) -> None:
        self.name = name
        self.moment = b"" if at is None else b"%d" % at
        """The time of its first line."""
        self.keys: list[bytes] = []
        self.is_counted = False


def _encode_array(count: int, items: Iterable[Struct], data: bytearray) -> None:
    """Append items to MessagePack data, as an array."""
    data += b"\xdd" + count.to_bytes(4, "big")
    for item in items:
        data += _encode(item)


class _ItemColumns:
    """Items with a key, a time and some small numbers, one array for each."""

    def __init__(self, types: str) -> None:
        self._keys = bytearray()
        self._times = array("q")
        self._numbers = [array(type) for type in types]

    def __len__(self) -> int:
        return len(self._times)

    def append(self, key: bytes, at: int, numbers: tuple[int, ...]) -> None:
        self._keys += key
        self._times.append(at)
        for column, number in zip(self._numbers, numbers, strict=True):
            column.append(number)

    def __iter__(self) -> Iterator[tuple[bytes, int, tuple[int, ...]]]:
        for row, (at, *numbers) in enumerate(zip(self._times, *self._numbers, strict=True)):
            yield bytes(self._keys[KEY * row : KEY * (row + 1)]), at, tuple(numbers)

    def drop_repeated(self) -> None:
        """Keep the last of the items with the same key, at the position of the first one."""
        keys = memoryview(self._keys).cast("Q")
        last_rows = dict(zip(keys, range(len(keys)), strict=True))
        if len(last_rows) == len(keys):
            return
        rows = list(last_rows.values())
        del last_rows
        self._keys = bytearray().join(self._keys[KEY * row : KEY * (row + 1)] for row in rows)
        self._times = array("q", (self._times[row] for row in rows))
        self._numbers = [array(column.typecode, (column[row] for row in rows)) for column in self._numbers]


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
    marks, model_types = journal.dialect.traits.marks, journal.dialect.traits.model_types
    wanted = USAGE_TYPES | model_types
    nodes = array("i", (node for node, kind in enumerate(journal.types) if kind in wanted))
    # Where usage has lines of its own, the lines of the response are needed for its keys.
    are_apart = any(
        kind == "usage" and is_metadata_id(id) for kind, id in zip(journal.types, journal.tree.ids, strict=True)
    )
    for node, raw in zip(nodes, journal.iter_raw(nodes), strict=True):
        is_counted = marks.usage in raw or any(mark in raw for mark in marks.tools)
        if are_apart or is_counted or journal.types[node] in model_types:
            yield node, raw


def _keys_of(entry: Entry, raw: bytes, indexed_id: str) -> list[bytes]:
    """Keys of an entry, shared by all copies of its line (see the module docstring)."""
    keys = _entry_keys(entry, raw, indexed_id)
    message = entry.message if isinstance(entry, MessageEntry) else None
    if isinstance(message, Assistant) and message.response_id:
        request = _request.search(raw)
        if request is not None:
            name = _bytes(message.response_id) + b" " + request[1]
            keys.insert(0, _key(name, "" if len(name) > 2 * _LONG else entry.timestamp))
    return keys


def _entry_keys(entry: Entry, raw: bytes, indexed_id: str) -> list[bytes]:
    id = (_id_before(raw) if _PASSTHROUGH_FIELD in raw else "") or entry.id
    if not id and not is_metadata_id(indexed_id):
        return [_hash(raw), _id_key(indexed_id, entry.timestamp)]
    return [_id_key(id, entry.timestamp) if id and (entry.timestamp or _uuid.match(id)) else _hash(raw)]


def _id_key(id: str, time: str) -> bytes:
    return _key(b"", id) if _uuid.match(id) else _key(_bytes(id), time)


def _id_before(raw: bytes) -> str:
    """The id of the first entry that this one was converted from; empty if it was not converted, or kept the id."""
    try:
        fields = parse_json(raw)
    except ValueError:
        return ""
    stored = passthrough_of(fields) if isinstance(fields, dict) else {}
    entries = stored.get("entries")
    first = entries[0] if isinstance(entries, list) and entries and isinstance(entries[0], dict) else {}
    id = stored.get("id") or first.get("id")
    return id if isinstance(id, str) else ""


def _call_key(kind: bytes, id: str, line: bytes, index: int) -> bytes:
    return _key(kind, id) if len(id) >= _LONG else _key(line + kind, id or str(index))


def _hash(raw: bytes) -> bytes:
    return blake2b(raw, digest_size=KEY).digest()


def _key(first: bytes, other: str) -> bytes:
    return blake2b(b"%b\x00%b" % (first, _bytes(other)), digest_size=KEY).digest()


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _damage(reader: Reader) -> Damage | None:
    """Parts of the file that were not read, and so not counted. Glued records are read."""
    broken = [fragment for fragment in reader.fragments if fragment.kind in DAMAGE]
    if not broken:
        return None
    return Damage(len(broken), broken[0].line, broken[0].start, broken[0].kind)
