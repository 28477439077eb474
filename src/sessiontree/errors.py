"""All exceptions of the package.

    SessionTreeError
    ├── UsageError              the request cannot be carried out as asked
    │   ├── NotFoundError       no such session, entry, dialect or store
    │   ├── AmbiguousError      a prefix matches several sessions; `.candidates` lists them
    │   ├── InvalidEntryError   an entry that may not be written
    │   ├── PathError           a path that a tool cannot use
    │   ├── ConversionError     converting would lose data that the caller did not allow to lose
    │   └── ReadOnlyError       this session can be read but not written, and why
    ├── DamagedError            stored bytes are damaged
    │   └── NotASessionError    the file is not a session; nothing was written to it
    ├── CompactionError         no compaction or branch summary was written; the session is unchanged
    │   └── SummaryError        the summarizer returned no usable summary
    ├── ModelError              a request to a model failed; `.partial` is the part of the answer that arrived
    │   ├── BusyModelError      rate limit or overload: retry after `.retry_after` seconds, if known
    │   ├── UnreachableError    the connection failed or was interrupted
    │   ├── ContextOverflowError    the request is larger than the model's context window
    │   ├── ModelAccessError    the API key is missing or wrong, or the account has no credit
    │   └── RefusedRequestError the provider rejects this request; a retry does not help
    └── StoreError              reading or writing the stored bytes failed
        ├── WriteError          a write failed; raised again by later writes until it is resolved
        ├── ExistsError         the file or session exists already
        ├── ConflictError       the bytes changed since they were read
        └── ReplacedError       the file was deleted, replaced or truncated while it was open

A message states what failed, what was found and the next step. Damage found while *reading* is never raised: it becomes
a `Problem` (see `core.entries`), and reading continues.
"""

from __future__ import annotations

from collections.abc import Sequence


class SessionTreeError(Exception):
    """Base class of all errors of this package."""


class UsageError(SessionTreeError):
    """The request cannot be carried out as asked."""


class NotFoundError(UsageError):
    """No such session, entry, dialect or store."""


class AmbiguousError(UsageError):
    """A prefix matches several sessions."""

    def __init__(self, message: str, candidates: tuple[str, ...]) -> None:
        super().__init__(message)
        self.candidates = candidates


class InvalidEntryError(UsageError):
    """An entry that may not be written."""


class ConversionError(UsageError):
    """Converting would lose data that the caller did not allow to lose; nothing was written."""


class ReadOnlyError(UsageError):
    """This session can be read but not written."""


class DamagedError(SessionTreeError):
    """Stored bytes are damaged."""


class NotASessionError(DamagedError):
    """The bytes are not a session."""


class PathError(UsageError):
    """A path that a tool cannot use; the message is meant for the model that asked for it."""


class CompactionError(SessionTreeError):
    """No compaction or branch summary was written; the session is unchanged."""


class SummaryError(CompactionError):
    """The summarizer failed, or its summary is empty, truncated, or a tool call."""


class ModelError(SessionTreeError):
    """A request to a model failed."""

    def __init__(self, message: str, partial: object = None, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.partial = partial
        """The part of the answer that arrived before the failure: an assistant message, or None."""
        self.retry_after = retry_after
        """Seconds to wait, if the provider asked for it."""


class BusyModelError(ModelError):
    """A rate limit, an overload or a temporary failure: the same request may succeed later."""


class UnreachableError(ModelError):
    """The connection failed, timed out or was interrupted."""

    was_sent = True
    """Whether the provider may have received the request; False if the connection was never made."""


class ContextOverflowError(ModelError):
    """The request is larger than the model's context window."""


class ModelAccessError(ModelError):
    """The API key is missing, wrong or not allowed to use the model, or the account has no credit."""


class RefusedRequestError(ModelError):
    """The provider rejects this request: an unknown model, or content it does not accept."""


class StoreError(SessionTreeError):
    """Reading or writing the stored bytes failed."""


class WriteError(StoreError):
    """A write failed. Every later write raises it again until `resolve()` succeeds."""


class ExistsError(StoreError):
    """A file or session with that name exists already; it was not touched."""


class ConflictError(StoreError):
    """The bytes changed since they were read; nothing was written."""


class ReplacedError(StoreError):
    """The file was deleted, replaced or truncated while it was open; nothing was written to the wrong file."""


def check_option(name: str, value: str, known: Sequence[str]) -> None:
    """Refuse a value of an argument that is not one of the known values."""
    if value not in known:
        raise UsageError(f"{name}={value!r}: expected {', '.join(map(repr, known))}")
