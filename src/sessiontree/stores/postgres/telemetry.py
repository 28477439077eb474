"""Traces and metrics of a database's sessions, with OpenTelemetry. Only this module imports it.

`SESSIONTREE_TELEMETRY=1` chooses `ObservedStore`; without it, this module is not imported and nothing is measured. Only
the API is used: where the data goes is configured as for every other library, by an SDK in the program or by
`opentelemetry-instrument`. Names, sizes and times are reported, and no content.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator

from opentelemetry import metrics, trace
from opentelemetry.trace import Span, SpanKind, StatusCode

from sessiontree.stores.postgres.store import PostgresStore

_NAME = "sessiontree.store"


class _Instruments:
    """The instruments of the providers that are set when the first store is opened."""

    def __init__(self) -> None:
        meter = metrics.get_meter(_NAME)
        self.tracer = trace.get_tracer(_NAME)
        self.duration = meter.create_histogram(
            f"{_NAME}.operation.duration", unit="s", description="Time of an operation on a session"
        )
        self.wait = meter.create_histogram(
            f"{_NAME}.wait.duration", unit="s", description="Time until other writers of a session were excluded"
        )
        self.bytes = meter.create_counter(f"{_NAME}.bytes", unit="By", description="Bytes of sessions read and written")
        self.lost = meter.create_counter(
            f"{_NAME}.lost_races", description="Appends that lost a race to another writer"
        )
        self.errors = meter.create_counter(f"{_NAME}.errors", description="Operations that failed")


_instruments: _Instruments | None = None


def _find_instruments() -> _Instruments:
    global _instruments
    if _instruments is None:
        _instruments = _Instruments()
    return _instruments


class ObservedStore(PostgresStore):
    """A store whose operations are reported."""

    @contextlib.contextmanager
    def _operation(self, name: str) -> Iterator[Span]:
        used = _find_instruments()
        attributes = {"db.system.name": "postgresql", "db.operation.name": name}
        start = time.perf_counter()
        with used.tracer.start_as_current_span(
            f"sessiontree {name}",
            kind=SpanKind.CLIENT,
            attributes={**attributes, "sessiontree.session": self.ref.name},
            record_exception=False,  # messages may have addresses and statements
            set_status_on_exception=False,
        ) as span:
            try:
                yield span
            except Exception as error:
                attributes["error.type"] = type(error).__name__
                span.set_attribute("error.type", type(error).__name__)
                span.set_status(StatusCode.ERROR)
                used.errors.add(1, attributes)
                raise
            finally:
                used.duration.record(time.perf_counter() - start, attributes)

    def _count(self, span: Span, name: str, size: int) -> None:
        span.set_attribute("sessiontree.bytes", size)
        _find_instruments().bytes.add(size, {"db.operation.name": name})

    def opened(self) -> None:
        with self._operation("open") as span:
            span.set_attribute("sessiontree.size", self.size())

    def create(self, data: Iterable[bytes]) -> None:
        contents = list(data)
        with self._operation("create") as span:
            super().create(contents)
            self._count(span, "create", sum(map(len, contents)))

    def append(self, data: bytes, *, expected_size: int) -> int | None:
        with self._operation("append") as span:
            size = super().append(data, expected_size=expected_size)
            span.set_attribute("sessiontree.lost_race", size is None)
            if size is None:
                _find_instruments().lost.add(1)
            else:
                self._count(span, "append", len(data))
            return size

    def _read_part(self, offset: int, size: int) -> tuple[int, bytes]:
        with self._operation("read") as span:
            found = super()._read_part(offset, size)
            self._count(span, "read", len(found[1]))
            return found

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[int]:
        start = time.perf_counter()
        with self._operation("exclusive"), super().exclusive() as size:
            _find_instruments().wait.record(time.perf_counter() - start)
            yield size

    def replace(self, data: Iterable[bytes], *, expected_size: int) -> str:
        with self._operation("replace"):
            return super().replace(data, expected_size=expected_size)

    def resolve(self) -> None:
        with self._operation("resolve"):
            super().resolve()
