"""The files around a transcript: the folder of a project, sub-agents' transcripts, spilled tool output.

Everything here works on names and decoded values; whether a file is there is for the caller to see.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from sessiontree.dialects.claude.records import Fields, is_result, object_in, string_in
from sessiontree.dialects.contract import IndexedLines, RelatedFile

_LONGEST_KEY = 200
_STEP = 256
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_AGENT_FILE = r"agent-(?P<id>.+)\.(?:jsonl|meta\.json)"
_SPILLED = r"Full output saved to: (?P<path>[^\n]*[/\\]tool-results[/\\][^\n/\\]+)"


def project_key(cwd: str) -> str:
    """The name of the folder for a working folder, given as a real path.

    Counting is in UTF-16 units, as the client does it: a character beyond the basic plane makes two dashes. Several
    paths can have the same key. A long one is cut and told apart by a hash.
    """
    path = unicodedata.normalize("NFC", cwd)
    units = _utf16_units(path)
    key = "".join(chr(unit) if unit < 128 and chr(unit).isalnum() else "-" for unit in units)
    return key if len(key) <= _LONGEST_KEY else f"{key[:_LONGEST_KEY]}-{_hash(units)}"


def is_project_folder(name: str, cwd: str) -> bool:
    """Whether a folder of that name can be the one for a working folder; other builds hash long paths otherwise."""
    key = project_key(cwd)
    return name == key or (len(key) > _LONGEST_KEY and name.startswith(key[: _LONGEST_KEY + 1]))


def find_related_files(lines: IndexedLines) -> list[RelatedFile]:
    """Every sub-agent and every spilled output that the results in a transcript name."""
    found: list[RelatedFile] = []
    for node, fields in _iter_results(lines, _may_name):
        agent = string_in(object_in(fields, "toolUseResult"), "agentId")
        content = object_in(fields, "message").get("content")
        for block in content if isinstance(content, list) else ():
            if not is_result(block):
                continue
            call = string_in(block, "tool_use_id")
            if agent:
                found.append(RelatedFile("subagent", agent, node, call, agent_transcripts(lines.location, agent)))
            for text in _texts(block.get("content")):
                places = spilled_outputs(lines.location, text)
                if places:
                    found.append(RelatedFile("output", os.path.basename(places[-1]), node, call, places))
    return found


def _may_name(raw: bytes) -> bool:
    """Whether a line may name a file: the words for that stand in it, or letters in disguise."""
    return b"agentId" in raw or b"tool-results" in raw or b"\\u00" in raw


def _iter_results(
    lines: IndexedLines, is_wanted: Callable[[bytes], bool] | None = None
) -> Iterator[tuple[int, Fields]]:
    """The lines of messages, a few at a time: all, or those whose bytes look like they are wanted."""
    nodes = [node for node, kind in enumerate(lines.types) if kind == "message"]
    for start in range(0, len(nodes), _STEP):
        step = nodes[start : start + _STEP]
        if is_wanted is not None:
            step = [node for node, raw in zip(step, lines.iter_raw(step), strict=True) if is_wanted(raw)]
        yield from zip(step, lines.fields(step), strict=True)


def _texts(content: object) -> list[str]:
    if isinstance(content, str):
        return [content]
    parts = content if isinstance(content, list) else []
    return [text for part in parts if isinstance(part, dict) and (text := string_in(part, "text"))]


def find_session_ids(lines: IndexedLines) -> list[str]:
    """The ids that the lines of the main conversation name, in file order."""
    ids: dict[str, None] = {}
    for _, fields in _iter_results(lines):
        id = string_in(fields, "sessionId")
        if id and fields.get("isSidechain") is not True:
            ids[id] = None
    return list(ids)


def _utf16_units(text: str) -> list[int]:
    encoded = text.encode("utf-16-le", "surrogatepass")
    return [int.from_bytes(encoded[at : at + 2], "little") for at in range(0, len(encoded), 2)]


def _hash(units: Iterable[int]) -> str:
    value = 0
    for unit in units:
        value = (value * 31 + unit) & 0xFFFFFFFF
    return _base36(abs(value - (1 << 32) if value >= 1 << 31 else value))


def _base36(value: int) -> str:
    digits = ""
    while value:
        value, digit = divmod(value, 36)
        digits = _DIGITS[digit] + digits
    return digits or "0"


def session_folder(transcript: str) -> str:
    """The folder that belongs to a transcript and has its name."""
    return os.path.splitext(transcript)[0]


def agent_transcripts(transcript: str, agent: str) -> tuple[str, str]:
    """Where the transcript of a sub-agent may lie: in the session's folder, or beside the session (up to 2.0)."""
    name = f"agent-{agent}.jsonl"
    return os.path.join(session_folder(transcript), "subagents", name), os.path.join(os.path.dirname(transcript), name)


def agent_meta(agent_transcript: str) -> str:
    """Where the facts about a sub-agent lie, given its transcript."""
    return f"{session_folder(agent_transcript)}.meta.json"


def agent_of(path: str) -> str | None:
    """The id of the sub-agent that a file belongs to, by the file's name."""
    found = re.fullmatch(_AGENT_FILE, os.path.basename(path))
    return found["id"] if found else None


def agents_by_call(metas: Mapping[str, Any], lines: Iterable[Fields] = ()) -> dict[str, str]:
    """Which call started which sub-agent: ids of calls to ids of sub-agents.

    `metas` are the decoded `meta.json` files by sub-agent. Older clients wrote none; there the line with the result of
    the call names the sub-agent, so user lines may be given too.
    """
    agents: dict[str, str] = {}
    for fields in lines:
        agent = string_in(object_in(fields, "toolUseResult"), "agentId")
        content = object_in(fields, "message").get("content")
        if agent and isinstance(content, list):
            calls = (string_in(block, "tool_use_id") for block in content if is_result(block))
            agents.update((call, agent) for call in calls if call)
    for agent, meta in metas.items():
        call = string_in(meta, "toolUseId") if isinstance(meta, dict) else None
        if call:
            agents[call] = agent
    return agents


def spilled_outputs(transcript: str, text: str) -> tuple[str, ...]:
    """Where the whole of a spilled tool output may lie: at the recorded place, and beside the session.

    The record is an absolute path, which is wrong as soon as the folder has moved. Empty when the text names none.
    """
    found = re.search(_SPILLED, text)
    if found is None:
        return ()
    recorded = found["path"].strip()
    name = re.split(r"[/\\]", recorded)[-1]
    if name in ("", ".", ".."):
        return ()
    beside = os.path.join(session_folder(transcript), "tool-results", name)
    return (recorded,) if recorded == beside else (recorded, beside)
