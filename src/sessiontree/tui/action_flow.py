"""Actions of a screen: plan, confirm, carry out, undo.

Plans and actions run in threads. Actions of a screen are carried out one after the other, and none is dropped because
another one starts. What happens after the application has closed is printed by the command line.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from textual.screen import Screen

from sessiontree.app.actions.contract import ActionPlan, Description, Done
from sessiontree.errors import SessionTreeError
from sessiontree.library.summary import Summary
from sessiontree.session.session import Session
from sessiontree.tui.dialogs import PlanDialog
from sessiontree.views.text import clean

if TYPE_CHECKING:
    from sessiontree.tui.app import SessionTreeApp

ResultT = TypeVar("ResultT")
ScreenT = TypeVar("ScreenT")

_MAX_UNDO = 20


class ActionScreen(Screen[ScreenT]):
    """A screen whose keys carry out actions of the table `ACTIONS`."""

    app: SessionTreeApp
    undo_key = "u"

    def __init__(self) -> None:
        super().__init__()
        self._undo_plans: list[ActionPlan[Any]] = []
        self._turn = threading.Lock()

    def after_action(self, done: Done[Any]) -> None:
        """Show the result of an action. Called on the thread of the UI."""
        raise NotImplementedError

    # Background work

    def in_background(self, work: Callable[[], ResultT], then: Callable[[ResultT], object]) -> None:
        """Run something in a thread, then pass its result on; an error is reported."""

        app = self.app  # a screen that was removed has none

        def run() -> None:
            try:
                result = work()
            except (SessionTreeError, OSError) as error:
                if app.is_closing:
                    app.late_errors.append(str(error))
                else:
                    app.call_from_thread(self.report, error)
                return
            if not app.is_closing:
                app.call_from_thread(then, result)

        self.run_worker(run, thread=True, group="action")

    # Plan, confirm, carry out, undo

    def do(
        self,
        action: str,
        subject: Summary | Session,
        /,
        *,
        confirm: bool = False,
        then: Callable[[], object] | None = None,
        **arguments: Any,
    ) -> None:
        """Plan an action and carry it out; after a confirmation if asked for, or if the plan has warnings.

        `then` is called when it is done.
        """

        workbench = self.app.workbench

        def work() -> tuple[ActionPlan[Any], Description, Done[Any] | None]:
            # Planned when it is its turn: the actions before may change what a plan depends on.
            with self._turn:
                plan = workbench.plan(action, subject, **arguments)
                description = plan.describe()
                needs_answer = confirm or description.warnings or description.final or description.nothing is not None
                return plan, description, None if needs_answer else plan.do()

        def planned(found: tuple[ActionPlan[Any], Description, Done[Any] | None]) -> None:
            plan, description, done = found
            if done is not None:
                self._finish(description, done, then)
            elif description.nothing is not None and not confirm:
                self.app.notify(f"Nothing to do: {clean(description.nothing)}", markup=False)
            else:
                self.confirm(plan, description, then)

        self.in_background(work, planned)

    def confirm(
        self, plan: ActionPlan[Any], description: Description | None = None, then: Callable[[], object] | None = None
    ) -> None:
        def answered(is_confirmed: bool | None) -> None:
            if is_confirmed:
                self.carry_out(plan, then)

        self.app.push_screen(PlanDialog(description or plan.describe()), answered)

    def carry_out(
        self, plan: ActionPlan[Any], then: Callable[[], object] | None = None, *, is_undo: bool = False
    ) -> None:
        def work() -> tuple[Description, Done[Any]]:
            try:
                with self._turn:
                    return plan.describe(), plan.do()
            except OSError:
                if is_undo:  # the cause may pass, unlike that of a conflict
                    self._undo_plans.append(plan)
                raise

        self.in_background(work, lambda found: self._finish(*found, then, is_undo=is_undo))

    def _finish(
        self,
        description: Description,
        done: Done[Any],
        then: Callable[[], object] | None,
        *,
        is_undo: bool = False,
    ) -> None:
        hint = ""
        if done.undo is not None and not is_undo:
            self._undo_plans = [*self._undo_plans[1 - _MAX_UNDO :], done.undo]
            hint = f" Press {self.undo_key} to undo."
        self.app.notify(f"Done: {clean(description.title)}.{hint}", markup=False)
        if self.is_attached:
            self.after_action(done)
        if then is not None:
            then()

    def action_undo(self) -> None:
        """Undo the last action that is not undone yet."""
        if not self._undo_plans:
            self.app.notify("Nothing to undo.")
            return
        self.carry_out(self._undo_plans.pop(), is_undo=True)

    def report(self, error: Exception) -> None:
        self.app.notify(clean(str(error)), severity="error", timeout=10, markup=False)
