"""Exports as spans and trajectories are accepted by models of these formats that others wrote."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf import json_format
from nat.atif.trajectory import Trajectory
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from tests.sample_home import make_sample_home

SESSIONS = [f"0{number}a1c0de" for number in (1, 2, 3, 5, 6)]
"""Of Claude Code, Pi, oh-my-pi and our own; one was compacted, one is damaged."""


def exported(home: Path, id: str, format: str) -> str:
    command = [sys.executable, "-m", "sessiontree", "export", id, "--format", format]
    done = subprocess.run(command, env=dict(os.environ), cwd=home, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return make_sample_home(tmp_path / "home", monkeypatch)


def test_trajectories_are_valid_and_are_read_back(home: Path) -> None:
    for id in SESSIONS:
        text = exported(home, id, "atif")
        trajectory = Trajectory.model_validate_json(text)
        assert trajectory.steps
        again = home / f"{id}.json"
        again.write_text(json.dumps(trajectory.to_json_dict()), encoding="utf-8")
        out = home / f"{id}.jsonl"
        command = ["convert", str(again), "--from", "atif", "--to", "native", "--out", str(out)]
        done = subprocess.run(
            [sys.executable, "-m", "sessiontree", *command], capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        shown = out.read_text(encoding="utf-8")
        for step in trajectory.steps:
            if isinstance(step.message, str):
                assert json.dumps(step.message, ensure_ascii=False)[1:-1] in shown


def test_spans_are_a_request_of_the_otlp_protocol(home: Path) -> None:
    for id in SESSIONS:
        request = json_format.Parse(exported(home, id, "otel"), ExportTraceServiceRequest())
        spans = request.resource_spans[0].scope_spans[0].spans
        assert spans
        assert {attribute.key for span in spans for attribute in span.attributes} >= {
            "gen_ai.operation.name",
            "gen_ai.conversation.id",
            "gen_ai.provider.name",
        }
