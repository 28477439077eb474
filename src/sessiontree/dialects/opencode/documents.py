"""Sessions of OpenCode in JSON: its export, and the folders of versions before 1.2.

    storage/session/<project>/<session>.json
    storage/message/<session>/<message>.json
    storage/part/<message>/<part>.json

and, in the first versions, the same below `project/<folder>/storage/session/{info,message,part}`, where the folder of
the parts of a message is in that of the session.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sessiontree.core.jsonio import parse_json, parse_object, render_json
from sessiontree.dialects.storage import Document, FileReader, Gathered
from sessiontree.dialects.torn_json import find_value, iter_list

_JSON = ".json"


def _split_export(data: bytes) -> Iterator[bytes]:
    """The lines of an export. Of one that was cut, the messages before the damage."""
    try:
        document = parse_json(data)
    except ValueError:
        yield from _split_torn(data)
        raise
    if not isinstance(document, dict) or not isinstance(document.get("info"), dict):
        raise ValueError("not an export of a session: it has no 'info'")
    messages = document.get("messages")
    yield render_json({"info": document["info"]})
    yield from _normalized(messages if isinstance(messages, list) else [])


def _split_torn(data: bytes) -> Iterator[bytes]:
    """The complete objects of a document that ends early: the session, then its messages."""
    text = data.decode("utf-8", "replace")
    found = find_value(text, "info")
    if found is not None and isinstance(found[0], dict):
        yield render_json({"info": found[0]})
        yield from _normalized(iter_list(text, "messages", found[1]))


def _normalized(messages: Iterable[Any]) -> Iterator[bytes]:
    """Messages as lines, in their order, each summary of a compaction with the `tail_start_id` of its request."""
    requests: dict[str, Any] = {}
    for message in messages:
        info = message.get("info") if isinstance(message, dict) else None
        if not isinstance(info, dict):
            yield render_json(message)
            continue
        for part in message["parts"] if isinstance(message.get("parts"), list) else ():
            if isinstance(part, dict) and part.get("type") == "compaction" and isinstance(info.get("id"), str):
                requests[info["id"]] = part.get("tail_start_id")
        extra = {}
        parent = info.get("parentID")
        if info.get("summary") is True and isinstance(parent, str) and parent in requests:
            extra["compaction"] = {"tail_start_id": requests[parent]}
        yield render_json({"info": info, "parts": message.get("parts"), **extra})


def _join_export(lines: Iterable[bytes]) -> Iterator[bytes]:
    """The content of an export, with each message on its own line."""
    opening = b""
    for number, line in enumerate(lines):
        fields = parse_object(line)
        if number == 0:
            yield b'{"info":%b,"messages":[\n' % render_json(fields.get("info"))
            continue
        yield opening + render_json({"info": fields.get("info"), "parts": fields.get("parts")})
        opening = b",\n"
    yield b"\n]}\n"


EXPORT = Document(_split_export, _join_export)


def _gather(path: str, content: bytes, files: FileReader) -> Iterator[bytes]:
    info = parse_object(content)
    session = os.path.basename(path).removesuffix(_JSON)
    folder = os.path.dirname(os.path.dirname(path))
    if os.path.basename(os.path.dirname(path)) == "info":
        message_root, part_root = os.path.join(folder, "message"), os.path.join(folder, "part", session)
    else:
        storage = os.path.dirname(folder)
        message_root, part_root = os.path.join(storage, "message"), os.path.join(storage, "part")
    if not info:
        yield content.replace(b"\n", b" ")
    yield render_json({"info": {**info, "id": session}})
    damaged: list[bytes] = []
    messages: list[dict[str, Any]] = []
    for name in files.names(os.path.join(message_root, session)):
        if name.endswith(_JSON):
            id = name.removesuffix(_JSON)
            found = _object(files.read(os.path.join(message_root, session, name)), damaged)
            parts = [*_iter_parts(os.path.join(part_root, id), files, damaged)]
            if found or parts:
                role = found.get("role") or ("assistant" if any(map(_is_of_model, parts)) else "user")
                messages.append({"info": {**found, "id": id, "role": role}, "parts": parts})
    yield from _normalized(sorted(messages, key=_order))
    yield from damaged


def _iter_parts(folder: str, files: FileReader, damaged: list[bytes]) -> Iterator[dict[str, Any]]:
    for name in files.names(folder):
        if name.endswith(_JSON):
            part = _object(files.read(os.path.join(folder, name)), damaged)
            if part:
                yield {**part, "id": name.removesuffix(_JSON)}


def _object(data: bytes | None, damaged: list[bytes]) -> dict[str, Any]:
    """A file as an object. The content of one that is not JSON becomes a separate line."""
    found = parse_object(data or b"")
    if not found:
        damaged.append(b" ".join((data or b"").split()) or b"\x00")
    return found


def _is_of_model(part: Mapping[str, Any]) -> bool:
    return part.get("type") in ("reasoning", "step-finish", "step-start", "tool")


def _order(message: dict[str, Any]) -> tuple[float, str]:
    time = message["info"].get("time")
    created = time.get("created") if isinstance(time, dict) else None
    return created if isinstance(created, int | float) else 0, message["info"]["id"]


FOLDERS = Gathered(_gather)
