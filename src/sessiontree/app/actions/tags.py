"""Tag and pin sessions. Session files do not change."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import msgspec

from sessiontree.app.actions.contract import ActionPlan, Description, Done
from sessiontree.archive.tags import SessionTags, TagFile, tagged_path
from sessiontree.core.jsonio import JsonObject
from sessiontree.errors import ConflictError, UsageError
from sessiontree.session.session import Session


class TagPlan(ActionPlan[SessionTags]):
    """Change the tags of a session."""

    action: ClassVar[str] = "tag"

    def __init__(self, tags: TagFile, before: SessionTags, after: SessionTags) -> None:
        super().__init__()
        self._tags, self._before, self.expected = tags, before, after

    def describe(self) -> Description:
        nothing = "the tags and the pin do not change" if self._before == self.expected else None
        return Description(self.action, self._title(), nothing=nothing, data=tag_fields(self.expected))

    def _title(self) -> str:
        return f"tags of {self.expected.path}: {', '.join(self.expected.tags) or 'none'}"

    def _carry_out(self) -> Done[SessionTags]:
        new = self._tags.change(self.expected.session, self.expected.path, self._change)
        is_same = self._before == self.expected
        return Done(new, None if is_same else type(self)(self._tags, new, self._restored(new)))

    def _change(self, current: SessionTags) -> SessionTags:
        # Compared here, under the file's lock: between a check before and the write, another process may change it.
        if _marks(current) != _marks(self._before):
            raise ConflictError(f"{current.path}: its tags changed since this was planned; plan it again")
        return msgspec.structs.replace(current, tags=self.expected.tags, pinned=self.expected.pinned)

    def _restored(self, new: SessionTags) -> SessionTags:
        return msgspec.structs.replace(new, tags=self._before.tags, pinned=self._before.pinned)


class PinPlan(TagPlan):
    """Pin a session, or remove the pin."""

    action = "pin"

    def _title(self) -> str:
        return f"{'pin' if self.expected.pinned else 'unpin'} {self.expected.path}"


def _marks(found: SessionTags) -> tuple[tuple[str, ...], bool]:
    return found.tags, found.pinned


def plan_tag(tags: TagFile, session: Session, add: Iterable[str] = (), remove: Iterable[str] = ()) -> TagPlan:
    """Plan to add and remove tags. White space inside a tag is folded."""
    before = find_tags(tags, session)
    added, removed = [_checked(tag) for tag in add], {_checked(tag) for tag in remove}
    kept = [tag for tag in before.tags if tag not in removed and tag not in added]
    after = msgspec.structs.replace(before, tags=(*kept, *dict.fromkeys(added)))
    return TagPlan(tags, before, after)


def _checked(tag: str) -> str:
    text = " ".join(tag.split())
    if not text:
        raise UsageError("a tag cannot be empty")
    return text


def plan_pin(tags: TagFile, session: Session, *, pinned: bool = True) -> PinPlan:
    """Plan to pin a session, which protects it from `clean`, or to remove the pin."""
    before = find_tags(tags, session)
    return PinPlan(tags, before, msgspec.structs.replace(before, pinned=pinned))


def find_tags(tags: TagFile, session: Session) -> SessionTags:
    """The tags and the pin of a session."""
    path = tagged_path(session)
    return msgspec.structs.replace(tags.find(session.id, path), session=session.id, path=path)


def tag_fields(found: SessionTags) -> JsonObject:
    return {"session": found.session, "path": found.path, "tags": list(found.tags), "pinned": found.pinned}
