"""Files that belong to a transcript: sub-agents' transcripts, and tool output that was spilled to files.

Everything here works on names and decoded lines; the caller checks whether a file exists.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator

from sessiontree.dialects.claude.records import Fields, is_tool_result, object_in, string_in
from sessiontree.dialects.contract import IndexedLines, RelatedFile

_BATCH = 256
_AGENT_FILE = r"agent-(?P<id>.+)\.(?:jsonl|meta\.json)"
_SPILLED = r"Full output saved to: (?P<path>[^\n]*[/\\]tool-results[/\\][^\n/\\]+)"


def find_related_files(lines: IndexedLines) -> list[RelatedFile]:
    """Return every sub-agent and every spilled output that the tool results of a transcript name."""
    found: list[RelatedFile] = []
    for node, line in _iter_message_lines(lines, _may_name_file):
        agent = string_in(object_in(line, "toolUseResult"), "agentId")
        content = object_in(line, "message").get("content")
        for block in content if isinstance(content, list) else ():
            if not is_tool_result(block):
                continue
            call = string_in(block, "tool_use_id")
            if agent:
                found.append(RelatedFile("subagent", agent, node, call, agent_transcripts(lines.location, agent)))
            for text in _texts(block.get("content")):
                paths = spilled_outputs(lines.location, text)
                if paths:
                    found.append(RelatedFile("output", os.path.basename(paths[-1]), node, call, paths))
    return found


def _may_name_file(raw: bytes) -> bool:
    # A byte search avoids decoding most lines. The words could also be written with \u escapes.
    return b"agentId" in raw or b"tool-results" in raw or b"\\u00" in raw


def _iter_message_lines(
    lines: IndexedLines, is_wanted: Callable[[bytes], bool] | None = None
) -> Iterator[tuple[int, Fields]]:
    nodes = [node for node, kind in enumerate(lines.types) if kind == "message"]
    for start in range(0, len(nodes), _BATCH):
        batch = nodes[start : start + _BATCH]
        if is_wanted is not None:
            batch = [node for node, raw in zip(batch, lines.iter_raw(batch), strict=True) if is_wanted(raw)]
        yield from zip(batch, lines.fields(batch), strict=True)


def _texts(content: object) -> list[str]:
    if isinstance(content, str):
        return [content]
    parts = content if isinstance(content, list) else []
    return [text for part in parts if isinstance(part, dict) and (text := string_in(part, "text"))]


def find_session_ids(lines: IndexedLines) -> list[str]:
    """Return the session ids that the lines of the main conversation name, in file order."""
    ids: dict[str, None] = {}
    for _, line in _iter_message_lines(lines):
        id = string_in(line, "sessionId")
        if id and line.get("isSidechain") is not True:
            ids[id] = None
    return list(ids)


def session_folder(transcript: str) -> str:
    """Return the folder for a session's other files, which has the name of the transcript."""
    return os.path.splitext(transcript)[0]


def agent_transcripts(transcript: str, agent: str) -> tuple[str, str]:
    """Return the possible paths of a sub-agent's transcript: in the session's folder, or next to it (up to 2.0)."""
    name = f"agent-{agent}.jsonl"
    return os.path.join(session_folder(transcript), "subagents", name), os.path.join(os.path.dirname(transcript), name)


def spilled_outputs(transcript: str, text: str) -> tuple[str, ...]:
    """Return the possible paths of a spilled tool output: the recorded one, then the session's own folder.

    The recorded path is absolute, so it breaks when the folder moves. Empty when the text names no file.
    """
    found = re.search(_SPILLED, text)
    if found is None:
        return ()
    recorded = found["path"].strip()
    name = re.split(r"[/\\]", recorded)[-1]
    if name in ("", ".", ".."):
        return ()
    current = os.path.join(session_folder(transcript), "tool-results", name)
    return (recorded,) if recorded == current else (recorded, current)
