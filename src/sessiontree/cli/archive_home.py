"""The home folder as the tidying commands see it: sessions come from the library, and are named as for `open`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sessiontree.archive.archive_home import Home
from sessiontree.cli.library_options import open_library
from sessiontree.library.candidates import candidates
from sessiontree.library.roots import parse_roots

if TYPE_CHECKING:
    from sessiontree.archive.candidates import Candidate
    from sessiontree.cli.parser import Options


def open_home(options: Options) -> Home:
    """The home folder a command is about. The library is opened only when something is asked of it."""

    def sessions() -> list[Candidate]:
        with open_library(options) as library:
            return list(candidates(library))

    def find(wanted: str) -> str:
        with open_library(options) as library:
            return library.find(wanted).path

    return Home(options.home, roots=parse_roots(options.root), sessions=sessions, find=find)
