"""The home folder as the tidying commands see it: sessions come from the library, and are named as for `open`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sessiontree.cli.list import open_library

if TYPE_CHECKING:
    from sessiontree.archive.archive_home import Home
    from sessiontree.archive.candidates import Candidate
    from sessiontree.cli.parser import Options


def open_home(options: Options) -> Home:
    """The home folder a command is about. The library is opened only when something is asked of it."""
    from sessiontree.archive.archive_home import Home
    from sessiontree.library.roots import parse_roots

    def sessions() -> list[Candidate]:
        from sessiontree.archive.candidates import iter_library_candidates

        with open_library(options) as library:
            return list(iter_library_candidates(library))

    def find(wanted: str) -> str:
        with open_library(options) as library:
            return library.find(wanted).path

    return Home(options.home, roots=parse_roots(options.root), sessions=sessions, find=find)
