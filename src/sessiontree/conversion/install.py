"""Write a converted session to a file: plan it, write a temporary file, verify that, and only then rename it.

Nothing is ever overwritten, and a killed process leaves no partial file where an agent looks for sessions.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping

from msgspec import Struct

from sessiontree.conversion.convert import BranchChoice, Converted, convert
from sessiontree.conversion.report import Report
from sessiontree.conversion.verify import first_difference
from sessiontree.core.ids import new_session_id
from sessiontree.dialects.canonical import Destination
from sessiontree.errors import ConversionError, ExistsError, WriteError
from sessiontree.session.open import open
from sessiontree.session.reader import CURRENT, Current
from sessiontree.session.session import Session
from sessiontree.stores.atomic_files import StagedFile, make_folder, sync_folder


class Request(Struct, frozen=True):
    """What to convert, to which dialect, and where to write it."""

    to: str
    branch: BranchChoice = "active"
    at: str | Current | None = CURRENT
    fork: bool = False
    cwd: str | None = None
    out: str | None = None
    """The file to write; None for the location where the new client looks for sessions."""
    strict: bool = False
    """Fail if anything would be dropped."""


class Plan(Struct, frozen=True):
    """What a conversion will write, and what it will lose."""

    request: Request
    id: str
    path: str
    size: int
    report: Report
    resume: tuple[str, ...]
    """The command that resumes the session, run in `cwd`; empty when no agent looks for sessions there."""
    cwd: str
    related_folder: tuple[str, str] | None
    """The folder with sub-agents and spilled output to copy, and its destination."""


def make_plan(session: Session, request: Request, environment: Mapping[str, str] = os.environ) -> Plan:
    """Run the complete conversion without writing anything."""
    id = new_session_id()
    converted = _converted(session, request, id)
    if request.out is None:
        destination = converted.dialect.destination(converted.meta, environment)
    else:
        destination = Destination(os.path.abspath(request.out), ())
    size = sum(map(len, converted.lines))
    if request.strict and converted.report.dropped:
        lost = "; ".join(f"{line.count} {line.what}: {line.why}" for line in converted.report.dropped)
        raise ConversionError(f"{session.location}: not converted to {request.to}, because it would drop {lost}")
    related = _related_folder(session, request.to, destination.path)
    return Plan(request, id, destination.path, size, converted.report, destination.resume, converted.meta.cwd, related)


def carry_out(session: Session, plan: Plan) -> Session:
    """Write the planned file and open it."""
    if os.path.lexists(plan.path):
        raise ExistsError(f"{plan.path}: the file already exists; nothing was written")
    try:
        staged = StagedFile(plan.path, _converted(session, plan.request, plan.id).lines)
        try:
            _verify(session, staged.location, plan)
            # The related folder first: if copying fails, no session is published without its related files.
            if plan.related_folder is not None:
                _copy_folder(*plan.related_folder)
            staged.publish()
        finally:
            staged.discard()
    except OSError as error:
        raise WriteError(f"{plan.path}: could not be written: {error.strerror or error}; no file was left") from error
    return open(plan.path, dialect=plan.request.to)


def _converted(session: Session, request: Request, id: str) -> Converted:
    cwd = None if request.cwd is None else os.path.realpath(request.cwd)
    return convert(session, request.to, branch=request.branch, at=request.at, id=id, cwd=cwd, fork=request.fork)


def _verify(session: Session, location: str, plan: Plan) -> None:
    """Compare the written file with its source."""
    request = plan.request
    leaf = session.leaf if isinstance(request.at, Current) else request.at
    written = open(location, dialect=request.to)
    found = first_difference(session, leaf, written, all_branches=request.branch == "all")
    written.close()
    if found is not None:
        raise ConversionError(
            f"{session.location}: not converted: the result would differ from the session; nothing was written. "
            f"{f'It lacks {found.source}' if found.source else f'Only the result has {found.copy}'}"
        )


def _related_folder(session: Session, to: str, path: str) -> tuple[str, str] | None:
    """The folder named like the session's file, which only its own client can use, and its destination."""
    folder = os.path.splitext(session.location)[0]
    if session.dialect.name != to or not session.related_files() or not os.path.isdir(folder):
        return None
    return folder, os.path.splitext(path)[0]


def copy_related_folder(session: Session, path: str) -> None:
    """Copy sub-agents and spilled output to a copy of their session in the same dialect."""
    related = _related_folder(session, session.dialect.name, path)
    if related is not None:
        _copy_folder(*related)


def _copy_folder(source: str, target: str) -> None:
    # Copy under a hidden name first, so that a killed process leaves no incomplete folder that a client would read.
    if os.path.lexists(target):
        raise ExistsError(f"{target}: the folder already exists; nothing was written")
    parent, name = os.path.split(target)
    make_folder(parent)
    hidden = os.path.join(parent, f".{name}.{os.urandom(6).hex()}.tmp")
    try:
        shutil.copytree(source, hidden, symlinks=True, copy_function=_copy_private)
        os.rename(hidden, target)
    except BaseException:
        shutil.rmtree(hidden, ignore_errors=True)
        raise
    sync_folder(parent)


def _copy_private(source: str, target: str) -> None:
    shutil.copyfile(source, target)
    os.chmod(target, 0o600)
