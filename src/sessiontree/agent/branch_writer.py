"""Writing to the branch of a run: appends from several threads, and answers in the form that `append` takes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from sessiontree.core.context import Context
from sessiontree.core.entries import Entry
from sessiontree.core.jsonio import JsonObject, native_fields
from sessiontree.core.messages import Assistant
from sessiontree.errors import UsageError
from sessiontree.session.entry_input import ContentInput, EntryInput
from sessiontree.session.session import Branch, Session

_COUNTS: JsonObject = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 0}
_COSTS: JsonObject = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0}


class SerializedBranch(Branch):
    """A Branch that serializes appends from several threads, and can be closed.

    Results of parallel calls, checkpoints and the run itself append after the same leaf. `Branch` leaves locking to its
    caller. Closing keeps late work of an interrupted run (a summary in a thread) from being appended later.
    """

    def __init__(self, target: Branch | Session, on_append: Callable[[Entry], None] | None = None) -> None:
        """`on_append` is called with each entry, in file order, on the appending thread."""
        self._target = target
        self._on_append = on_append
        self._lock = threading.Lock()
        self._is_closed = False
        self.session = target if isinstance(target, Session) else target.session

    @property
    def leaf(self) -> str | None:  # type: ignore[override]  # read-only here: it is the target's leaf
        return self._target.leaf

    def append(self, what: EntryInput | None = None, content: ContentInput | None = None, /, **fields: Any) -> Entry:
        with self._lock:
            self._check_open()
            entry = self._target.append(what, content, **fields)
            if self._on_append is not None:  # under the lock, so that the order of calls is that of the file
                self._on_append(entry)
            return entry

    def move(self, to: str | None) -> None:
        with self._lock:
            self._check_open()
            self._target.move(to)

    def context(self) -> Context:
        return self._target.context()

    def path(self) -> list[Entry]:
        return self._target.path()

    def close(self) -> None:
        """Refuse further writes; one that is in progress finishes first."""
        with self._lock:
            self._is_closed = True

    def _check_open(self) -> None:
        if self._is_closed:
            raise UsageError(f"{self.session.location}: not written: the run was interrupted")


def answer_fields(answer: Assistant) -> JsonObject:
    """An answer as a message for `append`, with every field that readers of this format rely on.

    An unknown cost is written as 0, because the format cannot express it otherwise.
    """
    fields = native_fields(answer)
    if not isinstance(fields["content"], str):
        fields["content"] = [_complete_block(block) for block in fields["content"]]
    used: dict[str, Any] = fields.get("usage") or {}
    fields["usage"] = {**_COUNTS, **used, "cost": {**_COSTS, **(used.get("cost") or {})}}
    fields.setdefault("stopReason", "stop")
    return fields


def _complete_block(block: JsonObject) -> JsonObject:
    return {"id": "", "name": "", **block} if block["type"] == "toolCall" else block
