"""Plugins of other packages: listing imports nothing, and our own are loaded in the same way."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sessiontree import plugins
from sessiontree.clients import client_of
from sessiontree.dialects.native.dialect import NATIVE
from sessiontree.dialects.pi import PI
from sessiontree.errors import NotFoundError
from sessiontree.sources.detect import detect
from sessiontree.stores.memory import open_memory_repository
from sessiontree.stores.repositories import FileRepository


def run(code: str) -> Any:
    """The JSON that a fresh interpreter prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


CLAUDE_LINE = b'{"type":"user","uuid":"u","parentUuid":null,"sessionId":"s","message":{"role":"user","content":"%s"}}\n'


def install(folder: Path, entry_points: str | bytes, package: str = "acme_sessions", info: str = "dist-info") -> None:
    """Install a package of another author, as an installer would."""
    (folder / f"{package}.py").write_text("DIALECT = 'the dialect of acme'\n\nclass Deep:\n    inner = 'deep'\n")
    metadata = folder / f"{package}-1.0.{info}"
    metadata.mkdir()
    raw = entry_points if isinstance(entry_points, bytes) else entry_points.encode()
    (metadata / "entry_points.txt").write_bytes(raw)


def test_our_own_plugins_are_listed() -> None:
    assert {"native", "pi"} <= set(plugins.names("dialects"))
    assert {"file", "memory"} <= set(plugins.names("stores"))
    assert plugins.names("dialects") == sorted(plugins.names("dialects"))


def test_loading_returns_our_own_plugins() -> None:
    assert plugins.load("dialects", "native") is NATIVE
    assert plugins.load("dialects", "pi") is PI
    assert plugins.load("stores", "file") is FileRepository
    assert plugins.load("stores", "memory") is open_memory_repository


def test_listing_names_imports_no_plugin() -> None:
    loaded = run(
        "import sys, json\n"
        "from sessiontree import plugins\n"
        "names = {kind: plugins.names(kind) for kind in ('dialects', 'stores', 'summarizers', 'tools')}\n"
        "assert 'pi' in names['dialects'] and 'file' in names['stores']\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    assert "sessiontree.plugins" in loaded
    assert not [name for name in loaded if name.startswith(("sessiontree.dialects", "sessiontree.stores"))]
    assert "msgspec" not in loaded
    assert "importlib.metadata" not in loaded


def test_loading_a_plugin_imports_only_that_plugin() -> None:
    loaded = run(
        "import sys, json\n"
        "from sessiontree import plugins\n"
        "plugins.load('stores', 'memory')\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    assert "sessiontree.stores.memory" in loaded
    assert "sessiontree.stores.file" not in loaded
    assert not [name for name in loaded if name.startswith("sessiontree.dialects")]


def test_the_client_of_a_dialect_is_found_without_loading_the_dialect() -> None:
    loaded = run(
        "import sys, json\n"
        "from sessiontree import plugins\n"
        "from sessiontree.clients import client_of\n"
        "dialects = [name for name in plugins.names('dialects') if plugins.is_ours('dialects', name)]\n"
        "assert all(client_of(name).texts for name in dialects)\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    assert "sessiontree.dialects.pi.client" in loaded
    assert not [name for name in loaded if name.endswith((".dialect", ".tools", ".defaults"))]


def test_a_transcript_of_claude_code_loads_no_other_dialect(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(CLAUDE_LINE % b"horse")
    loaded = run(
        "import sys, json, sessiontree\n"
        f"sessiontree.open({str(path)!r}).context()\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    assert [name for name in loaded if name.endswith(".dialect")] == ["sessiontree.dialects.claude.dialect"]


def test_the_word_that_marks_native_files_does_not_make_a_file_native() -> None:
    assert detect(CLAUDE_LINE % b"what is sessiontree?", "here").name == "claude"


@pytest.mark.parametrize("name", ["native", "neovate", "omp", "claude", "pi"])
def test_the_client_found_by_name_is_that_of_the_dialect(name: str) -> None:
    assert client_of(name) is plugins.load("dialects", name).client


def test_an_unknown_name_is_an_error_that_lists_the_known_names() -> None:
    with pytest.raises(NotFoundError, match=r"no dialect named 'klingon'.*native.*pi"):
        plugins.load("dialects", "klingon")


def test_an_unknown_kind_is_reported_as_empty() -> None:
    kind: Any = "telescopes"
    assert plugins.names(kind) == []
    with pytest.raises(NotFoundError, match="available: none"):
        plugins.load(kind, "hubble")


@pytest.mark.parametrize("info", ["dist-info", "egg-info"])
def test_a_plugin_of_another_package_is_found(info: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "[sessiontree.dialects]\nacme = acme_sessions:DIALECT\n", info=info)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "acme_sessions", raising=False)
    assert "acme" in plugins.names("dialects")
    assert "acme_sessions" not in sys.modules
    assert plugins.load("dialects", "acme") == "the dialect of acme"
    assert "native" in plugins.names("dialects")


def test_entry_points_are_read_as_installers_write_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [
        "[console_scripts]",
        "acme = acme_sessions:main",
        "",
        "# a comment = ignored",
        "[sessiontree.tools]",
        "  deep=acme_sessions:Deep.inner",
        "extra = acme_sessions:DIALECT [extra]",
        "; other = ignored",
        "[other.group]",
        "sessiontree = acme_sessions:DIALECT",
    ]
    ours = set(plugins.names("tools"))
    install(tmp_path, "\n".join(lines))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "acme_sessions", raising=False)
    assert {"deep", "extra"} == set(plugins.names("tools")) - ours
    assert plugins.load("tools", "deep") == "deep"
    assert plugins.load("tools", "extra") == "the dialect of acme"


def test_an_entry_point_may_be_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "[sessiontree.tools]\nmodule = acme_sessions\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "acme_sessions", raising=False)
    assert plugins.load("tools", "module").DIALECT == "the dialect of acme"


def test_the_first_on_the_path_wins_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, target in (("first", "one"), ("second", "two")):
        (tmp_path / name).mkdir()
        install(tmp_path / name, f"[sessiontree.tools]\nacme = {target}:x\n", package=f"acme_{name}")
    monkeypatch.syspath_prepend(tmp_path / "second")
    monkeypatch.syspath_prepend(tmp_path / "first")
    assert plugins.names("tools").count("acme") == 1
    with pytest.raises(ModuleNotFoundError, match="one"):
        plugins.load("tools", "acme")


def test_a_broken_package_does_not_hide_our_plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, b"[sessiontree.dialects]\nna\xefve = acme:DIALECT\n")
    (tmp_path / "empty-1.0.dist-info").mkdir()
    (tmp_path / "file-1.0.dist-info").write_bytes(b"not a folder")
    (tmp_path / "folder-1.0.dist-info" / "entry_points.txt").mkdir(parents=True)
    monkeypatch.syspath_prepend(tmp_path)
    assert {"native", "pi"} <= set(plugins.names("dialects"))


def test_a_path_that_is_not_a_folder_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path / "nowhere"), str(tmp_path / "x.zip"), *sys.path])
    assert "native" in plugins.names("dialects")


def test_a_dialect_of_another_package_is_tried_before_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "[sessiontree.dialects]\nzoo = zoo_sessions:ZOO\n", package="zoo_sessions")
    (tmp_path / "zoo_sessions.py").write_text(
        "from sessiontree.dialects.contract import CERTAIN\n"
        "from sessiontree.dialects.claude.dialect import ClaudeCode\n"
        "class Zoo(ClaudeCode):\n"
        "    name = 'zoo'\n"
        "    def recognize(self, head):\n"
        "        return CERTAIN if b'zebra' in head else 0\n"
        "ZOO = Zoo()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert [detect(CLAUDE_LINE % animal, "here").name for animal in (b"zebra", b"horse")] == ["zoo", "claude"]
