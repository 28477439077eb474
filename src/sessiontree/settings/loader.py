"""Merge layers into one `Settings`: defaults, the user's file, the project's file, the environment, the caller."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from sessiontree.errors import DamagedError, UsageError
from sessiontree.settings.files import find_project_file, read_values, user_file
from sessiontree.settings.keys import (
    check_value,
    find_setting,
    is_section,
    nearest,
    parse_key,
    parse_value,
    render_key,
)
from sessiontree.settings.known import ANY_MODEL, Settings, iter_settings

Layer: TypeAlias = Literal["default", "user", "project", "environment", "override"]

# `$schema` is for editors.
_NOT_A_SETTING = frozenset({"$schema"})
_PREFIX = "SESSIONTREE_"


class Source(Struct, frozen=True):
    """The origin of a value."""

    layer: Layer
    where: str = ""
    """The file or the environment variable."""


class Notice(Struct, frozen=True):
    """A part of the settings that is ignored, and why."""

    where: str
    key: str
    text: str
    is_error: bool = False
    """Whether a value or file is invalid; otherwise this is only a warning."""

    def __str__(self) -> str:
        return f"{self.where}: {self.key}: {self.text}" if self.key else f"{self.where}: {self.text}"


class Loaded(Struct, frozen=True):
    """The settings, the source of each value, and notices about ignored values."""

    settings: Settings
    sources: dict[str, Source]
    """By key; a missing key has its default value."""
    warnings: tuple[Notice, ...] = ()

    def source(self, key: str) -> Source:
        return self.sources.get(key, Source("default"))


class _Layers:
    """Collects values by path, and notices. A later layer overrides an earlier one."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, ...], Any] = {}
        self.sources: dict[str, Source] = {}
        self.notices: list[Notice] = []

    def put(self, path: tuple[str, ...], value: Any, source: Source) -> None:
        self.values[path] = value
        self.sources[render_key(path)] = source

    def notice(self, where: str, path: tuple[str, ...], text: str, *, is_error: bool = False) -> None:
        self.notices.append(Notice(where, render_key(path), text, is_error))


def load_settings(
    cwd: str | None = None,
    home: str | None = None,
    environment: Mapping[str, str] | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Loaded:
    """Load the settings for a folder.

    `overrides` are values by key ("compaction.reserveTokens") from the caller or a command-line option. They override
    everything else; an invalid one raises `UsageError`.
    """
    layers = _Layers()
    _add_file(layers, user_file(home), "user")
    project = find_project_file(cwd, home) if (cwd := cwd or _working_folder()) else None
    if project is not None:
        _add_file(layers, project, "project")
    _add_environment(layers, os.environ if environment is None else environment)
    for key, value in (overrides or {}).items():
        path = parse_key(key)
        setting = find_setting(path)
        if setting is None:
            raise UsageError(f"unknown setting {key!r}{_suggestion(key)}")
        try:
            layers.put(path, check_value(setting, value), Source("override"))
        except ValueError as error:
            raise UsageError(f"{key}: {error}") from None
    settings = msgspec.convert(_nested(layers.values), Settings)
    return Loaded(settings, layers.sources, tuple(layers.notices))


def _working_folder() -> str | None:
    try:
        return os.getcwd()
    except OSError:  # it was deleted
        return None


def _add_file(layers: _Layers, path: str, layer: Layer) -> None:
    try:
        values = read_values(path)
    except FileNotFoundError:
        return
    except DamagedError as error:
        text = str(error).removeprefix(f"{path}: ")
        layers.notices.append(Notice(path, "", f"{text}; the file is ignored", is_error=True))
        return
    source = Source(layer, path)
    for key, value in _leaves(layers, path, values, ()):
        setting = find_setting(key)
        if setting is None:
            continue
        if layer == "project" and not setting.from_project:
            layers.notice(
                path,
                key,
                "ignored: a project cannot set this, because its file may come with a repository; use the user's file",
            )
            continue
        try:
            layers.put(key, check_value(setting, value), source)
        except ValueError as error:
            layers.notice(path, key, str(error), is_error=True)


def _leaves(
    layers: _Layers, where: str, values: Mapping[str, Any], above: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Iterate over the known settings in a file; unknown keys become notices."""
    for name, value in values.items():
        path = (*above, name)
        if find_setting(path) is not None:
            yield path, value
        elif is_section(path):
            if isinstance(value, dict):
                yield from _leaves(layers, where, value, path)
            else:
                layers.notice(where, path, "expected an object", is_error=True)
        elif above or name not in _NOT_A_SETTING:
            layers.notice(where, path, f"unknown setting{_suggestion(render_key(path))}")


def _add_environment(layers: _Layers, environment: Mapping[str, str]) -> None:
    variables = {setting.variable: setting for setting in iter_settings() if setting.variable}
    sections = tuple({name[: name.index("_", len(_PREFIX)) + 1] for name in variables if name.count("_") > 1})
    for name, text in environment.items():
        setting = variables.get(name)
        if setting is not None and text:
            try:
                layers.put(setting.path, parse_value(setting, text), Source("environment", name))
            except ValueError as error:
                layers.notice(f"${name}", setting.path, str(error), is_error=True)
        elif setting is None and name.startswith(sections):
            meant = nearest(name, variables)
            layers.notice(f"${name}", (), "unknown setting" + (f"; did you mean ${meant}?" if meant else ""))


def _suggestion(key: str) -> str:
    found = nearest(key)
    return f"; did you mean {found.replace(ANY_MODEL, 'PROVIDER/MODEL')}?" if found else ""


def _nested(values: Mapping[tuple[str, ...], Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for path, value in values.items():
        inside = nested
        for name in path[:-1]:
            inside = inside.setdefault(name, {})
        inside[path[-1]] = value
    return nested
