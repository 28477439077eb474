"""The scripted server as a process, and lazy imports of provider packages."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

from sessiontree.core.messages import text_of
from sessiontree.models import open_model
from tests.models.helpers import HELLO, ask, message
from tests.test_public import modules_after

PROVIDERS_PACKAGES = {"pydantic_ai", "pydantic", "anthropic", "openai", "google", "httpx", "httpx2"}


def test_the_server_runs_as_a_process_and_records_its_requests(tmp_path: Path) -> None:
    script, record = tmp_path / "script.json", tmp_path / "asked.jsonl"
    script.write_text('{"turns": [{"text": "from a process"}]}')
    command = [
        sys.executable,
        "-m",
        "sessiontree.testing.model_server",
        "--script",
        str(script),
        "--record",
        str(record),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        report = json.loads(server.stdout.readline())
        (events,) = ask(open_model("anthropic:claude-opus-5", environment=report["environment"]), HELLO)
        server.send_signal(signal.SIGINT)
        assert server.wait(30) == 0
    assert text_of(message(events).content) == "from a process"
    (line,) = record.read_text().splitlines()
    asked = json.loads(line)
    assert (asked["path"], asked["outcome"]) == ("/v1/messages", "answered")
    assert "***" in asked["headers"].values()
    assert report["environment"]["ANTHROPIC_API_KEY"] not in line
    assert asked["body"]["messages"][0]["role"] == "user"


def test_an_invalid_script_is_reported_on_one_line(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text("{")
    command = [sys.executable, "-m", "sessiontree.testing.model_server", "--script", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1


def test_no_provider_package_is_imported_before_the_first_request() -> None:
    code = (
        "import sessiontree.models as m, sessiontree.models.model_summarizer\n"
        "m.open_model('anthropic:x', environment={'ANTHROPIC_API_KEY': 'k'})"
    )
    assert not PROVIDERS_PACKAGES & {name.partition(".")[0] for name in modules_after(code)}


def test_without_the_packages_an_install_hint_is_printed() -> None:
    code = (
        "import sys, asyncio; sys.modules['pydantic_ai'] = None\n"
        "from sessiontree.models import open_model, answer, Request\n"
        "model = open_model('anthropic:x', environment={'ANTHROPIC_API_KEY': 'k'})\n"
        "try: asyncio.run(answer(model, Request([])))\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "UsageError models need more packages: pip install 'sessiontree[models]'\n"
