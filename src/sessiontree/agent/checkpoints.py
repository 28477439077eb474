"""What tools did to files, and taking it back.

Before a tool changes a file, what stands there goes to the blob store, and a `file_snapshot` entry says so: `files` is
what stood there, `after` what the tool leaves. The entries are a log in the order of the file, over all branches,
because files live in time and not in a tree. The state at an entry is what stands now, with every change that was noted
behind that entry taken back, the newest first; so it does not matter how often a conversation was rewound or switched.

A rewind is a change like any other and is noted as one, which is why it can be undone. What does not look as the log
says it was left was changed by someone else: it is told, and overwritten only by name. Its content is kept before.

The entries come from a session file that anyone may have written. No path in them is followed out of the project and
the added folders, or through a link.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from sessiontree.agent.async_bridge import in_thread, uncancelled
from sessiontree.agent.diff import render_diff
from sessiontree.agent.file_changes import ChangeDetector, WorktreeStates
from sessiontree.agent.tools.base import Plan
from sessiontree.agent.workspace import Workspace, is_within
from sessiontree.core.entries import MessageEntry
from sessiontree.core.jsonio import Value
from sessiontree.core.messages import User
from sessiontree.errors import DamagedError, NotFoundError, PathError, SessionTreeError
from sessiontree.git.restore_files import restore_state
from sessiontree.git.snapshot import ABSENT, CachedBlobs, FileState, is_same_state, load_content, read_state
from sessiontree.session.session import Branch, Session
from sessiontree.stores.contract import BlobStore
from sessiontree.stores.safe_files import read_path, read_umask, remove_empty_folder

RewindScope: TypeAlias = Literal["conversation", "files", "both"]
REWIND = "rewind"
_KINDS = frozenset({"file_snapshot", "sessiontree:file_snapshot"})
"""The type of such an entry, as the dialects spell it."""


class RewindRecord(Value, frozen=True):
    """Where a rewind led, for its undoing."""

    from_leaf: str | None = None
    to_leaf: str | None = None
    moved: bool = False
    """Whether the conversation went, too."""
    undoes: int | None = None
    """The number of the entry whose rewind this one took back."""


class ChangeRecord(Value, frozen=True):
    """One entry of the log: what a call did to files."""

    files: dict[str, FileState] = msgspec.field(default_factory=dict)
    """What stood there before. Paths inside the project are relative to it."""
    after: dict[str, FileState] = msgspec.field(default_factory=dict)
    folders: tuple[str, ...] = ()
    """Folders that were not there before."""
    left_out: dict[str, str] = msgspec.field(default_factory=dict)
    """What was changed and is not kept, each with the reason."""
    root: str = ""
    tool: str = ""
    call: str = ""
    rewinding: RewindRecord | None = None


class RewindChange(Struct, frozen=True):
    """What a rewind will do to one path."""

    path: str
    shown: str
    now: FileState | None
    """What stands there; None for a folder or the like."""
    then: FileState
    diff: str
    conflict: str | None = None
    """Why it is not done unless the path is named: someone else changed it, or it leads outside."""

    @property
    def kind(self) -> Literal["create", "delete", "change"]:
        if not self.then.mode:
            return "delete"
        return "change" if self.now is None or self.now.mode else "create"


class RewindPlan(Struct, frozen=True):
    """What a rewind would do. Nothing was done yet."""

    entry: str | None
    leaf: str | None
    """Where the conversation will stand."""
    text: Any = None
    """What the user had said there, to be said otherwise; None when it is no message of the user."""
    changes: tuple[RewindChange, ...] = ()
    folders: tuple[str, ...] = ()
    """Folders that were made since, and go when they are empty."""
    lost: tuple[str, ...] = ()
    """What cannot be brought back, each with the reason."""

    @property
    def conflicts(self) -> tuple[RewindChange, ...]:
        return tuple(change for change in self.changes if change.conflict)

    @property
    def diff(self) -> str:
        """All changes of files, as text for a person. Untrusted: to be escaped by who shows it."""
        return "".join(change.diff for change in self.changes)


class Rewound(Struct, frozen=True):
    """What a rewind did."""

    restored: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    """Paths with a conflict that were not named."""
    failed: tuple[str, ...] = ()
    """What could not be done, each with the reason."""
    leaf: str | None = None


class Checkpoints:
    """The log of file changes of one session."""

    def __init__(self, session: Session, room: Workspace, blobs: BlobStore, *, watch: bool = True) -> None:
        """`watch` looks before and after a command at what git says has changed; without, commands are not covered."""
        self._session, self._room = session, room
        self._blobs = CachedBlobs(blobs)
        self._watch = ChangeDetector(room, self._blobs) if watch else None

    # Noting

    @contextlib.asynccontextmanager
    async def around(self, tool: str, plan: Plan, call: str = "", branch: Branch | None = None) -> AsyncIterator[None]:
        """Note what a call does to files. Contents are durable before the body runs."""
        if plan.writes:
            await uncancelled(asyncio.to_thread(lambda: self._append(self._intended(plan, tool, call), branch)))
            yield
            return
        if self._watch is None:
            yield
            return
        before = await asyncio.to_thread(self._watch.look)
        try:
            yield
        except BaseException:
            with contextlib.suppress(SessionTreeError):  # what ended the call is told, not that it could not be noted
                await self._note_changes(self._watch, before, tool, call, branch)
            raise
        await self._note_changes(self._watch, before, tool, call, branch)

    async def _note_changes(
        self, watch: ChangeDetector, before: WorktreeStates, tool: str, call: str, branch: Branch | None
    ) -> None:
        found = await asyncio.shield(asyncio.to_thread(watch.changed_since, before))
        if found.files or found.left_out:
            files, after = self._keyed(found.files), self._keyed(found.after)
            touched = ChangeRecord(files, after, (), found.left_out, self._room.root, tool, call)
            await uncancelled(in_thread(self._append, touched, branch))

    def note(self, before: Mapping[str, FileState], tool: str, call: str = "", branch: Branch | None = None) -> None:
        """Note changes that were done already: what stood at each path before, by `keep`."""
        after = {path: read_state(path, self._blobs.put) or ABSENT for path in before}
        changed = {path: saved for path, saved in before.items() if not is_same_state(saved, after[path])}
        if changed:
            then = {path: after[path] for path in changed}
            self._append(
                ChangeRecord(self._keyed(changed), self._keyed(then), root=self._room.root, tool=tool, call=call),
                branch,
            )

    def keep(self, path: str) -> FileState:
        """Keep what stands at a path; `PathError` when that is a folder or the like."""
        saved = read_state(path, self._blobs.put)
        if saved is None:
            raise PathError(f"{path}: is no file")
        return saved

    def _intended(self, plan: Plan, tool: str, call: str) -> ChangeRecord:
        """What a plan will do, before it is done."""
        files, after = {}, {}
        folders: list[str] = []
        for write in plan.writes:
            key = self._key(write.place.path)
            files[key] = self.keep(write.place.path)
            mode = files[key].mode or f"{_new_file_mode():o}"
            after[key] = FileState(mode, self._blobs.put(write.data), len(write.data))
            folders += map(self._key, _missing_folders(write.place.path))
        return ChangeRecord(files, after, tuple(dict.fromkeys(folders)), {}, self._room.root, tool, call)

    def _append(self, touched: ChangeRecord, branch: Branch | None) -> None:
        body = {"type": "file_snapshot", **msgspec.to_builtins(touched)}
        (branch if branch is not None else self._session).append(body)

    def _key(self, path: str) -> str:
        return os.path.relpath(path, self._room.root) if is_within(path, self._room.root) else path

    def _keyed(self, files: Mapping[str, FileState]) -> dict[str, FileState]:
        return {self._key(path): saved for path, saved in files.items()}

    # Looking

    def log(self, behind: int = -1) -> Iterator[tuple[int, ChangeRecord]]:
        """What was noted behind an entry, by its number in file order; in the order it was done."""
        journal = self._session.journal
        wanted = [node for node in range(behind + 1, len(journal)) if journal.types[node] in _KINDS]
        for node, fields in zip(wanted, journal.resolved_fields(wanted), strict=True):
            inner = fields.get("entry") if fields.get("type") == "sessiontree" else fields
            touched = _parse(inner)
            if touched is not None:
                yield node, touched

    def plan(self, entry: str | None) -> RewindPlan:
        """Plan a rewind to an entry; to a user message, to just before it; to None, to the beginning."""
        leaf, text = entry, None
        if entry is not None:
            found = self._session.entry(entry)
            if isinstance(found, MessageEntry) and isinstance(found.message, User):
                leaf, text = self._session.parent(entry), found.message.content
        node = -1 if entry is None else self._session.node_of(entry)
        assert node is not None
        changes, folders, lost = self._back_to(node)
        return RewindPlan(entry, leaf, text, changes, folders, lost)

    def _back_to(self, node: int) -> tuple[tuple[RewindChange, ...], tuple[str, ...], tuple[str, ...]]:
        """What makes files what they were at an entry."""
        then: dict[str, FileState] = {}
        last: dict[str, tuple[FileState, FileState]] = {}
        folders: dict[str, None] = {}
        lost: list[str] = []
        for _, touched in self.log(node):
            for path, saved in touched.files.items():
                then.setdefault(path, saved)
                last[path] = (saved, touched.after.get(path, ABSENT))
            folders.update(dict.fromkeys(touched.folders))
            lost += [f"{path}: {why}" for path, why in touched.left_out.items()]
        changes = self._changes(then, last, lost)
        return changes, tuple(folders), tuple(dict.fromkeys(lost))

    def _changes(
        self, then: Mapping[str, FileState], last: Mapping[str, tuple[FileState, FileState]], lost: list[str]
    ) -> tuple[RewindChange, ...]:
        """The paths that do not stand as they did then; what cannot be brought back goes to `lost`."""
        changes = []
        for key, saved in sorted(then.items()):
            path = os.path.normpath(os.path.join(self._room.root, key))
            try:
                now = read_state(path)
                if is_same_state(now, saved):
                    continue
                new = load_content(saved, self._blobs)
                diff = self._diff(path, now, saved, new)
            except (DamagedError, PathError, OSError, ValueError) as error:
                lost.append(f"{key}: {error}")
                continue
            changes.append(RewindChange(path, key, now, saved, diff, self._conflict(path, now, last[key])))
        return tuple(changes)

    def _diff(self, path: str, now: FileState | None, saved: FileState, new: bytes | None) -> str:
        found = read_path(path) if now is not None and now.mode else None
        key = self._key(path)
        diff = render_diff(key, None if found is None else found.data, new)
        if now is not None and now.mode and saved.mode and now.mode != saved.mode:
            diff = f"{key}: mode {now.mode} -> {saved.mode}\n{diff}"
        return diff

    def _conflict(self, path: str, now: FileState | None, last: tuple[FileState, FileState]) -> str | None:
        """Why a path is not touched without being named."""
        real = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
        place = self._room.place_of(real)
        if not place.is_inside:
            return "it is outside the project and the added folders"
        if real != path:
            return "a symbolic link leads to it"
        if place.is_guarded:
            return "a change there may make programs run later"
        if now is None:
            return "a folder or something else is in its place"
        if not any(is_same_state(now, known) for known in last):
            return "it was changed since by someone else"
        return None

    # Going back

    def rewind(
        self,
        plan: RewindPlan,
        what: RewindScope = "both",
        *,
        overwrite: Collection[str] = (),
        branch: Branch | None = None,
    ) -> Rewound:
        """Do what a plan says. Changes with a conflict are done only if their path is in `overwrite`.

        The plan must be fresh: a file that changed since it was made is left alone, and that is told.
        """
        at = branch if branch is not None else self._session.branch()
        rewinding = RewindRecord(at.leaf, plan.leaf, what != "files")
        return self._carry_out(plan, what, overwrite, branch, rewinding)

    def find_rewind(self) -> int | None:
        """The number of the last rewind that can be undone: that is not undone yet."""
        undone: set[int] = set()
        for node, touched in reversed(list(self.log())):
            if touched.rewinding is None or node in undone:
                continue
            if touched.rewinding.undoes is not None:
                undone.add(touched.rewinding.undoes)
                continue
            return node
        return None

    def plan_undo(self) -> RewindPlan:
        """What undoing the last rewind means; `NotFoundError` when there is none."""
        node = self.find_rewind()
        if node is None:
            raise NotFoundError("there is no rewind that could be undone")
        _, touched = next(self.log(node - 1))
        assert touched.rewinding is not None
        last = {path: (saved, touched.after.get(path, ABSENT)) for path, saved in touched.files.items()}
        for _, later in self.log(node):  # what was done since is not undone with it, and not taken for someone else's
            for path in later.files.keys() & last.keys():
                last[path] = (later.files[path], later.after.get(path, ABSENT))
        lost: list[str] = []
        changes = self._changes(touched.files, last, lost)
        leaf = touched.rewinding.from_leaf
        return RewindPlan(leaf, leaf, None, changes, touched.folders, tuple(lost))

    def undo(self, plan: RewindPlan, *, overwrite: Collection[str] = (), branch: Branch | None = None) -> Rewound:
        """Undo the last rewind, as `plan_undo` says: files, and the conversation if that had gone, too."""
        node = self.find_rewind()
        if node is None:
            raise NotFoundError("there is no rewind that could be undone")
        _, touched = next(self.log(node - 1))
        assert touched.rewinding is not None
        what: RewindScope = "both" if touched.rewinding.moved else "files"
        at = branch if branch is not None else self._session.branch()
        rewinding = RewindRecord(at.leaf, plan.leaf, touched.rewinding.moved, node)
        return self._carry_out(plan, what, overwrite, branch, rewinding)

    def _carry_out(
        self,
        plan: RewindPlan,
        what: RewindScope,
        overwrite: Collection[str],
        branch: Branch | None,
        rewinding: RewindRecord,
    ) -> Rewound:
        chosen = [change for change in plan.changes if not change.conflict or _is_named(change, overwrite)]
        skipped = tuple(change.shown for change in plan.changes if change not in chosen)
        if what == "conversation":
            chosen, skipped = [], ()
        chosen, failed = self._still_so(chosen)
        if rewinding.moved:
            if branch is not None:
                branch.move(plan.leaf)
            else:
                self._session.move(plan.leaf)
        # Noted before it is done: a process that dies in between leaves a rewind that can be undone or done again.
        note = ChangeRecord(
            {self._key(change.path): change.now for change in chosen if change.now is not None},
            {self._key(change.path): change.then for change in chosen},
            tuple(dict.fromkeys(self._key(folder) for change in chosen for folder in _missing_folders(change.path))),
            root=self._room.root,
            tool=REWIND,
            rewinding=rewinding,
        )
        self._append(note, branch)
        restored, not_done = self._restore(chosen)
        if what != "conversation":
            for folder in sorted(plan.folders, key=len, reverse=True):
                self._remove_folder(folder)
        leaf = branch.leaf if branch is not None else self._session.leaf
        return Rewound(tuple(restored), skipped, (*failed, *not_done), leaf)

    def _still_so(self, changes: Collection[RewindChange]) -> tuple[list[RewindChange], list[str]]:
        """The changes whose paths stand as they did when the plan was made; what stands there is kept."""
        chosen: list[RewindChange] = []
        failed: list[str] = []
        for change in changes:
            try:
                if is_same_state(self.keep(change.path), change.now):
                    chosen.append(change)
                    continue
                why = "has changed since it was looked at, and was left as it is"
            except (PathError, OSError) as error:
                why = str(error)
            failed.append(f"{change.shown}: {why}")
        return chosen, failed

    def _restore(self, changes: Collection[RewindChange]) -> tuple[list[str], list[str]]:
        """Deletions first: what goes may be in the way of what comes."""
        restored: list[str] = []
        failed: list[str] = []
        for change in sorted(changes, key=lambda change: bool(change.then.mode)):
            try:
                restore_state(change.path, change.then, self._blobs)
                restored.append(change.shown)
            except (DamagedError, PathError, OSError) as error:
                failed.append(f"{change.shown}: {error}")
        return restored, failed

    def _remove_folder(self, key: str) -> None:
        path = os.path.normpath(os.path.join(self._room.root, key))
        if any(is_within(path, folder) and path != folder for folder in self._room.folders):
            remove_empty_folder(path)


def _parse(fields: Any) -> ChangeRecord | None:
    """An entry of the log out of decoded JSON; None for snapshots of another kind, as of a worktree."""
    if not isinstance(fields, dict) or "root" not in fields:
        return None
    try:
        return msgspec.convert(fields, ChangeRecord)
    except msgspec.ValidationError:
        return None


def _is_named(change: RewindChange, overwrite: Collection[str]) -> bool:
    return change.path in overwrite or change.shown in overwrite


def _missing_folders(path: str) -> list[str]:
    """The folders that would have to be made for a path, the outermost first."""
    missing: list[str] = []
    folder = os.path.dirname(path)
    while not os.path.lexists(folder):
        missing.insert(0, folder)
        folder = os.path.dirname(folder)
    return missing


def _new_file_mode() -> int:
    """Kind and permissions that a new file gets."""
    return 0o100000 | (0o666 & ~read_umask())
