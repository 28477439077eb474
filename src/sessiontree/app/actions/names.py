"""Name a session, and label its entries, as the session's client does."""

from __future__ import annotations

from sessiontree.app.actions.contract import ActionPlan, Description, Done, same
from sessiontree.session.session import Session


class RenamePlan(ActionPlan[str | None]):
    """The result is the new name."""

    action = "rename"

    def __init__(self, session: Session, name: str | None) -> None:
        super().__init__(same(session, lambda: session.given_name))
        self._session, self._before, self._name = session, session.given_name, " ".join((name or "").split()) or None

    def describe(self) -> Description:
        title = f"rename to {self._name!r}" if self._name else "remove the name"
        nothing = "it already has this name" if self._name == self._before else None
        data = {"name": self._name, "before": self._before}
        return Description(self.action, title, nothing=nothing, final=self._final, data=data)

    @property
    def _final(self) -> str | None:
        # Claude Code ignores empty names, so there a name can be replaced but not removed.
        return None if self._before else "it had no name before, and not every format can remove a name"

    def _carry_out(self) -> Done[str | None]:
        self._session.rename(self._name)
        undo = None if self._final else RenamePlan(self._session, self._before)
        return Done(self._session.name, undo, self._session)


class LabelPlan(ActionPlan[dict[str, str]]):
    """The result is all labels by entry."""

    action = "label"

    def __init__(self, session: Session, entry: str, text: str | None) -> None:
        session.node_of(entry)
        super().__init__(same(session, lambda: session.labels.get(entry)))
        self._session, self._entry, self._text = session, entry, text or None
        self._before = session.labels.get(entry)

    def describe(self) -> Description:
        title = f"label {self._entry} {self._text!r}" if self._text else f"remove the label of {self._entry}"
        nothing = "it already has this label" if self._text == self._before else None
        data = {"entry": self._entry, "label": self._text, "before": self._before}
        return Description(self.action, title, nothing=nothing, data=data)

    def _carry_out(self) -> Done[dict[str, str]]:
        self._session.label(self._entry, self._text)
        return Done(self._session.labels, LabelPlan(self._session, self._entry, self._before), self._session)


def plan_rename(session: Session, name: str | None) -> RenamePlan:
    """Plan to name a session; None or an empty text removes the name."""
    return RenamePlan(session, name)


def plan_label(session: Session, entry: str, text: str | None) -> LabelPlan:
    """Plan to label an entry; None or an empty text removes the label."""
    return LabelPlan(session, entry, text)
