"""The preview of a session: enough to answer "is this the one?" without reading all of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from sessiontree.branches.tips import count_tips
from sessiontree.core.entries import Entry, MessageEntry
from sessiontree.core.messages import message_text
from sessiontree.session.session import Session
from sessiontree.views.tree_drawing import RowFormat, draw_tree
from sessiontree.views.tree_rows import TreeRows

MAX_TEXT = 2_000
"""Characters of a message in a preview."""
_BATCH = 16
_TREE_WIDTH, _MAX_COLUMNS, _MAX_ROWS = 80, 6, 12


class Preview(Struct, frozen=True):
    """The first and the last exchange of the active path. Texts are untrusted; empty if there is none."""

    first_prompt: str = ""
    first_reply: str = ""
    hidden: int = 0
    """Messages between the two exchanges."""
    last_prompt: str = ""
    last_reply: str = ""
    messages: int = 0
    """Messages of the active path."""
    entries: int = 0
    branches: int = 0
    problems: int = 0
    hidden_turns: int = 0
    """Prompts between the two exchanges."""
    tree: tuple[str, ...] = ()
    """Where branches start and end, drawn in rows; empty if there is only one branch. Sanitized."""


def preview_session(session: Session) -> Preview:
    """Read the messages that a preview shows. Large sessions are read from both ends."""
    path = session.path_ids() if session.leaf is not None else []
    ids = [id for id in path if session.type_of(id) == "message"]
    first = _find_exchange(_read(session, ids))
    last = _find_last_exchange(_read(session, ids[::-1]))
    if last.prompt_id == first.prompt_id:
        last_prompt, last_reply = "", last.reply if last.reply_id != first.reply_id else ""
    else:
        last_prompt, last_reply = last.prompt, last.reply
    turns, tree = _find_branches(session, path)
    shown = {first.prompt_id, first.reply_id, last.prompt_id, last.reply_id} - {""}
    return Preview(
        first.prompt,
        first.reply,
        len(ids) - len(shown),
        last_prompt,
        last_reply,
        len(ids),
        len(session),
        count_tips(session),
        len(session.problems),
        max(turns - len({first.prompt_id, last.prompt_id} - {""}), 0),
        tree,
    )


def _find_branches(session: Session, path: Sequence[str]) -> tuple[int, tuple[str, ...]]:
    """The number of prompts on a path, and the drawing of the branches."""
    rows = TreeRows(session, filter="branches", max_columns=_MAX_COLUMNS)
    node_of = session.journal.tree.node_of
    turns = sum(rows.kinds[node_of[id]] == "prompt" for id in path)
    if len(rows.layout.first) < 2:
        return turns, ()
    around = rows.here if len(rows) > _MAX_ROWS else None
    return turns, tuple(draw_tree(rows, _TREE_WIDTH, RowFormat(), around=around, margin=_MAX_ROWS // 2))


class _Exchange(Struct):
    prompt: str = ""
    prompt_id: str = ""
    reply: str = ""
    reply_id: str = ""


def _read(session: Session, ids: Sequence[str]) -> Iterator[Entry]:
    for start in range(0, len(ids), _BATCH):
        yield from session.entries(list(ids[start : start + _BATCH]))


def _find_exchange(entries: Iterable[Entry]) -> _Exchange:
    """The first prompt and the first text that answers it."""
    found = _Exchange()
    for entry in entries:
        role, text = _role_and_text(entry)
        if role == "user" and text and not found.prompt:
            found.prompt, found.prompt_id = text, entry.id
        elif role == "assistant" and text and found.prompt:
            found.reply, found.reply_id = text, entry.id
            break
    return found


def _find_last_exchange(entries: Iterable[Entry]) -> _Exchange:
    """The last prompt, and the last text after it; the entries are in reverse order."""
    found = _Exchange()
    for entry in entries:
        role, text = _role_and_text(entry)
        if role == "assistant" and text and not found.reply:
            found.reply, found.reply_id = text, entry.id
        elif role == "user" and text:
            found.prompt, found.prompt_id = text, entry.id
            break
    return found


def _role_and_text(entry: Entry) -> tuple[str, str]:
    if not isinstance(entry, MessageEntry):
        return "", ""
    return entry.message.role, message_text(entry.message)[:MAX_TEXT].strip()
