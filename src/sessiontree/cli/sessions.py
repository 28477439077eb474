"""The session a command is about: found by whatever SESSION says, opened, and remembered when someone works on it.

The quick ways come first: a path is opened as it is, and an id of a native session is found by the names of files. Only
what neither of them finds is looked for among the sessions of all agents, by id or title.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from sessiontree.errors import NotFoundError

if TYPE_CHECKING:
    from sessiontree.cli.parser import Options
    from sessiontree.session.session import Session


def open_session(options: Options, **how: Any) -> Session:
    """The session that SESSION names; `how` is for `sessiontree.open`."""
    from sessiontree.session.open import open

    path, agent = find_session(options.session, options)
    chosen = getattr(options, "dialect", None) or agent
    return open(path, home=options.home, dialect=chosen, **how)


def find_session(wanted: str, options: Options) -> tuple[str, str | None]:
    """The path of the session that is meant, and its agent where that was found out on the way."""
    from sessiontree import paths
    from sessiontree.session.open import looks_like_path

    if looks_like_path(wanted):
        return wanted, None
    home = paths.home() if options.home is None else os.path.abspath(options.home)
    try:
        return paths.find_session_file(home, wanted), None
    except NotFoundError:
        from sessiontree.cli.list import open_library

        with open_library(options) as library:
            found = library.find(wanted)
            return found.path, found.agent


def remember_work(path: str, cwd: str, options: Options) -> None:
    """Someone in this terminal works on a session: `continue` goes on with it. Never disturbs the command."""
    from sessiontree.library.last_session import record_last_session

    record_last_session(path, cwd or os.curdir, home=options.home)
