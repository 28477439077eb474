"""What the commands about lanes share: which exploration is meant, where its files are, what is printed of it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sessiontree.cli import output
from sessiontree.cli.parser import Options
from sessiontree.errors import NotFoundError

if TYPE_CHECKING:
    from sessiontree.explore.compare import HasLanes, Result
    from sessiontree.explore.state import ExplorationState
    from sessiontree.explore.worktrees import Copies
    from sessiontree.session.session import Session


def told_of(session: Session, run: str | None) -> ExplorationState:
    from sessiontree.explore.state import find_exploration

    try:
        return find_exploration(session, run)
    except NotFoundError as error:
        raise NotFoundError(f'{error}; `sessiontree explore SESSION "..."` begins one, --list shows all') from None


def home_of(options: Options) -> str:
    from sessiontree import paths

    return paths.home() if options.home is None else os.path.abspath(options.home)


def copies_of(session: Session, options: Options) -> Copies:
    from sessiontree.explore.worktrees import Copies

    return Copies(home_of(options), session.id, session.cwd or os.getcwd())


def session_words(session: Session, options: Options) -> str:
    """The words with which this user can name the session again in a command, fit for a shell.

    The path that was typed; else the beginning of the id that means this session alone. And the home, if one was said.
    """
    from sessiontree import paths
    from sessiontree.explore.lane_table import shell_words
    from sessiontree.session.open import looks_like_path

    typed: str = options.session
    if looks_like_path(typed):
        name = os.path.join(os.curdir, typed) if typed.startswith("-") else typed
    else:
        name = paths.name_of(home_of(options), session.id, session.location)
    return shell_words(name, options.home)


def plain(value: Any) -> Any:
    import msgspec

    return msgspec.to_builtins(value)


def print_results(session: Session, told: HasLanes, results: Sequence[Result], options: Options) -> int:
    from sessiontree.explore.lane_table import draw_results

    if options.json:
        output.print_json({"type": "results", **_results(session, told, results)})
    else:
        look = {"bold": output.bold, "dim": output.dim}
        words = session_words(session, options)
        output.print_lines(draw_results(results, output.width(), session=words, **look))
    return 0


def _results(session: Session, told: HasLanes, results: Sequence[Result]) -> dict[str, Any]:
    return {
        "session": session.id,
        "path": session.location,
        "run": told.plan.run,
        "leaf": session.leaf,
        "results": [plain(one) for one in results],
    }
