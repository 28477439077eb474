"""What users say, and what speaks in their place -> lines.

An item that was told from a line of the client's own (an attachment, a command of the client) is written as that line
again, if it still says the same.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from sessiontree.dialects.canonical import CanonicalEntry, Encoded
from sessiontree.dialects.claude import content_builder, decode_lines
from sessiontree.dialects.claude.content import text_of, told_content
from sessiontree.dialects.claude.content_builder import Composed
from sessiontree.dialects.claude.decode_lines import NAME
from sessiontree.dialects.claude.differences import PART, PLAIN
from sessiontree.dialects.claude.records import Fields, object_in
from sessiontree.dialects.claude.restoring import but, is_same_line, rests_of
from sessiontree.dialects.claude.transcript import Transcript
from sessiontree.dialects.passthrough import PASSTHROUGH


def write_prompt(transcript: Transcript, entry: CanonicalEntry, parent: str | None, message: Fields) -> Encoded:
    """What the user said."""
    content, composed = _spoken(message.get("content"))
    (id,) = transcript.sheet.uuids(entry, 1)
    (rest,) = rests_of(entry, 1)
    again = _told_again(transcript, entry, id, parent, rest)
    line = again or _user_line(transcript, entry, id, parent, content, rest)
    if again is None and isinstance(content, str) and content.startswith(("<bash-input>", "<bash-stdout>")):
        line[PASSTHROUGH] = {PLAIN: True}
    transcript.ride(entry, line, decode_lines.told_spoken(line, transcript.base), composed.left_out)
    return transcript.placed(entry, parent, [line], composed.notes, prompt=text_of(content))


def _spoken(content: Any) -> tuple[Any, Composed]:
    if isinstance(content, str):
        return content, Composed()
    composed = content_builder.composed_spoken(content)
    return composed.blocks, composed


def _user_line(
    transcript: Transcript, entry: CanonicalEntry, id: str, parent: str | None, content: Any, rest: Fields
) -> Fields:
    if "content" in rest and told_content(rest["content"]) == told_content(content):
        content = rest["content"]
    said = {"message": {"role": "user", "content": content}}
    return transcript.sheet.line("user", id, parent, transcript.sheet.time(entry), said, rest)


def _told_again(
    transcript: Transcript, entry: CanonicalEntry, id: str, parent: str | None, rest: Fields
) -> Fields | None:
    """The line of the client's that an item was told from, if it still says the same."""
    kind = rest.get("type")
    said: Fields = {}
    if kind == "system" and rest.get("subtype") == "local_command":
        said = {"subtype": "local_command", "content": object_in(entry.fields, "message").get("content")}
    elif kind == "attachment" and isinstance(rest.get("attachment"), dict):
        said = {"attachment": rest["attachment"]}
    if not said:
        return None
    sheet = transcript.sheet
    before = sheet.base
    line = sheet.line(str(kind), id, parent, sheet.time(entry), said, rest)
    again = decode_lines.told_spoken(line, transcript.base)
    if again.kind == entry.kind and _content(again) == _content(entry):
        return line
    sheet.base = before
    return None


def write_command(transcript: Transcript, entry: CanonicalEntry, parent: str | None, message: Fields) -> Encoded:
    """A shell command that the user ran, and what it printed."""
    entered, printed = content_builder.command_texts(message)
    uuids = transcript.sheet.uuids(entry, 2)
    rests = rests_of(entry, 2)
    first = _user_line(transcript, entry, uuids[0], parent, entered, but(rests[0], "content"))
    second = _user_line(transcript, entry, uuids[1], uuids[0], printed, but(rests[1], "content"))
    stored = rests[1].get("content")
    if isinstance(stored, str):
        again = {**second, "message": {"role": "user", "content": stored}}
        one, other = (decode_lines.told_command(first, line, transcript.base) for line in (second, again))
        if (
            one is not None
            and other is not None
            and _message(other) | {"timestamp": 0} == _message(one) | {"timestamp": 0}
        ):
            second = again
    second[PASSTHROUGH] = {PART: True}
    said = decode_lines.told_command(first, second, transcript.base)
    transcript.ride(entry, first, said or decode_lines.told_user(first, transcript.base))
    return transcript.placed(entry, parent, [first, second])


def write_meta(
    transcript: Transcript, entry: CanonicalEntry, parent: str | None, content: Any, stored: Any = None
) -> Encoded:
    """What the model shall hear and nobody said. `stored` are the words it once had on a line."""
    said, composed = (stored, Composed()) if stored is not None else _spoken(content)
    rest = rests_of(entry, 1)[0]
    (id,) = transcript.sheet.uuids(replace(entry, aliases=()), 1)
    line = _told_again(transcript, entry, id, parent, rest) if entry.kind == "custom_message" else None
    if line is None:
        rest = but(rest, "type", "attachment", "rendered", "renderedRole")
        line = _user_line(transcript, entry, id, parent, said, rest)
        line["isMeta"] = True
    transcript.ride(entry, line, decode_lines.told_spoken(line, transcript.base))
    return transcript.placed(entry, parent, [line], composed.notes)


def line_again(transcript: Transcript, entry: CanonicalEntry, parent: str | None) -> Encoded | None:
    """A line that the model does not see, as the client wrote it; None for what was no such line."""
    data = object_in(entry.fields, "data")
    kind = data.get("type")
    is_boundary = data.get("subtype") == "compact_boundary"
    if entry.fields.get("customType") != f"{NAME}.{kind}" or kind not in ("attachment", "system", "user"):
        return None
    said = {"message": data["message"]} if "message" in data else {}
    said |= {name: data[name] for name in ("subtype", "content") if name in data}
    sheet = transcript.sheet
    before = sheet.base
    line = sheet.line(str(kind), "", None, "", said, data)
    again = decode_lines.told_spoken(line, transcript.base)
    if is_boundary or again.kind != "custom" or not is_same_line(object_in(again.fields, "data"), data):
        sheet.base = before
        return None
    (id,) = sheet.uuids(entry, 1)
    sheet.base = before
    line = sheet.line(str(kind), id, parent, sheet.time(entry), said, data)
    transcript.ride(entry, line, decode_lines.told_spoken(line, transcript.base))
    return transcript.placed(entry, parent, [line])


def _message(entry: CanonicalEntry) -> Fields:
    return object_in(entry.fields, "message")


def _content(entry: CanonicalEntry) -> Any:
    return _message(entry).get("content") if entry.kind == "message" else entry.fields.get("content")
