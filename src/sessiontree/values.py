"""Frozen values and their JSON: the base class, tolerant decoding, lossless encoding."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

# Decoded JSON whose shape is not ours to say. Kept to the fields that carry other programs' data.
JsonObject: TypeAlias = dict[str, Any]

# The tag of union members that hold what we do not know. No file has it: a tag is needed only so that the decoder
# accepts the union.
NEVER_WRITTEN = "\x00"


class Value(Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """A frozen value whose fields are spelled in camel case in the file."""


ValueT = TypeVar("ValueT", bound=Value)


def parse_json(raw: bytes) -> Any:
    """Decode one JSON text the tolerant way: lone surrogates, control characters and huge numbers are accepted.

    Raises ValueError when it is no JSON text. Nesting too deep for the decoder counts as that.
    """
    try:
        return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        pass
    try:
        return json.loads(raw.decode("utf-8", "surrogateescape"), strict=False)
    except RecursionError as error:
        raise ValueError("nested too deeply to decode") from error


def render_json(value: object) -> bytes:
    """Encode a value as one line of JSON without its newline. Text that UTF-8 cannot hold is escaped, not lost."""
    try:
        return msgspec.json.encode(value)
    except (UnicodeEncodeError, msgspec.MsgspecError, OverflowError):
        return json.dumps(msgspec.to_builtins(value), ensure_ascii=True, separators=(",", ":")).encode("ascii")


def tolerant(
    cls: type[ValueT], fields: Mapping[str, Any], parse: Mapping[str, Callable[[Any], Any]] | None = None
) -> ValueT:
    """Build a value from decoded JSON field by field: a field of the wrong type takes its default.

    `parse` names fields that have a tolerant parser of their own.
    """
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(cls):
        if field.encode_name not in fields:
            continue
        found = fields[field.encode_name]
        if parse and field.name in parse:
            values[field.name] = parse[field.name](found)
            continue
        try:
            values[field.name] = msgspec.convert(found, field.type)
        except UnicodeEncodeError:  # a lone surrogate in a text; nothing else is wrong with it
            if isinstance(found, str) or field.type == JsonObject:
                values[field.name] = found
        except (msgspec.ValidationError, RecursionError):
            if field.required:
                raise
    return cls(**values)


def struct_tag(cls: type[Struct]) -> str:
    """The word that tells this member of a union apart in the file."""
    return str(cls.__struct_config__.tag)
