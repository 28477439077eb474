"""Actions on sessions: one request plans and shows an action, a second carries it out, a third undoes it."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from sessiontree.app.actions.archive import plan_restore
from sessiontree.app.actions.contract import ActionPlan, Done
from sessiontree.app.actions.table import ACTIONS, Action
from sessiontree.errors import UsageError
from sessiontree.web.live import Live
from sessiontree.web.site import Site

_NOT_HERE = frozenset({"export", "rewind", "undo-rewind"})
_SHARED = frozenset(
    {"switch", "fork", "label", "rename", "merge", "pick", "compact", "undo-compaction", "leave-out", "take-in"}
    | {"tag", "pin", "prune", "archive"}
)
"""Actions for users who do not own this machine: those that change sessions of their repository, and nothing else."""


def is_offered(site: Site, name: str) -> bool:
    """Whether a page of this server has an action."""
    return name not in _NOT_HERE and (name in _SHARED or not site.is_shared)


class PlanRequest(msgspec.Struct, forbid_unknown_fields=True):
    action: str
    arguments: dict[str, Any] = {}
    item: str | None = None
    """For `restore`: the item of the archive."""


class DoRequest(msgspec.Struct, forbid_unknown_fields=True):
    plan: str


class ActionRoutes:
    def __init__(self, site: Site, live: Live) -> None:
        self._site, self._live = site, live

    async def plan(self, request: Request) -> Response:
        """Plan an action, and describe what it will do. Writes nothing."""
        wanted = decode(await request.body(), PlanRequest)
        action = ACTIONS.get(wanted.action)
        if action is None or not is_offered(self._site, action.name):
            raise UsageError(f"unknown action {wanted.action!r}")
        summary = self._site.summary_of(request)
        arguments = check_arguments(action, wanted.arguments)
        if self._site.is_shared and "to" in arguments:
            raise UsageError(f"{action.name}: sessions of other agents are files, which this server does not write")

        def make() -> ActionPlan[Any]:
            # A separate session: the plan stays valid as long as the file does not change, whatever is shown.
            return self._site.workbench.plan(action.name, self._site.workbench.open_session(summary), **arguments)

        return await self._describe(await run_in_threadpool(make), summary.ref)

    async def restore(self, request: Request) -> Response:
        """Plan to restore an item of the archive."""
        item = decode(await request.body(), PlanRequest).item
        if not item:
            raise UsageError("name the item to restore")
        return await self._describe(await run_in_threadpool(plan_restore, self._site.workbench.home, item), "")

    async def _describe(self, plan: ActionPlan[Any], ref: str) -> Response:
        description = await run_in_threadpool(plan.describe)
        fields = msgspec.to_builtins(description)
        fields["plan"] = self._site.keep_plan(plan, ref)
        return JSONResponse(fields)

    async def do(self, request: Request) -> Response:
        """Carry out a plan that was shown."""
        waiting = self._site.take_plan(decode(await request.body(), DoRequest).plan)
        done: Done[Any] = await run_in_threadpool(waiting.plan.do)
        self._site.changed(waiting.ref)
        fields: dict[str, Any] = {"done": True, "undo": None}
        if done.undo is not None:
            fields["undo"] = self._site.keep_plan(done.undo, waiting.ref)
            fields["undoTitle"] = (await run_in_threadpool(done.undo.describe)).title
        session = getattr(done.result, "session", None)
        path = getattr(session, "location", None)
        if isinstance(path, str):
            fields["path"] = path
        fields["notes"] = list(getattr(done.result, "notes", ()))
        await run_in_threadpool(self._scan)
        self._live.library_signal.fire()
        return JSONResponse(fields)

    def _scan(self) -> None:
        for _ in self._site.workbench.library.snapshot().follow():
            pass


def decode(body: bytes, kind: type[Any]) -> Any:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.MsgspecError as error:
        raise UsageError(f"the request cannot be read: {error}") from None


def check_arguments(action: Action, given: dict[str, Any]) -> dict[str, Any]:
    """The arguments of an action, with the types and choices of the table. Paths are not accepted from a page."""
    known = {argument.name: argument for argument in action.arguments if argument.kind != "path"}
    found: dict[str, Any] = {}
    for name, value in given.items():
        argument = known.get(name)
        if argument is None:
            raise UsageError(f"{action.name}: unknown argument {name!r}")
        if value is None or value == "":
            continue
        match argument.kind:
            case "entries" | "texts":
                fits = isinstance(value, list) and all(isinstance(each, str) for each in value)
            case "flag":
                fits = isinstance(value, bool)
            case "choice":
                fits = value in argument.choices
            case _:
                fits = isinstance(value, str)
        if not fits:
            raise UsageError(f"{action.name}: {name} has the wrong type or value")
        found[name] = value
    missing = [argument.name for argument in known.values() if argument.is_required and argument.name not in found]
    if missing:
        raise UsageError(f"{action.name}: {missing[0]} is missing")
    return found
