"""What is said at the end of a run: what this machine lacks, so that nothing goes untested in silence."""

from __future__ import annotations

import pytest

from tests.cli.shells import MISSING


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for shell in MISSING:
        terminalreporter.write_line(
            f"NOT TESTED: the completion script of {shell} in {shell}, which is not installed here", red=True
        )
