"""From a conversion to a file: planned, written out of sight, read back and compared, and only then given its name.

Nothing is ever overwritten, and a run that dies leaves nothing half-written where an agent looks.
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
    """What shall be converted to what, and where it shall go."""

    to: str
    branch: BranchChoice = "active"
    at: str | Current | None = CURRENT
    fork: bool = False
    cwd: str | None = None
    out: str | None = None
    """The file to write; None puts the session where its new client looks."""
    strict: bool = False
    """Refuse when anything would be dropped."""


class Plan(Struct, frozen=True):
    """What a conversion will write, and what it will lose."""

    request: Request
    id: str
    path: str
    size: int
    report: Report
    resume: tuple[str, ...]
    """The command that goes on with the session, run in `cwd`; empty when no agent looks where the file goes."""
    cwd: str
    beside: tuple[str, str] | None
    """The folder of sub-agents and spilled output that is copied along, and where to."""


def make_plan(session: Session, request: Request, environment: Mapping[str, str] = os.environ) -> Plan:
    """Go through the whole conversion without writing anything."""
    id = new_session_id()
    converted = _converted(session, request, id)
    if request.out is None:
        destination = converted.dialect.destination(converted.start, environment)
    else:
        destination = Destination(os.path.abspath(request.out), ())
    size = sum(map(len, converted.lines))
    if request.strict and converted.report.dropped:
        lost = "; ".join(f"{line.count} {line.what}: {line.why}" for line in converted.report.dropped)
        raise ConversionError(f"{session.location}: not converted to {request.to}, because it would drop {lost}")
    beside = _beside(session, request.to, destination.path)
    return Plan(request, id, destination.path, size, converted.report, destination.resume, converted.start.cwd, beside)


def carry_out(session: Session, plan: Plan) -> Session:
    """Write what was planned. Gives the new session, opened where it lies."""
    if os.path.lexists(plan.path):
        raise ExistsError(f"{plan.path}: there is a file already; it was not touched")
    try:
        staged = StagedFile(plan.path, _converted(session, plan.request, plan.id).lines)
        try:
            _check(session, staged.location, plan)
            if plan.beside is not None:
                _copy_folder(*plan.beside)
            staged.publish()
        finally:
            staged.discard()
    except OSError as error:
        raise WriteError(f"{plan.path}: could not be written: {error.strerror or error}; nothing was left") from error
    return open(plan.path, dialect=plan.request.to)


def _converted(session: Session, request: Request, id: str) -> Converted:
    cwd = None if request.cwd is None else os.path.realpath(request.cwd)
    return convert(session, request.to, branch=request.branch, at=request.at, id=id, cwd=cwd, fork=request.fork)


def _check(session: Session, location: str, plan: Plan) -> None:
    """Read back what was written, and compare it with what it was made from."""
    request = plan.request
    leaf = session.leaf if isinstance(request.at, Current) else request.at
    written = open(location, dialect=request.to)
    found = first_difference(session, leaf, written, whole=request.branch == "all")
    written.close()
    if found is not None:
        raise ConversionError(
            f"{session.location}: not converted, because the result does not read the same; nothing was written. "
            f"{f'It does not say {found.one}' if found.one else f'It says {found.other}, which the session does not'}"
        )


def _beside(session: Session, to: str, path: str) -> tuple[str, str] | None:
    """The folder named like the session's file, which only its own client knows what to do with."""
    folder = os.path.splitext(session.location)[0]
    if session.dialect.name != to or not session.related_files() or not os.path.isdir(folder):
        return None
    return folder, os.path.splitext(path)[0]


def copy_beside(session: Session, path: str) -> None:
    """Let sub-agents and spilled output follow to a copy of their session in the same dialect."""
    beside = _beside(session, session.dialect.name, path)
    if beside is not None:
        _copy_folder(*beside)


def _copy_folder(source: str, target: str) -> None:
    """Copy a folder out of sight, then give it its name."""
    if os.path.lexists(target):
        raise ExistsError(f"{target}: there is a folder already; it was not touched")
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
