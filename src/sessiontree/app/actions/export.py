"""Export a session to a new file."""

from __future__ import annotations

import os
from collections.abc import Iterator

from msgspec import Struct

from sessiontree.app.actions.contract import ActionPlan, Description, Done, unchanged
from sessiontree.app.actions.files import RemoveFilesPlan
from sessiontree.core.jsonio import JsonObject
from sessiontree.errors import ExistsError, NotFoundError, UsageError
from sessiontree.export import BranchSelection, Format, Redactor, export
from sessiontree.session.session import Session
from sessiontree.stores.atomic_files import create_file

EXTENSIONS: dict[str, Format] = {
    ".md": "md",
    ".html": "html",
    ".json": "json",
    ".jsonl": "jsonl",
    ".txt": "text",
    ".markdown": "md",
    ".htm": "html",
}


class Exported(Struct, frozen=True):
    """A document that was written."""

    path: str
    format: Format
    branch: BranchSelection
    size: int
    redactor: Redactor | None = None
    """Counts what was masked."""


class ExportPlan(ActionPlan[Exported]):
    action = "export"

    def __init__(
        self, session: Session, path: str, format: Format, branch: BranchSelection, redactor: Redactor | None
    ) -> None:
        super().__init__(unchanged(session))
        self._session = session
        self._path, self._format, self._branch, self._redactor = path, format, branch, redactor

    def describe(self) -> Description:
        branches = "all branches" if self._branch == "all" else "the active branch"
        data = {"path": self._path, "format": self._format, "branch": self._branch}
        masked = " with secrets masked" if self._redactor else ""
        return Description(self.action, f"export {branches}{masked} as {self._format} to {self._path}", data=data)

    def _carry_out(self) -> Done[Exported]:
        size = 0

        def counted() -> Iterator[bytes]:
            nonlocal size
            for piece in export(self._session, self._format, branch=self._branch, redactor=self._redactor):
                size += len(piece)
                yield piece

        create_file(self._path, counted())
        exported = Exported(self._path, self._format, self._branch, size, self._redactor)
        return Done(exported, RemoveFilesPlan([self._path], "undo export"), self._session)


def plan_export(
    session: Session,
    path: str,
    *,
    format: Format | None = None,
    branch: BranchSelection = "active",
    redact: bool = False,
) -> ExportPlan:
    """Plan an export to a new file; without a format, by the extension of its name."""
    chosen = format or format_of(path)
    if chosen is None:
        raise UsageError(f"{path}: unknown extension; use {', '.join(EXTENSIONS)}")
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise NotFoundError(f"{folder}: no such folder; create it first, or choose another path")
    if os.path.lexists(path):
        raise ExistsError(f"{path}: file exists; choose another name")
    return ExportPlan(session, os.path.abspath(path), chosen, branch, new_redactor() if redact else None)


def new_redactor() -> Redactor:
    """A redactor for this user's sessions: it also masks the home folder."""
    return Redactor(os.path.expanduser("~"))


def format_of(path: str) -> Format | None:
    """The format for a file name's extension."""
    return EXTENSIONS.get(os.path.splitext(path)[1].lower())


def exported_fields(exported: Exported) -> JsonObject:
    redactor = exported.redactor
    return {
        "path": exported.path,
        "format": exported.format,
        "branch": exported.branch,
        "bytes": exported.size,
        "masked": redactor.counts if redactor else None,
        "maskedByRule": dict(redactor.by_rule) if redactor else None,
    }
