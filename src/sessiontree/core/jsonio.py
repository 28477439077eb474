"""Frozen values and their JSON: the base class, tolerant decoding, lossless encoding."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, get_args

import msgspec
from msgspec import Struct

if TYPE_CHECKING:
    from json import JSONDecoder

# Decoded JSON whose shape is not ours to say. Kept to the fields that carry other programs' data.
JsonObject: TypeAlias = dict[str, Any]

# The tag of union members that hold what we do not know. No file has it: a tag is needed only so that the decoder
# accepts the union.
UNKNOWN_TAG = "\x00"


class Value(Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """A frozen value whose fields are spelled in camel case in the file."""


ValueT = TypeVar("ValueT", bound=Value)


def parse_json(raw: bytes) -> Any:
    """Decode one JSON text the tolerant way: lone surrogates, control characters and huge numbers are accepted.

    Raises ValueError when it is no JSON text. Nesting too deep for the decoder counts as that.
    """
    try:
        return _decode(raw)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError, ValueError):
        pass
    try:
        return tolerant_decoder().decode(raw.decode("utf-8", "surrogateescape"))
    except RecursionError as error:
        raise ValueError("nested too deeply to decode") from error


def _integer(digits: str) -> int | float:
    """An integer; one with more digits than Python converts is taken for the number it is close to."""
    try:
        return int(digits)
    except ValueError:
        return float(digits)


@functools.cache
def tolerant_decoder() -> JSONDecoder:
    from json import JSONDecoder  # few files need it

    return JSONDecoder(strict=False, parse_int=_integer)


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def render_json(value: object) -> bytes:
    """Encode a value as one line of JSON without its newline. Text that UTF-8 cannot hold is escaped, not lost."""
    try:
        return _encode(value)
    except (UnicodeEncodeError, msgspec.MsgspecError, OverflowError):
        import json

        return json.dumps(msgspec.to_builtins(value), ensure_ascii=True, separators=(",", ":")).encode("ascii")


def render_indented_json(value: object) -> str:
    """Encode a value as indented JSON for people to read."""
    data = render_json(value)
    try:
        return msgspec.json.format(data).decode("utf-8", "replace")
    except (msgspec.MsgspecError, RecursionError):
        return data.decode("utf-8", "replace")


Parsers: TypeAlias = Mapping[str, Callable[[Any], Any]]


def convert_fields(cls: type[ValueT], fields: Mapping[str, Any], parsers: Parsers = {}) -> ValueT:  # noqa: B006 - never changed
    """Build a value from decoded JSON field by field: a field of the wrong type takes its default.

    `parsers` names fields, here and in values inside, that have a tolerant parser of their own.
    """
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(cls):
        if field.encode_name not in fields:
            continue
        found = fields[field.encode_name]
        if field.name in parsers:
            values[field.name] = parsers[field.name](found)
            continue
        try:
            values[field.name] = msgspec.convert(found, field.type)
        except (msgspec.ValidationError, RecursionError, UnicodeEncodeError) as error:
            inner = _value_type(field.type)
            if inner is not None and isinstance(found, dict):
                values[field.name] = convert_fields(inner, found, parsers)
            elif isinstance(error, UnicodeEncodeError) and _is_fit(found, field.type):
                values[field.name] = found
            elif field.required:
                raise
    return cls(**values)


def _is_fit(found: Any, declared: Any) -> bool:
    """Whether a value that has a lone surrogate in a text would be of a type without it."""
    if declared == JsonObject:
        return isinstance(found, dict)
    try:
        return isinstance(found, str) and msgspec.convert("", declared) == ""
    except msgspec.ValidationError:
        return False


def _value_type(declared: Any) -> type[Value] | None:
    """The one kind of value a field may hold, if that is what it holds."""
    options = [option for option in (get_args(declared) or (declared,)) if option is not type(None)]
    only = options[0] if len(options) == 1 else None
    return only if isinstance(only, type) and issubclass(only, Value) else None


def struct_tag(cls: type[Struct]) -> str:
    """The word that tells this member of a union apart in the file."""
    return str(cls.__struct_config__.tag)
