"""Everything that sessiontree knows about one client is in its dialect's folder: other modules name no dialect."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import sessiontree
from sessiontree import plugins

SOURCE = Path(sessiontree.__file__).parent
DIALECTS = [name for name in plugins.names("dialects") if plugins.is_ours("dialects", name)]

OTHER_MEANINGS = {
    ("models/endpoints.py", "claude"): "another name of a provider",
    ("models/endpoints.py", "gemini"): "another name of a provider",
    ("cli/context.py", "native"): "the value of --as for messages in the form of the session's client",
}


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in SOURCE.rglob("*.py"):
        relative = path.relative_to(SOURCE).as_posix()
        if not relative.startswith("dialects/"):
            yield relative, ast.parse(path.read_text(encoding="utf-8"))


def imported_modules(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_no_module_outside_the_dialects_names_one_as_a_string() -> None:
    found = {
        (module, node.value)
        for module, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and node.value in DIALECTS
    }
    assert found == set(OTHER_MEANINGS)


def test_no_module_outside_the_dialects_imports_from_the_folder_of_one() -> None:
    folders = {f"sessiontree.dialects.{name}" for name in DIALECTS}
    found = {
        (module, name)
        for module, tree in modules()
        for name in imported_modules(tree)
        if ".".join(name.split(".")[:3]) in folders
    }
    assert found == set()
