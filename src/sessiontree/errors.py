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
