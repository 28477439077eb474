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
from sessiontree.dialects.passthrough import RIDER


def write_prompt(transcript: Transcript, item: CanonicalEntry, parent: str | None, message: Fields) -> Encoded:
    """What the user said."""
    content, composed = _spoken(message.get("content"))
    (id,) = transcript.sheet.uuids(item, 1)
    (rest,) = rests_of(item, 1)
    again = _told_again(transcript, item, id, parent, rest)
    line = again or _user_line(transcript, item, id, parent, content, rest)
    if again is None and isinstance(content, str) and content.startswith(("<bash-input>", "<bash-stdout>")):
        line[RIDER] = {PLAIN: True}
    transcript.ride(item, line, decode_lines.told_spoken(line, transcript.base), composed.left_out)
    return transcript.placed(item, parent, [line], composed.notes, prompt=text_of(content))


def _spoken(content: Any) -> tuple[Any, Composed]:
    if isinstance(content, str):
        return content, Composed()
    composed = content_builder.composed_spoken(content)
    return composed.blocks, composed


def _user_line(
    transcript: Transcript, item: CanonicalEntry, id: str, parent: str | None, content: Any, rest: Fields
) -> Fields:
    if "content" in rest and told_content(rest["content"]) == told_content(content):
        content = rest["content"]
    said = {"message": {"role": "user", "content": content}}
    return transcript.sheet.line("user", id, parent, transcript.sheet.time(item), said, rest)


def _told_again(
    transcript: Transcript, item: CanonicalEntry, id: str, parent: str | None, rest: Fields
) -> Fields | None:
    """The line of the client's that an item was told from, if it still says the same."""
    kind = rest.get("type")
    said: Fields = {}
    if kind == "system" and rest.get("subtype") == "local_command":
        said = {"subtype": "local_command", "content": object_in(item.fields, "message").get("content")}
    elif kind == "attachment" and isinstance(rest.get("attachment"), dict):
        said = {"attachment": rest["attachment"]}
    if not said:
        return None
    sheet = transcript.sheet
    before = sheet.base
    line = sheet.line(str(kind), id, parent, sheet.time(item), said, rest)
    again = decode_lines.told_spoken(line, transcript.base)
    if again.kind == item.kind and _content(again) == _content(item):
        return line
    sheet.base = before
    return None


def write_command(transcript: Transcript, item: CanonicalEntry, parent: str | None, message: Fields) -> Encoded:
    """A shell command that the user ran, and what it printed."""
    entered, printed = content_builder.command_texts(message)
    uuids = transcript.sheet.uuids(item, 2)
    rests = rests_of(item, 2)
    first = _user_line(transcript, item, uuids[0], parent, entered, but(rests[0], "content"))
    second = _user_line(transcript, item, uuids[1], uuids[0], printed, but(rests[1], "content"))
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
    second[RIDER] = {PART: True}
    said = decode_lines.told_command(first, second, transcript.base)
    transcript.ride(item, first, said or decode_lines.told_user(first, transcript.base))
    return transcript.placed(item, parent, [first, second])


def write_meta(
    transcript: Transcript, item: CanonicalEntry, parent: str | None, content: Any, stored: Any = None
) -> Encoded:
    """What the model shall hear and nobody said. `stored` are the words it once had on a line."""
    said, composed = (stored, Composed()) if stored is not None else _spoken(content)
    rest = rests_of(item, 1)[0]
    (id,) = transcript.sheet.uuids(replace(item, also=()), 1)
    line = _told_again(transcript, item, id, parent, rest) if item.kind == "custom_message" else None
    if line is None:
        rest = but(rest, "type", "attachment", "rendered", "renderedRole")
        line = _user_line(transcript, item, id, parent, said, rest)
        line["isMeta"] = True
    transcript.ride(item, line, decode_lines.told_spoken(line, transcript.base))
    return transcript.placed(item, parent, [line], composed.notes)


def line_again(transcript: Transcript, item: CanonicalEntry, parent: str | None) -> Encoded | None:
    """A line that the model does not see, as the client wrote it; None for what was no such line."""
    data = object_in(item.fields, "data")
    kind = data.get("type")
    is_boundary = data.get("subtype") == "compact_boundary"
    if item.fields.get("customType") != f"{NAME}.{kind}" or kind not in ("attachment", "system", "user"):
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
    (id,) = sheet.uuids(item, 1)
    sheet.base = before
    line = sheet.line(str(kind), id, parent, sheet.time(item), said, data)
    transcript.ride(item, line, decode_lines.told_spoken(line, transcript.base))
    return transcript.placed(item, parent, [line])


def _message(item: CanonicalEntry) -> Fields:
    return object_in(item.fields, "message")


def _content(item: CanonicalEntry) -> Any:
    return _message(item).get("content") if item.kind == "message" else item.fields.get("content")
