"""Show and change settings: the user's, and the project's, which take precedence.

get: show values and where they come from. set, unset: change the user's file or, with --project, the project's;
comments and other settings are preserved. path: show where the files are. schema: print a JSON Schema for editors.
"""

from __future__ import annotations

import argparse
import json
import os
from typing import Any

import msgspec

from sessiontree.cli import output, stderr
from sessiontree.cli.parser import Options
from sessiontree.errors import NotFoundError, UsageError
from sessiontree.settings import (
    Loaded,
    Setting,
    find_project_file,
    iter_settings,
    load_settings,
    project_file_for_writing,
    user_file,
)
from sessiontree.settings.files import set_value, unset_value
from sessiontree.settings.keys import find_setting, is_section, nearest, parse_key, parse_value, render_key
from sessiontree.settings.known import ANY_MODEL
from sessiontree.settings.schema import json_schema
from sessiontree.stores.repositories import home_folder
from sessiontree.views.text import clean, columns

EXAMPLES = """examples:
  sessiontree config get compaction
  sessiontree config set compaction.reserveTokens 32768 --project

Environment variables override both files: compaction.reserveTokens is $SESSIONTREE_COMPACTION_RESERVE_TOKENS. Settings
that determine who receives the conversation (model, summarizer) and the sandbox are ignored in a project's file,
because it may come with a repository."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("get", "set", "unset", "path", "schema"), help="what to do")
    parser.add_argument(
        "key", metavar="KEY", nargs="?", help="a setting; for get also a group of settings (default: all)"
    )
    parser.add_argument("value", metavar="VALUE", nargs="?", help="for set: the new value")
    parser.add_argument("--project", action="store_true", help="for set and unset: change the project's file")
    parser.add_argument("--cwd", metavar="DIR", help="use the project of this folder (default: the current folder)")


def run(options: Options) -> int | None:
    action = options.action
    if action in ("set", "unset") and not options.key:
        raise UsageError(f"KEY is missing: `sessiontree config {action} KEY`; `sessiontree config get` lists all keys")
    if action == "set" and options.value is None:
        raise UsageError(f"VALUE is missing: `sessiontree config set {options.key} VALUE`")
    if options.value is not None and action != "set":
        raise UsageError(f"`sessiontree config {action}` takes no value; use `sessiontree config set`")
    if options.key and action in ("path", "schema"):
        raise UsageError(f"`sessiontree config {action}` takes no key")
    return {"get": _get, "set": _set, "unset": _unset, "path": _path, "schema": _schema}[action](options)


def _get(options: Options) -> int | None:
    loaded = load_settings(_cwd(options), _home(options))
    rows = _rows(loaded, options.key)
    if options.json:
        output.print_json({"settings": rows, "warnings": [_notice(notice) for notice in loaded.warnings]})
    else:
        _print_rows(rows, alone=options.key is not None and len(rows) == 1 and rows[0]["key"] == options.key)
        for notice in loaded.warnings:
            stderr.print_error(str(notice))
    return stderr.DAMAGED if any(notice.is_error for notice in loaded.warnings) else None


def _print_rows(rows: list[dict[str, Any]], *, alone: bool) -> None:
    if alone:
        (row,) = rows
        output.print_lines([clean(_render(row["value"]))])
        stderr.print_line(f"from: {_origin(row)}")
        return
    cells = [(clean(row["key"]), clean(_render(row["value"])), _origin(row)) for row in rows]
    widths = [max(columns(row[at]) for row in cells) for at in (0, 1)]
    output.print_lines(
        f"{key}{' ' * (widths[0] - columns(key))}  {value}{' ' * (widths[1] - columns(value))}  {clean(origin)}"
        for key, value, origin in cells
    )


def _rows(loaded: Loaded, key: str | None) -> list[dict[str, Any]]:
    """The selected settings with their values and sources."""
    path = parse_key(key) if key else ()
    paths = [setting for setting in _paths(loaded) if setting[: len(path)] == path]
    if not paths and not is_section(path):
        found = nearest(key or "")
        raise UsageError(
            f"unknown setting {key!r}"
            + (f"; did you mean {found}?" if found else "; `sessiontree config get` lists them")
        )
    rows = []
    for setting in paths:
        name = render_key(setting)
        source = loaded.source(name)
        value = _value(loaded.settings, setting)
        rows.append({"key": name, "value": value, "source": source.layer, "where": source.where or None})
    return rows


def _paths(loaded: Loaded) -> list[tuple[str, ...]]:
    """All settings, with the per-model ones that are set."""
    plain = [setting.path for setting in iter_settings() if ANY_MODEL not in setting.path]
    return plain + [path for path in map(parse_key, loaded.sources) if path not in plain]


def _value(settings: Any, path: tuple[str, ...]) -> Any:
    found = msgspec.to_builtins(settings)
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _set(options: Options) -> None:
    path = parse_key(options.key)
    setting = _setting(options.key, path)
    if options.project and not setting.from_project:
        raise UsageError(
            f"a project cannot set {options.key}, because its file may come with a repository; omit --project"
        )
    try:
        value = parse_value(setting, options.value)
    except ValueError as error:
        raise UsageError(f"{options.key}: {error}") from None
    file = _file(options)
    set_value(file, path, value, through_links=not options.project)
    _print_result(options, file, value)


def _unset(options: Options) -> None:
    file = _file(options)
    if not unset_value(file, parse_key(options.key), through_links=not options.project):
        raise NotFoundError(f"{file}: does not set {options.key}")
    _print_result(options, file, None)


def _print_result(options: Options, file: str, value: Any) -> None:
    """Print the changed file, and the source that overrides it, if any."""
    key = render_key(parse_key(options.key))
    loaded = load_settings(_cwd(options), _home(options))
    source = loaded.source(key)
    overruled = source.layer if source.where not in ("", file) else None
    if options.json:
        output.print_json({"key": key, "value": value, "path": file, "overruledBy": overruled})
        return
    output.print_lines([clean(file)])
    if overruled:
        value = _render(_value(loaded.settings, parse_key(key)))
        stderr.print_line(f"still {value}: {key} is overridden by {source.where}")


def _path(options: Options) -> None:
    cwd, home = _cwd(options), _home(options)
    files = {"user": user_file(home), "project": find_project_file(cwd, home) or project_file_for_writing(cwd, home)}
    if options.json:
        output.print_json({name: {"path": path, "exists": os.path.exists(path)} for name, path in files.items()})
    else:
        output.print_lines(
            f"{name:8}{clean(path)}{'' if os.path.exists(path) else '  (does not exist)'}"
            for name, path in files.items()
        )


def _schema(options: Options) -> None:
    if options.json:
        output.print_json({"schema": json_schema()})
    else:
        output.print_lines(json.dumps(json_schema(), indent=2).splitlines())


def _setting(key: str, path: tuple[str, ...]) -> Setting:
    found = find_setting(path)
    if found is not None:
        return found
    if is_section(path):
        raise UsageError(f"{key} is a group of settings; `sessiontree config get {key}` lists them")
    meant = nearest(key)
    hint = f"did you mean {meant}?" if meant else "`sessiontree config get` lists all settings"
    raise UsageError(f"unknown setting {key!r}; {hint}")


def _file(options: Options) -> str:
    home = _home(options)
    return project_file_for_writing(_cwd(options), home) if options.project else user_file(home)


def _cwd(options: Options) -> str:
    try:
        folder = os.path.abspath(options.cwd or os.getcwd())
    except OSError:
        raise UsageError("the working folder was deleted; name a folder with --cwd") from None
    if not os.path.isdir(folder):
        raise UsageError(f"{folder}: folder does not exist")
    return folder


def _home(options: Options) -> str | None:
    return home_folder(options.home) if options.home else None


def _notice(notice: Any) -> dict[str, Any]:
    return {"where": notice.where, "key": notice.key or None, "text": notice.text, "isError": notice.is_error}


def _render(value: Any) -> str:
    return value if isinstance(value, str) else "-" if value is None else json.dumps(value, ensure_ascii=False)


def _origin(row: dict[str, Any]) -> str:
    match row["source"]:
        case "environment":
            return f"${row['where']}"
        case "default":
            return "default"
        case _:
            return str(row["where"])
