"""The records of Gemini CLI's session files, as lines with one message each.

A record of a `.jsonl` file is metadata, a message, a new version of a message, or an instruction: `$set` changes
metadata or replaces the list of messages, `$rewindTo` removes a message and all after it. Gemini CLI applies them in
order and keeps one list. Here every message stays: those that are no longer in the list are on other branches.

    {"sessionId": ..., "projectHash": ..., "cwd": ...}     the metadata, merged
    {"id": ..., "type": "user" | "gemini", ...}            each message once, with its last content

Fields that the files do not have:

* `cwd`: the working folder, from the first message, which describes the environment;
* `leaf`: the last message of the list, where that is not the last line, or null;
* `after`: the message before this one, where that is not the line before, or null;
* `compaction` on the message with a summary of those before it: `kept`, the first one that stays, and `answer`, the
  reply that Gemini CLI inserts after it.

Results of tools are stored in the call and again in a separate message; a message that only repeats results is
left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sessiontree.core.jsonio import parse_json, render_json, render_json_line
from sessiontree.core.salvage import salvage
from sessiontree.dialects.passthrough import PASSTHROUGH
from sessiontree.dialects.storage import Document
from sessiontree.dialects.torn_json import find_value, iter_list

SNAPSHOT = "<state_snapshot>"
CONTEXT_MARKS = ("<session_context>", "<hook_context>")
TYPES = ("user", "gemini")
_workspace = re.compile(r"- \*\*Workspace Directories:\*\*\s*\n\s*- (.+)")
_OWN_FIELDS = ("after", "compaction")


def content_parts(content: object) -> list[dict[str, Any]]:
    """Content as Gemini's parts: it may be a text, a part, or a list of both."""
    items = content if isinstance(content, list) else [content]
    parts = [{"text": item} if isinstance(item, str) else item for item in items]
    return [part for part in parts if isinstance(part, dict)]


def plain_text(content: object) -> str:
    texts = (part.get("text") for part in content_parts(content))
    return "".join(text for text in texts if isinstance(text, str))


def call_id(id: object, name: object) -> str:
    """The id of a call as it is sent: Gemini CLI stores those it made itself with the name of the tool before them."""
    text = id if isinstance(id, str) else ""
    return text.removeprefix(f"{name}__") if isinstance(name, str) and name else text


def response_of(part: Mapping[str, Any]) -> dict[str, Any] | None:
    found = part.get("functionResponse")
    return found if isinstance(found, dict) else None


def is_environment(record: Mapping[str, Any]) -> bool:
    """Whether a message describes the environment and is made anew for each run."""
    return record.get("type") == "user" and plain_text(record.get("content")).lstrip().startswith(CONTEXT_MARKS)


def is_conversation(record: Mapping[str, Any]) -> bool:
    return record.get("type") in TYPES and not is_environment(record)


def _is_record(fields: Mapping[str, Any]) -> bool:
    if isinstance(fields.get("$set"), dict) or isinstance(fields.get("sessionId"), str):
        return True
    return any(isinstance(fields.get(name), str) for name in ("id", "$rewindTo"))


class _Compaction:
    def __init__(self, before: list[str], kept: list[str], answer: str | None) -> None:
        self.before, self.kept, self.answer = before, kept, answer


class _Reading:
    """Applies records in order."""

    def __init__(self) -> None:
        self.metadata: dict[str, Any] = {}
        self.records: dict[str, dict[str, Any]] = {}
        self.list: list[str] = []
        self.first_before: dict[str, str | None] = {}
        self.compactions: dict[str, _Compaction] = {}
        self.found: list[str | bytes] = []
        """Ids of messages in the order of their first record, and lines that are not records."""

    def add_line(self, line: bytes) -> None:
        try:
            record = parse_json(line)
        except ValueError:
            self._add_damaged(line)
            return
        if not isinstance(record, dict) or not self.add(record):
            self.found.append(line)

    def _add_damaged(self, line: bytes) -> None:
        """Apply the complete records of a damaged line. The rest stays a line that is not JSON: it is reported."""
        pieces = salvage(line, _is_record)
        records = [piece.value for piece in pieces if piece.kind == "record"]
        if not records:
            self.found.append(line)
            return
        rest = [line[piece.start : piece.end] for piece in pieces if piece.kind == "damage"]
        for record in records:
            known = self.records.get(record["id"]) if rest and isinstance(record.get("id"), str) else None
            # Next to damage, it may consist of parts of two records. Then it must not replace what is intact.
            self.add(record if known is None else {**record, **known})
        self.found += rest or [b"[damaged: %d records on one line, which are read]" % len(records)]

    def add(self, record: dict[str, Any]) -> bool:
        """Apply a record; False if the value is not a record."""
        if isinstance(record.get("$rewindTo"), str):
            self._rewind(record["$rewindTo"])
        elif isinstance(record.get("id"), str):
            self._add_message(record, self.list[-1] if self.list else None)
            if record["id"] not in self.list:
                self.list.append(record["id"])
        elif isinstance(record.get("$set"), dict):
            changes = dict(record["$set"])
            messages = changes.pop("messages", None)
            self.metadata |= changes
            if isinstance(messages, list):
                self._replace(messages)
        elif isinstance(record.get("sessionId"), str) and isinstance(record.get("projectHash"), str):
            messages = record.get("messages")
            start = self.metadata.get("startTime")
            self.metadata |= {name: value for name, value in record.items() if name != "messages"}
            if start is not None:
                self.metadata["startTime"] = start
            if isinstance(messages, list):
                self._replace(messages)
        else:
            return False
        return True

    def _add_message(self, record: dict[str, Any], before: str | None) -> None:
        id = record["id"]
        if id in self.records:
            # A list that replaces another has only the text of each message. The rest of an earlier version stays.
            self.records[id] = {**self.records[id], **record}
            return
        self.records[id] = record
        self.first_before[id] = before
        self.found.append(id)

    def _rewind(self, id: str) -> None:
        del self.list[self.list.index(id) if id in self.list else 0 :]

    def _replace(self, messages: list[Any]) -> None:
        old = self.list
        known = set(self.records)
        self.list = []
        for message in messages:
            if isinstance(message, dict) and isinstance(message.get("id"), str):
                self._add_message(message, self.list[-1] if self.list else None)
                if message["id"] not in self.list:
                    self.list.append(message["id"])
        self._find_compaction(old, known)

    def _find_compaction(self, old: list[str], known: set[str]) -> None:
        """Find a new summary in a list that replaced another one, and which messages it keeps."""
        before = [id for id in old if is_conversation(self.records[id])]
        for at, id in enumerate(self.list):
            record = self.records[id]
            # A session that we wrote may start with a summary.
            if id in known or record.get("type") != "user" or not (before or PASSTHROUGH in record):
                continue
            if not plain_text(record.get("content")).lstrip().startswith(SNAPSHOT):
                continue
            rest = self.list[at + 1 :]
            answer = (
                rest[0] if rest and rest[0] not in known and self.records[rest[0]].get("type") == "gemini" else None
            )
            kept = rest[1:] if answer is not None else rest
            # After two compactions, a session that we wrote may keep messages that were no longer in the list.
            is_ours = PASSTHROUGH in record and known.issuperset(kept)
            if is_ours or kept == before[len(before) - len(kept) :]:
                self.compactions[id] = _Compaction(before, kept, answer)
            return

    def parents(self) -> dict[str, str | None]:
        """By message of the conversation: the one before it."""
        found: dict[str, str | None] = {}
        answers = {compaction.answer for compaction in self.compactions.values()}
        for id in self.found:
            if isinstance(id, str):
                above = self.first_before[id]
                while above is not None and (above in answers or not is_conversation(self.records[above])):
                    above = self.first_before[above]
                found[id] = above
        ends: dict[str | None, str | None] = {}
        """By compaction: the last message before it, which need not be the last one of the list."""
        lists = [*((id, compaction.before) for id, compaction in self.compactions.items()), (None, self.list)]
        for end, current in lists:
            previous: str | None = None
            kept: set[str] = set()
            for id in current:
                if id in answers or not is_conversation(self.records[id]) or id in kept:
                    continue
                compaction = self.compactions.get(id)
                if compaction is not None:
                    kept = set(compaction.kept)
                    previous = ends.get(id)
                found[id] = previous
                previous = id
            ends[end] = previous
        return found

    def iter_lines(self) -> Iterator[bytes]:
        lines, last, dropped = self._message_lines()
        if self.metadata.get("sessionId") and "projectHash" in self.metadata:
            leaf = self._leaf()
            while leaf in dropped:
                leaf = dropped[leaf]
            current = {} if leaf == last else {"leaf": leaf}
            yield render_json({**self.metadata, **self._folder(), **current})
        yield from lines

    def _leaf(self) -> str | None:
        """The last message of the list; the summary, if only messages that it keeps follow it."""
        leaf: str | None = None
        kept: set[str] = set()
        answers = {compaction.answer for compaction in self.compactions.values()}
        for id in self.list:
            if id not in answers and id not in kept and is_conversation(self.records[id]):
                leaf = id
                kept = set(self.compactions[id].kept) if id in self.compactions else kept
        return leaf

    def _message_lines(self) -> tuple[list[bytes], str | None, dict[str, str | None]]:
        """The lines, the last message, and the messages that were left out, each with the one before it."""
        lines: list[bytes] = []
        answers = {compaction.answer for compaction in self.compactions.values()}
        parents = self.parents()
        records = dict(self.records)
        dropped: dict[str, str | None] = {}
        answered: set[str] = set()
        for id in self.found:
            if isinstance(id, str) and is_conversation(records[id]):
                records[id] = _with_results_once(records[id], answered)
                if not records[id]:
                    dropped[id] = parents[id]
        last: str | None = None
        for id in self.found:
            if isinstance(id, bytes):
                lines.append(id)
                continue
            record = records[id]
            if not record or id in answers:
                continue
            extra: dict[str, Any] = {}
            if is_conversation(record):
                above = parents[id]
                while above in dropped:
                    above = dropped[above]
                if above != last:
                    extra["after"] = above
                last = id
            compaction = self.compactions.get(id)
            if compaction is not None:
                kept = next((one for one in compaction.kept if one not in dropped), None)
                extra["compaction"] = {"kept": kept}
                if compaction.answer is not None:
                    extra["compaction"]["answer"] = self.records[compaction.answer]
            lines.append(render_json({**record, **extra}))
        return lines, last, dropped

    def _folder(self) -> dict[str, Any]:
        for record in self.records.values():
            if is_environment(record):
                found = _workspace.search(plain_text(record.get("content")))
                if found:
                    return {"cwd": found[1].strip()}
        return {}


def _with_results_once(record: dict[str, Any], answered: set[str]) -> dict[str, Any]:
    """The message without results that an earlier one has; empty if nothing else is left."""
    calls = record.get("toolCalls")
    if record["type"] == "gemini":
        for call in calls if isinstance(calls, list) else ():
            if isinstance(call, dict) and call.get("result"):
                answered.add(call_id(call.get("id"), call.get("name")))
        return record
    content = record.get("content")
    if not isinstance(content, list):
        return record
    kept = []
    for part in content:
        response = response_of(part) if isinstance(part, dict) else None
        if response is not None:
            id = call_id(response.get("id"), response.get("name"))
            if id and id in answered:
                continue
            answered.add(id)
        kept.append(part)
    if len(kept) == len(content):
        return record
    return {**record, "content": kept} if kept else {}


def _read_lines(data: bytes) -> Iterator[bytes]:
    reading = _Reading()
    for line in data.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        if line.strip(b" \t\r"):
            reading.add_line(line.rstrip(b"\r"))
    if not reading.metadata and not reading.records:
        yield from _read_document(data)
        return
    yield from reading.iter_lines()


def _read_document(data: bytes) -> Iterator[bytes]:
    """A document of versions before 0.40, or a checkpoint; of one that was cut, the messages before the damage."""
    reading = _Reading()
    try:
        document = parse_json(data)
    except ValueError:
        text = data.decode("utf-8", "replace")
        names = ("sessionId", "projectHash", "startTime", "lastUpdated", "summary", "kind")
        values = {name: found[0] for name in names if (found := find_value(text, name)) is not None}
        if "sessionId" in values and "projectHash" in values:
            reading.add({**values, "messages": [*iter_list(text, "messages")]})
        yield from reading.iter_lines()
        raise
    if not isinstance(document, dict):
        raise ValueError("not a session: the document is not an object")
    history = document.get("clientHistory") or document.get("history")
    if isinstance(history, list) and "sessionId" not in document:
        document = _checkpoint(history)
    if not reading.add(document):
        raise ValueError("not a session: it has no 'sessionId' and 'projectHash'")
    yield from reading.iter_lines()


def _checkpoint(history: list[Any]) -> dict[str, Any]:
    """A checkpoint (`/chat save`), which has only the messages that were sent, as a document."""
    messages = [
        {
            "id": f"checkpoint-{number:05d}",
            "type": "gemini" if content.get("role") == "model" else "user",
            "content": content.get("parts"),
        }
        for number, content in enumerate(history)
        if isinstance(content, dict)
    ]
    return {"sessionId": "checkpoint", "projectHash": "", "kind": "checkpoint", "messages": messages}


# Writing


def _iter_records(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Records that give the messages of these lines, with an instruction where one does not follow the one before."""
    current: list[dict[str, Any]] = []
    branch: list[dict[str, Any]] = []
    """The messages of the branch, including those that a compaction removed from the list."""
    leaf: object = ""
    for line in lines:
        try:
            record = parse_json(line)
        except ValueError:
            continue
        if not isinstance(record, dict):
            continue
        if not isinstance(record.get("id"), str):
            leaf = record.get("leaf", leaf)
            yield {name: value for name, value in record.items() if name not in ("cwd", "leaf")}
            continue
        bare = {name: value for name, value in record.items() if name not in _OWN_FIELDS}
        if not is_conversation(bare):
            yield bare
            continue
        if "after" in record:
            ids = [one["id"] for one in current]
            end = ids.index(record["after"]) + 1 if record["after"] in ids else 0
            if end < len(current):
                yield {"$rewindTo": ids[end]}
                del current[end:]
                branch = [*current]
        compaction = record.get("compaction")
        if isinstance(compaction, dict):
            ids = [one["id"] for one in branch]
            kept = branch[ids.index(compaction["kept"]) :] if compaction.get("kept") in ids else []
            answer = compaction.get("answer")
            current = [bare, *([answer] if isinstance(answer, dict) else []), *kept]
            yield {"$set": {"messages": current}}
            continue
        current.append(bare)
        branch.append(bare)
        yield bare
    ids = [one["id"] for one in current]
    if leaf is None and ids:
        yield {"$rewindTo": ids[0]}
    elif leaf in ids[:-1]:
        yield {"$rewindTo": ids[ids.index(leaf) + 1]}


def _write_lines(lines: Iterable[bytes]) -> Iterator[bytes]:
    for record in _iter_records(lines):
        yield render_json_line(record) + b"\n"


def _write_document(lines: Iterable[bytes]) -> Iterator[bytes]:
    reading = _Reading()
    for record in _iter_records(lines):
        reading.add(record)
    messages = [reading.records[id] for id in reading.list]
    yield render_json({**reading.metadata, "messages": messages}) + b"\n"


LINES = Document(_read_lines, _write_lines)
DOCUMENT = Document(_read_document, _write_document)
