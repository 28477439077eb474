"""JSON for frozen values: their base class, tolerant decoding, lossless encoding."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar, get_args

import msgspec
from msgspec import Struct

if TYPE_CHECKING:
    from json import JSONDecoder

# Decoded JSON of arbitrary shape. Only for fields that hold other programs' data.
JsonObject: TypeAlias = dict[str, Any]

# Tag of the union members that hold unknown data. No file contains it: msgspec needs a tag on every member of a union.
UNKNOWN_TAG = "\x00"

# As UTF-8: DEL, the C1 controls, the characters that change the text direction, and kitty's placeholder of images.
_CONTROLS = rb"\x7f|\xc2[\x80-\x9f]|\xd8\x9c|\xe2\x80[\x8e\x8f\xaa-\xae]|\xe2\x81[\xa6-\xa9]|\xf4\x8e\xbb\xae"


class Value(Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """Base of frozen values; their fields are in camel case in JSON."""

    required_fields: ClassVar[Mapping[str, str]] = {}
    """What readers of our own lines rely on: by JSON name, the meaning of a field. Reading tolerates its absence."""


ValueT = TypeVar("ValueT", bound=Value)


def parse_json(raw: bytes) -> Any:
    """Decode JSON tolerantly: lone surrogates, control characters and huge numbers are accepted.

    Raises ValueError for anything that is not JSON, and for nesting too deep for the decoder.
    """
    try:
        return _decode(raw)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError, ValueError):
        return parse_odd_json(raw)


def parse_odd_json(raw: bytes) -> Any:
    """Decode JSON that a strict decoder rejected, like `parse_json`."""
    try:
        return tolerant_decoder().decode(raw.decode("utf-8", "surrogateescape"))
    except RecursionError as error:
        raise ValueError("nested too deeply to decode") from error


def describe_odd_json(raw: bytes) -> tuple[str, str]:
    """Kind of problem, and action, of a line that only the tolerant decoder accepts."""
    if not is_utf8(raw):
        return "bad-utf8", "invalid bytes are kept; the rest is read"
    if b"\\ud" in raw.lower():
        return "lone-surrogate", "kept unchanged"
    return "odd-json", "not strict JSON (a control character, NaN or a huge number); read anyway"


_MALFORMED = "JSON is malformed: "
_STRUCTURAL = tuple(_MALFORMED + what for what in ("expected ", "object keys must be", "trailing comma"))
_CHARACTER = _MALFORMED + "invalid character"


def structural_error(error: Exception, raw: bytes) -> int | None:
    """Return where a strict decoder failed, if a tolerant one cannot accept the text either.

    Both read the same text up to there. A tolerant one accepts more characters in strings, more numbers and NaN, but
    neither a missing delimiter nor a character that starts no value.
    """
    why = str(error)
    is_character = why.startswith(_CHARACTER)
    if not is_character and not why.startswith(_STRUCTURAL):
        return None
    try:
        at = int(why[why.rindex(" ") : -1])
    except ValueError:
        return None
    return None if is_character and (at >= len(raw) or raw[at] < 0x20 or raw[at] in b"NI") else at


def parse_object(raw: bytes) -> JsonObject:
    """Decode a JSON object, like `parse_json`; empty for any other value."""
    try:
        fields = parse_json(raw)
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) else {}


def is_utf8(data: bytes) -> bool:
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def is_unicode(text: str) -> bool:
    """Whether a text has no lone surrogates, which databases cannot store."""
    return replace_surrogates(text) == text


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates, which can be neither stored nor printed."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _integer(digits: str) -> int | float:
    """Parse an integer; one with more digits than Python converts becomes a float."""
    try:
        return int(digits)
    except ValueError:
        return float(digits)


@functools.cache
def tolerant_decoder() -> JSONDecoder:
    from json import JSONDecoder  # slow to import, and only damaged files need it

    return JSONDecoder(strict=False, parse_int=_integer)


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def render_json(value: object) -> bytes:
    """Encode a value as one line of JSON without LF. Lone surrogates are escaped, not lost."""
    try:
        return _encode(value)
    except (UnicodeEncodeError, msgspec.MsgspecError, OverflowError):
        import json

        return json.dumps(msgspec.to_builtins(value), ensure_ascii=True, separators=(",", ":")).encode("ascii")


def render_strict_json(value: object) -> bytes:
    """Encode a value like `render_json`, with lone surrogates replaced: strict decoders refuse their escapes."""
    try:
        return _encode(value)
    except (UnicodeEncodeError, msgspec.MsgspecError, OverflowError):
        import json

        return replace_surrogates(json.dumps(msgspec.to_builtins(value), ensure_ascii=False)).encode()


def render_json_line(value: object) -> bytes:
    """Encode a value like `render_json`, with U+2028 and U+2029 escaped: some clients also end lines there."""
    line = render_json(value)
    for separator in ("\u2028", "\u2029"):
        line = line.replace(separator.encode(), f"\\u{ord(separator):04x}".encode())
    return line


def escape_controls(data: bytes) -> bytes:
    """Escape characters that are valid in JSON but that a terminal would obey. The decoded values are the same."""
    return re.sub(_CONTROLS, _escape, data)


def _escape(found: re.Match[bytes]) -> bytes:
    units = found[0].decode().encode("utf-16-be").hex()
    return re.sub("(....)", r"\\u\1", units).encode()


def iter_json(fields: Mapping[str, object]) -> Iterator[bytes]:
    """Encode an object as one line of JSON in pieces. A field that is an iterator becomes a list, item by item.

    The items may be objects with such fields themselves.
    """
    opening = b"{"
    for name, value in fields.items():
        yield opening + render_json(name) + b":"
        opening = b","
        if not isinstance(value, Iterator):
            yield render_json(value)
            continue
        yield b"["
        for number, item in enumerate(value):
            separator = b"," if number else b""
            if isinstance(item, dict) and any(isinstance(inner, Iterator) for inner in item.values()):
                yield separator
                yield from iter_json(item)
            else:
                yield separator + render_json(item)
        yield b"]"
    yield b"{}" if opening == b"{" else b"}"


def native_fields(value: Value) -> JsonObject:
    """A value as native JSON; the parts of unknown types are their original fields."""
    fields: JsonObject = restore_unknown(msgspec.to_builtins(value))
    return fields


def restore_unknown(value: Any) -> Any:
    """Replace the parts of unknown types in encoded values by their original fields."""
    if isinstance(value, dict):
        if value.get("type") == UNKNOWN_TAG or value.get("role") == UNKNOWN_TAG:
            return value.get("fields", {})
        return {name: restore_unknown(inner) for name, inner in value.items()}
    return [restore_unknown(inner) for inner in value] if isinstance(value, list | tuple) else value


def render_indented_json(value: object) -> str:
    """Encode a value as indented JSON for people to read."""
    data = render_json(value)
    try:
        return msgspec.json.format(data).decode("utf-8", "replace")
    except (msgspec.MsgspecError, RecursionError):
        return data.decode("utf-8", "replace")


Parsers: TypeAlias = Mapping[str, Callable[[Any], Any]]


def convert_fields(cls: type[ValueT], fields: Mapping[str, Any], parsers: Parsers = {}) -> ValueT:  # noqa: B006 - never changed
    """Build a value from decoded JSON field by field; a field of the wrong type gets its default.

    `parsers` maps field names, here and in nested values, to their own tolerant parsers.
    """
    values: dict[str, Any] = {}
    for field in _fields(cls):
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
            elif isinstance(error, UnicodeEncodeError) and _matches_but_for_surrogates(found, field.type):
                values[field.name] = found
            elif field.required:
                raise
    return cls(**values)


def find_invalid_field(cls: type[Value], fields: Mapping[str, Any]) -> str | None:
    """The first required field of decoded JSON that is missing, or not of the declared type; None if all are valid."""
    if not cls.required_fields:
        return None
    for field in _fields(cls):
        name = field.encode_name
        if name not in cls.required_fields:
            continue
        if name not in fields:
            return name
        try:
            msgspec.convert(fields[name], field.type)
        except msgspec.ValidationError:
            return name
        except UnicodeEncodeError:
            pass  # text with a lone surrogate, which our readers keep
    return None


@functools.cache  # msgspec evaluates the annotations of a class each time
def _fields(cls: type[Value]) -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(cls)


def _matches_but_for_surrogates(found: Any, declared: Any) -> bool:
    """Whether a value that msgspec rejected because of a lone surrogate otherwise matches the declared type."""
    if declared == JsonObject:
        return isinstance(found, dict)
    try:
        return isinstance(found, str) and msgspec.convert("", declared) == ""
    except msgspec.ValidationError:
        return False


def _value_type(declared: Any) -> type[Value] | None:
    """The Value class of a field declared as that class, or as that class or None."""
    options = [option for option in (get_args(declared) or (declared,)) if option is not type(None)]
    only = options[0] if len(options) == 1 else None
    return only if isinstance(only, type) and issubclass(only, Value) else None


def struct_tag(cls: type[Struct]) -> str:
    """The tag of a union member, as written in the file."""
    return str(cls.__struct_config__.tag)
