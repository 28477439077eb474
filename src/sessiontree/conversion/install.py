"""Write a converted session to a file: plan it, write a temporary file, verify that, and only then rename it.

Nothing is ever overwritten, and a killed process leaves no partial file where an agent looks for sessions.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterator, Mapping

import msgspec
from msgspec import Struct

from sessiontree.conversion.convert import BranchChoice, Converted, Report, convert
from sessiontree.conversion.verify import first_difference
from sessiontree.core.ids import new_session_id
from sessiontree.dialects.canonical import Destination, LossNote, SessionMeta
from sessiontree.dialects.contract import Dialect
from sessiontree.dialects.storage import Document
from sessiontree.errors import ConversionError, ExistsError, NotFoundError, SessionTreeError, WriteError
from sessiontree.session.open import open, open_store
from sessiontree.session.reader import CURRENT, Current
from sessiontree.session.session import Session
from sessiontree.sources.lines_store import iter_file
from sessiontree.stores.atomic_files import StagedFile, make_folder, sync_folder
from sessiontree.stores.contract import SessionStore
from sessiontree.stores.memory import MemoryStore
from sessiontree.stores.temporary_files import sweep_once, temporary_path


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
    install: tuple[str, ...] = ()
    """The client's command that imports the file, run by `install`; empty when it reads the file itself."""


def check_not_empty(session: Session) -> None:
    """Refuse to convert a session without messages: the copy would be a file that its client cannot resume."""
    if not session.count("message"):
        raise ConversionError(f"{session.location}: nothing to convert: the session has no messages")


def make_plan(session: Session, request: Request, environment: Mapping[str, str] = os.environ) -> Plan:
    """Run the complete conversion without writing anything."""
    id = new_session_id()
    has_no_folder = request.out is None and not request.cwd and not session.cwd
    if has_no_folder:  # clients look for sessions by their folder
        request = msgspec.structs.replace(request, cwd=os.getcwd())
    converted = _converted(session, request, id)
    if request.out is None:
        destination = find_destination(converted.dialect, converted.meta, environment)
    else:
        destination = Destination(os.path.abspath(request.out), ())
    size = sum(map(len, _content(converted, destination.path)))
    if request.strict and converted.report.dropped:
        lost = "; ".join(f"{line.count} {line.what}: {line.why}" for line in converted.report.dropped)
        raise ConversionError(f"{session.location}: not converted to {request.to}, because it would drop {lost}")
    if has_no_folder:
        converted.report.note(LossNote("changed", "folders", f"the session records none; it becomes {request.cwd}"))
    related = _related_folder(session, request.to, destination.path)
    return Plan(
        request,
        id,
        destination.path,
        size,
        converted.report,
        destination.resume,
        converted.meta.cwd,
        related,
        destination.install,
    )


def find_destination(dialect: Dialect, meta: SessionMeta, environment: Mapping[str, str]) -> Destination:
    """Where the client of a dialect looks for a session, by its environment and its own records."""
    return dialect.locate(dialect.destination(meta, environment), meta, _read_or_none)


def _read_or_none(path: str) -> bytes | None:
    try:
        return b"".join(iter_file(path))
    except SessionTreeError:
        return None


def install(session: Session, plan: Plan) -> Session:
    """Write the planned file and run the client's command that imports it, if it has one."""
    program = shutil.which(plan.install[0]) if plan.install else None
    if plan.install and program is None:
        raise NotFoundError(f"{plan.install[0]} is not installed or not on the PATH; nothing was written")
    written = carry_out(session, plan)
    if program is not None:
        _run_import(program, plan)
    return written


def _run_import(program: str, plan: Plan) -> None:
    import subprocess  # few clients have such a command

    command = [program, *plan.install[1:]]
    cwd = plan.cwd if os.path.isdir(plan.cwd) else None
    # Some clients take the folder from $PWD.
    environment = os.environ if cwd is None else {**os.environ, "PWD": cwd}
    done = subprocess.run(  # noqa: S603 - a program that was found, no shell
        command, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    if done.returncode:
        lines = (done.stderr or done.stdout).decode("utf-8", "replace").split("\n")
        why = next((line for line in reversed(lines) if line.strip()), "no output").strip()
        raise ConversionError(
            f"{shlex.join(plan.install)}: exit code {done.returncode}: {why}; the converted session is {plan.path}"
        )


def carry_out(session: Session, plan: Plan) -> Session:
    """Write the planned file and open it."""
    if os.path.lexists(plan.path):
        raise ExistsError(f"{plan.path}: the file already exists; nothing was written")
    try:
        converted = _converted(session, plan.request, plan.id)
        staged = StagedFile(plan.path, _content(converted, plan.path))
        try:
            written = _open_staged(staged.location, plan.path, converted.dialect)
            _verify(session, written, plan.request, converted.report)
            # The related folder first: if copying fails, no session is published without its related files.
            if plan.related_folder is not None:
                _copy_folder(*plan.related_folder)
            staged.publish()
        finally:
            staged.discard()
    except OSError as error:
        raise WriteError(f"{plan.path}: could not be written: {error.strerror or error}; no file was left") from error
    return open(plan.path, dialect=plan.request.to)


def _content(converted: Converted, path: str) -> Iterator[bytes]:
    """The content of the file to write: the lines, or the document that the client reads."""
    storage = converted.dialect.storage(path)
    if isinstance(storage, Document) and storage.content is not None:
        return iter(storage.content(line.removesuffix(b"\n") for line in converted.lines))
    return converted.lines


def _open_staged(location: str, path: str, dialect: Dialect) -> Session:
    """Open a file before it gets its name, which decides how it is stored."""
    storage = dialect.storage(path)
    if not isinstance(storage, Document):
        return open(location, dialect=dialect.name)
    lines = storage.lines(b"".join(iter_file(location)))
    return open_store(MemoryStore(b"".join(line + b"\n" for line in lines), location), dialect=dialect.name)


def convert_into(session: Session, request: Request, store: SessionStore | None = None) -> tuple[Session, Report]:
    """Convert a session into a store, or into a new one in the repository of the session, and open it there."""
    converted = _converted(session, request, new_session_id())
    meta, data = converted.meta, b"".join(converted.lines)
    repository = session.repository
    written = open_store(MemoryStore(data), repository=repository, dialect=request.to)
    _verify(session, written, request, converted.report)
    target = store or repository.new(meta.id, timestamp=meta.timestamp, cwd=meta.cwd)
    target.create([data])
    return open_store(target, repository=repository, dialect=request.to), converted.report


def _converted(session: Session, request: Request, id: str) -> Converted:
    cwd = None if request.cwd is None else os.path.realpath(request.cwd)
    return convert(session, request.to, branch=request.branch, at=request.at, id=id, cwd=cwd, fork=request.fork)


def _verify(session: Session, written: Session, request: Request, report: Report) -> None:
    """Compare a converted session with its source, and close it."""
    leaf = session.leaf if isinstance(request.at, Current) else request.at
    all_branches, dropped = request.branch == "all", report.dropped_ids
    found = first_difference(session, leaf, written, all_branches=all_branches, dropped=dropped)
    written.close()
    if found is not None:
        raise ConversionError(
            f"{session.location}: not converted: the result would differ from the session; nothing was written. "
            f"{f'It lacks {found.source}' if found.source else f'Only the result has {found.copy}'}"
        )


def _related_folder(session: Session, to: str, path: str) -> tuple[str, str] | None:
    """The folder named like the session's file, which only its own client can use, and its destination."""
    folder = os.path.splitext(session.location)[0]
    if session.dialect.name != to or not session.related_files():
        return None
    if os.path.islink(folder) or not os.path.isdir(folder):  # a link would bring in files from elsewhere
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
    parent = os.path.dirname(target)
    make_folder(parent)
    sweep_once(parent)
    hidden = temporary_path(target)
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
