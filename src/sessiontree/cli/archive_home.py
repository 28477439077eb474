"""The archive's view of the home folder, with sessions found through the library."""

from __future__ import annotations

import shlex

from sessiontree.archive.archive_home import Home
from sessiontree.archive.candidates import Candidate, iter_library_candidates
from sessiontree.archive.tags import TagFile
from sessiontree.cli.library_options import open_library
from sessiontree.cli.parser import Options
from sessiontree.errors import UsageError
from sessiontree.library.roots import parse_roots
from sessiontree.paths import home_address
from sessiontree.session.session import Session
from sessiontree.stores.contract import ArchiveRepository
from sessiontree.stores.repositories import home_folder, is_address, open_repository


def open_tags(session: Session, options: Options) -> TagFile:
    return Home(home_folder(options.home)).tags_of(session)


def restore_command(item: str, session: Session) -> str:
    """The command that undoes a rewrite of a session."""
    home = f" --home {shlex.quote(session.ref.home)}" if session.ref.home else ""
    return f"sessiontree restore {item}{home}"


def open_home(options: Options, *, only_files: bool = False) -> Home:
    """The home of a command: a folder, and a repository if the home is one. The library is opened when it is needed."""
    address = home_address() if options.home is None else options.home
    found = open_repository(address) if is_address(address) and not only_files else None
    repository = found if isinstance(found, ArchiveRepository) else None
    if options.home is not None and is_address(options.home) and repository is None:
        raise UsageError(f"--home {options.home}: this command needs a folder of session files")

    def sessions() -> list[Candidate]:
        with open_library(options) as library:
            return list(iter_library_candidates(library))

    def find(name: str) -> str:
        with open_library(options) as library:
            return library.find(name).ref

    return Home(
        home_folder(options.home),
        roots=parse_roots(options.root),
        sessions=sessions,
        find=find,
        repository=repository,
    )
