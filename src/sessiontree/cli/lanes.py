"""What the commands about lanes share: which exploration is meant, where its files are, what is printed of it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sessiontree.cli import output
from sessiontree.cli.parser import Options
from sessiontree.errors import NotFoundError

if TYPE_CHECKING:
    from sessiontree.exploring.comparing import HasLanes, Result
    from sessiontree.exploring.copies import Copies
    from sessiontree.exploring.told import Told
    from sessiontree.session import Session


def told_of(session: Session, run: str | None) -> Told:
    from sessiontree.exploring.told import find_exploration

    try:
        return find_exploration(session, run)
    except NotFoundError as error:
        raise NotFoundError(f'{error}; `sessiontree explore SESSION "..."` begins one, --list shows all') from None


def home_of(options: Options) -> str:
    from sessiontree import places

    return places.home() if options.home is None else os.path.abspath(options.home)


def copies_of(session: Session, options: Options) -> Copies:
    from sessiontree.exploring.copies import Copies

    return Copies(home_of(options), session.id, session.cwd or os.getcwd())


def plain(value: Any) -> Any:
    import msgspec

    return msgspec.to_builtins(value)


def print_results(session: Session, told: HasLanes, results: Sequence[Result], options: Options) -> int:
    from sessiontree.exploring.showing import draw_results

    if options.json:
        output.print_json({"type": "results", **_results(session, told, results)})
    else:
        look = {"bold": output.bold, "dim": output.dim}
        output.print_lines(draw_results(results, output.width(), session=session.id[:8], **look))
    return 0


def _results(session: Session, told: HasLanes, results: Sequence[Result]) -> dict[str, Any]:
    return {
        "session": session.id,
        "path": session.location,
        "run": told.plan.run,
        "leaf": session.leaf,
        "results": [plain(one) for one in results],
    }
