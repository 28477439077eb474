"""The public API: exactly these names, each importable, and a cheap import."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys

import pytest

import sessiontree

PUBLIC = [
    "AmbiguousError",
    "Branch",
    "Config",
    "ConflictError",
    "Context",
    "ConversionError",
    "Converted",
    "DamagedError",
    "Entry",
    "ExistsError",
    "Forked",
    "Fragment",
    "Header",
    "InvalidEntryError",
    "Message",
    "NotASessionError",
    "NotFoundError",
    "Problem",
    "ReadOnlyError",
    "ReplacedError",
    "Session",
    "SessionTreeError",
    "State",
    "StoreError",
    "UsageError",
    "UsageTotals",
    "WriteError",
    "convert",
    "create",
    "fork",
    "open",
    "open_store",
]


def modules_after(code: str) -> list[str]:
    """The modules a fresh interpreter has loaded after some code."""
    program = (
        f"import sys, json\nbefore = set(sys.modules)\n{code}\nprint(json.dumps(sorted(set(sys.modules) - before)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    found: list[str] = json.loads(done.stdout)
    return found


def test_the_public_names_are_these_and_sorted() -> None:
    assert sessiontree.__all__ == PUBLIC
    assert sorted(sessiontree.__all__) == sessiontree.__all__


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_can_be_imported(name: str) -> None:
    namespace: dict[str, object] = {}
    exec(f"from sessiontree import {name}", namespace)
    assert namespace[name] is getattr(sessiontree, name)


def test_a_star_import_gives_every_public_name() -> None:
    namespace: dict[str, object] = {}
    exec("from sessiontree import *", namespace)
    assert set(PUBLIC) <= set(namespace)


def test_dir_lists_the_public_names() -> None:
    assert set(PUBLIC) <= set(dir(sessiontree))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = sessiontree.nonsense


def test_importing_the_package_loads_nothing_heavy() -> None:
    loaded = modules_after("import sessiontree")
    assert [name for name in loaded if name.startswith("sessiontree")] == ["sessiontree"]
    heavy = {
        "msgspec",
        "json",
        "datetime",
        "hashlib",
        "argparse",
        "asyncio",
        "importlib.metadata",
        "wcwidth",
        "subprocess",
    }
    assert not heavy & {*loaded, *(name.partition(".")[0] for name in loaded)}


def test_the_errors_load_nothing_heavy() -> None:
    assert "msgspec" not in modules_after("from sessiontree import SessionTreeError")


def test_every_error_is_one_of_the_package() -> None:
    errors = [getattr(sessiontree, name) for name in PUBLIC if name.endswith("Error")]
    assert all(issubclass(error, sessiontree.SessionTreeError) for error in errors)
    assert issubclass(sessiontree.NotASessionError, sessiontree.DamagedError)
    assert issubclass(sessiontree.AmbiguousError, sessiontree.UsageError)
    assert issubclass(sessiontree.ReplacedError, sessiontree.StoreError)


def test_the_example_in_the_docstring_runs(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SESSIONTREE_HOME", str(tmp_path))
    code = "\n".join(line for line in (sessiontree.__doc__ or "").splitlines()[1:])
    exec(code, {})


@pytest.mark.parametrize("package", ["agent", "explore", "library", "search"])
def test_every_name_that_a_package_imports_on_first_use_exists(package: str) -> None:
    module = importlib.import_module(f"sessiontree.{package}")
    assert [name for name in module.__all__ if not hasattr(module, name)] == []
