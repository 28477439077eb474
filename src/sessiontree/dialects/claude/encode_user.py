"""Encode user messages, shell commands, and messages that the client or an extension injects.

Some entries were decoded from the client's own lines (an attachment, a command's output). They are encoded as those
lines again, if they still have the same content.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from sessiontree.dialects.canonical import CanonicalEntry, Encoded
from sessiontree.dialects.claude import decode_lines
from sessiontree.dialects.claude.content import (
    EncodedContent,
    decode_content,
    encode_command,
    encode_content,
    text_of,
)
from sessiontree.dialects.claude.decode_lines import NAME, client_fields_of
from sessiontree.dialects.claude.records import PLAIN, Fields, object_in, without
from sessiontree.dialects.claude.transcript import Transcript
from sessiontree.dialects.passthrough import PART, PASSTHROUGH, carried_data


def encode_prompt(transcript: Transcript, entry: CanonicalEntry, parent: str | None, message: Fields) -> Encoded:
    content, encoded = _encode_content(message.get("content"))
    (id,) = transcript.builder.assign_uuids(entry, 1)
    (fields,) = client_fields_of(entry, 1)
    client_line = _rebuild_client_line(transcript, entry, id, parent, fields)
    line = client_line or _build_user_line(transcript, entry, id, parent, content, fields)
    if client_line is None and isinstance(content, str) and content.startswith(("<bash-input>", "<bash-stdout>")):
        line[PASSTHROUGH] = {PLAIN: True}  # the user typed what looks like a line of a command
    decoded = decode_lines.decode_user_line(line, transcript.common)
    transcript.add_passthrough(entry, line, decoded, encoded.omitted)
    return transcript.place(entry, parent, [line], encoded.notes, prompt=text_of(content))


def _encode_content(content: Any) -> tuple[Any, EncodedContent]:
    if isinstance(content, str):
        return content, EncodedContent()
    encoded = encode_content(content)
    return encoded.blocks, encoded


def _build_user_line(
    transcript: Transcript, entry: CanonicalEntry, id: str, parent: str | None, content: Any, client_fields: Fields
) -> Fields:
    if "content" in client_fields and decode_content(client_fields["content"]) == decode_content(content):
        content = client_fields["content"]
    payload = {"message": {"role": "user", "content": content}}
    return transcript.builder.chain_line("user", id, parent, transcript.builder.time(entry), payload, client_fields)


def _rebuild_client_line(
    transcript: Transcript, entry: CanonicalEntry, id: str, parent: str | None, client_fields: Fields
) -> Fields | None:
    """Build the client's line that an entry was decoded from, if it still decodes to the same content."""
    kind = client_fields.get("type")
    payload: Fields = {}
    if kind == "system" and client_fields.get("subtype") == "local_command":
        payload = {"subtype": "local_command", "content": object_in(entry.fields, "message").get("content")}
    elif kind == "attachment" and isinstance(client_fields.get("attachment"), dict):
        payload = {"attachment": client_fields["attachment"]}
    if not payload:
        return None
    builder = transcript.builder
    common = builder.common
    line = builder.chain_line(str(kind), id, parent, builder.time(entry), payload, client_fields)
    decoded = decode_lines.decode_user_line(line, transcript.common)
    if decoded.kind == entry.kind and _content_of(decoded) == _content_of(entry):
        return line
    builder.common = common  # this line is not written, so it does not set the common fields
    return None


def encode_command_entry(transcript: Transcript, entry: CanonicalEntry, parent: str | None, message: Fields) -> Encoded:
    """Encode a shell command that the user ran: a line for the command, and one for its output."""
    input_text, output_text = encode_command(message)
    uuids = transcript.builder.assign_uuids(entry, 2)
    fields = client_fields_of(entry, 2)
    first = _build_user_line(transcript, entry, uuids[0], parent, input_text, without(fields[0], "content"))
    second = _build_user_line(transcript, entry, uuids[1], uuids[0], output_text, without(fields[1], "content"))
    stored = fields[1].get("content")
    if isinstance(stored, str):  # the client's own text, with separate error output, if it still has the same meaning
        client_line = {**second, "message": {"role": "user", "content": stored}}
        ours, theirs = (decode_lines.decode_command(first, line, transcript.common) for line in (second, client_line))
        if ours is not None and theirs is not None and _is_same_command(ours, theirs):
            second = client_line
    second[PASSTHROUGH] = {PART: True}
    decoded = decode_lines.decode_command(first, second, transcript.common)
    transcript.add_passthrough(entry, first, decoded or decode_lines.decode_prompt(first, transcript.common))
    return transcript.place(entry, parent, [first, second])


def _is_same_command(entry: CanonicalEntry, other: CanonicalEntry) -> bool:
    message, other_message = object_in(entry.fields, "message"), object_in(other.fields, "message")
    return without(message, "timestamp") == without(other_message, "timestamp")


def encode_injected(
    transcript: Transcript, entry: CanonicalEntry, parent: str | None, content: Any, stored: Any = None
) -> Encoded:
    """Encode a message for the model that the user did not write. `stored` is its content on a line of the client.

    In a response with calls, the client sends a line with `isMeta` on every path through the response, if nothing
    follows the line. Only lines that were such lines before stay so there. Others get no `isMeta`, and then belong to
    their own branch alone.
    """
    payload, encoded = (stored, EncodedContent()) if stored is not None else _encode_content(content)
    fields = client_fields_of(entry, 1)[0]
    (id,) = transcript.builder.assign_uuids(replace(entry, aliases=()), 1)
    is_custom = entry.kind == "custom_message"
    line = _rebuild_client_line(transcript, entry, id, parent, fields) if is_custom else None
    if line is None:
        fields = without(fields, "type", "attachment", "rendered", "renderedRole")
        line = _build_user_line(transcript, entry, id, parent, payload, fields)
        if _is_client_meta(entry) or parent is None or not transcript.state.is_in_response_with_calls(parent):
            line["isMeta"] = True
    transcript.add_passthrough(entry, line, decode_lines.decode_user_line(line, transcript.common))
    return transcript.place(entry, parent, [line], encoded.notes)


def _is_client_meta(entry: CanonicalEntry) -> bool:
    """Whether an entry was decoded from a line of the client with `isMeta`."""
    return entry.fields.get("customType") == f"{NAME}.meta" and carried_data(entry, NAME) is not None


def encode_hidden(transcript: Transcript, entry: CanonicalEntry, parent: str | None) -> Encoded | None:
    """Encode a line of the client that the model does not receive; None when the entry is not such a line."""
    data = object_in(entry.fields, "data")
    kind = data.get("type")
    is_boundary = data.get("subtype") == "compact_boundary"
    if entry.fields.get("customType") != f"{NAME}.{kind}" or kind not in ("attachment", "system", "user"):
        return None
    payload = {"message": data["message"]} if "message" in data else {}
    payload |= {name: data[name] for name in ("subtype", "content") if name in data}
    builder = transcript.builder
    common = builder.common
    line = builder.chain_line(str(kind), "", None, "", payload, data)
    decoded = decode_lines.decode_user_line(line, transcript.common)
    builder.common = common  # only a trial: the line gets its id below
    if is_boundary or decoded.kind != "custom" or not _is_same_line(object_in(decoded.fields, "data"), data):
        return None
    (id,) = builder.assign_uuids(entry, 1)
    line = builder.chain_line(str(kind), id, parent, builder.time(entry), payload, data)
    transcript.add_passthrough(entry, line, decode_lines.decode_user_line(line, transcript.common))
    return transcript.place(entry, parent, [line])


def _is_same_line(line: Fields, other: Fields) -> bool:
    """Whether two lines are equal except for where they were written."""
    return without(line, "cwd", "version", "gitBranch") == without(other, "cwd", "version", "gitBranch")


def _content_of(entry: CanonicalEntry) -> Any:
    fields = object_in(entry.fields, "message") if entry.kind == "message" else entry.fields
    return fields.get("content")
