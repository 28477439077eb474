"""`make adapters`: what it does with a version that cannot be installed. Its tests themselves need the frameworks."""

from __future__ import annotations

import pytest
from tests_adapters import __main__ as adapters
from tests_adapters import runs
from tests_adapters.environments import NotInstalledError


@pytest.fixture(autouse=True)
def nothing_can_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> str:
        raise NotInstalledError("ERROR: no matching distribution for this Python")

    monkeypatch.setattr(runs, "environment", refuse)


def test_a_newest_version_that_cannot_be_installed_is_named_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    assert runs.Run("traces", "99.0").passes()
    assert "99.0: cannot be installed: ERROR: no matching distribution" in capsys.readouterr().out


def test_a_pinned_version_that_cannot_be_installed_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(adapters, "newest_version", lambda _package: "99.0")
    with pytest.raises(SystemExit) as ended:
        adapters.main(["traces"])
    assert ended.value.code == 1
    pinned, newest = capsys.readouterr().out.splitlines()[-2:]
    assert ": FAILED: ERROR: no matching distribution" in pinned
    assert "99.0: SKIPPED, cannot be installed: ERROR: no matching distribution" in newest


def test_the_newest_version_is_not_tested_twice_and_an_unknown_one_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pinned = runs.Run("traces").version
    monkeypatch.setattr(adapters, "newest_version", lambda _package: pinned)
    with pytest.raises(SystemExit):
        adapters.main(["traces"])
    assert capsys.readouterr().out.count("FAILED") == 1

    def fail(_package: str) -> str:
        raise NotInstalledError("the registry does not answer")

    monkeypatch.setattr(adapters, "newest_version", fail)
    with pytest.raises(SystemExit):
        adapters.main(["traces"])
    assert "newest: SKIPPED, cannot be installed: the registry does not answer" in capsys.readouterr().out
