"""Helpers that the explore subcommands share."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sessiontree.cli import output
from sessiontree.cli.parser import Options
from sessiontree.errors import NotFoundError

if TYPE_CHECKING:
    from sessiontree.explore.compare import Result
    from sessiontree.explore.state import ExplorationLike, ExplorationState
    from sessiontree.explore.worktrees import LaneWorktrees
    from sessiontree.session.session import Session


def load_exploration(session: Session, options: Options) -> ExplorationState:
    """The exploration of --run, or the last one."""
    from sessiontree.explore.state import find_exploration

    try:
        return find_exploration(session, options.which)
    except NotFoundError as error:
        raise NotFoundError(
            f"{error}; `sessiontree explore list SESSION` shows all, `explore start` starts one"
        ) from None


def home_of(options: Options) -> str:
    from sessiontree.stores.repositories import home_folder

    return home_folder(options.home)


def lane_worktrees(session: Session, options: Options) -> LaneWorktrees:
    from sessiontree.explore.worktrees import LaneWorktrees

    return LaneWorktrees(home_of(options), session.id, session.cwd or os.getcwd())


def session_words(session: Session, options: Options) -> str:
    """Shell words that name the session in a command: the path that was typed, or the shortest unique id prefix."""
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

    from sessiontree.app.event_json import without_unknown_costs

    return without_unknown_costs(msgspec.to_builtins(value))


def refused_models(state: ExplorationState, options: Options) -> list[str]:
    """The models of unfinished lanes that a resume uses only if they are passed to it."""
    from sessiontree.app.exploration import find_refused_models
    from sessiontree.settings import load_settings

    return find_refused_models(state, load_settings(os.getcwd(), home_of(options)).settings)


def print_results(session: Session, exploration: ExplorationLike, results: Sequence[Result], options: Options) -> None:
    from sessiontree.explore.lane_table import draw_results

    if options.json:
        output.print_json(
            {
                "type": "results",
                "session": session.id,
                "path": session.location,
                "run": exploration.plan.run,
                "leaf": session.leaf,
                "results": [plain(result) for result in results],
            }
        )
    else:
        words = session_words(session, options)
        output.print_lines(draw_results(results, output.width(), session=words, bold=output.bold, dim=output.dim))
