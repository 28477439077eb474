"""Every exception of the package, branched by whose fault it is.

    SessionTreeError
    ├── UsageError              the request cannot be carried out as asked
    │   ├── NotFoundError       no such session, entry, dialect or store
    │   ├── AmbiguousError      a prefix fits several sessions; `.candidates` lists them
    │   ├── InvalidEntryError   an entry that may not be written
    │   ├── ConversionError     a session that cannot be told in another format without a loss that was not allowed
    │   └── ReadOnlyError       this session can be read but not written, and why
    ├── DamagedError            the bytes are not what they should be
    │   └── NotASessionError    no session in this file; nothing was written to it
    ├── CompactionError         a compaction or branch summary was not made; the session is as it was
    │   └── SummaryError        whoever was to write the summary gave none that can be kept
    ├── ModelError              a model gave no whole answer; `.partial` is what had come of it
    │   ├── BusyModelError      it would answer later: `.retry_after` seconds, if the provider said so
    │   ├── UnreachableError    the connection failed or broke off
    │   ├── ContextOverflowError    the request is larger than the model's window
    │   ├── ModelAccessError    the key is missing, wrong, or has no money left
    │   └── RefusedRequestError the provider will not take this request; asking again does not help
    └── StoreError              the place that keeps the bytes failed
        ├── WriteError          a write failed; kept and raised again until it is resolved
        ├── ExistsError         something with that name is there already
        ├── ConflictError       the bytes changed since they were read
        └── ReplacedError       the file was deleted, replaced or cut while it was open

A message says what, what was found, where, and the next step. Damage found while *reading* is never raised: it
becomes a `Problem` (see `entries`), is listed, and reading goes on.
"""

from __future__ import annotations


class SessionTreeError(Exception):
    """Root of all errors of this package."""


class UsageError(SessionTreeError):
    """The request cannot be carried out as asked."""


class NotFoundError(UsageError):
    """No such session, entry, dialect or store."""


class AmbiguousError(UsageError):
    """A prefix fits several sessions."""

    def __init__(self, message: str, candidates: tuple[str, ...]) -> None:
        super().__init__(message)
        self.candidates = candidates


class InvalidEntryError(UsageError):
    """An entry that may not be written."""


class ConversionError(UsageError):
    """A session cannot be told in another format without a loss that was not allowed; nothing was written."""


class ReadOnlyError(UsageError):
    """This session can be read but not written."""


class DamagedError(SessionTreeError):
    """The bytes are not what they should be."""


class NotASessionError(DamagedError):
    """There is no session in these bytes."""


class PathError(UsageError):
    """A path that a tool cannot use; the message is meant for the model that asked for it."""


class CompactionError(SessionTreeError):
    """A compaction or a branch summary was not made; the session is as it was."""


class SummaryError(CompactionError):
    """Whoever was to write a summary gave none that can be kept: it failed, is empty, cut off, or calls a tool."""


class ModelError(SessionTreeError):
    """A model gave no whole answer."""

    def __init__(self, message: str, partial: object = None, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.partial = partial
        """What had come before it failed: an assistant message, or None."""
        self.retry_after = retry_after
        """How many seconds the provider asks to wait, if it said so."""


class BusyModelError(ModelError):
    """A rate limit, or a provider that has too much to do or failed for now. The same request may succeed later."""


class UnreachableError(ModelError):
    """The connection could not be made, took too long, or broke off."""

    was_sent = True
    """Whether the request may have been worked on. Not, if there never was a connection."""


class ContextOverflowError(ModelError):
    """The request is larger than the model's window."""


class ModelAccessError(ModelError):
    """The key is missing or wrong, may not use the model, or has no money left."""


class RefusedRequestError(ModelError):
    """The provider will not take this request as it is: no such model, or something in it that it does not accept."""


class StoreError(SessionTreeError):
    """The place that keeps the bytes failed."""


class WriteError(StoreError):
    """A write failed. It is raised again by every later write until `resolve()` finds the store sound."""


class ExistsError(StoreError):
    """Something with that name is there already; it was not touched."""


class ConflictError(StoreError):
    """The bytes changed since they were read; nothing was written."""


class ReplacedError(StoreError):
    """The file was deleted, replaced or cut while it was open; nothing was written to the wrong file."""
