"""Format detection, and facts collected from a session's lines: id, folder, origin, git branch, title."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from sessiontree.core.entries import ForkOrigin, Header
from sessiontree.core.jsonio import parse_object
from sessiontree.dialects.claude.records import (
    CHAIN_TYPES,
    METADATA_TYPES,
    Fields,
    is_tool_result,
    object_in,
    string_in,
    timestamp_in,
)
from sessiontree.dialects.contract import CERTAIN, ClientNotes, IndexedLines
from sessiontree.dialects.defaults import head_records

SURE, LIKELY, UNSURE = 60, 40, 20
_FIRST_LINES, _FEW_LINES = 64, 4
_BATCH = 32
_MAX_BATCH = 256

_TITLE_FIELDS = (
    ("custom-title", "customTitle"),
    ("ai-title", "aiTitle"),
    ("last-prompt", "lastPrompt"),
)
_NOTE_TYPES = frozenset({"agent-setting", "content-replacement", "pr-link", "summary", "tag"})
_MAX_TITLE = 200
_COMMAND = r"<command-name>(.*?)</command-name>"
# Texts that the client does not use as a first prompt: command output, hooks, timers, interruptions, editor context.
_NOT_A_PROMPT = (
    r"<local-command-stdout>|<session-start-hook>|<tick>|<goal>|\[Request interrupted by user[^\]]*\]"
    r"|\s*<ide_opened_file>[\s\S]*</ide_opened_file>\s*$|\s*<ide_selection>[\s\S]*</ide_selection>\s*$"
)


# Detection


def recognize(head: bytes) -> int:
    """Return a score, up to `CERTAIN`, for whether a file with these first bytes is a transcript."""
    records = head_records(head)
    if any(map(_is_of_another_client, records)):
        return 0
    likelihoods = [*map(_likelihood, records)]
    best = max(likelihoods, default=0)
    if best == SURE and likelihoods[0]:
        return CERTAIN
    if best == 0 and b'"parentUuid":' in head and b'"isSidechain":' in head:
        return UNSURE  # the first line is longer than the head
    return best


def _is_of_another_client(line: Fields) -> bool:
    kind = line.get("type")
    message = line.get("message")
    has_parts = isinstance(message, dict) and isinstance(message.get("parts"), list)
    return has_parts or (kind == "session" and "id" in line) or (kind == "message" and "role" in line)


def _likelihood(line: Fields) -> int:
    kind = string_in(line, "type")
    if kind in CHAIN_TYPES and isinstance(line.get("uuid"), str):
        return SURE if "parentUuid" in line or isinstance(line.get("sessionId"), str) else UNSURE
    if kind in METADATA_TYPES and is_record(line):
        return LIKELY if any(key in line for key in ("sessionId", "leafUuid", "messageId")) else 0
    return UNSURE if kind in ("user", "assistant") and isinstance(line.get("message"), dict) else 0


def is_record(line: dict[str, Any]) -> bool:
    """Whether an object is a complete line, and not one of the typed objects inside a line."""
    kind = line.get("type")
    if not isinstance(kind, str):
        return False
    return kind in METADATA_TYPES or isinstance(line.get("uuid"), str) or isinstance(line.get("sessionId"), str)


# Header


def find_header(lines: IndexedLines) -> Header | None:
    """Return the session's id, folder, start and origin."""
    if not lines.types:
        return None
    size = len(lines.types)
    chain = list(islice((node for node in range(size) if _is_chain_line(lines, node)), _FIRST_LINES))
    first = _first_fields(lines, chain or range(size)[:_FIRST_LINES])
    end = next((node for node in range(size - 1, -1, -1) if _is_chain_line(lines, node)), size - 1)
    (last,) = lines.fields([end])
    stem = os.path.splitext(os.path.basename(lines.location))[0]
    origin = _find_fork_origin(lines)
    return Header(
        # A file can hold lines of several sessions; the last line belongs to the current one.
        id=string_in(last, "sessionId") or _first_string(first, "sessionId") or stem,
        timestamp=next(filter(None, map(timestamp_in, first)), ""),
        cwd=_first_string(first, "cwd"),
        parent_session=origin.session if origin else None,
        forked_from=origin,
    )


def _first_fields(lines: IndexedLines, nodes: Sequence[int]) -> Sequence[Fields]:
    few = lines.fields(nodes[:_FEW_LINES])  # nearly always these have everything
    is_complete = all(_first_string(few, key) for key in ("sessionId", "cwd")) and any(map(timestamp_in, few))
    return few if is_complete else lines.fields(nodes)


def _is_chain_line(lines: IndexedLines, node: int) -> bool:
    return lines.tree.ids[node] != f"@{node}"


def _first_string(lines: Sequence[Fields], key: str) -> str:
    return next((found for line in lines if (found := string_in(line, key))), "")


def _find_fork_origin(lines: IndexedLines) -> ForkOrigin | None:
    # Copied lines name their origin (`forkedFrom`) and come first, so a binary search finds the last of them: the
    # entry that the session was forked at.
    in_tree = (node for node in range(len(lines.types)) if _is_chain_line(lines, node))
    first = next(in_tree, None)
    origin = _copied_from(lines, first) if first is not None else None
    if first is None or origin is None:
        return None
    chain = [first, *in_tree]
    low, high = 0, len(chain) - 1
    while low < high:
        middle = (low + high + 1) // 2
        found = _copied_from(lines, chain[middle])
        if found is None:
            high = middle - 1
        else:
            low, origin = middle, found
    return origin


def _copied_from(lines: IndexedLines, node: int) -> ForkOrigin | None:
    (line,) = lines.fields([node])
    origin = object_in(line, "forkedFrom")
    session = string_in(origin, "sessionId")
    return ForkOrigin(session, string_in(origin, "messageUuid")) if session else None


def find_git_branch(lines: IndexedLines) -> str | None:
    """Return the last git branch that a line names. The client writes "" or "HEAD" where there is none."""
    messages = [node for node, kind in enumerate(lines.types) if kind == "message"]
    size = 1  # most often the last line has it; otherwise search in ever larger batches
    while messages:
        batch = messages[-size:]
        del messages[-size:]
        for raw in reversed(list(lines.iter_raw(batch))):
            if raw.count(b"gitBranch") <= (b'"gitBranch":""' in raw):
                continue
            branch = _parse_git_branch(raw)
            if branch and branch != "HEAD":
                return branch
        size = min(4 * size, _MAX_BATCH)
    return None


def _parse_git_branch(raw: bytes) -> str | None:
    return string_in(parse_object(raw), "gitBranch")


# Notes of the client about the session


def find_client_notes(lines: IndexedLines) -> ClientNotes:
    """Collect tag, agent, pull requests, summaries of branches and replaced results from the metadata lines."""
    if _NOTE_TYPES.isdisjoint(lines.types):
        return ClientNotes()
    nodes = [node for node, kind in enumerate(lines.types) if kind in _NOTE_TYPES]
    tag, agent, replaced = "", None, 0
    links: dict[str, None] = {}
    summaries: dict[str, str] = {}
    for line in lines.fields(nodes):
        match line.get("type"):
            case "tag":  # the last one counts, and an empty one removes it
                tag = _line_text(line, "tag")
            case "agent-setting":
                agent = _line_text(line, "agentSetting") or None
            case "pr-link":
                links[_line_text(line, "prUrl") or f"#{line.get('prNumber', '?')}"] = None
            case "summary":
                leaf, summary = string_in(line, "leafUuid"), _line_text(line, "summary")
                if summary and leaf is not None and leaf in lines.tree.node_of:
                    summaries.pop(leaf, None)  # the newest last
                    summaries[leaf] = summary
            case "content-replacement":
                replacements = line.get("replacements")
                replaced += len(replacements) if isinstance(replacements, list) else 0
            case _:
                pass
    return ClientNotes((tag,) if tag else (), agent, tuple(links), summaries, replaced)


def _line_text(line: Fields, key: str) -> str:
    return " ".join((string_in(line, key) or "").split())


# Titles


def find_title(lines: IndexedLines) -> str | None:
    """Return the title that the client shows.

    That is the user's title, else the client's own, else the last recorded prompt, else a summary, else the first
    prompt. The client searches only the first and last 64 KB of the file; we search all of it.
    """
    for kind, key in _TITLE_FIELDS:
        title = _last_value(lines, kind, key)
        if title:
            return _shorten(title)
    summary = _title_from_summaries(lines)
    return _shorten(summary) if summary else _first_prompt(lines)


def _title_from_summaries(lines: IndexedLines) -> str | None:
    """Return the last summary of a branch in this file, else the last one; a copied file has those of other files."""
    own = find_client_notes(lines).branch_summaries
    return next(reversed([*own.values()]), None) or _last_value(lines, "summary", "summary")


def find_given_title(lines: IndexedLines) -> str | None:
    """Return the last title from the user, else the last one that the client generated."""
    return next((title for kind, key in _TITLE_FIELDS[:2] if (title := _last_value(lines, kind, key))), None)


def _last_value(lines: IndexedLines, kind: str, key: str) -> str | None:
    if kind not in lines.types:
        return None
    for node in range(len(lines.types) - 1, -1, -1):
        if lines.types[node] == kind:
            (line,) = lines.fields([node])
            found = _line_text(line, key)
            if found:
                return found
    return None


def _first_prompt(lines: IndexedLines) -> str | None:
    command: str | None = None
    in_sidechain: bool | None = None
    for line in _iter_user_lines(lines):
        is_sidechain = line.get("isSidechain") is True
        if in_sidechain is None:  # the first line of a sub-agent's transcript is a sidechain line already
            in_sidechain = is_sidechain
        if is_sidechain != in_sidechain or line.get("isMeta") or line.get("isCompactSummary"):
            continue
        for text in _prompt_texts(line):
            named = re.search(_COMMAND, text)
            if named:
                command = command or named[1]
            elif not re.match(_NOT_A_PROMPT, text):
                return _shorten(text)
    return command


def _iter_user_lines(lines: IndexedLines) -> Iterator[Fields]:
    nodes = [node for node, kind in enumerate(lines.types) if kind == "message"]
    for start in range(0, len(nodes), _BATCH):
        for line in lines.fields(nodes[start : start + _BATCH]):
            if line.get("type") == "user":
                yield line


def _prompt_texts(line: Fields) -> Iterator[str]:
    content = object_in(line, "message").get("content")
    blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
    if any(map(is_tool_result, blocks)):
        return
    for block in blocks:
        text = string_in(block, "text") if isinstance(block, dict) and block.get("type") == "text" else None
        one_line = (text or "").replace("\n", " ").strip()
        if one_line:
            yield one_line


def _shorten(title: str) -> str:
    return title if len(title) <= _MAX_TITLE else title[:_MAX_TITLE].rstrip() + "…"
