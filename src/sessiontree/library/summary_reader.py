"""Read the summary of a session from both ends of its file; of a file that grew, only what was added.

At most the first and last 64 KiB are read; a file of up to 128 KiB is read completely. The dialect decodes
them by the same rules as an opened session. Lines that are cut at the edge of a window are ignored.

An update continues from a `State`. The file is considered grown if its first bytes and those before its old end are
unchanged; otherwise it is read from scratch. The state keeps the lines that facts about the session may come from:
header, first prompt, first and last line of every other type. So the dialect's rules can be applied again without
reading them.

Invalid content never raises.
"""

from __future__ import annotations

import hashlib
import os
from bisect import bisect_left
from typing import Any

import msgspec
from msgspec import Struct

from sessiontree.core.entries import Header, milliseconds
from sessiontree.core.jsonio import replace_surrogates
from sessiontree.core.usage import UnpricedUsage, UsageTotals
from sessiontree.dialects.contract import SessionFile
from sessiontree.dialects.storage import Outline
from sessiontree.errors import SessionTreeError
from sessiontree.library import counts
from sessiontree.library.counts import Counted
from sessiontree.library.partial_reader import (
    first_prompt,
    kept_lines,
    last_prompt,
    read_lines,
    session_description,
    with_cut_prompt,
)
from sessiontree.library.roots import dialect_named
from sessiontree.library.summary import (
    DAMAGE,
    MAX_PROMPT,
    MAX_TITLE,
    WINDOW,
    Health,
    Summary,
    cut_at_word,
)
from sessiontree.session.open import blob_repository
from sessiontree.session.reader import Reader
from sessiontree.stores.contract import SessionRef, SessionStore, read_bytes

_PLAIN = SessionFile()
_FIRST, _EDGE = 1024, 64
_BROKEN_LINKS = frozenset({"missing-parent", "cycle", "self-parent"})


class State(Struct, frozen=True, array_like=True):
    """The state that an update continues from."""

    first: bytes
    """Hash of the first bytes of the file."""
    edge: bytes
    """The last bytes that were read."""
    lines: bytes
    """Complete lines that facts about the session may come from."""
    counted: Counted


class SummaryRead(Struct, frozen=True):
    """A summary, the state to continue from (None: it has to be read from scratch), and the number of bytes read."""

    summary: Summary
    state: State | None
    bytes_read: int


def read_ends(
    store: SessionStore,
    agent: str,
    size: int | None = None,
    *,
    modified: int = 0,
    file: SessionFile = _PLAIN,
    is_examined: bool = True,
) -> SummaryRead:
    """Read both ends of the first `size` bytes of a session. An unreadable one gives a summary marked as damaged.

    A session that is read completely is also examined, unless there are too many of them.
    """
    path = store.location
    try:
        size = store.size() if size is None else size
        is_whole = size <= 2 * WINDOW
        head = read_bytes(store, 0, size if is_whole else WINDOW)
        tail = b"" if is_whole else read_bytes(store, size - WINDOW, WINDOW)
    except SessionTreeError:
        return SummaryRead(unreadable(store.ref, agent, size or 0, modified, file), None, 0)
    finally:
        store.close()
    lines = head if is_whole else head[: head.rfind(b"\n") + 1] + tail[tail.find(b"\n") + 1 :]
    reader = read_lines(lines, path, agent, blob_repository(store.ref, dialect_named(agent)) if is_whole else None)
    counted = counts.count(reader) if is_whole else counts.estimate(reader, 2 * WINDOW, size)
    is_damaged: bool | None = _is_damaged(reader, lines.count(b"\n"), len(reader), is_whole=is_whole) or None
    if is_whole and is_examined and not is_damaged:
        from sessiontree.repair import is_damaged as has_findings  # few sessions are examined while others wait

        is_damaged = has_findings(reader)
    cut = 0 if is_whole else head.rfind(b"\n") + 1
    last = _last_time(reader, bisect_left(range(len(reader)), cut, key=lambda node: reader.journal.span(node).start))
    active = _time(last or reader.last_activity or "")
    summary = _summary(
        reader,
        counted,
        store.ref,
        size,
        modified,
        file,
        is_damaged=is_damaged,
        active=active,
        dated=is_whole or bool(last),
    )
    if not summary.first_prompt and not is_whole:
        summary = with_cut_prompt(summary, head[cut:])
    state = None
    if (tail or head).endswith(b"\n"):
        edge = (tail or head)[-_EDGE:]
        state = State(_digest(head), edge, kept_lines(reader), counted)
    return SummaryRead(summary, state, len(head) + len(tail))


def read_outline(ref: SessionRef, outline: Outline, agent: str, modified: int, file: SessionFile) -> SummaryRead:
    """Make the summary of a session from its short form. Its counts are those that its database has ready."""
    data = b"".join(line + b"\n" for line in outline.lines)
    reader = read_lines(data, str(ref), agent)
    model = outline.model
    tokens = UnpricedUsage(model or "", outline.input, outline.output, outline.cached)
    counted = Counted(
        model=model,
        messages=outline.messages,
        branches=min(outline.messages, 1),
        usage=UsageTotals(
            outline.requests,
            outline.input,
            outline.output,
            outline.cached,
            outline.cache_written,
            outline.cost,
            () if outline.cost or not model else (tokens,),
        ),
        exact=False,
    )
    size = len(data) * max(outline.messages, 1) // max(len(outline.lines), 1)
    active = outline.active
    summary = _summary(
        reader, counted, ref, size, modified, file, is_damaged=None, active=active, dated=active is not None
    )
    return SummaryRead(summary, None, len(data))


def read_growth(
    store: SessionStore, before: Summary, state: State, size: int, modified: int, file: SessionFile
) -> SummaryRead | None:
    """Read what was added to a session that grew to `size` bytes; None if it has to be read from scratch."""
    added = size - before.size
    known = before.size - len(state.edge)
    try:
        first = read_bytes(store, 0, min(_FIRST, before.size))
        tail = read_bytes(store, known, len(state.edge) + added) if added <= WINDOW else b""
    except SessionTreeError:
        return None
    finally:
        store.close()
    if _digest(first) != state.first or not tail.startswith(state.edge) or not tail.endswith(b"\n"):
        return None
    reader = read_lines(state.lines, before.ref, before.agent)
    known_nodes = len(reader)
    lines = reader.journal.store
    lines.append(tail[len(state.edge) :], expected_size=lines.size())
    reader.journal.refresh()
    counted = counts.extend_counts(state.counted, reader.journal, known_nodes)
    # A file of this size is read completely, which gives exact counts again.
    if state.counted.exact and not counted.exact and size <= 2 * WINDOW:
        return None
    added_lines = tail.count(b"\n", len(state.edge))
    is_damaged = _is_damaged(reader, added_lines, len(reader) - known_nodes, is_whole=False)
    last = _time(_last_time(reader, known_nodes))
    fresh = _summary(
        reader,
        counted,
        store.ref,
        size,
        modified,
        file,
        is_damaged=is_damaged or before.health == "damaged" or None,
        active=last or before.active,
        dated=bool(last) or before.dated,
    )
    new = [node for node in range(known_nodes, len(reader)) if reader.journal.types[node] == "message"]
    summary = _keep_head_facts(fresh, before, has_new_messages=bool(new), last_prompt=last_prompt(reader.journal, new))
    edge = tail[-_EDGE:]
    return SummaryRead(summary, State(state.first, edge, kept_lines(reader), counted), len(first) + len(tail))


def with_exact(summary: Summary, state: State | None, counted: Counted) -> tuple[Summary, State | None]:
    """Replace estimated counts with exact ones."""
    exact = msgspec.structs.replace(summary, exact=True, **_numbers(counted))
    kept = None if state is None else msgspec.structs.replace(state, counted=counted)
    return exact, kept


def _keep_head_facts(fresh: Summary, before: Summary, *, has_new_messages: bool, last_prompt: str | None) -> Summary:
    """Keep the facts that come from the beginning of a file, which an append does not change."""
    later = fresh if has_new_messages else before
    return msgspec.structs.replace(
        fresh,
        id=before.id,
        title=fresh.title or before.title,
        cwd=before.cwd or fresh.cwd,
        created=before.created or fresh.created,
        forked_from=before.forked_from or fresh.forked_from,
        parent=before.parent or fresh.parent,
        first_prompt=before.first_prompt or fresh.first_prompt,
        last_prompt=cut_at_word(last_prompt or "", MAX_PROMPT) or before.last_prompt,
        git_branch=later.git_branch or before.git_branch,
        model=fresh.model or before.model,
        agent_setting=fresh.agent_setting or before.agent_setting,
        pull_requests=tuple(dict.fromkeys((*before.pull_requests, *fresh.pull_requests))),
    )


def _is_damaged(reader: Reader, lines: int, entries: int, *, is_whole: bool) -> bool:
    """Whether bytes are lost or broken or, in a fully read file, links. What is only unusual is not damage."""
    journal = reader.journal
    if is_whole:
        if journal.header is None and journal.dialect.traits.has_header and entries:
            return True
        if any(problem.kind in _BROKEN_LINKS for problem in journal.tree.problems()):
            return True
    if not journal.fragments and lines in (entries, entries + 1):
        return False  # one entry per line and an optional header; `reader.problems` would check every byte again
    return not DAMAGE.isdisjoint({problem.kind for problem in reader.problems})


def _summary(
    reader: Reader,
    counted: Counted,
    ref: SessionRef,
    size: int,
    modified: int,
    file: SessionFile,
    *,
    is_damaged: bool | None,
    active: int | None,
    dated: bool,
) -> Summary:
    header, notes = reader.header, reader.client_notes
    messages = [node for node, kind in enumerate(reader.journal.types) if kind == "message"]
    first = first_prompt(reader.journal, messages)
    last = last_prompt(reader.journal, messages) or first
    given = reader.given_name
    title = given or (reader.name if counted.messages or counted.branches else None) or first
    health: Health = "damaged" if is_damaged else "empty" if not counted.messages else "ok"
    if health == "ok" and is_damaged is None:
        health = "unchecked"
    if health == "empty" and _is_draft(ref.name, file):
        health = "draft"
    return Summary(
        ref=str(ref),
        agent=reader.dialect.name,
        id=replace_surrogates(file.id or header.id) or _stem(ref, reader.dialect.name),
        title=cut_at_word(title, MAX_TITLE),
        named=bool(given),
        cwd=replace_surrogates(header.cwd),
        created=_time(header.timestamp),
        active=active,
        exact=counted.exact,
        size=size,
        modified=modified // 1_000_000,
        health=health,
        kind="subagent" if notes.parent else file.kind,
        parent=_parent(ref.name, header, file) or notes.parent,
        forked_from=None if notes.parent else _origin(header, file),
        first_prompt=cut_at_word(first, MAX_PROMPT),
        last_prompt=cut_at_word(last, MAX_PROMPT),
        git_branch=replace_surrogates(reader.git_branch or "") or None,
        dated=dated,
        is_file=ref.is_file,
        tags=tuple(map(replace_surrogates, notes.tags)),
        agent_setting=replace_surrogates(notes.agent or "") or None,
        pull_requests=tuple(map(replace_surrogates, notes.pull_requests)),
        description=session_description(reader),
        **_numbers(counted),
    )


def _numbers(counted: Counted) -> dict[str, Any]:
    usage = counted.usage
    return {
        "messages": counted.messages,
        "branches": counted.branches,
        "model": replace_surrogates(counted.model or "") or None,
        "tokens_in": round(usage.input + usage.cache_written),
        "tokens_out": round(usage.output),
        "tokens_cached": round(usage.cached),
        "cost": usage.cost,
        "unpriced": usage.unpriced,
    }


def _parent(path: str, header: Header, file: SessionFile) -> str | None:
    """The file of a sub-agent's parent: by its path, else by the session id in its lines."""
    if file.kind != "subagent":
        return None
    if file.parent is not None:
        return file.parent  # relative to the root; the library makes it absolute
    if header.id and header.id != file.id:
        return os.path.join(os.path.dirname(path), os.path.basename(header.id) + os.path.splitext(path)[1])
    return None


def _origin(header: Header, file: SessionFile) -> str | None:
    if file.kind == "subagent":
        return None  # its header names its parent
    named = (header.forked_from.session if header.forked_from else None) or header.parent_session
    return replace_surrogates(named or "") or None


def _is_draft(path: str, file: SessionFile) -> bool:
    """Whether the marker file of a draft exists. It is named relative to the root, as the session is."""
    if file.draft_marker is None:
        return False
    return os.path.lexists(os.path.join(os.path.splitext(path)[0], os.path.basename(file.draft_marker)))


def unreadable(ref: SessionRef, agent: str, size: int, modified: int, file: SessionFile = _PLAIN) -> Summary:
    """The summary of a session that cannot be read."""
    return Summary(
        ref=str(ref),
        agent=agent,
        id=file.id or _stem(ref, agent),
        title="",
        named=False,
        cwd="",
        created=None,
        active=None,
        messages=0,
        branches=0,
        exact=False,
        size=size,
        modified=modified // 1_000_000,
        health="damaged",
        kind=file.kind,
        parent=file.parent,
        is_file=ref.is_file,
    )


def _stem(ref: SessionRef, agent: str) -> str:
    """The name of a session that has no id: of its file, without the ending that the client's files have."""
    name = ref.item or os.path.basename(ref.name)
    endings = dialect_named(agent).traits.session_names
    return next((name.removesuffix(ending) for ending in endings if name.endswith(ending)), "") or name


def _last_time(reader: Reader, first: int) -> str:
    """Time of the last message from a node on; empty if there is none."""
    journal = reader.journal
    for node in range(len(journal.types) - 1, first - 1, -1):
        if journal.types[node] == "message":
            (entry,) = journal.entries([node])
            if entry.timestamp:
                return entry.timestamp
    return ""


def _time(text: str) -> int | None:
    return milliseconds(text) if text else None


def _digest(head: bytes) -> bytes:
    return hashlib.blake2b(head[:_FIRST], digest_size=8).digest()
