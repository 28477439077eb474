"""Traces and metrics of the store: what operations do, without any content, and only if they are asked for."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import sessiontree
from sessiontree.errors import NotFoundError
from sessiontree.stores.contract import SessionRef
from sessiontree.stores.postgres import telemetry
from sessiontree.stores.postgres.repository import PostgresRepository, find_store_type
from sessiontree.stores.postgres.store import PostgresStore
from sessiontree.stores.postgres.telemetry import ObservedStore

SECRET = "kumquat"


def points(reader: InMemoryMetricReader) -> dict[str, list[Any]]:
    data = reader.get_metrics_data()
    assert data is not None
    return {
        metric.name: list(metric.data.data_points)
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


def test_operations_lost_races_waits_bytes_and_errors_are_reported_without_content(
    repository: PostgresRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    spans, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracers, meters = TracerProvider(), MeterProvider([reader])
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    monkeypatch.setattr(trace, "get_tracer", tracers.get_tracer)
    monkeypatch.setattr(metrics, "get_meter", meters.get_meter)
    monkeypatch.setattr(telemetry, "_instruments", None)
    monkeypatch.setattr(repository, "_store_type", ObservedStore)
    store = repository.new("session-1", timestamp="", cwd="/")
    store.create([SECRET.encode()])
    other = repository.open(store.ref)
    assert store.append(b"12345", expected_size=7) == 12
    assert other.append(b"late", expected_size=7) is None
    with other.exclusive() as size:
        other.append(b"xyz", expected_size=size)
    other.replace([b"new"], expected_size=15)
    with pytest.raises(NotFoundError):
        repository.open(SessionRef("nothing", repository.home))
    repository.delete(store.ref)
    with pytest.raises(sessiontree.SessionTreeError):
        store.append(b"gone", expected_size=15)

    names = [span.name for span in spans.get_finished_spans()]
    assert names.count("sessiontree append") == 4
    assert {"sessiontree create", "sessiontree open", "sessiontree exclusive", "sessiontree replace"} <= {*names}
    assert {span.attributes["sessiontree.session"] for span in spans.get_finished_spans() if span.attributes} == {
        "session-1",
        "nothing",
    }
    found = points(reader)
    written = {point.attributes["db.operation.name"]: point.value for point in found["sessiontree.store.bytes"]}
    assert written == {"create": 7, "append": 8}
    assert sum(point.value for point in found["sessiontree.store.lost_races"]) == 1
    errors = {point.attributes["error.type"]: point.value for point in found["sessiontree.store.errors"]}
    assert errors["NotFoundError"] == 1
    assert errors["ReplacedError"] == 1
    assert sum(point.count for point in found["sessiontree.store.wait.duration"]) == 2
    operations = {point.attributes["db.operation.name"] for point in found["sessiontree.store.operation.duration"]}
    assert {"open", "create", "append", "exclusive", "replace"} <= operations
    shown = "".join(span.to_json() for span in spans.get_finished_spans()) + str(found)
    assert SECRET not in shown
    assert repository.home not in shown


def test_sessions_behave_the_same_with_telemetry(
    repository: PostgresRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repository, "_store_type", ObservedStore)
    with sessiontree.create(home=repository.home) as session:
        session.append("user", "hello")
    with sessiontree.open(str(session.ref)) as again:
        assert [message.text for message in again.context().messages] == ["hello"]


def test_nothing_is_imported_or_measured_unless_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_store_type({}) is PostgresStore
    assert find_store_type({"SESSIONTREE_TELEMETRY": "0"}) is PostgresStore
    assert find_store_type({"SESSIONTREE_TELEMETRY": "1"}) is ObservedStore
    code = (
        "import sys, sessiontree.stores.postgres.repository as module; module.PostgresRepository('postgresql://x/y');"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"PATH": "/usr/bin"})
    monkeypatch.setitem(sys.modules, "sessiontree.stores.postgres.telemetry", None)
    with pytest.raises(sessiontree.SessionTreeError, match=r"pip install 'sessiontree\[telemetry\]'"):
        find_store_type({"SESSIONTREE_TELEMETRY": "1"})
