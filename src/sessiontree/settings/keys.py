"""Parse setting keys and values given as text."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Sequence
from types import NoneType
from typing import Any, Literal, get_args, get_origin

import msgspec

from sessiontree.settings.known import ANY_MODEL, Setting, iter_settings

_TRUE, _FALSE = frozenset({"true", "1", "yes", "on"}), frozenset({"false", "0", "no", "off"})


def find_setting(path: Sequence[str]) -> Setting | None:
    return next((setting for setting in iter_settings() if _fits(setting.path, path)), None)


def is_section(path: Sequence[str]) -> bool:
    """Whether a path is a group of settings."""
    return any(len(setting.path) > len(path) and _fits(setting.path[: len(path)], path) for setting in iter_settings())


def _fits(known: Sequence[str], path: Sequence[str]) -> bool:
    return len(known) == len(path) and all(name in (ANY_MODEL, given) for name, given in zip(known, path, strict=True))


def parse_key(key: str) -> tuple[str, ...]:
    """Split a dotted key. A model name in it may contain dots, with or without quotes around the name."""
    for setting in iter_settings():
        if ANY_MODEL not in setting.path:
            continue
        at = setting.path.index(ANY_MODEL)
        prefix, suffix = ".".join(setting.path[:at]) + ".", "." + ".".join(setting.path[at + 1 :])
        if key.startswith(prefix) and key.endswith(suffix) and len(key) > len(prefix) + len(suffix):
            model = key[len(prefix) : len(key) - len(suffix)].strip('"')
            return (*setting.path[:at], model, *setting.path[at + 1 :])
    return tuple(key.split("."))


def render_key(path: Sequence[str]) -> str:
    return ".".join(path)


def nearest(key: str, among: Iterable[str] | None = None) -> str | None:
    """The known key that is closest to an unknown one."""
    known = list(among) if among is not None else [setting.key for setting in iter_settings()]
    folded = {name.lower(): name for name in known}
    found = difflib.get_close_matches(key.lower(), folded, n=1, cutoff=0.6)
    if found:
        return folded[found[0]]
    # The right name in the wrong section.
    last = key.rpartition(".")[2].lower()
    by_word = [name for name in known if name.rpartition(".")[2].lower() == last]
    return by_word[0] if by_word else None


def check_value(setting: Setting, value: Any) -> Any:
    """Convert a decoded value to the setting's type. The message of a ValueError names the expected type."""
    try:
        return msgspec.convert(value, setting.type)
    except (msgspec.ValidationError, UnicodeEncodeError):
        raise ValueError(f"expected {expectation(setting.type)}, got {_shown(value)}") from None


def parse_value(setting: Setting, text: str) -> Any:
    """Parse a value from the environment or the command line."""
    options = _options(setting.type)
    if str in options or any(get_origin(option) is Literal for option in options):
        return check_value(setting, text)
    if bool in options:
        word = text.strip().lower()
        return check_value(setting, True if word in _TRUE else False if word in _FALSE else text)
    try:
        return check_value(setting, json.loads(text.strip()))
    except json.JSONDecodeError:
        return check_value(setting, text)


def expectation(declared: Any) -> str:
    """Describe a type for an error message."""
    words = []
    for option in _options(declared):
        if get_origin(option) is Literal:
            words.append("one of " + ", ".join(get_args(option)))
        elif option is not NoneType:
            words.append({bool: "true or false", int: "a whole number", float: "a number", str: "text"}[option])
    return " or ".join(words) + "".join(_limits(meta) for meta in _metas(declared))


def _limits(meta: msgspec.Meta) -> str:
    if meta.ge is not None and meta.le is not None:
        return f" from {meta.ge:,} to {meta.le:,}"
    if meta.gt is not None and meta.le is not None:
        return f" above {meta.gt:,}, at most {meta.le:,}"
    return " that is not empty" if meta.min_length else ""


def _metas(declared: Any) -> list[msgspec.Meta]:
    """The constraints of a type and of the types it is made of."""
    own = [meta for meta in getattr(declared, "__metadata__", ()) if isinstance(meta, msgspec.Meta)]
    inner = [declared.__origin__] if own else list(get_args(declared))
    return own + [meta for part in inner if not isinstance(part, str) for meta in _metas(part)]


def _options(declared: Any) -> list[Any]:
    """The alternatives of a type, without constraints: `int | None` has two."""
    if get_origin(declared) is Literal or isinstance(declared, type):
        return [declared]
    if hasattr(declared, "__metadata__"):
        return _options(declared.__origin__)
    return [option for part in get_args(declared) for option in _options(part)]


def _shown(value: Any) -> str:
    match value:
        case None | bool() | int() | float():
            return json.dumps(value)
        case str():
            return json.dumps(value if len(value) <= 40 else f"{value[:40]}…", ensure_ascii=False)
        case list():
            return "a list"
        case _:
            return "an object"
