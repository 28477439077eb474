"""One whole session file -> what it used and did: responses, calls of tools, results, and which files they were about.

Only lines that can hold one of these are decoded, one after the other, and none of their texts is kept.

Sessions share lines: a fork begins with those of its origin, and a session that was converted tells them in another
format. So that each counts once, whatever is counted has *keys*, of which its copies have at least one too:

* an entry is known by its id: that of the entry it was converted from, if it was;
* a response that names itself and its request (Claude Code: `message.id` and `requestId`) is known by both, in all of
  its lines and in every copy, also where a program gave the copied lines new ids;
* a call and its result are known by the id of the call.

Ids that are no longer than a counter or a few random digits are made for one session and come again in others: they
tell something only together with the time of their line, which copies keep. A line that has no id or no time is known
by all of its bytes.

A file is told in three parts, which are kept in the cache side by side. `keys` are for finding files that share lines.
`Facts` are sums, which is all that is needed of a file that shares none. `Details` tell each thing by itself, for files
that do share lines, or of which only a part is asked for: they are looked at only then.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from hashlib import blake2b

import msgspec
from msgspec import Struct

from sessiontree.conversion.tools import FileUse, find_file
from sessiontree.core.context import milliseconds
from sessiontree.core.entries import Entry, MessageEntry, UsageRecord
from sessiontree.core.jsonio import parse_json
from sessiontree.core.messages import Assistant, ToolCall, ToolResult, Usage, tool_calls
from sessiontree.core.usage import larger_usage, response_key, usage_of, valid_count
from sessiontree.dialects.passthrough import PASSTHROUGH, passthrough_of
from sessiontree.library import counts
from sessiontree.library.counts import Counted
from sessiontree.library.summary import whole_text
from sessiontree.library.summary_reader import DAMAGE
from sessiontree.session.journal import Journal
from sessiontree.session.reader import Reader

KEY = 8
"""The bytes of a key: among a billion things, two that are not the same share one with a chance of 1 in 40."""

FILE_USES: tuple[FileUse, ...] = ("read", "write", "edit")
NO_FILE = -1

_QUARTER = 15 * 60 * 1000
_LARGEST = 2**53
_LONG = 20
"""An id with so many characters is nowhere else, unless it was copied."""
_RIDER = f'"{PASSTHROUGH}"'.encode()
_CALLS_OR_RESULTS = (b'"tool_use"', b'"toolCall"', b'"toolResult"', b'"tool_result"', b'"tool-result"')
_request = re.compile(rb'"requestId"\s*:\s*"([^"\\]{1,200})"')
_uuid = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\Z")


class Numbers(Struct, array_like=True):
    """What is counted. `input` was read fresh or written to the provider's cache; `cached` came out of it."""

    requests: int = 0
    input: float = 0
    output: float = 0
    cached: float = 0
    cost: float = 0.0
    priced: int = 0
    """Requests whose cost is recorded."""
    calls: int = 0
    results: int = 0
    errors: int = 0
    """Results that are errors."""

    @property
    def tokens(self) -> float:
        return self.input + self.output + self.cached

    @property
    def error_rate(self) -> float | None:
        """The part of the results that are errors; None where there are no results."""
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


class Response(Struct, frozen=True, array_like=True, gc=False):
    """One answer of a model. Times are milliseconds since 1970; a model is a number in `Details.models`."""

    keys: bytes
    """One or several: copies have at least one in common."""
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
    """A number in `Details.files`."""
    use: int = 0
    """A number in `FILE_USES`."""


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
    """The sums of one day and one model, and the first and last time of what is in them.

    What a day is depends on where one is: as long as these two times lie on the day, all between them does.
    """

    day: str
    model: str
    first: int
    last: int
    numbers: Numbers

    @property
    def is_still_of_its_day(self) -> bool:
        return day_of(self.first) == self.day == day_of(self.last)


class Damage(Struct, frozen=True, array_like=True):
    """Pieces of a file that could not be read, and where the first of them is."""

    pieces: int
    line: int
    start: int
    kind: str


class Facts(Struct, frozen=True, array_like=True):
    buckets: list[Bucket]
    files: dict[str, tuple[int, int, int]]
    """As calls name them: how often each was read, written and edited."""
    damage: Damage | None = None


class Told(Struct, frozen=True):
    """All that one file tells."""

    keys: bytes
    facts: Facts
    details: Details
    counted: Counted


def tell(reader: Reader, otherwise: int) -> Told:
    """What a session used and did. Entries without a time of their own get the time `otherwise`."""
    journal = reader.journal
    telling = _Telling(reader.dialect.name, otherwise)
    used: list[Entry] = []
    shadowed = reader.shadowed
    for node, raw in _iter_counting(journal):
        entry = journal.dialect.parse(raw)
        keys = _keys_of(entry, raw)
        if not entry.id:
            entry = msgspec.structs.replace(entry, id=journal.tree.ids[node])
        telling.take_usage(entry, keys)
        if node not in shadowed:  # a later line has the same id, and counts in place of this one
            telling.take_tools(entry, keys)
        if counts.says_usage(raw):
            used.append(_without_texts(entry))
    details = telling.details()
    buckets, files = sum_up(details)
    facts = Facts(buckets, files, _damage(reader))
    return Told(b"".join(telling.keys), facts, details, counts.count_used(reader, used))


def sum_up(details: Details) -> tuple[list[Bucket], dict[str, tuple[int, int, int]]]:
    """The sums of what is told one by one: of each day and model, and of each file."""
    buckets: dict[tuple[str, int], Bucket] = {}

    def bucket(thing: Response | Call | Result) -> Numbers:
        at = thing.at
        place = (day_of(at), thing.model)
        known = buckets.get(place)
        if known is None:
            known = buckets[place] = Bucket(place[0], details.models[thing.model], at, at, Numbers())
        elif not known.first <= at <= known.last:
            widened = (min(at, known.first), max(at, known.last))
            known = buckets[place] = Bucket(known.day, known.model, *widened, known.numbers)
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
    """The local day of a time, as `2026-11-01`; empty for a time that no calendar has."""
    quarter = at // _QUARTER  # midnight is at the beginning of a quarter of an hour everywhere
    day = _days.get(quarter)
    if day is None:
        try:
            day = time.strftime("%Y-%m-%d", time.localtime(at / 1000))
        except (ValueError, OverflowError, OSError):
            day = ""
        _days[quarter] = day
    return day


class _Telling:
    """The things of one session as its lines come by."""

    def __init__(self, agent: str, otherwise: int) -> None:
        self._agent = agent
        self._otherwise = otherwise
        self.keys: dict[bytes, None] = {}
        self._models = _Numbered()
        self._files = _Numbered()
        self._model = self._models.number_of("")
        self._model_of_call: dict[str, int] = {}
        self._responses: dict[str, tuple[dict[bytes, None], int, int, Usage]] = {}
        self._calls: dict[bytes, Call] = {}
        self._results: dict[bytes, Result] = {}

    def details(self) -> Details:
        responses = [_response(*found) for found in self._responses.values()]
        return Details(
            self._models.texts, self._files.texts, responses, list(self._calls.values()), list(self._results.values())
        )

    def take_usage(self, entry: Entry, keys: Sequence[bytes]) -> None:
        """By the same rule as `total_usage`, so that the two never tell different sums."""
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
        all_keys, first, _, told = known
        all_keys.update(dict.fromkeys(keys))
        telling = larger_usage(told if response != entry.id else None, usage)
        self._responses[response] = (all_keys, first, model, telling)

    def take_tools(self, entry: Entry, keys: Sequence[bytes]) -> None:
        if not isinstance(entry, MessageEntry):
            return
        at: int | None = None
        for number, message in enumerate(entry.messages):
            if isinstance(message, Assistant):
                for place, call in enumerate(tool_calls(message)):
                    at = self._time(entry) if at is None else at
                    self._take_call(call, _call_key(b"call", call.id, keys[0], place), at)
            elif isinstance(message, ToolResult):
                at = self._time(entry) if at is None else at
                one = _call_key(b"result", message.tool_call_id, keys[0], number)
                model = self._model_of_call.get(message.tool_call_id, self._model)
                self._results[one] = Result(one, at, model, message.is_error)
        if at is not None:
            self.keys.update(dict.fromkeys(keys))

    def _take_call(self, call: ToolCall, key: bytes, at: int) -> None:
        model = self._model
        if call.id:
            self._model_of_call[call.id] = model
        found = find_file(call.name, call.arguments, self._agent)
        if found is None:
            self._calls[key] = Call(key, at, model)
        else:
            self._calls[key] = Call(key, at, model, self._files.number_of(found[1]), FILE_USES.index(found[0]))

    def _time(self, entry: Entry) -> int:
        """The line's own time, else that of its message, else that of the session."""
        at = milliseconds(entry.timestamp) if entry.timestamp else None
        if at is None and isinstance(entry, MessageEntry):
            said = entry.message.timestamp
            at = int(said) if said is not None and abs(said) < _LARGEST else None
        return self._otherwise if at is None or not day_of(at) else at

    def _model_in(self, entry: Entry) -> int:
        """The model that an entry names, else the one that answered last."""
        match entry:
            case MessageEntry(message=Assistant(model=str(model))) if model:
                self._model = self._models.number_of(model)
            case UsageRecord(model=str(model)) if model:
                return self._models.number_of(model)  # beside the conversation: it answers nothing in it
            case _:
                pass
        return self._model


class _Numbered:
    """Texts that come again and again, each once, by number."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._numbers: dict[str, int] = {}

    def number_of(self, text: str) -> int:
        number = self._numbers.get(text)
        if number is None:
            number = self._numbers[text] = len(self.texts)
            self.texts.append(whole_text(text))
        return number


def _iter_counting(journal: Journal) -> Iterator[tuple[int, bytes]]:
    """The entries that may hold something that is counted, with their lines, in file order."""
    asked = [node for node, kind in enumerate(journal.types) if kind in counts.USING]
    for node, raw in zip(asked, journal.iter_raw(asked), strict=True):
        if counts.says_usage(raw) or any(mark in raw for mark in _CALLS_OR_RESULTS):
            yield node, raw


def _keys_of(entry: Entry, raw: bytes) -> list[bytes]:
    """What the copies of a line have in common (see above)."""
    keys = [_entry_key(entry, raw)]
    message = entry.message if isinstance(entry, MessageEntry) else None
    if isinstance(message, Assistant) and message.response_id:
        request = _request.search(raw)
        if request is not None:
            name = _bytes(message.response_id) + b" " + request[1]
            keys.insert(0, _key(name, "" if len(name) > 2 * _LONG else entry.timestamp))
    return keys


def _entry_key(entry: Entry, raw: bytes) -> bytes:
    id = (_id_before(raw) if _RIDER in raw else "") or entry.id
    if _uuid.match(id):
        return _key(b"", id)
    if id and entry.timestamp:
        return _key(_bytes(id), entry.timestamp)
    return blake2b(raw, digest_size=KEY).digest()


def _id_before(raw: bytes) -> str:
    """The id that an entry had in the session it was converted from; empty when it was not."""
    try:
        fields = parse_json(raw)
    except ValueError:
        return ""
    id = passthrough_of(fields).get("id") if isinstance(fields, dict) else None
    return id if isinstance(id, str) else ""


def _call_key(kind: bytes, id: str, line: bytes, place: int) -> bytes:
    return _key(kind, id) if len(id) >= _LONG else _key(line + kind, id or str(place))


def _key(one: bytes, other: str) -> bytes:
    return blake2b(b"%b\x00%b" % (one, _bytes(other)), digest_size=KEY).digest()


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _response(keys: dict[bytes, None], at: int, model: int, usage: Usage) -> Response:
    cost = None if usage.cost is None else valid_count(usage.cost.total)
    fresh = valid_count(usage.input) + valid_count(usage.cache_write)
    return Response(b"".join(keys), at, model, fresh, valid_count(usage.output), valid_count(usage.cache_read), cost)


def _without_texts(entry: Entry) -> Entry:
    """An entry with what counting needs of it: it is kept until the whole file is read."""
    if not isinstance(entry, MessageEntry) or not isinstance(entry.message, Assistant | ToolResult):
        return entry
    message = msgspec.structs.replace(entry.message, content=())
    return msgspec.structs.replace(entry, message=message, more_messages=())


def _damage(reader: Reader) -> Damage | None:
    """What was not read, and so not counted. Records that only stand on one line are read."""
    broken = [one for one in reader.fragments if one.kind in DAMAGE]
    if not broken:
        return None
    return Damage(len(broken), broken[0].line, broken[0].start, broken[0].kind)
