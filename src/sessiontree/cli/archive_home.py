"""The archive's view of the home folder, with sessions found through the library."""

from __future__ import annotations

from sessiontree.archive.archive_home import Home
from sessiontree.archive.candidates import Candidate, iter_library_candidates
from sessiontree.archive.tags import TagFile
from sessiontree.cli.library_options import open_library
from sessiontree.cli.parser import Options
from sessiontree.errors import UsageError
from sessiontree.library.roots import parse_roots
from sessiontree.session.session import Session
from sessiontree.stores.repositories import home_folder, is_address


def open_tags(session: Session, options: Options) -> TagFile:
    return Home(home_folder(options.home)).tags_of(session)


def open_home(options: Options) -> Home:
    """The home folder of a command. The library is opened only when it is needed."""
    if options.home is not None and is_address(options.home):
        raise UsageError(f"--home {options.home}: this command needs a folder of session files")

    def sessions() -> list[Candidate]:
        with open_library(options) as library:
            return list(iter_library_candidates(library))

    def find(name: str) -> str:
        with open_library(options) as library:
            return library.find(name).path

    return Home(options.home, roots=parse_roots(options.root), sessions=sessions, find=find)
